"""A deploy may make the judgement of an old intent stricter, never laxer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poimen.kernel.effect_class import EffectClass, Terms, key_ttl_us, stricter, stricter_class
from poimen.kernel.errors import InvariantViolated
from tests.kernel.pages import tables

S = 1_000_000
H = 3600 * S
PURE, READ, IDEMPOTENT, KEYED, PROBE, AT_MOST_ONCE = EffectClass

# From the laxest to the strictest, by hand.
LADDER = [PURE, READ, IDEMPOTENT, KEYED, PROBE, AT_MOST_ONCE]


def terms(effect_class: EffectClass, **more: Any) -> Terms:
    base = Terms(
        effect_class=effect_class,
        ttl_us=24 * H if effect_class is KEYED else None,
        probe="find" if effect_class is PROBE else None,
        probe_version="1" if effect_class is PROBE else None,
        lag_us=0,
        timeout_us=60 * S,
        grace_us=5 * S,
        max_sends=3,
    )
    return replace(base, **more)


def test_the_classes_from_the_laxest_to_the_strictest():
    assert [c.value for c in EffectClass] == ["PURE", "READ", "IDEMPOTENT", "KEYED", "PROBE", "AT_MOST_ONCE"]


@pytest.mark.parametrize("one", LADDER)
@pytest.mark.parametrize("other", LADDER)
def test_the_stricter_class_wins_whichever_side_it_is_on(one, other):
    expected = LADDER[max(LADDER.index(one), LADDER.index(other))]
    assert stricter_class(one, other) is expected
    assert stricter(terms(one), terms(other))[0].effect_class is expected


def test_the_same_declaration_changes_nothing():
    for effect_class in EffectClass:
        assert stricter(terms(effect_class), terms(effect_class)) == (terms(effect_class), "")


@pytest.mark.parametrize(
    ("current", "sentence"),
    [
        ({"ttl_us": 1 * H}, "ttl 86400 s became 3600 s"),
        ({"ttl_us": None}, "ttl 86400 s became unset"),
        ({"max_sends": 1}, "max_sends 3 became 1"),
        ({"lag_us": 1_500_000}, "lag 0 s became 1.5 s"),
        ({"timeout_us": 90 * S}, "timeout 60 s became 90 s"),
        ({"grace_us": 10 * S}, "grace 5 s became 10 s"),
    ],
)
def test_each_number_moves_to_the_strict_side_and_is_named(current, sentence):
    stored = terms(KEYED)
    now, said = stricter(stored, replace(stored, **current))
    assert now == replace(stored, **current)
    assert said == f"stricter by the current declaration: {sentence}"


@pytest.mark.parametrize(
    "current",
    [
        {"ttl_us": 48 * H},
        {"max_sends": 9},
        {"timeout_us": 1 * S},
        {"grace_us": 0},
        {"effect_class": IDEMPOTENT, "ttl_us": None},
        {"effect_class": READ, "ttl_us": None},
        {"effect_class": PURE, "ttl_us": None},
        {"probe": "find", "probe_version": "1"},
    ],
)
def test_a_laxer_declaration_changes_nothing(current):
    stored = terms(KEYED)
    assert stricter(stored, replace(stored, **current)) == (stored, "")


def test_a_shorter_lag_changes_nothing():
    stored = terms(PROBE, lag_us=10 * S)
    assert stricter(stored, replace(stored, lag_us=0)) == (stored, "")


def test_several_changes_stand_in_one_sentence():
    now, said = stricter(terms(KEYED), terms(AT_MOST_ONCE, max_sends=1))
    assert now.effect_class is AT_MOST_ONCE
    assert said == "stricter by the current declaration: class KEYED became AT_MOST_ONCE, max_sends 3 became 1"


def test_an_unknown_ttl_is_zero_and_no_deploy_lends_it_one():
    stored = terms(KEYED, ttl_us=None)
    assert stricter(stored, terms(KEYED)) == (stored, "")
    assert stricter(stored, terms(KEYED, ttl_us=0)) == (stored, "")


def test_a_read_that_became_keyed_is_bound_by_the_new_key():
    now, said = stricter(terms(READ), terms(KEYED, ttl_us=1 * H, probe="find", probe_version="1"))
    assert (now.effect_class, now.ttl_us, now.probe) == (KEYED, 1 * H, "find")
    assert said == (
        "stricter by the current declaration: "
        "class READ became KEYED, probe none became find 1, ttl unset became 3600 s"
    )


class TestProbes:
    """A probe that is loaded now and was not frozen then gives no permission to send."""

    def test_a_key_frozen_without_a_probe_gets_none(self):
        stored = terms(KEYED)
        assert stricter(stored, replace(stored, probe="find", probe_version="1")) == (stored, "")

    def test_a_frozen_probe_stays_when_the_declaration_names_another_version(self):
        for stored in (terms(KEYED, probe="find", probe_version="1"), terms(PROBE)):
            assert stricter(stored, replace(stored, probe_version="2")) == (stored, "")
            assert stricter(stored, replace(stored, probe="seek")) == (stored, "")

    def test_a_key_whose_probe_was_withdrawn_has_none_any_more(self):
        stored = terms(KEYED, probe="find", probe_version="1")
        now, said = stricter(stored, terms(KEYED))
        assert now == terms(KEYED)
        assert said == "stricter by the current declaration: probe find 1 became none"
        unversioned = replace(stored, probe_version=None)
        assert stricter(unversioned, terms(KEYED))[1] == "stricter by the current declaration: probe find became none"

    def test_a_laxer_class_withdraws_no_probe(self):
        stored = terms(KEYED, probe="find", probe_version="1")
        assert stricter(stored, terms(READ)) == (stored, "")

    def test_a_class_raised_to_probe_asks_the_new_probe_first(self):
        for stored in (terms(READ), terms(IDEMPOTENT)):
            now, _ = stricter(stored, terms(PROBE, lag_us=2 * S))
            assert now == terms(PROBE, lag_us=2 * S)

    def test_a_key_raised_to_probe_keeps_its_limit_beside_a_new_probe(self):
        now, said = stricter(terms(KEYED), terms(PROBE))
        assert now == terms(PROBE, ttl_us=24 * H)
        assert said == "stricter by the current declaration: class KEYED became PROBE, probe none became find 1"
        assert stricter(terms(KEYED, ttl_us=None), terms(PROBE))[0] == terms(PROBE, ttl_us=0)
        assert stricter(terms(KEYED, probe="find", probe_version="0"), terms(PROBE))[0] == terms(PROBE, ttl_us=24 * H)
        assert stricter(terms(KEYED), terms(PROBE, ttl_us=1 * H))[0] == terms(PROBE, ttl_us=1 * H)

    def test_a_key_raised_to_its_own_frozen_probe_has_no_limit(self):
        assert stricter(terms(KEYED, probe="find", probe_version="1"), terms(PROBE))[0] == terms(PROBE)

    def test_a_limit_stays_and_may_shrink(self):
        stored = terms(PROBE, ttl_us=2 * H)
        assert stricter(stored, terms(PROBE)) == (stored, "")
        assert stricter(stored, terms(PROBE, ttl_us=1 * H))[0] == terms(PROBE, ttl_us=1 * H)
        assert stricter(stored, terms(KEYED, ttl_us=1 * H)) == (stored, "")

    def test_raised_to_at_most_once_keeps_the_frozen_probe_for_people(self):
        now, _ = stricter(terms(PROBE), terms(AT_MOST_ONCE))
        assert (now.effect_class, now.probe, now.probe_version) == (AT_MOST_ONCE, "find", "1")
        assert stricter(now, terms(AT_MOST_ONCE)) == (now, "")


def test_only_a_key_binds_in_time():
    bound = {c: key_ttl_us(terms(c, ttl_us=7)) for c in EffectClass}
    assert bound == {PURE: None, READ: None, IDEMPOTENT: None, KEYED: 7, PROBE: 7, AT_MOST_ONCE: None}
    assert key_ttl_us(terms(KEYED, ttl_us=None)) == 0
    assert key_ttl_us(terms(PROBE)) is None


@pytest.mark.parametrize(
    "bad", [{"ttl_us": -1}, {"lag_us": -1}, {"timeout_us": -1}, {"grace_us": -1}, {"max_sends": 0}]
)
def test_terms_that_cannot_be_are_refused(bad):
    with pytest.raises(InvariantViolated):
        terms(KEYED, **bad)


ANY_TERMS = st.builds(
    Terms,
    effect_class=st.sampled_from(EffectClass),
    ttl_us=st.none() | st.integers(0, 200 * S),
    probe=st.sampled_from([None, "find", "seek"]),
    probe_version=st.sampled_from(["1", "2"]),
    lag_us=st.integers(0, 9 * S),
    timeout_us=st.integers(0, 90 * S),
    grace_us=st.integers(0, 9 * S),
    max_sends=st.integers(1, 4),
).map(lambda t: t if t.probe else replace(t, probe_version=None))


@given(ANY_TERMS, ANY_TERMS)
def test_once_made_stricter_the_same_declaration_adds_nothing(stored, current):
    once, _ = stricter(stored, current)
    assert stricter(once, current) == (once, "")


def test_the_page_lists_the_classes_in_their_order():
    (rows,) = tables("effect-classes.md")["class", "intent", "says", "what is done with an unknown call"]
    assert [(row[0], row[1]) for row in rows] == [(c.name, "no" if c is PURE else "yes") for c in LADDER]
