"""The log as a few dicts and lists: what the machine holds every backend against. It knows no backend's code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from poimen.log.api import TERMINAL_STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from poimen.log.api import Batch, Lease

ANY: Final = "whatever"
"""What an answer may say as it likes."""


@dataclass
class Row:
    """A run: its head, as the port shows it."""

    lsn: int = 0
    epoch: int = 0
    outsider: int = 0
    state: str = "PENDING"
    worker: str = ""
    until: int = 0


@dataclass
class Plain:
    """All that a log knows; `way` says through which of its stores something comes."""

    rows: dict[str, Row] = field(default_factory=dict)
    order: list[dict[str, Any]] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    workers: dict[str, int] = field(default_factory=dict)
    appended: dict[int, set[tuple[str, bytes]]] = field(default_factory=lambda: {0: set(), 1: set()})

    def commit(self, way: int, batches: Sequence[Batch]) -> list[Any]:
        """For each batch its first and last LSN, or the name of the error, its LSN and its epoch."""
        return [self.refusal(way, batch) or self.append(way, batch) for batch in batches]

    def refusal(self, way: int, batch: Batch) -> Any:
        row = self.rows.get(batch.run)
        if row is not None and batch.admits:
            return "RunExists", None, None
        if row is None and not batch.admits:
            return "NotFound", None, None
        row = row or Row()
        if batch.epoch is not None and (batch.epoch != row.epoch or batch.epoch == 0):
            return "Fenced", None, row.epoch
        if batch.epoch is not None and batch.seen is not None and batch.seen < row.outsider:
            return "Conflict", row.outsider, None
        if batch.expect is not None and self.last_about(batch.run, batch.expect.subject) > batch.expect.lsn:
            return "Conflict", self.last_about(batch.run, batch.expect.subject), None
        ids = [(batch.run, each.raw_id) for each in batch.records]
        if len(set(ids)) < len(ids) or self.appended[way] & set(ids):
            return "Conflict", ANY, None
        return None

    def append(self, way: int, batch: Batch) -> Any:
        row = self.rows.setdefault(batch.run, Row())
        first = row.lsn + 1
        for each in batch.records:
            row.lsn += 1
            self.order.append({
                "run": batch.run, "lsn": row.lsn, "branch": each.branch, "record_id": each.raw_id.hex(),
                "kind": each.kind, "subject": each.subject, "body": each.body, "at": each.at,
                "epoch": batch.epoch or 0,
            })  # fmt: skip
            self.appended[way].add((batch.run, each.raw_id))
        row.outsider = row.lsn if batch.epoch is None else row.outsider
        row.state = row.state if batch.state is None else batch.state
        self.blobs |= {blob.digest: blob.body for blob in batch.blobs}
        return first, row.lsn

    def last_about(self, run: str, subject: str) -> int:
        return max((each["lsn"] for each in self.of(run) if each["subject"] == subject), default=0)

    def of(self, run: str) -> list[dict[str, Any]]:
        return [each for each in self.order if each["run"] == run]

    def heads(self, *, live: bool = False, prefix: str = "", after: str = "", limit: int = 1000) -> list[Any]:
        found = [(run, self.rows[run]) for run in sorted(self.rows) if run > after and run.startswith(prefix)]
        return [(run, vars(row)) for run, row in found if not (live and row.state in TERMINAL_STATES)][:limit]

    # ---- leases ------------------------------------------------------------------------------------------------

    def declare(self, way: int, worker: str) -> Any:
        if self.workers.setdefault(worker, way) != way:
            return "InvariantViolated"
        return None

    def claim(self, way: int, run: str, worker: str, *, now: int, until: int, own: Lease | None) -> Any:
        """The new epoch, None while it is held, or the name of the error."""
        refused = self.declare(way, worker)
        if refused:
            return refused
        row = self.rows.get(run)
        if row is None:
            return "NotFound"
        mine = own is not None and (own.worker, own.epoch) == (row.worker, row.epoch)
        if row.worker in self.workers and now <= row.until and not mine:
            return None
        row.epoch, row.worker, row.until = row.epoch + 1, worker, until
        return row.epoch

    def holds(self, lease: Lease) -> bool:
        row = self.rows.get(lease.run)
        return row is not None and (row.worker, row.epoch) == (lease.worker, lease.epoch)

    def renew(self, leases: Sequence[Lease], *, until: int) -> list[Any]:
        kept = [lease for lease in leases if self.holds(lease)]
        for lease in kept:
            self.rows[lease.run].until = until
        return [(lease.run, lease.worker, lease.epoch, until) for lease in kept]

    def release(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            if self.holds(lease):
                self.rows[lease.run].worker, self.rows[lease.run].until = "", 0

    # ---- care --------------------------------------------------------------------------------------------------

    def gone(self, *ways: int, workers: bool = True) -> None:
        """Stores are closed, or their processes are dead: what they knew goes, and their workers do."""
        for way in ways:
            self.appended[way] = set()
        if workers:
            self.workers = {worker: way for worker, way in self.workers.items() if way not in ways}

    def rebuild(self, state_of: Callable[[str, Any], str]) -> int:
        changed = 0
        for run, row in self.rows.items():
            state = state_of(run, self.of(run))
            changed += state != row.state
            row.state = state
        return changed
