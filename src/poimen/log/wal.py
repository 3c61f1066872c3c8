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
_TORN: Final = 1
"""Commits that may lie behind the last good one: of the transaction whose write was torn."""


def foreign(db: Path, wal: Path, base: int) -> str:
    """Say why the WAL cannot belong to the database beside it; empty when it may.

    A backup is written without a WAL and its header says so: none can lie beside it. And `base`, the generation of
    the last opening alone, is in the database itself before it is anchored: a file that says less is an older one,
    under a WAL that was written on top of a newer.

    Arguments:
        db: the database.
        wal: its -wal.
        base: as it was anchored; -1: not known.
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

    Behind the last frame that SQLite accepts may lie, and mean nothing: frames of earlier uses of the file (other
    salts); pages that a transaction had spilled before it was rolled back (no commit among them); a transaction
    whose write was torn, by a power loss or a failing disk (at most one commit, since the next one is written only
    after it was synced). Two commits under the same salts were both acknowledged, but for the last perhaps, and
    what stands before them is broken. A last transaction that is broken cannot be told from a torn one.

    Arguments:
        rows: runs one statement of a connection that has read before, so that the WAL is recovered.
        wal: the -wal of its database. Others may append to it meanwhile.
    """
    if _size(wal) <= _HEADER.size:
        return ""
    with _opened(wal, apsw.SQLITE_OPEN_WAL) as file:
        header = file.xRead(_HEADER.size, 0)
        commits = list(_commits(file, header))
        # Asked after the frames were looked at: what was committed meanwhile is counted as good.
        _, good, _ = rows("PRAGMA wal_checkpoint(NOOP)", ())[0]
        lost = [number for number in commits if number > good]
        if len(lost) <= _TORN or file.xRead(_HEADER.size, 0) != header:
            return ""
    behind = f"{len(lost)} commits lie behind, to frame {lost[-1]}"
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


def _base_without_wal(db: Path) -> int | None:
    """The base that the database says without its WAL; None when a checkpoint was broken off in that page."""
    name = f"file:{quote(str(db))}?immutable=1"
    with suppress(apsw.Error):
        connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        try:
            found = connection.execute("SELECT value FROM meta WHERE key = 'base'").get
        finally:
            connection.close()
        return -1 if found is None else int(found)
    return None


@contextmanager
def _opened(path: Path, kind: int) -> Iterator[apsw.VFSFile]:
    file = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_READONLY | kind, 0])
    try:
        yield file
    finally:
        file.xClose()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
