"""A failed commit: the marker that closes the database, and how its doubt is settled.

After an error in COMMIT the records may be on disk, in the page cache only, or nowhere, and what a live
connection says about it proves nothing. The marker beside the database closes it to all processes. The next
opening first makes a TRUNCATE checkpoint succeed, which rewrites and syncs whatever is left, and only then
asks for each record by its id. This module must never know what the records in doubt say; its verdicts are
events like any other. It keeps I2 for those who were told `CommitUnknown`.

Source: design storage.md, "Durability" (fail-stop).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from poimen import clock
from poimen.kernel.errors import NotFound, PoimenError, StorageFailed
from poimen.kernel.events import AppendSettled, subject
from poimen.kernel.ids import TRUNK
from poimen.log import codec
from poimen.log.api import Batch, NewRecord
from poimen.log.disk import files, locks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from poimen.log.api import Committed
    from poimen.log.disk.handle import Doubtful

SETTLED: Final = codec.KINDS[AppendSettled]
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of one record whose commit had failed."""

    run: str
    record_id: str
    found: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Doubt:
    """One line of the marker: the records of one batch."""

    run: str
    branch: str
    record_ids: tuple[str, ...]


def closed(db: Path) -> StorageFailed:
    """The error of whoever would write, or open for reading, while the marker is there."""
    return StorageFailed(
        f"{db} is closed until a failed commit is settled",
        where=str(files.Sides.of(db).doubt),
        why="what is on disk is not known yet, and writing on could destroy it",
        hint="poimen db check --rebuild opens it for writing, which settles it, as the next run does; "
        "if it cannot, end the processes that still hold the database",
        doubt=True,
    )


def mark(sides: files.Sides, doubtful: Sequence[Doubtful], *, worker: str, error: str) -> None:
    """Write the marker, durably.

    Arguments:
        sides: the files beside the database.
        doubtful: the batches of the failed transaction; none for a lease.
        worker: the workers of this process.
        error: what SQLite said.

    Raises:
        OSError: when it cannot be written.
    """
    about = {"worker": worker, "pid": os.getpid(), "at": clock.wall_us(), "error": error}
    lines = [
        about
        | {
            "run": batch.run,
            "branch": batch.records[0].branch,
            "record_ids": [record.record_id for record in batch.records],
        }
        for batch in doubtful
    ]
    settling = locks.LockFile(sides.settle)
    try:
        # Without the lock the line could go into a file that is being removed. Better there than nowhere.
        settling.wait(patience_s=_PATIENCE_S)
        _append(sides.doubt, lines or [about])
    finally:
        settling.close()


def settle(
    sides: files.Sides,
    *,
    truncate: Callable[[str], None],
    find: Callable[[str, str], bool],
    append: Callable[[Sequence[Batch]], list[Committed | PoimenError]],
) -> tuple[Settled, ...]:
    """Settle what the marker names, log it, and open the database again.

    Killed anywhere, the next opening does it anew, to the same end: a verdict's record id is made from what
    it is about, and one that is in the log is not appended again.

    Arguments:
        sides: the files beside the database.
        truncate: the checkpoint; raises when it cannot be made.
        find: whether a run's log has a record of this id.
        append: commits the verdicts, past the marker.

    Raises:
        StorageFailed: when somebody else settles for too long, or the checkpoint cannot be made.
        Corrupt: a run that is damaged cannot be told its verdict; the database stays closed.
    """
    lock = locks.LockFile(sides.settle)
    try:
        if not lock.wait(patience_s=_PATIENCE_S):
            raise StorageFailed(
                f"another process settles {sides.db}",
                where=str(sides.settle),
                why=f"held by process {locks.holders([sides.settle])}",
            )
        if not sides.doubt.exists():
            return ()
        doubts = _read(sides.doubt)
        truncate("settling a failed commit")
        settled = tuple(
            Settled(run=doubt.run, record_id=record_id, found=find(doubt.run, record_id))
            for doubt in doubts
            for record_id in doubt.record_ids
        )
        _log_verdicts(doubts, settled, find, append)
        verdicts = [{"run": each.run, "record_id": each.record_id, "found": each.found} for each in settled]
        _append(sides.doubt_log, [{"at": clock.wall_us(), "marker": _text(sides.doubt), "verdicts": verdicts}])
        sides.doubt.unlink()
        files.sync_directory(sides.db.parent)
    except OSError as error:
        raise StorageFailed(f"{sides.db} cannot be settled: {error}", where=str(sides.doubt)) from error
    else:
        return settled
    finally:
        lock.close()


def _log_verdicts(
    doubts: Sequence[_Doubt],
    settled: Sequence[Settled],
    find: Callable[[str, str], bool],
    append: Callable[[Sequence[Batch]], list[Committed | PoimenError]],
) -> None:
    landed = {(each.run, each.record_id) for each in settled if each.found}
    batches: list[Batch] = []
    for doubt in doubts:
        for found in (True, False):
            ids = [record_id for record_id in doubt.record_ids if ((doubt.run, record_id) in landed) is found]
            verdict = sha256("\n".join([SETTLED, doubt.run, *ids]).encode()).hexdigest()[:32]
            if ids and not find(doubt.run, verdict):
                batches.append(_verdict(doubt, verdict, ids, found=found))
    for answer in append(batches) if batches else ():
        if isinstance(answer, PoimenError) and not isinstance(
            answer, NotFound
        ):  # not found: its admission was in doubt
            raise answer


def _verdict(doubt: _Doubt, record_id: str, ids: list[str], *, found: bool) -> Batch:
    event = AppendSettled(record_ids=tuple(ids), found=found)
    record = NewRecord(
        raw_id=bytes.fromhex(record_id),
        branch=doubt.branch,
        kind=SETTLED,
        subject=subject(event),
        body=codec.encode(event),
        at=clock.wall_us(),
    )
    return Batch(run=doubt.run, records=(record,))


def _append(path: Path, lines: Sequence[dict[str, object]]) -> None:
    fd = files.open_private(path, os.O_RDWR | os.O_APPEND)
    try:
        text = "".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines)
        files.write_all(fd, text.encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    files.sync_directory(path.parent)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="backslashreplace")


def _read(path: Path) -> list[_Doubt]:
    """The marker's lines; one that is torn names nothing that could be looked up, and its text goes to the log."""
    found: list[_Doubt] = []
    for line in _text(path).splitlines():
        try:
            entry = json.loads(line)
            ids = tuple(str(record_id) for record_id in entry.get("record_ids", ()))
            found.append(_Doubt(run=str(entry.get("run", "")), branch=str(entry.get("branch", TRUNK)), record_ids=ids))
        except (ValueError, AttributeError, TypeError):
            continue
    return [doubt for doubt in found if doubt.run and doubt.record_ids]
