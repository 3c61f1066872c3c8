"""The whole content of a log, read back as its readers get it, to be compared.

This module must never look at a file itself. It keeps the invariant that two contents are equal only if every record,
every fold, every body and every head is.

Source: design proof.md, P8.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from poimen.blobs.tables import TieredBlobs
from poimen.engine import reading
from poimen.engine.checking import all_heads, damages
from poimen.log.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path


class Content(NamedTuple):
    """What a log says: heads, records and folds by run, bodies by digest."""

    heads: dict[str, Any]
    records: dict[str, Any]
    folds: dict[str, str]
    bodies: dict[str, str]


def content_of(db: Path) -> Content:
    """Read everything, without a trace.

    Raises:
        PoimenError: something cannot be read.
    """
    store = SqliteStore(db, read_only=True)
    try:
        bodies = TieredBlobs(store, store.path)
        found = Content({}, {}, {}, {})
        for head in all_heads(store):
            found.heads[head.run] = head
            found.records[head.run] = records = store.read(head.run)
            found.folds[head.run] = repr(reading.read_run(store, head.run)[0])
            for _, ref in reading.bodies_named(records):
                if ref.digest not in found.bodies:
                    found.bodies[ref.digest] = sha256(bodies.get(ref.digest)).hexdigest()
        return found
    finally:
        store.close()


def named_damages(db: Path) -> list[dict[str, Any]]:
    """What `poimen log check` says of it: `run_id`, `lsn`, `what`.

    Raises:
        PoimenError: it cannot be opened.
    """
    store = SqliteStore(db, read_only=True)
    try:
        return list(damages(store, TieredBlobs(store, store.path)))
    finally:
        store.close()
