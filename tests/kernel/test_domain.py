"""Domain states: what is refused when a declaration is loaded, and what is refused at run time."""

from __future__ import annotations

import itertools
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poimen.kernel.domain import Domain
from poimen.kernel.errors import BadDeclaration, IllegalTransition

MAIL = Domain.of(
    ["drafted", "approved", "sent", "withdrawn"],
    "drafted",
    {"drafted": ["approved", "withdrawn"], "approved": ["sent", "withdrawn", "drafted"]},
)

# All 4 x 4 pairs by hand.
ALLOWED = {
    ("drafted", "approved"),
    ("drafted", "withdrawn"),
    ("approved", "sent"),
    ("approved", "withdrawn"),
    ("approved", "drafted"),
}


def test_exactly_the_declared_moves_are_legal():
    for frm, to in itertools.product(MAIL.names, MAIL.names):
        if (frm, to) in ALLOWED:
            assert MAIL.move(frm, to) == to
        else:
            with pytest.raises(IllegalTransition) as refused:
                MAIL.move(frm, to)
            assert (refused.value.state, refused.value.cause) == (frm, to)


def test_a_refused_move_says_what_is_declared():
    with pytest.raises(IllegalTransition, match="from 'drafted' to 'sent' is not declared") as refused:
        MAIL.move("drafted", "sent")
    assert "declares moves to 'approved', 'withdrawn'" in str(refused.value)
    with pytest.raises(IllegalTransition, match="'sent' is final"):
        MAIL.move("sent", "drafted")


@pytest.mark.parametrize(("frm", "to"), [("drafted", "send"), ("send", "sent")])
def test_a_move_of_an_unknown_state_names_it(frm, to):
    with pytest.raises(IllegalTransition, match="'send' is not one of the states 'drafted', 'approved', 'sent'"):
        MAIL.move(frm, to)


def test_moves_may_be_a_table_or_pairs_and_come_from_a_file():
    as_pairs = Domain.of(("a", "b"), "a", [("a", "b"), ("b", "b")])
    assert as_pairs == Domain.of(["a", "b"], "a", {"a": ["b"], "b": ["b"]})
    assert as_pairs.move("b", "b") == "b", "a move to itself is a move when it is declared"
    read = tomllib.loads('names = ["a", "b"]\ninitial = "a"\n[moves]\na = ["b"]\nb = ["b"]\n')
    assert Domain.of(**read) == as_pairs
    assert as_pairs.targets("a") == ("b",)


def test_one_state_needs_no_moves():
    only = Domain.of(["open"], "open", {})
    with pytest.raises(IllegalTransition, match="'open' is final"):
        only.move("open", "open")


REFUSED: list[tuple[str, Any, Any, Any, str, str]] = [
    ("no state", [], "a", {}, "no state is declared", ""),
    ("duplicate name", ["a", "b", "a"], "a", {"a": ["b"]}, "'a' is declared twice", "state 'a'"),
    ("unknown initial", ["a"], "b", {}, "initial state 'b' is not among the states 'a'", "state 'b'"),
    ("initial None", ["a"], None, {}, "no initial state is declared", ""),
    ("initial empty", ["a"], "", {}, "no initial state is declared", ""),
    ("unknown target", ["a", "b"], "a", {"a": ["b", "c"]}, "'a' moves to the unknown state 'c'", "state 'a'"),
    ("unknown source", ["a"], "a", {"c": ["a"]}, "starts from the unknown state 'c'", "state 'c'"),
    ("unreachable", ["a", "b", "c"], "a", {"a": ["b"], "c": ["a"]}, "from 'a' to 'c'", "state 'c'"),
    ("an island", ["a", "b", "c"], "a", {"b": ["c"], "c": ["b"]}, "from 'a' to 'b', 'c'", "state 'b'"),
    ("duplicate move", ["a", "b"], "a", {"a": ["b", "b"]}, "from 'a' to 'b' is declared twice", "state 'a'"),
    ("duplicate pair", ["a", "b"], "a", [("a", "b"), ("a", "b")], "from 'a' to 'b' is declared twice", "state 'a'"),
    ("blank name", ["a", " "], "a", {"a": [" "]}, "' ' cannot be the name of a state", "state ' '"),
    ("control character", ["a\n"], "a\n", {}, r"'a\\n' cannot be the name of a state", r"state 'a\n'"),
    ("a number", ["a", 1], "a", {}, "1 cannot be the name of a state", "state 1"),
    ("names as text", "abc", "a", {}, "the states are 'abc', not a list", ""),
    ("names as number", 7, "a", {}, "the states are 7, not a list", ""),
    ("targets as text", ["a", "bc"], "a", {"a": "bc"}, "the moves from 'a' are 'bc', not a list", "state 'a'"),
    ("targets missing", ["a"], "a", {"a": None}, "the moves from 'a' are None, not a list", "state 'a'"),
    ("moves as text", ["a"], "a", "a", "the moves are 'a', neither", ""),
    ("moves missing", ["a"], "a", None, "the moves are None, neither", ""),
    ("a pair of one", ["a"], "a", [("a",)], r"the move \('a',\) is not a pair", ""),
    ("a pair that is a number", ["a"], "a", [7], "the move 7 is not a pair", ""),
    ("a pair as text", ["a", "b"], "a", ["ab"], "the move 'ab' is not a pair", ""),
    ("a target as list", ["a", "b"], "a", {"a": [["b"]]}, r"'a' moves to the unknown state \['b'\]", "state 'a'"),
]


@pytest.mark.parametrize(
    ("names", "initial", "moves", "what", "where"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_bad_declaration_is_refused_and_names_the_state(names, initial, moves, what, where):
    with pytest.raises(BadDeclaration, match=what) as refused:
        Domain.of(names, initial, moves)
    assert refused.value.where == where
    assert "go on:" in str(refused.value)


def test_a_domain_cannot_be_made_or_changed_around_the_check():
    with pytest.raises(BadDeclaration, match="no moves lead"):
        Domain(names=("a", "b"), initial="a", moves=())
    with pytest.raises(AttributeError):
        MAIL.initial = "sent"  # type: ignore[misc]
    assert hash(MAIL) == hash(Domain(names=MAIL.names, initial=MAIL.initial, moves=MAIL.moves))


NAMES = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True)


@given(NAMES, st.data())
def test_a_declaration_is_refused_exactly_when_a_state_cannot_be_reached(names, data):
    pairs = data.draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), unique=True))
    reached = {names[0]}
    for _ in names:
        reached |= {to for frm, to in pairs if frm in reached}
    if reached == set(names):
        domain = Domain.of(names, names[0], pairs)
        for pair in itertools.product(names, names):
            if pair in pairs:
                assert domain.move(*pair) == pair[1]
            else:
                with pytest.raises(IllegalTransition):
                    domain.move(*pair)
    else:
        with pytest.raises(BadDeclaration, match="no moves lead"):
            Domain.of(names, names[0], pairs)
