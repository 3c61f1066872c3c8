"""A runtime in this process whose commits can be held: before they are made, or before they are acknowledged."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import poimen
from poimen._typing import override
from poimen.engine.driving import ending
from poimen.engine.eventloop.door import LoopDoor
from poimen.kernel.attempt import AttemptState
from poimen.kernel.branch import BRANCH_TERMINAL, BranchState
from poimen.kernel.events import BranchEnded, CancelRequested
from poimen.kernel.intent import IntentDispatched
from poimen.kernel.views import open_steps
from poimen.log import codec
from tests.cases import cancelling
from tests.cases.agents import Meeting, world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from poimen.engine.worker import Worker
    from poimen.kernel.events import Event
    from poimen.kernel.views import BranchView
    from poimen.log.api import Store
    from poimen.log.writer import Ticket
    from tests.cases.world import Case, Log


class HeldDoor(LoopDoor):
    """The door of a worker, with a hand on it.

    `hold` takes one type of event of one run: the batch that has it is held, with whatever comes behind it. Held
    *before*, it stays in line: an outsider's record lands below it. Held *after*, it is durable and nobody knows:
    an outsider's record lands above it, and is known when it is acknowledged, as if the worker had looked just then.
    """

    def __init__(self, store: Store, worker: Worker) -> None:
        super().__init__(store, worker)
        self.in_line: list[str] = []
        self._what: tuple[str, str] | None = None
        self._after = False
        self._held = asyncio.Event()
        self._kept: list[Ticket] = []
        self._awaited: dict[str, asyncio.Event] = {}

    def hold(self, run: str, event: type[Event], *, after: bool) -> None:
        """Hold the next batch of `run` that has such an event."""
        self._what, self._after = (run, codec.KINDS[event]), after
        self._held.clear()

    async def held(self) -> None:
        """Until it is held."""
        await self._held.wait()

    async def landed(self, run: str, event: type[Event]) -> None:
        """Until such an event of `run` is durable and acknowledged; ask before it can be."""
        await self._awaited.setdefault(f"{run} {codec.KINDS[event]}", asyncio.Event()).wait()

    async def waits(self, run: str, event: type[Event]) -> None:
        """Until such an event of `run` is in line behind what is held."""
        await self._awaited.setdefault(f"{run} {codec.KINDS[event]} in line", asyncio.Event()).wait()

    def release(self) -> None:
        """Let go."""
        assert self._held.is_set(), "nothing was held"
        run, _ = self._what or ("", "")
        self._what = None
        kept, self._kept = self._kept, []
        if kept:
            self._told(kept)
            driver = self._worker.drivers.get(run)
            if driver is not None:
                driver.outbox.catch_up()
        else:
            self._loop.call_soon(self._turn)

    @override
    def submit(self, batch: Any, sent: Any) -> None:
        for record in batch.records:
            self._awaited.setdefault(f"{batch.run} {record.kind} in line", asyncio.Event()).set()
        super().submit(batch, sent)

    @override
    def append(self, batch: Any, then: Any) -> None:
        super().append(batch, then)
        self._note(batch)

    @override
    def _turn(self) -> None:
        if not self._after and self._has(self._door._queue):
            self._held.set()
        else:
            super()._turn()

    @override
    def _told(self, tickets: Sequence[Ticket]) -> None:
        if self._kept or (self._after and self._has(tickets)):
            self._kept += tickets
            self._held.set()
            return
        for ticket in tickets:
            self._note(ticket.batch)
        super()._told(tickets)

    def _note(self, batch: Any) -> None:
        for record in batch.records:
            self._awaited.setdefault(f"{batch.run} {record.kind}", asyncio.Event()).set()

    def _has(self, tickets: Any) -> bool:
        return self._what is not None and any(
            (ticket.batch.run, record.kind) == self._what for ticket in tickets for record in ticket.batch.records
        )


class Stage:
    """A runtime, its door, and a second guard open all the while.

    Arguments:
        case: the database and the witness.
        runtime: open.
        door: its worker's.
    """

    def __init__(self, case: Case, runtime: poimen.Runtime, door: HeldDoor) -> None:
        self.case = case
        self.runtime = runtime
        self.door = door

    async def start(self, call: Any, run_id: str = "r") -> poimen.Run[Any]:
        """Admit a run."""
        handle: poimen.Run[Any] = await self.runtime.start(call, run_id=run_id)
        return handle

    async def cancel(self, by: str, run_id: str = "r") -> None:
        """Ask for a run to be stopped, from this process or from another one."""
        if by == "here":
            await (await self.runtime.get(run_id)).cancel("enough", by="a test")
        else:
            said = await asyncio.to_thread(self.case.says, "cancel", run_id, "enough")
            assert said == [{"cancelled": run_id}]

    async def end(self, run_id: str = "r") -> Any:
        """How a run ends or what it waits for: its result, or the error's type."""
        handle = await self.runtime.get(run_id)
        try:
            return await handle.result(waiting="raise")
        except poimen.PoimenError as error:
            return type(error)

    def log(self, run_id: str = "r") -> Log:
        """The log of a run as it is now."""
        return self.case.log(run_id)


@asynccontextmanager
async def stage(case: Case, *, patience_s: float = 3600.0, **manners: str) -> AsyncIterator[Stage]:
    """Open a stage; when it is left, the bystander has ended as if nothing had happened beside it.

    Arguments:
        case: the database and the witness.
        patience_s: after which code that was told of a cancellation is let go; long, for what ends by itself must not
            need it.
        manners: tools that stop in their bodies, and what they do there when they are cancelled.
    """
    world.witness = str(case.witness)
    world.meetings = {name: Meeting(manner) for name, manner in manners.items()}
    world.meetings["stand"] = Meeting()
    patience_before, ending.PATIENCE_S = ending.PATIENCE_S, patience_s  # type: ignore[misc]

    def let_go() -> None:
        for meeting in world.meetings.values():
            meeting.go.set()

    try:
        async with poimen.Runtime(str(case.db), modules=[cancelling], drain=5) as runtime:
            worker = runtime._worker
            assert worker is not None
            worker.door = door = HeldDoor(runtime.store, worker)
            beside = await runtime.start(cancelling.bystander(), run_id="bystander")
            await world.meetings["stand"].entered.wait()
            yield Stage(case, runtime, door)
            world.meetings["stand"].go.set()
            assert await beside.result() == "stood"
            assert worker.error is None
            let_go()
    finally:
        let_go()
        world.meetings = {}
        ending.PATIENCE_S = patience_before  # type: ignore[misc]


def sound(log: Log) -> None:
    """What holds of every run that has ended, however it was stopped."""
    assert log.head.state == log.line.state.value
    stopped_well(log.line, [(epoch, event) for _, epoch, event in log.records])


def stopped_well(line: BranchView, records: Sequence[tuple[int, Event]]) -> None:
    """The same, of a branch and the records that it is folded from, `(epoch, event)` in LSN order."""
    ended = [n for n, (_, event) in enumerate(records) if isinstance(event, BranchEnded)]
    assert len(ended) == 1 and line.state in BRANCH_TERMINAL
    assert not any(epoch for epoch, _ in records[ended[0] + 1 :]), "a driver's record behind the end"
    assert open_steps(line) == []
    asked = [n for n, (_, event) in enumerate(records) if isinstance(event, CancelRequested)]
    sent = [n for n, (_, event) in enumerate(records) if isinstance(event, IntentDispatched)]
    assert len(asked) <= 1 and not (asked and line.state is not BranchState.CANCELLED)
    assert not asked or all(n < asked[0] for n in sent), "something was dispatched after the cancellation"
    for step in line.steps.values():
        for attempt in step.attempts:
            intents = attempt.intents.values()
            unknown = [i for i in intents if i.open or i.resolution is not None]
            if attempt.state is AttemptState.INDETERMINATE:
                assert unknown, "an attempt is Indeterminate without an unknown"
            if attempt.state in {AttemptState.CANCELLED, AttemptState.TIMED_OUT}:
                assert not any(i.open for i in intents), "a stopped attempt has an open effect"
    assert line.ended is not None and line.ended.unresolved >= len(line.unresolved())
