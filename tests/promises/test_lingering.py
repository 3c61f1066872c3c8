"""A body that goes on after its run has ended: its end is recorded; until then nobody may say that it did nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import poimen
from poimen import effects
from poimen.kernel.intent import LateOutcome, Returned
from poimen.log.opening import open_store
from tests.promises.apart import events

if TYPE_CHECKING:
    from pathlib import Path


POIMEN = (sys.executable, "-m", "poimen", "--db")
GO = threading.Event()
ENTERED = threading.Event()


@poimen.tool(effect=effects.AT_MOST_ONCE, grace=0.05)
def telex(n: int) -> str:
    ENTERED.set()
    GO.wait(timeout=30)
    return f"sent {n}"


@poimen.workflow
async def flow(n: int) -> str:
    return await telex.aio(n)


@pytest.fixture(autouse=True)
def held() -> None:
    GO.clear()
    ENTERED.clear()


async def cancelled(runtime: poimen.Runtime) -> None:
    """A run that has ended while its body goes on."""
    run = await runtime.start(flow(1), run_id="r")
    await asyncio.to_thread(ENTERED.wait, 30)
    await run.cancel("enough")
    with pytest.raises(poimen.RunCancelled):
        await run.result(timeout=30)


def late(db: Path) -> list[LateOutcome]:
    return [event for event in events(db) if isinstance(event, LateOutcome)]


def test_leaving_waits_for_the_end_of_a_body_that_was_given_up(tmp_path: Path) -> None:
    db = tmp_path / "p.db"

    async def main() -> None:
        async with poimen.Runtime(str(db), drain=30) as runtime:
            await cancelled(runtime)
            asyncio.get_running_loop().call_later(0.05, GO.set)

    asyncio.run(main())
    assert [type(event.outcome) for event in late(db)] == [Returned]


def test_what_is_left_behind_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    db = tmp_path / "p.db"

    async def main() -> None:
        async with poimen.Runtime(str(db), drain=0) as runtime:
            await cancelled(runtime)

    asyncio.run(main())
    GO.set()
    assert "the end of what still runs will not be on record: r/telex#0/1/0" in caplog.text
    assert late(db) == []


def test_nobody_says_not_landed_while_the_body_runs(tmp_path: Path) -> None:
    db = tmp_path / "p.db"

    async def main() -> None:
        async with poimen.Runtime(str(db), drain=30) as runtime:
            await cancelled(runtime)
            (item,) = [item async for item in runtime.inbox()]
            with pytest.raises(poimen.PoimenError, match="is running"):
                await runtime.resolve(item.id, "not_landed", by="op", why="hope", expect_lsn=item.lsn)
            said = await asyncio.to_thread(
                subprocess.run,
                [*POIMEN, str(db), "inbox", "resolve", item.id, "--not-landed", "--why", "hope", "--confirm", item.id],
                capture_output=True,
                text=True,
                check=False,
            )
            assert said.returncode == 5, said
            assert "is running" in said.stderr
            GO.set()

    asyncio.run(main())
    (end,) = late(db)
    assert isinstance(end.outcome, Returned)


def test_after_its_end_the_run_is_let_go_of(tmp_path: Path) -> None:
    db = tmp_path / "p.db"

    async def main() -> str:
        async with poimen.Runtime(str(db), drain=30) as runtime:
            await cancelled(runtime)
            held = runtime.store.head("r")
            GO.set()
            run = await runtime.get("r")
            async for record in run.events(after=held.lsn if held else 0, follow=False):
                del record
            while (head := runtime.store.head("r")) is not None and head.worker:
                await asyncio.sleep(0)
            assert held is not None
            return held.worker

    assert asyncio.run(main()) != ""


def test_poimen_run_waits_for_it_too(tmp_path: Path) -> None:
    db = tmp_path / "p.db"

    async def cancel() -> None:
        async with poimen.Client(str(db)) as client:
            run = await client.get("r")
            await run.cancel("enough")

    def ended() -> None:
        ENTERED.wait(timeout=30)
        asyncio.run(cancel())
        threading.Timer(0.6, GO.set).start()

    other = threading.Thread(target=ended)
    other.start()
    with pytest.raises(poimen.RunCancelled):
        poimen.run(flow(1), db=str(db), run_id="r")
    other.join()
    assert [type(event.outcome) for event in late(db)] == [Returned]


@pytest.mark.parametrize("given_up", [False, True])
def test_a_body_that_outlives_its_runtime_keeps_the_run_for_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, given_up: bool
) -> None:
    db = tmp_path / "p.db"

    async def main() -> None:
        async with poimen.Runtime(str(db), drain=0) as runtime:
            if given_up:
                await cancelled(runtime)
            else:
                await runtime.start(flow(1), run_id="r")
                await asyncio.to_thread(ENTERED.wait, 30)

    asyncio.run(main())
    assert "r/telex#0/1/0" in caplog.text
    store = open_store(str(db))
    try:
        head = store.head("r")
        assert head is not None and head.worker
        assert store.alive(head.worker)
        assert store.claim("r", worker="other", lease_s=1) is None
    finally:
        store.close()
        GO.set()


def test_a_call_that_returns_against_what_was_said_of_it_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    db = tmp_path / "p.db"

    async def main() -> None:
        async with poimen.Runtime(str(db), drain=30) as runtime:
            await cancelled(runtime)
            (item,) = [item async for item in runtime.inbox()]
            await runtime.resolve(item.id, "abandoned", by="op", why="nobody knows", expect_lsn=item.lsn)
            GO.set()

    asyncio.run(main())
    assert [type(event.outcome) for event in late(db)] == [Returned]
    assert (
        "r/main/telex#0/1/0: resolved as abandoned by op, and then came a call that had returned: look at the far side"
        " (poimen intents show r/main/telex#0/1/0)"
    ) in caplog.text


def test_an_end_that_agrees_is_no_alarm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    db = tmp_path / "p.db"

    async def main() -> None:
        async with poimen.Runtime(str(db), drain=30) as runtime:
            await cancelled(runtime)
            GO.set()

    asyncio.run(main())
    assert [type(event.outcome) for event in late(db)] == [Returned]
    assert "look at the far side" not in caplog.text
