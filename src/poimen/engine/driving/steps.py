"""Steps of a run: calls of the workflow, their attempts, what ends them, when they are tried again.

This module must never touch the outside world (effects do that through the gate); it keeps the
invariants that an attempt ends by one record, and that the next one starts at a recorded place.

Source: design protocol.md, sections 1, 4 and 5.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

from poimen import clock
from poimen.declare import values
from poimen.declare.calling import CALLER
from poimen.declare.specs import matches
from poimen.engine.driving.scopes import AttemptScope, Call, CallFuture, ThreadScope, WorkflowScope
from poimen.engine.driving.loop import BASE
from poimen.engine.driving.replay import Differs
from poimen.gate.guard import GivenUp, Raised, Value, compute, open_code
from poimen.gate.error_record import rebuild, record_of
from poimen.gate.port import Closed, Dropped, Key, Known, Landed, Stopped, Unknown
from poimen.kernel.attempt import TERMINAL, AttemptState
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.errors import NotSent, NotStorable, PoimenError, Rejected, Suspended
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

if TYPE_CHECKING:
    from poimen.declare.specs import ToolSpec
    from poimen.engine.driving.driver import Driver
    from poimen.kernel.events import Event
    from poimen.kernel.intent import Outcome

LONGEST_BACKOFF_S = 60.0


class Steps:
    """The workflow's calls and the attempts that are being made at them."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.scopes: dict[tuple[str, int], AttemptScope] = {}
        self.current: dict[str, int] = {}
        self.originals: dict[str, BaseException] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @staticmethod
    def is_pure(spec: ToolSpec) -> bool:
        """A tool without an intent: no I/O, computed again whenever it is asked for."""
        return spec.effect is not None and spec.effect.effect_class == EffectClass.PURE.name

    # ---- a call begins -----------------------------------------------------------------------------------------

    def begin(self, scope: WorkflowScope, call: Call) -> CallFuture:
        """A call of the workflow: claim what is recorded, or make it once the record is used up."""
        driver = self.driver
        future = scope.future(call)
        if driver.live:
            self._start(scope, call)
            return future
        try:
            recorded = driver.script.claim(key=call.key, name=call.spec.name, digest=call.digest, what=call.what)
        except Differs as differs:
            driver.differ(differs.recorded, differs.asked)
            return future
        if not recorded:
            driver.when_live(lambda: self._start(scope, call))
            return future
        scope.seq += 1
        step = driver.line.steps[call.key]
        self.current[call.key] = step.last.no
        if step.last.state is AttemptState.RUNNING and step.last.no == 1 and step.kind == "step":
            self._run_body(call, 1)
        driver.when_live(lambda: self._resume(call))
        return future

    def _start(self, scope: WorkflowScope, call: Call) -> None:
        driver, spec = self.driver, call.spec
        seq = scope.seq
        scope.seq += 1
        driver.emit(
            AttemptStarted(
                step=call.key,
                attempt=1,
                seq=seq,
                kind=spec.kind,
                name=spec.name,
                version=spec.version,
                args=driver.keep(call.packed),
                args_digest=call.digest,
            )
        )
        self.launch(call, 1)
        if call.future.cancel_asked:
            self.cancel(call)

    def _resume(self, call: Call) -> None:
        """The record is used up and this call is not over: go on where it stands."""
        driver = self.driver
        step = driver.line.steps[call.key]
        last = step.last
        if last.state is AttemptState.RUNNING and step.kind != "step":
            if self.is_pure(call.spec) or 0 not in last.intents:
                self.launch(call, last.no)
            else:
                driver.effects.resume(call, last.no, None)
        elif last.state is AttemptState.PENDING:
            self._later(call, last.no, last.not_before)
        elif step.parked:
            self.try_again(call)
        if call.future.cancel_asked and not call.future.done():
            self.cancel(call)

    # ---- an attempt runs ---------------------------------------------------------------------------------------

    def launch(self, call: Call, attempt: int) -> None:
        """Run attempt `attempt` of a call; its start is recorded, or on its way."""
        self.current[call.key] = attempt
        if call.spec.kind == "step":
            self._run_body(call, attempt)
        elif self.is_pure(call.spec):
            self.driver.spawn(self._compute(call, attempt))
        else:
            self._run_tool(call, attempt)

    def _run_tool(self, call: Call, attempt: int) -> None:
        step = self.driver.line.steps.get(call.key)
        known = step.inherited(attempt).get(0) if step is not None and attempt > 1 else None
        if known is None:
            self.driver.effects.perform_step(call, attempt)
        elif known.abandoned:
            record = ErrorRecord(type="EffectAbandoned", message=f"{known.id} was abandoned", fields={"intent_id": str(known.id)})
            self.driver.submit((AttemptFailed(step=call.key, attempt=attempt, error=record),))
        else:
            self.driver.submit((AttemptSucceeded(step=call.key, attempt=attempt, value=known.value),))

    async def _compute(self, call: Call, attempt: int) -> None:
        args, kwargs = call.spec.parameters.unpack(call.packed)
        caller = self.driver.body_scope(call.key, attempt)
        ended = await compute(call.spec, args, kwargs, caller, self.driver.worker.threads)
        if self.driver.dropped:
            return
        match ended:
            case Value():
                self._returned(call, attempt, ended.value)
            case Raised():
                self._failed(call, attempt, ended.error)
            case GivenUp():
                self._failed(call, attempt, TimeoutError(f"{call.spec.name} did not end in time"))

    def scope(self, call_key: str, attempt: int) -> AttemptScope:
        """The scope of an attempt; made once."""
        known = self.scopes.get((call_key, attempt))
        if known is None:
            known = self.scopes[call_key, attempt] = AttemptScope(self.driver, call_key, attempt)
            step = self.driver.line.steps.get(call_key)
            if step is not None:
                known.inherited = step.inherited(attempt)
                known.handed = sorted(known.inherited, key=lambda n: known.inherited[n].last_lsn)
                if attempt <= len(step.attempts):
                    known.recorded = dict(step.attempts[attempt - 1].intents)
        return known

    def _run_body(self, call: Call, attempt: int) -> None:
        driver, spec = self.driver, call.spec
        scope = self.scope(call.key, attempt)
        if scope.dropped:
            return
        args, kwargs = spec.parameters.unpack(call.packed)
        context = contextvars.copy_context()
        if spec.is_async:
            context.run(CALLER.set, scope)
            scope.work = driver.loop.create_task(self._body(scope, call, args, kwargs), context=context)
        else:
            context.run(CALLER.set, ThreadScope(scope))
            thread = driver.in_thread(lambda: context.run(open_code(spec), *args, **kwargs))
            scope.work = driver.loop.create_task(self._await_thread(scope, call, thread), context=context)

    async def _body(self, scope: AttemptScope, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            value = await open_code(call.spec)(*args, **kwargs)
        except Suspended:
            return
        except BaseException as error:  # noqa: BLE001 (recorded as the attempt's end)
            await self._body_ended(scope, call, error=error)
        else:
            await self._body_ended(scope, call, value=value)

    async def _await_thread(self, scope: AttemptScope, call: Call, thread: asyncio.Future[Any]) -> None:
        try:
            value = await asyncio.shield(thread)
        except Suspended:
            return
        except asyncio.CancelledError as error:
            scope.cancelling = True
            for effect in scope.effects.values():
                effect.future.cancel()
            try:
                await thread
            except BaseException as late:  # noqa: BLE001 (the thread's own end, whatever it is)
                error = late if isinstance(late, asyncio.CancelledError) else error
            await self._body_ended(scope, call, error=error)
        except BaseException as error:  # noqa: BLE001 (recorded as the attempt's end)
            await self._body_ended(scope, call, error=error)
        else:
            await self._body_ended(scope, call, value=value)

    async def _body_ended(
        self, scope: AttemptScope, call: Call, *, value: Any = None, error: BaseException | None = None
    ) -> None:
        """The code has ended; its effects must have ended too before the attempt has."""
        if scope.dropped or self.driver.dropped:
            return
        left = [effect.future for effect in scope.effects.values() if not effect.future.done()]
        for future in left:
            future.cancel()
        if left:
            await asyncio.wait(left)
        if scope.dropped or self.driver.dropped:
            return
        scope.dropped = True
        if error is None:
            self._returned(call, scope.attempt, value)
        else:
            self._failed(call, scope.attempt, error)

    async def inline(self, scope: AttemptScope, spec: ToolSpec, packed: bytes) -> Any:
        """A pure tool, or a step, called inside a step: part of the step's own code."""
        args, kwargs = spec.parameters.unpack(packed)
        found = open_code(spec)(*args, **kwargs)
        value = await found if spec.is_async else found
        scope.refuse_when_dropped()
        result = spec.parameters.result
        return values.load(values.dump(value, result, path=f"{spec.name}() returned"), result)

    # ---- an attempt ends ---------------------------------------------------------------------------------------

    def _returned(self, call: Call, attempt: int, value: Any) -> None:
        spec = call.spec
        try:
            body = values.dump(value, spec.parameters.result, path=f"{spec.name}() returned")
        except NotStorable as error:
            self._failed(call, attempt, error)
            return
        driver = self.driver
        payload = driver.keep(body)
        started = driver.last_emitted
        if (
            isinstance(started, AttemptStarted)
            and started.step == call.key
            and started.attempt == attempt == 1
        ):
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
        if isinstance(error, asyncio.CancelledError) and (call.future.cancel_asked or driver.cancelled):
            driver.submit((AttemptCancelled(step=call.key, attempt=attempt, why=driver.why_cancelled()),))
            return
        self.originals[call.key] = error
        event = AttemptFailed(
            step=call.key,
            attempt=attempt,
            error=record_of(error),
            retry_at=self._retry_at(call, attempt, error),
        )
        driver.emit(event)
        if event.retry_at is not None:
            self._later(call, attempt + 1, event.retry_at)

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
                retry_at = self._retry_at_of(guard.spec, call, attempt, error)
                return (AttemptFailed(step=step, attempt=attempt, error=outcome.error, retry_at=retry_at),)

    async def tool_closed(self, guard: Any, closed: Closed) -> None:
        """The guard of a tool that is its own step has ended."""
        driver = self.driver
        step, attempt, ordinal = guard.key
        match closed:
            case Known() | Landed():
                last = driver.line.steps[step].last
                call = driver.workflow.calls.get(step)
                if last.state is AttemptState.PENDING and call is not None:
                    self._later(call, last.no, last.not_before)
            case Stopped():
                await driver.append((AttemptCancelled(step=step, attempt=attempt, why=driver.why_cancelled()),))
            case Dropped(why="cancel"):
                await driver.append((AttemptCancelled(step=step, attempt=attempt, why=driver.why_cancelled()),))
            case Dropped():
                await self._timed_out(guard, step, attempt)
            case Unknown():
                await self._end_unknown(step, attempt, (ordinal,), guard.spec, closed.why)

    async def _timed_out(self, guard: Any, step: str, attempt: int) -> None:
        call = self.driver.workflow.calls.get(step)
        error = TimeoutError(f"{guard.spec.name} did not answer within {guard.terms.timeout_us / 1e6:g} s")
        retry_at = self._retry_at_of(guard.spec, call, attempt, error)
        event = AttemptTimedOut(step=step, attempt=attempt, error=record_of(error), retry_at=retry_at)
        await self.driver.append((event,))
        if retry_at is not None and call is not None:
            self._later(call, attempt + 1, retry_at)

    async def end_unknown(self, scope: AttemptScope) -> None:
        """Every other effect of the attempt has ended: it is Indeterminate, its code is closed silently."""
        if scope.dropped:
            return
        attempt = self.driver.line.steps[scope.step].attempts[scope.attempt - 1]
        unknown = tuple(sorted(i.id.ordinal for i in attempt.intents.values() if i.open or i.resolution is not None))
        call = self.driver.workflow.calls.get(scope.step)
        spec = call.spec if call is not None else None
        await self._end_unknown(scope.step, scope.attempt, unknown, spec, "")
        self.drop_scope(scope)

    async def _end_unknown(
        self, step: str, attempt: int, unknown: tuple[int, ...], spec: ToolSpec | None, why: str
    ) -> None:
        driver = self.driver
        call = driver.workflow.calls.get(step)
        told = driver.on_indeterminate(spec, call) == "raise"
        cause = "cancel" if why == "cancel" or driver.stopping() else "left_unresolved"
        event = AttemptIndeterminate(step=step, attempt=attempt, cause=cause, unknown=unknown, told=told)
        await driver.append((event,))
        if call is not None and driver.live:
            self.try_again(call)

    def drop_scope(self, scope: AttemptScope) -> None:
        """Close an attempt's code: newest call first, each poimen call meanwhile raises Suspended."""
        scope.dropped = True
        for effect in reversed(list(scope.effects.values())):
            self.driver.suspend(effect.future)
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

    # ---- the next attempt --------------------------------------------------------------------------------------

    def try_again(self, call: Call) -> None:
        """Start a new attempt of a parked step once everything unknown in the last one is resolved."""
        step = self.driver.line.steps[call.key]
        if not step.parked or any(i.open for i in step.last.intents.values()) or call.future.done():
            return
        self._next(call, step.last.no + 1)

    def _next(self, call: Call, attempt: int) -> None:
        self._timers.pop(call.key, None)
        self.current[call.key] = attempt
        driver = self.driver
        seq = driver.line.steps[call.key].seq if call.key in driver.line.steps else 0
        driver.submit(
            (
                AttemptStarted(
                    step=call.key,
                    attempt=attempt,
                    seq=seq,
                    kind=call.spec.kind,
                    name=call.spec.name,
                    version=call.spec.version,
                    args=b"null",
                    args_digest=call.digest,
                ),
            )
        )

    def _later(self, call: Call, attempt: int, at: int) -> None:
        """Start attempt `attempt` when its time has come."""
        driver = self.driver
        if call.key in self._timers or driver.dropped:
            return
        self.current[call.key] = attempt
        delay = max(0.0, (at - clock.wall_us()) / 1e6)
        driver.moving += 1

        def due() -> None:
            driver.moving -= 1
            if not driver.dropped and call.key in self._timers:
                self._next(call, attempt)

        self._timers[call.key] = driver.main.call_later(delay, due, context=BASE)

    def _retry_at(self, call: Call, attempt: int, error: BaseException) -> int | None:
        return self._retry_at_of(call.spec, call, attempt, error)

    def _retry_at_of(self, spec: ToolSpec, call: Call | None, attempt: int, error: BaseException) -> int | None:
        attempts = spec.attempts
        if call is not None and call.options.attempts is not None:
            attempts = call.options.attempts
        if attempt >= attempts or self.driver.stopping() or not _retryable(spec, error):
            return None
        delay_s = min(spec.backoff_s * 2 ** min(attempt - 1, 30), LONGEST_BACKOFF_S) * clock.jitter(0.2)
        return clock.wall_us() + round(delay_s * 1e6)

    def started(self, call: Call, attempt: int) -> None:
        """A further attempt begins at its place in the order; one that has ended in the record is not run again."""
        step = self.driver.line.steps.get(call.key)
        over = step is not None and (
            attempt < len(step.attempts) or (attempt == len(step.attempts) and step.last.state in TERMINAL)
        )
        if over:
            return
        if self.driver.live or call.spec.kind == "step":
            self.launch(call, attempt)
        if call.future.cancel_asked:
            self.cancel(call)

    def close(self) -> None:
        """Forget every retry that waits."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # ---- cancelling --------------------------------------------------------------------------------------------

    def cancel(self, call: Call) -> None:
        """The workflow no longer wants this call."""
        driver = self.driver
        if driver.dropped or call.parked:
            call.future.end_cancelled()
            return
        attempt = self.current.get(call.key, 1)
        timer = self._timers.pop(call.key, None)
        if timer is not None:
            timer.cancel()
            driver.moving -= 1
            driver.submit((AttemptCancelled(step=call.key, attempt=attempt, why=driver.why_cancelled()),))
            return
        scope = self.scopes.get((call.key, attempt))
        if scope is not None and scope.work is not None:
            scope.work.cancel()
        guard = driver.effects.guards.get((call.key, attempt, 0))
        if guard is not None and scope is None:
            guard.stop("cancel")


def _retryable(spec: ToolSpec, error: BaseException) -> bool:
    if spec.retry_on is not None:
        return matches(spec.retry_on, error)
    if isinstance(error, NotSent):
        return True
    if isinstance(error, PoimenError):
        return False
    return isinstance(error, Exception) and not isinstance(error, Rejected)
