"""Looking after a log: checking all of it, deriving heads anew, copying it.

Nothing here repairs records. A check reads everything and names each damage; heads can be derived anew
because they say nothing that the records do not (only an epoch may be ahead of them). This module must never
write a record. It is how a break of I2 or I3 is seen.

Source: design storage.md, "The log" (log check), "SQLite" (backup); case C16.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import apsw

from poimen import clock
from poimen.kernel.errors import ConfigurationError, Corrupt, StorageFailed
from poimen.log import chain, wal
from poimen.log.api import Damage
from poimen.log.disk import files
from poimen.log.disk.connect import SQL, altered, mark_of, translated
from poimen.log.disk.rows import head_of, raw_record_of, record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from poimen.log.api import Look, Record
    from poimen.log.disk.anchor import Anchored
    from poimen.log.disk.connect import Reader
    from poimen.log.disk.handle import Handle

    Rows = Callable[[str, tuple[Any, ...]], list[Any]]
    StateOf = Callable[[str, list[Record]], str]

_RUNS_A_PAGE: Final = 200
_RECORDS_A_PAGE: Final = 1000
_BLOBS_A_PAGE: Final = 20
_ALL: Final = 1 << 62


def refuse_lost(rows: Rows, heads: Mapping[str, tuple[int, bytes]], db: Path) -> None:
    """Refuse a database in which a record that was anchored is not there, or is another one.

    Arguments:
        rows: runs one statement and gives all its rows.
        heads: (LSN, hash) by run, as anchored.
        db: the database's path.

    Raises:
        Corrupt: at the first one.
    """
    for run, (lsn, digest) in heads.items():
        found = rows(SQL["hash_at"], (run, lsn))
        if found != [(digest,)]:
            raise Corrupt(
                f"{db} is not the log that was anchored: record {lsn} of run {run} {'differs' if found else 'is gone'}",
                where=str(db),
                why="going on would repeat effects whose records are missing, and use their LSNs again",
                hint="poimen db check; put the newest database back, with the files that lay beside it",
                run_id=run,
                lsn=lsn,
            )


def all_heads(rows: Rows) -> dict[str, tuple[int, bytes]]:
    """The heads, (LSN, hash) by run, of the whole log, for an anchor that is written anew."""
    found: dict[str, tuple[int, bytes]] = {}
    last = 0
    while page := rows(SQL["runs"], (last, _RUNS_A_PAGE)):
        last = page[-1][0]
        found |= {run_id.decode(errors="replace"): (lsn, digest) for _, run_id, lsn, digest, *_ in page}
    return found


def heads_behind(rows: Rows, feed: int) -> dict[str, tuple[int, bytes]]:
    """The heads of the runs with records behind a feed position: what a killed process had no time to anchor."""
    return {run: (lsn, digest) for run, lsn, digest in rows(SQL["heads_behind"], (feed,))}


def check(rows: Rows, anchored: Anchored, db: Path, look: Look | None = None) -> Iterator[Damage]:
    """Read everything and yield each damage; a log that grows meanwhile is checked up to where it was.

    Arguments:
        rows: runs one statement and gives all its rows, without holding up a writer.
        anchored: what was anchored before the check began.
        db: the database's path, for the messages.
        look: asked of each run in which nothing else was found, see `Store.check`.
    """
    for number in anchored.damaged:
        yield Damage(run="", lsn=0, what=f"line {number} of the anchor does not match its digest, or is none of ours")
    try:
        for (verdict,) in rows("PRAGMA integrity_check", ()):
            if verdict != "ok":
                yield Damage(run="", lsn=0, what=f"SQLite: {verdict}")
        mark = mark_of(rows)
        if older := anchored.newer_than(mark):
            yield Damage(run="", lsn=0, what=f"{db} is an old log: {older}")
        for what in altered(rows):
            yield Damage(run="", lsn=0, what=what)
        if gone := anchored.gone_beside(mark):
            yield Damage(run="", lsn=0, what=gone)
        n, first, last = rows(SQL["feed_span"], ())[0]
        if n and (first, last) != (1, n):
            what = f"{n} records lie at feed positions {first} to {last}: one was moved, or others were cut out"
            yield Damage(run="", lsn=0, what=what)
        if torn := wal.damaged(rows, files.Sides.of(db).wal):
            yield Damage(run="", lsn=0, what=torn)
        yield from _check_runs(rows, mark.log_id, anchored.heads, look)
        for run, n in rows(SQL["orphans"], ()):
            yield Damage(run="", lsn=0, what=f"{n} records belong to run number {run}, which has no row")
        yield from _check_blobs(rows)
    except (Corrupt, StorageFailed) as error:
        yield Damage(run="", lsn=0, what=error.message)


def _check_runs(
    rows: Rows, log_id: str, anchored: Mapping[str, tuple[int, bytes]], look: Look | None
) -> Iterator[Damage]:
    missing = set(anchored)
    last = 0
    while page := rows(SQL["runs"], (last, _RUNS_A_PAGE)):
        for number, run_id, *head in page:
            run = run_id.decode(errors="replace")
            missing.discard(run)
            if run.encode() != run_id:
                # No record of it can be told from a forged one: each hash is over the id too.
                yield Damage(run=run, lsn=0, what=_no_text(number, run_id))
                continue
            whole = True
            for damage in _Run(rows, number, run, log_id).check(head, anchored.get(run)):
                whole = False
                yield damage
            if whole and look is not None:
                yield from _looked_at(rows, run, look)
        last = page[-1][0]
    for run in sorted(missing):
        yield Damage(run=run, lsn=1, what=f"the run is gone; {anchored[run][0]} records of it were anchored")


def _looked_at(rows: Rows, run: str, look: Look) -> Iterator[Damage]:
    try:
        head = head_of(rows(SQL["head"], (run,))[0])
        records = [record_of(run, row) for row in rows(SQL["read"], (run, 0, head.lsn))]
    except Corrupt as error:
        yield Damage(run=run, lsn=0, what=error.message)
    else:
        yield from look(head, records)


def _no_text(number: int, run_id: bytes) -> str:
    return f"the id of run number {number} is no text: {run_id!r}"


class _Run:
    """One run on its way through a check.

    Arguments:
        number: its row.
        run: its id.
    """

    def __init__(self, rows: Rows, number: int, run: str, log_id: str) -> None:
        self._rows = rows
        self._number = number
        self._run = run
        self._prev = chain.first_prev(log_id, run)
        self._ids: set[str] = set()
        self._lsn = self._pos = self._outsider = self._epoch = 0
        self._anchored: bytes | None = None

    def check(self, head: list[Any], anchor: tuple[int, bytes] | None) -> Iterator[Damage]:
        """Compare the records with each other, with the head as it was read before them, and with the anchor."""
        lsn, digest, epoch, outsider_lsn = head
        while page := self._rows(SQL["read_raw"], (self._number, self._lsn, lsn, _RECORDS_A_PAGE)):
            for row in page:
                yield from self._check_row(row, anchor[0] if anchor else 0)
        if self._lsn != lsn:
            yield self._damage(self._lsn + 1, f"the head says {lsn} records, the log has {self._lsn}")
        elif self._prev != digest:
            yield self._damage(lsn, f"the head's hash is not that of record {lsn}")
        elif outsider_lsn != self._outsider or epoch < self._epoch:
            what = f"the head (epoch {epoch}, outsider {outsider_lsn}) contradicts the records"
            yield self._damage(lsn, f"{what} (epoch {self._epoch}, outsider {self._outsider})")
        now, newest = self._rows(SQL["ends"], (self._number,))[0]
        if now != (newest or 0):
            yield self._damage(min(now, newest or 0) + 1, f"the head ends at {now}, the records at {newest or 0}")
        if anchor is not None and anchor[0] > self._lsn:
            yield self._damage(self._lsn + 1, f"the tail is cut off: {anchor[0]} was anchored, {self._lsn} is the last")
        elif anchor is not None and self._anchored != anchor[1]:
            yield self._damage(anchor[0], f"record {anchor[0]} is not the one that was anchored: written anew")

    def _check_row(self, row: tuple[Any, ...], anchor_lsn: int) -> Iterator[Damage]:
        lsn, pos, hash_ = row[0], row[1], row[-1]
        try:
            record = raw_record_of(self._run, row)
        except (UnicodeDecodeError, AttributeError, TypeError):
            yield self._damage(lsn, f"record {lsn} holds bytes that no record can hold")
        else:
            yield from chain.verify((record,), self._prev, first=self._lsn + 1)
            if record.record_id in self._ids:
                yield self._damage(lsn, f"record id {record.record_id} occurs twice")
            self._ids.add(record.record_id)
            self._epoch = max(self._epoch, record.epoch)
            self._outsider = self._outsider if record.epoch else lsn
        if pos <= self._pos:
            yield self._damage(lsn, f"record {lsn} lies at feed position {pos}, before the one it follows")
        if lsn == anchor_lsn:
            self._anchored = hash_
        self._lsn, self._pos, self._prev = lsn, pos, hash_

    def _damage(self, lsn: int, what: str) -> Damage:
        return Damage(run=self._run, lsn=lsn, what=what)


def _check_blobs(rows: Rows) -> Iterator[Damage]:
    last = 0
    while page := rows(SQL["blobs"], (last, _BLOBS_A_PAGE)):
        for _, digest, body in page:
            if sha256(body).digest() != digest:
                yield Damage(run="", lsn=0, what=f"blob {digest.hex()} does not match its digest")
        last = page[-1][0]


def rebuild(handle: Handle, state_of: StateOf | None = None) -> int:
    """Derive each head from its records, one run a transaction; leases are left as they are.

    Arguments:
        handle: the writing end.
        state_of: tells the state of a run from its id and records; None: the states stay.

    Returns:
        The number of heads that had to change.

    Raises:
        Corrupt: when the chain of a run is broken, or its id is no text: heads are not derived from damage.
    """
    log_id = mark_of(handle.rows).log_id
    changed = last = 0
    while page := handle.rows(SQL["runs"], (last, _RUNS_A_PAGE)):
        last = page[-1][0]
        for number, run_id, *_ in page:
            try:
                run = run_id.decode()
            except UnicodeDecodeError as error:
                raise Corrupt(_no_text(number, run_id)) from error
            with handle.lock, handle.transaction() as transaction:
                transaction.wanted = _rebuild(handle, number, run, log_id, state_of)
                changed += transaction.wanted
                handle.forget()
    return changed


def _rebuild(handle: Handle, number: int, run: str, log_id: str, state_of: StateOf | None) -> bool:
    found = handle.execute(SQL["read_raw"], (number, 0, _ALL, _ALL)).fetchall()
    records = [raw_record_of(run, row) for row in found]
    prev = chain.first_prev(log_id, run)
    for damage in chain.verify(records, prev):
        raise Corrupt(damage.what, where=f"{run} LSN {damage.lsn}", run_id=run, lsn=damage.lsn)
    old = handle.rows(SQL["head"], (run,))[0]
    lsn, digest = (records[-1].lsn, records[-1].hash) if records else (0, prev)
    epoch = max([old[3], *(record.epoch for record in records)])
    outsider_lsn = max([0, *(record.lsn for record in records if not record.epoch)])
    state = state_of(run, records) if state_of else old[5]
    if (lsn, digest, epoch, outsider_lsn, state) == tuple(old[1:6]):
        return False
    handle.execute(SQL["restore_head"], (lsn, digest, outsider_lsn, epoch, state, number))
    return True


def backup(reader: Reader, anchored: Anchored, to: Path, bodies: Callable[[], object]) -> None:
    """Copy the database to a new file: whole, checked, durable, 0600; it appears under its name at the end.

    Arguments:
        reader: a way in that holds up no writer.
        anchored: of the original, read before; the copy must reach as far.
        to: a path where nothing is.
        bodies: copies what lives in files beside the database; what the copy names is there by then.

    Raises:
        ConfigurationError: when something is there.
        Corrupt: when the copy does not stand the check; it is removed again.
        StorageFailed: when it cannot be written.
    """
    if to.exists():
        raise ConfigurationError(f"{to} exists", where=str(to), hint="name a new file; nothing is overwritten")
    beside = to.with_name(f"{to.name}.{clock.random_hex(8)}")
    try:
        files.make_directory(to.parent)
        os.close(files.open_private(beside, os.O_RDWR | os.O_EXCL))
        copy = apsw.Connection(str(beside), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            reader.using(lambda source: _copy(source, copy))
            # The copy is one file: without a WAL it can be read from a medium that cannot be written.
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()
            copy.execute(SQL["unset_base"]).fetchall()
            for damage in check(lambda sql, values: copy.execute(sql, values).fetchall(), anchored, beside):
                where = f"{damage.run or to} LSN {damage.lsn}"
                raise Corrupt(f"the copy does not stand the check: {damage.what}", where=where)
        finally:
            copy.close()
        bodies()
        _publish(beside, to)
    except (apsw.Error, OSError) as error:
        raise translated(error, to, "writing a backup") from error
    finally:
        for left in (beside, beside.with_name(f"{beside.name}-wal"), beside.with_name(f"{beside.name}-shm")):
            with suppress(OSError):
                left.unlink()


def _copy(source: apsw.Connection, copy: apsw.Connection) -> None:
    with copy.backup("main", source, "main") as run:
        run.step(-1)


def _publish(beside: Path, to: Path) -> None:
    fd = os.open(beside, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    try:
        os.link(beside, to)
    except FileExistsError:
        raise ConfigurationError(f"{to} appeared meanwhile", where=str(to), hint="name a new file") from None
    except OSError:
        # Some filesystems know no links; there a file that appears just now would be replaced.
        beside.rename(to)
    files.sync_directory(to.parent)
