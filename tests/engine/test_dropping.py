"""A parked run is let go of without a sound: nothing on stderr, no effect from a `finally`, nothing that spins.

Each kind of code is run in a process of its own, parked on an effect that nobody knows about, and dropped; what the
process says on stderr is all that counts, up to the last line of the interpreter.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

PROGRAM: Final = Path(__file__).with_name("parked.py")
KINDS: Final = (
    "plain",
    "gathered",
    "grouped",
    "shielded",
    "stray",
    "generator",
    "locked",
    "timed",
    "hostile",
    "hostile_step",
    "deaf",
    "spinning",
    "deciding",
    "in_step",
    "grouped_step",
    "sync_workflow",
    "sync_step",
    "sync_finally",
)
RUNS: Final = 200


def _run(*args: str) -> tuple[dict[str, int], str]:
    """What the witness of a process has seen, by tool; and what it has said on stderr."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM), *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, int] = json.loads(done.stdout)
    return seen, done.stderr


def test_two_hundred_parked_runs_are_dropped_in_silence() -> None:
    seen, noise = _run(str(RUNS), *KINDS)
    assert noise == ""
    assert seen.pop("parked") == RUNS
    assert seen.pop("entered") >= RUNS  # each run has come to its effect
    assert seen.pop("in finally") > RUNS / 2  # the code's own lines do run, and its effects were refused
    assert seen == {}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_dropped_in_silence(kind: str) -> None:
    seen, noise = _run("2", kind)
    assert noise == ""
    assert seen.pop("parked") == 2
    assert seen.pop("entered") >= 2
    assert set(seen) <= {"in finally"}


def test_noise_would_be_heard() -> None:
    """The control: the same process, with one asyncio task of its own left to itself."""
    _, noise = _run("1", "noisy")
    assert "never retrieved" in noise
