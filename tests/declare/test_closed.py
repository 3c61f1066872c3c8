"""A body cannot be reached without the gate."""

from __future__ import annotations

import copy
import gc
import pickle
import types
from typing import Any

import pytest

import poimen
from poimen.declare import sealed
from poimen.declare.specs import spec_of
from tests.declare import samples

STEPS = 3
EXCEPTED = frozenset({"__globals__", "__builtins__"})


def neighbours(thing: object) -> list[object]:
    """What `dir`, `__dict__`, `__closure__` and `__defaults__` lead to from one thing, and what a collection holds."""
    found: list[object] = []
    for name in {*dir(thing), *getattr(thing, "__dict__", {}), *getattr(type(thing), "__slots__", ())} - EXCEPTED:
        try:
            found.append(getattr(thing, name))
        except (AttributeError, TypeError, ValueError, DeprecationWarning):  # unset, not for this object, going away
            continue
    if isinstance(thing, types.CellType):
        found.append(thing.cell_contents)
    if isinstance(thing, dict):
        found += [*thing.keys(), *thing.values()]
    if isinstance(thing, (list, tuple, set, frozenset, types.MappingProxyType)):
        found += list(thing.values() if isinstance(thing, types.MappingProxyType) else thing)
    return found


def reachable(thing: object, levels: int) -> list[object]:
    """Everything within so many steps."""
    seen: dict[int, object] = {id(thing): thing}
    edge = [thing]
    for _ in range(levels):
        edge = [
            new for old in edge for new in neighbours(old) if seen.setdefault(id(new), new) is new and new is not old
        ]
        edge = list({id(new): new for new in edge}.values())
    return list(seen.values())


def leads_to(thing: object, body: object, levels: int = STEPS) -> bool:
    code = getattr(body, "__code__", None)
    return any(found is body or (code is not None and found is code) for found in reachable(thing, levels))


def faces(name: Any) -> list[object]:
    found: list[object] = [name, spec_of(name)]
    for face in ("aio", "sync", "options"):
        if hasattr(name, face):
            found.append(getattr(name, face))
    if hasattr(name, "options"):
        chosen = name.options(key="k")
        found += [chosen, chosen.aio, chosen.sync, chosen.options]
    return found


def name_of(name: object) -> str:
    return getattr(name, "__name__", "verifier")


@pytest.mark.parametrize("name", [*samples.TOOLS, *samples.WORKFLOWS, samples.cheap], ids=name_of)
def test_three_steps_from_a_declared_name_its_body_is_not_found(name: Any) -> None:
    spec = spec_of(name)
    assert spec is not None
    body = sealed.opened(spec.token)
    assert body.__name__ == getattr(name, "__name__", "cheap")
    for face in faces(name):
        assert not leads_to(face, body), face


def test_the_walk_finds_what_is_there() -> None:
    def hidden() -> None: ...

    def outer(fn: Any = None) -> Any:
        return lambda: hidden() if fn is None else fn()

    outer.options = types.SimpleNamespace(inner=[hidden])  # type: ignore[attr-defined]
    assert leads_to(outer(), hidden)
    assert leads_to(outer, hidden)
    assert not leads_to(hidden.__name__, hidden)


def test_nothing_leads_from_a_token_to_the_body() -> None:
    spec = spec_of(samples.charge)
    assert spec is not None
    assert not leads_to(spec.token, sealed.opened(spec.token))
    assert repr(spec.token) == "<sealed body of charge>"
    assert vars(type(spec.token)).keys() >= {"__slots__"}
    assert not hasattr(spec.token, "__dict__")


def test_a_token_is_equal_to_itself_alone() -> None:
    def body() -> None: ...

    one, other = sealed.seal(body), sealed.seal(body)
    assert one == one  # noqa: PLR0124 (that is the question)
    assert one != other
    assert len({one, other}) == 2


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_token_cannot_be_copied(way: Any) -> None:
    token = sealed.seal(test_a_token_is_equal_to_itself_alone)
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        way(token)


def test_a_body_lives_as_long_as_what_declares_it() -> None:
    @poimen.step
    def short() -> None: ...

    spec = spec_of(short)
    assert spec is not None
    bodies = len(sealed._bodies)
    del short, spec
    gc.collect()
    assert len(sealed._bodies) == bodies - 1


CALLS: list[tuple[str, Any]] = [
    ("tool 'charge'", lambda: samples.charge(samples.Order("a", 1))),
    ("tool 'charge'", lambda: samples.charge.aio(samples.Order("a", 1))),
    ("tool 'charge'", lambda: samples.charge.sync(samples.Order("a", 1))),
    ("tool 'charge'", lambda: samples.charge.options(key="k")(samples.Order("a", 1))),
    ("tool 'look-up'", lambda: samples.look("x")),
    ("tool 'look-up'", lambda: samples.look.aio("x")),
    ("model 'chat'", lambda: samples.chat([])),
    ("step 'tidy'", lambda: samples.tidy(samples.Order("a", 1))),
]


@pytest.mark.parametrize(("what", "call"), CALLS)
def test_outside_a_run_a_call_is_refused_before_anything_is_done(what: str, call: Any) -> None:
    samples.ENTERED.clear()
    with pytest.raises(poimen.UnguardedEffect) as refused:
        call()  # refused at the call, not when it is awaited
    text = str(refused.value)
    assert what in text
    assert "tests/declare/samples.py:" in text
    assert "poimen.run(" in text
    assert "poimen.testing.raw(" in text
    assert samples.ENTERED == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: poimen.decide("id", 1),
        lambda: poimen.settle("id"),
        poimen.request_id,
        poimen.current,
    ],
)
def test_outside_a_run_nothing_is_decided_or_known(call: Any) -> None:
    with pytest.raises(poimen.UnguardedEffect, match=r"poimen\.run"):
        call()


def test_the_probe_is_closed_away_too() -> None:
    spec = spec_of(samples.charge)
    assert spec is not None
    token = getattr(spec, "probe")  # noqa: B009 (only tools have one)
    assert isinstance(token, sealed.Token)
    assert sealed.opened(token) is samples.landed


def test_what_a_body_can_name_is_told_without_the_body() -> None:
    marker = object()

    def body() -> object:
        return marker, body

    token = sealed.seal(body)
    found = sealed.surroundings(token)
    assert marker in found
    assert samples in found
    assert not any(each is body for each in found)
