"""The record of a branch as a script: which calls it has, in which order results are handed over.

Recorded calls must be claimed in recorded order, and none after a call that is not in the record.
This module must never know about loops or what runs on them; it keeps the invariant that nothing is replayed as
another call's result.

Source: design protocol.md, section 5 ("Replay").
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from poimen.kernel.attempt import AttemptState
from poimen.kernel.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptIndeterminate,
    AttemptStarted,
    AttemptSucceeded,
    AttemptTimedOut,
    BranchResumed,
    BranchStarted,
    CancelDelivered,
    DecisionRecorded,
    DecisionSettled,
    StepComputed,
    TimerFired,
    tells,
)
from poimen.kernel.intent import (
    IntentCommitted,
    IntentDispatched,
    IntentPending,
    IntentResolved,
    ReadDropped,
    RuleApplied,
    short,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from poimen.kernel.events import Event
    from poimen.kernel.views import BranchView

Kind: TypeAlias = Literal["told", "parked", "effect", "timer", "cancel", "start"]


SHOWN = 8
"""How many hex digits of a digest are shown to people. Arguments and values are agent text: they are not shown."""


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
    match event:  # the most frequent first
        case IntentPending() | IntentDispatched():
            return None
        case AttemptSucceeded() | AttemptCancelled():
            return HandOver("told", event.step, event.attempt, 0, event, at, ready)
        case IntentCommitted() | IntentResolved():
            return HandOver("effect", event.step, event.attempt, event.ordinal, event, at, ready)
        case StepComputed():
            return HandOver("told", event.step, 1, 0, event, at, ready)
        case AttemptFailed() | AttemptTimedOut():
            return HandOver("told", event.step, event.attempt, 0, event, at, ready) if event.retry_at is None else None
        case AttemptIndeterminate():
            kind: Kind = "told" if event.told else "parked"
            return HandOver(kind, event.step, event.attempt, 0, event, at, ready)
        case AttemptStarted():
            return HandOver("start", event.step, event.attempt, 0, event, at, ready) if event.attempt > 1 else None
        case RuleApplied() | ReadDropped():
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
    """A call of the workflow as recorded: `digest` is that of its arguments or its value, `code` of who recorded it."""

    key: str
    kind: str
    name: str
    digest: str
    what: str
    code: str


class Asked(NamedTuple):
    """What the code asks for: in words that show nothing of what agents passed, and written out with it."""

    words: str = ""
    written: str = ""


class Differs(Exception):
    """The code asks for something else than what is recorded: `key` names the call that is."""

    def __init__(self, recorded: str, asked: Asked, key: str) -> None:
        super().__init__(recorded, asked, key)
        self.recorded = recorded
        self.asked = asked
        self.key = key


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
        self.unrecorded = Asked()
        self.queue: deque[HandOver] = deque()
        self._code = ""
        for at, event, epoch in records:
            self._call(event)
            if epoch:
                due = hand_over_of(event, at, ready=True)
                if due is not None and _wanted(line, due):
                    self.queue.append(due)

    def _call(self, event: Event) -> None:
        match event:
            case BranchStarted() | BranchResumed():
                self._code = event.code
            case AttemptStarted() | StepComputed() if event.seq == len(self.calls) and event.step not in self.by_key:
                what = described(event.name, event.step, event.args_digest)
                self._add(event.step, event.kind, event.name, event.args_digest, what)
            case DecisionRecorded() if event.seq == len(self.calls):
                what = decided(event.id, event.value_digest)
                self._add(f"decide:{event.id}", "decide", "decide", event.value_digest, what)
            case DecisionSettled() if event.seq == len(self.calls):
                self._add(f"settle:{event.id}", "settle", "settle", "", f"settle {event.id!r}")
            case _:
                pass

    def _add(self, key: str, kind: str, name: str, digest: str, what: str) -> None:
        self.by_key[key] = len(self.calls)
        self.calls.append(RecordedCall(key, kind, name, digest, what, self._code))

    @property
    def complete(self) -> bool:
        """Every recorded call has been claimed."""
        return self.claimed == len(self.calls)

    def ahead(self, key: str) -> bool:
        """Whether a call is recorded and has not been claimed yet."""
        return self.by_key.get(key, -1) >= self.claimed

    def claim(self, *, key: str, kind: str, name: str, digest: str, what: Callable[[], Asked]) -> bool:
        """Claim a call; False when it is not in the record.

        Arguments:
            key: the step's key, or `decide:ID`, `settle:ID`.
            kind: `tool`, `model`, `step`, `decide` or `settle`.
            name: of the tool, model or step.
            digest: of the arguments or the value.
            what: gives the call in words, for people.

        Raises:
            Differs: another call was recorded here, or this one with other arguments.
        """
        index = self.by_key.get(key)
        if index is None or index < self.claimed:
            if not self.complete:
                self.unrecorded = self.unrecorded if self.unrecorded.words else what()
            return False
        expected = self.calls[self.claimed]
        if self.unrecorded.words:
            raise Differs(f"{expected.what}, with no call before it", self.unrecorded, expected.key)
        if index != self.claimed or (expected.name, expected.digest) != (name, digest):
            raise Differs(expected.what, what(), expected.key)
        if expected.kind != kind:
            asked = what()
            asked = asked._replace(words=f"the {kind} {asked.words}")
            raise Differs(f"the {expected.kind} {expected.what}", asked, expected.key)
        self.claimed += 1
        return True

    def next_unclaimed(self) -> RecordedCall | None:
        """The first recorded call that the code has not asked for."""
        return self.calls[self.claimed] if not self.complete else None

    def code_of(self, key: str) -> str:
        """The digest of the code that recorded a call; "" where no such call is recorded."""
        index = self.by_key.get(key)
        return self.calls[index].code if index is not None else ""


def described(name: str, key: str, digest: str) -> str:
    """A call in words, its arguments by their digest: `charge(…) as charge#0, arguments 3fa9c1d2`."""
    return f"{short(name)} as {key}, arguments {digest[:SHOWN]}"


def decided(decision_id: str, digest: str) -> str:
    """A decision in words, its value by its digest."""
    return f"decide {decision_id!r}, value {digest[:SHOWN]}"


def _wanted(line: BranchView, due: HandOver) -> bool:
    """Whether the code that runs again needs this: of effects and timers in steps, only what a live attempt has had."""
    if due.kind in ("told", "parked", "start", "cancel") or not due.step:
        return True
    last = line.steps[due.step].last
    return due.attempt == last.no and last.state is AttemptState.RUNNING
