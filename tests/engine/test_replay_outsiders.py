"""What outsiders write lies in the order too: a resolution while the ladder pauses, a cancel while nobody drives."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from poimen.engine import desk
from poimen.engine.eventloop import loop
from poimen.kernel.attempt import AttemptState
from poimen.kernel.errors import Conflict
from poimen.kernel.views import newest_branch
from poimen.log.writer import Door
from tests.engine.playing import Play, difference
from tests.engine.simulated import folded, in_simulated_time

if TYPE_CHECKING:
    from tests.engine.playing import Played
    from tests.engine.programs import Node
    from tests.engine.simulated import CutStore

IN_A_STEP: list[Node] = [("seq", [("step", "unit", 1), ("call", "look")]), ("seq", [("call", "put"), ("call", "chat")])]
BY_ITSELF: list[Node] = [("seq", [("call", "put"), ("call", "look")])]


def _resolving(play: Play, store: CutStore, to: desk.To) -> None:
    """Close the effect of `put` as soon as its first send is known to be lost: the ladder pauses before the next."""

    def look() -> None:
        kinds = [r.kind for r in store.records(play.run)]
        if any(kind.startswith("intent.rule_applied") for kind in kinds):
            store.on_commit = None
            asyncio.get_running_loop().call_soon(resolve)

    def resolve() -> None:
        beside = store.beside()
        open_ones = [i for i in newest_branch(folded(play.run, store.records(play.run))).intents() if i.open]
        for intent in open_ones:
            desk.resolve(beside, Door(beside), str(intent.id), to, by="outsider", why="looked", value=b"79")

    store.on_commit = look


@pytest.mark.parametrize("nodes", [IN_A_STEP, BY_ITSELF], ids=["in a step", "by itself"])
@pytest.mark.parametrize("to", ["landed", "abandoned"])
def test_resolved_while_the_ladder_pauses(nodes: list[Node], to: desk.To) -> None:
    """Landed is told at its place; abandoned ends the attempt, and the next one fails: wherever a crash falls."""

    async def one() -> None:
        play = Play(1, nodes, fails="lost")
        store = play.begin()
        _resolving(play, store, to)
        first = await play.go(store)
        assert first.how == "ended", first.details
        line = newest_branch(folded(play.run, first.records))
        step = line.steps["unit#0" if nodes is IN_A_STEP else "put#0"]
        states = [attempt.state.name for attempt in step.attempts]
        errors = [what[1] for what in first.seen if what[0] == "error"]
        if to == "landed":
            assert (states, errors) == (["SUCCEEDED"], [])
        elif nodes is IN_A_STEP:  # the step's code goes on after the error
            assert (states, errors) == (["INDETERMINATE", "SUCCEEDED"], [])
        else:
            assert (states, errors) == (["INDETERMINATE", "FAILED"], ["EffectAbandoned"])
        resolved = next(i for i, r in enumerate(first.records, 1) if r.kind.startswith("intent.resolved"))
        for at in first.cuts(resolved):
            again = await play.go(first.store.cut(play.run, at))
            assert (again.how, again.state) == ("ended", first.state), (at, again.details)
            assert again.seen == first.seen, f"cut at {at}: {difference(first.seen, again.seen)}"

    in_simulated_time(0, one)


def _open(play: Play, played: Played, at: int) -> set[str]:
    """Names of the tools that are their own step and were under way when the log was cut."""
    line = newest_branch(folded(play.run, played.records[:at]))
    return {s.name for s in line.steps.values() if s.last.state is AttemptState.RUNNING and s.kind != "step"}


@pytest.mark.parametrize("turns", [1, loop.SPIN])
def test_cancelled_while_nobody_drove_it(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is told of the cancellation at a place of the order, whatever the crash left under way."""
    nodes: list[Node] = [("seq", [("finally", [("gather", [("call", n) for n in ("look", "put", "chat")])])])]
    told = 0
    monkeypatch.setattr(loop, "SPIN", turns)

    async def one(seed: int) -> None:
        nonlocal told
        play = Play(seed, nodes, fails="")
        first = await play.go(play.begin())
        for at in first.cuts(2):
            store = first.store.cut(play.run, at)
            under_way = _open(play, first, at)
            desk.cancel(store, Door(store), play.run, by="outsider", why="no longer wanted")
            again = await play.go(store)
            assert (again.how, again.state) == ("ended", "CANCELLED"), again.details
            cancelled = {what[1] for what in again.seen if what[0] == "cancelled"}
            for name in under_way & {"look", "chat"}:
                assert name in cancelled, (at, again.seen)
                told += 1
            line = newest_branch(folded(play.run, again.records))
            assert all(i.state.name != "DISPATCHED" for i in line.intents() if i.pending.tool in {"look", "chat"})

    for seed in range(8):
        in_simulated_time(seed, partial(one, seed))
    assert told > 20


def test_a_resolution_is_the_first_one() -> None:
    async def one() -> None:
        play = Play(1, BY_ITSELF, fails="lost")
        store = play.begin()
        _resolving(play, store, "landed")
        played = await play.go(store)
        assert played.how == "ended"
        intent = next(iter(newest_branch(folded(play.run, played.records)).intents()))
        with pytest.raises(Conflict):
            desk.resolve(store, Door(store), str(intent.id), "abandoned", by="another", why="looked too")

    in_simulated_time(0, one)
