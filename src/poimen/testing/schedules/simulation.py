"""One program in one schedule: its runs driven in simulated time, disturbed as a seed says, to their end.

The runtime is the real one: workers, drivers, guards, outbox and door over a log in memory. What is simulated is
what lies around it: time, the order of callbacks, threads, a log that is locked or fails, processes that die between
two callbacks and others that take over, cancels, an operator. This module must never judge; it keeps the invariant
that a seed gives one schedule.

Source: design proof.md, P11.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random  # noqa: TID251 (seeded: one seed is one schedule)
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from poimen import clock
from poimen.blobs.tables import TieredBlobs
from poimen.declare import values
from poimen.declare.registry import Registry
from poimen.declare.specs import ToolSpec
from poimen.engine import desk
from poimen.engine.reading import read_run
from poimen.engine.worker import Worker
from poimen.kernel.errors import ConfigurationError, Conflict, PoimenError
from poimen.kernel.events import RunAdmitted
from poimen.kernel.ids import TRUNK
from poimen.kernel.views import newest_branch
from poimen.log import codec
from poimen.log.api import TERMINAL_STATES, Batch, Committed
from poimen.log.memory import Contents
from poimen.log.writer import Door
from poimen.testing.schedules.loop import Died, SimulatedLoop, SimulatedThreads, close, simulated_clock
from poimen.testing.schedules.storage import Acknowledged, SeededStore, Weather
from poimen.testing.schedules.traces import Disturbances, Simulation
from poimen.testing.schedules.world import World, enter, leave

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from poimen.declare.shapes import Call
    from poimen.engine.driving.driver import Driver
    from poimen.testing.schedules.loop import Order, SimulatedSource

LIMIT_S: Final = 600.0
"""How much simulated time a program has, in seconds."""
FAIR_FROM_S: Final = LIMIT_S / 10
"""From when on whoever begins finds storage that does not fail, in seconds of simulated time."""
LOOK_S: Final = 0.3
"""How often an operator looks, in seconds of simulated time."""
AFTERWARDS_S: Final = 60.0
"""How long what was given up may still take when the runs have ended, in seconds of simulated time."""


class Stage:
    """Where one program is simulated.

    Arguments:
        calls: the runs.
        seed: makes everything.
        order: of the callbacks; in that of asyncio only the cancels of the seed are left.
        undisturbed: nothing is done to it.
        judged: what its judges need is gathered.
        registry: the code of the runs; None: what the calls name.
        begin_s: its time at the beginning, seconds.
    """

    def __init__(
        self,
        calls: Sequence[Call[Any]],
        seed: int,
        order: Order = "seeded",
        *,
        undisturbed: bool = False,
        judged: bool = True,
        registry: Registry | None = None,
        begin_s: float = 0.0,
    ) -> None:
        self.calls = calls
        self.begin_s = begin_s
        self.chance = random.Random(seed)  # noqa: S311 (a schedule, nothing to be guarded)
        drawn = Disturbances() if undisturbed else Disturbances.of(self.chance, len(calls))
        self.disturbances = drawn if order == "seeded" else Disturbances(cancels=drawn.cancels)
        self.judged = judged
        self.order: Order = order
        self.contents: Contents
        self.registry = registry_of(calls) if registry is None else registry
        self.world = World(chance=self.chance)
        self.found = Simulation(seed=seed, order=order, disturbances=self.disturbances)
        self.workers: list[Worker] = []
        self.cancels = list(self.disturbances.cancels)
        self.drivers: list[Driver] = []

    # ---- lives ---------------------------------------------------------------------------------------------------

    def play(self, contents: Contents | None = None) -> Simulation:
        """Let the program come to its end.

        Arguments:
            contents: a log in which its runs are; None: a new one.
        """
        loop = self._loop(self.begin_s)
        with simulated_clock(loop) as source, silence():
            self.contents = self.world.contents = Contents() if contents is None else contents
            enter(self.world)
            try:
                if contents is None:
                    self._admit(loop)
                for death in (*self.disturbances.deaths, -1):
                    loop.dies_at = death
                    if not self._lives(loop):
                        break
                    loop = self._next(loop, source)
            finally:
                leave()
                self._take_down(loop)
                loop.abandon()
        return self.found

    def _loop(self, now_s: float) -> SimulatedLoop:
        loop = SimulatedLoop(self.chance, order=self.order, now_s=now_s)
        self.world.loop = loop
        return loop

    def _next(self, died: SimulatedLoop, source: SimulatedSource) -> SimulatedLoop:
        """The next process; what the old one holds is closed first, and reaches nothing any more."""
        for worker in self.workers:
            cast_store(worker).die()
        for driver in self.drivers:
            for task in driver.loop.unfinished():
                close(task)
        died.abandon()
        self.found.steps += died.steps
        self.found.path = hash((self.found.path, died.path))
        loop = self._loop(died.now + 1.0)
        source.loop = loop
        clock._Ids.forget()  # noqa: SLF001 (another process)
        self.workers, self.drivers = [], []
        return loop

    def _lives(self, loop: SimulatedLoop) -> bool:
        """One process, or several side by side that die together; whether they died."""
        for step, run in self.cancels:
            loop.struck[step] = self._cancelling(loop, f"r{run}")
        self.cancels = []
        try:
            loop.run_until_complete(self._live(loop))
        except Died:
            return True
        except PoimenError:
            raise
        except Exception as error:  # noqa: BLE001 (the end of the schedule, told with its seed)
            self.found.stuck = f"{type(error).__name__}: {error}"
        return False

    async def _live(self, loop: SimulatedLoop) -> None:
        self.workers = [self._worker(loop) for _ in range(self.disturbances.workers)]
        operator = Operator(self.contents, self.world, loop)
        while not self._over():
            if loop.now > self.begin_s + LIMIT_S:
                self.found.stuck = f"not at its end after {LIMIT_S:.0f} s: {self._standing()}"
                break
            for n, worker in enumerate(self.workers):
                if worker.error is not None:
                    await worker.close(drain_s=0.0)
                    cast_store(worker).die()
                    self.workers[n] = self._worker(loop)
            await asyncio.sleep(LOOK_S)
            operator.look()
        for worker in self.workers:
            await worker.close(drain_s=0.0)
        await asyncio.sleep(AFTERWARDS_S)

    def _over(self) -> bool:
        ended = all(head.state in TERMINAL_STATES for head in self.contents.heads.values())
        return ended and not any(worker.lingering.at_work() or worker.drivers for worker in self.workers)

    def _standing(self) -> str:
        return ", ".join(f"{run} {head.state} at LSN {head.lsn}" for run, head in self.contents.heads.items())

    # ---- what takes part -----------------------------------------------------------------------------------------

    def _admit(self, loop: SimulatedLoop) -> None:
        store = SeededStore(self.contents, loop, Weather(), self.found.acknowledged)
        for n, call in enumerate(self.calls):
            event = RunAdmitted(
                workflow=call.workflow,
                version=call.spec.version,
                code=call.spec.code_digest,
                args=call.packed,
                args_digest=values.digest(call.packed),
                nonce=clock.random_hex(16),
                by="simulated",
                on_indeterminate=call.spec.on_indeterminate,
            )
            record = codec.record(event, branch=TRUNK)
            [answer] = store.commit([Batch(run=f"r{n}", records=(record,), admits=True, state="PENDING")])
            if not isinstance(answer, Committed):
                raise answer

    def _worker(self, loop: SimulatedLoop) -> Worker:
        fair = loop.now > self.begin_s + FAIR_FROM_S
        weather = Weather() if fair else self.disturbances.weather
        store = SeededStore(self.contents, loop, weather, self.found.acknowledged)
        worker = Worker(store, TieredBlobs(store, None), self.registry, concurrency=8)
        worker.threads = SimulatedThreads(loop)
        claim = worker.claim

        def noted(run: str) -> Driver | None:
            driver = claim(run)
            if driver is not None and driver not in self.drivers:
                self.drivers.append(driver)
            return driver

        worker.claim = noted  # type: ignore[method-assign]
        worker.watch(everything=True)
        return worker

    def _cancelling(self, loop: SimulatedLoop, run: str) -> Callable[[], None]:
        def cancel() -> None:
            beside = SeededStore(self.contents, loop, Weather(), self.found.acknowledged)
            desk.cancel(beside, Door(beside), run, by="outsider", why="no longer wanted")

        return cancel

    def _take_down(self, loop: SimulatedLoop) -> None:
        found = self.found
        found.steps += loop.steps
        found.seconds = loop.now
        found.path = hash((found.path, loop.path))
        found.left += [*loop.left(), *loop.errors]
        found.marks = self.world.marks
        found.log_id, found.blobs = self.contents.log_id, self.contents.blobs
        for driver in self.drivers:
            found.left += [f"{task}" for task in driver.loop.unfinished()]
        for run, head in self.contents.heads.items():
            found.runs[run] = list(self.contents.runs[run])
            found.states[run] = head.state
        if self.judged:
            self._look_at_views(loop)

    def _look_at_views(self, loop: SimulatedLoop) -> None:
        found = self.found
        store = SeededStore(self.contents, loop, Weather(), Acknowledged())
        for run in found.runs:
            view, _ = read_run(store, run)
            body = newest_branch(view).body
            found.values[run] = str(body.value) if body is not None else "null"
            found.held += [
                f"the view of {run} that was held at LSN {driver.view.lsn} is not the fold of the log"
                for driver in self.drivers
                if driver.run == run and driver.view != read_run(store, run, upto=driver.view.lsn)[0]
            ]


class Operator:
    """Whoever is called when nothing moves: looks at the world, and says what it shows.

    Arguments:
        contents: the log.
        world: where it looks.
        loop: whose time it is.
    """

    PATIENCE_S: Final = 1.5

    def __init__(self, contents: Contents, world: World, loop: SimulatedLoop) -> None:
        self._contents, self._world, self._loop = contents, world, loop
        self._since: dict[str, tuple[int, float]] = {}

    def look(self) -> None:
        """Answer what waits for an operator, once it has waited for a while."""
        for run, head in list(self._contents.heads.items()):
            if head.state != "WAITING":
                continue
            lsn, since = self._since.get(run, (0, 0.0))
            if lsn != head.lsn:
                self._since[run] = (head.lsn, self._loop.now)
            elif self._loop.now >= since + self.PATIENCE_S:
                self._answer(run)

    def _answer(self, run: str) -> None:
        store = SeededStore(self._contents, self._loop, Weather(), Acknowledged())
        door = Door(store)
        line = newest_branch(read_run(store, run)[0])
        for waiting in line.waiting:
            if waiting.detail.startswith("crash loop"):
                desk.resume(store, door, run, by="ann", why="tried again")
        for intent in [one for one in line.intents() if one.open]:
            marks = self._world.of(intent.pending.request_id)
            value = json.dumps(marks[-1].result).encode() if marks else None
            try:
                desk.resolve(
                    store,
                    door,
                    str(intent.id),
                    "landed" if marks else "not_landed",
                    by="ann",
                    why="looked at the world",
                    value=value,
                )
            except (Conflict, desk.Refused):
                continue  # it runs, or has been answered: the next look sees


def registry_of(calls: Sequence[Call[Any]]) -> Registry:
    """The code of runs: what their workflows can name.

    Raises:
        ConfigurationError: a workflow or step is a plain function.
    """
    registry = Registry()
    for call in calls:
        if registry.workflow(call.workflow) is not call.spec:
            registry.add(call.spec)
    for spec in (
        *[call.spec for call in calls],
        *[spec for spec in registry if isinstance(spec, ToolSpec) and spec.kind == "step"],
    ):
        if not spec.is_async:
            raise ConfigurationError(
                f"{spec.name} is a plain function and cannot be simulated",
                where=spec.where,
                why="its thread runs beside the loop, in an order that no seed chooses",
                hint="make it a coroutine function; tools and probes may be plain",
            )
    return registry


def cast_store(worker: Worker) -> SeededStore:
    """A worker's store, which a stage has given it."""
    store = worker.store
    if not isinstance(store, SeededStore):
        raise TypeError("a worker of another stage")
    return store


@contextmanager
def silence() -> Iterator[None]:
    """What workers say of a bad day is no news here."""
    logger = logging.getLogger("poimen")
    before = logger.disabled, logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.disabled, logger.level = before
