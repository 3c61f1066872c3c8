"""Rows of the database as values of the port; the order of columns is that of `sql/queries.sql`.

This module must never know how rows are fetched, and must never judge what it converts.

Source: design storage.md, "The log".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poimen.log.api import Head, Record

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    """A run's head, from the columns of the queries `head`, `heads` and `live_heads`."""
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
