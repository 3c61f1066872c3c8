"""The intent protocol as data: what is committed first, and what is done then. Written out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poimen.kernel.effect_class import EffectClass, Terms
from poimen.kernel.errors import InvariantViolated
from poimen.kernel.ids import BranchId, IntentId, RunId, StepKey
from poimen.kernel.intent import (
    ErrorRecord,
    FailedRead,
    IntentCommitted,
    IntentDispatched,
    IntentPending,
    IntentResolved,
    NotSentOutcome,
    Outcome,
    ReadDropped,
    RejectedOutcome,
    Resolution,
    Returned,
    SendAnswered,
    SendView,
)
from poimen.kernel.plan import Answer, Claim, Plan, Send, Then, plan
from poimen.kernel.views import IntentView

ERROR = ErrorRecord(type="E", message="e")
RETURNED = Returned(value=b"1")
REJECTED = RejectedOutcome(error=ERROR)
REJECTED_ALL = RejectedOutcome(error=ERROR, all_sends=True)
NOT_SENT = NotSentOutcome(error=ERROR)
FAILED = FailedRead(error=ERROR)

PENDING = IntentPending(
    step="pay#0",
    attempt=2,
    ordinal=3,
    tool="pay",
    version="",
    terms=Terms(
        effect_class=EffectClass.AT_MOST_ONCE,
        ttl_us=None,
        probe=None,
        probe_version=None,
        lag_us=0,
        timeout_us=1,
        grace_us=1,
        max_sends=3,
    ),
    class_source="declared",
    args=b"{}",
    args_digest="d",
    request_id="r",
    generation=0,
    summary="",
)


def intent(*sends: Outcome | None) -> IntentView:
    """An intent with these sends, each with its outcome or unknown."""
    return IntentView(
        id=IntentId(run=RunId("r"), branch=BranchId("main"), step=StepKey("pay#0"), attempt=2, ordinal=3),
        pending=PENDING,
        pending_lsn=1,
        last_lsn=1 + len(sends),
        sends=[SendView(send=n, lsn=1 + n, at=0, outcome=outcome) for n, outcome in enumerate(sends, 1)],
    )


def answer(send: int, outcome: Outcome | None, effect_class: EffectClass = EffectClass.AT_MOST_ONCE) -> Answer:
    return Answer(send=send, outcome=outcome, effect_class=effect_class, why="timeout")


def test_a_claim_commits_the_pending_and_nothing_else() -> None:
    assert plan(None, Claim(pending=PENDING)) == Plan(commit=(PENDING,), then=Then.SEND)


def test_a_call_follows_only_upon_a_dispatched_that_is_committed_first() -> None:
    for view, number in ((intent(), 1), (intent(None), 2), (intent(NOT_SENT, None), 3)):
        planned = plan(view, Send(called_off=""))
        dispatched = IntentDispatched(step="pay#0", attempt=2, ordinal=3, send=number)
        assert planned == Plan(commit=(dispatched,), then=Then.CALL)


def test_called_off_before_anything_left_is_a_stop_and_after_it_is_an_unknown() -> None:
    assert plan(intent(), Send(called_off="cancelled")) == Plan(commit=(), then=Then.STOP)
    assert plan(intent(None), Send(called_off="cancelled")) == Plan(commit=(), then=Then.LEAVE)


@pytest.mark.parametrize("outcome", [RETURNED, REJECTED, REJECTED_ALL, NOT_SENT, FAILED])
def test_the_answer_to_a_lone_send_closes_the_intent(outcome: Outcome) -> None:
    committed = IntentCommitted(step="pay#0", attempt=2, ordinal=3, send=1, outcome=outcome)
    assert plan(intent(None), answer(1, outcome)) == Plan(commit=(committed,), then=Then.CLOSE)


@pytest.mark.parametrize(
    ("outcome", "closes"),
    [(RETURNED, True), (FAILED, True), (REJECTED_ALL, True), (REJECTED, False), (NOT_SENT, False)],
)
def test_while_an_earlier_send_is_unknown_a_no_speaks_for_its_own_send_alone(outcome: Outcome, closes: bool) -> None:
    planned = plan(intent(None, None), answer(2, outcome))
    if closes:
        record: IntentCommitted | SendAnswered
        record = IntentCommitted(step="pay#0", attempt=2, ordinal=3, send=2, outcome=outcome)
        assert planned == Plan(commit=(record,), then=Then.CLOSE)
    else:
        record = SendAnswered(step="pay#0", attempt=2, ordinal=3, send=2, outcome=outcome)
        assert planned == Plan(commit=(record,), then=Then.CLIMB)


def test_once_every_earlier_send_is_answered_a_no_closes() -> None:
    assert plan(intent(NOT_SENT, None), answer(2, REJECTED)).then is Then.CLOSE


def test_nothing_closes_again_what_a_late_outcome_of_another_send_says_has_landed() -> None:
    landed = IntentResolved(
        step="pay#0", attempt=2, ordinal=3, to=Resolution.LANDED, rule="late_outcome", by="late", why="", value=b"1"
    )
    known = replace(intent(RETURNED, None), resolution=landed)
    answered = SendAnswered(step="pay#0", attempt=2, ordinal=3, send=2, outcome=REJECTED)
    assert plan(known, answer(2, REJECTED)) == Plan(commit=(answered,), then=Then.CLIMB)
    assert plan(known, answer(2, RETURNED)).then is Then.CLIMB


def test_maybe_commits_nothing_and_climbs_but_a_read_is_dropped() -> None:
    assert plan(intent(None), answer(1, None)) == Plan(commit=(), then=Then.CLIMB)
    dropped = ReadDropped(step="pay#0", attempt=2, ordinal=3, send=1, why="timeout")
    assert plan(intent(None), answer(1, None, EffectClass.READ)) == Plan(commit=(dropped,), then=Then.DROP)


@pytest.mark.parametrize("command", [Send(called_off=""), answer(1, RETURNED)])
def test_an_effect_is_claimed_before_it_is_sent(command: Send | Answer) -> None:
    with pytest.raises(InvariantViolated):
        plan(None, command)
