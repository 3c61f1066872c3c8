"""Reading a whole log and naming every damage: what `poimen log check` says.

This module must never repair or write. It keeps the invariant that a damage is told with its run and LSN wherever
some record leads to it.

Source: design storage.md, "The log" (log check); proof.md, P8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poimen.engine import reading
from poimen.kernel.errors import PoimenError
from poimen.log.api import Damage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from poimen.blobs.tables import TieredBlobs
    from poimen.log.api import Head, Record, Store


def damages(store: Store, bodies: TieredBlobs) -> Iterator[dict[str, Any]]:
    """Everything that does not match: chain, heads, anchor, bodies, also those that are gone, heads against records.

    Arguments:
        store: the log; others may write to it meanwhile.
        bodies: where its bodies lie.

    Returns:
        `run_id` and `lsn` (None where no record leads to it) and `what`, a sentence.
    """
    named = _Bodies(bodies)
    for damage in store.check(named.look):
        yield {"run_id": damage.run or None, "lsn": damage.lsn or None, "what": damage.what}
    for what in named.by_nobody():
        yield {"run_id": None, "lsn": None, "what": what}


def all_heads(store: Store) -> Iterator[Head]:
    """The heads of all runs, by id."""
    after = ""
    while page := store.heads(after=after):
        yield from page
        after = page[-1].run


class _Bodies:
    """What is wrong with the bodies of a log, told where records name them."""

    def __init__(self, bodies: TieredBlobs) -> None:
        self._bodies = bodies
        self._in_files = {digest: f"{what}: {bodies.place(digest)}" for digest, what in bodies.check()}
        self._faults: dict[str, str] = {}

    def look(self, head: Head, records: list[Record]) -> Iterator[Damage]:
        """Look at the bodies that a run names, and whether it can be folded to the state that its head says."""
        try:
            for named_at, ref in reading.bodies_named(records):
                if ref.digest not in self._faults:
                    self._faults[ref.digest] = self._in_files.get(ref.digest) or self._bodies.fault(ref.digest)
                if fault := self._faults[ref.digest].removeprefix(f"blob {ref.digest} "):
                    yield Damage(run=head.run, lsn=named_at, what=f"it names blob {ref.digest}, which {fault}")
            state = reading.state_of(head.run, records)
        except PoimenError as error:
            yield Damage(run=head.run, lsn=getattr(error, "lsn", 0), what=f"it cannot be folded: {error.message}")
        else:
            if state != head.state:
                yield Damage(run=head.run, lsn=head.lsn, what=f"the head says {head.state}, the records {state}")

    def by_nobody(self) -> Iterator[str]:
        """What is wrong with files that no run names that was looked at."""
        return (what for digest, what in self._in_files.items() if digest not in self._faults)
