"""The effect classes as values."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from poimen import effects
from poimen.effects import Absent, Effect, Landed, ProbingEffect, Unknown
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.errors import BadDeclaration

DAY = timedelta(days=1)


def find(order: str) -> Landed[str] | Absent:
    return Landed(order)


ALL: list[Effect | ProbingEffect[..., Any]] = [
    effects.PURE,
    effects.READ,
    effects.IDEMPOTENT,
    effects.KEYED(DAY),
    effects.PROBE(find, lag=timedelta(0)),
    effects.AT_MOST_ONCE,
]


def test_the_six_are_those_of_the_kernel_in_its_order() -> None:
    assert [effect.effect_class for effect in ALL] == [member.name for member in EffectClass]


def test_each_says_what_it_needs() -> None:
    assert [effect.ttl for effect in ALL] == [None, None, None, DAY, None, None]
    assert [effect.probe for effect in ALL] == [None, None, None, None, find, None]
    assert {effect.lag for effect in ALL} == {timedelta(0)}
    keyed = effects.KEYED(DAY, probe=find, lag=timedelta(seconds=2))
    assert (keyed.effect_class, keyed.ttl, keyed.probe, keyed.lag) == ("KEYED", DAY, find, timedelta(seconds=2))
    probing = effects.PROBE(find, lag=timedelta(seconds=3))
    assert (probing.ttl, probing.probe, probing.lag) == (None, find, timedelta(seconds=3))


def test_they_read_as_they_are_written() -> None:
    assert repr(effects.PURE) == "effects.PURE"
    assert repr(effects.KEYED(DAY)) == "effects.KEYED(ttl=datetime.timedelta(days=1))"
    assert repr(effects.PROBE(find, lag=DAY)) == "effects.PROBE(find, lag=datetime.timedelta(days=1))"
    assert (
        repr(effects.KEYED(DAY, probe=find))
        == "effects.KEYED(ttl=datetime.timedelta(days=1), probe=find, lag=datetime.timedelta(0))"
    )


def test_they_are_equal_by_what_they_say() -> None:
    assert effects.KEYED(DAY) == effects.KEYED(timedelta(hours=24))
    assert effects.KEYED(DAY) != effects.KEYED(timedelta(hours=23))
    assert effects.READ != effects.PURE
    assert len({*ALL, *ALL}) == 6


@pytest.mark.parametrize("effect", ALL, ids=repr)
def test_they_cannot_be_changed(effect: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        effect.effect_class = "PURE"
    with pytest.raises((AttributeError, TypeError)):
        effect.other = 1


def test_a_plain_class_is_not_a_probing_one() -> None:
    assert not issubclass(ProbingEffect, Effect)
    assert not issubclass(Effect, ProbingEffect)


@pytest.mark.parametrize("ttl", [None, timedelta(0), timedelta(seconds=-1), 3600, "24h"])
def test_a_key_has_a_life_span(ttl: Any) -> None:
    with pytest.raises(BadDeclaration, match="ttl="):
        effects.KEYED(ttl)


def test_a_key_without_anything_says_what_is_missing() -> None:
    bare: Any = effects.KEYED
    with pytest.raises(BadDeclaration, match="ttl=None is not a positive timedelta"):
        bare()


def test_a_lag_speaks_of_a_probe() -> None:
    keyed: Any = effects.KEYED
    with pytest.raises(BadDeclaration, match="there is no probe="):
        keyed(DAY, lag=DAY)


@pytest.mark.parametrize("lag", [None, timedelta(seconds=-1), 2, "2s"])
def test_a_probe_has_a_lag(lag: Any) -> None:
    with pytest.raises(BadDeclaration, match="lag="):
        effects.PROBE(find, lag=lag)
    if lag is not None:
        with pytest.raises(BadDeclaration, match="lag="):
            effects.KEYED(DAY, probe=find, lag=lag)


def test_a_probe_without_a_lag_says_what_is_missing() -> None:
    bare: Any = effects.PROBE
    with pytest.raises(BadDeclaration, match="lag=None is not a timedelta"):
        bare(find)


@pytest.mark.parametrize("probe", [3, "find", Landed, Landed("x")])
def test_a_probe_is_a_function(probe: Any) -> None:
    with pytest.raises(BadDeclaration, match="is not a function"):
        effects.PROBE(probe, lag=DAY)
    with pytest.raises(BadDeclaration, match="is not a function"):
        effects.KEYED(DAY, probe=probe)


def test_what_a_probe_answers() -> None:
    assert Landed("x") == Landed("x", evidence="")
    assert Landed("x", evidence="line 3") != Landed("x")
    assert (Landed("x").value, Landed("x", evidence="line 3").evidence) == ("x", "line 3")
    assert Absent(evidence="looked") == Absent(evidence="looked") != Absent()
    assert Unknown("timeout") == Unknown(why="timeout") != Unknown()
    assert repr(Unknown("timeout")) == "Unknown(why='timeout')"
    answers: list[Any] = [Landed("x"), Absent(), Unknown()]
    for answer in answers:
        assert not hasattr(answer, "__dict__")
        for field in dataclasses.fields(answer):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(answer, field.name, "y")
