"""What a guard needs of the run that it works for, and how an effect can end.

Here so that the guard and the ladder read the same words. This module must never know how a run is
driven; it keeps the invariant that *maybe* has exactly one way to end: `Unknown`.

Source: design protocol.md, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    import asyncio
    import contextvars
    from collections.abc import Awaitable, Callable
    from concurrent.futures import ThreadPoolExecutor

    from poimen.declare.calling import Caller
    from poimen.kernel.events import Event
    from poimen.kernel.intent import DropReason, LateOutcome, Outcome, Payload
    from poimen.kernel.views import IntentView, RequestView

Key: TypeAlias = tuple[str, int, int]
"""An intent inside its branch: step, attempt, ordinal."""

ProbeSays: TypeAlias = Literal["landed", "absent", "unknown"]


class Awaited:
    """What one asyncio task waits for, with `yield self` in its `__await__`: a future that takes no turn of the loop.

    A future wakes its task by a handle of the loop, which costs more than what is done in between. This one lets the
    task go on in place, in a plain callback of the loop, in which none of the loop's tasks runs.

    Attributes:
        wakeup: lets the task go on, called with this in `context`; None while no task waits.
    """

    __slots__ = ("_asyncio_future_blocking", "_loop", "context", "wakeup")

    _loop: asyncio.AbstractEventLoop
    wakeup: Callable[[Awaited], object] | None
    context: contextvars.Context

    result = staticmethod(bool)
    """What the task asks for when it goes on: nothing. What it has waited for says how that ended."""

    def add_done_callback(self, wakeup: Callable[[Any], object], *, context: contextvars.Context) -> None:
        """Whom to wake: told by the task itself."""
        self.wakeup, self.context = wakeup, context

    def wake(self) -> None:
        """Let the task go on, if one waits."""
        wakeup, self.wakeup = self.wakeup, None
        if wakeup is not None:
            self.context.run(wakeup, self)

    def cancel(self, msg: Any = None) -> bool:  # noqa: ARG002 (asyncio's signature)
        """The task was cancelled: it goes on in the next turn, and is told so by itself."""
        wakeup, self.wakeup = self.wakeup, None
        if wakeup is not None:
            self._loop.call_soon(wakeup, self, context=self.context)
        return False


class Port(Protocol):
    """What a guard needs of the run that it works for."""

    threads: ThreadPoolExecutor

    def append(self, *events: Event) -> Awaitable[int]:
        """Append under the run's epoch; durable once awaited, which gives their time. Raises Fenced, CommitUnknown."""
        ...

    def dispatch(self, *events: Event) -> Awaitable[int]:
        """Append a Dispatched. Raises Conflict when there is something to look at first.

        Returns:
            When it was made as recorded, of the clock that only goes on, in microseconds.
        """
        ...

    def late(self, event: LateOutcome) -> None:
        """Append as an outsider, whoever holds the run now."""
        ...

    def left_running(self, key: Key) -> None:
        """The body of a call was given up and goes on: nobody can say yet that it did not land."""
        ...

    def ended_late(self, key: Key, outcome: LateOutcome | None) -> None:
        """That body has ended; without an outcome, as unknown as before."""
        ...

    def intent(self, key: Key) -> IntentView:
        """What is known of the intent (step, attempt, ordinal)."""
        ...

    def request(self, request_id: str) -> RequestView:
        """What is known of the request id over all attempts and branches."""
        ...

    def closing(self, key: Key, outcome: Outcome) -> tuple[Event, ...]:
        """Records that end the attempt with this outcome, for the same transaction."""
        ...

    def dropping(self, key: Key, why: DropReason) -> tuple[Event, ...]:
        """Records that end the attempt with a READ that was given up, for the same transaction."""
        ...

    def keep(self, body: bytes) -> Payload:
        """What a tool returned, as it goes into a record: itself, or the name of where it is durable.

        Raises:
            StorageFailed: a large one cannot be written.
        """
        ...

    def caller(self, key: Key, request_id: str, *, probing: bool) -> Caller:
        """What stands behind poimen calls made in the body."""
        ...

    def stopping(self) -> str:
        """Why this run stops; empty while it goes on."""
        ...

    def held(self) -> str:
        """Why nothing may be dispatched in this attempt, although the run goes on; empty while it may."""
        ...

    async def lease_left_s(self) -> float:
        """Seconds until this worker's right to send ends, the margin taken off; asked of a locked log, it waits."""
        ...

    def lease_left_now_s(self) -> float:
        """The same as known here and now, without asking; from any thread."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch under which this guard works."""
        ...

    @property
    def lease_taken_at(self) -> int:
        """When the lease was taken, microseconds since the Unix epoch."""
        ...

    @property
    def lease_taken_boot(self) -> int:
        """The same by the boot clock."""
        ...

    @property
    def latest_at(self) -> int:
        """The largest time in any record of the run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The outcome is recorded."""

    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """It is known to have happened by a probe, an operator or a late outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Nothing was sent in this attempt that is not answered; the effect was called off."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A READ was given up."""

    why: DropReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """It may have happened, and no machine may do more about it. `why`: the rule, `cancel`."""

    why: str


Closed: TypeAlias = Known | Landed | Stopped | Dropped | Unknown
