"""What can become of one effect: its states, what the world answered, how an unknown is closed, and its records.

An intent moves `Pending -> Dispatched -> Committed`, always forward. An outcome belongs to one send;
a classification says what a crash left; a resolution closes an unknown. This module must never know
about bytes, LSNs or I/O; it keeps the invariant that *maybe* has no value of its own: it is the
absence of an outcome behind a Dispatched.

Source: requirement write-ahead-intent; design protocol.md, section 3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from poimen.kernel.effect_class import EffectClass, Terms
from poimen.kernel.resolution import Rule

_LONGEST_CALL: Final = 500
_LONGEST_VALUE: Final = 80

Json: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRef:
    """Names a body by its sha256 (64 hex digits). `size` is in bytes."""

    digest: str
    size: int
    media_type: str


Payload: TypeAlias = bytes | BlobRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecord:
    """What is kept of an exception: the class's name, its text, and its plain fields."""

    type: str
    message: str
    fields: Mapping[str, Json] = field(default_factory=dict)


# ---- what the world answered ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The call came back. `unstorable` says why its value could not be kept (the value is then `null`)."""

    value: Payload
    unstorable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedOutcome:
    """The far side said no: this send (or, with `all_sends`, every send so far) did nothing."""

    error: ErrorRecord
    all_sends: bool = False


NOT_CALLED: Final = "NotCalled"
"""The type in the record of a send whose body was never entered: it was called off, or the lease had run out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSentOutcome:
    """Refused before any byte left."""

    error: ErrorRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRead:
    """A READ raised; a read leaves nothing unknown behind."""

    error: ErrorRecord


Outcome: TypeAlias = Returned | RejectedOutcome | NotSentOutcome | FailedRead


class Classification(Enum):
    """What the last intent record says about an interrupted effect."""

    NEVER_SENT = "never_sent"
    MAY_HAVE_BEEN_SENT = "may_have_been_sent"


class Resolution(Enum):
    """How an unknown effect was closed."""

    LANDED = "landed"
    NOT_LANDED = "not_landed"
    ABANDONED = "abandoned"


# ---- the records of an intent ------------------------------------------------------------------------------

DemotedBy: TypeAlias = Literal[Rule, "stricter-now"]
"""By what an intent is judged by a stricter class: a rule of the ladder, or the present declaration."""

AppliedRule: TypeAlias = Literal[DemotedBy, "called-off", "closed-from-outside", "call-ended", "begins-late"]
"""What a `RuleApplied` can name: a rule of the ladder, or

- `stricter-now`: the present declaration is stricter than the stored one, in the same class;
- `called-off`: nothing was sent, and the code is told so here;
- `closed-from-outside`: an operator or a late outcome closed it, and the code is told so here if it has landed;
- `call-ended`: a call that was given up has ended, as unknown as before;
- `begins-late`: the time of a send counts from here.

They are in records, so a name never changes its meaning.
"""

DropReason: TypeAlias = Literal["cancel", "timeout", "sends-used-up", "interrupted", "held-back", "crash-loop"]
"""Why a READ is given up: it was called off; it did not answer in time; it may not be sent again; its body was stopped
from outside; another effect of its attempt is unknown; its process has died too often."""

UNANSWERED: Final[frozenset[DropReason]] = frozenset({"timeout", "sends-used-up", "interrupted"})
"""The reasons of the READ's own: its code is told that it did not answer. After any other the READ is asked anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfIntent:
    """What every record of an intent names: the step, the attempt (from 1), the effect in it (from 0)."""

    step: str
    attempt: int
    ordinal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentPending(OfIntent):
    """The claim to perform one effect, with everything recovery will need, frozen now.

    Without `args`, they are those of the step: a tool that is its own step keeps them there. `returns` is what the
    tool's result is annotated as, for an operator who must supply it. `summary` is what the tool's author says of the
    call; empty where nothing was written.
    """

    tool: str
    version: str
    terms: Terms
    args_digest: str
    request_id: str
    args: Payload | None = None
    class_source: str = "declared"
    generation: int = 0
    summary: str = ""
    decision: str = ""
    returns: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentDispatched(OfIntent):
    """From here on the call may have been sent. `send` counts from 1; `boot_us` is 0 where no rule needs it."""

    send: int
    boot_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentCommitted(OfIntent):
    """The outcome of a send, and with it the end of the intent."""

    send: int
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAnswered(OfIntent):
    """A send was answered while an earlier one is unknown: the intent stays open."""

    send: int
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentClassified(OfIntent):
    """What recovery found, written before anything is done about it."""

    classification: Classification
    send: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentProbed(OfIntent):
    """A probe was asked, beginning at `asked_at`, by the boot clock at `boot_us` (0: not known).

    `value` is there when it said landed.
    """

    answer: Literal["landed", "absent", "unknown"]
    evidence: str
    by: str
    asked_at: int
    value: Payload | None = None
    boot_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentDemoted(OfIntent):
    """The intent is judged by a stricter class from here on, whatever its Pending says."""

    frm: EffectClass
    to: EffectClass
    rule: DemotedBy
    inputs: Mapping[str, Json]


BEGINS_LATE: Final = "begins-late"
"""The rule of a record by which the time of a send counts from that record, not from its Dispatched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleApplied(OfIntent):
    """A choice of the ladder, or another turn of an effect that has a name: from which inputs, with which result."""

    rule: AppliedRule
    inputs: Mapping[str, Json]
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentResolved(OfIntent):
    """An unknown effect was closed, by rule, late outcome or person."""

    to: Resolution
    rule: str
    by: str
    why: str
    evidence: str = ""
    value: Payload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentClaimed(OfIntent):
    """A person says: I am looking at this one."""

    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LateOutcome(OfIntent):
    """An outcome that came after its attempt was given up or its worker fenced."""

    send: int
    epoch: int
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDropped(OfIntent):
    """A READ was given up; nothing is unknown behind it. `detail`: what interrupted it."""

    send: int
    why: DropReason
    detail: str = ""


IntentEvent: TypeAlias = (
    IntentPending
    | IntentDispatched
    | IntentCommitted
    | SendAnswered
    | IntentClassified
    | IntentProbed
    | IntentDemoted
    | RuleApplied
    | IntentResolved
    | IntentClaimed
    | LateOutcome
    | ReadDropped
)


def waited(event: object, boot_us: int) -> IntentDispatched | RuleApplied | None:
    """The record as it is written now, after it has stood in line; None when no field of it names a boot time."""
    if isinstance(event, IntentDispatched) and event.boot_us:
        return replace(event, boot_us=boot_us)
    if isinstance(event, RuleApplied) and event.rule == BEGINS_LATE and event.inputs.get("boot_us"):
        return replace(event, inputs={**event.inputs, "boot_us": boot_us})
    return None


def short(tool: str) -> str:
    """A call whose arguments are not shown: `pay(…)`."""
    return f"{tool}(…)"


def written(tool: str, args: object) -> str:
    """A call with its arguments, long ones cut: `pay(token="sk_live_123")`. Agent text: for those who ask for it.

    Arguments:
        tool: its name.
        args: its arguments by name, as stored JSON or decoded; anything else is not shown.
    """
    given: object = json.loads(args) if isinstance(args, bytes) else args
    if not isinstance(given, dict):
        return short(tool)
    return f"{tool}({', '.join(f'{name}={cut(value)}' for name, value in given.items())})"[:_LONGEST_CALL]


def cut(value: object) -> str:
    """A stored value as JSON, a long one cut in its middle."""
    text = json.dumps(json.loads(value) if isinstance(value, bytes) else value, ensure_ascii=False)
    half = _LONGEST_VALUE // 2
    return text if len(text) <= _LONGEST_VALUE else f"{text[:half]}...{text[-half:]}"


# ---- its sends and its state -------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class SendView:
    """One send of an intent; `outcome` is None while it is unknown; `boot`: its boot time and its boot, if recorded."""

    send: int
    lsn: int
    at: int
    outcome: Outcome | None = None
    boot: tuple[int, str] = (0, "")

    def begins_late(self, at: int, boot_us: Json) -> None:
        """Its time counts from another record than its own: microseconds by the wall clock and since the boot."""
        self.at, self.boot = at, (boot_us if isinstance(boot_us, int) else 0, self.boot[1])


class IntentState(Enum):
    """The three records around an effect. PENDING: never sent. DISPATCHED: may have been sent."""

    PENDING = "pending"
    DISPATCHED = "dispatched"
    COMMITTED = "committed"


def classify(state: IntentState) -> Classification | None:
    """What a restart says about an interrupted effect; None when its outcome is recorded.

    Source: requirement write-ahead-intent, "Restart classification".
    """
    match state:
        case IntentState.PENDING:
            return Classification.NEVER_SENT
        case IntentState.DISPATCHED:
            return Classification.MAY_HAVE_BEEN_SENT
        case IntentState.COMMITTED:
            return None


def no_of(outcome: Outcome) -> RejectedOutcome | NotSentOutcome | None:
    """The no that a call was given, if that is what it ended with; None too for one whose body never ran."""
    if isinstance(outcome, RejectedOutcome | NotSentOutcome) and outcome.error.type != NOT_CALLED:
        return outcome
    return None


def contradicts(late: Outcome, *, landed: bool, sends: int) -> bool:
    """Whether a late outcome says otherwise than what is known of a closed effect; a no speaks for its own send alone.

    Source: design protocol.md, section 3 ("against another resolution it is an alarm").
    """
    match late:
        case Returned():
            return not landed
        case RejectedOutcome():
            return landed and (late.all_sends or sends == 1)
        case NotSentOutcome():
            return landed and sends == 1
        case FailedRead():
            return False


def did_nothing(outcome: Outcome) -> bool:
    """Whether the outcome says that this send left no mark on the world."""
    match outcome:
        case Returned():
            return False
        case RejectedOutcome() | NotSentOutcome() | FailedRead():
            return True
