"""What the files say before SQLite is believed: whether the WAL belongs to its database, and is whole.

SQLite reads a WAL up to its first frame that does not match, and takes what lies behind for the rest of a torn
write; it reads any WAL on top of any database beside it. After a kill both would lose acknowledged records without
a word. This module must never write, never repair, and never open a file but through SQLite's own VFS, which keeps
the locks of this process. It keeps I2 where the files were changed behind our back.

Source: SQLite, "Database File Format", sections 1.3 (header) and 4 ("The Write-Ahead Log"); storage.md, "SQLite".
"""

from __future__ import annotations

import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import apsw

from poimen.kernel.errors import Corrupt
from poimen.log.disk.connect import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    Rows = Callable[[str, tuple[Any, ...]], list[Any]]

_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_MAGIC: Final = (0x377F_0682, 0x377F_0683)
_WRITE_VERSION_AT: Final = 18
_ROLLBACK: Final = b"\x01"
_PIECE: Final = 1
"""Commits that may lie in one unbroken piece behind the last good one: of a transaction that nobody was told of."""


def foreign(db: Path, wal: Path, base: int) -> str:
    """Say why the WAL cannot belong to the database beside it; empty when it may.

    A backup is written without a WAL and its header says so: none can lie beside it. And `base`, the generation of
    the last opening alone, is in the database itself before it is anchored: a file that says less is an older one,
    under a WAL that was written on top of a newer.

    Arguments:
        db: the database.
        wal: its -wal.
        base: as it was anchored; -1: not known.

    Raises:
        StorageFailed: when one of them cannot be read.
    """
    if _size(wal) <= _HEADER.size:
        return ""
    with _opened(db, apsw.SQLITE_OPEN_MAIN_DB) as file:
        if file.xRead(1, _WRITE_VERSION_AT) == _ROLLBACK:
            return f"the database is a backup, {wal.name} was written by another one"
    found = _base_without_wal(db)
    if found is not None and found < base:
        return f"the database is of generation {found}, {wal.name} was written on top of {base} or a later one"
    return ""


def damaged(rows: Rows, wal: Path) -> str:
    """Say what shows that the WAL has lost commits in its middle; empty when nothing does.

    Each frame is summed up from the sum of the frame before, so the frames behind the last one that SQLite accepts
    fall into pieces: a piece ends where the next frame does not go on from it. They may lie there and mean nothing:

    - frames of earlier uses of the file: they have other salts;
    - pages that a transaction had spilled before it was rolled back: a piece without a commit;
    - a transaction whose write was torn by a power loss or a failing disk: the one commit of its last piece;
    - what is left of a transaction whose writer was killed before the wal-index named it, while others had the
      database open: the next writer begins at the same frame and covers only the start of it. Its rest is a piece
      that ends with its one commit. The next writer that is killed so leaves a rest before that rest, and so on: any
      number of commits, no two in one piece, since a rest never goes on from a commit that another one wrote.

    A second commit is written only after the first was synced and named. So two in one piece were acknowledged, but
    for the last perhaps, and what stands before them is broken. A broken transaction with fewer than two commits in
    a piece behind it cannot be told from the above. A piece that goes on from the last good frame is not broken at
    all: it is being written now, or the wal-index was made anew and the file not yet.

    Arguments:
        rows: runs one statement of a connection that has read before, so that the WAL is recovered.
        wal: the -wal of its database. Others may append to it meanwhile.

    Raises:
        StorageFailed: when it cannot be read.
    """
    if _size(wal) <= _HEADER.size:
        return ""
    with _opened(wal, apsw.SQLITE_OPEN_WAL) as file:
        header = file.xRead(_HEADER.size, 0)
        commits = list(_commits(file, header))
        # Asked after the frames were looked at, here and below: what was committed meanwhile is counted as good.
        good = _good(rows)
        if sum(number > good for number in commits) <= _PIECE:
            return ""
        pieces = list(_pieces(file, header, good))
        good = _good(rows)
        lost = [
            found for first, piece in pieces if first > good and len(found := [n for n in piece if n > good]) > _PIECE
        ]
        if not lost or file.xRead(_HEADER.size, 0) != header:
            return ""
    behind = f"{sum(map(len, lost))} commits lie behind, to frame {lost[-1][-1]}"
    return f"{wal.name} is damaged in frame {good + 1} or soon after; {behind}"


def refuse(db: Path, wal: Path, what: str) -> None:
    """Refuse a WAL that is damaged, or another database's.

    Raises:
        Corrupt: when there is something to say.
    """
    if not what:
        return
    raise Corrupt(
        f"{db} does not fit its WAL: {what}",
        where=str(wal),
        why="records that were acknowledged would be missing, and their effects would be repeated",
        hint="nothing was changed; put back the files that belong together, or a verified backup without -wal and -shm",
    )


def _good(rows: Rows) -> int:
    """The last frame that SQLite accepts."""
    _, good, _ = rows("PRAGMA wal_checkpoint(NOOP)", ())[0]
    return int(good)


def _commits(file: apsw.VFSFile, header: bytes) -> Iterator[int]:
    """The numbers of the frames that end a transaction under the salts of the header, from 1."""
    if len(header) < _HEADER.size:
        return
    magic, _, page, _, *salts, _, _ = _HEADER.unpack(header)
    if magic not in _MAGIC:
        return
    step = _FRAME.size + page
    for number in range(1, (file.xFileSize() - _HEADER.size) // step + 1):
        _, pages, *found, _, _ = _FRAME.unpack(file.xRead(_FRAME.size, _HEADER.size + (number - 1) * step))
        if pages and found == salts:
            yield number


def _pieces(file: apsw.VFSFile, header: bytes, good: int) -> Iterator[tuple[int, list[int]]]:
    """The frames behind `good` in unbroken pieces: the first frame of each, and its commits under the header's salts.

    A frame with other salts, or with a sum that does not go on from the frame before, begins a piece; what goes on from
    `good` itself begins with it. The sum that a frame should have had serves too: then a frame whose own is broken does
    not part those behind it.

    Arguments:
        file: the WAL.
        header: its first bytes, of a WAL.
        good: the last frame that SQLite accepts; 0: none.
    """
    magic, _, page, _, *salts, one, two = _HEADER.unpack(header)
    words = struct.Struct(f"{'<' if magic == _MAGIC[0] else '>'}{(8 + page) // 4}I")
    step = _FRAME.size + page
    before = (one, two)
    if good:
        _, _, _, _, *last = _FRAME.unpack(file.xRead(_FRAME.size, _HEADER.size + (good - 1) * step))
        before = (last[0], last[1])
    due: tuple[int, int] | None = None
    first, commits = good, list[int]()
    for number in range(good + 1, (file.xFileSize() - _HEADER.size) // step + 1):
        frame = file.xRead(step, _HEADER.size + (number - 1) * step)
        if len(frame) < step:
            break
        _, pages, *found, one, two = _FRAME.unpack_from(frame)
        ours, own, goes_on = found == salts, None, False
        if ours:
            summed = words.unpack(frame[:8] + frame[_FRAME.size :])
            own = _summed(summed, before)
            goes_on = (one, two) == own or (due is not None and (one, two) == _summed(summed, due))
        if not goes_on:
            yield first, commits
            first, commits = number, []
        if pages and ours:
            commits.append(number)
        before, due = (one, two), None if goes_on else own
    yield first, commits


def _summed(words: tuple[int, ...], before: tuple[int, int]) -> tuple[int, int]:
    """The sum of a frame, from that of the frame before ("Database File Format", 4.2)."""
    one, two = before
    for even, odd in zip(words[::2], words[1::2], strict=True):
        one = (one + even + two) & 0xFFFF_FFFF
        two = (two + odd + one) & 0xFFFF_FFFF
    return one, two


def _base_without_wal(db: Path) -> int | None:
    """The base that the database says without its WAL; None when it says none: a checkpoint was broken off there.

    A power loss in a checkpoint can leave sectors of an old and a new page beside each other, in which the row is not
    found at all. Every database that was ever opened has one; of what is whole, older and under a WAL it is a number.
    """
    name = f"file:{quote(str(db))}?immutable=1"
    with suppress(apsw.Error):
        connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        try:
            found = connection.execute("SELECT value FROM meta WHERE key = 'base'").get
        finally:
            connection.close()
        return found if isinstance(found, int) else None
    return None


@contextmanager
def _opened(path: Path, kind: int) -> Iterator[apsw.VFSFile]:
    """A file to read in the block; what the disk refuses there is told as of the log."""
    try:
        file = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_READONLY | kind, 0])
        try:
            yield file
        finally:
            file.xClose()
    except apsw.Error as error:
        raise translated(error, path, "reading") from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
