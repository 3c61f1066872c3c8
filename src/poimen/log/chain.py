"""The hash chain over the records of a run: how it is made, how damage is located.

Each record carries a sha256 over the hash before it and over every stored column, length-prefixed, so
that no two different records give the same bytes. This module must never know where records are kept.
It keeps half of I2: what was acknowledged cannot change unseen (the anchor keeps the other half: a tail
that is cut off, or forged to its end, is invisible to a chain).

Source: design storage.md, "The log" (chain); reliability.md section 5, nos. 11 and 12.
"""

from __future__ import annotations

import struct
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from poimen.log.api import Damage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from poimen.log.api import Record

ID_BYTES: Final = 16
"""Record ids are 16 bytes, written as 32 hex digits."""

_HEADER: Final = struct.Struct(">QqQIIIIIQ").pack
"""lsn, at, epoch, then the lengths of record id, run, branch, kind, subject, body."""

_UNHASHABLE: Final = (ValueError, TypeError, AttributeError, struct.error)
"""What a column raises that holds another type than it should."""


def first_prev(log_id: str, run: str) -> bytes:
    """The hash that stands before the first record of a run; it ties the chain to its log and its run."""
    return sha256(f"{len(log_id)}:{log_id}{run}".encode()).digest()


def link(  # noqa: PLR0917 (called for each record: keywords would cost a tenth of it)
    prev: bytes,
    run: str,
    lsn: int,
    branch: str,
    record_id: bytes,
    kind: str,
    subject: str,
    at: int,
    epoch: int,
    body: bytes,
) -> bytes:
    """The hash of one record.

    Arguments:
        prev: the hash of the record before it, 32 bytes.
        run: the run's id.
        lsn: its position in the run, from 1.
        branch: its branch.
        record_id: the raw 16 bytes.
        kind: tag and version.
        subject: what it is about.
        at: microseconds since the Unix epoch.
        epoch: the driver's, 0 for an outsider's.
        body: as stored.

    Returns:
        32 bytes.
    """
    names = (run + branch + kind + subject).encode()
    r, b, k, s = len(run), len(branch), len(kind), len(subject)
    if len(names) != r + b + k + s:  # else each character is one byte
        r, b, k, s = len(run.encode()), len(branch.encode()), len(kind.encode()), len(subject.encode())
    header = _HEADER(lsn, at, epoch, len(record_id), r, b, k, s, len(body))
    return sha256(b"".join((prev, header, record_id, names, body))).digest()


def link_of(prev: bytes, record: Record) -> bytes:
    """The hash that a stored record should have after `prev`; empty when a column cannot be hashed at all."""
    try:
        return link(
            prev,
            record.run,
            record.lsn,
            record.branch,
            bytes.fromhex(record.record_id),
            record.kind,
            record.subject,
            record.at,
            record.epoch,
            record.body,
        )
    except _UNHASHABLE:
        return b""


def verify(records: Iterable[Record], prev: bytes, *, first: int = 1) -> Iterator[Damage]:
    """Walk over the records of one run and yield each place where the chain breaks.

    An edited record is named itself, a swapped pair by both members (and by what follows each), missing
    ones by the range of their LSNs. A tail that is missing whole is invisible here.

    Arguments:
        records: in LSN order, as stored.
        prev: the hash before the first of them.
        first: the LSN that the first of them should have.
    """
    for record in records:
        if record.lsn != first:
            yield Damage(run=record.run, lsn=first, what=_gap(first, record.lsn))
        elif link_of(prev, record) != record.hash:
            what = f"record {record.lsn} ({record.kind}) does not match its hash: edited, moved, or another came before"
            yield Damage(run=record.run, lsn=record.lsn, what=what)
        prev, first = record.hash, record.lsn + 1


def _gap(expected: int, found: int) -> str:
    if found < expected:
        return f"record {found} stands where {expected} should: an LSN was used twice"
    if found == expected + 1:
        return f"record {expected} is missing"
    return f"records {expected} to {found - 1} are missing"
