"""What one more effect costs: microseconds and syncs, with the machine's floor measured right before and right after.

One runtime at a time, nothing else of this harness running. The effect does nothing, so this is the cost of the
runtime alone. Syncs are the fsync and fdatasync calls that strace sees, in the process and in its server; the
difference of a run of 110 effects and one of 10. This module must never compare figures of different machines; it
keeps the invariant that every figure stands beside a floor of the same minute.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.floor import Bare
from bench.peers.trial import command, plain_env
from poimen.testing import strace_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.peers.runtimes import Runtime
    from bench.peers.servers import Servers

FEW: Final = 10
MANY: Final = 110
TIMEOUT_S: Final = 300.0
TICKS: Final = os.sysconf("SC_CLK_TCK")


def floor(folder: Path, effects: int = 300) -> list[float]:
    """Seconds of three bare commits of an effect's bytes, synchronous=FULL, each time.

    Arguments:
        folder: on the disk that is measured.
        effects: how often.
    """
    bare = Bare(folder / f"floor-{time.monotonic_ns()}.db")
    return [bare.effect() for _ in range(effects)]


def timing(runtime: Runtime, servers: Servers) -> dict[str, Any]:
    """The figures of one runtime.

    Arguments:
        runtime: which.
        servers: where it finds its server.
    """
    with tempfile.TemporaryDirectory(prefix="peers-time-") as name:
        folder = Path(name).resolve()
        before = floor(folder)
        settings = servers.settings(runtime.server)
        began, foreign = time.monotonic(), _foreign(servers.processes(runtime.server))
        done = _driver(runtime, "time", folder / "t", settings)
        spent = time.monotonic() - began
        foreign = _foreign(servers.processes(runtime.server)) - foreign
        after = floor(folder)
        seconds = [1e6 * each for each in json.loads(done.stdout.splitlines()[-1])["seconds"]]
        counts = {n: _syncs(runtime, n, folder / f"c{n}", servers) for n in (FEW, MANY)}
        bare = 1e6 * statistics.median(before + after)
        return {
            "us": round(statistics.median(seconds), 1),
            "spread": [round(min(seconds), 1), round(max(seconds), 1)],
            "floor us": round(bare, 1),
            "floor before and after": [round(1e6 * statistics.median(each), 1) for each in (before, after)],
            "syncs": round((counts[MANY] - counts[FEW]) / (MANY - FEW), 2),
            "foreign cores": round(max(0.0, foreign) / spent, 2),
        }


def _foreign(servers: list[int]) -> float:
    """CPU seconds that this machine has spent on anything but this process, its ended children, and these servers."""
    fields = [int(each) for each in Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:]]
    busy = sum(fields[:8]) - fields[3] - fields[4]
    for pid in servers:  # the children that have ended are counted with their parent
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        busy -= sum(int(each) for each in after_name[11:15])
    return busy / TICKS - sum(os.times()[:4])


def _driver(
    runtime: Runtime,
    mode: str,
    state: Path,
    settings: Mapping[str, str],
    *,
    under: tuple[str, ...] = (),
    count: int = 0,
) -> subprocess.CompletedProcess[str]:
    state.mkdir()
    env = plain_env(state, {**settings, "PEER_COUNT": str(count), "PEER_ARMED": str(state / "armed")})
    return subprocess.run(
        [*under, *command(runtime, mode)], check=True, capture_output=True, text=True, env=env, timeout=TIMEOUT_S
    )


def _syncs(runtime: Runtime, effects: int, folder: Path, servers: Servers) -> int:
    settings = servers.settings(runtime.server)
    trace = folder.with_suffix(".trace")
    under = strace_command(output=trace)
    if not runtime.server:
        _driver(runtime, "count", folder, settings, under=tuple(under), count=effects)
        return _counted(trace)
    pids = [word for pid in servers.processes(runtime.server) for word in ("-p", str(pid))]
    watch = subprocess.Popen([*_options(under), *pids], stderr=subprocess.PIPE, text=True)
    try:
        _attached(watch, len(pids) // 2)
        _driver(runtime, "count", folder, settings, count=effects)
    finally:
        watch.send_signal(signal.SIGINT)
        watch.communicate()
    return _counted(trace)


def _options(under: list[str]) -> list[str]:
    """The beginning of a command line of strace, without what ends its options and without what quietens it."""
    return [word for word in under if word not in {"--", "-q", "-qq", "-qqq", "--seccomp-bpf"}]


def _attached(watch: subprocess.Popen[str], processes: int) -> None:
    seen = 0
    for line in watch.stderr or ():
        seen += "attached" in line
        if seen >= processes:
            return


def _counted(trace: Path) -> int:
    """Syncs that have ended: a call that another thread's has interrupted stands on two lines."""
    lines = trace.read_text(encoding="utf-8", errors="replace").splitlines()
    return sum("sync(" in line or "datasync(" in line for line in lines)
