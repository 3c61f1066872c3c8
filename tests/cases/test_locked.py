"""Another process holds the log's write lock for long: whoever drives runs waits, and every effect keeps its class."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import poimen
from poimen import effects
from poimen.cli.main import root
from poimen.engine import runtime as engine
from poimen.engine import worker
from poimen.engine.driving import outbox
from poimen.engine.eventloop import locked
from poimen.engine.eventloop.door import LoopDoor
from poimen.kernel.errors import StorageFailed
from poimen.kernel.events import (
    AttemptIndeterminate,
    AttemptResumed,
    AttemptStarted,
    BranchEnded,
    BranchResumed,
    BranchStarted,
    BranchWaiting,
    DecisionRecorded,
    RunAdmitted,
)
from poimen.kernel.intent import (
    IntentClassified,
    IntentCommitted,
    IntentDispatched,
    IntentPending,
    LateOutcome,
    NotSentOutcome,
    Returned,
)
from poimen.log import codec
from poimen.log.disk import connect
from tests.cases.agents import Meeting, look, mail, row, world
from tests.cases.holding import sound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from poimen.log.api import Store
    from tests.cases.world import Case

HOLDER = """
import sys
import apsw
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(30_000)
connection.execute("BEGIN IMMEDIATE").fetchall()
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK").fetchall()
"""


@poimen.step(attempts=1)
async def letter(to: str) -> str:
    return await mail(to)


@poimen.workflow
async def deciding(to: str) -> list[str]:
    """Decides while two effects are under way: one that nothing may repeat, one that answers by itself."""
    first = asyncio.create_task(letter(to))
    await row(1)
    said = poimen.decide("whom", to)
    return [said, await first]


@poimen.workflow
async def writing(to: str) -> str:
    """One effect that nothing may repeat, in a step that is tried once."""
    return await letter(to)


class Holder(logging.Handler):
    """A process that holds the write lock until the worker has said twice that it waits."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.said: list[str] = []
        self.enough = 2
        self.then: Callable[[], None] = lambda: None
        self._process: subprocess.Popen[str] | None = None

    def take(self) -> None:
        """It has the lock when this returns."""
        command = [sys.executable, "-c", HOLDER, str(self.case.db)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "held\n"

    @property
    def held(self) -> bool:
        """Whether it has the lock."""
        return self._process is not None

    def let_go(self) -> None:
        """It has let go when this returns."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate("\n")
            assert process.returncode == 0

    def emit(self, record: logging.LogRecord) -> None:
        """A line of the worker's log."""
        text = record.getMessage()
        if "the log is locked for long" in text:
            self.said.append(text)
            if len(self.said) == self.enough:
                self.let_go()
                self.then()

    def before(self, store: Store, kind: str) -> None:
        """Take it just before the first commit of such a record, or at the first `claim` or `renew`."""
        what = kind if kind in {"claim", "renew"} else "commit"
        real: Any = getattr(store, what)
        taken: list[str] = []

        def call(*args: Any, **settings: Any) -> Any:
            if not taken and (what != "commit" or any(r.kind == kind for batch in args[0] for r in batch.records)):
                taken.append(kind)
                self.take()
            return real(*args, **settings)

        setattr(store, what, call)


rows: list[int] = []
"""Which row the code of `turned` asks for: other code."""


@poimen.workflow
async def turned() -> str:
    await row(rows[0])
    return await look("sky")


@pytest.fixture
def holder(case: Case, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holder]:
    """Whoever finds the log locked does not wait long in place, and says so each time."""
    monkeypatch.setattr(connect, "BUSY_MS", 20)
    monkeypatch.setattr(connect, "AGAIN_MS", 1)
    monkeypatch.setattr(outbox, "IN_PLACE_S", 0.0)
    monkeypatch.setattr(locked, "WARN_AFTER_S", 0.0)
    monkeypatch.setattr(locked, "WARN_EACH_S", 0.0)
    monkeypatch.setattr(locked, "RETRY_S", 0.01)
    monkeypatch.setattr(worker, "SCAN_S", 0.0)
    monkeypatch.setattr(worker, "RENEW_S", 0.05)
    world.witness = str(case.witness)
    holder = Holder(case)
    log = logging.getLogger("poimen.worker")
    log.addHandler(holder)
    yield holder
    log.removeHandler(holder)
    holder.let_go()
    world.meetings = {}


@contextmanager
def meeting(*tools: str) -> Iterator[dict[str, Meeting]]:
    """Tools of this process that stop in their bodies."""
    world.meetings = {tool: Meeting() for tool in tools}
    yield world.meetings
    for met in world.meetings.values():
        met.go.set()


RECORDS = {
    codec.KINDS[event]: event
    for event in (BranchStarted, AttemptStarted, IntentPending, IntentDispatched, IntentCommitted, BranchEnded)
}


@pytest.mark.parametrize("kind", ["claim", *RECORDS])
def test_what_a_locked_log_refuses_is_appended_when_it_is_free(case: Case, holder: Holder, kind: str) -> None:
    async def main() -> None:
        async with poimen.Runtime(str(case.db)) as runtime:
            holder.before(runtime.store, kind)
            run = await runtime.start(writing("bob"), run_id="r")
            assert await run.result(timeout=60) == "mailed bob"
            assert runtime._worker is not None
            assert runtime._worker.error is None

    asyncio.run(main())
    assert len(holder.said) >= 2, "the lock was never met"
    assert str(case.db) in holder.said[0]
    assert "has it open: somebody is reading or writing it" in holder.said[0]
    assert len(case.lines("mail")) == 1
    log = case.log("r")
    assert [event.send for event in log.all(IntentDispatched)] == [1]
    assert isinstance(log.one(IntentCommitted).outcome, Returned)
    for never in (AttemptIndeterminate, BranchWaiting, BranchResumed, IntentClassified):
        assert log.all(never) == []
    sound(log)


AT_RUN = [RunAdmitted, BranchStarted, IntentCommitted, DecisionRecorded]


def _with_worker(monkeypatch: pytest.MonkeyPatch, then: Callable[[worker.Worker], None]) -> None:
    """Do something to the worker of `poimen.run` before it has anything to do."""
    real = worker.Worker

    def made(*args: Any, **settings: Any) -> worker.Worker:
        its = real(*args, **settings)
        then(its)
        return its

    monkeypatch.setattr(engine, "Worker", made)


@pytest.mark.parametrize("kind", ["claim", *(codec.KINDS[event] for event in AT_RUN)])
def test_poimen_run_waits_as_well(case: Case, holder: Holder, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    _with_worker(monkeypatch, lambda its: holder.before(its.store, kind))
    assert poimen.run(deciding("bob"), db=str(case.db), run_id="r") == ["bob", "mailed bob"]
    assert len(holder.said) >= 2, "the lock was never met"
    assert len(case.lines("mail")) == 1
    assert case.log("r").all(AttemptIndeterminate) == []
    sound(case.log("r"))


def test_poimen_run_lets_a_call_end_before_it_takes_up_a_run_that_it_had_let_go_of(
    case: Case, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with meeting("mail") as met:

        def then(its: worker.Worker) -> None:
            holder.before(its.store, codec.KINDS[DecisionRecorded])
            head, looks = its.store.head, []

            def looked(run: str) -> Any:
                looks.extend([run] * (len(holder.said) >= holder.enough))
                if len(looks) == 5:
                    met["mail"].go.set()
                return head(run)

            its.store.head = looked  # type: ignore[method-assign]

        _with_worker(monkeypatch, then)
        assert poimen.run(deciding("bob"), db=str(case.db), run_id="r") == ["bob", "mailed bob"]
    assert len(case.lines("mail")) == 1
    assert case.log("r").all(AttemptIndeterminate) == []


@pytest.mark.parametrize("drives", [True, False])
def test_an_opening_waits_for_a_locked_log_if_it_drives(case: Case, holder: Holder, *, drives: bool) -> None:
    case.beside().close()
    holder.take()

    async def main() -> None:
        async with poimen.Runtime(str(case.db)) as runtime:
            assert await (await runtime.start(writing("bob"), run_id="r")).result(timeout=60) == "mailed bob"

    if drives:
        asyncio.run(main())
    else:
        assert poimen.run(writing("bob"), db=str(case.db), run_id="r") == "mailed bob"
    assert len(holder.said) >= 2


@pytest.mark.parametrize("kind", ["claim", codec.KINDS[RunAdmitted]])
def test_runs_of_a_file_wait_each(case: Case, holder: Holder, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    _with_worker(monkeypatch, lambda its: holder.before(its.store, kind))
    lines = "\n".join(f'{{"to": "{n}"}}' for n in range(40))
    words = ["run", f"{__name__}:writing", "--each", "-", "--id", "e", "--db", str(case.db)]
    done = CliRunner().invoke(root, words, input=lines)
    assert done.exit_code == 0, done.output
    assert len(holder.said) >= 2
    assert len(case.lines("mail")) == 40


@poimen.tool(effect=effects.AT_MOST_ONCE, timeout=1, grace=0.05)
async def knock(who: str) -> str:
    world.mark("knock", who)
    await world.stop("knock")
    return who


@poimen.workflow
async def knocking(who: str) -> str:
    return await knock(who)


@pytest.mark.parametrize("kind", ["claim", "renew", codec.KINDS[RunAdmitted], codec.KINDS[IntentPending]])
def test_an_effect_that_goes_well_is_not_cut_off_while_others_wait_for_the_log(
    case: Case, holder: Holder, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The first wait is as short as those that follow: in it the loop stands still, and the timeout goes on."""
    monkeypatch.setattr(connect, "BUSY_MS", 3000)

    async def main() -> None:
        with meeting("knock") as met:
            async with poimen.Runtime(str(case.db)) as runtime:
                knocked = await runtime.start(knocking("ann"), run_id="k")
                await met["knock"].entered.wait()
                holder.then = met["knock"].go.set
                holder.before(runtime.store, kind)
                other = await runtime.start(writing("bob"), run_id="r")
                assert await knocked.result(timeout=60, waiting="raise") == "ann"
                assert await other.result(timeout=60) == "mailed bob"

    asyncio.run(main())
    assert len(holder.said) >= 2
    assert case.log("k").all(AttemptIndeterminate) == []


def test_of_many_runs_to_be_claimed_one_at_a_time_tries_a_locked_log(case: Case, holder: Holder) -> None:
    """The loop stands still while one tries."""
    holder.enough = 5
    tries: list[int] = []

    async def main() -> None:
        turns = [0]
        async with poimen.Client(str(case.db)) as client:
            for n in range(30):
                await client.start(writing(str(n)), run_id=f"r{n}")
        async with poimen.Runtime(str(case.db), modules=[__name__]) as runtime:
            claim = runtime.store.claim

            def tried(*args: Any, **settings: Any) -> Any:
                if holder.held:
                    tries.append(turns[0])
                return claim(*args, **settings)

            holder.take()
            runtime.store.claim = tried  # type: ignore[method-assign]
            while holder.held:
                await asyncio.sleep(0)
                turns[0] += 1
            for n in range(30):
                assert await (await runtime.get(f"r{n}")).result(timeout=60) == f"mailed {n}"

    asyncio.run(main())
    assert len(tries) >= 3
    assert len(set(tries)) == len(tries), "two in one turn of the loop"


def test_a_send_that_was_in_line_until_the_end_is_known_not_to_have_been_made(
    case: Case, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locked, "RETRY_S", 3600.0)  # it lands when the door is closed, not before
    holder.enough = 0

    async def main() -> None:
        async with poimen.Runtime(str(case.db), drain=0) as runtime:
            its = runtime._worker
            assert its is not None
            holder.before(runtime.store, codec.KINDS[IntentDispatched])
            await runtime.start(writing("bob"), run_id="r")
            while its.door.locked is None:
                await asyncio.sleep(0)
            holder.let_go()

    asyncio.run(main())
    assert case.lines("mail") == []
    assert poimen.run(writing("bob"), db=str(case.db), run_id="r") == "mailed bob"
    assert len(case.lines("mail")) == 1
    assert isinstance(case.log("r").one(LateOutcome).outcome, NotSentOutcome)
    assert case.log("r").all(BranchWaiting) == []
    sound(case.log("r"))


def test_a_short_lock_is_no_news(case: Case, holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked, "WARN_AFTER_S", 3600.0)

    async def main() -> None:
        async with poimen.Runtime(str(case.db)) as runtime:
            its = runtime._worker
            assert its is not None
            holder.before(runtime.store, codec.KINDS[IntentPending])
            run = await runtime.start(writing("bob"), run_id="r")
            while its.door.locked is None:
                await asyncio.sleep(0)
            holder.let_go()
            assert await run.result(timeout=60) == "mailed bob"

    asyncio.run(main())
    assert holder.said == []


def test_a_decision_in_a_locked_log_lets_go_of_the_run_until_it_is_free(
    case: Case, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place nobody could close the runtime. The call under way is neither lost nor made again, nor made unknown."""
    monkeypatch.setattr(LoopDoor, "_look_after", lambda _door: None)  # what waits lands when the run is claimed

    async def main() -> None:
        async with poimen.Runtime(str(case.db)) as runtime:
            holder.before(runtime.store, codec.KINDS[DecisionRecorded])
            with meeting("mail") as met:
                _after_looks(runtime, 5, met["mail"].go.set, holder)
                run = await runtime.start(deciding("bob"), run_id="r")
                assert await run.result(timeout=60) == ["bob", "mailed bob"]

    asyncio.run(main())
    assert len(holder.said) >= 2
    assert len(case.lines("mail")) == 1
    log = case.log("r")
    assert len(log.all(DecisionRecorded)) == 1
    assert isinstance(log.one(LateOutcome).outcome, Returned)
    assert [event.why for event in log.all(BranchResumed)] == ["handed over"]
    assert len(log.all(AttemptResumed)) == 1
    for never in (AttemptIndeterminate, BranchWaiting):
        assert log.all(never) == []
    sound(log)


def _after_looks(runtime: poimen.Runtime, n: int, act: Callable[[], None], holder: Holder) -> None:
    """Act when the worker has looked `n` times for runs that can move since the log is free."""
    real = runtime.store.heads
    looks: list[None] = []

    def heads(**settings: Any) -> Any:
        if len(holder.said) >= holder.enough:
            looks.append(None)
            if len(looks) == n:
                act()
        return real(**settings)

    runtime.store.heads = heads  # type: ignore[method-assign]


def test_a_run_that_waited_for_other_code_is_taken_up_when_the_log_is_free(case: Case, holder: Holder) -> None:
    async def main(n: int, code: str, state: str, *, lock: bool = False) -> None:
        async with poimen.Runtime(str(case.db), drain=0) as runtime:
            assert runtime._worker is not None
            await runtime.start(turned(), run_id="r")
            rows[:] = [n]
            runtime._worker.code = code
            if lock:
                holder.before(runtime.store, "claim")
            if "look" in world.meetings:
                await world.meetings["look"].entered.wait()
            while (head := runtime.store.head("r")) is None or head.state != state:
                await asyncio.sleep(0)

    with meeting("look"):
        asyncio.run(main(1, "old", "RUNNING"))
    world.meetings = {}
    asyncio.run(main(2, "new", "WAITING"))
    asyncio.run(main(1, "old again", "SUCCEEDED", lock=True))
    assert len(holder.said) >= 2


def test_a_lease_that_cannot_be_renewed_before_a_send_is_waited_for(case: Case, holder: Holder) -> None:
    async def main() -> None:
        async with poimen.Runtime(str(case.db)) as runtime:
            its = runtime._worker
            assert its is not None
            its.dispatch_margin_s = worker.LEASE_S * 2
            holder.then = lambda: setattr(its, "dispatch_margin_s", 0.0)
            holder.before(runtime.store, "renew")
            run = await runtime.start(writing("bob"), run_id="r")
            assert await run.result(timeout=60) == "mailed bob"

    asyncio.run(main())
    assert len(holder.said) >= 2
    log = case.log("r")
    assert [event.send for event in log.all(IntentDispatched)] == [1]
    assert isinstance(log.one(IntentCommitted).outcome, Returned)
    sound(log)


def test_a_run_that_another_worker_took_when_the_lock_was_freed_is_fenced(
    case: Case, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease ran out in a locked log. What the world has answered meanwhile is kept as an outsider's record."""
    monkeypatch.setattr(worker, "LEASE_S", 0.0)
    monkeypatch.setattr(worker, "RENEW_S", 3600.0)

    async def main() -> None:
        async with poimen.Runtime(str(case.db)) as runtime:
            assert runtime._worker is not None
            runtime._worker.dispatch_margin_s = -3600.0
            beside = case.beside()

            def taken() -> None:
                assert beside.claim("r", worker="another", lease_s=0.0) is not None
                beside.close()

            holder.then = taken
            holder.before(runtime.store, codec.KINDS[IntentCommitted])
            run = await runtime.start(writing("bob"), run_id="r")
            assert await run.result(timeout=60) == "mailed bob"
            assert runtime._worker.error is None

    asyncio.run(main())
    assert len(case.lines("mail")) == 1
    log = case.log("r")
    assert isinstance(log.one(LateOutcome).outcome, Returned)
    assert log.head.epoch == 3
    sound(log)


def test_what_rests_while_the_log_is_locked_is_given_back_when_it_is_free(case: Case, holder: Holder) -> None:
    async def main() -> None:
        async with poimen.Runtime(str(case.db)) as runtime:
            its = runtime._worker
            assert its is not None
            real = runtime.store.release

            def release(leases: Any) -> None:
                if not holder.said:
                    holder.take()
                real(leases)

            runtime.store.release = release  # type: ignore[method-assign]
            run = await runtime.start(writing("bob"), run_id="r")
            assert await run.result(timeout=60) == "mailed bob"
            while (head := runtime.store.head("r")) is not None and head.worker:
                await asyncio.sleep(0)
            assert list(its.lingering) == []

    asyncio.run(main())
    assert len(holder.said) >= 2


@pytest.mark.parametrize("kind", [codec.KINDS[IntentDispatched], codec.KINDS[IntentCommitted]])
def test_a_runtime_is_closed_in_bounded_time_while_the_log_is_locked(
    case: Case, holder: Holder, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The lock is held until the runtime is closed: nothing is sent any more, and it is said what is not on record."""
    holder.enough = 0

    async def main() -> None:
        async with poimen.Runtime(str(case.db), drain=0.1) as runtime:
            holder.before(runtime.store, kind)
            await runtime.start(row_of(7), run_id="r")
            while len(holder.said) < 2:
                await asyncio.sleep(0)
        assert holder._process is not None, "the lock was freed before the runtime was closed"

    asyncio.run(main())
    sent = kind == codec.KINDS[IntentCommitted]
    assert len(case.lines("row")) == sent
    assert "the last records of r are not on record" in caplog.text
    holder.let_go()
    assert poimen.run(row_of(7), db=str(case.db), run_id="r") == 7
    assert len(case.lines("row")) == 1 + sent
    sound(case.log("r"))


@poimen.workflow
async def row_of(n: int) -> int:
    return await row(n)


def test_a_person_who_waits_is_told_that_the_log_is_locked(case: Case, holder: Holder) -> None:
    with poimen_log(case):
        holder.take()
        with pytest.raises(StorageFailed, match="locked"):
            asyncio.run(_start(case))


@contextmanager
def poimen_log(case: Case) -> Iterator[None]:
    """The log exists, and somebody has it open."""
    store = case.beside()
    yield
    store.close()


async def _start(case: Case) -> None:
    async with poimen.Client(str(case.db)) as client:
        await client.start(row_of(1), run_id="r")
