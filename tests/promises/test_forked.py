"""A child that was forked inside a run is refused at once, whatever it asks the run for, and the parent goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import poimen

HOME: Final = Path(poimen.__file__).parents[1]

PROGRAM: Final = """
import asyncio, os, signal, sys, warnings
import poimen
from poimen import effects
warnings.simplefilter("ignore")

@poimen.tool(effect=effects.AT_MOST_ONCE)
def act(text: str) -> str:
    return text

@poimen.step
def inner(text: str) -> str:
    return text

@poimen.workflow
def other(text: str) -> str:
    return act(text)

def ask(what):
    if what == "tool":
        act("child")
    elif what == "step":
        inner("child")
    elif what == "decide":
        poimen.decide("child", 1)
    elif what == "settle":
        poimen.settle("parent")
    elif what == "own":  # a run of the child's own, in the same log
        assert poimen.run(other("x"), db="db", run_id="own") == "x"

def forks(what):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # who hangs is ended, and the parent sees by what
        try:
            ask(what)
            said = "nothing was refused"
        except poimen.StorageFailed as error:
            said = f"refused: {error}"
        except BaseException as error:
            said = f"other: {type(error).__name__}: {error}"
        os.write(2, said.encode())
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

@poimen.tool(effect=effects.AT_MOST_ONCE)
def forking(what: str) -> int:
    return forks(what)

@poimen.step
def stepping(what: str) -> int:
    return forks(what)

@poimen.workflow
def in_sync(where: str, what: str) -> int:
    poimen.decide("parent", what)
    ended = {"tool": forking, "step": stepping, "workflow": forks}[where](what)
    assert act("after") == "after"
    return ended

@poimen.workflow
async def in_async(where: str, what: str) -> int:
    poimen.decide("parent", what)
    ended = forks(what)
    assert await act.aio("after") == "after"
    return ended

where, what = sys.argv[1:]
print(poimen.run((in_async if where == "async" else in_sync)(where, what), db="db", run_id="r"))
"""


def told(where: str, what: str, at: Path) -> tuple[str, str]:
    """How the forked child ended, by its parent, and what it said."""
    env = os.environ | {"PYTHONPATH": str(HOME)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, where, what],
        cwd=at,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout.strip(), done.stderr


@pytest.mark.parametrize(
    ("where", "what"),
    [
        *(("workflow", what) for what in ("tool", "step", "decide", "settle")),
        *(("step", "tool"), ("step", "decide"), ("tool", "tool"), ("tool", "decide"), ("async", "decide")),
    ],
)
def test_a_forked_child_is_refused(where: str, what: str, tmp_path: Path) -> None:
    ended, said = told(where, what, tmp_path)
    assert ended == "0", said
    assert "refused: PO403" in said
    assert "a fork does not inherit it" in said


def test_a_child_may_drive_runs_of_its_own(tmp_path: Path) -> None:
    ended, said = told("workflow", "own", tmp_path)
    assert (ended, said) == ("0", "nothing was refused")
