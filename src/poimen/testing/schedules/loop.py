"""An event loop without a machine: time jumps, and a seed says which of the ready callbacks runs next.

asyncio runs callbacks in the order in which they became ready. What is right only in that order is right by luck:
a slower disk or a network's answer changes it. Here each step runs one callback, chosen by a seed, and now and then
the clock jumps although something is ready, as on a machine that was busy elsewhere. Nothing waits: no sockets, no
threads, no sleep. This module must never know what runs on it; it keeps the invariant that the schedule follows from
the seed alone: nothing here asks for an address, a hash, or the time of day.

Source: design proof.md, P11.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import inspect
import warnings
from asyncio import events
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from poimen import clock
from poimen._typing import override

if TYPE_CHECKING:
    import random  # noqa: TID251 (seeded: one seed is one schedule)
    from collections.abc import Callable, Iterator

Order: TypeAlias = Literal["seeded", "asyncio"]
"""Which of the ready callbacks runs next: one chosen by the seed, or the one that became ready first."""

BEGIN_S: Final = 1_900_000_000
"""The wall time at which each simulation begins, in seconds since the Unix epoch."""
TURN_S: Final = 5e-6
"""What one step costs, in seconds, so that records have different times."""
MOODS: Final = (0.0, 0.1, 0.5, 1.0, 1.0)
"""How often the seed chooses, and not the order of asyncio: a schedule has one of these. Some faults need a single
callback out of its turn in an order that is else the usual one."""
JUMPS: Final = (0.0, 0.0, 0.003, 0.03)
"""How often the clock jumps to the next timer although something is ready."""


class OutOfSteps(Exception):
    """The program moves without end."""


class NothingComes(Exception):
    """Nothing is ready, no timer is set, and the program has not ended: it waits for what never comes."""


class Died(BaseException):
    """The process of the simulation ends here, between two callbacks. Nothing in it may catch this."""


class SimulatedTask(asyncio.Task[Any]):
    """An asyncio task that hashes by its number, so that sets of them have an order that repeats itself."""

    number = 0

    @override
    def __hash__(self) -> int:
        return self.number or SimulatedLoop.making


class SimulatedLoop(asyncio.BaseEventLoop):
    """A loop whose time stands still while something is ready and jumps to the next timer when nothing is.

    Arguments:
        chance: decides. Whatever draws from it afterwards is part of the schedule too.
        order: which of the ready callbacks runs next.
        now_s: its time at the beginning, seconds.
        steps: after so many callbacks the program is held to move without end.

    Attributes:
        steps: how many callbacks have run.
        path: what was chosen so far, as a number.
        dies_at: the callback at which the process dies, by number; -1: none.
        struck: what others do right behind a callback, by its number.

    Raises:
        NothingComes, OutOfSteps: out of whatever runs the loop.
    """

    making = 0

    def __init__(
        self, chance: random.Random, *, order: Order = "seeded", now_s: float = 0.0, steps: int = 200_000
    ) -> None:
        super().__init__()
        self.chance = chance
        self.now = now_s
        self.steps = 0
        self.most = steps
        self.dies_at = -1
        self.path = 0
        self.struck: dict[int, Callable[[], None]] = {}
        self.tasks: list[asyncio.Task[Any]] = []
        self.errors: list[str] = []
        self._mood = chance.choice(MOODS) if order == "seeded" else 0.0
        self._jumps = chance.choice(JUMPS) if order == "seeded" else 0.0
        self.set_task_factory(cast("Any", self._made))
        self.set_exception_handler(self._noted)
        self.set_default_executor(SimulatedThreads(self))

    # ---- time and order ------------------------------------------------------------------------------------------

    @override
    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        timers = self._scheduled  # type: ignore[attr-defined]
        if not ready or self._jumps or (timers and timers[0]._when <= self.now):
            self._let_timers_fire(ready)
        at = 0
        if len(ready) > 1 and self._mood and (self._mood == 1.0 or self.chance.random() < self._mood):
            at = int(self.chance.random() * len(ready))
        self.path = hash((self.path, at, len(ready)))  # of integers: the same in each process
        handle = ready[at]
        del ready[at]
        if handle._cancelled:
            return
        self.steps += 1
        self.now += TURN_S
        if self.steps == self.dies_at:
            raise Died
        if self.steps > self.most:
            raise OutOfSteps(f"{self.most:,} callbacks have run, and the program has not ended")
        handle._run()
        strike = self.struck.pop(self.steps, None) if self.struck else None
        if strike is not None:
            strike()

    def _let_timers_fire(self, ready: Any) -> None:
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0].cancelled():
            heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]
        if timers and (not ready or (self._jumps and self.chance.random() < self._jumps)):
            self.now = max(self.now, timers[0].when())
        if not ready and not timers:
            raise NothingComes("nothing is ready, and nothing ever will be")
        while timers and timers[0].when() <= self.now:
            timer = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            ready.append(timer)

    def left(self) -> list[str]:
        """What is still to run: callbacks in line, timers that are set, asyncio tasks that have not ended."""
        in_line = [handle for handle in self._ready if not handle._cancelled]  # type: ignore[attr-defined]
        timers = [timer for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        tasks = [task for task in self.tasks if not task.done()]
        return [f"{one}" for one in (*in_line, *timers, *tasks)]

    # ---- asyncio's tasks, threads -----------------------------------------------------------------------------------

    def _made(self, _loop: object, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
        SimulatedLoop.making = number = len(self.tasks) + 1
        task = SimulatedTask(coroutine, loop=self, **more)
        task.number = number
        self.tasks.append(task)
        return task

    def _noted(self, _loop: object, context: dict[str, Any]) -> None:
        self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    @override
    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    @override
    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def _write_to_self(self) -> None:
        """Nobody sleeps here who would have to be woken."""

    def _process_events(self, _events: object) -> None:
        """There are none."""

    def abandon(self) -> None:
        """The process has died: nothing of it runs any more; its coroutines are closed in the order of their making."""
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        for task in self.tasks:
            close(task)
        self._ready.clear()  # type: ignore[attr-defined]
        self.close()


def close(task: asyncio.Task[Any]) -> None:
    """Close the coroutine of an asyncio task that nobody will step again."""
    if task.done():
        return
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what had not begun never will
        _close(task.get_coro())


def _close(coroutine: Any) -> None:
    """Close a coroutine; one that has not begun holds others that nobody would close."""
    body = getattr(coroutine, "_coroutine", coroutine)  # a run's own wrap theirs
    if inspect.iscoroutine(body) and inspect.getcoroutinestate(body) == inspect.CORO_CREATED:
        for held in inspect.getcoroutinelocals(body).values():
            if inspect.iscoroutine(held):
                _close(held)
    with suppress(BaseException):  # a dead process: nobody hears what its code says to that
        coroutine.close()


class SimulatedThreads(ThreadPoolExecutor):
    """Threads whose work is done in a moment that the seed chooses, and told of in a later one.

    A body that is a plain function runs here from its first line to its last without anybody beside it; what differs
    between schedules is when that is, and when the loop hears of it.

    Arguments:
        loop: on which it runs.
    """

    LONGEST_S: Final = 0.05

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__(max_workers=1)  # which is never made: threads come with the first `submit` of that class
        self._loop = loop

    @override
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        told: Future[Any] = Future()
        self._later(self._work, told, lambda: fn(*args, **kwargs))
        return told

    def _later(self, act: Callable[..., None], *args: Any) -> None:
        self._loop.call_later(self._loop.chance.random() * self.LONGEST_S, act, *args)

    def _work(self, told: Future[Any], call: Callable[[], Any]) -> None:
        if not told.set_running_or_notify_cancel():
            return
        outer = events._get_running_loop()
        events._set_running_loop(None)  # it is a thread's own: code in it may not await
        try:
            found = call()
        except BaseException as error:  # noqa: BLE001 (handed to whoever waits for it)
            self._later(told.set_exception, error)
        else:
            self._later(told.set_result, found)
        finally:
            events._set_running_loop(outer)

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 (as its base)
        """Nothing to shut down."""


# ---- the clock -----------------------------------------------------------------------------------------------------


class SimulatedSource(clock.Source):
    """The loop's time, and chance with a seed.

    Arguments:
        loop: whose time it is.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop

    @override
    def wall_us(self) -> int:
        return BEGIN_S * clock.US + round(self.loop.now * clock.US)

    @override
    def boot_us(self) -> int:
        return round(self.loop.now * clock.US)

    @override
    def monotonic(self) -> float:
        return self.loop.now

    @override
    def random_bytes(self, n: int) -> bytes:
        return self.loop.chance.randbytes(n)

    @override
    def jitter(self, spread: float) -> float:
        return 1.0 + spread * (2.0 * self.loop.chance.random() - 1.0)


@contextmanager
def simulated_clock(loop: SimulatedLoop) -> Iterator[SimulatedSource]:
    """Poimen's time and chance are a loop's; no garbage is collected meanwhile, which would come at its own times."""
    source = SimulatedSource(loop)
    before = clock.use(source)
    clock._Ids.forget()
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield source
    finally:
        clock.use(before)
        clock._Ids.forget()
        if collecting:
            gc.enable()
