"""The judge of a sweep: a good row passes, every row with one wrong cell is a sentence, and silence is a fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poimen.testing import EVERY_POINT, Trial, disagreements

LEFT = {"pending": "pending", "committed": "committed"}
SAID = {"pending": ("never_sent",), "committed": ()}
BEFORE = {"called": 1, "committed": 1}


def good(effect_class: str, point: str) -> Trial:
    """What a sound poimen leaves, by the table in the requirement."""
    before = BEFORE.get(point, 0)
    after, sends, state = 1, 1, "SUCCEEDED"
    if point in {"dispatched", "in_call", "called"}:
        if effect_class == "AT_MOST_ONCE":
            after, state = before, "WAITING"
        elif effect_class == "PROBE":
            sends = 2 - before
        else:
            after, sends = before + 1, 2
    return Trial(
        tool="charge",
        effect_class=effect_class,
        point=point,
        n=0,
        killed=True,
        left=LEFT.get(point, "dispatched"),
        before=before,
        after=after,
        classified=SAID.get(point, ("may_have_been_sent",)),
        choices=(),
        sends=sends,
        state=state,
        in_inbox=state == "WAITING",
        folder=Path("trial"),
    )


ROWS = [
    good(effect_class, point)
    for effect_class in ("READ", "IDEMPOTENT", "KEYED", "PROBE", "AT_MOST_ONCE")
    for point in EVERY_POINT
]
WRONG: dict[str, Any] = {
    "killed": False,
    "left": "",
    "before": 7,
    "after": 7,
    "classified": ("may_have_been_sent", "never_sent"),
    "sends": 7,
    "state": "RUNNING",
    "effect_class": "",
}


def test_what_is_right_is_passed() -> None:
    for effect_class in {row.effect_class for row in ROWS}:
        assert disagreements([row for row in ROWS if row.effect_class == effect_class]) == []


@pytest.mark.parametrize("cell", WRONG)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.effect_class}-{row.point}")
def test_one_wrong_cell_is_one_sentence_that_names_the_trial(row: Trial, cell: str) -> None:
    found = disagreements([replace(row, **{cell: WRONG[cell]})])
    assert len(found) == 1
    assert f"killed at {row.point}, trial 0" in found[0]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.effect_class}-{row.point}")
def test_a_wrong_inbox_is_seen(row: Trial) -> None:
    assert any("inbox" in what for what in disagreements([replace(row, in_inbox=not row.in_inbox)]))


def test_nothing_shown_is_a_fault() -> None:
    assert disagreements([]) == ["there are no trials, so nothing was shown"]


def test_windows_that_cannot_be_told_apart_are_named() -> None:
    rows = [replace(good("KEYED", point), classified=("never_sent",)) for point in ("pending", "called")]
    assert "charge: windows A and B are classified alike, as ['never_sent']" in disagreements(rows)


def test_an_effect_that_was_judged_by_a_stricter_class_ends_as_that_class_says() -> None:
    expired = replace(
        good("KEYED", "called"),
        choices=("AT_MOST_ONCE", "indeterminate"),
        after=1,
        sends=1,
        state="WAITING",
        in_inbox=True,
    )
    assert disagreements([expired]) == []
    assert disagreements([replace(expired, after=2)]) != []


@pytest.mark.parametrize("effect_class", ["READ", "IDEMPOTENT", "KEYED"])
def test_a_far_side_that_dedupes_may_hold_one(effect_class: str) -> None:
    row = replace(good(effect_class, "called"), after=1)
    assert disagreements([row]) == []
    assert disagreements([replace(row, after=0)]) != []
    assert disagreements([replace(good(effect_class, "dispatched"), after=0)]) != []


def test_how_the_second_process_ended_is_told_with_the_state() -> None:
    row = replace(good("READ", "pending"), state="FAILED", why="raised: ValueError: no")
    assert "ValueError: no" in disagreements([row])[0]
