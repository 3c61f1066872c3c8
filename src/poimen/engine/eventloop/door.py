"""The log's door, as seen from one event loop.

A lone effect commits in place; otherwise all submissions of one turn of the loop share a commit. While another
process has the log locked, what was submitted stays in line and the loop goes on: it tries again every `RETRY_S`,
and says what waits. This module must never know what a record means; it keeps the invariant that nothing submitted
is left out or overtaken by what comes later.

Source: design storage.md, "Group commit".
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from poimen import clock
from poimen._typing import override
from poimen.engine.eventloop import locked
from poimen.engine.eventloop.locked import Locked
from poimen.engine.eventloop.loop import empty
from poimen.log import codec
from poimen.log.writer import Door
from poimen.secrecy.speaking import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from poimen.engine.driving.outbox import Sent
    from poimen.engine.worker import Worker
    from poimen.kernel.errors import PoimenError
    from poimen.log.api import Batch, Store
    from poimen.log.writer import Ticket

LAST_TURNS: Final = 10
"""Of the loop: a guard whose send was in line until the end says in them that nothing was sent."""

_log: Final = logger("poimen.worker")


class Outside:
    """An outsider's batch on its way; stands where a `Sent` stands."""

    __slots__ = ("_then", "box")
    wakeup = None

    def __init__(self, then: Callable[[PoimenError | None], None]) -> None:
        self.box = self
        self._then = then

    def landed(self, _sent: object, ticket: Ticket) -> None:
        """It is durable, or was refused."""
        self._then(ticket.error)

    def dated(self, at: int, boot_us: int) -> None:
        """Its record has another time: nobody here counts from it."""


class LoopDoor(Locked):
    """The log's door, as seen from one event loop.

    Arguments:
        store: the log.
        worker: whose runs append through it.
    """

    def __init__(self, store: Store, worker: Worker) -> None:
        super().__init__()
        self._door = Door(store, waits=True)
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._armed = False
        self._retry: asyncio.TimerHandle | None = None
        self._awake: deque[Sent] = deque()

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
        else:
            self._arm()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._loop.call_soon(self._turn, context=empty())

    def flush_now(self, *, patience_s: float = 0.0) -> None:
        """Commit what waits, in place; what a locked log keeps in line is tried again by itself.

        Arguments:
            patience_s: how long a locked log is tried again in place, in seconds.
        """
        self._door.flush(patience_s=patience_s)
        self._look_after()

    def _look_after(self) -> None:
        error = self._door.locked
        if error is None and self._retry is not None:
            self._retry.cancel()
            self._retry, self._armed = None, False
            self.freed()
            if self._awake:
                self._arm()
        elif error is not None:
            self.passes(error)
            if not self._armed:
                self._armed = True
                self._retry = self._loop.call_later(locked.RETRY_S, self._turn, context=empty())

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

    @override
    def waiting(self) -> Iterable[str]:
        """The runs whose records wait."""
        return sorted({ticket.batch.run for ticket in self._door.in_line()})

    async def close(self) -> None:
        """Commit what waits, and what its owners have to say of it; what a locked log keeps in line is let go of."""
        self.flush_now()
        for _ in range(LAST_TURNS):
            await asyncio.sleep(0)
        left = self._door.give_up()
        if left:
            runs = ", ".join(sorted({ticket.batch.run for ticket in left}))
            _log.warning("the log was locked until the end: the last records of %s are not on record", runs)

    def _turn(self) -> None:
        if self._retry is not None:
            self._date()
        self._armed = False
        try:
            self.flush_now()
        finally:
            while self._awake:
                self._awake.popleft().wake()

    def _date(self) -> None:
        """What a locked log has kept in line happens now: others count from the time of a record."""
        at, boot_us = clock.wall_us(), clock.boot_us()
        for ticket in self._door.in_line():
            dated = tuple([codec.waited(record, at=at, boot_us=boot_us) for record in ticket.batch.records])
            ticket.batch = ticket.batch._replace(records=dated)
            ticket.owner.dated(at, boot_us)

    def _told(self, tickets: Sequence[Ticket]) -> None:
        """All that has landed is folded before anybody acts on it; who waits goes on in this turn, or the next."""
        for ticket in tickets:
            sent = ticket.owner
            sent.box.landed(sent, ticket)
            if sent.wakeup is not None:
                self._awake.append(sent)
        if self._awake:
            self._arm()
