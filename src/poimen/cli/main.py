"""The entry: which commands there are, where each lives, and what an error ends the process with.

`poimen --help` must cost next to nothing, so a command's module is imported when the command is called. This
module must never know what a command does; it keeps the invariant that every way out has an exit code of the table.

Source: design api.md, "Command line".
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from poimen._typing import override
from poimen.cli.frame.declaring import DAMAGED, ENDS, NotWritten, clipped, global_options, later, own_version, pasted
from poimen.kernel.errors import ConfigurationError, Corrupt, PoimenError, StorageFailed, flat

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Run": {
        "run": ("running", "run a workflow to its end in this process"),
        "runs": ("runs", "what runs there are, where they stand; resume, cancel"),
    },
    "What must be decided": {
        "inbox": ("inbox", "what waits for a person; show, probe, claim, resolve"),
        "decisions": ("decisions", "what agents decided and still owe; settle, reject"),
        "intents": ("intents", "every effect and the records around it"),
    },
    "Look": {
        "doctor": ("doctor", "which database, why each run does not move, what is owed"),
        "log": ("log", "records as written; follow, check"),
        "db": ("log", "the database; check, backup"),
        "explain": ("demo", "the long form of an error code"),
    },
    "Try": {
        "demo": ("demo", "watch a process being killed, and what the log says then"),
        "reproduce": ("demo", "the decision window: written before the wait, and after it"),
        "bench": ("demo", "measure, with the machine's floor beside each figure"),
        "completion": ("demo", "a script that completes commands in a shell"),
    },
}
"""Section → name → the module with an attribute of this name, and what the help says."""

LATER: Final[dict[str, int]] = {
    "lint": 3,
    "metrics": 3,
    "queues": 3,
    "schedules": 3,
    "steps": 3,
    "usage": 3,
    "worker": 3,
    "workers": 3,
    "branches": 4,
    "episode": 4,
    "verify": 4,
}
"""Names of the interface that a later part brings."""

HOMES: Final = {name: home for section in COMMANDS.values() for name, (home, _) in section.items()}

INTERRUPTED: Final = 130
USAGE: Final = 2
_ENDED_BADLY: Final = 1
_EXITS: Final = {
    "PO108": 5,  # Conflict
    "PO104": 5,  # DecisionConflict
    "PO106": 5,  # RunExists
    "PO114": 5,  # Refused
    "PO110": 3,  # NotFound
    "PO111": 6,  # ConfigurationError
    "PO112": 6,  # ReadOnly
    "PO204": 8,  # CodeChanged
    "PO310": 4,  # IndeterminateOutcome
    "PO312": 9,  # BudgetReached
    "PO313": 4,  # CrashLoop
    "PO401": 6,  # Fenced
    "PO402": 6,  # CommitUnknown
    "PO403": 6,  # StorageFailed
    "PO501": 7,  # Corrupt
}
WAITING: Final = {"code": 8, "budget": 9}
"""What PO330 ends with by what is waited for; anything else needs a person: 4."""
_ONE_LINE: Final = 6
"""Errors with this exit are told on one line: nothing but the place is wrong."""


def exit_code(error: PoimenError) -> int:
    """What an error ends the process with.

    Source: design api.md, "Exit".
    """
    if error.code == "PO330":
        return WAITING.get(str(getattr(error, "reason", "")), 4)
    return _EXITS.get(error.code, USAGE if error.code.startswith("PO1") else _ENDED_BADLY)


class Root(click.Group):
    """All commands, each imported when it is called."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """The names that work."""
        return list(HOMES)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (as above)
        """The command of this name."""
        if cmd_name in LATER:
            return later(cmd_name, LATER[cmd_name])
        home = HOMES.get(cmd_name)
        if home is None:
            return None
        found: click.Command = getattr(import_module(f"poimen.cli.{home}"), cmd_name)
        return found

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 (as above)
        """The sections, from the table: no command is imported."""
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, says) for name, (_, says) in section.items()])
        with formatter.section("Later"):
            for part in sorted(set(LATER.values())):
                names = [name for name, its in LATER.items() if its == part]
                formatter.write_text(f"with part {part}: {' '.join(names)}")
        with formatter.section("Exit"):
            formatter.write_text(
                "0 ok · 1 the run ended badly · 2 usage · 3 not found · 4 an operator must decide · 5 conflict · "
                "6 database unreachable · 7 log damaged · 8 code differs · 9 budget reached · 130 interrupted"
            )

    @override
    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader that has seen enough ends it without a word, and takes nothing from its exit code.

        Raises:
            Corrupt: a list has passed over what cannot be read; the rest of it was shown.
        """
        try:
            code = super().invoke(ctx)
        except BrokenPipeError:
            _give_up(sys.stdout)
            code = ctx.meta.get(ENDS, 0)
        damaged: list[Corrupt] = ctx.meta.get(DAMAGED, [])
        if damaged:
            first, more = damaged[0], len({str(error) for error in damaged}) - 1
            first.why = first.why + (f"; {more} more are damaged" if more else "")
            first.hint = "poimen log check"
            raise first
        return code

    @override
    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """Run one command and leave with its exit code."""
        given = list(sys.argv[1:] if args is None else args) or ["--help"]
        if "--json" in given or "--jsonl" in given:
            logging.getLogger("poimen").addHandler(logging.NullHandler())  # else its warnings stand before the error
        extra["standalone_mode"] = False
        extra["prog_name"] = "poimen"
        try:
            code = super().main(given, *rest, **extra)
        except PoimenError as error:
            _tell(given, error.code, error.message or type(error).title(), error.hint, str(error))
            code = exit_code(error)
        except click.ClickException as error:
            _tell(given, "usage", error.format_message(), _look_there(error), _usage(error))
            code = USAGE
        except click.Abort as error:
            interrupted = isinstance(error.__context__, KeyboardInterrupt)
            said = "interrupted" if interrupted else "stopped: nothing was recorded"
            _tell(given, said.partition(":")[0], said, "", said)
            code = INTERRUPTED if interrupted else USAGE
        except OSError as error:
            code = _outside(given, error)
        except UnicodeError as error:
            _tell(given, "usage", said := f"what was given is no text: {clipped(str(error))}", "", f"usage: {said}")
            code = USAGE
        sys.exit(code if isinstance(code, int) else 0)


def _outside(given: list[str], error: OSError) -> int:
    """Tell of a failure of the world around that no command has named; what was recorded before stays recorded."""
    if isinstance(error, NotWritten):
        title, hint = str(error.strerror), "what was done is done, only its report is missing: poimen runs"
    else:
        name = f": {clipped(str(error.filename))}" if error.filename is not None else ""
        title, hint = flat(f"the system refused: {error.strerror or error}{name}"), "mend the cause and try again"
    _tell(given, StorageFailed.code, title, hint, title)
    try:
        sys.stdout.flush()
    except OSError:
        _give_up(sys.stdout)
    return exit_code(StorageFailed(""))


def _give_up(stream: Any) -> None:
    """Lead a stream that takes nothing more into nothing, so that leaving does not fail over what it still holds."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _tell(given: list[str], code: str, title: str, hint: str, text: str) -> None:
    """Say on stderr what went wrong, in the form that was asked for; what was given and is long is clipped."""
    for word in sorted((word for word in given if len(word) > len(clipped(word))), key=len, reverse=True):
        title, text = (said.replace(word, clipped(word)) for said in (title, text))
    from poimen.cli.frame.output import as_json, clean

    db, env_file = _given(given, "--db"), _given(given, "--env-file")
    text, hint = pasted(text, db, env_file), pasted(hint, db, env_file)
    if "--json" in given or "--jsonl" in given:
        _say(as_json({"error": {"code": code, "title": title, "hint": hint}}))
        return
    if _EXITS.get(code) == _ONE_LINE:
        text = flat(f"{code} {title}{f' · {hint}' if hint else ''}")
    _say(clean(text).rstrip())


def _say(text: str) -> None:
    """Write to stderr, without secrets; where nobody can be told, the exit code still says it."""
    from poimen.secrecy.speaking import redacted

    with suppress(ConfigurationError):  # it may be the very error that is told
        text = redacted(text)
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        _give_up(sys.stderr)


def _given(words: list[str], option: str) -> str | None:
    """The value of an option on the line; the last one counts."""
    apart = [value for word, value in pairwise([*words, ""]) if word == option]
    joined = [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    return next(iter([*joined, *reversed(apart)]), None)


def _usage(error: click.ClickException) -> str:
    lines = [f"{_look_there(error)}"] if isinstance(error, click.UsageError) and error.ctx else []
    return "\n".join([f"usage: {flat(error.format_message())}", *(f"      go on: {line}" for line in lines)])


def _look_there(error: click.ClickException) -> str:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return f"{ctx.command_path} --help" if ctx is not None else "poimen --help"


root = Root(
    name="poimen",
    help="A durable runtime for agents that act: was it sent? did it land? who decides?",
    params=[
        *global_options(lists=True, hidden=False),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=lambda ctx, _param, value: _version(ctx) if value else None,
            help="the version, and leave",
        ),
    ],
    epilog="Ids accept a unique prefix. A bare noun lists. Agent text is shown only with --content.",
)
"""The command line itself, as click knows it."""


def _version(ctx: click.Context) -> None:
    click.echo(f"poimen {own_version()}")
    ctx.exit(0)


def _open_what_is_closed() -> None:
    """Stand in for a standard stream that was closed: else a database could get its number, and be written over."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def main() -> NoReturn:
    """Run the command line of this process."""
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        root.main()
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            _leave_now()
        raise


def _leave_now() -> None:
    """Leave although the body of a tool still runs in a thread: an interrupted process is a dead one."""
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread() and not thread.daemon]
    if others:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)
