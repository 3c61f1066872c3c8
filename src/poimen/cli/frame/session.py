"""One command on its way: the log that its options lead to, who acts and why, whether somebody can be asked.

This module must never know a single command; it keeps the invariants that reading creates and changes nothing,
and that only `poimen run` makes a new database.

Source: design api.md, "Command line" and "Configuration".
"""

from __future__ import annotations

import functools
import logging
import os
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from poimen import clock
from poimen._typing import override
from poimen.blobs.tables import TieredBlobs
from poimen.cli.frame.declaring import DAMAGED, ENDS, GIVEN, pasted
from poimen.cli.frame.output import Output, rfc3339
from poimen.engine.handle import actor
from poimen.engine.reading import feed_end
from poimen.kernel.errors import ConfigurationError, Corrupt, NotFound, StorageFailed
from poimen.kernel.ids import said
from poimen.log.opening import file_of, locate, open_store, redacted, refuse_writing
from poimen.log.writer import Door

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from poimen.log.api import Store
    from poimen.log.opening import Location

T = TypeVar("T")

_ENV_LINE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)")
_QUOTED: Final = re.compile(r"""\s*(["'])(.*?)\1\s*(?:\s#.*)?""")
_COMMENT: Final = re.compile(r"\s#.*")
"""A `#` inside a word is part of it, as in a shell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """An open log: the store, the door (for outsiders' records), and where large bodies lie."""

    store: Store
    door: Door
    bodies: TieredBlobs
    damaged: list[Corrupt] = field(default_factory=list)

    @contextmanager
    def passing_damage(self) -> Iterator[None]:
        """Pass over a run that cannot be read; the command tells of it when it has shown the others, and ends so."""
        try:
            yield
        except Corrupt as error:
            self.damaged.append(error)


class Session:
    """One command on its way.

    Arguments:
        ctx: the command's context, all options read.
    """

    def __init__(self, ctx: click.Context) -> None:
        given: dict[str, Any] = ctx.meta.get(GIVEN, {})
        self.db: str | None = given.get("db")
        self.limit: int | None = given.get("limit")
        self.after: str = given.get("after") or ""
        if given.get("after") is not None and not self.after:
            raise click.UsageError("--after is empty: say after which item, or leave it out")
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
        self._damaged: list[Corrupt] = ctx.meta.setdefault(DAMAGED, [])
        self._meta = ctx.meta
        self.env_file: str | None = given.get("env_file")
        if self.env_file:
            _read_env(Path(self.env_file))

    # ---- the log -----------------------------------------------------------------------------------------------

    @functools.cached_property
    def location(self) -> Location:
        """Where the log is, and what decided that."""
        if self.db is not None:
            return locate(self.db, cwd=Path())
        try:
            return locate(None, cwd=Path.cwd())
        except FileNotFoundError as error:
            raise ConfigurationError("the folder here was removed", hint="go to another one, or name --db") from error

    @contextmanager
    def reading(self) -> Iterator[Log]:
        """Open the log for reading: nothing is created or changed.

        Raises:
            StorageFailed, ConfigurationError: there is none, or it cannot be read.
        """
        log = self._open(read_only=True)
        try:
            if self.out.form == "json":
                self.out.as_of = {"feed": _feed_end(log.store), "time": rfc3339(clock.wall_us())}
            yield log
        except NotFound as error:
            error.where = error.where or redacted(self.location.url)
            raise
        finally:
            log.store.close()

    @contextmanager
    def reading_if_there(self) -> Iterator[Log | None]:
        """Open the log for reading; None where there is none yet: no file, or one that no log was written to.

        None too where a failed commit is to be settled first, which a trial says: the next opening for writing does it.

        Raises:
            StorageFailed, ConfigurationError: what is there is no log, or it cannot be read.
        """
        file = file_of(self.location.url)
        log: Log | None = None
        if file is None or is_there(file):
            try:
                log = self._open(read_only=True)
            except ConfigurationError as error:
                if not error.ids.get("empty"):
                    raise
            except StorageFailed as error:
                if not error.ids.get("doubt"):
                    raise
                if self.dry_run:
                    self.out.say("a failed commit is settled first; until then nobody knows which runs exist")
        try:
            yield log
        finally:
            if log is not None:
                log.store.close()

    @contextmanager
    def writing(self) -> Iterator[Log]:
        """Open a log that exists for an outsider's record.

        Raises:
            StorageFailed, ConfigurationError: there is none, or it cannot be written.
        """
        log = self._open(read_only=False)
        try:
            yield log
        finally:
            log.store.close()

    def writes(self, *, when: bool) -> bool:
        """Whether the command is to write; a trial that would is refused here by what would refuse the command.

        Arguments:
            when: there is something to write.

        Raises:
            StorageFailed, ConfigurationError, Corrupt: as `writing`.
        """
        if when and self.dry_run:
            self.try_writing()
        return when and not self.dry_run

    def try_writing(self, *, drives: bool = False) -> None:
        """Refuse what `writing` would refuse, and, where runs would be driven, what a worker would; no trace is left.

        Raises:
            StorageFailed, ConfigurationError, Corrupt: as `writing`.
        """
        with self._naming_source():
            refuse_writing(self.location.url, drives=drives)

    def mark(self) -> None:
        """Note how far the log goes now, for `as_of` of a command that did not look but act."""
        file = file_of(self.location.url)
        if self.out.form == "json" and file is not None and is_there(file):
            with self.reading():
                pass

    def _open(self, *, read_only: bool) -> Log:
        with self._naming_source():
            store = open_store(self.location.url, read_only=read_only, must_exist=True)
        bodies = TieredBlobs(store, store.path)
        return Log(store=store, door=Door(store), bodies=bodies, damaged=self._damaged)

    @contextmanager
    def _naming_source(self) -> Iterator[None]:
        """A path that is wrong was named somewhere: say where."""
        try:
            yield
        except (StorageFailed, ConfigurationError) as error:
            if self.db is None:
                error.message = f"{error.message} ({self.location.source})"
            raise

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Say beside the data what those who drive runs tell whoever watches."""
        logger, listener = logging.getLogger("poimen.told"), _Listener(self.out)
        level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(listener)
        try:
            yield
        finally:
            logger.removeHandler(listener)
            logger.setLevel(level)
        self.mark()

    def ends(self, code: int) -> int:
        """Note the exit code before anything is printed: it stands also where the reader has seen enough."""
        self._meta[ENDS] = code
        return code

    def command(self, text: str) -> str:
        """A command to be pasted: with the database and the settings, where they were given on this line."""
        return pasted(text, self.db, self.env_file)

    # ---- people ------------------------------------------------------------------------------------------------

    def by(self, given: str | None) -> str:
        """Who acts.

        Raises:
            click.UsageError: --by names nobody.
            NotStorable: it is no text.
        """
        if given is not None and not given.strip():
            raise click.UsageError("--by is empty: say who acts, or leave it out")
        by = given or actor()
        said(by=by)
        return by

    def why(self, given: str | None, *, what: str) -> str:
        """Why, for the record: as given, else asked for.

        Raises:
            click.UsageError: it is missing and nobody can be asked; a trial needs none.
            NotStorable: it is no text.
        """
        if self.dry_run and not given:
            return ""
        why = str(given or (click.prompt(f"why {what}", err=True) if self.asks else ""))
        if not why.strip():
            raise click.UsageError(f"--why is missing: say why you {what}, for the record")
        said(why=why)
        return why

    def confirm(self, question: str) -> None:
        """Ask a person, where there is one and --yes was not given.

        Raises:
            click.Abort: the answer is no.
        """
        if self.asks and not self.yes and not self.dry_run:
            click.confirm(question, abort=True, err=True)


class _Listener(logging.Handler):
    """Passes on what is told."""

    def __init__(self, out: Output) -> None:
        super().__init__()
        self._out = out

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Say it."""
        self._out.say(record.getMessage())


def _read_env(file: Path) -> None:
    """Settings of a file, one `NAME=value` a line; what the environment has already stays.

    Raises:
        click.UsageError: when it cannot be read.
    """
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--env-file {file} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        found = _ENV_LINE.fullmatch(text)
        if found is None or "\0" in text:
            raise click.UsageError(f"--env-file {file}, line {number} is not NAME=value")
        quoted = _QUOTED.fullmatch(found[2])
        os.environ.setdefault(found[1], quoted[2] if quoted is not None else _COMMENT.sub("", found[2]).strip())


def _feed_end(store: Store) -> int | None:
    """How far the log goes; None where a damaged record stands in the way, which the command names if it reads it."""
    try:
        return feed_end(store)
    except Corrupt:
        return None


def is_there(file: Path) -> bool:
    """Whether there is something at a path; what cannot even be looked at is told by whoever opens it."""
    try:
        file.stat()
    except (OSError, ValueError):
        return False
    return True


def part_of(session: Session, items: Sequence[T], *, most: int | None) -> tuple[Sequence[T], bool]:
    """The first items of a list, and whether there are more.

    Arguments:
        session: may have --limit.
        items: at least one more than asked for, where there are more.
        most: how many without --limit; None: all.
    """
    limit = session.limit or most
    return (items, False) if limit is None or len(items) <= limit else (items[:limit], True)
