"""A body that is told to stop: before its first line, in its grace, past it; and the driver itself."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import effects
from poimen.declare.calling import Current
from poimen.declare.specs import ToolSpec, spec_of
from poimen.engine.driving.scopes import BodyScope
from poimen.engine.runtime import _run
from poimen.gate import _call
from poimen.kernel.attempt import AttemptState
from poimen.kernel.branch import BranchState
from poimen.kernel.intent import IntentClassified, IntentDispatched, LateOutcome, Resolution
from tests.cases import agents
from tests.cases.agents import world
from tests.cases.holding import sound, stage

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.cases.world import Case, Log

GATE: dict[str, threading.Event] = {}


@poimen.tool(effect=effects.KEYED(ttl=timedelta(hours=1)), grace=0.05)
def press(button: str) -> str:
    """A plain function, which nobody can interrupt."""
    world.mark("press", button)
    GATE["entered"].set()
    GATE["go"].wait()
    return f"pressed {button}"


@poimen.tool(effect=effects.KEYED(ttl=timedelta(hours=1)), grace=0.05)
async def touch(button: str) -> str:
    world.mark("touch", button)
    return f"touched {button}"


@poimen.workflow
async def pressing() -> str:
    return await press.aio("red")


def opened(tool: Any, threads: ThreadPoolExecutor) -> _call.OpenCall:
    spec = spec_of(tool)
    assert isinstance(spec, ToolSpec)
    where = Current(run_id="r", branch_id="main", step="s", attempt=1, cancelling=None)
    return _call.OpenCall(
        spec.token,
        ("red",),
        {},
        is_async=spec.is_async,
        caller=BodyScope(where, "id", probing=False),
        threads=threads,
        what="r/main/s/1/0",
    )


@pytest.mark.parametrize("why", ["cancel", "timeout"])
def test_a_coroutine_that_has_not_begun_was_never_sent(case: Case, why: _call.Stop) -> None:
    world.witness = str(case.witness)

    async def main() -> _call.Ended:
        with ThreadPoolExecutor(1) as threads:
            call = opened(touch, threads)
            call.stop(why, 5.0)
            return await call.end(timeout_s=5.0, grace_s=5.0)

    ended = asyncio.run(main())
    assert isinstance(ended, _call.Raised) and isinstance(ended.error, poimen.NotSent)
    assert ended.told_to_stop == why
    assert case.lines() == []


def test_a_plain_function_that_waits_for_a_thread_was_never_sent(case: Case) -> None:
    world.witness = str(case.witness)
    GATE.update(entered=threading.Event(), go=threading.Event())

    async def main() -> tuple[_call.Ended, _call.Ended]:
        with ThreadPoolExecutor(1) as threads:
            first, second = opened(press, threads), opened(press, threads)
            await asyncio.to_thread(GATE["entered"].wait)
            second.stop("cancel", 5.0)
            GATE["go"].set()
            return (
                await first.end(timeout_s=5.0, grace_s=5.0),
                await second.end(timeout_s=5.0, grace_s=5.0),
            )

    first, second = asyncio.run(main())
    assert first == _call.Value("pressed red")
    assert isinstance(second, _call.Raised) and isinstance(second.error, poimen.NotSent)
    assert len(case.lines("press")) == 1


@pytest.mark.parametrize("ends", ["in its grace", "late"])
def test_a_plain_function_is_followed_to_its_end(case: Case, ends: str) -> None:
    GATE.update(entered=threading.Event(), go=threading.Event())

    async def main() -> tuple[Log, Log]:
        async with stage(case) as at:
            await at.start(pressing())
            await asyncio.to_thread(GATE["entered"].wait)
            await at.cancel("here")
            if ends == "in its grace":
                GATE["go"].set()
            assert await at.end() is poimen.RunCancelled
            log = at.log()
            GATE["go"].set()
            if ends == "late":
                await at.door.landed("r", LateOutcome)
            return log, at.log()

    log, later = asyncio.run(main())
    sound(log)
    assert log.line.state is BranchState.CANCELLED
    assert len(case.lines("press")) == 1
    if ends == "late":
        assert log.attempt("press#0").state is AttemptState.INDETERMINATE
        resolution = later.intent("press#0").resolution
        assert resolution is not None and (resolution.to, resolution.by) == (Resolution.LANDED, "late")
        assert (len(log.inbox), later.inbox) == (1, [])
    else:
        assert log.attempt("press#0").state in {AttemptState.SUCCEEDED, AttemptState.INDETERMINATE}


def test_a_plain_function_that_ends_when_the_log_is_closed_is_told_in_a_warning(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    world.witness = str(case.witness)
    GATE.update(entered=threading.Event(), go=threading.Event())

    async def main() -> None:
        async with poimen.Runtime(str(case.db), modules=[sys.modules[__name__]], drain=0) as runtime:
            await runtime.start(pressing(), run_id="r")
            await asyncio.to_thread(GATE["entered"].wait)
            assert runtime._worker is not None
            threads = runtime._worker.threads
        GATE["go"].set()
        await asyncio.to_thread(threads.shutdown, wait=True)
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(main())
    told = [(record.levelname, record.getMessage()) for record in caplog.records if record.args]
    assert [level for level, _ in told] == ["WARNING", "WARNING"]
    assert "the end of what still runs will not be on record: r/press#0/1/0" in told[0][1]
    assert "the end of r/press#0/1/0 came when the log was closed" in told[1][1]
    assert case.log("r").intent("press#0").open


def test_whoever_drives_may_be_interrupted_anywhere(case: Case) -> None:
    """The coroutine behind `poimen.run` is cancelled after any number of turns of its loop: no record is lost."""
    world.witness = str(case.witness)

    def work(run_id: str) -> Coroutine[Any, Any, Any]:
        call = agents.notifying("bob", 0)
        return _run(call, db=str(case.db), run_id=run_id, timeout=None, budget=None, tags=None)

    async def interrupted(run_id: str, turns: int) -> bool:
        running = asyncio.ensure_future(work(run_id))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        try:
            await running
        except asyncio.CancelledError:
            return True
        return False

    async def main() -> list[bool]:
        cut = [await interrupted(f"r{n}", n) for n in range(1, 60, 2)]
        for n in range(1, 60, 2):
            if case.db.exists():
                assert await work(f"r{n}") == ["mailed bob", "1", "third"]
        return cut

    cut = asyncio.run(main())
    assert any(cut)
    for n in range(1, 60, 2):
        log = case.log(f"r{n}")
        sound(log)
        assert log.line.state is BranchState.SUCCEEDED
        assert len(log.all(IntentDispatched)) <= 3 + len(log.all(IntentClassified))
    mails = [line["id"] for line in case.lines("mail")]
    assert len(mails) == len(set(mails)) == 30
