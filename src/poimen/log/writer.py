"""The door: group commit. One per log; whatever waits goes into one transaction with one sync.

A submission is synchronous and can never be taken back; waiting for it is somebody else's affair:
the door hands out tickets. Whoever finds the door free commits everything that waits, its own and
that of others, and then tells each owner. No timer, no artificial delay. This module must never know
about event loops; it keeps the invariant that no ticket is done before its records are durable, and
that records of one run land in the order in which they were submitted.

Source: design storage.md, "Group commit" and "Fail-stop".
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from poimen import clock
from poimen.kernel.errors import CommitUnknown, PoimenError, StorageFailed, violated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from poimen.log.api import Batch, Committed, Store


IN_PLACE_S: Final = 1.0
"""How long a thread may stand still at most for a locked log, where there is nobody who could try again later."""


def is_locked(error: BaseException | None) -> bool:
    """Whether another process has the log locked for long: nothing was written, and the log has not failed."""
    return isinstance(error, StorageFailed) and bool(error.ids.get("locked"))


class Ticket:
    """The claim to one submitted batch.

    `done` turns true when the batch is durable or was refused; then `committed` or `error` is set.
    """

    __slots__ = ("batch", "committed", "done", "error", "notify", "owner")

    def __init__(self, batch: Batch, notify: Callable[[Sequence[Ticket]], None] | None, owner: Any) -> None:
        self.batch = batch
        self.notify = notify
        self.owner = owner
        self.done = False
        self.committed: Committed | None = None
        self.error: PoimenError | None = None

    def outcome(self) -> Committed:
        """Where the batch landed.

        Raises:
            PoimenError: why it was refused; `CommitUnknown`; `InvariantViolated` before its commit.
        """
        if self.error is not None:
            raise self.error
        if self.committed is None:
            violated("a ticket is read after its commit")
        return self.committed


class Door:
    """Takes batches, commits them together.

    Arguments:
        store: the backend. Its `commit` runs in the thread that calls `flush`.
        waits: what cannot be committed because another process has the log locked stays in line, in its order: the
            next `flush` tries again. Nothing of it was written. Otherwise it is refused.

    Attributes:
        locked: why what waits has stayed in line; None when the log could be written the last time.
    """

    def __init__(self, store: Store, *, waits: bool = False) -> None:
        self.store = store
        self.locked: PoimenError | None = None
        self._waits = waits
        self.commits = 0
        self._queue: deque[Ticket] = deque()
        self._turn = threading.Lock()
        self._committed = threading.Condition()
        self._dead: PoimenError | None = None

    @property
    def waiting(self) -> int:
        """How many batches wait."""
        return len(self._queue)

    def submit(
        self, batch: Batch, notify: Callable[[Sequence[Ticket]], None] | None = None, owner: Any = None
    ) -> Ticket:
        """Put a batch in line. It is committed by the next `flush`, whoever calls it.

        Arguments:
            batch: records of one run.
            notify: told once, with all its tickets that one commit has done, in the committing thread.
            owner: whatever the one who is told needs to find itself again.
        """
        ticket = Ticket(batch, notify, owner)
        self._queue.append(ticket)
        return ticket

    def flush(self, *, patience_s: float = 0.0) -> None:
        """Commit all that waits, unless another thread is doing so (it then takes what waits as well).

        Arguments:
            patience_s: how long a locked log is tried again in place, in seconds.
        """
        failed: BaseException | None = None
        while self._queue and self._turn.acquire(blocking=False):
            taken = self._take()
            try:
                if taken:
                    self._commit(taken, patience_s)
            except BaseException as error:  # noqa: BLE001 (raised below: first nobody may be left waiting)
                failed = failed or error
            finally:
                self._turn.release()
            if self.locked is not None:
                break
            self._tell(taken)
        if failed is not None:
            raise failed

    def append(self, batch: Batch, *, patience_s: float = 0.0) -> Committed:
        """Submit, commit and wait, for callers that may block: not through a door that `waits`.

        Arguments:
            batch: records of one run.
            patience_s: as of `flush`.

        Raises:
            PoimenError: why the batch was refused, or `CommitUnknown`.
        """
        ticket = self.submit(batch)
        self.flush(patience_s=patience_s)
        if not ticket.done:
            with self._committed:
                self._committed.wait_for(lambda: ticket.done)
        return ticket.outcome()

    def in_line(self) -> list[Ticket]:
        """What waits, in its order."""
        return list(self._queue)

    def give_up(self) -> list[Ticket]:
        """Refuse what has stayed in line because the log is locked, and wait for it no more.

        Returns:
            The tickets that were refused.
        """
        with self._turn:
            self._waits = False
            taken = self._take() if self.locked is not None else []
            for ticket in taken:
                ticket.error, ticket.done = self.locked, True
            self.locked = None
        self._tell(taken)
        return taken

    def _take(self) -> list[Ticket]:
        return [self._queue.popleft() for _ in range(len(self._queue))]

    def _commit(self, taken: list[Ticket], patience_s: float) -> None:
        try:
            if self._dead is not None:
                raise self._dead
            batches = [ticket.batch for ticket in taken]
            results = self._patiently(batches, patience_s) if patience_s else self.store.commit(batches)
        except BaseException as error:
            self._refuse(taken, error)
            if not isinstance(error, PoimenError):
                raise
            return
        self.commits, self.locked = self.commits + 1, None
        for ticket, result in zip(taken, results, strict=True):
            if isinstance(result, PoimenError):
                ticket.error = result
            else:
                ticket.committed = result
            ticket.done = True

    def _patiently(self, batches: list[Batch], patience_s: float) -> list[Committed | PoimenError]:
        until = clock.monotonic() + patience_s
        while True:
            try:
                return self.store.commit(batches)
            except StorageFailed as error:
                if not is_locked(error) or clock.monotonic() >= until:
                    raise

    def _refuse(self, taken: list[Ticket], error: BaseException) -> None:
        """A commit has failed. One of which nobody knows whether it is durable is the last one of this door.

        What a door that waits could not write, because the log is locked, goes back to the head of the line.
        """
        self.locked = None
        if self._waits and isinstance(error, StorageFailed) and is_locked(error):
            self.locked = error
            self._queue.extendleft(reversed(taken))
            return
        told = error if isinstance(error, PoimenError) else CommitUnknown(f"the commit was interrupted: {error!r}")
        if isinstance(told, CommitUnknown):
            self._dead = StorageFailed(
                "the log was closed by a failed commit",
                why=str(told.message),
                hint="end this process; the next opening settles what is doubtful",
            )
        for ticket in taken:
            ticket.error = told
            ticket.done = True

    def _tell(self, taken: list[Ticket]) -> None:
        waiting: dict[Callable[[Sequence[Ticket]], None], list[Ticket]] = {}
        alone = True
        for ticket in taken:
            if ticket.notify is None:
                alone = False
            else:
                waiting.setdefault(ticket.notify, []).append(ticket)
        if not alone:
            with self._committed:
                self._committed.notify_all()
        for notify, tickets in waiting.items():
            notify(tickets)
