"""The log's door, as seen from one event loop.

A lone effect commits in place; otherwise all submissions of one turn of the loop share a commit. While another
process has the log locked, what was submitted stays in line and the loop goes on: it tries again every `RETRY_S`,
and says what waits. This module must never know what a record means; it keeps the invariant that nothing submitted
is left out or overtaken by what comes later.

Source: design storage.md, "Group commit".
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from poimen import clock
from poimen.engine.eventloop.loop import empty
from poimen.log.writer import Door, is_locked
from poimen.secrecy.speaking import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from poimen.engine.driving.outbox import Sent
    from poimen.engine.worker import Worker
    from poimen.kernel.errors import PoimenError
    from poimen.log.api import Batch, Store
    from poimen.log.writer import Ticket

RETRY_S: Final = 0.1
"""How often a log that another process has locked is tried again, in seconds."""
WARN_EACH_S: Final = 10.0
"""How often it is said that the log is locked, in seconds."""

_log: Final = logger("poimen.worker")


class Outside:
    """An outsider's batch on its way; stands where a `Sent` stands."""

    __slots__ = ("_then", "box")

    def __init__(self, then: Callable[[PoimenError | None], None]) -> None:
        self.box = self
        self._then = then

    def landed(self, _sent: object, ticket: Ticket) -> None:
        """It is durable, or was refused."""
        self._then(ticket.error)


class LoopDoor:
    """The log's door, as seen from one event loop.

    Arguments:
        store: the log.
        worker: whose runs append through it.

    Attributes:
        locked_at: when the log was found locked the last time, of the clock that only goes on, in seconds.
    """

    def __init__(self, store: Store, worker: Worker) -> None:
        self._door = Door(store, waits=True)
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._armed = False
        self._retry: asyncio.TimerHandle | None = None
        self._warn_at = 0.0
        self.locked_at = -math.inf

    @property
    def commits(self) -> int:
        """How many transactions were committed through it."""
        return self._door.commits

    @property
    def locked(self) -> PoimenError | None:
        """Why what was submitted has stayed in line: another process has the log locked."""
        return self._door.locked

    def submit(self, batch: Batch, sent: Sent | Outside) -> None:
        """Put a batch in line; its owner is told when it has landed, perhaps before this returns."""
        self._door.submit(batch, self._told, sent)
        if not self._armed and self._worker.open_guards <= 1 and self._door.waiting == 1:
            self._door.flush()
            if self._door.locked is not None:
                self._look_after()
        elif not self._armed:
            self._armed = True
            self._loop.call_soon(self._turn, context=empty())

    def flush_now(self) -> None:
        """Commit what waits, in place; what a locked log keeps in line is tried again by itself."""
        self._door.flush()
        self._look_after()

    def _look_after(self) -> None:
        locked = self._door.locked
        if locked is None and self._retry is not None:
            self._retry.cancel()
            self._retry, self._armed = None, False
        elif locked is not None:
            self.passes(locked)
            if not self._armed:
                self._armed = True
                self._retry = self._loop.call_later(RETRY_S, self._turn, context=empty())

    def settle(self) -> None:
        """What is in line lands before its run is claimed anew: it is of an epoch that ends with the claim.

        Raises:
            StorageFailed: the log is still locked.
        """
        if self._door.locked is not None:
            self.flush_now()
        if self._door.locked is not None:
            raise self._door.locked

    def append(self, batch: Batch, then: Callable[[PoimenError | None], None]) -> None:
        """Append for an outsider in place; only a locked log keeps it in line.

        Arguments:
            batch: an outsider's.
            then: told when it is durable (None), or why it was refused.
        """
        self._door.submit(batch, self._told, Outside(then))
        self.flush_now()

    def passes(self, error: BaseException) -> bool:
        """Whether the log is only locked by another process, and has not failed; says so now and then."""
        if not is_locked(error):
            return False
        self.locked_at = now = clock.monotonic()
        if now >= self._warn_at:
            self._warn_at = now + WARN_EACH_S
            runs = ", ".join(sorted({ticket.batch.run for ticket in self._door.in_line()}))
            waits = f"records of {runs} wait for it" if runs else "what the runs do next waits for it"
            _log.warning("the log is locked for long, %s; nothing is lost or sent meanwhile: %s", waits, error)
        return True

    def close(self) -> None:
        """Commit what waits; what a locked log keeps in line is let go of."""
        self.flush_now()
        left = self._door.give_up()
        if left:
            runs = ", ".join(sorted({ticket.batch.run for ticket in left}))
            _log.warning("the log was locked until the end: the last records of %s are not on record", runs)

    def _turn(self) -> None:
        self._retry, self._armed = None, False
        self.flush_now()

    @staticmethod
    def _told(tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            ticket.owner.box.landed(ticket.owner, ticket)
