"""What a seed does to a program, and what a schedule has left: records, the world, every step.

This module must never judge; it keeps the invariant that a trace holds all that two schedules can differ in.

Source: design proof.md, P11.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from poimen._typing import override
from poimen.log import codec
from poimen.testing.schedules.storage import LONG_S, Acknowledged, Weather

if TYPE_CHECKING:
    import random  # noqa: TID251 (seeded: one seed is one schedule)

    from poimen.log.api import Record
    from poimen.testing.schedules.loop import Order
    from poimen.testing.schedules.world import Mark

_TELLING: Final = {
    "intent.classified.v1": "classified {classification}",
    "intent.probed.v1": "probe {answer}",
    "intent.resolved.v1": "{to} by {by}",
    "branch.resumed.v1": "resumed: {why}",
    "cancel.requested.v1": "cancelled",
    "intent.late_outcome.v1": "a late outcome",
    "attempt.indeterminate.v1": "Indeterminate",
    "timer.fired.v1": "a timer fired",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbances:
    """What a seed does to a program.

    Arguments:
        workers: how many processes drive it side by side.
        deaths: the callbacks at which processes die, one life after the other.
        cancels: `(callback, number of the run)`.
        weather: of the storage, while processes die; the last one has fair weather from its second minute on.
    """

    workers: int = 1
    deaths: tuple[int, ...] = ()
    cancels: tuple[tuple[int, int], ...] = ()
    weather: Weather = field(default_factory=Weather)

    @classmethod
    def of(cls, chance: random.Random, runs: int) -> Disturbances:
        """Drawn by chance; a third of all schedules is disturbed by nothing but their order.

        Arguments:
            chance: decides.
            runs: how many runs there are.
        """
        if chance.random() < 1 / 3:
            return cls()
        deaths = tuple(1 + int(chance.random() ** 2 * 600) for _ in range(chance.choice((0, 0, 1, 1, 2))))
        cancels = tuple((1 + int(chance.random() ** 2 * 400), run) for run in range(runs) if chance.random() < 1 / 4)
        weather = Weather(
            locked=chance.choice((0.0, 0.0, 0.02, 0.1)),
            longest_s=chance.choice((0.3, 0.3, 1.0, LONG_S)),
            unknown=chance.choice((0.0, 0.0, 0.02)),
        )
        return cls(workers=chance.choice((1, 1, 2)), deaths=deaths, cancels=cancels, weather=weather)


@dataclass(kw_only=True)
class Simulation:
    """What one schedule has left.

    Arguments:
        seed: it is made of.
        order: of its callbacks.
        disturbances: what was done to it.
        runs: the records of each run, in LSN order.
        states: of each run, at the end.
        values: what each run returned, as JSON text; `null` where it did not.
        marks: what was done to the world, in order.
        acknowledged: what the log has said to its writers.
        steps: how many callbacks have run.
        path: what the seed has chosen at each of them, as a number.
        left: what was still to run, or had gone wrong, when all had ended: callbacks, timers, asyncio tasks, errors.
        stuck: why it did not come to its end; empty when it did.
        seconds: of simulated time.
        log_id, blobs: of its log.
        replayed: how many logs of it were replayed.
        faults: what is wrong, a sentence each.
        held: what drivers held a view of that is not the fold of the log.
    """

    seed: int
    order: Order
    disturbances: Disturbances
    runs: dict[str, list[Record]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    acknowledged: Acknowledged = field(default_factory=Acknowledged)
    steps: int = 0
    path: int = 0
    left: list[str] = field(default_factory=list)
    stuck: str = ""
    held: list[str] = field(default_factory=list)
    replayed: int = 0
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0
    log_id: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict, repr=False)

    def trace(self) -> list[str]:
        """Everything that happened, line by line: records, the world, the number of callbacks and their choices."""
        lines = [
            f"{run} {r.lsn} {r.kind} {r.subject} at {r.at} epoch {r.epoch} {r.hash.hex()}"
            for run, records in self.runs.items()
            for r in records
        ]
        lines += [f"world {m.step} {m.at_s:.6f} {m.request_id} {m.what} {m.dispatched}" for m in self.marks]
        return [*lines, f"{self.steps} callbacks, path {self.path}", *self.left, self.stuck]

    def met(self) -> set[str]:
        """What the schedule has come through, in words: a harness that never gets somewhere shows nothing of it."""
        found = {f"ended {state}" for state in self.states.values()}
        bodies = [(r.kind, codec.plain(r)) for records in self.runs.values() for r in records]
        for kind, body in bodies:
            if kind in _TELLING:
                found.add(_TELLING[kind].format(**body))
            if kind == "intent.dispatched.v1" and body["send"] > 1:
                found.add("a further send")
        return found

    def digest(self) -> str:
        """The trace as one number, 16 hex digits."""
        return hashlib.sha256("\n".join(self.trace()).encode()).hexdigest()[:16]

    @override
    def __str__(self) -> str:
        ends = ", ".join(f"{run} {state}" for run, state in self.states.items())
        return f"seed {self.seed}: {self.steps} callbacks, {ends}, trace {self.digest()}"
