"""Bodies that are plain functions: workflows and steps in threads of their own.

Such a body posts its calls to the run's loop and waits. While its thread runs, the run is not quiet and nothing is
handed over, so a replay meets it where live did. This module must never let two threads of one body run; it keeps
the invariant that a thread either runs or waits for exactly one call.

Source: design protocol.md, section 5; api.md, "Calling" (both colours).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from poimen.engine.eventloop.loop import empty
from poimen.kernel.errors import StepError, UnguardedEffect, WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from poimen.declare.calling import Current
    from poimen.declare.specs import Options, ToolSpec
    from poimen.engine.driving.driver import Driver
    from poimen.engine.driving.scopes import Scope

T = TypeVar("T")


class Threads:
    """The threads of one run. `busy` counts those that run."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.busy = 0

    def run(self, scope: ThreadScope, fn: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run a workflow or step body in a thread of its own kind; the run is not quiet while it runs.

        Arguments:
            scope: what stands behind the body; its calls come from this thread alone.
            fn: the body.
        """
        mine = self._driver.loop.create_future()
        self.busy += 1
        # a workflow's thread waits for its steps', and a step's for its tools': no kind may use up another's
        worker = self._driver.worker
        threads = worker.step_threads if scope.scope.step else worker.workflow_threads
        foreign = self._driver.main.run_in_executor(threads, _whole, scope, fn)

        def back(done: asyncio.Future[_End]) -> None:
            self.busy -= 1
            if not mine.done():
                done.result().give(mine)
            self._driver.loop.arm()

        foreign.add_done_callback(back, context=empty())
        return mine

    def waits(self, _task: object) -> None:
        """A body's thread has made a call and waits for it."""
        self.busy -= 1

    def runs(self, tell: Callable[[Any], None], what: Any) -> None:
        """Tell a waiting thread; it runs again."""
        self.busy += 1
        tell(what)


class _End:
    """How a body ended, as a value: some exceptions cannot travel through a future as they are."""

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        self._value = value
        self._error = error

    def give(self, future: asyncio.Future[Any]) -> None:
        """End a future in the same way."""
        if self._error is None:
            future.set_result(self._value)
        elif isinstance(self._error, StopIteration):
            told = RuntimeError("the body raised StopIteration")  # as a generator turns it (PEP 479)
            told.__cause__ = self._error
            future.set_exception(told)
        else:
            future.set_exception(self._error)


def _whole(scope: ThreadScope, fn: Callable[[], Any]) -> _End:
    scope.thread = threading.get_ident()
    try:
        return _End(fn())
    except BaseException as error:  # noqa: BLE001 (given to whoever waits for the body)
        return _End(error=error)


class ThreadScope:
    """What stands behind a body that is a plain function, in its own thread: it posts to the run's loop and waits."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.pid = scope.pid
        self.thread = 0

    def call(self, spec: ToolSpec, packed: bytes, options: Options) -> Coroutine[Any, Any, Any]:  # noqa: ARG002
        """Refuse: a plain function does not await."""
        return self._refused(spec)

    @staticmethod
    async def _refused(spec: ToolSpec) -> Any:
        raise WouldBlock(
            f"{spec.name}.aio(...) was awaited on a loop that is not the run's",
            where=spec.where,
            why="a synchronous workflow or step has no loop of its own",
            hint=f"call {spec.name}.sync(...), or make the workflow a coroutine",
        )

    def call_sync(self, spec: ToolSpec, packed: bytes, options: Options) -> Any:
        """Call, and wait in this thread."""
        _refuse_loop(spec)
        self._refuse_stranger(f"{spec.kind} {spec.name!r}", spec.where)
        scope = self.scope
        return self._posted(lambda: scope.call(spec, packed, options))  # type: ignore[attr-defined]

    def decide(self, decision_id: str, value: Any) -> Any:
        """Record a decision."""
        return self._asked(lambda: self.scope.decide(decision_id, value))

    def settle(self, decision_id: str) -> None:
        """Record that a decision was carried out."""
        self._asked(lambda: self.scope.settle(decision_id))

    def request_id(self) -> str:
        """Only an effect has one."""
        return self.scope.request_id()

    def current(self) -> Current:
        """Where the code that asks is running."""
        return self.scope.current()

    def _refuse_stranger(self, what: str, where: str) -> None:
        """A second thread would make calls in an order that no replay can repeat."""
        if threading.get_ident() != self.thread:
            raise UnguardedEffect(
                f"{what} was called in a thread that the workflow or step started itself",
                where=where,
                why="calls of several threads have no order that a replay could repeat; nothing was done",
                hint="call it in the body's own thread, or make the workflow a coroutine and use asyncio.gather",
            )

    def _asked(self, ask: Callable[[], T]) -> T:
        self._refuse_stranger("a decision", "")
        box: concurrent.futures.Future[T] = concurrent.futures.Future()

        def answer() -> None:
            try:
                box.set_result(ask())
            except BaseException as error:  # noqa: BLE001 (handed to the thread that asked)
                box.set_exception(error)

        self.scope.driver.loop.call_soon_threadsafe(answer)
        return box.result()

    def _posted(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        driver = self.scope.driver
        box: concurrent.futures.Future[Any] = concurrent.futures.Future()

        async def go() -> None:
            try:
                result = await begin()
            except BaseException as error:  # noqa: BLE001 (handed to the thread that asked)
                driver.threads.runs(box.set_exception, error)
            else:
                driver.threads.runs(box.set_result, result)

        def start() -> None:
            driver.threads.waits(driver.loop.create_task(go()))

        driver.loop.call_soon_threadsafe(start)
        return box.result()


def _refuse_loop(spec: ToolSpec) -> None:
    if asyncio._get_running_loop() is not None:  # noqa: SLF001 (get_running_loop would raise)
        raise WouldBlock(
            f"{spec.name}(...) would block the event loop that runs in this thread",
            where=spec.where,
            hint=f"await {spec.name}.aio(...)",
        )


async def contained(body: Coroutine[Any, Any, Any]) -> Any:
    """A body that wants to end the process ends its run: others live in the same process."""
    try:
        return await body
    except (SystemExit, KeyboardInterrupt) as error:
        raise StepError(type(error).__name__, str(error)) from error


async def awaited(thread: asyncio.Future[Any]) -> Any:
    """A body in a thread, as a coroutine."""
    return await thread
