"""The log in one SQLite file: the default backend.

A commit takes the batches of many callers, writes them in one transaction and syncs once: `disk.group` decides
and numbers, `disk.handle` commits and stops for good when that fails. This module must never know about
events: it sees tags and bytes. It keeps I2 (synced before it returns), and shows every reader records that
match their hashes.

Side files: see `disk.files.Sides`. A second store on the same file in one process is fine; a plain `open()` of
the database, its -wal or its -shm is not: closing it would drop SQLite's locks.

Source: design storage.md, "The log", "Durability", "SQLite".
"""

from __future__ import annotations

import os
import threading
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from poimen import clock
from poimen.kernel.errors import Corrupt, PoimenError, ReadOnly, StorageFailed
from poimen.log import chain, wal
from poimen.log.disk import care, connect, doubt, files
from poimen.log.disk import leases as leasing
from poimen.log.disk.anchor import Anchor, Anchored
from poimen.log.disk.connect import SQL, Reader
from poimen.log.disk.group import Group, Memory
from poimen.log.disk.handle import Handle, forked
from poimen.log.disk.locks import Workers
from poimen.log.disk.rows import head_of, heads_of, record_of
from poimen.secrecy.speaking import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from poimen.log.api import Batch, Committed, Damage, Head, Lease, Look, Record
    from poimen.log.disk.doubt import Settled
    from poimen.log.disk.group import Place

ANCHOR_EACH_S: Final = 60.0

_TRUNCATE_ABOVE_PAGES: Final = 500
_LAST: Final = (1 << 63) - 1

_logger: Final = logger("poimen.log")


class SqliteStore:
    """A `Store` in one file.

    Arguments:
        path: the file; created, with its directory, unless `read_only`.
        read_only: leave no trace, see `disk.connect.Reader`; whatever would write raises `ReadOnly`.
        vfs: the name of an apsw VFS to go through (the testing package's); None: the system's.

    Attributes:
        path: the file, symbolic links resolved.
        settled: what became of the records of failed commits, if this opening had to settle any.

    Raises:
        ConfigurationError: when the path cannot be a log.
        StorageFailed: when it cannot be opened now.
        Corrupt: when it is older than its anchor.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False, vfs: str | None = None) -> None:
        self.path: Path = files.real(path)
        self.read_only = read_only
        self.settled: tuple[Settled, ...] = ()
        self._pid = os.getpid()
        self._closed = False
        self._reading = threading.RLock()
        self._sides = files.Sides.of(self.path)
        self._anchor = Anchor(self._sides.anchor)
        self._unanchored: dict[str, Place] = {}
        self._anchor_due = clock.monotonic() + ANCHOR_EACH_S
        self._memory = Memory()
        self._handle: Handle | None = None
        self._reader = Reader(self.path, vfs=vfs)
        try:
            if read_only:
                files.require(self.path)
            else:
                self._handle = self._open_for_writing(vfs)
            self._log_id = connect.mark_of(self._rows).log_id
            if self._handle is not None:
                self._begin_serving(self._handle)
        except BaseException as error:
            self._reader.close()
            if self._handle is not None:
                self._handle.release()
            if isinstance(error, OSError):
                raise connect.translated(error, self.path, "opening") from error
            raise

    def _open_for_writing(self, vfs: str | None) -> Handle:
        anchored = self._anchor.mark()
        if not files.holds_anything(self.path):
            self._anchor.refuse_old(anchored, None, self.path)
        files.prepare(self.path)
        base = anchored.base if anchored is not None else -1
        wal.refuse(self.path, self._sides.wal, wal.foreign(self.path, self._sides.wal, base))
        return Handle(self.path, vfs=vfs)

    def _begin_serving(self, handle: Handle) -> None:
        """Refuse an old or broken log, make durable what is left, settle what is in doubt, count the opening."""
        anchored, mark = self._anchor.mark(), connect.mark_of(handle.rows)
        self._anchor.refuse_old(anchored, mark, self.path)
        missing = Anchored(mark=anchored).gone_beside(mark)
        if handle.alone:
            wal.refuse(self.path, self._sides.wal, wal.damaged(handle.rows, self._sides.wal))
            care.refuse_lost(handle.rows, self._anchor.newest(), self.path)
        if self._sides.doubt.exists():
            self._settle(handle)
        elif handle.alone:
            handle.truncate("opening after the last process")
            if anchored is None and mark.base < 0:
                # Before the base is in the database: from then on an anchor that says nothing is one that is gone.
                self._note(handle, {})
            with handle.lock, handle.transaction():
                handle.execute(SQL["set_base"])
            handle.truncate("opening after the last process")
        feed = anchored.feed if anchored is not None else 0
        self._grow_generation(handle, care.heads_behind(handle.rows, feed) if handle.alone else {})
        if missing:
            _logger.warning("%s: %s; a new one is written (poimen db check reads everything)", self.path, missing)
            self._anchor.note(connect.mark_of(handle.rows), care.all_heads(handle.rows))
        if handle.alone:
            self._anchor.compact()
            handle.workers.sweep()
            handle.admit_others()

    def _settle(self, handle: Handle) -> None:
        handle.settling = True
        try:
            self.settled = doubt.settle(self._sides, truncate=handle.truncate, find=self._find, append=self.commit)
        finally:
            handle.settling = False

    def _grow_generation(self, handle: Handle, heads: Mapping[str, tuple[int, bytes]]) -> None:
        with handle.lock, handle.transaction():
            generation = handle.execute(SQL["meta"], ("generation",)).fetchall()[0][0]
            handle.execute(SQL["set_meta"], ("generation", generation + 1))
        self._note(handle, heads)

    def _find(self, run: str, record_id: str) -> bool:
        try:
            return bool(self._rows(SQL["find_record"], (run, bytes.fromhex(record_id))))
        except ValueError:
            return False

    # ---- writing -------------------------------------------------------------------------------------------

    def commit(self, batches: Sequence[Batch]) -> list[Committed | PoimenError]:
        """Write the batches in one transaction and sync once; see `Store.commit`."""
        handle = self._handle or self._writing()
        answers: list[Committed | PoimenError] = []
        with handle.lock:
            with handle.transaction() as transaction:
                memory = self._memory
                memory.renew(handle.moved)
                group = Group(handle, memory, self._log_id)
                for batch in batches:
                    try:
                        answers.append(group.place(batch))
                    except PoimenError as refusal:
                        answers.append(refusal)
                transaction.doubtful = group.placed
                if group.placed:
                    group.write()
                    memory.keep(group)
                else:
                    transaction.wanted = False
            self._unanchored.update(group.places)
            if handle.checkpoint_due():
                handle.checkpoint()
            if clock.monotonic() >= self._anchor_due:
                self._anchor_quietly(handle)
        return answers

    def claim(self, run: str, *, worker: str, lease_s: float, own: Lease | None = None) -> Lease | None:
        """Take the lease of a run, epoch + 1, synced; see `disk.leases.claim`."""
        handle = self._writing()
        with handle.lock:
            self._memory.places.pop(run, None)
            return leasing.claim(handle, run, worker=worker, lease_s=lease_s, own=own)

    def renew(self, leases: Sequence[Lease], *, lease_s: float) -> list[Lease]:
        """Prolong those of the leases that still hold, synced."""
        return leasing.renew(self._writing(), leases, lease_s=lease_s)

    def release(self, leases: Sequence[Lease]) -> None:
        """Give leases back; the epochs stay."""
        leasing.release(self._writing(), leases)

    def worker(self, worker_id: str) -> None:
        """Declare this process to be a live worker, until `close` or its death; it may not stand still for long.

        Raises:
            InvariantViolated: when another process is this worker.
        """
        handle = self._writing()
        with handle.lock:
            handle.workers.declare(worker_id)
            handle.hurry()

    def linger(self) -> None:
        """Let the workers declared here live until this process ends; see `disk.locks.Workers.linger`."""
        if self._handle is not None:
            with self._handle.lock:
                self._handle.workers.linger()

    def alive(self, worker_id: str) -> bool:
        """Whether a worker holds its lock; see `disk.locks.Workers.alive`."""
        workers = self._handle.workers if self._handle is not None else Workers(self._sides.workers)
        return workers.alive(worker_id)

    # ---- reading -------------------------------------------------------------------------------------------

    def read(self, run: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """The records of a run with `after < lsn <= upto`, in LSN order, each checked against its hash."""
        rows = self._rows(SQL["read"], (run, after, _LAST if upto is None else upto))
        prev = chain.first_prev(self._log_id, run)
        if after > 0 and rows:
            if rows[0][0] != after:
                raise _damaged(self.path, run, after, "is missing")
            prev = rows.pop(0)[-1]
        lsn = max(after, 0)
        records: list[Record] = []
        for row in rows:
            lsn += 1
            if row[0] != lsn:
                raise _damaged(self.path, run, lsn, "is missing")
            record = record_of(run, row)
            if chain.link_of(prev, record) != record.hash:
                raise _damaged(self.path, run, lsn, "does not match its hash")
            records.append(record)
            prev = record.hash
        return records

    def feed(self, after: int = 0, *, limit: int = 1000) -> list[Record]:
        """Records of all runs with `pos > after`, in feed order, each checked against its hash."""
        records: list[Record] = []
        for run, *row, before in self._rows(SQL["feed"], (after, limit)):
            record = record_of(run, row)
            if record.lsn == 1:
                before = chain.first_prev(self._log_id, run)  # noqa: PLW2901
            if before is None or chain.link_of(before, record) != record.hash:
                raise _damaged(self.path, run, record.lsn, "does not match its hash")
            records.append(record)
        return records

    def head(self, run: str) -> Head | None:
        """The run's row, or None when no such run exists."""
        rows = self._rows(SQL["head"], (run,))
        return head_of(rows[0]) if rows else None

    def heads(self, *, live: bool = False, prefix: str = "", after: str = "", limit: int = 1000) -> list[Head]:
        """Rows of runs by id, from the one after `after`; `live`: only those not in a terminal state."""
        sql = SQL["live_heads" if live else "heads"]
        return heads_of(lambda v: self._rows(sql, v), prefix=prefix, after=after, limit=limit, db=self.path)

    def blob(self, digest: str) -> bytes | None:
        """A body written with a batch, checked against its digest; None when there is none."""
        try:
            raw = bytes.fromhex(digest)
        except ValueError:
            return None
        rows = self._rows(SQL["blob"], (raw,))
        if not rows:
            return None
        body: bytes = rows[0][0]
        if sha256(body).digest() != raw:
            raise Corrupt(f"blob {digest} does not match its digest", where=str(self.path), digest=digest)
        return body

    def changed(self) -> int:
        """A number that differs after another process has committed."""
        self._guard()
        if self._handle is not None:
            return self._handle.data_version()
        with self._reading:
            return self._reader.changed()

    # ---- care ----------------------------------------------------------------------------------------------

    def check(self, look: Look | None = None) -> Iterator[Damage]:
        """Read everything and yield each damage found, without holding up writers; see `Store.check`."""
        self._guard()
        return care.check(self._rows_apart, self._anchor.read(), self.path, look)

    def rebuild(self, state_of: Callable[[str, list[Record]], str] | None = None) -> int:
        """Derive the heads anew from the records; see `disk.care.rebuild`."""
        return care.rebuild(self._writing(), state_of)

    def backup(self, to: Path, *, bodies: Callable[[], object] = lambda: None) -> None:
        """Write a checked copy to a new file; see `disk.care.backup`.

        The generation of the original grows, so that the copy, put back in its place, is known to be older.
        """
        self._guard()
        with self._reading:
            care.backup(self._reader, self._anchor.read(), files.real(to), bodies)
        if self._handle is not None:
            with self._handle.lock:
                self._grow_generation(self._handle, {})

    def anchor(self) -> None:
        """Write the heads that have moved since the last time into the anchor, synced.

        Raises:
            StorageFailed: when it cannot be written.
        """
        self._anchor_now(self._writing())

    def idle(self) -> None:
        """Use a moment in which nobody waits: empty a WAL that has grown, anchor when it is due."""
        handle = self._writing()
        with handle.lock:
            if handle.wal_pages() > _TRUNCATE_ABOVE_PAGES:
                try:
                    handle.truncate("being idle")
                except StorageFailed as error:
                    _logger.info("%s: %s", self.path, error.message)
            if clock.monotonic() >= self._anchor_due:
                self._anchor_quietly(handle)

    def close(self) -> None:
        """Anchor the heads, empty the WAL when nobody else has the database open, give back what is held."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        with self._reading:
            self._reader.close()
        if self._handle is not None:
            with self._handle.lock:
                if not self._handle.dead:
                    self._anchor_quietly(self._handle)
                self._handle.close()

    def _anchor_now(self, handle: Handle) -> None:
        with handle.lock:
            moved, self._unanchored = self._unanchored, {}
            self._anchor_due = clock.monotonic() + ANCHOR_EACH_S
            try:
                if moved:
                    self._note(handle, {run: place[1:3] for run, place in moved.items()})
            except OSError as error:
                self._unanchored = moved | self._unanchored
                raise connect.translated(error, self.path, "anchoring") from error

    def _anchor_quietly(self, handle: Handle) -> None:
        """Anchor after a commit: a failure unsays no commit, and the next time tries again."""
        try:
            self._anchor_now(handle)
        except (StorageFailed, Corrupt) as error:
            _logger.warning("%s: the heads are not anchored: %s", self.path, error.message)

    def _note(self, handle: Handle, heads: Mapping[str, tuple[int, bytes]]) -> None:
        handle.refuse_moved()
        self._anchor.note(connect.mark_of(handle.rows), heads)

    # ---- common --------------------------------------------------------------------------------------------

    def _guard(self) -> None:
        if os.getpid() != self._pid:
            raise forked(self.path)
        if self._closed:
            raise StorageFailed(f"{self.path} was closed by this process", where=str(self.path))

    def _writing(self) -> Handle:
        self._guard()
        if self._handle is None:
            raise ReadOnly(f"{self.path} was opened read-only", where=str(self.path), hint="open it for writing")
        return self._handle

    def _rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        self._guard()
        return self._handle.rows(sql, values) if self._handle is not None else self._rows_apart(sql, values)

    def _rows_apart(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        """Read beside the writing connection, for what takes long."""
        with self._reading:
            self._guard()
            if self._handle is None and self._sides.doubt.exists():
                raise doubt.closed(self.path)
            return self._reader.rows(sql, values)


def _damaged(path: Path, run: str, lsn: int, what: str) -> Corrupt:
    return Corrupt(
        f"record {lsn} of run {run} {what}",
        where=str(path),
        why="what lies after the last good record cannot be trusted",
        run_id=run,
        lsn=lsn,
    )
