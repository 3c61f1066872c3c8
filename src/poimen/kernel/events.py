"""The closed union of facts that a log can hold.

Past tense, one class each, plain data. A record is an event with its LSN as stored; `log.codec`
gives each class a stable tag and version. This module must never know about bytes on disk, clocks
or I/O; it keeps the invariant that everything a run ever knew is in one of these classes.

Bodies that users brought (arguments, results) are `Payload`: canonical JSON as bytes, or a `BlobRef`
to where it lies. Times are microseconds since the Unix epoch, UTC.

Source: design protocol.md, sections 2 to 6; storage.md, "Durability".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from poimen.kernel.branch import BranchState
from poimen.kernel.intent import (
    UNANSWERED,
    ErrorRecord,
    IntentCommitted,
    IntentEvent,
    IntentResolved,
    Payload,
    ReadDropped,
    RuleApplied,
)

# ---- the run and its branch ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAdmitted:
    """The run exists. `nonce` is random and goes into every request id."""

    workflow: str
    version: str
    code: str
    args: Payload
    args_digest: str
    nonce: str
    by: str
    on_indeterminate: Literal["wait", "raise"] = "wait"
    deadline_at: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchStarted:
    """A worker drives the branch for the first time. `boot`: names the boot that its boot times count from."""

    epoch: int
    worker: str
    code: str
    boot: str = ""


ResumedBecause: TypeAlias = Literal["recovered", "handed over", "woken"]
"""Why a branch is driven again: its driver died, or let go of it, or a wait is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchResumed:
    """A worker drives the branch again: after a crash, a lost lease, or a wait."""

    epoch: int
    worker: str
    code: str
    why: ResumedBecause
    boot: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One reason for a wait: who must act, about what, and what there is to know.

    `asked`: the call that the code made instead of the recorded one, written out with its arguments (agent text).
    `matter`: what an operator is asked for; records of old have none, and say it in `detail`.
    """

    reason: Literal["operator", "code", "budget", "human", "timer", "dependency"]
    about: str
    detail: str = ""
    asked: str = ""
    matter: Literal["", "unknown-effect", "crash-loop"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchWaiting:
    """Nothing can move by itself. `code` is the digest of the code that was running."""

    reasons: tuple[Waiting, ...]
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """Somebody wants the run to stop. Nothing new is dispatched from here on."""

    by: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelDelivered:
    """The driver has handed the cancellation to the workflow at this place of the order."""

    requested_lsn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequested:
    """An operator wants a waiting run to be tried again as it is."""

    by: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchVerifying:
    """The body has ended and every step is terminal; this record's LSN is the snapshot LSN."""

    value: Payload | None = None
    error: ErrorRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchEnded:
    """The branch is terminal. `unresolved` counts intents left Dispatched without an outcome."""

    state: Literal["SUCCEEDED", "FAILED", "REJECTED", "CANCELLED", "TIMED_OUT"]
    cause: str
    unresolved: int = 0


# ---- steps and attempts --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """Attempt `attempt` (from 1) of a step runs. `seq` is the step's place in the order of calls."""

    step: str
    attempt: int
    seq: int
    kind: Literal["tool", "model", "step"]
    name: str
    version: str
    args: Payload
    args_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResumed:
    """A live attempt goes on under another epoch: its code runs again."""

    step: str
    attempt: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSucceeded:
    """The attempt came back. Without `value`, the value is the outcome of its effect `ordinal`."""

    step: str
    attempt: int
    value: Payload | None = None
    ordinal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """The attempt raised. With `retry_at`, the next attempt is pending until then."""

    step: str
    attempt: int
    error: ErrorRecord
    retry_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTimedOut:
    """The attempt's deadline passed with nothing unresolved behind it."""

    step: str
    attempt: int
    error: ErrorRecord
    retry_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptIndeterminate:
    """The attempt ended with an effect unknown. `told`: the workflow was given IndeterminateOutcome.

    The calls of the effects in `running` were given up and go on: an ordinal for each call.
    """

    step: str
    attempt: int
    cause: Literal["left_unresolved", "cancel", "deadline"]
    unknown: tuple[int, ...]
    told: bool = False
    running: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCancelled:
    """The attempt was stopped by decision with nothing unresolved behind it."""

    step: str
    attempt: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepComputed:
    """An effect-free step that succeeded at once: its start and end in one record."""

    step: str
    seq: int
    kind: Literal["tool", "model", "step"]
    name: str
    version: str
    args: Payload
    args_digest: str
    value: Payload
    started_at: int


# ---- decisions, time, storage --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecorded:
    """A decision, durable before its maker goes on. `seq` is -1 inside a step."""

    id: str
    value: Payload
    value_digest: str
    step: str
    attempt: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSettled:
    """The decision is no longer owed. `rejected`: it was closed without being carried out."""

    id: str
    by: str
    why: str
    rejected: bool = False
    seq: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """The `n`-th timer (from 0) of the workflow (`step` empty) or of an attempt fired at this place of the order."""

    step: str
    attempt: int
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendSettled:
    """Records whose commit had failed were looked for at the next opening, and found or not."""

    record_ids: tuple[str, ...]
    found: bool


AttemptEvent: TypeAlias = (
    AttemptStarted
    | AttemptResumed
    | AttemptSucceeded
    | AttemptFailed
    | AttemptTimedOut
    | AttemptIndeterminate
    | AttemptCancelled
    | StepComputed
)
BranchEvent: TypeAlias = (
    RunAdmitted
    | BranchStarted
    | BranchResumed
    | BranchWaiting
    | CancelRequested
    | CancelDelivered
    | ResumeRequested
    | BranchVerifying
    | BranchEnded
)
OtherEvent: TypeAlias = DecisionRecorded | DecisionSettled | TimerFired | AppendSettled
Event: TypeAlias = IntentEvent | AttemptEvent | BranchEvent | OtherEvent

EVENTUAL: Final[frozenset[type]] = frozenset({AttemptStarted, AttemptSucceeded, AttemptFailed, StepComputed})
"""Events whose loss could not change what the world, another run, a waiter or a follower has seen.

Losing one only runs code again whose effects are inherited. Every other event is Immediate.
"""


def subject(event: Event) -> str:
    """What an event is about; an outsider's `expect` refers to it."""
    return SUBJECTS[type(event)](event)


def _intent(event: IntentEvent) -> str:
    return f"intent:{event.step}/{event.attempt}/{event.ordinal}"


def _step(event: AttemptEvent) -> str:
    return f"step:{event.step}"


def _decision(event: DecisionRecorded | DecisionSettled) -> str:
    return f"decision:{event.id}"


def _line(_: BranchEvent | TimerFired | AppendSettled) -> str:
    return "branch"


SUBJECTS: Final[Mapping[type, Callable[[Any], str]]] = {
    **dict.fromkeys(get_args(IntentEvent), _intent),
    **dict.fromkeys(get_args(AttemptEvent), _step),
    **dict.fromkeys(get_args(BranchEvent), _line),
    DecisionRecorded: _decision,
    DecisionSettled: _decision,
    TimerFired: _line,
    AppendSettled: _line,
}
"""By type of event, what says what it is about: one look, where asking for each type in turn is dear."""


TELLING: Final = (IntentCommitted, IntentResolved, ReadDropped, RuleApplied)
"""The records of a driver at which the code may be told how an effect has ended."""


def tells(event: IntentCommitted | IntentResolved | ReadDropped | RuleApplied) -> bool:
    """Whether a driver's record is the place at which an effect's end is handed over to the code.

    An effect that somebody else closed otherwise than as landed ends its attempt: the next one is told. A READ that
    was given up because of something else ends with its attempt: the next one asks anew.
    """
    if isinstance(event, ReadDropped):
        return event.why == "cancel" or event.why in UNANSWERED
    if not isinstance(event, RuleApplied):
        return True
    return event.rule == "called-off" or (event.rule == "closed-from-outside" and event.result == "landed")


ENTERED: Final[dict[type, BranchState]] = {
    BranchStarted: BranchState.RUNNING,
    BranchResumed: BranchState.RUNNING,
    BranchWaiting: BranchState.WAITING,
    BranchVerifying: BranchState.VERIFYING,
}
"""The state that a branch has entered with a record; with `BranchEnded` it is the one that it names."""


def state_after(events: Sequence[Event]) -> str | None:
    """The state of a branch after these records of one batch, for the run's row; None where they do not change it."""
    for event in reversed(events):
        if isinstance(event, BranchEnded):
            return event.state
        if (entered := ENTERED.get(type(event))) is not None:
            return entered.value
    return None
