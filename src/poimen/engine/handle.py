"""The handle to one run: wait for it, look at it, ask it to stop; and who waits in this process.

This module must never claim or drive a run; it keeps the invariant that waiting for a run, and giving up waiting,
changes nothing in it.

Source: design api.md, "Client and Runtime"; case C36.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from poimen._typing import override
from poimen.declare.specs import seconds
from poimen.engine import desk, reading
from poimen.kernel.ids import TRUNK
from poimen.later import not_built
from poimen.log.api import TERMINAL_STATES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from poimen.declare.specs import Seconds
    from poimen.engine.client import Client
    from poimen.engine.surface.results import Branch, BranchDiff, Emitted, RewindPlan, Standing
    from poimen.episodes import EpisodeView
    from poimen.kernel.views import RunView
    from poimen.log.api import Record

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

WATCH_S: Final = 0.05
"""How often other processes' commits are looked for, in seconds."""


def actor() -> str:
    """Who acts: `POIMEN_BY`, else user@host."""
    return os.environ.get("POIMEN_BY", "").strip() or f"{getpass.getuser()}@{socket.gethostname()}"


class Run(Generic[T_co]):
    """The handle to one run.

    Arguments:
        id: the run's id.
        is_new: whether this call has admitted it.
    """

    def __init__(self, client: Client, run: str, *, is_new: bool, annotation: Any) -> None:
        self.id = run
        self.is_new = is_new
        self._client = client
        self._annotation = annotation

    async def result(self, *, timeout: Seconds | None = None, waiting: Literal["raise", "block"] = "block") -> T_co:
        """Wait for the run to end.

        Arguments:
            timeout: how long to wait; the run itself goes on.
            waiting: `raise`: do not wait for somebody else to move the run.

        Raises:
            RunFailed, RunRejected, RunCancelled, RunTimedOut: it has ended without a result.
            RunWaiting: with `waiting="raise"`: only somebody else can move it now.
            TimeoutError: it has not ended in time.
        """
        return await asyncio.wait_for(self._result(waiting), seconds(timeout))

    async def _result(self, waiting: str) -> Any:
        left: RunView | None = None
        while True:
            self._client.check(self.id)
            if left is None or not reading.has_ended(left):
                left = self._ended(waiting)
            if left is not None:
                return reading.outcome(left, self._client.bodies, self._annotation)
            left = await self._client.rest(self.id)

    def _ended(self, waiting: str) -> RunView | None:
        """The run as the log has it, if it has ended."""
        store = self._client.store
        head = store.head(self.id)
        if head is None or not (head.state in TERMINAL_STATES or (head.state == "WAITING" and waiting == "raise")):
            return None
        view, _ = reading.read_run(store, self.id)
        if head.state in TERMINAL_STATES:
            return view
        if (parked := reading.waits_for(view)) is not None:
            raise parked
        return None

    async def standing(self) -> Standing:
        """Where the run stands: state, why it does not move, which command moves it."""
        view, _ = reading.read_run(self._client.store, self.id)
        head = self._client.store.head(self.id)
        db = getattr(self._client.store, "path", None)
        return reading.standing(view, head, driven=head is not None and desk.driven(head, db))

    async def cancel(self, why: str, *, by: str | None = None) -> None:
        """Ask for the run to be stopped. The request is a record when this returns.

        Arguments:
            why: for the record.
            by: who asks; `POIMEN_BY` or user@host when left out.
        """
        self._client.writable()
        desk.cancel(self._client.store, self._client.door, self.id, by=by or actor(), why=why)
        self._client.nudge()

    async def events(self, *, after: int = 0, follow: bool = False) -> AsyncIterator[Record]:
        """The run's records in LSN order.

        Arguments:
            after: the LSN after which to begin; give the last one seen to go on where a reader stopped.
            follow: wait for further records until the run has ended.
        """
        while True:
            head = self._client.store.head(self.id)
            for record in self._client.store.read(self.id, after=after):
                after = record.lsn
                yield record
            if not follow or (head is not None and head.state in TERMINAL_STATES and head.lsn <= after):
                return
            await asyncio.sleep(WATCH_S)

    def emitted(self, type: type[T], /, *, after: int = 0) -> AsyncIterator[Emitted[T]]:  # noqa: A002
        """What the run emitted."""
        not_built("Run.emitted")

    async def branches(self) -> tuple[Branch, ...]:
        """The run's branches."""
        not_built("Run.branches")

    async def episode(self, *, branch: str = TRUNK, at: int | None = None) -> EpisodeView:
        """All that happened in a branch, frozen."""
        not_built("Run.episode")

    async def plan_rewind(
        self,
        *,
        before: str | None = None,
        after: str | None = None,
        lsn: int | None = None,
        replace: Mapping[str, object] | None = None,
        label: str = "",
    ) -> RewindPlan:
        """What a rewind would mean."""
        not_built("Run.plan_rewind")

    async def diff(self, left: str, right: str) -> BranchDiff:
        """How two branches differ."""
        not_built("Run.diff")

    async def retry(self, *, by: str, why: str) -> Branch:
        """Rewind before the failed step."""
        not_built("Run.retry")

    async def signal(self, name: str, value: object) -> None:
        """Send the run a value that it can receive."""
        not_built("Run.signal")

    @override
    def __repr__(self) -> str:
        return f"<Run {self.id}>"


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
