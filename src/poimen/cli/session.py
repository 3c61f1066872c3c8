"""What every command shares: the global options, the log that they lead to, who acts and why.

Global options may stand anywhere on the line. This module must never know a single command; it keeps the
invariants that reading creates and changes nothing, and that only `poimen run` makes a new database.

Source: design api.md, "Command line" and "Configuration".
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from poimen._typing import override

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from poimen.blobs.tables import TieredBlobs
    from poimen.cli.output import Output
    from poimen.log.api import Store
    from poimen.log.opening import Location
    from poimen.log.writer import Door

F = TypeVar("F", bound="Callable[..., Any]")

GIVEN: Final = "poimen.given"
"""Where the context keeps the global options that stood on the line."""

_ENV_LINE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")

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
        GlobalOption("--limit", type=click.IntRange(min=1), help="at most so many items", **text),
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
        if self.default and not named and "--help" not in args and (not args or args[0].startswith("-")):
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
            return f(Session(click.get_current_context()), **options)

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


# ---- the session -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """An open log: the store, the door (for outsiders' records), and where large bodies lie."""

    store: Store
    door: Door
    bodies: TieredBlobs


class Session:
    """One command on its way.

    Arguments:
        ctx: the command's context, all options read.
    """

    def __init__(self, ctx: click.Context) -> None:
        from poimen.cli.output import Output

        given: dict[str, Any] = ctx.meta.get(GIVEN, {})
        self.db: str | None = given.get("db")
        self.limit: int | None = given.get("limit")
        self.after: str = given.get("after") or ""
        self.content = bool(given.get("content"))
        self.dry_run = bool(given.get("dry_run"))
        self.yes = bool(given.get("yes"))
        self.asks = not given.get("no_input") and sys.stdin.isatty()
        self.out: Output = Output(
            form="json" if given.get("json") else "jsonl" if given.get("jsonl") else "text",
            time=given.get("time") or "utc",
            color=given.get("color") or "auto",
            quiet=bool(given.get("quiet")),
            verbose=bool(given.get("verbose")),
        )
        if given.get("env_file"):
            _read_env(Path(given["env_file"]))

    # ---- the log -----------------------------------------------------------------------------------------------

    @functools.cached_property
    def location(self) -> Location:
        """Where the log is, and what decided that."""
        from poimen.log.opening import locate

        return locate(self.db, cwd=Path.cwd())

    @contextmanager
    def reading(self) -> Iterator[Log]:
        """Open the log for reading: nothing is created or changed.

        Raises:
            StorageFailed, ConfigurationError: there is none, or it cannot be read.
        """
        from poimen import clock
        from poimen.cli.output import rfc3339
        from poimen.engine.reading import feed_end

        log = self._open(read_only=True)
        try:
            if self.out.form == "json":
                self.out.as_of = {"feed": feed_end(log.store), "time": rfc3339(clock.wall_us())}
            yield log
        finally:
            log.store.close()

    @contextmanager
    def writing(self) -> Iterator[Log]:
        """Open a log that exists for an outsider's record.

        Raises:
            StorageFailed, ConfigurationError: there is none, or it cannot be written.
        """
        from poimen.log.disk.files import require
        from poimen.log.opening import file_of

        with self._naming_source():
            file = file_of(self.location.url)
            if file is not None:
                require(file.absolute())
        log = self._open(read_only=False)
        try:
            yield log
        finally:
            log.store.close()

    def _open(self, *, read_only: bool) -> Log:
        from poimen.blobs.tables import TieredBlobs
        from poimen.log.opening import open_store
        from poimen.log.writer import Door

        with self._naming_source():
            store = open_store(self.location.url, read_only=read_only)
        return Log(store=store, door=Door(store), bodies=TieredBlobs(store, getattr(store, "path", None)))

    @contextmanager
    def _naming_source(self) -> Iterator[None]:
        """A path that is wrong was named somewhere: say where."""
        from poimen.kernel.errors import ConfigurationError, StorageFailed

        try:
            yield
        except (StorageFailed, ConfigurationError) as error:
            if self.db is None:
                error.message = f"{error.message} ({self.location.source})"
            raise

    def command(self, text: str) -> str:
        """A command to be pasted: with the database, where one was given on this line."""
        if self.db is None:
            return text
        return re.sub(r"\bpoimen (?=[a-z])", f"poimen --db {shlex.quote(self.db)} ".replace("\\", r"\\"), text)

    # ---- people ------------------------------------------------------------------------------------------------

    def by(self, given: str | None) -> str:
        """Who acts."""
        from poimen.engine.client import actor

        return given or actor()

    def why(self, given: str | None, *, what: str) -> str:
        """Why, for the record: as given, else asked for.

        Raises:
            click.UsageError: it is missing and nobody can be asked.
        """
        if self.dry_run:
            return given or ""
        said = given or (click.prompt(f"why {what}", err=True) if self.asks else "")
        if not said.strip():
            raise click.UsageError(f"--why is missing: say why you {what}, for the record")
        return str(said)

    def confirm(self, question: str) -> None:
        """Ask a person, where there is one and --yes was not given.

        Raises:
            click.Abort: the answer is no.
        """
        if self.asks and not self.yes and not self.dry_run:
            click.confirm(question, abort=True, err=True)


def _read_env(file: Path) -> None:
    """Settings of a file, one `NAME=value` a line; what the environment has already stays.

    Raises:
        click.UsageError: when it cannot be read.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--env-file {file} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        found = _ENV_LINE.fullmatch(text)
        if found is None:
            raise click.UsageError(f"--env-file {file}, line {number} is not NAME=value")
        value = found[2]
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        os.environ.setdefault(found[1], value[1:-1] if quoted else value)


def part_of(session: Session, items: Sequence[Any], *, most: int | None) -> tuple[Sequence[Any], bool]:
    """The first items of a list, and whether there are more.

    Arguments:
        items: at least one more than asked for, where there are more.
        most: how many without --limit; None: all.
    """
    limit = session.limit or most
    return (items, False) if limit is None or len(items) <= limit else (items[:limit], True)
