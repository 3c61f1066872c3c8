"""Who waits in this process for a run to come to rest: told by the worker, so that nobody has to look again and again.

This module must never know why a run rests; it keeps the invariant that whoever waits is told, or looks for himself
in time.

Source: design api.md, "Client and Runtime".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from poimen.kernel.views import RunView

WATCH_S: Final = 0.05
"""How often other processes' commits are looked for, in seconds."""


class Waiters:
    """Those who wait, by run. Belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[RunView | None]]] = {}

    async def rest(self, run: str, timeout_s: float | None) -> RunView | None:
        """Wait until a run has come to rest here.

        Arguments:
            run: its id.
            timeout_s: how long, in seconds; None: until told.

        Returns:
            The run as its driver left it; None when there is nothing to tell but that it is time to look.
        """
        told: asyncio.Future[RunView | None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(run, set())
        waiting.add(told)
        try:
            await asyncio.wait([told], timeout=timeout_s)
        finally:
            waiting.discard(told)
            if not waiting and self._waiting.get(run) is waiting:
                del self._waiting[run]
        return told.result() if told.done() else None

    def tell(self, run: str, view: RunView | None = None) -> None:
        """A run has come to rest, or will not be driven here for now: `view` is what its driver left."""
        for told in self._waiting.pop(run, ()):
            if not told.done():
                told.set_result(view)

    def tell_all(self) -> None:
        """Something has happened that concerns every run."""
        for run in list(self._waiting):
            self.tell(run)
