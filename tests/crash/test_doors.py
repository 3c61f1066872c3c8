"""What a test may do with a tool: take its plain function, stand in for it, see what its body sees."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import effects, testing
from poimen.kernel.errors import BadDeclaration, NotBuiltYet, UnguardedEffect

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTERED: list[str] = []


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def charge(order: str, cents: int, *, note: str = "none") -> str:
    ENTERED.append(order)
    return f"charged {cents}: {note} under {poimen.request_id()}"


@poimen.tool(effect=effects.PURE)
def double(n: int) -> int:
    return 2 * n


@poimen.step
def price(n: int) -> int:
    return n + 1


@poimen.workflow
async def shop(order: str) -> list[Any]:
    return [await charge(order, 3), await charge(order, cents=4, note="gift"), await double.aio(5), await price.aio(6)]


@pytest.fixture(autouse=True)
def _no_bodies() -> Iterator[None]:
    testing.allow_raw()
    ENTERED.clear()
    yield
    ENTERED.clear()


def test_raw_is_the_plain_function() -> None:
    with testing.in_call(request_id="abc"):
        assert asyncio.run(testing.raw(charge)("tea", 1, note="x")) == "charged 1: x under abc"
    assert testing.raw(double)(4) == 8
    assert testing.raw(price)(4) == 5
    assert ENTERED == ["tea"]


@pytest.mark.parametrize("thing", [print, shop, 3, str], ids=["builtin", "workflow", "number", "class"])
@pytest.mark.parametrize("door", [testing.raw, lambda thing: testing.replace(thing, thing)], ids=["raw", "replace"])
def test_only_declared_tools_have_a_body(door: Any, thing: Any) -> None:
    with pytest.raises(BadDeclaration, match="takes a declared tool, model or step"):
        door(thing)


def test_a_fake_runs_behind_the_gate_and_its_calls_are_listed() -> None:
    async def fake(order: str, cents: int, *, note: str = "none") -> str:
        assert poimen.current().step in {"charge#0", "charge#1"}
        assert len(poimen.request_id()) == 32
        return f"fake {cents}"

    async def go() -> tuple[list[Any], list[str]]:
        async with poimen.Runtime("memory:") as runtime:
            run = await runtime.start(shop("tea"))
            result = await run.result()
            return result, [record.kind async for record in run.events()]

    with testing.replace(charge, fake) as calls, testing.replace(double, lambda n: 0) as doubles:
        result, kinds = asyncio.run(go())
    assert result == ["fake 3", "fake 4", 0, 7]
    assert calls == [("tea", 3, "none"), ("tea", 4, "gift")]
    assert doubles == [(5,)]
    assert ENTERED == []
    assert kinds.count("intent.pending.v1") == kinds.count("intent.committed.v1") == 2

    poimen.run(shop("coffee"), db="memory:")
    assert ENTERED == ["coffee", "coffee"], "the body is back"
    assert len(calls) == 2


def test_fakes_can_be_nested_and_are_gone_even_when_the_block_fails() -> None:
    def fails_inside() -> None:
        with testing.replace(double, lambda n: 2):
            assert testing.raw(double)(0) == 2
            raise ValueError("stop")

    with testing.replace(double, lambda n: 1) as outer:
        with pytest.raises(ValueError, match="stop"):
            fails_inside()
        assert testing.raw(double)(0) == 1
        assert outer == [(0,)]
    assert testing.raw(double)(4) == 8


@pytest.mark.parametrize(
    ("tool", "fake"), [(charge, lambda *a: ""), (double, charge), (double, 3)], ids=["plain", "async", "none"]
)
def test_a_fake_of_the_other_colour_is_refused(tool: Any, fake: Any) -> None:
    async def coroutine(n: int) -> int:
        return n

    with pytest.raises(BadDeclaration, match="cannot stand for"):
        testing.replace(tool, coroutine if tool is double and fake is charge else fake)


def test_in_call_answers_what_a_body_may_ask_and_refuses_what_it_may_not() -> None:
    with testing.in_call():
        assert len(poimen.request_id()) == 32
        assert poimen.current().cancelling is None
        with pytest.raises(UnguardedEffect, match="inside a tool"):
            poimen.decide("a", 1)
        with pytest.raises(UnguardedEffect, match="inside a tool"):
            double(3)
        with testing.in_call(request_id="inner"):
            assert poimen.request_id() == "inner"
        assert poimen.request_id() != "inner"
    with pytest.raises(UnguardedEffect):
        poimen.request_id()


def test_what_belongs_to_later_parts_says_so() -> None:
    with pytest.raises(NotBuiltYet, match=r"poimen\.resource"), testing.in_call(resources=(object(),)):
        pass
    with pytest.raises(NotBuiltYet, match=r"poimen\.testing\.load_episode"):
        testing.load_episode("x")
    with pytest.raises(NotBuiltYet, match=r"poimen\.testing\.verifier_ctx"):
        testing.verifier_ctx(None)  # type: ignore[arg-type]


def test_names_are_loaded_when_they_are_asked_for() -> None:
    assert set(dir(testing)) == set(testing.__all__)
    assert testing.sabotage.CONTROLS.keys() == {
        "two_records",
        "batched",
        "moved_up",
        "decided_late",
        "sent_again",
        "normal_sync",
        "lying_sync",
        "no_folder_sync",
        "swallowed",
        "chain_off",
        "sync_retried",
        "checked_then_acted",
    }
    with pytest.raises(AttributeError, match="no attribute 'crahs'"):
        testing.crahs  # type: ignore[attr-defined] # noqa: B018
