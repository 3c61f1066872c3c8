"""The branch table and the reasons of a wait, written out by hand from the design."""

from __future__ import annotations

import itertools
import shlex
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poimen.kernel import branch
from poimen.kernel.branch import (
    BRANCH_TERMINAL,
    BranchState,
    Ended,
    OperatorMatter,
    Parked,
    Rewound,
    Started,
    WaitReason,
    branch_transition,
    command,
    ending,
    moves_by_itself,
    shown,
)
from poimen.kernel.errors import IllegalTransition
from poimen.log.api import TERMINAL_STATES
from tests.kernel.pages import tables

STATES = (
    "PENDING",
    "RUNNING",
    "WAITING",
    "VERIFYING",
    "SUCCEEDED",
    "FAILED",
    "REJECTED",
    "CANCELLED",
    "TIMED_OUT",
)

# All 9 x 9 pairs. Rows: from; columns: to, in the order of STATES. x is legal, - is not.
PAIRS = """
PENDING    - x - - - - - x x
RUNNING    - - x x - - - x x
WAITING    - x - - - - - x x
VERIFYING  - - - - x x x x -
SUCCEEDED  - - - - - - - - -
FAILED     - - - - - - - - -
REJECTED   - - - - - - - - -
CANCELLED  - - - - - - - - -
TIMED_OUT  - - - - - - - - -
"""

# Every cause; Ended with every state that it could name.
CAUSES = (
    "Started",
    "Parked",
    "Woken",
    "BodyEnded",
    "Rewound",
    "Ended as PENDING",
    "Ended as RUNNING",
    "Ended as WAITING",
    "Ended as VERIFYING",
    "Ended as SUCCEEDED",
    "Ended as FAILED",
    "Ended as REJECTED",
    "Ended as CANCELLED",
    "Ended as TIMED_OUT",
)

# The arms. What is not here is refused: 9 x 14 - 18 = 108 of them.
ARMS = {
    ("PENDING", "Started"): "RUNNING",
    ("PENDING", "Ended as CANCELLED"): "CANCELLED",
    ("PENDING", "Ended as TIMED_OUT"): "TIMED_OUT",
    ("PENDING", "Rewound"): "CANCELLED",
    ("RUNNING", "Parked"): "WAITING",
    ("RUNNING", "BodyEnded"): "VERIFYING",
    ("RUNNING", "Ended as CANCELLED"): "CANCELLED",
    ("RUNNING", "Ended as TIMED_OUT"): "TIMED_OUT",
    ("RUNNING", "Rewound"): "CANCELLED",
    ("WAITING", "Woken"): "RUNNING",
    ("WAITING", "Ended as CANCELLED"): "CANCELLED",
    ("WAITING", "Ended as TIMED_OUT"): "TIMED_OUT",
    ("WAITING", "Rewound"): "CANCELLED",
    ("VERIFYING", "Ended as SUCCEEDED"): "SUCCEEDED",
    ("VERIFYING", "Ended as FAILED"): "FAILED",
    ("VERIFYING", "Ended as REJECTED"): "REJECTED",
    ("VERIFYING", "Ended as CANCELLED"): "CANCELLED",
    ("VERIFYING", "Rewound"): "CANCELLED",
}


def legal_pairs() -> set[tuple[str, str]]:
    rows = [line.split() for line in PAIRS.strip().splitlines()]
    assert [row[0] for row in rows] == list(STATES)
    assert all(len(row) == 1 + len(STATES) for row in rows)
    return {(row[0], to) for row in rows for to, mark in zip(STATES, row[1:], strict=True) if mark == "x"}


def a_cause(module: Any, name: str) -> Any:
    cls, _, to = name.partition(" as ")
    return getattr(module, cls)(to=module.BranchState[to]) if to else getattr(module, cls)()


def differences(module: Any) -> list[str]:
    """Where a module's `branch_transition` is not the table; by name, so that a changed copy can be judged too."""
    found: list[str] = []
    reached: set[tuple[str, str]] = set()
    for name, cause in itertools.product(STATES, CAUSES):
        try:
            to = module.branch_transition(module.BranchState[name], a_cause(module, cause)).name
            reached.add((name, to))
        except module.IllegalTransition:
            to = None
        if to != ARMS.get((name, cause)):
            found.append(f"{name} on {cause}: {to} instead of {ARMS.get((name, cause))}")
    legal = legal_pairs()
    found.extend(
        f"{frm} to {to} is {'legal' if (frm, to) in reached else 'refused'}" for frm, to in sorted(reached ^ legal)
    )
    return found


def test_every_pair_and_every_cause_is_as_the_table_says():
    assert len(legal_pairs()) == 14
    assert differences(branch) == []


def test_a_lenient_table_is_caught():
    """The control: tests that only look at what is allowed would pass a table that refuses nothing."""

    def lenient(state, cause):
        try:
            return branch.branch_transition(state, cause)
        except IllegalTransition:
            return state

    found = differences(SimpleNamespace(**(vars(branch) | {"branch_transition": lenient})))
    assert found
    assert [each for each in found if not each.endswith(("instead of None", "is legal"))] == []


def test_the_table_speaks_of_all_states_and_causes():
    assert [state.name for state in BranchState] == list(STATES)
    assert {cls.__name__ for cls in get_args(branch.BranchCause)} == {name.partition(" as ")[0] for name in CAUSES}
    terminal = {name for name in STATES if all((name, to) not in legal_pairs() for to in STATES)}
    assert {state.name for state in BRANCH_TERMINAL} == terminal
    assert {state.value for state in BRANCH_TERMINAL} == TERMINAL_STATES, "the log scans by these"


@pytest.mark.parametrize("name", ["SUCCEEDED", "FAILED", "REJECTED", "CANCELLED", "TIMED_OUT"])
@pytest.mark.parametrize("cause", CAUSES)
def test_nothing_leaves_a_terminal_state(name, cause):
    with pytest.raises(IllegalTransition, match=f"PO101 a branch that is {name} cannot move") as refused:
        branch_transition(BranchState[name], a_cause(branch, cause))
    assert "nothing leaves a terminal state" in str(refused.value)


def test_a_branch_left_by_a_rewind_is_cancelled_from_every_live_state():
    for state in BranchState:
        if state not in BRANCH_TERMINAL:
            assert branch_transition(state, Rewound()) is BranchState.CANCELLED


def test_verifying_has_no_deadline_and_a_result_is_given_only_there():
    with pytest.raises(IllegalTransition, match="ended in time"):
        branch_transition(BranchState.VERIFYING, Ended(to=BranchState.TIMED_OUT))
    for state in (BranchState.PENDING, BranchState.RUNNING, BranchState.WAITING):
        for to in (BranchState.SUCCEEDED, BranchState.FAILED, BranchState.REJECTED):
            with pytest.raises(IllegalTransition, match="only given from VERIFYING"):
                branch_transition(state, Ended(to=to))


def test_a_refusal_names_state_and_cause_and_says_how_to_go_on():
    cause = Parked()
    with pytest.raises(IllegalTransition) as refused:
        branch_transition(BranchState.PENDING, cause)
    assert refused.value.state is BranchState.PENDING
    assert refused.value.cause is cause
    assert "docs/reference/states.md" in str(refused.value)


def test_something_that_is_no_cause_is_never_absorbed():
    for state in BranchState:
        if state not in BRANCH_TERMINAL:
            with pytest.raises(AssertionError):
                branch_transition(state, "cancel")  # type: ignore[arg-type]
            if state is not BranchState.VERIFYING:
                with pytest.raises(AssertionError):
                    branch_transition(state, Ended(to="CANCELLED"))  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        branch_transition("RUNNING", Started())  # type: ignore[arg-type]


@given(st.lists(st.sampled_from(CAUSES), max_size=30))
def test_any_walk_follows_the_table(names):
    state = BranchState.PENDING
    for name in names:
        expected = ARMS.get((state.name, name))
        if expected is None:
            with pytest.raises(IllegalTransition):
                branch_transition(state, a_cause(branch, name))
        else:
            state = branch_transition(state, a_cause(branch, name))
            assert state.name == expected


@pytest.mark.parametrize(
    ("body_failed", "gate_refused", "to"),
    [
        (False, False, BranchState.SUCCEEDED),
        (False, True, BranchState.REJECTED),
        (True, False, BranchState.FAILED),
        (True, True, BranchState.FAILED),
    ],
)
def test_a_failed_body_is_failed_whatever_the_gates_say(body_failed, gate_refused, to):
    assert ending(body_failed=body_failed, gate_refused=gate_refused) is to
    assert branch_transition(BranchState.VERIFYING, Ended(to=to)) is to


# ---- why a branch waits ------------------------------------------------------------------------------------

UNKNOWN, LOOP, HELD = OperatorMatter.UNKNOWN_EFFECT, OperatorMatter.CRASH_LOOP, OperatorMatter.HELD_CALL

WAITS = [
    (
        WaitReason.OPERATOR,
        UNKNOWN,
        "a probe or a late outcome settles the intent",
        "poimen inbox show ID",
    ),
    (WaitReason.OPERATOR, LOOP, "", "poimen runs resume RUN"),
    (WaitReason.OPERATOR, HELD, "", "poimen inbox show ID"),
    (
        WaitReason.CODE,
        None,
        "a worker with another code digest claims it",
        "poimen run FILE_OR_MODULE:WORKFLOW --id RUN",
    ),
    (WaitReason.BUDGET, None, "", "poimen inbox budget RUN --usd AMOUNT"),
    (WaitReason.HUMAN, None, "the question is answered or its timeout passes", "poimen inbox answer ID"),
    (WaitReason.TIMER, None, "its time comes", ""),
    (WaitReason.DEPENDENCY, None, "the child ends", ""),
]


@pytest.mark.parametrize(("reason", "matter", "moves", "text"), WAITS)
def test_each_reason_says_what_moves_it_and_which_command(reason, matter, moves, text):
    more = {} if matter is None else {"matter": matter}
    assert moves_by_itself(reason, **more) == moves
    assert command(reason, run="RUN", about="ID", **more) == text
    assert moves or text, "nothing is stranded: something moves it, or somebody can"


def test_the_rows_speak_of_all_reasons_and_matters():
    assert {row[0] for row in WAITS} == set(WaitReason)
    assert {row[1] for row in WAITS} - {None} == set(OperatorMatter)


def test_without_a_matter_an_operator_is_asked_about_an_unknown_effect():
    assert moves_by_itself(WaitReason.OPERATOR) == moves_by_itself(WaitReason.OPERATOR, UNKNOWN)
    assert command(WaitReason.OPERATOR, run="r", about="r/main/charge#0/1/0") == (
        "poimen inbox show r/main/charge#0/1/0"
    )


def test_a_command_that_is_pasted_is_one_command_of_the_shell():
    for reason, matter, _, _ in WAITS:
        text = command(reason, run="RUN", about="ID", matter=matter or UNKNOWN)
        assert not set("|·;&<>") & set(text), text


def test_without_an_id_the_command_shows_where_it_goes():
    assert command(WaitReason.HUMAN, run="tea-1") == "poimen inbox answer ID"
    assert command(WaitReason.CODE, run="tea-1") == "poimen run FILE_OR_MODULE:WORKFLOW --id tea-1"
    assert command(WaitReason.CODE, run="r", workflow="a b") == "poimen run FILE_OR_MODULE:'a b' --id r"


@given(st.sets(st.sampled_from(list(WaitReason))), st.randoms(use_true_random=False))
def test_reasons_are_shown_once_and_in_their_order(reasons, dice):
    order = ["operator", "code", "budget", "human", "timer", "dependency"]
    given_twice = [*reasons, *reasons]
    dice.shuffle(given_twice)
    assert [r.value for r in shown(given_twice)] == [name for name in order if WaitReason(name) in reasons]


@given(st.text(min_size=1).filter(str.isprintable))
def test_an_id_of_any_text_stays_one_word_of_the_shell(about):
    words = shlex.split(command(WaitReason.HUMAN, run="tea-1", about=about))
    assert words == ["poimen", "inbox", "answer", about]


@pytest.mark.parametrize("about", ["$(touch gone)", "a; b", "it's", "{run}", "{about}", "a|b", "#x", "&", "*", "~"])
def test_what_a_model_named_is_never_run_by_the_shell(about):
    text = command(WaitReason.OPERATOR, run="r", about=about, matter=HELD)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    assert list(lexer) == ["poimen", "inbox", "show", about]


def test_the_page_shows_the_states_the_moves_and_the_waits():
    page = tables("states.md")
    states = page["state", "terminal", "meaning"][1]
    assert [(name, terminal) for name, terminal, _ in states] == [
        (state.name, "yes" if state in BRANCH_TERMINAL else "no") for state in BranchState
    ]
    moves = page["from", "cause", "to"][1]
    assert len(moves) == len(set(moves))
    assert set(moves) == {(frm, cause, to) for (frm, cause), to in ARMS.items()}
    (waits,) = page["reason", "about", "moves by itself when", "command"]
    assert waits == [
        (reason.value, matter.value if matter else "", moves or "never", text or "none")
        for reason, matter, moves, text in WAITS
    ]
