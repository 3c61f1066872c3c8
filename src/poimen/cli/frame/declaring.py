"""How commands are declared: global options anywhere on the line, nouns that list, names of later parts.

This module must never know a single command, nor open anything: it is imported for `poimen --help`. It keeps the
invariant that every command takes the same global options, and that the last one on the line counts.

Source: design api.md, "Command line".
"""

from __future__ import annotations

import functools
import re
import shlex
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from poimen._typing import override

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

F = TypeVar("F", bound="Callable[..., Any]")

GIVEN: Final = "poimen.given"
"""Where the context keeps the global options that stood on the line."""

DAMAGED: Final = "poimen.damaged"
"""Where the context keeps what a list has passed over because it cannot be read."""

ENDS: Final = "poimen.ends"
"""Where the context keeps the exit code that a command has found out before it prints."""

_SHOWN: Final = 200
"""Characters of an argument that a message shows."""
_MOST: Final = 1_000_000_000

_PLAIN: Final = re.compile(r"[A-Za-z0-9@%+=:,./_][A-Za-z0-9@%+=:,./_#-]*")
_PASTED: Final = re.compile(r"\bpoimen (?=[a-z])")

# ---- options ---------------------------------------------------------------------------------------------------


class GlobalOption(click.Option):
    """An option that every command takes; the last one on the line counts."""

    def __init__(self, *names: str, **settings: Any) -> None:
        super().__init__(list(names), expose_value=False, callback=_keep, **settings)


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if param.name is not None and ctx.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE:
        ctx.meta.setdefault(GIVEN, {})[param.name] = value


def global_options(*, lists: bool, hidden: bool = True) -> list[click.Parameter]:
    """The global options.

    Arguments:
        lists: the command prints a list, of which a part can be asked for.
        hidden: leave them out of the command's own help.
    """
    flag: dict[str, Any] = {"is_flag": True, "hidden": hidden}
    text: dict[str, Any] = {"hidden": hidden}
    part = [
        GlobalOption("--limit", type=click.IntRange(1, _MOST), help="at most so many items", **text),
        GlobalOption("--after", help="go on after this item: what --json calls `next`", **text),
    ]
    return [
        GlobalOption("--db", help="the database: a path, sqlite:///path or memory:", **text),
        GlobalOption("--env-file", type=click.Path(dir_okay=False), help="read settings from a file first", **text),
        GlobalOption("--json", help="print one JSON envelope", **flag),
        GlobalOption("--jsonl", help="print one line of JSON an item", **flag),
        *(part if lists else []),
        GlobalOption("--content", help="show what agents, tools and far sides said", **flag),
        GlobalOption("--time", type=click.Choice(["utc", "local", "ago"]), help="how people read times", **text),
        GlobalOption("--color", type=click.Choice(["auto", "always", "never"]), help="also: NO_COLOR", **text),
        GlobalOption("--no-input", help="never ask; what is missing is an error", **flag),
        GlobalOption("--yes", help="do not ask for confirmation; never applies to inbox resolve", **flag),
        GlobalOption("--dry-run", help="say what would be recorded, and record nothing", **flag),
        GlobalOption("-q", "--quiet", help="data and errors only", **flag),
        GlobalOption("-v", "--verbose", help="say more", **flag),
    ]


def pasted(text: str, db: str | None, env_file: str | None) -> str:
    """A command to be pasted: with the database and the file of settings, where they were named on this line."""
    again = [] if env_file is None else ["--env-file", env_file]
    if db is not None:
        from poimen.log.opening import redacted

        again += ["--db", redacted(db)]
    return _PASTED.sub(lambda _: f"poimen {shlex.join(again)} ", text) if again else text


def clipped(text: str) -> str:
    """What somebody gave, as a message shows it."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


class NotWritten(OSError):
    """Standard output takes nothing: the disk under it is full, or what it led to is gone."""


def own_version() -> str:
    """The version of poimen; a source tree that was not installed does not say."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("poimen")
    except PackageNotFoundError:
        return "not installed"


def word(text: str) -> str:
    """A text as one word of a shell, in quotes only where it needs them; ids of intents have a `#` inside."""
    return text if _PLAIN.fullmatch(text) else shlex.quote(text)


def changing(f: F) -> F:
    """Give a command that changes something the options that say who and why."""
    f = click.option("--why", help="why, for the record")(f)
    return click.option("--by", help="who; POIMEN_BY, else user@host, when left out")(f)


class Command(click.Command):
    """A command that takes the global options too."""

    @override
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its own options; the global ones are with `poimen --help`."""
        super().format_options(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text("Global options (--json, --db, ...) are listed by: poimen --help")


class Noun(click.Group):
    """Commands about one kind of thing; the bare noun, or one with options only, lists.

    Arguments:
        default: what the bare noun does.
        later: names that a later part brings, and which.
    """

    def __init__(self, *args: Any, default: str, later: Mapping[str, int] | None = None, **attrs: Any) -> None:
        super().__init__(*args, **attrs)
        self.default = default
        self.later = dict(later or {})
        self.params.extend(global_options(lists=True))

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default where no command is named."""
        named = any(arg in self.commands or arg in self.later for arg in args)
        if not self.default:
            args = args or ["--help"]
        elif not named and "--help" not in args and (not args or args[0].startswith("-")):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; one of a later part says so when it is called."""
        found = super().get_command(ctx, cmd_name)
        return later(cmd_name, self.later[cmd_name]) if found is None and cmd_name in self.later else found


def noun(name: str, *, default: str = "ls", later: Mapping[str, int] | None = None) -> Callable[[Any], Noun]:
    """Declare a noun; its docstring is its help."""

    def decorate(f: Callable[[], None]) -> Noun:
        return Noun(name, help=f.__doc__, default=default, later=later)

    return decorate


def command(group: click.Group | None, name: str, *, lists: bool = False, **attrs: Any) -> Callable[[Any], Command]:
    """Declare a command `f(session, **options)`; what it returns, if anything, is the exit code."""

    def decorate(f: Callable[..., int | None]) -> Command:
        @functools.wraps(f)
        def called(**options: Any) -> int | None:
            from poimen.cli.frame.session import Session

            session = Session(click.get_current_context())
            if "by" in options:  # before anything is looked at, so that a trial refuses nobody too
                options["by"] = session.by(options["by"])
            return f(session, **options)

        made: Command = click.command(name, cls=Command, **attrs)(called)
        made.params.extend(global_options(lists=lists))
        if group is not None:
            group.add_command(made)
        return made

    return decorate


def later(name: str, part: int) -> click.Command:
    """A command whose machinery a later part brings: it takes whatever is given, and says so."""

    def refuse() -> None:
        from poimen.kernel.errors import NotBuiltYet

        path = click.get_current_context().command_path
        raise NotBuiltYet(
            f"{path} is not in this version",
            why=f"its machinery comes with part {part}; nothing was done",
            hint="poimen doctor lists what comes with which part",
        )

    takes_all = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    return click.Command(name, callback=refuse, context_settings=takes_all, help=f"comes with part {part}")
