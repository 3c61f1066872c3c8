"""One trial: a far side, a process of the runtime that dies where the situation says, its recovery, and the judgement.

This module must never know how a runtime works; it keeps the invariant that a trial in which the process did not die
as it should is an error, not a result.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.peers.cut import lay_out, what_was_synced
from bench.peers.far_side import FarSide
from bench.peers.install import python_of
from poimen.testing.power.syscalls import traced_recording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.peers.runtimes import Runtime
    from bench.peers.situations import Situation

DRIVERS: Final = Path(__file__).with_name("drivers")
LIMIT_S: Final = 60.0
MARGIN_S: Final = 60.0
_PASSED: Final = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")


class NotAsMeantError(AssertionError):
    """The process did not die where it should have: nothing is measured."""


def command(runtime: Runtime, mode: str) -> list[str]:
    """How a driver is started.

    Arguments:
        runtime: whose.
        mode: see `drivers/inside.py`.
    """
    return [str(python_of(runtime.venv)), str(DRIVERS / runtime.driver), mode]


def plain_env(state: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of a driver: nothing of this shell that could change what it does."""
    env = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return {**env, "PYTHONDONTWRITEBYTECODE": "1", "PEER_STATE": str(state), **settings}


def run_trial(
    runtime: Runtime, situation: Situation, offers: str, settings: Mapping[str, str], run: str
) -> dict[str, Any]:
    """Let it happen once; how many effects the far side has done, and how the run says that it has ended.

    Arguments:
        runtime: which.
        situation: what happens.
        offers: what the far side offers.
        settings: from `Servers.settings`.
        run: the run's id, new for each trial.

    Raises:
        NotAsMeantError: the process has not died, or has not been stopped, as the situation says.
    """
    with tempfile.TemporaryDirectory(prefix="peers-trial-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        state, armed = folder / "state", folder / "armed"
        state.mkdir()
        side = FarSide(
            folder / "effects",
            ttl_s=situation.ttl_s,
            lag_s=situation.lag_s,
            loses=situation.loses,
            rewords=situation.rewords,
        )
        with side:
            env = plain_env(
                state,
                {
                    "PEER_FAR_SIDE": side.url,
                    "PEER_ARMED": str(armed),
                    "PEER_OFFERS": offers,
                    "PEER_RUN": run,
                    "PEER_TTL_S": str(situation.ttl_s),
                    "PEER_LAG_S": str(situation.lag_s),
                    "PEER_LIMIT_S": str(LIMIT_S),
                    **settings,
                },
            )
            if situation.how != "none":
                armed.write_text(f"{situation.at} {situation.how}", encoding="utf-8")
            ended = _Trial(runtime, situation, env, side, folder).ended()
            return {"landed": side.landed, **ended}


class _Trial:
    def __init__(
        self, runtime: Runtime, situation: Situation, env: dict[str, str], side: FarSide, folder: Path
    ) -> None:
        self.runtime, self.situation, self.env, self.side, self.folder = runtime, situation, env, side, folder

    def ended(self) -> dict[str, str]:
        if self.situation.cut:
            self._cut_off()
        elif self.situation.how == "stop":
            return self._overtaken()
        else:
            done = self._run("start")
            if self.situation.how == "none":
                return _said(done)
            self._must_have_died(done.returncode, done.stderr)
        if self.situation.expires:
            time.sleep(self.side.keys_expire_in() + 0.2)
        return _said(self._run("resume"))

    def _run(self, mode: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(self.runtime, mode),
            check=False,
            capture_output=True,
            text=True,
            env=self.env,
            timeout=LIMIT_S + MARGIN_S,
        )

    def _must_have_died(self, code: int | None, errors: str = "") -> None:
        if code != -signal.SIGKILL:
            raise NotAsMeantError(f"{self.runtime.name}: exit {code} at {self.situation.name}\n{errors[-2000:]}")

    def _cut_off(self) -> None:
        state = Path(self.env["PEER_STATE"])
        recording, done = traced_recording(
            command(self.runtime, "start"), root=state, folder=self.folder, channels={}, env=self.env, timeout_s=LIMIT_S
        )
        self._must_have_died(done.returncode, done.stderr)
        lay_out(what_was_synced(recording), state)

    def _overtaken(self) -> dict[str, str]:
        """Two processes: the first is stopped in its call, the second goes on, then the first wakes."""
        with tempfile.TemporaryFile("w+") as out:
            first = subprocess.Popen(
                command(self.runtime, "start"), env=self.env, stdout=out, stderr=subprocess.DEVNULL
            )
            try:
                _, how = os.waitpid(first.pid, os.WUNTRACED)
                if not os.WIFSTOPPED(how):
                    raise NotAsMeantError(f"{self.runtime.name}: it was not stopped")
                second = _said(self._run("resume"))
                first.send_signal(signal.SIGCONT)
                first.wait(LIMIT_S + MARGIN_S)
            finally:
                if first.poll() is None:
                    first.kill()
                    first.wait()
            if second["ended"] != "busy":
                return second
            out.seek(0)
            return _last_line(out.read(), "")


def _said(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return _last_line(done.stdout, done.stderr)


def _last_line(out: str, errors: str) -> dict[str, str]:
    for line in reversed(out.splitlines()):
        if line.startswith('{"ended"'):
            found: dict[str, str] = json.loads(line)
            return found
    raise NotAsMeantError(f"the driver has not said how the run ended\n{out[-1000:]}\n{errors[-3000:]}")
