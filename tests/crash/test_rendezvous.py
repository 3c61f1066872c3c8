"""Two parties meet: threads, coroutines, processes; nobody sleeps, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from poimen.testing import Rendezvous

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[Rendezvous, Rendezvous]]:
    with Rendezvous(tmp_path / "meeting") as mine, Rendezvous(tmp_path / "meeting") as its:
        yield mine, its


def test_a_thread_stands_still_until_it_is_let_go(ends: tuple[Rendezvous, Rendezvous]) -> None:
    mine, its = ends
    passed: list[str] = []

    def party() -> None:
        its.arrive()
        passed.append("first")
        its.arrive()
        passed.append("second")

    thread = threading.Thread(target=party)
    thread.start()
    mine.met()
    assert passed == []
    mine.let_go()
    mine.met()
    assert passed == ["first"]
    mine.let_go()
    thread.join(30)
    assert passed == ["first", "second"]


def test_coroutines_meet_without_blocking_their_loop(ends: tuple[Rendezvous, Rendezvous]) -> None:
    mine, its = ends

    async def go() -> list[str]:
        passed: list[str] = []

        async def party() -> None:
            await its.arrive_async()
            passed.append("gone")

        other = asyncio.create_task(party())
        await mine.met_async()
        assert passed == []
        mine.let_go()
        await other
        return passed

    assert asyncio.run(go()) == ["gone"]


def test_what_was_said_before_the_other_came_is_kept(ends: tuple[Rendezvous, Rendezvous]) -> None:
    mine, its = ends
    mine.let_go()
    its.arrive()
    mine.met()


def test_nobody_waits_for_ever(ends: tuple[Rendezvous, Rendezvous]) -> None:
    mine, its = ends
    with pytest.raises(TimeoutError, match=r"saw nobody for 0\.01 s"):
        mine.met(timeout_s=0.01)
    with pytest.raises(TimeoutError, match=r"was not let go for 0\.01 s"):
        its.arrive(timeout_s=0.01)

    async def go() -> None:
        await mine.met_async()  # the one above did arrive
        with pytest.raises(TimeoutError, match="saw nobody"):
            await mine.met_async(timeout_s=0.01)
        with pytest.raises(TimeoutError, match="was not let go"):
            await its.arrive_async(timeout_s=0.01)

    asyncio.run(go())


def test_a_closed_end_says_nothing_more(tmp_path: Path) -> None:
    meeting = Rendezvous(tmp_path)
    meeting.close()
    meeting.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        meeting.let_go()
