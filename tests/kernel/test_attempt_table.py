"""The attempt table, written out by hand from the requirement: the accepted half and the refused half."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poimen.kernel import attempt
from poimen.kernel.attempt import (
    TERMINAL,
    Admitted,
    AttemptState,
    CancelRequested,
    Completed,
    Errored,
    LeftUnresolved,
    QueueDeadlinePassed,
    StepDeadlinePassed,
    transition,
)
from poimen.kernel.errors import IllegalTransition
from tests.kernel.pages import tables

STATES = ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "INDETERMINATE", "CANCELLED", "TIMED_OUT")

# All 7 x 7 pairs, from the requirement. Rows: from; columns: to, in the order of STATES. x is legal, - is not.
PAIRS = """
PENDING        - x - - - x x
RUNNING        - - x x x x x
SUCCEEDED      - - - - - - -
FAILED         - - - - - - -
INDETERMINATE  - - - - - - -
CANCELLED      - - - - - - -
TIMED_OUT      - - - - - - -
"""

# Every cause, with each value of what it carries.
CAUSES: dict[str, tuple[str, dict[str, bool]]] = {
    "admitted": ("Admitted", {}),
    "cancel, nothing dispatched": ("CancelRequested", {"intent_dispatched": False}),
    "cancel, dispatched": ("CancelRequested", {"intent_dispatched": True}),
    "queue deadline": ("QueueDeadlinePassed", {}),
    "completed": ("Completed", {}),
    "errored": ("Errored", {}),
    "step deadline, nothing dispatched": ("StepDeadlinePassed", {"intent_dispatched": False}),
    "step deadline, dispatched": ("StepDeadlinePassed", {"intent_dispatched": True}),
    "left unresolved": ("LeftUnresolved", {}),
}

# The arms. What is not here is refused: 7 x 9 - 10 = 53 of them.
ARMS = {
    ("PENDING", "admitted"): "RUNNING",
    ("PENDING", "cancel, nothing dispatched"): "CANCELLED",
    ("PENDING", "queue deadline"): "TIMED_OUT",
    ("RUNNING", "completed"): "SUCCEEDED",
    ("RUNNING", "errored"): "FAILED",
    ("RUNNING", "step deadline, nothing dispatched"): "TIMED_OUT",
    ("RUNNING", "step deadline, dispatched"): "INDETERMINATE",
    ("RUNNING", "cancel, nothing dispatched"): "CANCELLED",
    ("RUNNING", "cancel, dispatched"): "INDETERMINATE",
    ("RUNNING", "left unresolved"): "INDETERMINATE",
}


def legal_pairs() -> set[tuple[str, str]]:
    rows = [line.split() for line in PAIRS.strip().splitlines()]
    assert [row[0] for row in rows] == list(STATES)
    assert all(len(row) == 1 + len(STATES) for row in rows)
    return {(row[0], to) for row in rows for to, mark in zip(STATES, row[1:], strict=True) if mark == "x"}


def differences(module: Any) -> list[str]:
    """Where a module's `transition` is not the table; by name, so that a changed copy can be judged too."""
    found: list[str] = []
    reached: set[tuple[str, str]] = set()
    for name, (cause_name, (cls, fields)) in itertools.product(STATES, CAUSES.items()):
        cause = getattr(module, cls)(**fields)
        try:
            to = module.transition(module.AttemptState[name], cause).name
            reached.add((name, to))
        except module.IllegalTransition:
            to = None
        if to != ARMS.get((name, cause_name)):
            found.append(f"{name} on {cause_name}: {to} instead of {ARMS.get((name, cause_name))}")
    legal = legal_pairs()
    found.extend(
        f"{frm} to {to} is {'legal' if (frm, to) in reached else 'refused'}" for frm, to in sorted(reached ^ legal)
    )
    return found


def test_every_pair_and_every_cause_is_as_the_table_says():
    assert len(legal_pairs()) == 8
    assert differences(attempt) == []


def test_a_lenient_table_is_caught():
    """The control: tests that only look at what is allowed would pass a table that refuses nothing."""

    def lenient(state, cause):
        try:
            return attempt.transition(state, cause)
        except IllegalTransition:
            return state

    found = differences(SimpleNamespace(**(vars(attempt) | {"transition": lenient})))
    assert found
    assert [each for each in found if not each.endswith(("instead of None", "is legal"))] == []


def test_the_table_speaks_of_all_states_and_causes():
    assert [state.name for state in AttemptState] == list(STATES)
    assert {cls.__name__ for cls in get_args(attempt.Cause)} == {cls for cls, _ in CAUSES.values()}
    assert {state.name for state in TERMINAL} == {
        name for name in STATES if all((name, to) not in legal_pairs() for to in STATES)
    }


@pytest.mark.parametrize("name", ["SUCCEEDED", "FAILED", "INDETERMINATE", "CANCELLED", "TIMED_OUT"])
@pytest.mark.parametrize("cause", CAUSES)
def test_nothing_leaves_a_terminal_state(name, cause):
    cls, fields = CAUSES[cause]
    with pytest.raises(IllegalTransition, match=f"PO101 an attempt that is {name} cannot move") as refused:
        transition(AttemptState[name], getattr(attempt, cls)(**fields))
    assert "nothing leaves a terminal state" in str(refused.value)


def test_a_cancel_with_nothing_dispatched_is_cancelled():
    assert transition(AttemptState.RUNNING, CancelRequested(intent_dispatched=False)) is AttemptState.CANCELLED
    assert transition(AttemptState.PENDING, CancelRequested(intent_dispatched=False)) is AttemptState.CANCELLED


def test_a_cancel_over_a_dispatched_intent_is_indeterminate():
    assert transition(AttemptState.RUNNING, CancelRequested(intent_dispatched=True)) is AttemptState.INDETERMINATE


def test_a_cancel_over_a_dispatched_intent_cannot_meet_an_attempt_that_never_ran():
    with pytest.raises(IllegalTransition, match="has dispatched nothing"):
        transition(AttemptState.PENDING, CancelRequested(intent_dispatched=True))


def test_the_deciding_fact_has_no_default():
    for cls in (CancelRequested, StepDeadlinePassed):
        with pytest.raises(TypeError, match="intent_dispatched"):
            cls()  # type: ignore[call-arg]


def test_a_refusal_names_state_and_cause_and_says_how_to_go_on():
    cause = Completed()
    with pytest.raises(IllegalTransition) as refused:
        transition(AttemptState.PENDING, cause)
    assert refused.value.state is AttemptState.PENDING
    assert refused.value.cause is cause
    assert "docs/reference/states.md" in str(refused.value)


def test_something_that_is_no_cause_is_never_absorbed():
    for state in (AttemptState.PENDING, AttemptState.RUNNING):
        with pytest.raises(AssertionError):
            transition(state, "cancel")  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        transition("RUNNING", Completed())  # type: ignore[arg-type]


@given(st.lists(st.sampled_from(sorted(CAUSES)), max_size=12))
def test_any_walk_follows_the_table_and_ends_after_two_moves(names):
    state, moves = AttemptState.PENDING, 0
    for name in names:
        cls, fields = CAUSES[name]
        expected = ARMS.get((state.name, name))
        if expected is None:
            with pytest.raises(IllegalTransition):
                transition(state, getattr(attempt, cls)(**fields))
            continue
        state, moves = transition(state, getattr(attempt, cls)(**fields)), moves + 1
        assert state.name == expected
    assert moves <= 2
    assert moves < 2 or state in TERMINAL


def test_causes_are_values():
    assert Admitted() == Admitted()
    assert len({Errored(), Errored(), LeftUnresolved(), QueueDeadlinePassed()}) == 3
    with pytest.raises(AttributeError):
        CancelRequested(intent_dispatched=False).intent_dispatched = True  # type: ignore[misc]


def test_the_page_shows_the_states_and_the_moves():
    states = tables("states.md")["state", "terminal", "meaning"][0]
    assert [(name, terminal) for name, terminal, _ in states] == [
        (state.name, "yes" if state in TERMINAL else "no") for state in AttemptState
    ]
    words = {True: ", intent dispatched", False: ", nothing dispatched", None: ""}
    moves = {
        (name, cls + words[fields.get("intent_dispatched")], ARMS[name, cause])
        for name, (cause, (cls, fields)) in itertools.product(STATES, CAUSES.items())
        if (name, cause) in ARMS
    }
    shown = tables("states.md")["from", "cause", "to"][0]
    assert len(shown) == len(set(shown))
    assert set(shown) == moves
