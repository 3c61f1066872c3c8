"""What a state of the protocol model is: one effect, its log, the world behind it, and who is at work.

Times are whole ticks. A state is a tuple of plain values, so that a million of them fit in memory and equal ones are
one. This module must never know the code that it is a model of: nothing here, in `rules`, `moves` or `invariants` is
imported from the kernel or the gate. It keeps the invariant that a state says everything: two equal ones behave alike.

Source: design protocol.md, sections 1, 3, 4 and 5; proof.md, P10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Class: TypeAlias = Literal["READ", "IDEMPOTENT", "KEYED", "KEYED+PROBE", "PROBE", "AT_MOST_ONCE"]
Control: TypeAlias = Literal["", "no_fence", "two_records"]
Attempt: TypeAlias = Literal["RUNNING", "SUCCEEDED", "FAILED", "INDETERMINATE", "CANCELLED", "TIMED_OUT"]

KNOWN_NO = ("rejected", "not_sent")
"""Answers that say: this send did nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is explored: an effect class, the lengths of things in ticks, the limits of the search.

    Arguments:
        effect_class: of the one effect; `KEYED+PROBE` is KEYED with a probe to fall back on.
        control: the sabotage: `no_fence` accepts a driver's append under any epoch, `two_records` calls without a
            Dispatched on record; empty: the protocol as it is.
        ttl, timeout, grace, lag, lease, probing: in ticks; two absences are one tick apart.
        max_sends: how often the effect may be sent.
        epochs: how many leases may be given out, 1 for the first driver; two of them may be at work at once.
        attempts: how many attempts of the step may begin.
        horizon: the last tick.
        crashes: whether workers die; a worker that is merely past its lease (a zombie) is always possible.
    """

    effect_class: Class
    control: Control = ""
    ttl: int = 5
    timeout: int = 1
    grace: int = 1
    lag: int = 1
    lease: int = 2
    probing: int = 2
    max_sends: int = 2
    epochs: int = 3
    attempts: int = 2
    horizon: int = 7
    crashes: bool = True


class Send(NamedTuple):
    """A Dispatched on record: when, and the answer to it, empty while it is unknown."""

    at: int
    answer: str = ""


class Flight(NamedTuple):
    """What the world has of one send: when its Dispatched was (its call can reach nothing long after), and how it is.

    `way`: `flying` may land yet, `landed` at tick `hit`, `gone` can land no more.
    """

    attempt: int
    send: int
    at: int
    way: str
    hit: int = -1


class Worker(NamedTuple):
    """A process that holds, or thinks that it holds, the lease.

    Arguments:
        epoch: under which it works; its name.
        until: the end of its lease, as far as it knows.
        doing: `took` (has the lease, has not classified), `go` (drives; nothing open), `sent` (its Dispatched is
            durable), `calling`, `ended` (it has `answer`), `open` (asks the ladder), `over` (the attempt has ended).
        send: the send that it is about, 0 for none.
        answer: how its call ended: `returned`, `rejected`, `not_sent`, `maybe`; empty before.
        running: the send whose body was given up and goes on in this process, 0 for none.
    """

    epoch: int
    until: int
    doing: str
    send: int = 0
    answer: str = ""
    running: int = 0


class State(NamedTuple):
    """One state.

    Arguments:
        now: the clock.
        attempt, attempt_no: the step's newest attempt.
        pending: its intent is on record; `sends`: its Dispatcheds; `closed`: how it was closed, empty while open.
        by: who closed it: `outcome`, `probe`, `late`, `person`, `dropped`, `inherited`.
        classified: the send up to which a restart has classified it; -1: not.
        readings: (when begun, answer) since the last Dispatched; `asked`: when the first of them began, -1: none.
        demoted: the class that a ruling on record has demoted it to.
        cancelled: a cancel is on record.
        epoch, taken: the epoch on record, and when its lease was taken.
        lease: until when it holds on record.
        keyed_at: the first Dispatched of the request id, over all attempts; -1: none.
        workers: by epoch.
        flights: what the world has of all sends.
        done: effects at the far side, repetitions under a living key
            counted as one; `known_since`: when the far side first learnt the key, -1: never.
    """

    now: int = 0
    attempt: Attempt = "RUNNING"
    attempt_no: int = 1
    pending: bool = False
    sends: tuple[Send, ...] = ()
    closed: str = ""
    by: str = ""
    classified: int = -1
    readings: tuple[tuple[int, str], ...] = ()
    asked: int = -1
    demoted: str = ""
    cancelled: bool = False
    epoch: int = 1
    taken: int = 0
    lease: int = 0
    keyed_at: int = -1
    workers: tuple[Worker, ...] = ()
    flights: tuple[Flight, ...] = ()
    done: int = 0
    known_since: int = -1

    @property
    def open(self) -> bool:
        """May have been sent, and nobody knows what became of it."""
        return bool(self.sends) and not self.closed


class Move(NamedTuple):
    """What leads from one state to the next: who (an epoch; 0: the world or a person), what, and with which words."""

    who: int
    what: str
    words: tuple[str | int, ...] = ()


def first_state(setup: Setup) -> State:
    """One worker has the lease, the attempt has begun, nothing else has happened."""
    return State(lease=setup.lease, workers=(Worker(1, setup.lease, "go"),))
