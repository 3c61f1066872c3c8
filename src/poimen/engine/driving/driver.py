"""Drives one branch of one run: replays its record, goes on live, appends, hands over, rests, ends.

The kernel says what is legal, the gate acts, this obeys: persist first, act then. Results are handed
over one at a time, in LSN order, each once nothing in the run is ready, live in the same way as in a
replay. This module must never call a tool or decide what an unknown effect means; it keeps the
invariants I4 (nothing appended under a stale epoch) and I9 (the view is the fold of the log).

Source: design protocol.md, sections 2, 3 and 5.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from poimen import clock
from poimen.declare import values
from poimen.declare.calling import CALLER, Current
from poimen.engine.driving.attempts import Attempts
from poimen.engine.driving.decisions import Decisions
from poimen.engine.driving.effects import Effects
from poimen.engine.driving.ending import Ending
from poimen.engine.driving.hands import Hands
from poimen.engine.driving.outbox import Outbox
from poimen.engine.driving.replay import SHOWN, Asked, Script
from poimen.engine.driving.scopes import CallFuture, WorkflowScope, scope_of
from poimen.engine.driving.steps import Steps
from poimen.engine.eventloop.loop import empty, run_loop
from poimen.engine.eventloop.threads import Threads, ThreadScope, awaited, contained
from poimen.engine.eventloop.timers import Timers
from poimen.engine.recovering import recover
from poimen.gate.guard import open_code
from poimen.kernel.branch import BranchState
from poimen.kernel.errors import NotStorable, Suspended
from poimen.kernel.events import BranchResumed, BranchStarted, CancelDelivered
from poimen.kernel.intent import short
from poimen.kernel.views import newest_branch
from poimen.secrecy.named import IN_CODE

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from poimen.declare.specs import OnUnknown, ToolSpec, WorkflowSpec
    from poimen.engine.driving.scopes import Call
    from poimen.engine.eventloop.futures import RunTimer
    from poimen.engine.worker import Worker
    from poimen.gate.port import Key
    from poimen.kernel.errors import PoimenError
    from poimen.kernel.events import Event, ResumedBecause
    from poimen.kernel.intent import Payload
    from poimen.kernel.views import BranchView, IntentView, RunView
    from poimen.log.api import Lease


class Driver:
    """One branch of one run, in one process, under one lease.

    Arguments:
        worker: what the runs of this process share.
        spec: the workflow.
        view: the run as folded from its records.
        records: those records, `(at, event, epoch)` in LSN order.
        lease: the right to drive it.
        crashed: whoever drove it before died over it, and has not let go of it.
    """

    def __init__(
        self,
        worker: Worker,
        spec: WorkflowSpec,
        view: RunView,
        records: Sequence[tuple[int, Event, int]],
        lease: Lease,
        *,
        crashed: bool,
    ) -> None:
        self.worker = worker
        self.spec = spec
        self.view = view
        self.line: BranchView = newest_branch(view)
        self.lease = lease
        self.crashed = crashed
        self.taken_at, self.taken_boot = clock.wall_us(), clock.boot_us()
        self.main = asyncio.get_running_loop()
        self.loop = run_loop(self, self.main, f"{view.run}/{self.line.id}")
        self.script = Script(self.line, records)
        self.outbox = Outbox(self)
        self.hands = Hands(self)
        self.steps = Steps(self)
        self.attempts = Attempts(self)
        self.effects = Effects(self)
        self.workflow = WorkflowScope(self)
        self.live = False
        self.cancelled = False
        self.dropped = False
        self.draining = False
        self.moving = 0
        self.threads = Threads(self)
        self.timers = Timers(self)
        self.over = CallFuture(self.loop, None, None)
        self.over.set_result(None)
        self.background: set[asyncio.Task[Any]] = set()
        self.done: asyncio.Future[str] = self.main.create_future()
        self.error: BaseException | None = None
        self.root: asyncio.Task[Any] | None = None
        self._held: list[Callable[[], None]] = []
        self.ending = Ending(self)
        self.decisions = Decisions(self)
        self._now_us = view.admitted_at
        self._cancel_sent = self.line.cancel_delivered

    # ---- what others ask ---------------------------------------------------------------------------------------

    @property
    def run(self) -> str:
        """The run's id."""
        return self.view.run

    @property
    def epoch(self) -> int:
        """The fencing epoch of the lease."""
        return self.lease.epoch

    @property
    def nonce(self) -> str:
        """Random text of this run; part of each request id."""
        return self.view.admitted.nonce if self.view.admitted is not None else ""

    def intent(self, key: Key) -> IntentView:
        """What is known of an intent of this branch."""
        step, attempt, ordinal = key
        return self.line.steps[step].attempts[attempt - 1].intents[ordinal]

    def is_step(self, key: str) -> bool:
        """Whether the step is one by declaration, not a tool that is its own."""
        call = self.workflow.calls.get(key)
        return call.spec.kind == "step" if call is not None else self.line.steps[key].kind == "step"

    def stopping(self) -> str:
        """Why nothing may be dispatched any more; empty while it may."""
        return f"cancelled: {self.line.cancel_why}" if self.line.cancel_lsn else ""

    def why_cancelled(self) -> str:
        """For the record of an attempt's cancellation."""
        return self.line.cancel_why if self.line.cancel_lsn else "cancelled by the workflow"

    async def lease_left_s(self) -> float:
        """Seconds until this worker's right to send ends, the margin taken off; one that ran out is asked for anew."""
        if self.dropped and self.draining:  # this process ends: nobody would hear what becomes of it
            return 0.0
        if self.lease_left_now_s() <= 0:
            await self.worker.ask_for(self)
        return self.lease_left_now_s()

    def lease_left_now_s(self) -> float:
        """The same as known here and now."""
        return (self.lease.until - clock.boot_us()) / 1e6 - self.worker.dispatch_margin_s

    def on_indeterminate(self, spec: ToolSpec | None, call: Call | None) -> OnUnknown:
        """What the workflow is told of an unknown: by the call, its declaration, its run."""
        if call is not None and call.options.on_indeterminate is not None:
            return call.options.on_indeterminate
        if spec is not None and spec.on_indeterminate is not None:
            return spec.on_indeterminate
        return self.view.admitted.on_indeterminate if self.view.admitted is not None else "wait"

    def where(self, step: str, attempt: int) -> Current:
        """The place of an attempt, for code that asks."""
        return Current(
            run_id=self.run,
            branch_id=self.line.id,
            step=step,
            attempt=attempt,
            cancelling=self.line.cancel_why if self.line.cancel_lsn else None,
        )

    # ---- bodies ------------------------------------------------------------------------------------------------

    def keep(self, body: bytes) -> Payload:
        """A body on its way into a record: inline when small, else by reference to a blob in the same transaction."""
        return self.outbox.keep(body)

    def fetch(self, payload: Payload) -> bytes:
        """The bytes of a recorded body."""
        return payload if isinstance(payload, bytes) else self.worker.bodies.read(payload, f"run {self.run}")

    def packed(self, intent: IntentView, of_step: bytes) -> bytes:
        """The stored arguments of an intent; a tool that is its own step keeps them with the step."""
        return self.fetch(intent.pending.args) if intent.pending.args is not None else of_step

    # ---- appending ---------------------------------------------------------------------------------------------

    @property
    def last_emitted(self) -> Event | None:
        """The last record that waits for company."""
        return self.outbox.last

    @property
    def last_emitted_at(self) -> int:
        """Its time."""
        return self.outbox.last_at

    def emit(self, event: Event) -> None:
        """Append a record that may wait for the next immediate one; what it hands over may be acted upon."""
        self.outbox.put(event)

    def replace_last(self, event: Event) -> None:
        """Put one record in the place of the last one that waits."""
        self.outbox.replace(event)

    def submit(self, events: Sequence[Event]) -> None:
        """Append records without waiting; a failure stops this driver."""
        self.outbox.post(events)

    def append(self, events: Sequence[Event], *, look: bool = False) -> Awaitable[int]:
        """Append records; durable once awaited, which gives their time (`clock.boot_us`).

        Raises:
            Conflict: with `look`: there is something to look at first; it is folded now.
            Fenced, CommitUnknown, StorageFailed: this run can no longer be driven here.
        """
        return self.outbox.send(events, look=look)

    def append_outside(self, event: Event, told: Callable[[PoimenError | None], None]) -> None:
        """Append as an outsider, whoever drives the run now; `told` when it is durable, or why it cannot be kept."""
        self.worker.append_outside(self.run, self.line.id, event, told)

    def folded_outside(self) -> None:
        """Outsiders' records were folded: act on them where this driver has to."""
        if self.line.cancel_lsn and not self._cancel_sent and not self.dropped:
            self._cancel_sent = True
            for guard in list(self.effects.guards.values()):
                guard.stop("cancel")
            self.submit((CancelDelivered(requested_lsn=self.line.cancel_lsn),))
            self.ending.be_patient()
        if self.live:
            for call in list(self.workflow.calls.values()):
                if call.parked:
                    self.steps.try_again(call)

    # ---- the run starts ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Say that this worker drives the branch, then run its code from the beginning."""
        again = self.line.state is not BranchState.PENDING
        if self.line.cancel_lsn and not again:
            self.ending.call_off()
            return
        code, boot = self.worker.code, clock.boot_mark()
        if again:
            why: ResumedBecause = "recovered" if self.crashed else "handed over"
            why = "woken" if self.line.state is BranchState.WAITING else why
            first: Event = BranchResumed(epoch=self.epoch, worker=self.worker.id, code=code, why=why, boot=boot)
        else:
            first = BranchStarted(epoch=self.epoch, worker=self.worker.id, code=code, boot=boot)
        self.submit((first,))
        self.folded_outside()
        missing = recover(self) if again else ()
        if missing:
            self.ending.rest(missing)
            return
        args = self.fetch(self.view.admitted.args) if self.view.admitted is not None else b"{}"
        try:
            positional, named = self.spec.parameters.unpack(args)
        except NotStorable as error:
            recorded = f"{short(self.spec.name)}, input {values.digest(args)[:SHOWN]}"
            self.ending.differ(recorded, Asked(f"other parameters: {error.message}"))
            return
        context = empty()  # of whoever starts it: another process, which goes on after a crash, has not got his
        context.run(IN_CODE.set, "workflow or a step")
        if self.spec.is_async:
            context.run(CALLER.set, self.workflow)
            body: Coroutine[Any, Any, Any] = context.run(open_code(self.spec), *positional, **named)
        else:
            caller = ThreadScope(self.workflow)
            context.run(CALLER.set, caller)
            in_thread = context.copy()
            thread = self.threads.run(caller, lambda: in_thread.run(open_code(self.spec), *positional, **named))
            body = awaited(thread)
        self.root = self.loop.create_task(contained(body), context=context)
        self.root.add_done_callback(self._root_done)
        self.loop.arm()

    def deliver_cancel(self) -> None:
        """The cancellation reaches the workflow at this place of the order."""
        self.cancelled = True
        for call in self.workflow.calls.values():
            if call.parked:
                call.future.end_cancelled()
        if self.root is not None:
            self.root.cancel()

    def _root_done(self, _root: asyncio.Task[Any]) -> None:
        """The body has ended: steps still live are cancelled."""
        if not self.dropped:
            for left in self.loop.unfinished():
                left.cancel()

    # ---- the loop's owner --------------------------------------------------------------------------------------

    def time_s(self) -> float:
        """The run's time: that of the record handed over last."""
        return self._now_us / 1e6

    def passed(self, at: int) -> None:
        """A record of this time is handed over."""
        self._now_us = max(self._now_us, at)

    def timer(self, timer: RunTimer) -> None:
        """A timer of the workflow or of an attempt."""
        self.timers.set(timer)

    def number(self, context: contextvars.Context | None) -> int:
        """Count the tasks and futures of the workflow's or an attempt's code."""
        caller = CALLER.get() if context is None else context.get(CALLER)
        scope = scope_of(caller) or self.workflow
        scope.number += 1
        return scope.number

    def when_live(self, act: Callable[[], None]) -> None:
        """Do it now, or once everything recorded has been claimed."""
        if self.live:
            act()
        else:
            self._held.append(act)

    def hand_over(self) -> bool:
        """Hand over the next result; called when nothing in the run is ready."""
        try:
            return self._hand_over()
        except Exception as error:  # noqa: BLE001 (this run stops, the cause is told to whoever waits for it)
            self.ending.stop(error)
            return False

    def _hand_over(self) -> bool:
        if self.dropped or self.threads.busy or self.done.done():
            return False
        if self.ending.settling:
            self.ending.go_on()
            return False
        if self.root_ended() and not self.loop.unfinished() and self.loop.close_asyncgens():
            return True
        if self.hands.next():
            return True
        if self.dropped or self.hands.blocked:
            return False
        if not self.live:
            return self._go_live()
        self._quiet()
        return False

    def _go_live(self) -> bool:
        """Everything recorded was handed over: what the code has not asked for is a difference."""
        if self.loop.foreign:
            return False
        if self.ending.differ_from_next(self.script.unrecorded):
            return False
        self.live = True
        held, self._held = self._held, []
        for act in held:
            act()
        self.folded_outside()
        return True

    def root_ended(self) -> bool:
        """Whether the body has returned or raised."""
        return self.root is not None and self.root.done()

    def _quiet(self) -> None:
        """Live, and nothing is ready or on its way into the code: end, rest, or wait for what moves."""
        if self.moving or self.outbox.sending or self.ending.settling:
            return
        if self.ending.differences:
            self.ending.rest((*self.ending.differences, *self.hands.parked()))
        elif self.root_ended():
            self.ending.finish()
        elif not (self.draining or self.timers.armed() or self.loop.foreign):
            self.ending.rest(self.hands.reasons())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something of this run on the main loop; the run is not at rest meanwhile."""
        self.moving += 1

        async def whole() -> None:
            try:
                await work
            except Suspended:
                return  # let go of meanwhile
            except Exception as error:  # noqa: BLE001 (as in `hand_over`)
                self.ending.stop(error)
            finally:
                self.moving -= 1
                self.loop.arm()

        running = self.main.create_task(whole(), context=empty())
        self.background.add(running)
        running.add_done_callback(self.background.discard)
