"""The handle to one run: wait for it, look at it, ask it to stop.

This module must never claim or drive a run; it keeps the invariant that waiting for a run, and giving up waiting,
changes nothing in it.

Source: design api.md, "Client and Runtime"; case C36.
"""

from __future__ import annotations

import asyncio
import getpass
import inspect
import os
import socket
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from poimen._typing import override
from poimen.declare.shapes import Call
from poimen.declare.specs import WorkflowSpec, seconds, spec_of
from poimen.declare.storing.hints import label
from poimen.engine import desk, reading, standing
from poimen.engine.eventloop.waiters import WATCH_S
from poimen.gate.places import here
from poimen.kernel.errors import PoimenError
from poimen.kernel.ids import TRUNK, BadRunId
from poimen.later import not_built
from poimen.log.api import TERMINAL_STATES
from poimen.secrecy.setting import in_force

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from poimen.declare.specs import Seconds
    from poimen.declare.values import Parameters
    from poimen.engine.client import Client
    from poimen.engine.surface.results import Branch, BranchDiff, Emitted, RewindPlan, Standing
    from poimen.episodes import EpisodeView
    from poimen.kernel.views import RunView
    from poimen.log.api import Record

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def actor() -> str:
    """Who acts: `POIMEN_BY`, else user@host."""
    return os.environ.get("POIMEN_BY", "").strip() or f"{getpass.getuser()}@{socket.gethostname()}"


class NotACall(PoimenError):
    """Something else than the call of a workflow was given to be started. Nothing has happened.

    A workflow is called first, which runs nothing: `poimen.run(shop("tea"))`, not `poimen.run(shop)`.
    """

    code = "PO115"


def must_be_call(given: object, *, by: str) -> None:
    """Refuse to start what is not the call of a workflow.

    Arguments:
        given: what is to be started.
        by: what was called with it, such as `poimen.run`.

    Raises:
        NotACall: it is something else; the message says how to call it.
    """
    if isinstance(given, Call):
        return
    spec = spec_of(given)
    if isinstance(spec, WorkflowSpec):
        what, hint = f"{spec.name}, a workflow that was not called", f"call it: {by}({spec.name}(...))"
    else:
        name = f"{spec.kind} {spec.name}" if spec is not None else label(type(given))
        what, hint = f"{name}, not the call of a workflow", f"call a workflow: {by}(workflow(...))"
    if inspect.iscoroutine(given):
        given.close()  # it will not be awaited, and need not be complained about a second time
    raise NotACall(f"{by} was given {what}", where=here(), why="nothing was started", hint=hint)


class Run(Generic[T_co]):
    """The handle to one run.

    Arguments:
        id: the run's id.
        is_new: whether this call has admitted it.
    """

    def __init__(self, client: Client, run: str, *, is_new: bool, parameters: Parameters | None) -> None:
        self.id = run
        self.is_new = is_new
        self._client = client
        self._parameters = parameters

    async def result(self, *, timeout: Seconds | None = None, waiting: Literal["raise", "block"] = "block") -> T_co:
        """Wait for the run to end.

        Arguments:
            timeout: how long to wait, in seconds or as a timedelta; the run itself goes on. None: for ever.
            waiting: `block`: also while only somebody else can move the run; `raise`: say so instead.

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
                return reading.outcome(left, self._client.bodies, self._parameters)
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
        if (parked := standing.waits_for(view)) is not None:
            raise parked
        return None

    async def standing(self) -> Standing:
        """Where the run stands: state, why it does not move, which command moves it."""
        view, _ = reading.read_run(self._client.store, self.id)
        head = self._client.store.head(self.id)
        driven = head is not None and desk.driven(head, self._client.store)
        return standing.standing_of(view, head, driven=driven)

    async def cancel(self, why: str, *, by: str | None = None) -> None:
        """Ask for the run to be stopped. The request is a record when this returns.

        Arguments:
            why: for the record.
            by: who asks; `POIMEN_BY` or user@host when left out.

        Raises:
            NotStorable: one of them is empty, or is no text.
        """
        self._client.writable()
        desk.cancel(self._client.store, self._client.door, self.id, by=actor() if by is None else by, why=why)
        self._client.nudge(self.id)

    async def events(self, *, after: int = 0, follow: bool = False) -> AsyncIterator[Record]:
        """The run's records in LSN order, each with `lsn`, `at` and its fields.

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


def plain_id(run_id: str) -> str:
    """The id of a new run, if it holds no secret: an id stands in every list, and in file names.

    Raises:
        BadRunId: it holds one, and is not shown.
    """
    what = in_force().in_name(run_id) if isinstance(run_id, str) else ""
    if what:
        raise BadRunId(f"a run id holds {what}", why="nothing was recorded", hint="choose an id such as 'order-42'")
    return run_id
