"""What a worker looks for, what it leaves alone, and what one bad run may not do to the others."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import poimen
from poimen import clock
from poimen.engine import worker
from poimen.kernel.errors import Corrupt, StorageFailed
from poimen.kernel.ids import TRUNK
from poimen.kernel.intent import (
    IntentClaimed,
    IntentClassified,
    IntentCommitted,
    IntentDispatched,
    LateOutcome,
    NotSentOutcome,
    Returned,
    SendAnswered,
)
from poimen.log import codec
from poimen.log.api import Batch
from tests.cases import agents
from tests.cases.agents import world
from tests.cases.cancelling import alone
from tests.cases.holding import sound, stage

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from tests.cases.world import Case


@pytest.fixture(autouse=True)
def outside(case: Case, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tools of this process leave their lines with the case's witness; every look is a whole one."""
    world.witness = str(case.witness)
    monkeypatch.setattr(worker, "SCAN_S", 0.0)
    yield
    world.meetings = {}


@poimen.workflow
async def elsewhere(n: int) -> int:
    """Code that the runtimes of these tests do not load."""
    return n


def here(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def waiting_runs(case: Case, n: int) -> None:
    async with poimen.Client(str(case.db)) as client:
        for i in range(n):
            await client.start(agents.one_row(i), run_id=f"r{i}")


def test_runs_that_wait_for_a_slot_are_asked_for_once(case: Case) -> None:
    async def main() -> int:
        await waiting_runs(case, 12)
        world.meetings["row"] = meeting = agents.Meeting()
        async with poimen.Runtime(str(case.db), modules=[agents], concurrency=1) as runtime:
            await meeting.entered.wait()
            assert runtime._worker is not None
            for _ in range(3):
                runtime._worker._look_once()
                await asyncio.sleep(0)
            most = len(asyncio.all_tasks())
            meeting.go.set()
            for i in range(12):
                assert await (await runtime.get(f"r{i}")).result() == i
        return most

    assert here(main()) < 12 + 10
    assert len(case.lines("row")) == 12


def test_all_live_runs_are_looked_at_however_many(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "SCANNED", 3)

    async def main() -> None:
        async with poimen.Client(str(case.db)) as client:
            for i in range(7):
                await client.start(elsewhere(i), run_id=f"a{i}")
        await waiting_runs(case, 2)
        async with poimen.Runtime(str(case.db), modules=[agents]) as runtime:
            for i in range(2):
                await (await runtime.get(f"r{i}")).result()

    here(main())
    assert len(case.lines("row")) == 2
    assert [case.log(f"a{i}").names for i in range(7)] == [["RunAdmitted"]] * 7


def test_a_damaged_run_is_left_alone_and_the_others_go_on(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    here(waiting_runs(case, 3))
    connection = apsw.Connection(str(case.db))
    connection.execute(
        "UPDATE record SET body = CAST('{}' AS BLOB) WHERE run = (SELECT run FROM run WHERE run_id = 'r1')"
    )
    assert connection.changes() == 1
    connection.close()

    async def main() -> None:
        async with poimen.Runtime(str(case.db), modules=[agents]) as runtime:
            for i in (0, 2):
                assert await (await runtime.get(f"r{i}")).result() == i
            assert runtime._worker is not None
            for _ in range(3):
                runtime._worker._look_once()
                await asyncio.sleep(0)
            assert runtime._worker.error is None

    with caplog.at_level(logging.ERROR, "poimen.worker"):
        here(main())
    named = [record.args[0] for record in caplog.records if isinstance(record.args, tuple)]
    assert named == ["r1"], "told of once"
    assert len(case.lines("row")) == 2


@pytest.mark.parametrize("when", ["before", "while it is driven"])
def test_a_run_with_a_record_that_cannot_follow_is_left_alone_and_the_others_go_on(case: Case, when: str) -> None:
    def strange(client: poimen.Client) -> None:
        event = IntentClaimed(step="nope#0", attempt=1, ordinal=0, by="somebody")
        client.door.append(Batch(run="r1", records=(codec.record(event, branch=TRUNK),)))

    async def main() -> None:
        await waiting_runs(case, 3)
        world.meetings["row"] = meeting = agents.Meeting()
        async with poimen.Client(str(case.db)) as client:
            if when == "before":
                strange(client)
            async with poimen.Runtime(str(case.db), modules=[agents]) as runtime:
                await meeting.entered.wait()
                if when != "before":
                    strange(client)
                results = [asyncio.ensure_future((await runtime.get(f"r{i}")).result(timeout=30)) for i in range(3)]
                with pytest.raises(Corrupt, match="cannot follow"):
                    await results[1]
                meeting.go.set()
                assert [await results[0], await results[2]] == [0, 2]
                assert runtime._worker is not None
                assert runtime._worker.error is None

    here(main())


def test_starting_a_run_reads_no_other(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> set[str]:
        world.meetings["row"] = meeting = agents.Meeting()
        async with poimen.Runtime(str(case.db), modules=[agents]) as runtime:
            runs = [await runtime.start(agents.one_row(n), run_id=f"r{n}") for n in range(5)]
            await meeting.entered.wait()
            read, asked = runtime.store.read, set()

            def reads(run: str, **bounds: Any) -> Any:
                asked.add(run)
                return read(run, **bounds)

            monkeypatch.setattr(runtime.store, "read", reads)
            assert await (await runtime.start(agents.one_look("x"), run_id="new")).result(timeout=30)
            monkeypatch.undo()
            meeting.go.set()
            await asyncio.gather(*(run.result(timeout=30) for run in runs))
            return asked

    assert here(main()) == {"new"}


def test_an_idle_worker_lets_the_log_use_the_moment(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with poimen.Runtime(str(case.db), modules=[agents]) as runtime:
            idle = asyncio.Event()
            monkeypatch.setattr(runtime.store, "idle", idle.set)
            await asyncio.wait_for(idle.wait(), 30)
            monkeypatch.undo()

    here(main())


def test_a_lease_that_cannot_be_renewed_is_told(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "RENEW_S", 0.01)

    async def main() -> None:
        world.meetings["row"] = agents.Meeting()
        async with poimen.Runtime(str(case.db), modules=[agents], drain=0) as runtime:

            def renew(*_args: Any, **_settings: Any) -> Any:
                raise StorageFailed("the disk is gone")

            runtime.store.renew = renew  # type: ignore[method-assign]
            run = await runtime.start(agents.one_row(1), run_id="r")
            with pytest.raises(StorageFailed, match="the disk is gone"):
                await run.result()

    here(main())


def test_a_run_taken_over_by_one_that_died_at_once_is_taken_again(case: Case) -> None:
    """The first lost its lease to a second that died before it had written anything."""
    with case.child("asleep", "r", "one_charge", '["ann"]', stops=["charge"], lease_s=1.0) as first:
        first.hear()
        first.signal(signal.SIGSTOP)
        with case.child("run", "r", "one_charge", '["ann"]', dies_at=("advance_head", 1)) as second:
            second.died()
        assert case.log("r").head.epoch == 2
        first.signal(signal.SIGCONT)
        assert first.hear()["entered"] == "charge"
        first.tell()
        first.tell()
        told = [first.hear(), first.hear()]
        assert {"result": "charged 10 to ann"} in told
    log = case.log("r")
    assert log.head.epoch == 3
    assert log.one(IntentClassified).epoch == 3
    assert len(log.all(IntentCommitted)) + len(log.all(LateOutcome)) + len(log.all(SendAnswered)) == 2
    assert len(case.lines("charge")) == 2


@pytest.mark.parametrize("drain", [0, 5])
def test_a_runtime_that_is_closed_lets_go_in_silence_and_the_next_one_goes_on(
    case: Case, drain: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With time to drain, the call ends under its lease, renewed until then; its outcome is on record."""
    monkeypatch.setattr(worker, "LEASE_S", 2.0)
    monkeypatch.setattr(worker, "RENEW_S", 0.02)
    monkeypatch.setattr(worker, "DISPATCH_MARGIN_S", 0.0)

    async def main() -> None:
        meeting = world.meetings["row"] = agents.Meeting()
        beside = world.meetings["charge"] = agents.Meeting()
        async with poimen.Runtime(str(case.db), modules=[agents], drain=drain) as runtime:
            await runtime.start(agents.long(2), run_id="r")
            await runtime.start(agents.one_charge("ann"), run_id="s")
            await asyncio.gather(meeting.entered.wait(), beside.entered.wait())
            assert runtime._worker is not None
            driver = runtime._worker.drivers["r"]
            until = driver.lease.until
            if drain:
                asyncio.get_running_loop().call_later(0.05, meeting.go.set)
                asyncio.get_running_loop().call_later(0.4, beside.go.set)
        assert driver.dropped and driver.done.result() == "let go"
        assert driver.root is not None and driver.root.done()
        assert (driver.lease.until > until + 200_000) == bool(drain)
        head = case.log("r").head
        assert head.worker == "" and head.epoch == 1
        world.meetings.clear()
        gc.collect()

    here(main())
    assert [record.message for record in caplog.records] == []
    log = case.log("r")
    assert log.line.state.value == "RUNNING"
    assert log.intent("row#0").open == (not drain)
    assert len(log.all(IntentDispatched)) == 1, "something was dispatched while the runtime was being closed"
    assert case.says("finish", "tests.cases.agents", "r") == [{"result": 1}]
    assert [line["about"] for line in case.lines("row")] == (["0", "1"] if drain else ["0", "0", "1"])


class Later(clock.Source):
    """A machine that has slept: its boot clock went on, its processes did not."""

    def boot_us(self) -> int:
        return super().boot_us() + 3600 * clock.US


@pytest.mark.parametrize("taken", [False, True])
def test_a_machine_that_slept_before_a_call_asks_whether_the_run_is_still_its_own(case: Case, taken: bool) -> None:
    """The lease runs out between Dispatched and the call: nobody took the run, or another did and no call is made."""

    async def main() -> None:
        async with stage(case) as at:
            at.door.hold("r", IntentDispatched, after=True)
            await at.start(alone("charge"))
            await at.door.held()
            before, other = clock.use(Later()), at.case.beside()
            try:
                lease = other.claim("r", worker="another", lease_s=60) if taken else None
                at.door.release()
                if taken:
                    await at.door.landed("r", LateOutcome)
                    assert lease is not None and lease.epoch == 2
                    other.release([lease])
                assert await at.end() == "charged 10 to ann"
            finally:
                clock.use(before)
                other.close()

    here(main())
    log = case.log("r")
    sound(log)
    assert len(case.lines("charge")) == 1
    attempts = [attempt.state.name for attempt in log.line.steps["charge#0"].attempts]
    assert attempts == (["INDETERMINATE", "SUCCEEDED"] if taken else ["SUCCEEDED"])
    assert [(event.attempt, event.send) for event in log.all(IntentDispatched)] == [(1, 1), (2, 1)][: 1 + taken]
    if taken:
        assert isinstance(log.one(LateOutcome).outcome, NotSentOutcome)
    else:
        assert isinstance(log.one(IntentCommitted).outcome, Returned)


def test_a_log_that_is_locked_for_long_stops_no_worker(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "RENEW_S", 0.01)
    locked: list[str] = []

    def failing(real: Any, what: str) -> Any:
        def refused(*args: Any, **settings: Any) -> Any:
            if what not in locked:
                locked.append(what)
                raise StorageFailed("p.db is locked", locked=True)
            return real(*args, **settings)

        return refused

    async def main() -> None:
        async with poimen.Runtime(str(case.db), modules=[agents]) as runtime:
            run = await runtime.start(agents.one_row(1), run_id="r")
            for what in ("renew", "heads"):
                monkeypatch.setattr(runtime.store, what, failing(getattr(runtime.store, what), what))
            assert await run.result(timeout=30) == 1
            while {"renew", "heads"} - set(locked):
                await asyncio.sleep(0)
            assert runtime._worker is not None
            assert runtime._worker.error is None
            assert await (await runtime.start(agents.one_row(2), run_id="s")).result(timeout=30) == 2
            monkeypatch.undo()

    here(main())
    assert set(locked) == {"renew", "heads"}
