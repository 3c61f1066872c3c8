"""Attempts: a body runs in its scope, its end becomes one record.

A step's body runs on the run's own loop (a plain function in a thread), a tool's behind its guard. This
module must never decide when a step is tried again; it keeps the invariant that an attempt ends by one
record, after everything that was begun in it has ended.

Source: design protocol.md, sections 1 and 5.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Literal

from poimen.declare.calling import CALLER
from poimen.engine.driving.scopes import AttemptScope, BodyScope
from poimen.engine.eventloop.threads import ThreadScope
from poimen.gate.error_record import rebuild, record_of
from poimen.gate.guard import GivenUp, Raised, Value, compute, open_code
from poimen.gate.port import Closed, Dropped, Key, Known, Landed, Stopped, Unknown
from poimen.kernel.attempt import AttemptState
from poimen.kernel.errors import NotStorable
from poimen.kernel.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptIndeterminate,
    AttemptStarted,
    AttemptSucceeded,
    AttemptTimedOut,
    StepComputed,
)
from poimen.kernel.intent import ErrorRecord, FailedRead, NotSentOutcome, RejectedOutcome, Returned
from poimen.recovery.scan import dropped_reads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poimen.declare.specs import ToolSpec
    from poimen.engine.driving.driver import Driver
    from poimen.engine.driving.scopes import Call
    from poimen.gate.guard import Guard
    from poimen.kernel.events import Event
    from poimen.kernel.intent import DropReason, Outcome


class Attempts:
    """The attempts that are being made in one branch."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.scopes: dict[tuple[str, int], AttemptScope] = {}
        self.originals: dict[str, BaseException] = {}

    # ---- an attempt runs ---------------------------------------------------------------------------------------

    async def compute(self, call: Call, attempt: int) -> None:
        """Run a pure tool that is its own step."""
        args, kwargs = call.spec.parameters.unpack(call.packed)
        caller = BodyScope(self.driver.where(call.key, attempt), "", probing=False)
        ended = await compute(
            call.spec, args, kwargs, caller, self.driver.worker.threads, timeout_s=call.options.timeout_s
        )
        if self.driver.dropped:
            return
        match ended:
            case Value():
                self._returned(call, attempt, ended.value)
            case GivenUp() | Raised(told_to_stop="timeout", error=asyncio.CancelledError()):
                self._failed(call, attempt, TimeoutError(f"{call.spec.name} did not end in time"))
            case Raised():
                self._failed(call, attempt, ended.error)

    def scope(self, call_key: str, attempt: int) -> AttemptScope:
        """The scope of an attempt; made once."""
        known = self.scopes.get((call_key, attempt))
        if known is None:
            known = self.scopes[call_key, attempt] = AttemptScope(self.driver, call_key, attempt)
            step = self.driver.line.steps.get(call_key)
            if step is not None:
                known.handed = step.inherited_order(attempt)
                known.inherited = {n: step.placed(attempt, n) for kind, n in known.handed if kind == "effect"}
                if known.handed:
                    self.driver.hands.heir(known)
                if attempt <= len(step.attempts):
                    known.recorded = dict(step.attempts[attempt - 1].intents)
        return known

    def forget(self, call_key: str, attempt: int) -> None:
        """The code was told how a call has ended: nothing of its last attempt is needed any more."""
        scope = self.scopes.get((call_key, attempt))
        if scope is not None:
            scope.forget()

    def run_body(self, call: Call, attempt: int) -> None:
        """Run a step's code in the scope of its attempt."""
        driver, spec = self.driver, call.spec
        scope = self.scope(call.key, attempt)
        if scope.dropped:
            return
        args, kwargs = spec.parameters.unpack(call.packed)
        context = call.context.copy()
        over: asyncio.Future[Any] | None = None
        if spec.is_async:
            context.run(CALLER.set, scope)
            scope.work = driver.loop.create_task(self._body(scope, call, args, kwargs), context=context)
        else:
            caller = ThreadScope(scope)
            context.run(CALLER.set, caller)
            in_thread = context.copy()
            thread = driver.threads.run(caller, lambda: in_thread.run(open_code(spec), *args, **kwargs))
            scope.work = driver.loop.create_task(self._await_thread(scope, call, thread), context=context)
            over = thread
        scope.work.add_done_callback(lambda work: self._never_ran(scope, call, work, over))

    def _never_ran(
        self, scope: AttemptScope, call: Call, work: asyncio.Future[Any], thread: asyncio.Future[Any] | None
    ) -> None:
        """A body that was cancelled before its first line has ended too; one that ran ends itself."""
        if not work.cancelled() or self._let_go(scope):
            return
        if thread is not None and not thread.done():
            thread.add_done_callback(lambda _thread: self._never_ran(scope, call, work, None))
            return
        scope.dropped = True
        self.driver.when_live(lambda: self._end(scope, call, None, asyncio.CancelledError()))

    async def _body(self, scope: AttemptScope, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            value = await open_code(call.spec)(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 (recorded as the attempt's end)
            await self._body_ended(scope, call, error=error)
        else:
            await self._body_ended(scope, call, value=value)

    async def _await_thread(self, scope: AttemptScope, call: Call, thread: asyncio.Future[Any]) -> None:
        """A thread cannot be stopped: what it waits for is, however often it is cancelled, and its end is awaited."""
        stopped: asyncio.CancelledError | None = None
        while not thread.done():
            try:
                await asyncio.wait([thread])
            except asyncio.CancelledError as told:
                if self._let_go(scope):
                    raise
                stopped = told
                for effect in scope.effects.values():
                    effect.future.cancel()
        error = thread.exception() or stopped
        value = thread.result() if error is None else None
        await self._body_ended(scope, call, value=value, error=error)

    async def _body_ended(
        self, scope: AttemptScope, call: Call, *, value: Any = None, error: BaseException | None = None
    ) -> None:
        """The code has ended; its effects must have ended too before the attempt has.

        The end goes into the record when that is used up: whatever it holds was handed over before the end.
        """
        scope.over, scope.failure = True, error
        while not self._let_go(scope):
            left = [effect.future for effect in scope.effects.values() if not effect.future.done()]
            if not left:
                scope.dropped = True
                self.driver.when_live(lambda: self._end(scope, call, value, error))
                return
            for future in left:
                future.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # the body is over: there is nothing more to stop
                await asyncio.wait(left)

    def _end(self, scope: AttemptScope, call: Call, value: Any, error: BaseException | None) -> None:
        try:
            if error is None:
                self._returned(call, scope.attempt, value)
            else:
                self._failed(call, scope.attempt, error)
        except Exception as broken:  # noqa: BLE001 (a codec or a value of the user: this run stops, and says so)
            self.driver.ending.stop(broken)

    def _let_go(self, scope: AttemptScope) -> bool:
        return scope.dropped or self.driver.dropped

    async def inline(self, scope: AttemptScope, spec: ToolSpec, packed: bytes) -> Any:
        """A pure tool, or a step, called inside a step: part of the step's own code."""
        args, kwargs = spec.parameters.unpack(packed)
        found = open_code(spec)(*args, **kwargs)
        value = await found if spec.is_async else found
        scope.refuse_when_dropped()
        return spec.parameters.load_result(spec.parameters.dump_result(value, path=f"{spec.name}() returned"))

    # ---- an attempt ends ---------------------------------------------------------------------------------------

    def _returned(self, call: Call, attempt: int, value: Any) -> None:
        spec = call.spec
        try:
            body = spec.parameters.dump_result(value, path=f"{spec.name}() returned")
        except NotStorable as error:
            self._failed(call, attempt, error)
            return
        driver = self.driver
        payload = driver.keep(body)
        started = driver.last_emitted
        if isinstance(started, AttemptStarted) and started.step == call.key and started.attempt == attempt == 1:
            driver.replace_last(
                StepComputed(
                    step=call.key,
                    seq=started.seq,
                    kind=started.kind,
                    name=started.name,
                    version=started.version,
                    args=started.args,
                    args_digest=started.args_digest,
                    value=payload,
                    started_at=driver.last_emitted_at,
                )
            )
        else:
            driver.emit(AttemptSucceeded(step=call.key, attempt=attempt, value=payload))

    def _failed(self, call: Call, attempt: int, error: BaseException) -> None:
        driver = self.driver
        if issubclass(type(error), asyncio.CancelledError) and (call.future.cancel_asked or driver.cancelled):
            driver.submit((AttemptCancelled(step=call.key, attempt=attempt, why=driver.why_cancelled()),))
            return
        self.originals[call.key] = error
        event = AttemptFailed(
            step=call.key,
            attempt=attempt,
            error=record_of(error),
            retry_at=self.driver.steps.retry_at(call.spec, call, attempt, error),
        )
        driver.emit(event)
        if event.retry_at is not None:
            self.driver.steps.later(call, attempt + 1, event.retry_at)

    def closing(self, key: Key, outcome: Outcome) -> tuple[Event, ...]:
        """The record that ends the attempt of a tool that is its own step, for its outcome's transaction."""
        step, attempt, ordinal = key
        guard = self.driver.effects.guards[key]
        match outcome:
            case Returned(unstorable=""):
                return (AttemptSucceeded(step=step, attempt=attempt, ordinal=ordinal),)
            case Returned():
                record = ErrorRecord(type="NotStorable", message=outcome.unstorable)
                return (AttemptFailed(step=step, attempt=attempt, error=record),)
            case RejectedOutcome() | NotSentOutcome() | FailedRead():
                if isinstance(outcome, NotSentOutcome) and guard.stopping:
                    return (AttemptCancelled(step=step, attempt=attempt, why=self.driver.why_cancelled()),)
                call = self.driver.workflow.calls.get(step)
                if guard.error is not None:
                    self.originals[step] = guard.error
                error = guard.error or rebuild("failed", outcome.error)
                if guard.spec.retry_on is None and not isinstance(outcome, FailedRead):
                    # Whatever the tool raised: a no is final, and what was not sent may be sent.
                    error = rebuild("rejected" if isinstance(outcome, RejectedOutcome) else "not_sent", outcome.error)
                retry_at = self.driver.steps.retry_at(guard.spec, call, attempt, error)
                return (AttemptFailed(step=step, attempt=attempt, error=outcome.error, retry_at=retry_at),)

    def dropping(self, key: Key, why: DropReason) -> tuple[Event, ...]:
        """The record that ends the attempt of a READ that is its own step and was given up."""
        step, attempt, _ = key
        if why == "cancel":
            return (AttemptCancelled(step=step, attempt=attempt, why=self.driver.why_cancelled()),)
        guard = self.driver.effects.guards[key]
        error = TimeoutError(f"{guard.spec.name} did not answer ({why}; {guard.terms.timeout_us / 1e6:g} s a send)")
        retry_at = self.driver.steps.retry_at(guard.spec, self.driver.workflow.calls.get(step), attempt, error)
        return (AttemptTimedOut(step=step, attempt=attempt, error=record_of(error), retry_at=retry_at),)

    async def tool_closed(self, guard: Guard, closed: Closed) -> None:
        """The guard of a tool that is its own step has ended."""
        driver = self.driver
        step, attempt, ordinal = guard.key
        match closed:
            case Known() | Landed() | Dropped():
                last = driver.line.steps[step].last
                call = driver.workflow.calls.get(step)
                if last.state is AttemptState.PENDING and call is not None:
                    self.driver.steps.later(call, last.no, last.not_before)
            case Stopped():
                await driver.append((AttemptCancelled(step=step, attempt=attempt, why=driver.why_cancelled()),))
            case Unknown():
                await self._end_unknown(step, attempt, (ordinal,), guard.spec, closed.why)

    async def end_unknown(self, scope: AttemptScope) -> None:
        """Every other effect of the attempt has ended: it is Indeterminate, its code is closed silently."""
        if scope.dropped:
            return
        attempt = self.driver.line.steps[scope.step].attempts[scope.attempt - 1]
        known = [*attempt.unknown(), *(i for i in attempt.intents.values() if i.resolution is not None)]
        unknown = tuple(sorted(i.id.ordinal for i in known))
        call = self.driver.workflow.calls.get(scope.step)
        spec = call.spec if call is not None else None
        await self._end_unknown(scope.step, scope.attempt, unknown, spec, "", reads=dropped_reads(attempt, "held-back"))
        self.drop_scope(scope)

    async def _end_unknown(
        self,
        step: str,
        attempt: int,
        unknown: tuple[int, ...],
        spec: ToolSpec | None,
        why: str,
        *,
        reads: Sequence[Event] = (),
    ) -> None:
        driver = self.driver
        call = driver.workflow.calls.get(step)
        told = driver.on_indeterminate(spec, call) == "raise"
        cause: Literal["cancel", "left_unresolved"] = (
            "cancel" if why == "cancel" or driver.stopping() else "left_unresolved"
        )
        running = tuple(n for n in unknown for _ in range(driver.effects.running.get((step, attempt, n), 0)))
        event = AttemptIndeterminate(
            step=step, attempt=attempt, cause=cause, unknown=unknown, told=told, running=running
        )
        await driver.append((*reads, event))
        if call is not None and driver.live:
            driver.steps.try_again(call)

    def drop_scope(self, scope: AttemptScope) -> None:
        """Close an attempt's code: newest call first, each poimen call meanwhile raises Suspended."""
        scope.dropped = True
        for effect in reversed(list(scope.effects.values())):
            self.driver.ending.suspend(effect.future)
        work = scope.work
        if work is not None and not work.done():
            self.driver.loop.call_soon(self._nudge, work, 3)

    def _nudge(self, work: asyncio.Future[Any], rounds: int) -> None:
        """Code that waits for something else than a call (a lock, a queue) is cancelled instead."""
        if work.done():
            return
        if rounds:
            self.driver.loop.call_soon(self._nudge, work, rounds - 1)
        else:
            work.cancel()
