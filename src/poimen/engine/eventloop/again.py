"""Callbacks that put themselves in line again and again: they do not keep a result out, and they wake in one order.

An anyio cancel scope that was cancelled tells its tasks so in each turn of the loop until they have ended, and a task
that waits for a call ends only when the call's end is handed over. This module must never know of a clock or an
address; it keeps the invariant that it counts what the run itself has put in line, and nothing else.

Source: decision 0019.
"""

from __future__ import annotations

import asyncio
from types import MethodType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

TURNS: Final = 100
"""So many turns on end in which nothing but echoes ran are "nothing is ready". Part of the order: decision 0019."""

SCOPE: Final = "Cancelled via cancel scope "
"""How the message of an anyio cancellation begins, by which anyio knows its own; an address comes behind it."""

_REASON: Final = "; reason: "


class Echo(asyncio.Handle):
    """A callback that put itself in line again, or what such a one has put in line."""

    __slots__ = ()


def echoes(now: asyncio.Handle | None, callback: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether what is put in line is an echo of what runs at this moment.

    Arguments:
        now: what runs; None: nothing of the run does.
        callback: put in line.
        args: with which.
    """
    if now is None:
        return False
    if type(now) is Echo:
        return True
    running: Any = now  # what a handle holds has no public name
    mine, held = running._callback, running._args  # noqa: SLF001
    if callback is not mine and not (type(callback) is MethodType and type(mine) is MethodType and callback == mine):
        return False
    return len(held) == len(args) and all(a is b for a, b in zip(held, args, strict=True))


def stands(ready: deque[asyncio.Handle], still: int) -> bool:
    """Whether nothing is ready but echoes.

    Arguments:
        ready: the line.
        still: how many echoes ran since anything else did.
    """
    return still >= TURNS * len(ready) and all(type(handle) is Echo for handle in ready)


def told(message: Any) -> Any:
    """A cancellation's message without the address of its scope, which differs in a replay."""
    if not by_scope(message):
        return message
    _, mark, reason = message.rpartition(_REASON)
    return f"{SCOPE}of the run{mark}{reason if mark else ''}"


def by_scope(message: Any) -> bool:
    """Whether a cancellation comes from an anyio cancel scope."""
    return isinstance(message, str) and message.startswith(SCOPE)


class Sweep:
    """The order in which a cancel scope wakes tasks: as they were made.

    anyio keeps the scopes inside a scope in a set, and walks it in the order of their addresses.

    Arguments:
        ready: the line.
    """

    def __init__(self, ready: deque[asyncio.Handle]) -> None:
        self._ready = ready
        self._of: asyncio.Handle | None = None
        self._parts: list[tuple[int, int]] = []
        self._end = 0
        self._inside = False

    def wake(self, made: int, now: asyncio.Handle | None, cancel: Callable[[], bool]) -> bool:
        """Cancel a task; what that puts in line goes before what it has put there for later tasks just now.

        Arguments:
            made: the task's number.
            now: what runs; one sweep belongs to one handle.
            cancel: the cancellation itself.

        Returns:
            What `cancel` does.
        """
        if self._inside or now is None:  # a task that waits for tasks hands its cancellation on to them
            return cancel()
        before, self._inside = len(self._ready), True
        try:
            done = cancel()
        finally:
            self._inside = False
        count = len(self._ready) - before
        if count:
            if self._of is not now or self._end != before:
                self._of, self._parts = now, []
            self._forward(made, count)
            self._end = len(self._ready)
        return done

    def _forward(self, made: int, count: int) -> None:
        parts, at, later = self._parts, len(self._parts), 0
        while at and parts[at - 1][0] > made:
            at -= 1
            later += parts[at][1]
        parts.insert(at, (made, count))
        if later:
            tail = [self._ready.pop() for _ in range(later + count)][::-1]
            self._ready.extend(tail[later:] + tail[:later])


def in_line(handle: Any) -> str:
    """What waits in line, for people: the function of the task, or of the callback itself."""
    callback = handle._callback  # noqa: SLF001 (as in `echoes`)
    owner = getattr(callback, "__self__", None)
    named: Any = owner.get_coro() if isinstance(owner, asyncio.Task) else callback
    return str(getattr(named, "__qualname__", None) or type(named).__name__)
