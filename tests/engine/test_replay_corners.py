"""Corners of the order that random programs reach too seldom, each with a program of its own."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from poimen.blobs.tables import TieredBlobs
from poimen.engine import desk
from poimen.engine.worker import Worker
from poimen.kernel.attempt import AttemptState
from poimen.kernel.events import BranchResumed
from poimen.kernel.views import newest_branch
from poimen.log.writer import Door
from tests.engine.playing import Play, Watched, difference
from tests.engine.programs import REGISTRY, State, cancels_twice, mixed, plain_program
from tests.engine.simulated import folded, in_simulated_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from poimen.kernel.views import BranchView
    from tests.engine.playing import Played
    from tests.engine.programs import Node
    from tests.engine.simulated import CutStore


def _calls(*names: str) -> list[Node]:
    return [("call", name) for name in names]


def _line(play: Play, played: Played) -> BranchView:
    return newest_branch(folded(play.run, played.records))


def _at_commit(store: CutStore, n: int, act: Callable[[CutStore], None]) -> None:
    """Let another process act on the log right after its `n`-th commit from now, before anybody is told of that."""
    left = n

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            store.on_commit = None
            act(store.beside())

    store.on_commit = count


def _cancel(run: str, beside: CutStore) -> None:
    desk.cancel(beside, Door(beside), run, by="outsider", why="no longer wanted")


# ---- a cancel between any two commits --------------------------------------------------------------------------------

CANCELLED: dict[str, list[Node]] = {
    "calls at once": [
        ("gatherx", [*_calls("look", "put", "pay", "chat"), ("step", "unit", 1)]),
        ("seq", _calls("put")),
    ],
    "called off by the code": [
        (
            "seq",
            [
                ("timeout", 0.0004, [("gather", _calls("look", "put", "pay", "chat"))]),
                ("wait", 1, _calls("look", "chat")),
            ],
        )
    ],
    "one after another": [
        ("seq", [*_calls("put", "look"), ("step", "stubborn", 1)]),
        ("gatherx", _calls("put", "look")),
    ],
}


@pytest.mark.parametrize("name", CANCELLED)
@pytest.mark.parametrize("recovered", [False, True])
def test_a_cancel_at_every_commit(name: str, recovered: bool) -> None:
    """Whatever lies below an outsider's record when it is folded, the view stays the fold and the branch ends."""
    ends: list[str] = []

    async def one(seed: int) -> None:
        play = Play(seed, CANCELLED[name], fails="lost")
        first = await play.go(play.begin())
        at = first.cuts()[len(first.cuts()) // 2]
        for n in range(1, len(first.cuts())):
            store = first.store.cut(play.run, at) if recovered else play.begin()
            _at_commit(store, n, partial(_cancel, play.run))
            played = await play.go(store)
            line = _line(play, played)
            assert played.how == "ended", played.details
            if line.cancel_lsn:
                assert played.state == "CANCELLED"  # an end that did not see the cancel is refused
            assert all(step.last.state.name != "RUNNING" for step in line.steps.values())
            ends.append(played.state)

    for seed in range(3):
        in_simulated_time((name, seed), partial(one, seed))
    assert ends.count("CANCELLED") > 10


def test_what_is_acted_upon_while_a_commit_is_told_is_folded_in_its_place() -> None:
    """Two batches in one commit above a cancel: telling of the first one commits a third before the second is told."""

    async def one() -> None:
        play = Play(1, [("seq", [("sleep", 0.001), ("sleep", 3600.0)])], fails="")
        store = play.begin()
        worker = Worker(store, TieredBlobs(store, None), REGISTRY, concurrency=1)
        play.cell.watched = Watched()
        driver = worker.claim(play.run)
        assert driver is not None
        play.cell.watched.by(driver)
        while not any(r.kind.startswith("timer.fired") for r in store.records(play.run)):
            await asyncio.sleep(0)
        _cancel(play.run, store.beside())
        worker.open_guards = 2  # as while effects are at work: what one turn submits shares a commit
        again = BranchResumed(epoch=driver.epoch, worker=worker.id, code=worker.code, why="woken")
        driver.submit((again,))
        driver.submit((again,))
        worker.open_guards = 1
        await driver.done
        assert driver.error is None
        records = store.records(play.run)
        assert driver.view == folded(play.run, records)
        kinds = [r.kind.partition(".v")[0] for r in records][-5:]
        assert kinds == ["cancel.requested", "branch.resumed", "branch.resumed", "cancel.delivered", "branch.ended"]
        await worker.close(drain_s=0.0)

    in_simulated_time(0, one)


# ---- reads -----------------------------------------------------------------------------------------------------------


def _after_the_last(played: Played, kind: str) -> int:
    return max(i for i, r in enumerate(played.records, 1) if r.kind.startswith(kind))


@pytest.mark.parametrize("inside", [False, True])
def test_a_read_that_dies_again_and_again_is_an_error_at_last(inside: bool) -> None:
    """It leaves nothing unknown behind: nobody is asked, the code is told that it did not answer."""

    async def one() -> None:
        body: Node = ("seq", [("brief", "look", 30.0), ("call", "put")])
        play = Play(1, [("step", "unit", 1), body] if inside else [body], fails="")
        played = await play.go(play.begin())
        at = next(i for i, r in enumerate(played.records, 1) if r.kind.startswith("intent.dispatched"))
        for send in (2, 3):
            played = await play.go(played.store.cut(play.run, at))
            assert played.how == "ended"
            intent = next(i for i in _line(play, played).intents() if i.pending.tool == "look")
            assert len(intent.sends) == send
            at = intent.sends[-1].lsn
        played = await play.go(played.store.cut(play.run, at))
        assert (played.how, played.state) == ("ended", "SUCCEEDED"), played.details
        intent = next(i for i in _line(play, played).intents() if i.pending.tool == "look")
        assert (len(intent.sends), intent.timed_out) == (3, True)

    in_simulated_time(0, one)


@pytest.mark.parametrize("inside", [False, True])
def test_a_no_to_a_read_closes_it_whatever_became_of_the_send_before(inside: bool) -> None:
    async def one() -> None:
        body: Node = ("seq", _calls("look"))
        play = Play(1, [("step", "unit", 1), body] if inside else [body], fails="no")
        played = await play.go(play.begin())
        at = next(i for i, r in enumerate(played.records, 1) if r.kind.startswith("intent.dispatched"))
        before = len(play.cell.entered)
        again = await play.go(played.store.cut(play.run, at))
        assert (again.how, again.value) == ("ended", played.value)
        assert len(play.cell.entered) == before + 1

    in_simulated_time(0, one)


# ---- what an attempt takes over --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("to", "fails"), [("abandoned", ""), ("landed", "no")])
def test_what_came_back_counts_before_what_was_said_of_it(to: desk.To, fails: str) -> None:
    """An operator closes a call that is under way, and it comes back: the next attempt is told as the first one was."""

    async def one() -> int:
        tried_again = 0
        for seed in range(12):
            nodes: list[Node] = [("step", "stubborn", 1), ("seq", _calls("put", "look"))]
            play = Play(seed, nodes, fails=fails)
            undisturbed = await play.go(play.begin())

            def close(beside: CutStore, run: str = play.run) -> None:
                [intent] = [i for i in newest_branch(folded(run, beside.records(run))).intents() if i.open]
                desk.resolve(beside, Door(beside), str(intent.id), to, by="operator", why="too long", value=b"79")

            store = play.begin()
            dispatched = next(i for i, r in enumerate(undisturbed.records, 1) if r.kind.startswith("intent.dispatched"))
            _at_commit(store, undisturbed.store.commits.index(dispatched), close)
            before = len(play.cell.entered)
            played = await play.go(store)
            line = _line(play, played)
            assert any(i.resolution is not None for i in line.intents())
            assert (played.how, played.value) == ("ended", undisturbed.value), played.details
            assert [name for name, _, _ in play.cell.entered[before:]].count("put") == 1
            tried_again += len(line.steps["stubborn#0"].attempts) > 1
        return tried_again

    assert in_simulated_time(0, one) > 1


# ---- generators ------------------------------------------------------------------------------------------------------


def test_a_generator_that_is_kept_is_closed_when_the_body_has_ended() -> None:
    async def one() -> None:
        play = Play(3, [("seq", [("kept", _calls("put", "pay", "put")), *_calls("look")])], fails="")
        play.cell.seed = next(s for s in range(50) if _odd(s))
        played = await play.go(play.begin())
        assert played.seen[-1] == ("generator closed",)
        assert [what[0] for what in played.seen].count("yielded") == 1
        for at in played.cuts():
            again = await play.go(played.store.cut(play.run, at))
            assert again.seen == played.seen, f"cut at {at}: {difference(played.seen, again.seen)}"

    in_simulated_time(0, one)


def _odd(seed: int) -> bool:
    state = State(None, h=1, traced=False)  # type: ignore[arg-type]
    state.see("call", "put", 1)
    return bool(mixed(seed, "put", 1) % 100 * 7919 % 1000 % 2)


# ---- plain functions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_plain_functions_repeat_themselves_from_every_cut(seed: int) -> None:
    async def one() -> None:
        play = Play(seed, [()], workflow=plain_program, fails="always")
        first = await play.go(play.begin())
        assert first.how == "ended", first.details
        for at in first.cuts()[:: 1 + seed]:
            again = await play.go(first.store.cut(play.run, at))
            assert (again.how, again.value) == ("ended", first.value), again.details
            assert again.seen == first.seen, f"cut at {at}: {difference(first.seen, again.seen)}"
        before = len(play.cell.entered)
        cold = await play.go(first.store.cut(play.run, first.end))
        assert (cold.seen, cold.replayed) == (first.seen, len(first.seen))
        assert len(play.cell.entered) == before

    in_simulated_time(seed, one)


def test_a_plain_step_is_followed_to_its_end_however_often_it_is_cancelled() -> None:
    """Twice cancelled while its call is under way: its attempt ends after its code, and nothing is left running."""

    async def one() -> None:
        play = Play(5, [()], workflow=cancels_twice, fails="", slow=True)
        played = await play.go(play.begin())
        assert played.how == "ended", played.details
        line = _line(play, played)
        assert line.steps["stubborn_thread#0"].last.state is AttemptState.CANCELLED
        kinds = [r.kind.partition(".v")[0] for r in played.records]
        assert kinds.count("intent.committed") == 2  # what it still had to do was done
        assert kinds.index("attempt.cancelled") > max(i for i, kind in enumerate(kinds) if kind == "intent.committed")
        for at in played.cuts():
            again = await play.go(played.store.cut(play.run, at))
            assert again.how == "ended", again.details

    in_simulated_time(0, one)


def test_the_state_of_a_step_is_told_by_its_record() -> None:
    """A step whose start waits for company is known to its own code and to those who cancel it."""

    async def one() -> None:
        race: Node = ("wait", 1, [("sleep0", 2), ("step", "unit", 1), ("call", "calc")])
        play = Play(2, [race, ("seq", [("sleep", 0.05)])])
        played = await play.go(play.begin())
        assert played.how == "ended", played.details
        states = {step.key: step.last.state for step in _line(play, played).steps.values()}
        assert states["unit#0"] is AttemptState.CANCELLED
        await asyncio.sleep(0)

    in_simulated_time(0, one)
