"""The record of a branch as a script: which calls it has, in which order results are handed over.

Recorded calls must be claimed in recorded order, and none after a call that is not in the record.
This module must never know about loops or what runs on them; it keeps the invariant that nothing is replayed as
another call's result.

Source: design protocol.md, section 5 ("Replay").
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from poimen.kernel.attempt import AttemptState
from poimen.kernel.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptIndeterminate,
    AttemptStarted,
    AttemptSucceeded,
    AttemptTimedOut,
    CancelDelivered,
    DecisionRecorded,
    DecisionSettled,
    StepComputed,
    TimerFired,
)
from poimen.kernel.fold import tells
from poimen.kernel.intent import IntentCommitted, IntentResolved, ReadDropped, RuleApplied

if TYPE_CHECKING:
    from collections.abc import Iterable

    from poimen.kernel.events import Event
    from poimen.kernel.intent import Payload
    from poimen.kernel.views import BranchView

Kind: TypeAlias = Literal["told", "parked", "effect", "timer", "cancel", "start"]


SHOWN = 200
"""How many characters of a call's arguments are shown to people."""


@dataclass(slots=True)
class HandOver:
    """One result on its way to the code. `ready`: its record, and every one before it, may be acted upon."""

    kind: Kind
    step: str
    attempt: int
    n: int
    event: Event
    at: int
    ready: bool


def hand_over_of(event: Event, at: int, *, ready: bool) -> HandOver | None:
    """What a driver's record hands over to the code, or None for records that only tell readers.

    Arguments:
        event: the record's event.
        at: its time, microseconds since the Unix epoch.
        ready: whether it may be acted upon already.
    """
    match event:
        case AttemptSucceeded() | AttemptCancelled():
            return HandOver("told", event.step, event.attempt, 0, event, at, ready)
        case StepComputed():
            return HandOver("told", event.step, 1, 0, event, at, ready)
        case AttemptFailed() | AttemptTimedOut():
            return HandOver("told", event.step, event.attempt, 0, event, at, ready) if event.retry_at is None else None
        case AttemptIndeterminate():
            kind: Kind = "told" if event.told else "parked"
            return HandOver(kind, event.step, event.attempt, 0, event, at, ready)
        case AttemptStarted():
            return HandOver("start", event.step, event.attempt, 0, event, at, ready) if event.attempt > 1 else None
        case IntentCommitted() | IntentResolved() | ReadDropped():
            return HandOver("effect", event.step, event.attempt, event.ordinal, event, at, ready)
        case RuleApplied():
            if tells(event):
                return HandOver("effect", event.step, event.attempt, event.ordinal, event, at, ready)
            return None
        case TimerFired():
            return HandOver("timer", event.step, event.attempt, event.n, event, at, ready)
        case CancelDelivered():
            return HandOver("cancel", "", 0, 0, event, at, ready)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of the workflow as recorded. `digest` is that of its arguments or its value."""

    key: str
    kind: str
    name: str
    digest: str
    what: str


class Differs(Exception):
    """The code asks for something else than what is recorded."""

    def __init__(self, recorded: str, asked: str) -> None:
        super().__init__(recorded, asked)
        self.recorded = recorded
        self.asked = asked


class Script:
    """What is recorded of a branch, to be claimed and handed over again.

    Arguments:
        line: the branch as folded.
        records: its driver's and outsiders' records in LSN order: `(at, event, epoch)`.
    """

    def __init__(self, line: BranchView, records: Iterable[tuple[int, Event, int]]) -> None:
        self.calls: list[RecordedCall] = []
        self.by_key: dict[str, int] = {}
        self.claimed = 0
        self.unrecorded = ""
        self.queue: deque[HandOver] = deque()
        for at, event, epoch in records:
            self._call(event)
            if epoch:
                due = hand_over_of(event, at, ready=True)
                if due is not None and _wanted(line, due):
                    self.queue.append(due)

    def _call(self, event: Event) -> None:
        match event:
            case AttemptStarted() | StepComputed() if event.seq == len(self.calls) and event.step not in self.by_key:
                what = described(event.name, event.step, event.args)
                self._add(RecordedCall(event.step, event.kind, event.name, event.args_digest, what))
            case DecisionRecorded() if event.seq == len(self.calls):
                what = f"decide {event.id!r}"
                self._add(RecordedCall(f"decide:{event.id}", "decide", "decide", event.value_digest, what))
            case DecisionSettled() if event.seq == len(self.calls):
                what = f"settle {event.id!r}"
                self._add(RecordedCall(f"settle:{event.id}", "settle", "settle", "", what))
            case _:
                pass

    def _add(self, call: RecordedCall) -> None:
        self.by_key[call.key] = len(self.calls)
        self.calls.append(call)

    @property
    def complete(self) -> bool:
        """Every recorded call has been claimed."""
        return self.claimed == len(self.calls)

    def ahead(self, key: str) -> bool:
        """Whether a call is recorded and has not been claimed yet."""
        return self.by_key.get(key, -1) >= self.claimed

    def claim(self, *, key: str, kind: str, name: str, digest: str, what: str) -> bool:
        """Claim a call; False when it is not in the record.

        Arguments:
            key: the step's key, or `decide:ID`, `settle:ID`.
            kind: `tool`, `model`, `step`, `decide` or `settle`.
            name: of the tool, model or step.
            digest: of the arguments or the value.
            what: the call in words, for people.

        Raises:
            Differs: another call was recorded here, or this one with other arguments.
        """
        index = self.by_key.get(key)
        if index is None or index < self.claimed:
            if not self.complete:
                self.unrecorded = self.unrecorded or what
            return False
        expected = self.calls[self.claimed]
        if self.unrecorded:
            raise Differs(f"{expected.what}, with no call before it", self.unrecorded)
        if index != self.claimed:
            raise Differs(expected.what, what)
        if expected.name != name:
            raise Differs(expected.what, what)
        if expected.kind != kind:
            raise Differs(f"the {expected.kind} {expected.what}", f"the {kind} {what}")
        if expected.digest != digest:
            raise Differs(expected.what, what)
        self.claimed += 1
        return True

    def next_unclaimed(self) -> str:
        """The first recorded call that the code has not asked for."""
        return self.calls[self.claimed].what if not self.complete else ""


def described(name: str, key: str, args: Payload) -> str:
    """A call in words: `charge{"cents":4200} as charge#0`; long arguments are cut."""
    text = args.decode(errors="replace") if isinstance(args, bytes) else f"<{args.size} bytes>"
    return f"{name}{text if len(text) <= SHOWN else text[:SHOWN] + '…'} as {key}"


def _wanted(line: BranchView, due: HandOver) -> bool:
    """Whether the code that runs again needs this: of effects and timers in steps, only what a live attempt has had."""
    if due.kind in ("told", "parked", "start", "cancel") or not due.step:
        return True
    last = line.steps[due.step].last
    return due.attempt == last.no and last.state is AttemptState.RUNNING
