"""The writing end of a database: one connection, its transactions, and what happens when one fails.

Fail-stop: an error in a COMMIT is *unknown*, not failed. The handle is dead from then on: it acknowledges
nothing, gives out no LSN, never tries the sync again, and leaves a marker beside the database that closes it
to all processes until the doubt is settled. An error before COMMIT was tried is a failure, and the handle is
dead as well; a lock that could not be had is neither. This module must never know what a record is. It
keeps I2 and, with the data version that it watches for the caches above it, I3.

Source: design storage.md, "Durability" (fail-stop), "SQLite"; reliability.md section 0.2.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final, Protocol

import apsw

from poimen.kernel.errors import CommitUnknown, Corrupt, PoimenError, StorageFailed
from poimen.log.disk import connect, doubt, files, locks
from poimen.secrecy.speaking import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Any, Self

    from poimen.log.api import NewRecord

CHECKPOINT_PAGES: Final = 4000
"""A passive checkpoint is tried each time the WAL has grown by so many pages."""

OPENING_PATIENCE_S: Final = 10.0

_logger: Final = logger("poimen.log")


class Doubtful(Protocol):
    """What a transaction was about to write: enough of it to be settled."""

    @property
    def run(self) -> str:
        """The run's id."""
        ...

    @property
    def records(self) -> Sequence[NewRecord]:
        """What it would append."""
        ...


class Handle:
    """An open database that may be written. Not safe after a fork: each call says so.

    Arguments:
        db: the resolved path; the file must exist.
        vfs: the name of an apsw VFS; None: the system's.

    Raises:
        ConfigurationError: when the file is no log of poimen.
        StorageFailed: when it cannot be opened.
    """

    def __init__(self, db: Path, *, vfs: str | None = None) -> None:
        self.db = db
        self.sides = files.Sides.of(db)
        self.lock = threading.RLock()
        self.dead = ""
        self.moved = 0
        self._locked = False
        self.settling = False
        self.workers = locks.Workers(self.sides.workers)
        self._pid = os.getpid()
        self._files = files.Found(db)
        self._version: int | None = None
        self._pages = 0
        self._checkpoint_at = CHECKPOINT_PAGES
        self._marker = str(self.sides.doubt)
        self._locks: list[locks.LockFile | locks.Turn] = []
        try:
            self._connection = connect.connect(db, vfs=vfs)
        except (apsw.Error, OSError) as error:
            raise connect.translated(error, db, "opening") from error
        self._files.add(self.sides.wal)
        self.execute: Callable[..., Any] = self._connection.cursor().execute
        self.executemany: Callable[..., Any] = self._connection.cursor().executemany
        self._connection.set_wal_hook(self._wal_has)
        try:
            self.alone = self._announce()
        except BaseException:
            self.release()
            raise

    def _announce(self) -> bool:
        """Say that the database is open; True when nobody else has it open (then others wait at this door)."""
        try:
            self._turn = locks.Turn(self.sides)
            self._locks.append(self._turn)
            self._open = locks.LockFile(self.sides.open)
            self._locks.append(self._open)
        except OSError as error:
            raise connect.translated(error, self.db, "locking") from error
        if self._open.try_exclusive():
            return True
        self.admit_others()
        return False

    def admit_others(self) -> None:
        """Hold the database open beside others.

        Raises:
            StorageFailed: when another process stands in the door for too long.
        """
        self.alone = False
        if not self._open.wait(shared=True, patience_s=OPENING_PATIENCE_S):
            raise StorageFailed(
                f"another process has been opening {self.db} for {OPENING_PATIENCE_S:.0f} s",
                where=str(self.db),
                why=f"held by process {locks.holders([self.sides.open])}",
            )

    def guard(self) -> None:
        """Refuse to work in a forked child, or after a failure.

        Raises:
            StorageFailed: in both cases.
        """
        if os.getpid() != self._pid:
            raise forked(self.db)
        if self.dead:
            raise StorageFailed(
                f"this handle of {self.db} is dead: {self.dead}",
                where=str(self.db),
                why="what it says could contradict what is on disk",
                hint="close it and open the database again",
            )

    def refuse_moved(self) -> None:
        """Stop for good when a path no longer names the file that is open there: the database, or its WAL.

        Raises:
            StorageFailed: when it was moved, removed or replaced.
        """
        if moved := self._files.moved():
            self.die(f"{moved} was moved, removed or replaced while it was open")
            self.guard()

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """All rows of one statement, so that no reader stays open.

        Raises:
            StorageFailed: when the database cannot be read.
            Corrupt: when SQLite finds it damaged.
        """
        with self.lock:
            self.guard()
            try:
                return self._connection.execute(sql, values).fetchall()
            except (apsw.Error, UnicodeDecodeError) as error:
                raise connect.translated(error, self.db, "reading") from error

    def hurry(self) -> None:
        """Wait only a moment for a log that another process has locked; the caller holds `lock`."""
        self._connection.set_busy_timeout(connect.AGAIN_MS)

    def transaction(self) -> Transaction:
        """A transaction that holds the write lock from its start; the caller holds `lock`."""
        return Transaction(self)

    def begin(self) -> None:
        """Take the turn and the write lock.

        `moved` grows when others have committed, or one here did not end as planned: what was remembered is void.

        Raises:
            StorageFailed: no lock (`locked`: nothing was written), moved, or yet to be settled.
        """
        self.guard()
        self._turn.take(connect.AGAIN_MS / 1000 if self._locked else locks.TURN_PATIENCE_S)
        self.refuse_moved()
        try:
            if self._connection.in_transaction:
                self.execute("ROLLBACK")
            self.execute("BEGIN IMMEDIATE")
        except (apsw.BusyError, apsw.LockedError) as error:
            self._locked = True
            self._turn.give()
            raise connect.translated(error, self.db, "waiting for the write lock") from error
        except (apsw.Error, OSError) as error:
            self.die(f"beginning a transaction failed: {error}")
            raise connect.translated(error, self.db, "beginning a transaction") from error
        self._locked = False
        if not self.settling and os.access(self._marker, os.F_OK):
            self.undo()
            raise doubt.closed(self.db)
        version = self._connection.data_version()
        if version != self._version:
            self.moved += 1
            self._version = version

    def changes(self) -> int:
        """How many rows this connection has changed so far."""
        return self._connection.total_changes()

    def commit(self, doubtful: Sequence[Doubtful]) -> None:
        """COMMIT, with its one sync, and give the turn back.

        Arguments:
            doubtful: the batches that the transaction holds.

        Raises:
            CommitUnknown: when SQLite reports an error; the handle is dead then.
        """
        self._version = None
        try:
            self.execute("COMMIT")
            self._version = self._connection.data_version()
        except Exception as error:
            raise self._unknown(error, doubtful) from error
        finally:
            self.undo()

    def _unknown(self, error: Exception, doubtful: Sequence[Doubtful]) -> CommitUnknown:
        ids = tuple(record.record_id for batch in doubtful for record in batch.records)
        why = "a failed commit is unknown, not undone: part or all of it may be on disk, or may only seem to be"
        try:
            doubt.mark(self.sides, doubtful, worker=" ".join(self.workers.own), error=str(error))
        except OSError as failure:
            why += f"; {self.sides.doubt.name}, which would close the database, could not be written: {failure}"
        self.die(f"a commit failed: {error}")
        return CommitUnknown(
            f"the commit of {len(ids)} records to {self.db} failed: {error}",
            where=str(self.db),
            why=why,
            record_ids=ids,
            runs=tuple(dict.fromkeys(batch.run for batch in doubtful)),
        )

    def undo(self) -> None:
        """ROLLBACK what is still open, if anything, and give the turn back."""
        if self.dead:
            return
        try:
            if self._connection.in_transaction:
                self.execute("ROLLBACK")
        except apsw.Error as error:
            self.die(f"a rollback failed: {error}")
        finally:
            self._turn.give()

    def forget(self) -> None:
        """Make the next transaction count as if others had committed."""
        self._version = None

    def broken(self, error: Exception, doing: str) -> PoimenError:
        """Undo, and stop for good after an error of storage inside a transaction.

        Returns:
            The error to raise: nothing of the transaction is in the log, since COMMIT was not tried.
        """
        self.undo()
        self.die(f"{doing} failed: {error}")
        found = connect.translated(error, self.db, doing)
        if not isinstance(found, Corrupt):
            found.why = "nothing of it is in the log; the handle stops here, for the next write could fail unseen"
            found.hint = "mend the cause (space, disk), end this process and start it again"
        return found

    def die(self, reason: str) -> None:
        """Stop for good: no statement is run on this connection any more."""
        if self.dead:
            return
        self.dead = reason
        _logger.error("%s: the handle is dead: %s", self.db, reason)
        try:
            self._connection.close()
        except apsw.Error as error:
            _logger.warning("%s: closing a failed connection: %s", self.db, error)
        for lock in self._locks:
            lock.close()

    def data_version(self) -> int:
        """A number that differs after another connection has committed."""
        return int(self.rows("PRAGMA data_version")[0][0])

    def checkpoint_due(self) -> bool:
        """Whether the WAL has grown enough for a passive checkpoint."""
        return self._pages >= self._checkpoint_at

    def wal_pages(self) -> int:
        """Pages in the WAL after our last commit."""
        return self._pages

    def checkpoint(self) -> None:
        """Move what readers allow from the WAL into the database (a passive wal_checkpoint).

        A failure unsays no commit: it is a warning, and it is tried again when the WAL has grown further.
        """
        self._checkpoint_at = self._pages + CHECKPOINT_PAGES
        try:
            self._connection.wal_checkpoint(None, apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            _logger.warning("%s: a checkpoint failed, the WAL keeps growing: %s", self.db, error)

    def truncate(self, why: str) -> None:
        """Rewrite and sync all of the WAL into the database, and empty it.

        Arguments:
            why: what needs it, for the error.

        Raises:
            StorageFailed: when somebody reads or writes for too long, or the disk refuses.
        """
        with self.lock:
            self.guard()
            try:
                # A connection that has read nothing yet would skip the checkpoint without a word.
                self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
                self._connection.wal_checkpoint(None, apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.Error as error:
                raise connect.translated(error, self.db, f"{why} needs a TRUNCATE checkpoint") from error
            self._pages = 0
            self._checkpoint_at = CHECKPOINT_PAGES

    def _wal_has(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        if pages < self._pages:
            self._checkpoint_at = CHECKPOINT_PAGES
        self._pages = pages
        return apsw.SQLITE_OK

    def close(self) -> None:
        """Empty the WAL when nobody else has the database open, and close."""
        if self.dead:
            self.release()
            return
        if not self._files.moved() and not self.sides.doubt.exists() and self._open.try_exclusive():
            try:
                self.truncate("closing")
                self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            except StorageFailed as error:
                _logger.warning("%s: left with its WAL: %s", self.db, error.message)
        self.dead = "it was closed"
        self.release()

    def release(self) -> None:
        """Close the connection and let go of all locks."""
        self.dead = self.dead or "it was not opened"
        try:
            self._connection.close()
        except apsw.Error as error:
            _logger.warning("%s: closing: %s", self.db, error)
        self.workers.close()
        for lock in self._locks:
            lock.close()


class Transaction:
    """A transaction as a `with` block: COMMIT at its end, or ROLLBACK.

    Attributes:
        doubtful: the batches it holds; set before the end.
        wanted: False: roll back at the end, without a sync.
    """

    __slots__ = ("_handle", "doubtful", "wanted")

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.doubtful: Sequence[Doubtful] = ()
        self.wanted = True

    def __enter__(self) -> Self:
        self._handle.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handle = self._handle
        if error is None and self.wanted:
            handle.commit(self.doubtful)
            return
        if isinstance(error, (apsw.Error, OSError)):
            raise handle.broken(error, "writing") from error
        if error is not None:
            handle.forget()
        handle.undo()


def forked(db: Path) -> StorageFailed:
    """The error of every call in a forked child."""
    return StorageFailed(
        f"{db} was opened before this process was forked",
        where=str(db),
        why="a connection shared by two processes damages the log",
        hint="open the database after the fork (multiprocessing: use the spawn method)",
    )
