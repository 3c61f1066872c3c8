"""Opens a closed body and runs it. Only `gate.guard` may import this module.

A body runs on the main loop (a coroutine as a task of its own, a plain function in a pool of
threads), within its timeout; told to stop, it has its grace to finish; past that it is given up, and
its end, when it comes, is late. This module must never know about the log or effect classes; it
keeps the invariant that a body that was begun is followed to its end.

Source: design protocol.md, section 3 ("The guard") and "Outcomes".
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from poimen.declare import sealed
from poimen.declare.calling import CALLER
from poimen.gate import points
from poimen.gate.port import Awaited
from poimen.kernel.errors import NotSent
from poimen.secrecy.speaking import logger

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Coroutine, Generator

    from poimen.declare.calling import Caller
    from poimen.declare.sealed import Token

    _Coroutine = Callable[..., Coroutine[Any, Any, Any]]

_log: Final = logger("poimen.gate")

_replaced: Final[dict[Token, Callable[..., Any]]] = {}
"""Bodies that a test has put in place of the sealed ones (`poimen.testing.replace`)."""


@dataclass(frozen=True, slots=True)
class Value:
    """The body returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The body raised. `told_to_stop`: it had been cancelled or timed out before."""

    error: BaseException
    told_to_stop: Stop | None


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The body goes on past its grace; `why` it was told to stop."""

    why: Stop


Ended = Value | Raised | GivenUp

Stop: TypeAlias = Literal["timeout", "cancel"]
"""Why a body is told to stop."""

_NO_CALLER: Final[contextvars.Context] = contextvars.Context()


def pool(threads: int) -> ThreadPoolExecutor:
    """Threads for bodies that are plain functions."""
    return ThreadPoolExecutor(max_workers=threads, thread_name_prefix="poimen-body")


def body(token: Token) -> Callable[..., Any]:
    """The function behind a token, or the one that a test has put in its place."""
    return _replaced.get(token) or sealed.opened(token)


def is_coroutine(token: Token) -> bool:
    """Whether the function behind a token is a coroutine function."""
    return asyncio.iscoroutinefunction(body(token))


def _entered(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The same body with a crash point at its first line."""

    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        points.reach("in_call", name)
        return await fn(*args, **kwargs)

    def plain(*args: Any, **kwargs: Any) -> Any:
        points.reach("in_call", name)
        return fn(*args, **kwargs)

    return coroutine if asyncio.iscoroutinefunction(fn) else plain


class _Ended:
    """An exception that a task or a future cannot carry: asyncio would end the process, or refuse it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _contained(first: Callable[[], None], fn: _Coroutine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    first()
    try:
        return await fn(*args, **kwargs)
    except (SystemExit, KeyboardInterrupt) as error:
        return _Ended(error)


class OpenCall(Awaited):
    """One run of a body, from its first line to its end.

    Arguments:
        token: stands for the body.
        args, kwargs: as the body gets them.
        is_async: whether it is a coroutine function.
        caller: what stands behind calls that the body makes itself.
        threads: where plain functions run.
        name: of the tool, for the crash point in its body; empty for what is no tool.
        what: it is, for people who are told that it goes on.
        first: looks again, right before the first line; what it raises is how the call ends.
        late: told of the end when it comes after the call was given up.
    """

    __slots__ = ("_begun", "_future", "_late", "_name", "_never", "_over", "_queued", "_timers", "_why")

    _future: asyncio.Future[Any]
    _over: Ended | None
    _queued: concurrent.futures.Future[Any] | None

    def __init__(
        self,
        token: Token,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        is_async: bool,
        caller: Caller,
        threads: ThreadPoolExecutor,
        name: str = "",
        what: str,
        first: Callable[[], None] = lambda: None,
        late: Callable[[Value | Raised], None] = lambda _ended: None,
    ) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._late = late
        self._why: Stop | None = None
        self._name, self._never, self._begun = name, False, 0.0
        self._timers: list[asyncio.TimerHandle] = []
        self._queued = self._over = self.wakeup = None
        context = _NO_CALLER.copy()
        context.run(CALLER.set, caller)
        fn = body(token)
        if points.armed("in_call"):
            fn = _entered(fn, name)
        if is_async:
            self._begun = loop.time()
            self._future = loop.create_task(_contained(first, fn, args, kwargs), name=what, context=context)
        else:
            self._queued = threads.submit(self._in_thread, first, lambda: context.run(fn, *args, **kwargs))
            self._future = asyncio.wrap_future(self._queued, loop=loop)
        self._future.add_done_callback(self._ended, context=context)

    def _in_thread(self, first: Callable[[], None], call: Callable[[], Any]) -> Any:
        self._begun = self._loop.time()
        first()
        try:
            return call()
        except (StopIteration, SystemExit, KeyboardInterrupt) as error:
            return _Ended(error)

    async def end(self, *, timeout_s: float, grace_s: float) -> Ended:
        """Wait for the body to end.

        Arguments:
            timeout_s: after that it is told to stop; counted from its first line.
            grace_s: after that it is given up.
        """
        self._timers.append(self._loop.call_later(timeout_s, self._time_up, timeout_s, grace_s))
        try:
            return await self
        finally:
            for timer in self._timers:
                timer.cancel()

    def __await__(self) -> Generator[OpenCall, None, Ended]:
        while self._over is None:
            self._asyncio_future_blocking = True
            yield self
        return self._over

    def _time_up(self, timeout_s: float, grace_s: float) -> None:
        if not self._begun:
            _log.warning("%s waits for a thread: all of them are taken by bodies that have not ended", self._name)
        left = self._begun + timeout_s - self._loop.time() if self._begun else timeout_s
        if left > 0:
            self._timers.append(self._loop.call_later(left, self._time_up, timeout_s, grace_s))
        else:
            self.stop("timeout", grace_s)

    def stop(self, why: Stop, grace_s: float) -> None:
        """Tell the body to stop; a plain function cannot hear it. One that has not begun never will.

        Arguments:
            why: for whoever reads its end.
            grace_s: how long it has to finish.
        """
        if self._over is not None or self._why:
            return
        self._why = why
        if self._queued is not None and self._queued.cancel():
            self._never = True
            return
        self._timers.append(self._loop.call_later(grace_s, self._give_up))
        if isinstance(self._future, asyncio.Task):
            body = self._future.get_coro()
            self._never = inspect.iscoroutine(body) and inspect.getcoroutinestate(body) == inspect.CORO_CREATED
            self._future.cancel()

    def _give_up(self) -> None:
        if self._over is None and self._why is not None:
            self._over = GivenUp(self._why)
            self.wake()

    def _ended(self, future: asyncio.Future[Any]) -> None:
        ended: Value | Raised
        if future.cancelled():
            ended = Raised(_never_begun(self._why) if self._never else asyncio.CancelledError(), self._why)
        else:
            error = future.exception()
            if error is None and type(found := future.result()) is _Ended:  # asked for its `__class__`, it may raise
                error = found.error
            ended = Value(future.result()) if error is None else Raised(error, self._why)
        if self._over is not None:
            self._late(ended)
        else:
            self._over = ended
            self.wake()


def place(caller: Caller) -> str:
    """Whose body it is that is no effect."""
    at = caller.current()
    return f"{at.run_id}/{at.branch_id}/{at.step}/{at.attempt}"


def _never_begun(why: Stop | None) -> NotSent:
    return NotSent(f"the body had not begun when the call was stopped ({why})")
