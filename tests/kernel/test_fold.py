"""The fold refuses records that break an invariant, and says what records say and nothing more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest

from poimen.kernel.attempt import AttemptState
from poimen.kernel.errors import IllegalTransition, InvariantViolated
from poimen.kernel.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptIndeterminate,
    AttemptResumed,
    AttemptStarted,
    AttemptSucceeded,
    BranchEnded,
    BranchResumed,
    BranchStarted,
    BranchVerifying,
    CancelRequested,
    DecisionRecorded,
    DecisionSettled,
    RunAdmitted,
    TimerFired,
)
from poimen.kernel.fold import fold
from poimen.kernel.intent import (
    IntentCommitted,
    IntentDispatched,
    IntentResolved,
    IntentState,
    LateOutcome,
    NotSentOutcome,
    Resolution,
    Returned,
)
from poimen.kernel.views import newest_branch
from tests.kernel.test_plan import ERROR, PENDING, REJECTED, RETURNED

if TYPE_CHECKING:
    from poimen.kernel.events import Event, ResumedBecause
    from poimen.kernel.intent import Outcome
    from poimen.kernel.views import RunView

ADMITTED = RunAdmitted(workflow="w", version="", code="", args=b"{}", args_digest="", nonce="n", by="me")
STARTED = BranchStarted(epoch=1, worker="w", code="")


def step(key: str = "pay#0", attempt: int = 1, kind: Literal["tool", "step"] = "tool") -> AttemptStarted:
    return AttemptStarted(
        step=key, attempt=attempt, seq=0, kind=kind, name="pay", version="", args=b"{}", args_digest="d"
    )


def pending(attempt: int = 1, ordinal: int = 0, request: str = "r", digest: str = "d") -> Event:
    return replace(PENDING, attempt=attempt, ordinal=ordinal, request_id=request, args_digest=digest)


def dispatched(send: int = 1, attempt: int = 1, ordinal: int = 0) -> Event:
    return IntentDispatched(step="pay#0", attempt=attempt, ordinal=ordinal, send=send)


def committed(
    send: int = 1, outcome: Returned | NotSentOutcome = RETURNED, attempt: int = 1, ordinal: int = 0
) -> Event:
    return IntentCommitted(step="pay#0", attempt=attempt, ordinal=ordinal, send=send, outcome=outcome)


def resolved(to: Resolution, attempt: int = 1, ordinal: int = 0) -> Event:
    value = b'"found"' if to is Resolution.LANDED else None
    return IntentResolved(
        step="pay#0", attempt=attempt, ordinal=ordinal, to=to, rule="operator", by="me", why="saw it", value=value
    )


def seen(*events: Event, outsiders: frozenset[int] = frozenset()) -> RunView:
    """Fold events as the records 1..n, all by the driver but those named."""
    return fold("r", [(n, n * 10, "main", e, 0 if n in outsiders else 1) for n, e in enumerate(events, 1)])


@pytest.mark.parametrize("branch", ["main", "other"])
def test_a_run_is_admitted_once(branch: str) -> None:
    with pytest.raises(InvariantViolated, match="admitted by its first record"):
        fold("r", [(1, 1, "main", ADMITTED, 0), (2, 2, branch, ADMITTED, 0)])


def test_a_record_belongs_to_a_branch_that_exists() -> None:
    with pytest.raises(InvariantViolated, match="a branch that exists"):
        fold("r", [(1, 1, "main", ADMITTED, 0), (2, 2, "other", STARTED, 1)])


def test_lsns_have_no_gap() -> None:
    with pytest.raises(InvariantViolated):
        fold("r", [(1, 0, "main", ADMITTED, 0), (3, 0, "main", STARTED, 1)])


def test_a_run_begins_with_its_admission_and_has_one() -> None:
    with pytest.raises(InvariantViolated):
        fold("r", [(1, 0, "main", STARTED, 1)])
    with pytest.raises(InvariantViolated):
        seen(ADMITTED, ADMITTED)


def test_the_three_records_move_the_intent() -> None:
    states = []
    events: list[Event] = [ADMITTED, STARTED, step(), pending(), dispatched(), committed()]
    for n in range(4, 7):
        states.append(seen(*events[:n]).branches["main"].steps["pay#0"].last.intents[0].state)
    assert states == [IntentState.PENDING, IntentState.DISPATCHED, IntentState.COMMITTED]


def test_there_is_one_outcome_and_nothing_is_sent_after_it() -> None:
    closed = (ADMITTED, STARTED, step(), pending(), dispatched(), committed())
    with pytest.raises(InvariantViolated):
        seen(*closed, committed())
    with pytest.raises(InvariantViolated):
        seen(*closed, dispatched(send=2))


def test_sends_are_numbered_without_a_gap() -> None:
    with pytest.raises(InvariantViolated):
        seen(ADMITTED, STARTED, step(), pending(), dispatched(send=2))


def test_one_request_id_is_one_args_digest_from_its_first_dispatched() -> None:
    first = (ADMITTED, STARTED, step(), pending())
    failed = AttemptFailed(step="pay#0", attempt=1, error=ERROR, retry_at=1)
    again = (step(attempt=2), pending(attempt=2, digest="other"))
    seen(*first, failed, *again)  # never sent: a Pending binds nothing
    with pytest.raises(InvariantViolated):
        seen(*first, dispatched(), committed(outcome=NotSentOutcome(error=ERROR)), failed, *again)


def test_nothing_leaves_a_terminal_state() -> None:
    over = (ADMITTED, STARTED, step(), AttemptSucceeded(step="pay#0", attempt=1, value=b"1"))
    with pytest.raises(IllegalTransition):
        seen(*over, AttemptFailed(step="pay#0", attempt=1, error=ERROR))
    ended = (*over, BranchVerifying(value=b"1", error=None), BranchEnded(state="SUCCEEDED", cause=""))
    with pytest.raises(IllegalTransition):
        seen(*ended, BranchEnded(state="FAILED", cause=""))


def test_an_attempt_with_an_open_dispatched_is_never_cancelled() -> None:
    open_effect = (ADMITTED, STARTED, step(), pending(), dispatched())
    with pytest.raises(InvariantViolated):
        seen(*open_effect, AttemptCancelled(step="pay#0", attempt=1, why="x"))
    unknown = AttemptIndeterminate(step="pay#0", attempt=1, cause="cancel", unknown=(0,))
    view = seen(*open_effect, unknown)
    assert newest_branch(view).steps["pay#0"].last.state is AttemptState.INDETERMINATE
    assert [str(i.id) for i in newest_branch(view).unresolved()] == ["r/main/pay#0/1/0"]


def test_a_late_outcome_resolves_an_open_intent_and_only_that() -> None:
    late = LateOutcome(step="pay#0", attempt=1, ordinal=0, send=1, epoch=1, outcome=RETURNED)
    view = seen(ADMITTED, STARTED, step(), pending(), dispatched(), late, outsiders=frozenset({6}))
    intent = newest_branch(view).steps["pay#0"].last.intents[0]
    assert intent.landed
    assert intent.value == b"1"
    assert intent.resolution is not None
    assert intent.resolution.by == "late"
    closed = seen(ADMITTED, STARTED, step(), pending(), dispatched(), resolved(Resolution.NOT_LANDED), late)
    kept = newest_branch(closed).steps["pay#0"].last.intents[0]
    assert not kept.landed
    assert kept.late == (RETURNED,)


def flow(*effects: Event) -> RunView:
    """A step whose first attempt made these effects and failed, and whose second one begins."""
    failed = AttemptFailed(step="pay#0", attempt=1, error=ERROR, retry_at=1)
    return seen(ADMITTED, STARTED, step(kind="step"), *effects, failed, step(attempt=2, kind="step"))


def effect(ordinal: int, outcome: Returned | NotSentOutcome | None) -> tuple[Event, ...]:
    ids = pending(ordinal=ordinal, request=f"r{ordinal}")
    if outcome is None:
        return (ids,)
    return (ids, dispatched(ordinal=ordinal), committed(ordinal=ordinal, outcome=outcome))


def test_a_new_attempt_inherits_up_to_the_last_effect_that_returned() -> None:
    nothing = NotSentOutcome(error=ERROR)
    view = flow(*effect(0, RETURNED), *effect(1, nothing), *effect(2, RETURNED), *effect(3, nothing), *effect(4, None))
    inherited = newest_branch(view).steps["pay#0"].inherited(2)
    assert sorted(inherited) == [0, 1, 2]
    assert inherited[1].outcome == nothing


def test_what_did_nothing_binds_nothing() -> None:
    assert newest_branch(flow(*effect(0, NotSentOutcome(error=ERROR)))).steps["pay#0"].inherited(2) == {}
    rejected = (pending(), dispatched(), IntentCommitted(step="pay#0", attempt=1, ordinal=0, send=1, outcome=REJECTED))
    assert newest_branch(flow(*rejected)).steps["pay#0"].inherited(2) == {}


@pytest.mark.parametrize(
    ("to", "inherited"), [(Resolution.LANDED, [0]), (Resolution.ABANDONED, [0]), (Resolution.NOT_LANDED, [])]
)
def test_after_a_resolution_landed_is_replayed_not_landed_is_sent_anew(to: Resolution, inherited: list[int]) -> None:
    unknown = AttemptIndeterminate(step="pay#0", attempt=1, cause="left_unresolved", unknown=(0,))
    view = seen(ADMITTED, STARTED, step(), pending(), dispatched(), unknown, resolved(to), step(attempt=2))
    assert sorted(newest_branch(view).steps["pay#0"].inherited(2)) == inherited


def test_a_late_no_binds_the_attempt_that_it_is_told_to_and_no_further_one() -> None:
    unknown = AttemptIndeterminate(step="pay#0", attempt=1, cause="left_unresolved", unknown=(0,))
    said_no = LateOutcome(step="pay#0", attempt=1, ordinal=0, send=1, epoch=1, outcome=REJECTED)
    failed = AttemptFailed(step="pay#0", attempt=2, error=ERROR, retry_at=1)
    told = (step(kind="step"), pending(), dispatched(), unknown, said_no, step(attempt=2, kind="step"))
    asked_anew = newest_branch(seen(ADMITTED, STARTED, *told, failed, step(attempt=3, kind="step"))).steps["pay#0"]
    assert (sorted(asked_anew.inherited(2)), sorted(asked_anew.inherited(3))) == ([0], [])
    beside = (step(kind="step"), pending(), dispatched(), *effect(1, NotSentOutcome(error=ERROR)), unknown, said_no)
    one_try = newest_branch(seen(ADMITTED, STARTED, *beside, step(attempt=2, kind="step"))).steps["pay#0"]
    assert sorted(one_try.inherited(2)) == [0, 1]
    later = (pending(2, 1, "r1"), dispatched(attempt=2, ordinal=1), committed(attempt=2, ordinal=1))
    bound = newest_branch(seen(ADMITTED, STARTED, *told, *later, failed, step(attempt=3, kind="step"))).steps["pay#0"]
    assert sorted(bound.inherited(3)) == [0, 1]
    assert bound.inherited_order(3) == [("effect", 0), ("effect", 1)]
    alone = seen(ADMITTED, STARTED, step(), pending(), dispatched(), unknown, said_no, step(attempt=2))
    assert newest_branch(alone).steps["pay#0"].inherited(2) == {}, (
        "a tool that is its own step is tried again, or fails"
    )


def test_a_decision_binds_every_later_attempt_to_what_it_was_taken_from() -> None:
    """The model's answer, a READ, before it; nothing behind it."""
    decided = DecisionRecorded(id="d", value=b"1", value_digest="x", step="pay#0", attempt=1, seq=-1)
    nothing = NotSentOutcome(error=ERROR)
    fired = TimerFired(n=0, step="pay#0", attempt=1)
    view = flow(*effect(0, nothing), *effect(1, nothing), fired, decided, *effect(2, nothing))
    pay = newest_branch(view).steps["pay#0"]
    assert sorted(pay.inherited(2)) == [0, 1]
    assert pay.inherited_order(2) == [("effect", 0), ("effect", 1), ("timer", 0)]
    undecided = flow(*effect(0, nothing), *effect(1, nothing))
    assert newest_branch(undecided).steps["pay#0"].inherited(2) == {}
    failed = AttemptFailed(step="pay#0", attempt=2, error=ERROR, retry_at=1)
    once = (*effect(0, nothing), decided, AttemptFailed(step="pay#0", attempt=1, error=ERROR, retry_at=1))
    twice = (step(attempt=2, kind="step"), failed, step(attempt=3, kind="step"))
    third = seen(ADMITTED, STARTED, step(kind="step"), *once, *twice)
    assert sorted(newest_branch(third).steps["pay#0"].inherited(3)) == [0]


def test_a_decision_is_owed_until_it_is_settled_or_carried_out() -> None:
    decided = DecisionRecorded(id="d", value=b"1", value_digest="x", step="", attempt=0, seq=0)
    assert newest_branch(seen(ADMITTED, STARTED, decided)).decisions["d"].owed
    settled = DecisionSettled(id="d", by="me", why="")
    assert not newest_branch(seen(ADMITTED, STARTED, decided, settled)).decisions["d"].owed
    carried = replace(PENDING, attempt=1, ordinal=0, decision="d")
    view = seen(ADMITTED, STARTED, decided, step(), carried, dispatched(), committed())
    assert newest_branch(view).decisions["d"].settled == "carried out"
    nothing = seen(
        ADMITTED, STARTED, decided, step(), carried, dispatched(), committed(outcome=NotSentOutcome(error=ERROR))
    )
    assert newest_branch(nothing).decisions["d"].owed, "an effect that was not sent carries nothing out"


def test_outsiders_are_told_apart_and_the_first_cancel_counts() -> None:
    view = seen(
        ADMITTED,
        STARTED,
        CancelRequested(by="a", why="first"),
        CancelRequested(by="b", why="second"),
        outsiders=frozenset({1, 3, 4}),
    )
    assert view.outsider_lsn == 4
    assert (newest_branch(view).cancel_lsn, newest_branch(view).cancel_by) == (3, "a")


@pytest.mark.parametrize(("why", "counts"), [("recovered", True), ("handed over", False), ("woken", False)])
def test_only_a_resumption_after_a_crash_counts_towards_a_crash_loop(why: ResumedBecause, counts: bool) -> None:
    """A run that its worker let go of while the log was locked, or that was woken, has not crashed."""
    again: list[Event] = []
    for epoch in range(2, 9):
        again += [
            BranchResumed(epoch=epoch, worker="w", code="", why=why),
            AttemptResumed(step="pay#0", attempt=1, epoch=epoch),
        ]
    line = newest_branch(seen(ADMITTED, STARTED, step(), *again))
    assert (line.steps["pay#0"].last.resumes, line.resumes) == ((7, 7) if counts else (0, 0))


@pytest.mark.parametrize(
    ("to", "late", "sends", "alarm"),
    [
        (Resolution.NOT_LANDED, RETURNED, 1, True),
        (Resolution.ABANDONED, RETURNED, 1, True),
        (Resolution.LANDED, RETURNED, 1, False),
        (Resolution.LANDED, REJECTED, 1, True),
        (Resolution.LANDED, NotSentOutcome(error=ERROR), 1, True),
        (Resolution.LANDED, REJECTED, 2, False),
        (Resolution.LANDED, replace(REJECTED, all_sends=True), 2, True),
        (Resolution.NOT_LANDED, REJECTED, 1, False),
        (Resolution.ABANDONED, REJECTED, 1, False),
        (None, RETURNED, 1, False),
        (None, REJECTED, 1, False),
    ],
)
def test_a_late_outcome_that_contradicts_what_was_said_is_an_alarm(
    to: Resolution | None, late: Outcome, sends: int, alarm: bool
) -> None:
    dispatched = [IntentDispatched(step="pay#0", attempt=1, ordinal=0, send=n) for n in range(1, sends + 1)]
    said = [resolved(to)] if to is not None else []
    came = LateOutcome(step="pay#0", attempt=1, ordinal=0, send=1, epoch=1, outcome=late)
    view = seen(ADMITTED, STARTED, step(), pending(), *dispatched, *said, came)
    assert newest_branch(view).steps["pay#0"].last.intents[0].contradicted is alarm
