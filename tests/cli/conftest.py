"""The command line, in this process and as a process of its own, on databases that real kills have left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
from click.testing import CliRunner

import poimen
from poimen.cli.main import root

AGENT: Final = Path(__file__).with_name("agent.py")
HOME: Final = Path(poimen.__file__).parents[1]
MAIL: Final = "tea-1/main/mail#0/1/0"
TIMEOUT_S: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def envelope(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def data(self) -> Any:
        return self.envelope["data"]

    @property
    def error(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.err.splitlines()[-1])["error"]
        return found


class Cli(Protocol):
    def __call__(self, *words: str | Path, stdin: str | None = None) -> Said: ...


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str | Path, stdin: str | None = None) -> Said:
        result = CliRunner().invoke(root, [str(word) for word in words], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(code=result.exit_code, out=result.stdout, err=result.stderr)

    return run


def environment(**more: str) -> dict[str, str]:
    """For a child: nothing of this machine's settings but where to find poimen."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POIMEN_")}
    return kept | {"PYTHONPATH": str(HOME), "POIMEN_BY": "tester"} | more


def child(*words: str | Path, cwd: Path, **env: str) -> Said:
    """Run a command as a process of its own, to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "poimen", *map(str, words)],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Said(code=done.returncode, out=done.stdout, err=done.stderr)


@pytest.fixture(scope="session")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the run `tea-1` was killed in window B of its mail: sent, and not recorded."""
    folder = tmp_path_factory.mktemp("killed")
    done = child("run", f"{AGENT}:shop", "tea", "--id", "tea-1", "--db", "db", cwd=folder, POIMEN_CRASH="called:mail")
    assert done.code == -signal.SIGKILL, done
    return folder


@pytest.fixture(scope="session")
def waiting_once(killed_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, started again: the run waits for an operator."""
    folder = tmp_path_factory.mktemp("waiting") / "folder"
    shutil.copytree(killed_once, folder)
    done = child("run", f"{AGENT}:shop", "--id", "tea-1", "--db", "db", cwd=folder)
    assert done.code == 4, done
    return folder


@pytest.fixture
def killed(killed_once: Path, tmp_path: Path) -> Path:
    """The database of the killed run, in the folder of the test."""
    shutil.copytree(killed_once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "db"


@pytest.fixture
def waiting(waiting_once: Path, tmp_path: Path) -> Path:
    """The database of the run that waits, in the folder of the test."""
    shutil.copytree(waiting_once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "db"
