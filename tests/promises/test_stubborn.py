"""Coroutines that swallow their cancellation for ever: nobody waits for them without end, and they are told by name."""

from __future__ import annotations

import asyncio
import signal
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import poimen
from poimen import effects
from poimen.engine import runtime as engine_runtime
from poimen.engine.eventloop import whole
from tests.promises.apart import play

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

ENTERED = threading.Event()
ENOUGH = threading.Event()
"""The body may end now: for the tests whose loop is not poimen's."""

LEFT: list[object] = []


async def swallow() -> None:
    """Go on whatever it is told."""
    ENTERED.set()
    while not ENOUGH.is_set():
        try:
            LEFT.append(never := asyncio.Event())  # else nobody could wake it, and it would be garbage
            await never.wait()
        except BaseException:  # noqa: BLE001 (that is what such code does)
            continue


async def asks_for_ever(n: int) -> effects.Landed[str] | effects.Absent | effects.Unknown:
    await swallow()
    return effects.Unknown("never")


@poimen.tool(effect=effects.PROBE(asks_for_ever, lag=timedelta(0)), timeout=0.05, grace=0.05)
async def loses_its_answer(n: int) -> str:
    raise RuntimeError("the answer was lost")


@poimen.tool(effect=effects.AT_MOST_ONCE, timeout=0.05, grace=0.05)
async def acts_for_ever(n: int) -> str:
    await swallow()
    return "never"


@poimen.tool(effect=effects.PURE, timeout=0.05, grace=0.05)
async def computes_for_ever(n: int) -> str:
    await swallow()
    return "never"


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def leaves_one_behind(n: int) -> str:
    LEFT.append(asyncio.get_running_loop().create_task(swallow()))
    await asyncio.sleep(0)
    return f"left {n}"


@poimen.workflow
async def asking(n: int) -> str:
    return await loses_its_answer(n)


@poimen.workflow
async def acting(n: int) -> str:
    return await acts_for_ever(n)


@poimen.workflow
async def computing(n: int) -> str:
    return await computes_for_ever(n)


@poimen.workflow
async def leaving(n: int) -> str:
    return await leaves_one_behind(n)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(whole, "STOP_S", 0.1)
    monkeypatch.setattr(engine_runtime, "DRAIN_S", 0.1)
    ENTERED.clear()
    ENOUGH.clear()
    yield
    ENOUGH.set()


def cancelled_once(entered: str, db: str) -> threading.Thread:
    """Cancels the run, from a thread of its own, once what it calls is at work."""

    async def cancel() -> None:
        async with poimen.Client(db) as client:
            await (await client.get("r")).cancel(entered)

    def whole_of_it() -> None:
        ENTERED.wait(30)
        asyncio.run(cancel())

    thread = threading.Thread(target=whole_of_it)
    thread.start()
    return thread


def test_a_probe_that_does_not_stop_holds_up_no_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    db = str(tmp_path / "p.db")
    other = cancelled_once("enough", db)
    with pytest.raises(poimen.RunCancelled):
        poimen.run(asking(1), db=db, run_id="r")
    other.join()
    told = [record.getMessage() for record in caplog.records]
    assert any(t.startswith("the probe of r/main/loses_its_answer#0/1/0 goes on although") for t in told), told
    assert "although it was cancelled: the probe of r/main/loses_its_answer#0/1/0" in told[-1], told


def test_an_effect_that_does_not_stop_holds_up_no_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(poimen.RunWaiting):
        poimen.run(acting(1), db=str(tmp_path / "p.db"), run_id="r")
    assert "the end of what still runs will not be on record: r/acts_for_ever#0/1/0" in caplog.text
    assert "left behind, since it goes on although it was cancelled: r/main/acts_for_ever#0/1/0" in caplog.text


def test_a_computation_that_does_not_stop_holds_up_no_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(poimen.RunFailed):
        poimen.run(computing(1), db=str(tmp_path / "p.db"), run_id="r")
    assert "left behind, since it goes on although it was cancelled: r/main/computes_for_ever#0/1" in caplog.text


def test_what_a_body_began_and_left_is_told_by_its_own_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert poimen.run(leaving(1), db=str(tmp_path / "p.db"), run_id="r") == "left 1"
    assert "left behind, since it goes on although it was cancelled: swallow" in caplog.text


def test_where_a_loop_runs_already_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """There a thread and a loop of its own are used."""

    async def main() -> None:
        with pytest.raises(poimen.RunWaiting):
            poimen.run(acting(1), db=str(tmp_path / "p.db"), run_id="r")

    asyncio.run(main())
    assert "left behind" in caplog.text


@pytest.mark.parametrize("workflow", [asking, acting, computing])
def test_a_runtime_closes_in_a_loop_that_is_not_its_own(tmp_path: Path, workflow: object) -> None:
    async def main() -> None:
        async with poimen.Runtime(str(tmp_path / "p.db"), drain=0.1) as runtime:
            await runtime.start(workflow(1), run_id="r")  # type: ignore[operator]
            await asyncio.to_thread(ENTERED.wait, 30)
        assert not ENOUGH.is_set()
        ENOUGH.set()  # the end of this loop is not poimen's: it would wait

    asyncio.run(main())


def test_a_second_interrupt_leaves_it_behind_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(whole, "STOP_S", 600.0)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        held.append(loop.create_task(swallow(), name="the stubborn one"))
        loop.call_later(0.1, signal.raise_signal, signal.SIGINT)  # this one has ended by then
        await asyncio.sleep(0)

    held: list[object] = []
    with pytest.raises(KeyboardInterrupt):
        whole.run_whole(main())
    assert "left behind, since it goes on although it was cancelled: the stubborn one" in caplog.text


def test_what_stops_when_it_is_told_has_its_time(caplog: pytest.LogCaptureFixture) -> None:
    """Its own end, and that of a generator that nobody has driven to its end, come before the loop's."""
    ended: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            ended.append("generator")

    async def tidy(kept: AsyncIterator[int]) -> None:
        try:
            await anext(kept)
            await asyncio.Event().wait()
        finally:
            await asyncio.create_task(asyncio.sleep(0))
            ended.append("coroutine")

    async def main() -> str:
        held.append(asyncio.create_task(tidy(kept)))
        await asyncio.sleep(0)
        return "done"

    kept, held = numbers(), list[object]()
    assert whole.run_whole(main()) == "done"
    assert ended == ["coroutine", "generator"]
    assert caplog.text == ""


PROGRAM = """
import asyncio
import poimen
from poimen import effects
from poimen.engine.eventloop import whole

whole.STOP_S = 0.1
kept = []

async def for_ever():
    while True:
        try:
            kept.append(asyncio.Event())
            await kept[-1].wait()
        except BaseException:
            continue

@poimen.tool(effect=effects.PURE, timeout=0.05, grace=0.05)
async def stubborn() -> str:
    await for_ever()

@poimen.workflow
async def flow() -> str:
    try:
        await stubborn()
    except Exception as error:
        return type(error).__name__

print(poimen.run(flow(), db="p.db", run_id="r"))
"""


def test_the_process_ends_too(tmp_path: Path) -> None:
    """Where nothing catches a closing coroutine: garbage collection and the interpreter's end would spin in it."""
    done = play(tmp_path, PROGRAM)
    assert (done.returncode, done.stdout) == (0, "TimeoutError\n"), done
    assert "left behind, since it goes on although it was cancelled: r/main/stubborn#0/1" in done.stderr
    assert "Task was destroyed" not in done.stderr
