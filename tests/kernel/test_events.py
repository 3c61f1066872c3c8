"""The union of events is closed, and so is each table that is looked up by a type of event."""

from __future__ import annotations

from typing import get_args

import pytest

from poimen.kernel import events
from poimen.kernel.intent import IntentClaimed

EVENTS = get_args(events.Event)


def test_the_table_of_subjects_has_every_event_and_no_other() -> None:
    assert len(EVENTS) > 30
    assert set(events.SUBJECTS) == set(EVENTS)


@pytest.mark.parametrize(
    ("event", "subject"),
    [
        (IntentClaimed(step="a#0", attempt=2, ordinal=1, by="me"), "intent:a#0/2/1"),
        (events.AttemptResumed(step="a#0", attempt=2, epoch=1), "step:a#0"),
        (events.AttemptCancelled(step="a#0", attempt=2, why=""), "step:a#0"),
        (events.DecisionSettled(id="d", by="me", why=""), "decision:d"),
        (events.CancelRequested(by="me", why=""), "branch"),
        (events.TimerFired(step="a#0", attempt=2, n=1), "branch"),
        (events.AppendSettled(record_ids=(), found=True), "branch"),
    ],
)
def test_what_a_record_is_about(event: events.Event, subject: str) -> None:
    assert events.subject(event) == subject


PAST: dict[events.Event, str | None] = {
    events.BranchStarted(epoch=1, worker="w", code="c"): "RUNNING",
    events.BranchResumed(epoch=1, worker="w", code="c", why="recovered"): "RUNNING",
    events.BranchWaiting(reasons=(), code="c"): "WAITING",
    events.BranchVerifying(): "VERIFYING",
    events.BranchEnded(state="FAILED", cause="", unresolved=0): "FAILED",
    events.CancelDelivered(requested_lsn=1): None,
}


@pytest.mark.parametrize("event", PAST, ids=lambda event: type(event).__name__)
def test_what_a_batch_makes_of_the_runs_row(event: events.Event) -> None:
    other = events.TimerFired(step="", attempt=0, n=0)
    assert events.state_after([event, other]) == PAST[event]
    assert events.state_after([events.BranchVerifying(), event]) == (PAST[event] or "VERIFYING")


def test_each_state_that_a_branch_enters_goes_into_the_runs_row() -> None:
    kept = {events.RunAdmitted, events.CancelRequested, events.CancelDelivered, events.ResumeRequested}
    assert set(events.ENTERED) | {events.BranchEnded} == set(get_args(events.BranchEvent)) - kept
    assert events.state_after([]) is None
