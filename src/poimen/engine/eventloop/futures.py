"""What a run's code awaits: tasks and futures that keep their order in a replay, and bridges to other loops.

This module must never know which run it serves; it keeps the invariant that nothing in it depends on an address:
sets of these tasks and futures are walked in the same order each time.

Source: design protocol.md, section 5 ("tasks hash by run and ordinal").
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from poimen._typing import override
from poimen.engine.eventloop import again

if TYPE_CHECKING:
    from collections.abc import Callable

    from poimen.engine.eventloop.loop import RunLoop

T = TypeVar("T")


class RunTimer(asyncio.TimerHandle):
    """A timer of the run. It fires when its record is handed over."""

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: RunLoop, context: Any
    ) -> None:
        self.context: contextvars.Context = context if context is not None else contextvars.copy_context()
        super().__init__(when, callback, args, loop, self.context)
        self.scope: Any = None
        self.n = -1
        self.fired = False
        self.real: asyncio.TimerHandle | None = None

    @override
    def cancel(self) -> None:
        if self.real is not None:
            self.real.cancel()
            self.real = None
        if self.scope is not None:
            self.scope.timers.pop(self.n, None)
        asyncio.Handle.cancel(self)


class RunTask(asyncio.Task[Any]):
    """A task whose hash is its number in the code that made it, so that sets of tasks keep their order in a replay.

    `made` counts the tasks of the loop, for those who walk over all of them.
    """

    __slots__ = ("_number", "made")

    def __init__(self, coro: Coroutine[Any, Any, Any], *, number: int, made: int, **how: Any) -> None:
        self._number = number  # first: a task hashes itself while it is made
        self.made = made
        super().__init__(coro, **how)

    @override
    def __hash__(self) -> int:
        return self._number

    @override
    def cancel(self, msg: Any = None) -> bool:
        """Cancel; an anyio cancel scope wakes its tasks in the order in which they were made."""
        if not again.by_scope(msg):
            return super().cancel(msg)
        loop = cast("RunLoop", self.get_loop())
        return loop.sweep.wake(self.made, loop.now, partial(super().cancel, again.told(msg)))


class RunFuture(asyncio.Future[Any]):
    """A future with such a hash too, taken when it is asked for: `asyncio.shield` gives one to the code."""

    _number: int

    @override
    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number = number = cast("RunLoop", self.get_loop()).number(None)
            return number


class Bridged(Coroutine[Any, Any, T]):
    """A coroutine whose awaits of other loops' futures are bridged, and so known."""

    __slots__ = ("__name__", "__qualname__", "_coroutine", "_loop", "_send", "_throw")

    def __init__(self, coroutine: Coroutine[Any, Any, T], loop: RunLoop) -> None:
        self._coroutine = coroutine
        self._send = coroutine.send
        self._throw = coroutine.throw
        self._loop = loop
        self.__name__ = getattr(coroutine, "__name__", "coroutine")
        self.__qualname__ = getattr(coroutine, "__qualname__", "coroutine")

    @override
    def send(self, value: Any, /) -> Any:
        found = self._send(value)
        if found is not None and found.get_loop() is not self._loop:
            return self._loop.cross(found)
        return found

    @override
    def throw(self, *error: Any) -> Any:
        found = self._throw(*error)
        if found is not None and found.get_loop() is not self._loop:
            return self._loop.cross(found)
        return found

    @override
    def close(self) -> None:
        self._coroutine.close()

    @override
    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    # what `inspect`, asyncio's and anyio's eyes look for; an asynchronous generator's closing has none of it

    @property
    def cr_code(self) -> Any:
        """The code object, for tracebacks and debuggers."""
        return getattr(self._coroutine, "cr_code", None)

    @property
    def cr_frame(self) -> Any:
        """The frame, for tracebacks and debuggers."""
        return getattr(self._coroutine, "cr_frame", None)

    @property
    def cr_running(self) -> bool:
        """Whether it runs now."""
        return bool(getattr(self._coroutine, "cr_running", False))

    @property
    def cr_suspended(self) -> bool:
        """Whether it has begun and waits; `inspect.getcoroutinestate` asks for it, and so does anyio."""
        return bool(getattr(self._coroutine, "cr_suspended", False))

    @property
    def cr_await(self) -> Any:
        """What it waits for, for debuggers."""
        return getattr(self._coroutine, "cr_await", None)

    @property
    def cr_origin(self) -> Any:
        """Where it was made, if that is kept (`sys.set_coroutine_origin_tracking_depth`)."""
        return getattr(self._coroutine, "cr_origin", None)
