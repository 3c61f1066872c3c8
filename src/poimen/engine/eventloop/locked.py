"""A log that another process has locked: one event loop tries again until it is free, and says what waits.

Nothing was written of what was refused, so it is done again. While the log is known to be locked only one of many
who wait tries it, for the loop stands still meanwhile. This module must never know what is written; it keeps the
invariant that whatever else has failed is raised.

Source: decision of docs/reference/configuration.md, "What lies beside it".
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from poimen import clock
from poimen.kernel.errors import PoimenError
from poimen.log.writer import is_locked

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

T = TypeVar("T")

RETRY_S: Final = 0.1
"""How often a log that another process has locked is tried again, in seconds."""
WARN_AFTER_S: Final = 5.0
"""How long it has been locked when that is said first, in seconds."""
WARN_EACH_S: Final = 10.0
"""How often it is said again, in seconds."""

_log: Final = logging.getLogger("poimen.worker")


class Locked:
    """What one event loop knows of the lock.

    Attributes:
        locked_at: when the log was found locked the last time, of the clock that only goes on, in seconds.
    """

    def __init__(self) -> None:
        self.locked_at = -math.inf
        self._again_at = -math.inf
        self._warn_at: float | None = None

    def waiting(self) -> Iterable[str]:
        """The runs whose records wait, as far as it is known."""
        return ()

    @property
    def lately(self) -> bool:
        """Whether the log was found locked a moment ago: it is too early to try it again."""
        return clock.monotonic() < self._again_at

    def passes(self, error: BaseException) -> bool:
        """Whether the log is only locked by another process, and has not failed; says so now and then."""
        if not is_locked(error):
            return False
        now = clock.monotonic()
        if self._warn_at is None or now > self.locked_at + WARN_EACH_S:  # another lock than the last time
            self._warn_at = now + WARN_AFTER_S
        self.locked_at, self._again_at = now, now + RETRY_S
        if now >= self._warn_at:
            self._warn_at = now + WARN_EACH_S
            runs = ", ".join(self.waiting())
            waits = f"records of {runs} wait for it" if runs else "what the runs do next waits for it"
            _log.warning("the log is locked for long, %s; nothing is lost or sent meanwhile: %s", waits, error)
        return True

    def freed(self) -> None:
        """The log could be written: whoever waits may try it at once."""
        self._again_at, self._warn_at = -math.inf, None

    @overload
    async def patiently(self, act: Callable[[], Coroutine[Any, Any, T]]) -> T: ...
    @overload
    async def patiently(self, act: Callable[[], T]) -> T: ...
    async def patiently(self, act: Callable[[], Any]) -> Any:
        """Do something that writes to the log, for as long as it takes.

        Arguments:
            act: done again from its beginning when it found the log locked.
        """
        while True:
            if self.lately:
                await asyncio.sleep(RETRY_S)
                continue
            try:
                done = act()
                done = await done if asyncio.iscoroutine(done) else done
            except PoimenError as error:
                if not self.passes(error):
                    raise
            else:
                self.freed()
                return done
