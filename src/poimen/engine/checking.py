"""Reading a whole log and naming every damage: what `poimen log check` says.

This module must never repair or write. It keeps the invariant that a damage is told with its run and LSN wherever
some record leads to it.

Source: design storage.md, "The log" (log check); proof.md, P8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poimen.engine import reading
from poimen.kernel.errors import Corrupt, PoimenError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from poimen.blobs.tables import TieredBlobs
    from poimen.log.api import Head, Store


def damages(store: Store, bodies: TieredBlobs) -> Iterator[dict[str, Any]]:
    """Everything that does not match: chain, heads, anchor, bodies, also those that are gone, heads against records.

    Arguments:
        store: the log; others may write to it meanwhile.
        bodies: where its bodies lie.

    Returns:
        `run_id` and `lsn` (None where no record leads to it) and `what`, a sentence.
    """
    bad: set[str] = set()
    for damage in store.check():
        bad.add(damage.run)
        yield {"run_id": damage.run or None, "lsn": damage.lsn or None, "what": damage.what}
    for what in bodies.check():
        yield {"run_id": None, "lsn": None, "what": what}
    known: dict[str, str] = {}
    for head in all_heads(store):
        if head.run not in bad:
            yield from _of_run(store, bodies, head, known)


def all_heads(store: Store) -> Iterator[Head]:
    """The heads of all runs, by id."""
    after = ""
    while page := store.heads(after=after):
        yield from page
        after = page[-1].run


def _of_run(store: Store, bodies: TieredBlobs, head: Head, known: dict[str, str]) -> Iterator[dict[str, Any]]:
    try:
        records = store.read(head.run, upto=head.lsn)
        for named_at, ref in reading.bodies_named(records):
            if ref.digest not in known:
                known[ref.digest] = _wrong_with(bodies, ref.digest)
            if known[ref.digest]:
                what = f"it names blob {ref.digest}, which {known[ref.digest]}: {bodies.place(ref.digest)}"
                yield {"run_id": head.run, "lsn": named_at, "what": what}
        state = reading.state_of(head.run, records)
    except PoimenError as error:
        lsn = getattr(error, "lsn", None)
        yield {"run_id": head.run, "lsn": lsn, "what": f"it cannot be folded: {error.message}"}
    else:
        if state != head.state:
            yield {"run_id": head.run, "lsn": head.lsn, "what": f"the head says {head.state}, the records {state}"}


def _wrong_with(bodies: TieredBlobs, digest: str) -> str:
    if not bodies.has(digest):
        return "is gone"
    try:
        bodies.get(digest)
    except Corrupt:
        return "does not match its digest"
    except PoimenError as error:
        return f"cannot be read ({error.message})"
    return ""
