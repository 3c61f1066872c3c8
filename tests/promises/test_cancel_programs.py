"""A cancellation behind any commit of random concurrent programs, and a crash behind any commit of what follows."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from poimen.engine import desk
from poimen.kernel.attempt import AttemptState
from poimen.kernel.branch import BranchState
from poimen.kernel.views import newest_branch
from poimen.log.writer import Door
from tests.cases.holding import stopped_well
from tests.engine.playing import Play, Watched
from tests.engine.programs import REGISTRY
from tests.engine.simulated import CutStore, Driven, drive, events_of, folded, in_simulated_time

if TYPE_CHECKING:
    from tests.conftest import Scale, Seeds

CHUNKS = 4


async def cancelled(play: Play, store: CutStore, at: int) -> Driven:
    """Drive a run that an outsider cancels right after its `at`-th commit from now."""
    loop, left = asyncio.get_running_loop(), at

    def ask() -> None:
        beside = store.beside()
        desk.cancel(beside, Door(beside), play.run, by="outsider", why="enough")

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            loop.call_soon(ask)

    store.on_commit = count
    driven = await driven_on(play, store)
    store.on_commit = None
    return driven


async def driven_on(play: Play, store: CutStore) -> Driven:
    play.cell.watched = watched = Watched()
    return await drive(store, play.run, REGISTRY, claimed=watched.by)


def checked(play: Play, driven: Driven) -> BranchState:
    """The run has ended as a cancelled one must, or had ended before."""
    assert driven.how in {"ended", "waiting"}, driven.how
    view = folded(play.run, driven.store.records(play.run))
    line = newest_branch(view)
    records = driven.store.records(play.run)
    if line.state is BranchState.WAITING:  # it came to rest before the request
        assert not line.cancel_lsn or line.cancel_lsn == len(records)
        return line.state
    stopped_well(line, list(zip([r.epoch for r in records], events_of(records), strict=True)))
    if not line.unresolved():
        indeterminate = [
            attempt
            for step in line.steps.values()
            for attempt in step.attempts
            if attempt.state is AttemptState.INDETERMINATE
            and not any(i.resolution is not None for i in attempt.intents.values())
        ]
        assert indeterminate == []
    return line.state


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_behind_any_commit(chunk: int, scale: Scale, seeds: Seeds) -> None:
    ends: list[BranchState] = []

    async def one(seed: int) -> None:
        play = Play(seed)
        commits = len((await play.go(play.begin())).store.commits)
        at = play.cell.chance.randrange(1, max(commits, 2))
        driven = await cancelled(play, play.begin(), at)
        if (
            checked(play, driven) is BranchState.WAITING
            and newest_branch(folded(play.run, driven.store.records(play.run))).cancel_lsn
        ):
            driven = await driven_on(play, driven.store)
        ends.append(checked(play, driven))
        records = driven.store.records(play.run)
        asked = next((n for n, r in enumerate(records, 1) if r.kind.startswith("cancel.requested")), 0)
        if not asked or ends[-1] is BranchState.WAITING:
            return
        cuts = [n for n in driven.store.commits if asked <= n < len(records)]
        again = await drive(driven.store.cut(play.run, play.cell.chance.choice(cuts)), play.run, REGISTRY)
        assert checked(play, again) is BranchState.CANCELLED

    for n in seeds(scale(200, 5_000), start=chunk, step=CHUNKS):
        in_simulated_time(50_000 + n, partial(one, 50_000 + n))
    assert ends.count(BranchState.CANCELLED) > len(ends) // 2
