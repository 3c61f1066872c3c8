"""What an opening for writing refuses, found out without one: for trials, and for whoever only looks.

It asks what `SqliteStore` asks before it serves, in its order. What only the opening itself can find (a lock that
another process holds, a disk that is full) is not foreseen. This module must never create, change or lock a file: it
opens none of the database's own but through a `Reader`. It keeps the promise that a trial refuses what the command
refuses.

Source: design api.md, "Command line" (--dry-run); storage.md, "SQLite" (restored backups).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import apsw

from poimen.kernel.errors import ConfigurationError
from poimen.log import wal
from poimen.log.disk import care, connect, files
from poimen.log.disk.anchor import Anchor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from poimen.log.disk.anchor import Mark


def refuse(path: str | os.PathLike[str], *, drives: bool = False) -> None:
    """Refuse what an opening for writing of this file refuses, also where there is no file yet.

    Arguments:
        path: of the database.
        drives: a worker would be declared beside it too.

    Raises:
        ConfigurationError: when the path cannot be a log.
        StorageFailed: when it cannot be opened; its `unwritable` says that it is a question of rights.
        Corrupt: when it is older than its anchor, or does not fit its WAL.
    """
    db = files.real(path)
    sides = files.Sides.of(db)
    anchor = Anchor(sides.anchor)
    reader = connect.Reader(db)
    try:
        # Before the database is asked: another process moves the database first.
        anchored, heads = anchor.mark(), anchor.newest()
        if not files.holds_anything(db):
            anchor.refuse_old(anchored, None, db)
        files.would_prepare(db)
        _refuse_sides(sides, drives=drives)
        wal.refuse(db, sides.wal, wal.foreign(db, sides.wal, anchored.base if anchored is not None else -1))
        mark = _mark(reader.rows) if files.holds_anything(db) else None
        anchor.refuse_old(anchored, mark, db)
        if mark is not None:
            connect.refuse_altered(reader.rows, db)
            wal.refuse(db, sides.wal, wal.damaged(reader.rows, sides.wal))
            care.refuse_lost(reader.rows, heads, db)
    except (OSError, apsw.Error) as error:
        raise connect.translated(error, db, "opening") from error
    finally:
        reader.close()


def _mark(rows: Callable[[str, tuple[Any, ...]], list[Any]]) -> Mark | None:
    """What the database says of itself; None: no log was written to it."""
    try:
        return connect.mark_of(rows)
    except ConfigurationError as error:
        if error.ids.get("empty"):
            return None
        raise


def _refuse_sides(sides: files.Sides, *, drives: bool) -> None:
    """See that the files beside the database that an opening uses can be opened, where they are there."""
    for path in (sides.turn, sides.next, sides.open):
        _refuse_side(sides.db, path, "locking")
    for path in (sides.anchor, *((sides.doubt, sides.settle, sides.doubt_log) if sides.doubt.exists() else ())):
        _refuse_side(sides.db, path, "opening")
    if drives:
        _refuse_side(sides.db, sides.workers, "declaring a worker", flags=os.O_RDONLY | os.O_DIRECTORY)


def _refuse_side(db: Path, path: Path, doing: str, *, flags: int = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK) -> None:
    try:
        fd = os.open(path, flags | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise connect.translated(error, db, doing) from error
    os.close(fd)
