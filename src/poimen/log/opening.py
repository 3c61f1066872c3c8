"""Which log, and how it is opened: the one place that knows the backends.

One resolver for Python and the command line: argument, `POIMEN_DB`, `[tool.poimen] db` of the nearest
pyproject.toml that has it, the nearest `.poimen/poimen.db` upward, else a new one beside the nearest
pyproject.toml or .git. Looking creates nothing. This module must never show a password.

Source: design api.md, "Configuration".
"""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from poimen import project
from poimen.kernel.errors import ConfigurationError, NotBuiltYet
from poimen.secrecy.setting import in_force

if TYPE_CHECKING:
    from collections.abc import Mapping

    from poimen.log.api import Store
    from poimen.log.disk.files import Sides
    from poimen.log.memory import Contents

VARIABLE: Final = "POIMEN_DB"
DEFAULT: Final = Path(".poimen") / "poimen.db"

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PASSWORD: Final = re.compile(r"(://[^:/@?#]*):.*@")
_SECRET: Final = re.compile(r"(?i)([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&#]*")

_named: Final[dict[str, Contents]] = {}
_naming: Final = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where the log is, and why there.

    Arguments:
        url: what `open_store` takes; may hold a password, see `redacted`.
        source: what decided, for people: `POIMEN_DB`, `--db`, a file and its table.
    """

    url: str
    source: str


def open_store(url: str, *, read_only: bool = False, must_exist: bool = False) -> Store:
    """Open a log.

    Arguments:
        url: a path; `sqlite:///relative` or `sqlite:////absolute`; `memory:` (a new log) or `memory:NAME`
            (shared under this name in this process).
        read_only: nothing is created or changed; a log that does not exist is an error.
        must_exist: a log that does not exist is an error.

    Raises:
        ConfigurationError: for another scheme, a place that cannot hold a log, or a setting that cannot be understood.
        NotBuiltYet: for `postgresql://`.
        StorageFailed: when it cannot be opened now.
        Corrupt: when it is older than its anchor.
    """
    in_force()  # a setting that cannot be understood is told before anything is opened
    if url == "memory:" or url.startswith("memory:"):
        from poimen.log.memory import Contents, MemoryStore  # noqa: PLC0415 (a backend is loaded when it is asked for)

        name = url.removeprefix("memory:")
        with _naming:
            contents = _named.setdefault(name, Contents()) if name else Contents()
        return MemoryStore(contents, read_only=read_only)
    path = _path(url)
    from poimen.log.disk.files import require  # noqa: PLC0415 (as above)
    from poimen.log.sqlite import SqliteStore  # noqa: PLC0415 (as above)

    if must_exist:
        require(path.absolute())
    return SqliteStore(path, read_only=read_only)


def refuse_writing(url: str, *, drives: bool = False) -> None:
    """Refuse what an opening for writing would refuse; nothing is created, changed or locked.

    Arguments:
        url: as for `open_store`.
        drives: whoever opens it drives runs, and declares a worker for that.

    Raises:
        ConfigurationError, NotBuiltYet, StorageFailed, Corrupt: as `open_store`.
    """
    path = file_of(url)
    if path is not None:
        from poimen.log import trial  # noqa: PLC0415 (as above)

        trial.refuse(path, drives=drives)


def file_of(url: str) -> Path | None:
    """The file that a URL names; None for a log in memory. Nothing is looked at.

    Raises:
        ConfigurationError, NotBuiltYet: as `open_store`.
    """
    return None if url.startswith("memory:") else _path(url)


def _is_sqlites_own(url: str) -> bool:
    """Whether it is a name that SQLite understands and we do not: taken for a path it would make files of that name."""
    return url.startswith(("file:", ":memory:"))


def sides_of(file: Path) -> Sides:
    """The files that belong to a log in a file: its WAL, what stands beside it. Nothing is looked at."""
    from poimen.log.disk.files import Sides  # noqa: PLC0415 (a backend is loaded when it is asked for)

    return Sides.of(Path(os.path.realpath(file)))


def sqlite_version() -> str:
    """The version of the SQLite that logs are kept by, such as `3.54.1`."""
    import apsw  # noqa: PLC0415 (as above)

    return str(apsw.sqlite_lib_version())


def _path(url: str) -> Path:
    scheme = _SCHEME.match(url)
    if scheme is None:
        if not url.strip():
            raise ConfigurationError("the name of the database is empty", hint="name a file, such as .poimen/poimen.db")
        if "\0" in url:
            raise ConfigurationError(f"{url!r} cannot be a path", hint="name a file, such as .poimen/poimen.db")
        if _is_sqlites_own(url):
            raise ConfigurationError(
                f"{redacted(url)} names no log: it is a name of SQLite's own",
                where=redacted(url),
                hint=f"did you mean memory: (a new log in memory)? a file of this name is ./{redacted(url)}",
            )
        return Path(url).expanduser()
    if scheme[1] in {"postgresql", "postgres"}:
        raise NotBuiltYet(
            "PostgreSQL is not in this version",
            where=redacted(url),
            hint="use a file on a local disk; poimen doctor says which version brings it",
        )
    rest = url[scheme.end() :]
    if scheme[1] != "sqlite" or not rest.startswith("/") or "?" in rest:
        raise ConfigurationError(
            f"{redacted(url)} names no log",
            where=redacted(url),
            hint="give a path, sqlite:///relative/path, sqlite:////absolute/path (without parameters), or memory:",
        )
    if not rest[1:]:
        raise ConfigurationError(f"{url} names no file", where=url, hint="sqlite:///poimen.db")
    return Path(unquote(rest[1:]))


def locate(argument: str | None, *, cwd: Path, environ: Mapping[str, str] | None = None) -> Location:
    """Find out which log is meant; nothing is opened or created.

    Arguments:
        argument: what the caller said; None: nothing.
        cwd: where to look from, absolute.
        environ: the environment; None: this process's.

    Raises:
        ConfigurationError: when a setting cannot be read, or a log found upward belongs to somebody else.
    """
    if argument is not None:
        return Location(url=argument, source="given")
    named = (os.environ if environ is None else environ).get(VARIABLE)
    if named:
        return Location(url=named, source=f"{VARIABLE} in the environment")
    configured = project.setting(cwd, "db")
    if configured is not None:
        file, db = configured
        return Location(url=_from(file.parent, _configured(db, file)), source=f"[tool.poimen] db in {file}")
    upward = list(project.upward(cwd))
    for folder in upward:
        if os.path.isfile(folder / DEFAULT):  # noqa: PTH113 (a folder that may not be looked into counts as empty)
            _refuse_foreign(folder / DEFAULT)
            return Location(url=str(folder / DEFAULT), source=f"found from {cwd} upward")
    for folder in upward:
        for mark in ("pyproject.toml", ".git"):
            if os.path.exists(folder / mark):  # noqa: PTH110 (as above)
                return Location(url=str(folder / DEFAULT), source=f"new, beside {folder / mark}")
    return Location(url=str(cwd / DEFAULT), source=f"new, in {cwd}")


def redacted(url: str) -> str:
    """The URL without its password and whatever looks like one, to be shown."""
    return _SECRET.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


def _configured(db: object, project: Path) -> str:
    if isinstance(db, str) and db:
        return db
    raise ConfigurationError(
        f"[tool.poimen] db is {db!r}", where=str(project), hint="a text such as db = '.poimen/poimen.db'"
    )


def _from(folder: Path, db: str) -> str:
    """A relative path in a file counts from that file."""
    if db.startswith("memory:") or _is_sqlites_own(db) or (_SCHEME.match(db) and not db.startswith("sqlite:///")):
        return db
    if _SCHEME.match(db):
        return f"sqlite:///{folder / db.removeprefix('sqlite:///')}"
    return str(folder / Path(db).expanduser())


def _refuse_foreign(db: Path) -> None:
    """Do not pick up what another user has put in a folder above, such as a shared one for temporary files."""
    owner, us = db.parent.stat().st_uid, os.getuid()
    if us not in {0, owner}:
        raise ConfigurationError(
            f"{db} was found upward and belongs to another user (uid {owner})",
            where=str(db),
            why="whoever owns it could have prepared it",
            hint=f"name it if you trust it (--db or {VARIABLE})",
        )
