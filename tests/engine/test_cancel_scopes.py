"""anyio's cancel scopes and task groups in a run: they end, and a replay repeats them.

A cancelled scope tells its tasks so in each turn of the loop until they have ended: that keeps no result out
(docs/decisions/0019).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from poimen.engine.eventloop import again, loop
from poimen.kernel.events import TimerFired
from tests.engine import programs
from tests.engine.playing import Play, Played, difference
from tests.engine.scopes import ScopeMaker
from tests.engine.simulated import events_of, in_simulated_time
from tests.engine.test_replay_programs import crashed, lived, replayed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.conftest import Scale
    from tests.engine.programs import Node, State


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[State], Awaitable[None]]], list[Node]]:
    """Makes a program of one function."""

    def made(body: Callable[[State], Awaitable[None]]) -> list[Node]:
        async def whole(_node: Node, state: State, _see: Any) -> int:
            await body(state)
            return 31

        monkeypatch.setitem(programs._KINDS, "code", whole)
        return [("code",)]

    return made


async def everywhere(play: Play) -> Played:
    """A run, its replay, and its replays from every place where a crash can have left it."""
    first = await lived(play)
    await replayed(play, first)
    for at in first.cuts():
        more = await play.go(first.store.cut(play.run, at))
        assert more.how == "ended", f"cut at {at}: {more.details}"
        both = more.seen[: more.replayed]
        assert both == first.seen[: len(both)], f"cut at {at}: {difference(first.seen, both)}"
    return first


CALL: Node = ("call", "put")
LONG: Node = ("seq", [CALL] * 6)

SHAPES: dict[str, Node] = {
    "move on": ("after", 0.0005, [LONG]),
    "move on, at once": ("after", 0.0, [LONG]),
    "fail": ("within", 0.0005, [LONG]),
    "a group that is stopped": ("stopped", [CALL, LONG, LONG]),
    "a group in a scope": ("after", 0.0005, [("group", [LONG, LONG, ("call", "look")])]),
    "a shielded call": ("after", 0.0005, [("seq", [("shielded", [LONG]), LONG])]),
    "an end that is shielded": ("after", 0.0005, [("cleaned", [LONG, ("call", "pay")])]),
    "an end that is not": ("after", 0.0005, [("finally", [LONG])]),
    "nested": (
        "after",
        0.002,
        [("within", 0.001, [("after", 0.0005, [("group", [LONG, ("cleaned", [LONG, CALL])])])])],
    ),
    "gathered": ("after", 0.0005, [("gather", [LONG, LONG])]),
    "asyncio's group": ("after", 0.0005, [("tg", [LONG, LONG, LONG])]),
    "asyncio's time-out around it": ("timeout", 0.0005, [("group", [LONG, LONG])]),
    "asyncio's time-out in it": ("after", 0.0005, [("timeout", 0.001, [LONG])]),
    "around a step": ("after", 0.0005, [("step", "unit", 1)]),
    "in a step": ("step", "unit", 2),
}

STOPPED = (("cancelled", "put"), ("moved on", True), ("too late",), ("timed out",))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_scope_ends_what_it_holds_and_repeats_itself(shape: str) -> None:
    ended: list[bool] = []

    async def one(seed: int) -> None:
        nodes: list[Node] = [("seq", [SHAPES[shape], ("call", "look")]), LONG, ("after", 0.0005, [LONG])]
        first = await everywhere(Play(seed, nodes, fails="", slow=True))
        ended.extend(what in STOPPED for what in first.seen)
        ended.extend(isinstance(event, TimerFired) for event in events_of(first.records))

    for seed in range(3):
        in_simulated_time((shape, seed), partial(one, seed))
    assert any(ended)


@pytest.mark.parametrize("chunk", range(4))
def test_random_programs_with_scopes_repeat_themselves(chunk: int, scale: Scale) -> None:
    async def one(seed: int) -> None:
        play = Play(seed, ScopeMaker(seed).nodes)
        first = await lived(play)
        await replayed(play, first)
        more, at = await crashed(play, first)
        more, _ = await crashed(play, more, at)
        await replayed(play, more)

    for seed in range(chunk, scale(40, 2_000), 4):
        in_simulated_time(seed, partial(one, seed))


@pytest.mark.parametrize("turns", [1, 3, 10])
def test_turns_of_the_main_loop_change_nothing(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def one(seed: int) -> None:
        play = Play(seed, ScopeMaker(seed).nodes)
        first = await lived(play)
        with monkeypatch.context() as patched:
            patched.setattr(loop, "SPIN", turns)
            await replayed(play, first)

    for seed in range(6):
        in_simulated_time(seed, partial(one, seed))


def test_a_scope_wakes_its_tasks_as_they_were_made_not_by_address(code: Any) -> None:
    async def body(state: State) -> None:
        async def child(n: int) -> None:
            with anyio.CancelScope():
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError as error:
                    state.see("child", n, str(error))
                    raise

        async with anyio.create_task_group() as group:
            for n in range(12):
                group.start_soon(child, n)
            await programs.TOOLS["look"](1)
            group.cancel_scope.cancel("enough")

    async def one() -> None:
        first = await everywhere(Play(0, code(body), fails=""))
        # asyncio hands the message on, without the scope's address
        assert first.seen[-12:] == [
            ("child", n, "Cancelled via cancel scope of the run; reason: enough") for n in range(12)
        ]

    in_simulated_time(0, one)


@pytest.mark.parametrize("group", [False, True])
def test_a_cancelled_scope_around_what_never_comes_waits_for_the_code(code: Any, group: bool) -> None:
    """It keeps no core busy: the run rests, as it does with any event that nobody sets."""

    async def never(_state: State) -> None:
        with anyio.CancelScope(shield=True):
            await asyncio.Event().wait()

    async def body(state: State) -> None:
        with anyio.move_on_after(0.001):
            if group:
                async with asyncio.TaskGroup() as asked:
                    asked.create_task(never(state))
            else:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(never, state)

    async def one() -> None:
        play = Play(0, code(body), fails="")
        played = await play.go(play.begin())
        if group:  # anyio does not know asyncio's tasks: their cancellation knows no shield
            assert played.how == "ended", played.details
        else:
            assert played.how == "waiting"

    in_simulated_time(0, one)


def test_a_callback_that_puts_itself_in_line_keeps_no_result_out(code: Any) -> None:
    async def body(state: State) -> None:
        asked = asyncio.ensure_future(programs.TOOLS["look"](1))
        turns = 0

        def look() -> None:
            nonlocal turns
            turns += 1
            if not asked.done():
                asyncio.get_running_loop().call_soon(look)

        look()
        state.see("value", await asked, turns)
        await asyncio.sleep(0)
        state.see("turns", turns)

    async def one() -> None:
        first = await everywhere(Play(0, code(body), fails=""))
        assert again.TURNS < first.seen[-1][1] < 2 * again.TURNS  # the same number in each replay

    in_simulated_time(0, one)


def test_what_keeps_results_out_is_named(
    code: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop, "SPIN", 50)

    async def body(state: State) -> None:
        async def polls_a_flag() -> None:
            for _ in range(200):
                await asyncio.sleep(0)

        await asyncio.create_task(polls_a_flag())

    async def one() -> None:
        play = Play(0, code(body), fails="")
        assert (await play.go(play.begin())).how == "ended"

    with caplog.at_level(logging.WARNING, "poimen.run"):
        in_simulated_time(0, one)
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("run run-0/main: for 50 turns something in the workflow was ready")
    assert "polls_a_flag" in said


def test_a_tasks_coroutine_tells_its_state(code: Any) -> None:
    async def body(state: State) -> None:
        async def waits() -> None:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        task = asyncio.create_task(waits())
        coroutine: Any = task.get_coro()
        state.see(inspect.getcoroutinestate(coroutine), coroutine.__name__, coroutine.cr_origin)
        await asyncio.sleep(0)
        state.see(inspect.getcoroutinestate(coroutine), coroutine.cr_await is not None)
        await task
        state.see(inspect.getcoroutinestate(coroutine))

    async def one() -> None:
        play = Play(0, code(body), fails="")
        assert (await play.go(play.begin())).seen == [
            ("CORO_CREATED", "waits", None),
            ("CORO_SUSPENDED", True),
            ("CORO_CLOSED",),
        ]

    in_simulated_time(0, one)
