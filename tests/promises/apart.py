"""Agents written to a file and run in a process of their own, and what the log says of their run afterwards."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from poimen.engine.reading import read_run
from poimen.log.opening import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from poimen.kernel.events import Event


def play(folder: Path, program: str, *, crash: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own.

    Arguments:
        folder: where it lives, and leaves its database and its witness.
        program: its text.
        crash: where it dies, as `POIMEN_CRASH` takes it.
        env: more of its environment, which is otherwise empty.
    """
    (folder / "agent.py").write_text(program, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "agent.py"],
        cwd=folder,
        env={"POIMEN_CRASH": crash, "PATH": "", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def events(db: Path, run: str = "r") -> list[Event]:
    """What is recorded of a run, in order."""
    store = open_store(str(db), read_only=True)
    try:
        return [event for _, event, _ in read_run(store, run)[1]]
    finally:
        store.close()
