"""A second process on the same database leaves a live run alone, and takes it at once when its driver is dead (C24)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

import poimen
from poimen import clock
from poimen.testing import Rendezvous, child_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AT_ONCE_S = 2.0


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "poimen.db"


@pytest.fixture
def meeting(tmp_path: Path) -> Iterator[Rendezvous]:
    with Rendezvous(tmp_path / "meeting") as made:
        yield made


@pytest.fixture
def first(db: Path, meeting: Rendezvous) -> Iterator[subprocess.Popen[bytes]]:
    """A process that drives run `r` and stands still in the middle of its effect."""
    command = child_command("tests.crash.programs:stands_still", args=(str(meeting.folder),), db=db, run_id="r")
    with subprocess.Popen(command) as process:
        try:
            meeting.met()
            yield process
        finally:
            process.kill()


async def resumed(run: poimen.Run[object]) -> None:
    async for record in run.events(follow=True):
        if record.kind == "branch.resumed.v1":
            return


def test_a_live_run_is_not_adopted_and_a_dead_one_is_at_once_c24(
    db: Path, first: subprocess.Popen[bytes], meeting: Rendezvous
) -> None:
    async def second() -> float:
        async with poimen.Runtime(str(db), modules=["tests.crash.programs"]) as runtime:
            worker = runtime._worker
            assert worker is not None
            before = runtime.store.head("r")
            for _ in range(20):
                worker._look_once()
                await asyncio.sleep(0)
                assert worker.claim("r") is None
            assert worker.drivers == {}
            assert runtime.store.head("r") == before
            assert first.poll() is None

            run = await runtime.get("r")
            died = clock.monotonic()
            os.kill(first.pid, signal.SIGKILL)
            assert await asyncio.to_thread(first.wait) == -signal.SIGKILL
            await asyncio.wait_for(resumed(run), 30)
            taken = clock.monotonic() - died
            with pytest.raises(poimen.RunWaiting):
                await asyncio.wait_for(run.result(waiting="raise"), 30)
            after = runtime.store.head("r")
            assert before is not None
            assert after is not None
            assert after.epoch == before.epoch + 1
            return taken

    assert asyncio.run(second()) < AT_ONCE_S


def test_of_two_runs_of_one_id_the_second_waits_and_takes_over_when_the_first_is_gone(
    db: Path, first: subprocess.Popen[bytes], meeting: Rendezvous
) -> None:
    command = child_command("tests.crash.programs:stands_still", args=(str(meeting.folder),), db=db, run_id="r")
    with subprocess.Popen(command, stderr=subprocess.PIPE) as other:
        first.kill()
        first.wait()
        _, said = other.communicate(timeout=60)
    assert other.returncode == 4
    assert b"poimen inbox show r/main/stand_still#0/1/0" in said


def test_the_live_one_ends_its_run_undisturbed(db: Path, first: subprocess.Popen[bytes], meeting: Rendezvous) -> None:
    async def watched() -> object:
        async with poimen.Runtime(str(db), modules=["tests.crash.programs"]) as runtime:
            run = await runtime.get("r")
            meeting.let_go()
            return await asyncio.wait_for(run.result(), 30)

    assert asyncio.run(watched()) == "stood"
    assert first.wait(timeout=30) == 0
