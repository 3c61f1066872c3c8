"""Connections to a database file: how one is opened, recognised, created, and read without a trace.

One SQLite library per process, brought by `apsw`; versions with the WAL-reset bug are refused. This module
must never know about runs. It keeps the settings under which a COMMIT that returns is durable (I2): WAL,
synchronous=FULL, no automatic checkpoint (SQLite swallows its errors), none at close either, unless asked.

Source: design storage.md, "SQLite"; reliability.md sections 0 and 3.
"""

from __future__ import annotations

import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import apsw

from poimen import clock
from poimen.kernel.errors import ConfigurationError, Corrupt, PoimenError, StorageFailed
from poimen.log.disk import files, locks
from poimen.log.disk.anchor import Mark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

OLDEST_SQLITE: Final = (3, 51, 3)
APPLICATION_ID: Final = 0x706F_696D
SCHEMA: Final = 1
BUSY_MS: Final = 5000
"""How long a person waits in place for a log that another process has locked."""
AGAIN_MS: Final = 50
"""How long one waits for it who tries again by himself: a worker, whose event loop stands still meanwhile."""

_SQL: Final = Path(__file__).parent.parent / "sql"
_ATTEMPTS: Final = 20


def _named(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split("-- name: ")[1:]:
        name, _, body = part.partition("\n")
        found[name.strip()] = "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip()
    return found


SQL: Final[Mapping[str, str]] = _named((_SQL / "queries.sql").read_text(encoding="utf-8"))
"""Every statement, by its name in `sql/queries.sql`."""


def refuse_old(version: str) -> None:
    """Refuse a SQLite that can lose commits.

    Arguments:
        version: such as `3.54.1`.

    Raises:
        ConfigurationError: below 3.51.3, which has the WAL-reset bug.
    """
    if tuple(int(part) for part in version.split(".")[:3]) < OLDEST_SQLITE:
        raise ConfigurationError(
            f"SQLite {version} cannot be trusted with a log",
            why="before 3.51.3 two connections can lose or damage committed records (the WAL-reset bug)",
            hint="pip install --upgrade apsw",
        )


def mark_of(rows: Callable[[str, tuple[Any, ...]], list[Any]]) -> Mark:
    """What a database says of itself.

    Arguments:
        rows: runs one statement and gives all its rows.

    Raises:
        Corrupt: when it has lost its identity.
    """
    known = [rows(SQL["meta"], (key,)) for key in ("log_id", "generation")]
    if not all(known):
        raise Corrupt("the log has lost its id or its generation")
    log_id, generation = (found[0][0] for found in known)
    base = rows(SQL["meta"], ("base",))
    return Mark(
        log_id=str(log_id),
        generation=int(generation),
        feed=int(rows(SQL["feed_end"], ())[0][0]),
        base=int(base[0][0]) if base else -1,
    )


def translated(error: BaseException, db: Path, doing: str) -> PoimenError:
    """The error to raise for one that SQLite or the system raised.

    Arguments:
        error: what was raised.
        db: the database's path, for the message.
        doing: what was tried, such as `reading`.
    """
    where = str(db)
    if isinstance(error, apsw.NotADBError):
        return ConfigurationError(
            f"{db} is not a SQLite database", where=where, hint="name another file, or move this one away"
        )
    if isinstance(error, (apsw.CorruptError, apsw.ConstraintError, UnicodeDecodeError)):
        return Corrupt(f"{db} is damaged: {doing}: {error}", where=where)
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StorageFailed(
            f"{db} is locked: {doing}: {error}",
            where=where,
            why=_held_by(db),
            hint="end the process that holds it",
            locked=True,
        )
    return StorageFailed(f"{db} cannot be used: {doing}: {error}", where=where, hint="poimen doctor")


def _held_by(db: Path) -> str:
    sides = files.Sides.of(db)
    pids = [pid for pid in locks.holders((sides.db, sides.shm, sides.open)) if pid != os.getpid()]
    who = f"process {', '.join(map(str, pids))}" if pids else "another process"
    return f"{who} has it open: somebody is reading or writing it"


def connect(db: Path, *, vfs: str | None) -> apsw.Connection:
    """Open a file for writing, under the settings that make a COMMIT durable; a new file gets its tables.

    Arguments:
        db: an existing file, perhaps empty.
        vfs: the name of an apsw VFS; None: the system's.

    Raises:
        ConfigurationError: when the file is no log of poimen, or one of a newer version.
        StorageFailed: when the settings do not take.
    """
    refuse_old(apsw.sqlite_lib_version())
    connection = _open(str(db), apsw.SQLITE_OPEN_READWRITE, vfs)
    try:
        empty = not _recognised(connection, db)
        _set(connection, db, "journal_mode", "WAL", expect="wal")
        _set(connection, db, "synchronous", "FULL", expect=2)
        if sys.platform == "darwin":
            _set(connection, db, "fullfsync", "1", expect=1)
            _set(connection, db, "checkpoint_fullfsync", "1", expect=1)
        connection.wal_autocheckpoint(0)
        connection.execute("PRAGMA cache_size = -16000").fetchall()
        connection.execute("PRAGMA temp_store = MEMORY").fetchall()
        if empty:
            _create(connection, db)
        refuse_altered(lambda sql, values: connection.execute(sql, values).fetchall(), db)
    except BaseException:
        connection.close()
        raise
    return connection


def refuse_altered(rows: Callable[[str, tuple[Any, ...]], list[Any]], db: Path) -> None:
    """Refuse tables that are not as they were made, see `altered`.

    Raises:
        Corrupt: at the first difference.
    """
    for what in altered(rows):
        raise Corrupt(
            f"the tables of {db} were altered: {what}",
            where=str(db),
            why="records could be changed on their way, or found no more",
            hint="undo it with the program that did it (src/poimen/log/sql/schema.sql), or restore a backup",
        )


@cache
def _schema() -> frozenset[tuple[str, str, str]]:
    """Type, name and text of everything that a log consists of."""
    connection = apsw.Connection(":memory:")
    connection.execute((_SQL / "schema.sql").read_text(encoding="utf-8")).fetchall()
    found: list[Any] = connection.execute(SQL["schema"]).fetchall()
    connection.close()
    return frozenset(found)


def altered(rows: Callable[[str, tuple[Any, ...]], list[Any]]) -> list[str]:
    """What differs from the tables as they were made: what is missing or changed, and triggers, which we never make.

    What others have added otherwise (a view, a table of their own) changes no record.

    Arguments:
        rows: runs one statement and gives all its rows.
    """
    found = frozenset(rows(SQL["schema"], ()))
    missing = sorted(f"{kind} {name} is missing or changed" for kind, name, _ in _schema() - found)
    return missing + sorted(f"trigger {name} is not ours" for kind, name, _ in found if kind == "trigger")


def _open(name: str, flags: int, vfs: str | None) -> apsw.Connection:
    connection = apsw.Connection(name, flags=flags, vfs=vfs)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.set_busy_timeout(BUSY_MS)
    return connection


def _set(connection: apsw.Connection, db: Path, pragma: str, value: str, *, expect: object) -> None:
    until = clock.monotonic() + BUSY_MS / 1000
    while True:
        try:
            connection.execute(f"PRAGMA {pragma} = {value}").fetchall()
            break
        except apsw.BusyError:  # another first opening has the lock that this takes, and SQLite does not wait for it
            if clock.monotonic() >= until:
                raise
            time.sleep(0.005)
    got = connection.execute(f"PRAGMA {pragma}").get
    if got != expect:
        raise StorageFailed(
            f"SQLite refuses {pragma}={value} for {db} (it says {got!r})",
            where=str(db),
            why="a commit would not be durable when it returns",
        )


def _recognised(connection: apsw.Connection, db: Path) -> bool:
    """Whether the file holds a log of this version; False: it is empty."""
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    mark = connection.execute("PRAGMA application_id").get
    version = connection.execute("PRAGMA user_version").get
    if not tables and not mark:
        return False
    if mark != APPLICATION_ID:
        raise ConfigurationError(
            f"{db} is a SQLite database, but not a log of poimen", where=str(db), hint="name another file"
        )
    if version != SCHEMA:
        raise ConfigurationError(
            f"{db} has tables of version {version}, this poimen writes version {SCHEMA}",
            where=str(db),
            hint="use the version of poimen that wrote it, or poimen db migrate",
        )
    return True


def _create(connection: apsw.Connection, db: Path) -> None:
    connection.execute("BEGIN IMMEDIATE").fetchall()
    try:
        if not _recognised(connection, db):
            connection.execute((_SQL / "schema.sql").read_text(encoding="utf-8")).fetchall()
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}").fetchall()
            connection.execute(f"PRAGMA user_version = {SCHEMA}").fetchall()
            connection.execute(SQL["set_meta"], ("log_id", clock.random_hex(16))).fetchall()
            connection.execute(SQL["set_meta"], ("generation", 0)).fetchall()
    except BaseException:
        connection.execute("ROLLBACK").fetchall()
        raise
    connection.execute("COMMIT").fetchall()


class Reader:
    """Reads a database and leaves no trace: no file appears, none changes, none is locked for long.

    Three ways, chosen before each reading. Where -wal and -shm exist (a writer lives, or was killed), an
    ordinary read-only connection. Where there is no -wal, the file is at rest: it is read as immutable, and
    the reading is done again if the file has changed meanwhile. Where a -wal lies there without its -shm (a
    copy), an exclusive connection that keeps its index in memory; others have to wait for it.
    What remains: the times and contents of an existing -shm may change, as it is shared memory. And where a
    process was killed in the middle of a commit, a reader may see a tail that only the next opening for writing
    makes durable.

    Arguments:
        db: the file.
        vfs: the name of an apsw VFS; None: the system's.
    """

    def __init__(self, db: Path, *, vfs: str | None = None) -> None:
        refuse_old(apsw.sqlite_lib_version())
        self._db = db
        self._vfs = vfs
        self._sides = files.Sides.of(db)
        self._live: apsw.Connection | None = None
        self._seen: tuple[int, ...] | None = None
        self._changes = 0

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """All rows of one statement.

        Raises:
            StorageFailed: when the database cannot be read.
            Corrupt: when SQLite finds it damaged.
        """
        return self.using(lambda connection: connection.execute(sql, values).fetchall())

    def using(self, work: Callable[[apsw.Connection], T]) -> T:
        """Do something with a connection that reads; `work` may be called more than once.

        Raises:
            StorageFailed: when the database cannot be read, or changes whenever it is.
            Corrupt: when SQLite finds it damaged.
        """
        try:
            for _ in range(_ATTEMPTS):
                if self._live is not None or (self._sides.wal.exists() and self._sides.shm.exists()):
                    return work(self._ordinary())
                before = self._standing()
                answer, failure = self._at_rest(work)
                if self._standing() != before:
                    continue
                if failure is not None:
                    raise failure
                return answer  # type: ignore[return-value]
        except (apsw.Error, UnicodeDecodeError) as error:
            raise translated(error, self._db, "reading") from error
        raise StorageFailed(f"{self._db} changes faster than it can be read", where=str(self._db))

    def changed(self) -> int:
        """A number that differs after somebody has committed."""
        if self._live is None:
            standing = self._standing()
            if standing != self._seen:
                self._seen = standing
                self._changes += 1
        version = 0 if self._live is None else self.using(lambda connection: connection.execute(_VERSION).get)
        return self._changes << 32 | int(version)

    def close(self) -> None:
        """Close the connection that is open, if any."""
        if self._live is not None:
            self._live.close()
            self._live = None

    def _ordinary(self) -> apsw.Connection:
        if self._live is None:
            self._live = self._checked(_open(str(self._db), apsw.SQLITE_OPEN_READONLY, self._vfs))
            self._changes += 1
        return self._live

    def _at_rest(self, work: Callable[[apsw.Connection], T]) -> tuple[T | None, apsw.Error | None]:
        connection: apsw.Connection | None = None
        try:
            if _size(self._sides.wal):
                connection = _open(str(self._db), apsw.SQLITE_OPEN_READWRITE, self._vfs)
                connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
                connection.execute("PRAGMA query_only = 1").fetchall()
            else:
                name = f"file:{quote(str(self._db))}?immutable=1"
                connection = _open(name, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, self._vfs)
            return work(self._checked(connection)), None
        except apsw.Error as error:
            return None, error
        finally:
            if connection is not None:
                connection.close()

    def _checked(self, connection: apsw.Connection) -> apsw.Connection:
        try:
            if not _recognised(connection, self._db):
                said = f"{self._db} is empty: no log was written to it"
                raise ConfigurationError(said, where=str(self._db), empty=True)
        except BaseException:
            connection.close()
            raise
        return connection

    def _standing(self) -> tuple[int, ...]:
        """What changes when anybody writes to a database at rest."""
        try:
            found = self._db.stat()
        except OSError as error:
            raise StorageFailed(f"no database at {self._db}", where=str(self._db)) from error
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, _size(self._sides.wal)


_VERSION: Final = "PRAGMA data_version"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
