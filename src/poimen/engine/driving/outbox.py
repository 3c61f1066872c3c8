"""What a run appends: batches in the order in which the run made them, folded when they have landed.

Records that may wait go with the next immediate one of the run, or after 100 ms. This module must
never know what a record means; it keeps the invariants that records of a run are submitted in order,
and that the view is folded in LSN order, outsiders' records included.

Source: design storage.md, "Durability" (Eventual) and "The log" (a driver's Conflict).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from poimen import clock
from poimen.blobs.api import INLINE_BYTES
from poimen.engine.eventloop.loop import empty
from poimen.engine.reading import fold_in
from poimen.gate.port import Awaited
from poimen.kernel.errors import Conflict, PoimenError, Suspended, invariant
from poimen.kernel.events import (
    EVENTUAL,
    AttemptFailed,
    AttemptSucceeded,
    state_after,
)
from poimen.kernel.fold import apply
from poimen.kernel.intent import waited
from poimen.log import codec
from poimen.log.api import Batch, Blob
from poimen.log.writer import IN_PLACE_S
from poimen.secrecy.redacting import redacted_event

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator, Sequence

    from poimen.engine.driving.driver import Driver
    from poimen.engine.driving.replay import HandOver
    from poimen.kernel.events import Event
    from poimen.kernel.intent import Payload
    from poimen.log.api import Committed
    from poimen.log.writer import Ticket

WAIT_S: Final = 0.1
"""How long a record that may wait, waits."""


class Sent(Awaited):
    """One batch on its way, and what is to be done when it has landed; awaited, it is durable and folded.

    It gives the time that its records have, of the clock that only goes on, in microseconds.

    Raises:
        Conflict: with `look`, when it was refused.
        Fenced, CommitUnknown, StorageFailed: this run can no longer be driven here.
    """

    __slots__ = ("begun_us", "box", "due", "error", "events", "landed")

    def __init__(self, box: Outbox, events: list[tuple[Event, int]], due: list[HandOver]) -> None:
        self._loop = box.loop
        self.wakeup = None
        self.begun_us = clock.boot_us()
        self.box = box
        self.events = events
        self.due = due
        self.landed = False
        self.error: BaseException | None = None

    def __await__(self) -> Generator[Sent, None, int]:
        if not self.landed:
            self._asyncio_future_blocking = True
            yield self
        if self.error is not None:
            raise self.error
        return self.begun_us

    def dated(self, at: int, boot_us: int) -> None:
        """Its records stood in line and are written later than they were made: they have this time now."""
        self.begun_us = boot_us
        self.events = [(waited(event, boot_us) or event, at) for event, _ in self.events]
        for due in self.due:
            due.at = at


class Outbox:
    """Appends for one driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.loop = driver.main
        self._waiting: list[tuple[Event, int]] = []
        self._blobs: list[Blob] = []
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0
        self._closed = False
        self._newest: Sent | None = None
        self.sending = 0

    # ---- what waits ----------------------------------------------------------------------------------------------

    @property
    def last(self) -> Event | None:
        """The newest record that waits."""
        return self._waiting[-1][0] if self._waiting else None

    @property
    def last_at(self) -> int:
        """Its time."""
        return self._waiting[-1][1] if self._waiting else 0

    def put(self, event: Event) -> None:
        """Take a record that may wait; what it hands over may be acted upon at once."""
        invariant(type(event) in EVENTUAL, "only a record whose loss changes nothing may wait", event=type(event))
        if self._closed:
            return
        at, event = clock.wall_us(), redacted_event(event)
        if not self._waiting:
            self._since = self._driver.main.time()
        self._waiting.append((event, at))
        self._driver.hands.line_up(event, at, ready=True)
        self._wait(WAIT_S)

    def replace(self, event: Event) -> None:
        """Put one record in the place of the newest that waits."""
        if self._closed:
            return
        at, event = clock.wall_us(), redacted_event(event)
        self._waiting[-1] = (event, at)
        self._driver.hands.line_up(event, at, ready=True)

    def over(self) -> set[str]:
        """Steps whose end is among the records that wait."""
        return {
            event.step
            for event, _ in self._waiting
            if isinstance(event, AttemptSucceeded) or (isinstance(event, AttemptFailed) and event.retry_at is None)
        }

    def _wait(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self._driver.main.call_later(seconds, self._time_up, context=empty())

    def _time_up(self) -> None:
        self._timer = None
        if not self._waiting or self._closed:
            return
        left = self._since + WAIT_S - self._driver.main.time()
        if left > 0:  # the timer was another record's, which has gone with company: this one may still find some
            self._wait(left)
        else:
            self.send(())

    def keep(self, body: bytes) -> Payload:
        """A body as it goes into a record; a larger one becomes a blob of the same transaction or a file before it.

        One that cannot be kept stops the driver as a failed commit does. That is no error of the code, which gets
        `Suspended` from the append that follows.
        """
        if len(body) <= INLINE_BYTES:
            return body
        try:
            ref, blob = self._driver.worker.bodies.kept(body, "application/json")
        except PoimenError as error:
            self._driver.ending.stop(error)
            return body
        if blob is not None:
            self._blobs.append(Blob(digest=ref.digest, media_type=ref.media_type, body=blob))
        return ref

    # ---- sending -------------------------------------------------------------------------------------------------

    def post(self, events: Sequence[Event]) -> None:
        """Append records without waiting; a failure stops the driver."""
        if not self._closed:
            self.send(events)

    def send_now(self, events: Sequence[Event]) -> None:
        """Append records and wait in place: for decisions, which are durable before anything else happens.

        Raises:
            Fenced, CommitUnknown, StorageFailed: the records are not known to be durable. Where another process has
                the log locked, this driver lets go of the run: in place it could not be waited for without end.
        """
        sent = self.send(events)
        if not sent.landed:
            self._driver.worker.door.flush_now(patience_s=IN_PLACE_S)
        locked = self._driver.worker.door.locked
        if not sent.landed and locked is not None:
            self._driver.ending.stop(locked)
            raise Suspended
        invariant(sent.landed, "a decision is durable when decide() returns", run=self._driver.run)
        if sent.error is not None:
            raise sent.error

    async def drained(self) -> None:
        """Everything submitted so far is durable and folded when this returns.

        Raises:
            Fenced, CommitUnknown, StorageFailed, Suspended: as `send`.
        """
        sent = self.send(()) if self._waiting else self._newest
        if sent is not None and not sent.landed:
            await sent

    def send(self, events: Sequence[Event], *, look: bool = False) -> Sent:
        """Append records with what waits.

        Arguments:
            events: of one transaction.
            look: refuse when an outsider's record that was not folded lies below.

        Raises:
            Suspended: this driver has let go of the run.
        """
        driver = self._driver
        view = driver.view
        if self._closed:
            raise Suspended
        seen = view.outsider_lsn  # what is sent ahead may fold more: the caller has not looked at that
        if look and self._waiting:
            self.send(())
        at, branch = clock.wall_us(), driver.line.id
        events = [redacted_event(event) for event in events]  # what is folded here is what the next one reads
        dated = [*self._waiting, *[(event, at) for event in events]]
        records = tuple([codec.record(event, branch=branch, at=when) for event, when in dated])
        self._waiting = []
        line_up = driver.hands.line_up
        due = [lined for event in events if (lined := line_up(event, at, ready=False)) is not None]
        sent = self._newest = Sent(self, dated, due)
        self.sending += 1
        blobs, self._blobs = tuple(self._blobs), []
        driver.worker.door.submit(
            Batch(
                run=view.run,
                records=records,
                epoch=driver.lease.epoch,
                seen=seen if look else None,
                state=state_after(events),
                blobs=blobs,
            ),
            sent,
        )
        return sent

    def landed(self, sent: Sent, ticket: Ticket) -> None:
        """A batch is durable, or was refused."""
        self.sending -= 1
        sent.landed = True
        driver = self._driver
        if ticket.error is not None:
            sent.error = ticket.error
            if isinstance(ticket.error, Conflict):
                self.catch_up()
            else:
                driver.ending.stop(ticket.error)
        else:
            try:
                self._fold_own(sent, ticket.outcome())
            except Exception as error:  # noqa: BLE001 (the log holds it: this driver must not go on; others' tickets wait)
                sent.error = error
                driver.ending.stop(error)

    def _fold_own(self, sent: Sent, at: Committed) -> None:
        driver = self._driver
        view, branch, epoch = driver.view, driver.line.id, driver.epoch
        outside = at.first != view.lsn + 1
        if outside:
            self._fold(at.first - 1)
        for lsn, (event, when) in enumerate(sent.events, at.first):
            if lsn > view.lsn:  # else folded from the log, while what an outsider wrote below was acted upon
                apply(view, lsn=lsn, at=when, branch=branch, event=event, epoch=epoch)
        for due in sent.due:
            due.ready = True
        if outside:
            driver.folded_outside()
        driver.loop.arm()

    def catch_up(self) -> None:
        """Fold what outsiders have appended."""
        if not self._closed:
            before = self._driver.view.lsn
            try:
                self._fold(None)
            except PoimenError as error:
                self._driver.ending.stop(error)
                return
            if self._driver.view.lsn != before:
                self._driver.folded_outside()
                self._driver.loop.arm()

    def _fold(self, upto: int | None) -> None:
        view = self._driver.view
        for record in self._driver.worker.store.read(view.run, after=view.lsn, upto=upto):
            if upto is None and record.epoch == self._driver.epoch:
                break  # our own, on its way: folded when its ticket is done
            fold_in(view, record)

    def close(self) -> None:
        """Append nothing more. What waits is lost, as it may be."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def flush(self) -> None:
        """Append what waits, before the driver lets go of the run."""
        if self._waiting and not self._closed:
            self.send(())
