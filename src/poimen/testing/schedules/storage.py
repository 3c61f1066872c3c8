"""A log in memory that is locked, or fails, at moments that a seed chooses, and says what it has acknowledged.

Several stores share one log, as several processes share a file. This module must never refuse what a real database
would keep. It keeps the invariant that what it has acknowledged is noted before anybody is told.

Source: design proof.md, P11; storage.md, "Fail-stop".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from poimen._typing import override
from poimen.kernel.errors import CommitUnknown, PoimenError, StorageFailed
from poimen.log.memory import Contents, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poimen.log.api import Batch, Committed, Lease
    from poimen.testing.schedules.loop import SimulatedLoop

LONG_S: Final = 20.0
"""How long a lock can last: longer than a lease, so that others take over what its worker cannot renew."""

BUSY_S: Final = 0.05
"""How long a call stands still before it is told of the lock: the loop is not run meanwhile."""


@dataclass(kw_only=True)
class Acknowledged:
    """What stores of one log have said to those who asked.

    Arguments:
        batches: `(run, LSN, hash)` of the last record of each batch that was said to be durable.
        commits: `(run, LSN)` of the last record of each batch that was written, whatever was said.
        claims: `(run, LSN, epoch)`: from behind this LSN on no driver of an older epoch may append.
    """

    batches: list[tuple[str, int, bytes]] = field(default_factory=list)
    commits: list[tuple[str, int]] = field(default_factory=list)
    claims: list[tuple[str, int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How bad the storage of one simulation is.

    Arguments:
        locked: how often a call finds the log locked by somebody else.
        longest_s: how long it stays so at most, seconds.
        unknown: how often a commit fails with nobody knowing whether it is durable.
    """

    locked: float = 0.0
    longest_s: float = 1.0
    unknown: float = 0.0


class SeededStore(MemoryStore):
    """One process's way to a log.

    Arguments:
        contents: the log.
        loop: whose time it is, and whose chance decides.
        weather: how often what fails.
        acknowledged: takes what it says.
    """

    def __init__(self, contents: Contents, loop: SimulatedLoop, weather: Weather, acknowledged: Acknowledged) -> None:
        super().__init__(contents)
        self.loop = loop
        self.weather = weather
        self.acknowledged = acknowledged
        self.failed = False
        self._locked_until = -1.0

    @override
    def commit(self, batches: Sequence[Batch]) -> list[Committed | PoimenError]:
        self._weathered()
        if self.weather.unknown and self.loop.chance.random() < self.weather.unknown:
            if self.loop.chance.random() < 1 / 2:
                self._write(batches)
            self.failed = True
            raise CommitUnknown("the seed let this commit fail")
        answers = self._write(batches)
        for batch, answer in zip(batches, answers, strict=True):
            if not isinstance(answer, PoimenError):
                self.acknowledged.batches.append((batch.run, answer.last, answer.hash))
        return answers

    def _write(self, batches: Sequence[Batch]) -> list[Committed | PoimenError]:
        answers = super().commit(batches)
        written = [(b.run, a.last) for b, a in zip(batches, answers, strict=True) if not isinstance(a, PoimenError)]
        self.acknowledged.commits.extend(written)
        return answers

    @override
    def claim(self, run: str, *, worker: str, lease_s: float, own: Lease | None = None) -> Lease | None:
        self._weathered()
        lease = super().claim(run, worker=worker, lease_s=lease_s, own=own)
        head = self.head(run)
        if lease is not None and head is not None:
            self.acknowledged.claims.append((run, head.lsn, lease.epoch))
        return lease

    @override
    def renew(self, leases: Sequence[Lease], *, lease_s: float) -> list[Lease]:
        self._weathered()
        return super().renew(leases, lease_s=lease_s)

    @override
    def release(self, leases: Sequence[Lease]) -> None:
        self._weathered()
        super().release(leases)

    def _weathered(self) -> None:
        if self.failed:
            raise StorageFailed("a commit of this store has failed before")
        chance, now = self.loop.chance, self.loop.now
        if now >= self._locked_until and self.weather.locked and chance.random() < self.weather.locked:
            self._locked_until = now + chance.random() * self.weather.longest_s
        if now < self._locked_until:
            self.loop.now += BUSY_S
            raise StorageFailed("the log is locked: the seed says so", locked=True)

    def die(self) -> None:
        """Its process has died: nothing is written through it, and its workers are not alive any more."""
        self.close()
        self.failed = True
