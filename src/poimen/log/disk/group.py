"""The batches of one transaction: who may append is decided here, LSNs and hashes are given out here.

Each batch is placed or refused on its own, in order; then everything is written by a few statements. What a
run's row says is remembered between transactions for as long as nobody else has committed; the handle says
so, by SQLite's data version read under the write lock. This module must never know what a record means, and
must never commit. It keeps I3 (LSNs gap-free, given once) and I4 (epochs checked under the write lock).

Source: design storage.md, "The log", "Durability" (group commit).
"""

from __future__ import annotations

import struct
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from poimen.kernel.errors import Conflict, Corrupt, Fenced, NotFound, NotStorable, RunExists, invariant
from poimen.log import chain
from poimen.log.api import MAX_BODY_BYTES, Committed
from poimen.log.disk.connect import SQL

if TYPE_CHECKING:
    from poimen.log.api import Batch, Expect
    from poimen.log.disk.handle import Handle

    Row = tuple[int, int, str, bytes, str, str, bytes, int, int, bytes]
    """A record as it is inserted: run number, LSN, branch, id, kind, subject, body, at, epoch, hash."""
    Place = tuple[int, int, bytes, int, int]
    """A run's row number, last LSN, its hash, epoch, LSN of the last outsider's record."""

_REMEMBERED: Final = 20_000
_MALFORMED: Final = (ValueError, TypeError, AttributeError, OverflowError, struct.error)


class Memory:
    """What is known of the database without asking: where runs are, and record ids appended here lately."""

    def __init__(self) -> None:
        self._moved = -1
        self.places: dict[str, Place] = {}
        self.ids: set[tuple[int, bytes]] = set()
        self.older_ids: set[tuple[int, bytes]] = set()

    def renew(self, moved: int) -> None:
        """Void the places when others have committed since. Ids stay: they were appended, whoever came later."""
        if moved != self._moved or len(self.places) > _REMEMBERED:
            self.places.clear()
            self._moved = moved
        if len(self.ids) > _REMEMBERED:
            self.ids, self.older_ids = set(), self.ids

    def keep(self, group: Group) -> None:
        """Remember a group that is about to be committed; should that fail, `moved` voids its places."""
        self.places.update(group.places)
        self.ids |= group.ids


class Group:
    """One transaction's batches.

    Arguments:
        handle: in a transaction.
        memory: renewed in that transaction.
        log_id: the log's id, which each chain starts from.
    """

    __slots__ = (
        "_before", "_blobs", "_handle", "_last_run", "_log_id", "_memory", "_rows", "_states",
        "ids", "placed", "places",
    )  # fmt: skip

    def __init__(self, handle: Handle, memory: Memory, log_id: str) -> None:
        self._handle = handle
        self._memory = memory
        self._log_id = log_id
        self._last_run = -1
        self._before: dict[str, int] = {}
        self._states: dict[str, str] = {}
        self._blobs: list[tuple[bytes, str, bytes]] = []
        self._rows: list[Row] = []
        self.places: dict[str, Place] = {}
        self.ids: set[tuple[int, bytes]] = set()
        self.placed: list[Batch] = []

    def place(self, batch: Batch) -> Committed:
        """Give the records of a batch their LSNs and hashes, unless it must be refused.

        Raises:
            Fenced, Conflict, RunExists, NotFound: as `Batch` says; nothing of the batch is kept.
            NotStorable: when a column cannot be written.
            Corrupt: when the run's row contradicts its records.
        """
        run = batch.run
        place = self.places.get(run) or self._memory.places.get(run) or self._load(run)
        if place is None:
            place = self._admit(batch)
        elif batch.admits:
            raise RunExists(f"run {run} exists", where=run, run_id=run)
        number, before, prev, current, outsider = place
        epoch = batch.epoch
        if epoch is not None:
            if epoch != current or epoch < 1:
                raise _fenced(batch, current)
            if batch.seen is not None and outsider > batch.seen:
                raise _conflict(batch, outsider, f"an outsider has appended at LSN {outsider}, {batch.seen} was seen")
        rows, ids, lsn, epoch = [], set(), before, epoch or 0
        try:
            if batch.expect is not None:
                self._ask(batch, batch.expect, number)
            for raw, branch, kind, subject, body, at in batch.records:
                lsn += 1
                if len(raw) != chain.ID_BYTES or len(body) > MAX_BODY_BYTES:
                    raise ValueError(f"a record has an id of {chain.ID_BYTES} bytes and at most {MAX_BODY_BYTES} bytes")
                prev = chain.link(prev, run, lsn, branch, raw, kind, subject, at, epoch, body)
                rows.append((number, lsn, branch, raw, kind, subject, body, at, epoch, prev))
                ids.add((number, raw))
            blobs = _blobs(batch) if batch.blobs else []
            (batch.state or "").encode()
        except _MALFORMED as error:
            raise NotStorable(f"a record of run {run} cannot be written: {error}", where=run, run_id=run) from error
        memory = self._memory
        fresh = ids.isdisjoint(memory.ids) and ids.isdisjoint(memory.older_ids) and ids.isdisjoint(self.ids)
        if not fresh or len(ids) < len(batch.records) or not rows:
            raise _repeated(batch, before)
        if batch.state is not None:
            self._states[run] = batch.state
        self._before.setdefault(run, before)
        self.places[run] = (number, lsn, prev, current, outsider if epoch else lsn)
        self.ids |= ids
        self._rows += rows
        self._blobs += blobs
        self.placed.append(batch)
        return Committed(before + 1, lsn, prev)

    def _admit(self, batch: Batch) -> Place:
        if not batch.admits:
            raise NotFound(f"no run {batch.run!r}", where=str(self._handle.db), hint="poimen runs ls", run_id=batch.run)
        if self._last_run < 0:
            self._last_run = self._handle.execute(SQL["last_run"]).fetchall()[0][0]
        self._last_run += 1
        return self._last_run, 0, chain.first_prev(self._log_id, batch.run), 0, 0

    def _load(self, run: str) -> Place | None:
        rows = self._handle.execute(SQL["load_head"], (run,)).fetchall()
        if not rows:
            return None
        number, lsn, digest, epoch, outsider, last, newest = rows[0]
        if lsn != last or digest != newest:
            raise Corrupt(
                f"the row of run {run} says LSN {lsn}, its records end at {last or 0}",
                where=run,
                why="appending here would break the chain",
                hint="poimen db check; heads can be derived anew from intact records",
                run_id=run,
            )
        return number, lsn, digest, epoch, outsider

    def _ask(self, batch: Batch, expect: Expect, number: int) -> None:
        """Refuse an outsider who has not seen the last record about its subject."""
        here = (row[1] for row in reversed(self._rows) if row[0] == number and row[5] == expect.subject)
        newest = next(here, 0)
        if not newest:
            found = self._handle.execute(SQL["last_about"], (number, expect.lsn, expect.subject)).fetchall()
            newest = found[0][0] if found else 0
        if newest > expect.lsn:
            raise _conflict(batch, newest, f"{expect.subject} has changed at LSN {newest}, {expect.lsn} was seen")

    def write(self) -> None:
        """Put everything that was placed into the transaction.

        Raises:
            InvariantViolated: when a head is not where it was remembered.
        """
        handle = self._handle
        many = handle.executemany
        if len(self._rows) == 1:
            handle.execute(SQL["insert_record"], self._rows[0])
        else:
            many(SQL["insert_record"], self._rows)
        if self._blobs:
            many(SQL["insert_blob"], self._blobs)
        new: list[tuple[Any, ...]] = []
        moved: list[tuple[Any, ...]] = []
        for run, (number, lsn, digest, epoch, outsider) in self.places.items():
            before = self._before[run]
            if before:
                moved.append((lsn, digest, outsider, number, before))
            else:
                new.append((number, run, lsn, digest, epoch, outsider, self._states.pop(run, "PENDING")))
        if new:
            many(SQL["insert_run"], new)
        changes = handle.changes()
        many(SQL["advance_head"], moved)
        invariant(handle.changes() - changes == len(moved), "a head moves from where it was remembered", db=handle.db)
        if self._states:
            many(SQL["set_state"], [(state, self.places[run][0]) for run, state in self._states.items()])


def _blobs(batch: Batch) -> list[tuple[bytes, str, bytes]]:
    rows = [(bytes.fromhex(blob.digest), blob.media_type, blob.body) for blob in batch.blobs]
    for digest, media_type, body in rows:
        media_type.encode()
        if sha256(body).digest() != digest:
            raise ValueError(f"a blob does not match its digest {digest.hex()}")
    return rows


def _fenced(batch: Batch, current: int) -> Fenced:
    return Fenced(
        f"run {batch.run} is held under epoch {current}, this append has {batch.epoch}",
        where=batch.run,
        run_id=batch.run,
        epoch=current,
    )


def _repeated(batch: Batch, lsn: int) -> Conflict | NotStorable:
    if not batch.records:
        return NotStorable(f"a batch for run {batch.run} has no record", where=batch.run, run_id=batch.run)
    return _conflict(batch, lsn, "one of these record ids was appended before")


def _conflict(batch: Batch, lsn: int, what: str) -> Conflict:
    return Conflict(f"run {batch.run}: {what}", where=batch.run, run_id=batch.run, lsn=lsn)
