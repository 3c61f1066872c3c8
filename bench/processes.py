"""S4 and S5: how long a process takes to its first effect, and one that was killed to know where it stands."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from bench import workload
from bench.figures import Figure
from poimen import Runtime, RunWaiting, clock

ROOT = Path(__file__).resolve().parents[1]

FIRST = (
    "import sys, time; import bench.workload as w; import poimen;"
    "poimen.run(w.lone(1), db=sys.argv[1]); sys.stdout.write(str(time.time_ns()))"
)

KILLED = "import asyncio, sys; from bench import processes; asyncio.run(processes.hang(*sys.argv[1:]))"


def start_up(folder: Path, *, repeat: int) -> list[Figure]:
    """S5: how long an import takes, and how long from exec to the first committed effect."""
    bare, imports, firsts = [], [], []
    for n in range(repeat):
        bare.append(_seconds("pass"))
        imports.append(_seconds("import poimen") - bare[-1])
        began = clock.wall_us()
        firsts.append(int(_python(FIRST, folder / f"start-{n}.db")) / 1e9 - began / 1e6)
    floor = sorted(bare)[len(bare) // 2]
    return [
        Figure.of("S5 import", imports, "s", "<= 0.12 s", floor=floor),
        Figure.of("S5 first effect after exec", firsts, "s", "<= 0.2 s", floor=floor),
    ]


def _seconds(code: str) -> float:
    began = time.perf_counter()
    _python(code)
    return time.perf_counter() - began


def _python(code: str, *args: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout


def recovery(folder: Path, *, runs: int, repeat: int) -> list[Figure]:
    """S4: a process with `runs` runs in the middle of an effect is killed; how long until each is known again.

    Each effect may happen once only, so that each ends as an unknown that waits for the operator. The witness counts
    what happened before the kill and after it.
    """
    took: list[float] = []
    repeated = 0
    for n in range(repeat):
        db, witness = folder / f"killed-{n}.db", folder / f"witness-{n}"
        witness.touch()
        child = subprocess.Popen([sys.executable, "-c", KILLED, str(db), str(witness), str(runs)], cwd=ROOT)
        while len(witness.read_bytes().splitlines()) < runs:
            if child.poll() is not None:
                raise RuntimeError(f"the process ended with {child.returncode} before it was to be killed")
            time.sleep(0.05)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        took.append(asyncio.run(_recovered(db, runs)))
        repeated += len(witness.read_bytes().splitlines()) - runs
    return [
        Figure.of(f"S4 recovery of {runs} killed runs", took, "s", "<= 0.4 s"),
        Figure.of("S4 effects repeated", [repeated], "", "0"),
    ]


async def hang(db: str, witness: str, runs: str) -> None:
    """Start runs that each reach the middle of an effect and stay there (in the process that is killed)."""
    os.environ[workload.WITNESS] = witness
    async with Runtime(db, modules=[workload], concurrency=int(runs)) as runtime:
        handles = [await runtime.start(workload.killed(n), run_id=f"killed-{n}") for n in range(int(runs))]
        await asyncio.gather(*(handle.result() for handle in handles))


async def _recovered(db: Path, runs: int) -> float:
    began = time.perf_counter()
    async with Runtime(str(db), modules=[workload], concurrency=runs) as runtime:
        ends = [(await runtime.get(f"killed-{n}")).result(waiting="raise") for n in range(runs)]
        found = await asyncio.gather(*ends, return_exceptions=True)
        took = time.perf_counter() - began
    if strange := [end for end in found if not isinstance(end, RunWaiting)]:
        raise RuntimeError(f"a recovered run does not wait for its operator: {strange[0]!r}")
    return took
