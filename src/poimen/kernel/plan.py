"""What to commit first, and what to do then: the intent protocol as plain data.

`plan(intent, command)` is asked at each turn of an effect; the gate obeys: it makes the records durable,
then acts. This module must never act; it keeps the invariant that no plan calls a tool without a
Dispatched to be committed first, and that an outcome which leaves an earlier send unknown closes nothing.

Source: requirement write-ahead-intent; design protocol.md, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from poimen.kernel.effect_class import EffectClass
from poimen.kernel.errors import violated
from poimen.kernel.intent import (
    FailedRead,
    IntentCommitted,
    IntentDispatched,
    IntentPending,
    IntentState,
    NotSentOutcome,
    Outcome,
    ReadDropped,
    RejectedOutcome,
    Returned,
    SendAnswered,
)

if TYPE_CHECKING:
    from poimen.kernel.intent import DropReason, IntentEvent
    from poimen.kernel.views import IntentView

# ---- what is wanted ------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Claim:
    """Make an effect that has no intent yet."""

    pending: IntentPending


@dataclass(slots=True, kw_only=True)
class Send:
    """Send it, unless it was called off. `called_off` says why nothing may be dispatched; empty: it may.

    `boot_us` is for the record of an effect whose rules count time.
    """

    called_off: str
    boot_us: int = 0


@dataclass(slots=True, kw_only=True)
class Answer:
    """Send number `send` has ended; without `outcome` nobody knows how.

    `why` and `detail` are for the record of a dropped READ.
    """

    send: int
    outcome: Outcome | None
    effect_class: EffectClass
    why: DropReason = "timeout"
    detail: str = ""


Command: TypeAlias = Claim | Send | Answer

# ---- what to do ----------------------------------------------------------------------------------------------


class Then(Enum):
    """What follows once the records are durable.

    SEND: ask for the next plan with `Send`. CALL: perform the call. CLIMB: ask the ladder. CLOSE: the outcome
    is recorded. DROP: a READ was given up. STOP: nothing was sent that is not answered. LEAVE: it may have
    been sent, and nothing more may be done.
    """

    SEND = "send"
    CALL = "call"
    CLIMB = "climb"
    CLOSE = "close"
    DROP = "drop"
    STOP = "stop"
    LEAVE = "leave"


@dataclass(slots=True, kw_only=True)
class Plan:
    """Records to make durable first, and what to do then."""

    commit: tuple[IntentEvent, ...]
    then: Then


def plan(intent: IntentView | None, command: Command) -> Plan:
    """The next turn of an effect.

    Arguments:
        intent: what is known of it; None only for `Claim`.
        command: what is wanted.

    Source: design protocol.md, section 3.
    """
    match command:
        case Claim():
            return Plan(commit=(command.pending,), then=Then.SEND)
        case Send():
            return _send(_known(intent), command)
        case Answer():
            return _answer(_known(intent), command)


def _send(intent: IntentView, command: Send) -> Plan:
    if intent.state is IntentState.COMMITTED:
        return Plan(commit=(), then=Then.CLIMB)  # somebody closed it since this was wanted: nothing is sent after that
    if command.called_off:
        return Plan(commit=(), then=Then.LEAVE if intent.open else Then.STOP)
    of, no = intent.pending, len(intent.sends) + 1
    dispatched = IntentDispatched(
        step=of.step, attempt=of.attempt, ordinal=of.ordinal, send=no, boot_us=command.boot_us
    )
    return Plan(commit=(dispatched,), then=Then.CALL)


def _answer(intent: IntentView, command: Answer) -> Plan:
    step, attempt, ordinal = intent.pending.step, intent.pending.attempt, intent.pending.ordinal
    outcome, send, why, detail = command.outcome, command.send, command.why, command.detail
    if outcome is None:
        if command.effect_class is EffectClass.READ:
            dropped = ReadDropped(step=step, attempt=attempt, ordinal=ordinal, send=send, why=why, detail=detail)
            return Plan(commit=(dropped,), then=Then.DROP)
        return Plan(commit=(), then=Then.CLIMB)
    if command.effect_class is not EffectClass.READ and (intent.landed or leaves_open(outcome, intent, send)):
        answered = SendAnswered(step=step, attempt=attempt, ordinal=ordinal, send=send, outcome=outcome)
        return Plan(commit=(answered,), then=Then.CLIMB)
    committed = IntentCommitted(step=step, attempt=attempt, ordinal=ordinal, send=send, outcome=outcome)
    return Plan(commit=(committed,), then=Then.CLOSE)


def leaves_open(outcome: Outcome, intent: IntentView, send: int) -> bool:
    """Whether an answer to send number `send` leaves the intent open, because an earlier send is unknown.

    Source: design protocol.md, section 3 ("`Rejected` and `NotSent` speak for one send").
    """
    earlier_unknown = any(s.outcome is None for s in intent.sends if s.send < send)
    match outcome:
        case Returned() | FailedRead():
            return False
        case RejectedOutcome():
            return earlier_unknown and not outcome.all_sends
        case NotSentOutcome():
            return earlier_unknown


def _known(intent: IntentView | None) -> IntentView:
    if intent is None:
        violated("an effect is claimed before it is sent")
    return intent
