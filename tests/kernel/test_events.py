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
