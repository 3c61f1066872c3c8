"""Runs the commands that a page shows, and compares what they print with what it says."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from poimen.cli.main import root

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.docs.pages import Command

TIMEOUT_S: Final = 60

RUN_HERE: Final = frozenset({"poimen", "python", "cat", "cd", "cp", "echo", "grep", "ls", "mkdir", "rm", "sed", "wc"})
NOT_HERE: Final = frozenset({"git", "pip", "source", "sudo"})
"""Programs that change the machine or its shell: shown, and not run."""

_ASSIGNED: Final = re.compile(r"[A-Z][A-Z0-9_]*=.*")
_TO_FILL_IN: Final = re.compile(r"[A-Z][A-Z_]+")
_ANYTHING: Final = re.compile(r"\\\.\\\.\\\.|…")


class Shell:
    """A reader at a terminal: an empty folder, and the programs of this environment.

    Arguments:
        folder: to begin in.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._at = folder.parent / f"{folder.name}.at"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("POIMEN_", "PYTHON"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._env = kept | {"PATH": path, "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, command: str) -> tuple[int, str]:
        """Run one command where the one before has left us; its exit code, and what it printed."""
        script = 'cd "$1" || exit; eval "$2"; code=$?; pwd >"$3"; exit $code'
        done = subprocess.run(
            ["bash", "-c", script, "bash", self.folder, command, self._at],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._env,
            timeout=TIMEOUT_S,
        )
        self.folder = Path(self._at.read_text(encoding="utf-8").strip())
        return done.returncode, done.stdout


def complaint(command: Command, code: int, printed: str) -> str:
    """What differs between a command as the page shows it and as it went; empty when nothing does."""
    if command.killed or code == 128 + signal.SIGKILL:
        if not command.killed:
            return "it was killed, and the page does not say so"
        return "" if code == 128 + signal.SIGKILL else f"it was not killed: exit {code}\n{printed}"
    if code != command.exit:
        return f"exit {code}, the page says {command.exit}\n{printed}"
    missing = first_missing(command.shown, printed.splitlines())
    return "" if missing is None else f"it does not print {missing!r} there, but:\n{printed}"


def first_missing(shown: Sequence[str], printed: Sequence[str]) -> str | None:
    """The first line that a page shows and a command has not printed, in this order.

    How many spaces stand between words does not matter: the width of a column depends on what is in it.
    """
    left = iter(" ".join(line.split()) for line in printed)
    for line in shown:
        wanted = " ".join(line.split())
        if wanted in {"", "...", "…"}:
            continue
        pattern = re.compile(_ANYTHING.sub(".*", re.escape(wanted)))
        if not any(pattern.fullmatch(real) for real in left):
            return line
    return None


# ---- which programs a command names ------------------------------------------------------------------------------


def parts(command: str) -> list[list[str]]:
    """The simple commands of a line, each as its words, without the variables set before it."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;")
    lexer.commenters = ""
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("|&;"):
            found.append([])
        elif found[-1] or not _ASSIGNED.fullmatch(word):
            found[-1].append(word)
    return [words for words in found if words]


def can_run(command: str) -> bool:
    """Whether every program that a command names can run here, and nothing is left for the reader to fill in."""
    named = {words[0] for words in parts(command)}
    unknown = named - RUN_HERE - NOT_HERE - {"make"}
    assert not unknown, f"a page runs {unknown}: say in {__name__} whether that can run here"
    return named <= RUN_HERE and not any(_TO_FILL_IN.fullmatch(word) for words in parts(command) for word in words)


def unknown_words(words: Sequence[str]) -> Iterator[str]:
    """What the command line does not know of a `poimen …`: a command, or an option of one.

    Arguments:
        words: `poimen` and what follows. A command of a later part takes everything.
    """
    at: click.Command = root
    options = _options(root)
    left = iter(words[1:])
    naming = True
    for word in left:
        if word.startswith("-"):
            name, sep, _ = word.partition("=")
            if name not in options and not is_later(at):
                yield word
            elif options.get(name) and not sep:
                next(left, None)
        elif naming and isinstance(at, click.Group):
            found = at.get_command(click.Context(at), word)
            if found is None and at is root and word not in {"…", "..."}:
                yield word
            naming = found is not None
            at = found or at
            options |= _options(at)


def _options(of: click.Command) -> dict[str, bool]:
    """The options of a command by name, and whether a value follows."""
    given = [param for param in of.params if isinstance(param, click.Option)]
    found = {name: not (o.is_flag or o.count) for o in given for name in (*o.opts, *o.secondary_opts)}
    return {**found, "--help": False, "--": False}


def every_option() -> set[str]:
    """The options of all commands."""
    found: set[str] = set()
    waiting: list[click.Command] = [root]
    for at in waiting:
        found |= set(_options(at))
        if isinstance(at, click.Group):
            below = (at.get_command(click.Context(at), name) for name in at.list_commands(click.Context(at)))
            waiting += [command for command in below if command is not None]
    return found


def is_later(command: click.Command) -> bool:
    """Whether a later part brings it."""
    return (command.help or "").startswith("comes with part")
