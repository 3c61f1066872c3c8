"""Runs driven in simulated time, and logs cut as a crash would cut them.

Nothing waits for real: the loop's clock jumps to the next timer when nothing is ready, so a back-off of a second
costs nothing and a seed always gives the same run.
"""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from poimen import clock
from poimen._typing import override
from poimen.blobs.tables import TieredBlobs
from poimen.declare import values
from poimen.declare.specs import WorkflowSpec, spec_of
from poimen.engine.worker import Worker
from poimen.kernel.events import RunAdmitted
from poimen.kernel.fold import fold
from poimen.kernel.ids import TRUNK
from poimen.log import codec
from poimen.log.api import Batch, Committed, Head
from poimen.log.memory import Contents, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from poimen.declare.registry import Registry
    from poimen.engine.driving.driver import Driver
    from poimen.kernel.errors import PoimenError
    from poimen.kernel.events import Event, Waiting
    from poimen.kernel.views import RunView
    from poimen.log.api import Record

EPOCH_S = 1_900_000_000
WORD_S = 60
"""How long a thread at work may say nothing, in seconds of real time: then the test is broken."""
TURN_S = 5e-6
"""What one turn of the loop costs, so that records have different times."""

# ---- time ------------------------------------------------------------------------------------------------------------


class SimulatedLoop(asyncio.SelectorEventLoop):
    """A loop whose time stands still while something is ready and jumps to the next timer when nothing is.

    Arguments:
        now_s: its time at the beginning.
        turn_s: what one of its turns costs. With 0 all that follows from one event happens at one moment, and moments
            are rounded to 10 microseconds, so that a time does not depend on how often it was computed.
    """

    def __init__(self, now_s: float = 0.0, turn_s: float = TURN_S) -> None:
        self.now = now_s
        self.clock_set_s = 0.0
        self.turn_s = turn_s
        self.submitted = 0
        self.bodies: list[Callable[[], int]] = []
        self.waits = threading.Event()
        super().__init__()
        self.set_default_executor(CountedThreads(self))
        self._select = self._selector.select  # type: ignore[attr-defined]
        self._selector.select = self._jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now

    def _jump(self, timeout: float | None = None) -> Any:
        self.now += self.turn_s
        if self.at_work() and (timeout is None or timeout > 0):
            self.waits.set()
            found = self._select(WORD_S)  # its end is a callback of this loop, and wakes it
            if not found:
                raise RuntimeError(f"a thread is at work and has said nothing for {WORD_S} s of real time")
            return found
        found = self._select(5 if timeout is None else 0)
        if timeout is None and not found:
            raise RuntimeError("nothing is ready, and nothing ever will be")
        if not found and timeout:
            then = self.now + timeout
            self.now = round(then, 5) if not self.turn_s and round(then, 5) > self.now else then
        return found

    def at_work(self) -> bool:
        """Whether a thread of the run is at work: one that waits for a call of its own is not, that call needs time."""
        return self.submitted > 0 or any(busy() for busy in self.bodies)

    def counted(self, change: int) -> None:
        """Something was submitted to the threads, or has ended there."""
        self.submitted += change


class CountedThreads(ThreadPoolExecutor):
    """Threads that a loop of simulated time waits for: counted from `submit` until the loop has heard of the end.

    Arguments:
        loop: whose time stands still meanwhile.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__(max_workers=64)
        self._loop = loop

    @override
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        told: Future[Any] = Future()
        self._loop.counted(1)

        def whole() -> None:
            try:
                if told.set_running_or_notify_cancel():
                    end(told, fn, *args, **kwargs)
            finally:  # after those who wait for `told` were: the loop hears of its end before it is counted
                self._loop.call_soon_threadsafe(self._loop.counted, -1)

        def dropped(queued: Future[Any]) -> None:
            if queued.cancelled():  # the pool was shut down before its turn came
                told.cancel()
                whole()

        super().submit(whole).add_done_callback(dropped)
        return told


def end(told: Future[Any], fn: Any, *args: Any, **kwargs: Any) -> None:
    """Let a future end as a call does."""
    try:
        found = fn(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 (handed to whoever waits for it)
        told.set_exception(error)
    else:
        told.set_result(found)


class SimulatedSource(clock.Source):
    """The loop's time, and chance with a seed."""

    def __init__(self, loop: SimulatedLoop, seed: object) -> None:
        self._loop = loop
        self._chance = random.Random(repr(seed))

    def wall_us(self) -> int:
        return EPOCH_S * clock.US + round((self._loop.now + self._loop.clock_set_s) * clock.US)

    def boot_us(self) -> int:
        return round(self._loop.now * clock.US)

    def monotonic(self) -> float:
        return self._loop.now

    def random_bytes(self, n: int) -> bytes:
        return self._chance.randbytes(n)

    def jitter(self, spread: float) -> float:
        if not self._loop.turn_s:
            return 0.01  # whatever comes again comes soon, at a moment that does not depend on who has asked before
        return 1.0 + spread * (2.0 * self._chance.random() - 1.0)


@contextmanager
def simulated(seed: object, now_s: float = 0.0, turn_s: float = TURN_S) -> Iterator[SimulatedLoop]:
    """A loop of simulated time, and poimen's clock set to it."""
    loop = SimulatedLoop(now_s, turn_s)
    before = clock.use(SimulatedSource(loop, seed))
    try:
        yield loop
    finally:
        clock.use(before)
        loop.close()


def in_simulated_time(
    seed: object, work: Callable[[], Awaitable[Any]], *, now_s: float = 0.0, turn_s: float = TURN_S
) -> Any:
    """Run a coroutine function in simulated time."""
    with simulated(seed, now_s, turn_s) as loop, asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work())  # type: ignore[arg-type]


@contextmanager
def few_collections() -> Iterator[None]:
    """Let the collector of garbage run seldom, for tests that make much of it: a fifth of their time is its."""
    before = gc.get_threshold()
    gc.set_threshold(20_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


# ---- logs ------------------------------------------------------------------------------------------------------------


class CutStore(MemoryStore):
    """A log in memory that notes after which record each of its commits ended."""

    def __init__(self, contents: Contents | None = None) -> None:
        super().__init__(contents)
        self.commits: list[int] = []
        self.on_commit: Callable[[], None] | None = None

    def commit(self, batches: Sequence[Batch]) -> list[Committed | PoimenError]:
        answers = super().commit(batches)
        self.commits.append(len(self._contents.all))
        if self.on_commit is not None:
            self.on_commit()
        return answers

    def beside(self) -> CutStore:
        """The same log, as another process has it open."""
        return CutStore(self._contents)

    def records(self, run: str) -> list[Record]:
        return list(self._contents.runs[run])

    def cut(self, run: str, at: int) -> CutStore:
        """The log as a crash left it: the first `at` records of `run`, and nobody alive."""
        old = self._contents
        records = old.runs[run][:at]
        contents = Contents(log_id=old.log_id, blobs=dict(old.blobs), all=list(records), runs={run: records})
        contents.heads[run] = Head(
            run=run,
            lsn=records[-1].lsn,
            hash=records[-1].hash,
            epoch=max(record.epoch for record in records),
            outsider_lsn=max((record.lsn for record in records if not record.epoch), default=0),
            state="RUNNING",
            worker="",
            lease_until=0,
            boot_id="",
        )
        cut = CutStore(contents)
        cut.commits = [one for one in self.commits if one <= at]
        return cut


@lru_cache(maxsize=4096)
def _event(record: Record) -> Event:
    return codec.event_of(record)


def events_of(records: Sequence[Record]) -> list[Event]:
    return [_event(record) for record in records]


def folded(run: str, records: Sequence[Record]) -> RunView:
    """The view, folded from nothing."""
    return fold(run, [(r.lsn, r.at, r.branch, _event(r), r.epoch) for r in records])


def admit(store: CutStore, workflow: Any, run: str, *args: Any, on_indeterminate: Any = None) -> None:
    """Let a run exist."""
    spec = spec_of(workflow)
    assert isinstance(spec, WorkflowSpec)
    packed = spec.parameters.pack(args, {})
    event = RunAdmitted(
        workflow=spec.name,
        version=spec.version,
        code=spec.code_digest,
        args=packed,
        args_digest=values.digest(packed),
        nonce=clock.random_hex(16),
        by="a test",
        on_indeterminate=on_indeterminate or spec.on_indeterminate,
    )
    record = codec.record(event, branch=TRUNK)
    [answer] = store.commit([Batch(run=run, records=(record,), admits=True, state="PENDING")])
    assert isinstance(answer, Committed)


# ---- driving ---------------------------------------------------------------------------------------------------------


@dataclass
class Driven:
    """What one worker has made of a run."""

    how: str
    driver: Driver
    store: CutStore
    records: list[Record]

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        return self.driver.line.waiting

    @property
    def details(self) -> str:
        return "; ".join(f"{w.reason} {w.about}: {w.detail}" for w in self.waiting)


async def drive(
    store: CutStore,
    run: str,
    registry: Registry,
    *,
    limit_s: float = 600.0,
    claimed: Callable[[Driver], None] = lambda _driver: None,
) -> Driven:
    """Drive a run with a worker of its own until it ends or rests; the view that it held is the fold of the log."""
    worker = Worker(store, TieredBlobs(store, None), registry, concurrency=8)
    loop = asyncio.get_running_loop()
    if isinstance(loop, SimulatedLoop):
        worker.threads = CountedThreads(loop)
        loop.bodies.append(lambda: sum(driven.threads.busy for driven in worker.drivers.values()))
    worker.watch(everything=False)
    driver = worker.claim(run)
    assert driver is not None
    claimed(driver)
    try:
        how = await asyncio.wait_for(asyncio.shield(driver.done), limit_s)
    except TimeoutError:
        how = "stuck"
    error = worker.error or driver.error
    await worker.close(drain_s=0.0)
    for _ in range(8):
        await asyncio.sleep(0)
    records = store.records(run)
    if error is not None:
        raise error
    held = driver.view
    assert held == folded(run, records[: held.lsn]), "the view that was held is not the fold of the log"
    return Driven(how=how, driver=driver, store=store, records=records)
