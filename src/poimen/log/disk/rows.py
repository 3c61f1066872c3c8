"""Rows of the database as values of the port; the order of columns is that of `sql/queries.sql`.

This module must never know which connection fetches rows; it passes over a head that is no text, and tells of it last.

Source: design storage.md, "The log".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from poimen.kernel.errors import Corrupt
from poimen.log.api import Head, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Fetch = Callable[[tuple[bytes, bytes, bytes, int]], list[Any]]

_A_PAGE: Final = 1000
_TEXTS: Final = (0, 5, 6, 8)
"""Of the columns of a head: run, state, worker, boot id."""


def record_of(run: str, row: Sequence[Any]) -> Record:
    """A record of `run`, from the columns of the query `read`."""
    lsn, pos, branch, record_id, kind, subject, body, at, epoch, hash_ = row
    return Record(run, lsn, pos, branch, record_id.hex(), kind, subject, body, at, epoch, hash_)


def raw_record_of(run: str, row: Sequence[Any]) -> Record:
    """A record of `run`, from the columns of the query `read_raw`, whose texts are bytes.

    Raises:
        UnicodeDecodeError, AttributeError, TypeError: when a column holds what no record can hold.
    """
    lsn, pos, branch, record_id, kind, subject, *rest = row
    return record_of(run, (lsn, pos, branch.decode(), record_id, kind.decode(), subject.decode(), *rest))


def head_of(row: Sequence[Any]) -> Head:
    """A run's head, from the columns of the query `head`."""
    run, lsn, hash_, epoch, outsider_lsn, state, worker, lease_until, boot_id = row
    return Head(
        run=run,
        lsn=lsn,
        hash=hash_,
        epoch=epoch,
        outsider_lsn=outsider_lsn,
        state=state,
        worker=worker,
        lease_until=lease_until,
        boot_id=boot_id,
    )


def heads_of(fetch: Fetch, *, prefix: str, after: str, limit: int, db: Path) -> list[Head]:
    """A page of heads; those that hold what is no text are passed over, and told of behind the last one.

    Arguments:
        fetch: gives the rows of `heads` or `live_heads` for (after, from, below, limit).
        prefix: of the ids.
        after: the id before the page.
        limit: how many at most.
        db: the database's path, for the message.

    Raises:
        Corrupt: no head is left behind `after`, and one of this prefix was passed over, wherever it stands.
    """
    first, place = prefix.encode(), after.encode()
    below = first + b"\xff" * 64  # behind all texts that begin so, and behind what is none
    found: list[Head] = []
    while len(found) < limit and (rows := fetch((place, first, below, limit - len(found)))):
        place = rows[-1][0]
        found += [head for row in rows if (head := _decoded(row)) is not None]
    place = b""
    while not found and (rows := fetch((place, first, below, _A_PAGE))):
        place = rows[-1][0]
        for run in (row[0] for row in rows if _decoded(row) is None):
            raise Corrupt(
                f"the row of run {run!r} holds what is no text",
                where=str(db),
                why="the run is left alone, the others go on",
                hint="poimen log check",
            )
    return found


def _decoded(row: Sequence[Any]) -> Head | None:
    """A head from the columns of the queries `heads` and `live_heads`, whose texts are bytes; None: one is no text."""
    try:
        return head_of([column.decode() if n in _TEXTS else column for n, column in enumerate(row)])
    except UnicodeDecodeError:
        return None
