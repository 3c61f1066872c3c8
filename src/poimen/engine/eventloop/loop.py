"""The event loop of one run: a queue of handles, drained inside one callback of the main loop.

Workflow and step bodies run here. "Nothing is ready" is "the queue is empty", exactly, or nothing but
echoes has run for `again.TURNS` turns (decision 0019); only then is the next recorded result handed over,
so `gather`, `wait`, task groups, queues and time-outs repeat themselves in a replay. Time stands still
between hand-overs, and a timer's firing is a record. This module must never know about records; it keeps
the invariant that nothing outside the run can put the run's own handles in another order.

Source: design protocol.md, section 5 ("Replay").
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import ctypes
import sys
import weakref
from asyncio import events
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from poimen.secrecy.speaking import logger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterable


from poimen._typing import override
from poimen.engine.eventloop import again
from poimen.engine.eventloop.futures import Bridged, RunFuture, RunTask, RunTimer
from poimen.kernel.errors import Suspended

T = TypeVar("T")
_log = logger("poimen.run")


def empty() -> contextvars.Context:
    """A context of its own, for a callback that belongs to no run: one that is entered cannot be entered again."""
    return contextvars.Context()


SPIN: Final = 20_000
"""Handles that one drain runs before it lets the main loop have a turn."""


class Owner(Protocol):
    """What a run's loop needs of the run."""

    def hand_over(self) -> bool:
        """Hand over the next result, if it is there; called when nothing is ready."""
        ...

    def time_s(self) -> float:
        """The run's time: that of the record handed over last, seconds since the Unix epoch."""
        ...

    def timer(self, timer: RunTimer) -> None:
        """Arm a timer."""
        ...

    def number(self, context: contextvars.Context | None) -> int:
        """Count the tasks and futures of the code that runs in a context (None: the present one); never repeated."""
        ...


class RunLoop(asyncio.AbstractEventLoop):
    """The loop of one run.

    Arguments:
        owner: the run.
        main: the loop whose callbacks drain this one.
        name: the run and branch, for people.

    Attributes:
        now: what runs of it at this moment.
    """

    def __init__(self, owner: Owner, main: asyncio.AbstractEventLoop, name: str) -> None:
        self._owner = owner
        self._main = main
        self._ready: collections.deque[asyncio.Handle] = collections.deque()
        self.sweep = again.Sweep(self._ready)
        self.now: asyncio.Handle | None = None
        self._still = 0
        self._armed = False
        self._draining = False
        self._made = 0
        self._tasks: weakref.WeakSet[RunTask] = weakref.WeakSet()
        self._name = name
        self._asyncgens: dict[int, weakref.ref[AsyncGenerator[Any, Any]]] = {}
        self._contexts: dict[int, contextvars.Context] = {}
        self.foreign = 0
        self.silent = False
        self._spun = False

    # ---- draining ----------------------------------------------------------------------------------------------

    def arm(self) -> None:
        """See to it that the main loop drains this one soon."""
        if not self._armed and not self._draining:
            self._armed = True
            self._main.call_soon(self.drain, context=empty())

    def drain(self) -> None:
        """Run all that is ready, hand over one result, again, until nothing moves."""
        self._armed = False
        if self._draining:
            return
        self._draining = True
        ready, hand_over, left, moved = self._ready, self._owner.hand_over, SPIN, False
        still = self._still
        outer = events._get_running_loop()
        hooks = sys.get_asyncgen_hooks()
        events._set_running_loop(self)
        sys.set_asyncgen_hooks(firstiter=self._begun_asyncgen, finalizer=self._close_asyncgen)
        try:
            while True:
                while ready:
                    if still and again.stands(ready, still):
                        break
                    self.now = handle = ready.popleft()
                    still = still + 1 if type(handle) is again.Echo else 0
                    if not handle.cancelled():
                        try:
                            handle._run()
                        except SystemExit:  # its task has it, and hands it on as any other error: it ends its run
                            continue
                    left -= 1
                    if not left:
                        break
                self.now = None
                if not left or not hand_over():
                    break
                moved = True
        finally:
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(outer)
            self._draining, self.now, self._still = False, None, still
        if ready and self.silent and not left:
            ready.clear()  # code that was let go of and goes on nevertheless
        elif not left or (ready and not again.stands(ready, still)):
            if not moved:
                self._warn_spinning()
            self.arm()

    def _warn_spinning(self) -> None:
        if not self._spun and not self.silent:
            self._spun = True
            _log.warning(
                "run %s: for %d turns something in the workflow was ready, so that no result was let in; in line: %s. "
                "What goes on without awaiting anything (a loop over asyncio.sleep(0), a callback that puts another "
                "one in line) keeps results out for ever: await the thing itself",
                self._name,
                SPIN,
                ", ".join(sorted({again.in_line(handle) for handle in self._ready if not handle.cancelled()})),
            )

    def _begun_asyncgen(self, agen: AsyncGenerator[Any, Any]) -> None:
        key = id(agen)
        self._asyncgens[key] = weakref.ref(agen, lambda _agen: self._asyncgens.pop(key, None))
        for done in self._contexts.keys() - self._asyncgens.keys():
            del self._contexts[done]
        self._contexts[key] = contextvars.copy_context()

    def _close_asyncgen(self, agen: AsyncGenerator[Any, Any]) -> None:
        """Nobody holds the generator any more; whose it was is known from when it began."""
        context = self._contexts.pop(id(agen), None)
        if not self.silent:
            self.call_soon_threadsafe(self._close, agen, context)

    def _close(self, agen: AsyncGenerator[Any, Any], context: contextvars.Context | None) -> None:
        self.create_task(cast("Coroutine[Any, Any, Any]", agen.aclose()), context=context)

    def close_asyncgens(self) -> bool:
        """Close the generators that nobody has driven to their end; whether there were any."""
        left = [agen for agen in (ref() for ref in self._asyncgens.values()) if agen is not None]
        self._asyncgens.clear()
        for agen in left:
            self._close(agen, self._contexts.pop(id(agen), None))
        return bool(left)

    # ---- handles, timers, tasks --------------------------------------------------------------------------------

    @override
    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        kind = again.Echo if again.echoes(self.now, callback, args) else asyncio.Handle
        handle = kind(callback, args, self, context)
        self._ready.append(handle)
        if not self._draining and not self._armed:
            self.arm()
        return handle

    @override
    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        if events._get_running_loop() is self:  # through the main loop it would come at no place of the order
            return self.call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        self._main.call_soon_threadsafe(self._from_outside, handle)
        return handle

    def _from_outside(self, handle: asyncio.Handle) -> None:
        self._ready.append(handle)
        self.arm()

    @override
    def time(self) -> float:
        return self._owner.time_s()

    @override
    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        return self.call_at(self.time() + delay, callback, *args, context=context)

    @override
    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        timer = RunTimer(when, callback, args, self, context)
        self._owner.timer(timer)
        return timer

    def fire(self, timer: RunTimer) -> None:
        """Put a timer's callback in line."""
        if not timer.cancelled():
            self._ready.append(timer)

    @override
    def create_future(self) -> asyncio.Future[Any]:
        return RunFuture(loop=self)

    @override
    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None, **_: Any) -> asyncio.Task[Any]:
        number = self.number(context)
        task = RunTask(Bridged(coro, self), number=number, made=self._made, loop=self, name=name, context=context)
        self._made += 1
        self._tasks.add(task)
        return task

    def number(self, context: contextvars.Context | None) -> int:
        """The hash of the next task or future that code in this context makes; None: the present one."""
        return self._owner.number(context)

    def unfinished(self) -> list[RunTask]:
        """The tasks that have not ended, in the order in which they were made."""
        return sorted((task for task in self._tasks if not task.done()), key=lambda task: task.made)

    # ---- the world of the main loop ----------------------------------------------------------------------------

    def cross(self, foreign: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """Stand in for another loop's future that this run awaits."""
        foreign._asyncio_future_blocking = False
        mine = self.bridge(foreign)
        mine._asyncio_future_blocking = True
        return mine

    def bridge(self, foreign: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """A future of this loop that ends as `foreign`, one of the main loop, does.

        While it is open, the run awaits something that is not in its record.
        """
        self.foreign += 1
        mine = self.create_future()

        def back(done: asyncio.Future[Any]) -> None:
            self.foreign -= 1
            if mine.cancelled():
                if not done.cancelled():
                    done.exception()
            elif done.cancelled():
                mine.cancel()
            elif (error := done.exception()) is not None:
                mine.set_exception(error)
            else:
                mine.set_result(done.result())
            self.arm()

        foreign.add_done_callback(back, context=empty())
        mine.add_done_callback(lambda f: foreign.cancel() if f.cancelled() else None, context=empty())
        return mine

    async def _on_main(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return cast("T", await self.bridge(self._main.create_task(coroutine, context=empty())))

    @override
    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        return self.bridge(self._main.run_in_executor(executor, func, *args))

    @override
    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> Any:
        return await self._on_main(self._main.getaddrinfo(*args, **kwargs))

    @override
    async def getnameinfo(self, *args: Any, **kwargs: Any) -> Any:
        return await self._on_main(self._main.getnameinfo(*args, **kwargs))

    @override
    async def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        return await self._on_main(self._main.create_connection(*args, **kwargs))

    @override
    async def create_unix_connection(self, *args: Any, **kwargs: Any) -> Any:
        return await self._on_main(self._main.create_unix_connection(*args, **kwargs))

    @override
    async def create_server(self, *args: Any, **kwargs: Any) -> Any:
        return await self._on_main(self._main.create_server(*args, **kwargs))

    @override
    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> Any:
        return await self._on_main(self._main.subprocess_exec(*args, **kwargs))

    @override
    async def subprocess_shell(self, *args: Any, **kwargs: Any) -> Any:
        return await self._on_main(self._main.subprocess_shell(*args, **kwargs))

    @override
    async def sock_connect(self, *args: Any, **kwargs: Any) -> None:
        await self._on_main(self._main.sock_connect(*args, **kwargs))

    @override
    async def sock_recv(self, *args: Any, **kwargs: Any) -> bytes:
        return await self._on_main(self._main.sock_recv(*args, **kwargs))

    @override
    async def sock_sendall(self, *args: Any, **kwargs: Any) -> None:
        await self._on_main(self._main.sock_sendall(*args, **kwargs))

    # ---- the rest of what a loop is asked ----------------------------------------------------------------------

    @override
    def get_debug(self) -> bool:
        return False

    @override
    def is_running(self) -> bool:
        return self._draining

    @override
    def is_closed(self) -> bool:
        return False

    @override
    def get_task_factory(self) -> Any:
        return None

    @override
    async def shutdown_asyncgens(self) -> None:
        return None

    @override
    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not self.silent and not isinstance(error, Suspended):
            _log.error("run %s: %s", self._name, context.get("message"), exc_info=error)

    @override
    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)


def never_close(left: Iterable[asyncio.Task[Any]]) -> None:
    """Keep asyncio tasks as they are, for ever.

    Code that catches whatever it is thrown catches the closing of its coroutine too: garbage collection, or the end
    of the interpreter, would spin in it. One reference that nobody counts keeps both away.
    """
    for task in left:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))


def run_loop(owner: Owner, main: asyncio.AbstractEventLoop, name: str) -> RunLoop:
    """The loop of one run; what it does not offer (signals, pipes) raises NotImplementedError."""
    return RunLoop(owner, main, name)  # type: ignore[abstract]
