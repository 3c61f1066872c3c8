"""Whoever waits in the process that drives a run is told how it ended: he does not look again and again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen.engine import worker
from poimen.engine.eventloop.waiters import Waiters
from poimen.kernel.errors import StorageFailed
from tests.cases import agents
from tests.cases.agents import world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cases.world import Case


@pytest.fixture(autouse=True)
def outside(case: Case) -> Iterator[None]:
    """The tools of this process leave their lines with the case's witness."""
    world.witness = str(case.witness)
    yield
    world.meetings = {}


class Counted:
    """Counts what is read of a log."""

    def __init__(self, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = self.heads = 0
        read, head = store.read, store.head

        def reads(*args: Any, **kwargs: Any) -> Any:
            found = read(*args, **kwargs)
            self.records += len(found)
            return found

        def heads(run: str) -> Any:
            self.heads += 1
            return head(run)

        monkeypatch.setattr(store, "read", reads)
        monkeypatch.setattr(store, "head", heads)


def test_the_end_is_told_and_the_run_is_not_read_again(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> tuple[int, int]:
        async with poimen.Runtime(str(case.db), modules=[agents]) as runtime:
            counted = Counted(runtime.store, monkeypatch)
            run = await runtime.start(agents.fan(20), run_id="r")
            assert await run.result() == list(range(20))
            total = runtime.store.head("r")
            assert total is not None
            return counted.records, total.lsn

    read, written = asyncio.run(main())
    assert written > 60
    assert read < 10


def test_waiting_does_not_look_again_and_again(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "WATCH_S", 0.0)

    async def main() -> int:
        world.meetings["row"] = meeting = agents.Meeting()
        async with poimen.Runtime(str(case.db), modules=[agents], concurrency=1) as runtime:
            runs = [await runtime.start(agents.one_row(n), run_id=f"r{n}") for n in range(3)]
            results = [asyncio.ensure_future(run.result()) for run in runs]
            await meeting.entered.wait()
            counted = Counted(runtime.store, monkeypatch)
            for _ in range(100):
                await asyncio.sleep(0)
            looked = counted.heads
            meeting.go.set()
            assert await asyncio.gather(*results) == [0, 1, 2]
            return looked

    assert asyncio.run(main()) == 0


def test_whoever_waits_is_told_that_the_worker_has_stopped(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "RENEW_S", 0.01)

    async def main() -> None:
        world.meetings["row"] = meeting = agents.Meeting()
        async with poimen.Runtime(str(case.db), modules=[agents], concurrency=1, drain=0) as runtime:
            runs = [await runtime.start(agents.one_row(n), run_id=f"r{n}") for n in range(2)]
            results = [asyncio.ensure_future(run.result(timeout=30)) for run in runs]
            await meeting.entered.wait()

            def broken(*_args: object, **_kwargs: object) -> None:
                raise StorageFailed("the disk is gone")

            monkeypatch.setattr(runtime.store, "renew", broken)
            for result in results:
                with pytest.raises(StorageFailed, match="the disk is gone"):
                    await result
            monkeypatch.undo()

    asyncio.run(main())


def test_giving_up_waiting_leaves_nobody_behind() -> None:
    async def main() -> dict[str, Any]:
        waiters = Waiters()
        assert await waiters.rest("r", 0.0) is None
        first, second = (asyncio.ensure_future(waiters.rest("r", None)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        waiters.tell("other")
        waiters.tell("r")
        assert await second is None
        return waiters._waiting

    assert asyncio.run(main()) == {}
