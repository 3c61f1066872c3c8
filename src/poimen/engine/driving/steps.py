"""Steps of a run: the workflow's calls, from claim to attempt, and when they are tried again.

This module must never touch the outside world (effects do that through the gate); it keeps the
invariant that every attempt starts at a recorded place of the order.

Source: design protocol.md, sections 1, 4 and 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from poimen import clock
from poimen.declare.specs import matches
from poimen.engine.driving.replay import Differs
from poimen.engine.eventloop.loop import empty
from poimen.gate.error_record import rebuild
from poimen.kernel.attempt import TERMINAL, AttemptState
from poimen.kernel.errors import NotSent, PoimenError
from poimen.kernel.events import AttemptCancelled, AttemptFailed, AttemptStarted, AttemptSucceeded
from poimen.kernel.intent import ErrorRecord, RejectedOutcome
from poimen.secrecy.speaking import logger

if TYPE_CHECKING:
    import asyncio

    from poimen.declare.specs import ToolSpec
    from poimen.engine.driving.driver import Driver
    from poimen.engine.driving.scopes import Call, CallFuture, WorkflowScope

_log = logger("poimen.run")
LONGEST_BACKOFF_S = 60.0


class Steps:
    """The calls of one workflow."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.current: dict[str, int] = {}
        self._unrecorded: dict[str, Call] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # ---- a call begins -----------------------------------------------------------------------------------------

    def begin(self, scope: WorkflowScope, call: Call) -> CallFuture:
        """A call of the workflow: claim what is recorded, or make it once the record is used up."""
        driver = self.driver
        future = scope.future(call)
        if driver.live:
            self._record(call)
            self._start(call)
            return future
        try:
            recorded = driver.script.claim(
                key=call.key, kind=call.spec.kind, name=call.spec.name, digest=call.digest, what=call.asked
            )
        except Differs as differs:
            driver.ending.differ(differs.recorded, differs.asked, about=differs.key)
            return future
        if not recorded:
            self._unrecorded[call.key] = call
            driver.when_live(lambda: self._start(call))
            return future
        scope.seq += 1
        step = driver.line.steps[call.key]
        self.current[call.key] = step.last.no
        if step.last.state is AttemptState.RUNNING and step.last.no == 1 and step.kind == "step":
            self.driver.attempts.run_body(call, 1)
        driver.when_live(lambda: self._resume(call))
        return future

    def record_held(self) -> None:
        """Give the calls that are held their places in the record, now that something behind them takes its own."""
        held, self._unrecorded = self._unrecorded, {}
        for call in held.values():
            self._record(call)

    def _record(self, call: Call) -> None:
        driver, spec = self.driver, call.spec
        seq = driver.workflow.seq
        driver.workflow.seq += 1
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

    def _start(self, call: Call) -> None:
        if self._unrecorded.pop(call.key, None) is not None:
            self._record(call)
        self.launch(call, 1)
        if call.future.cancel_asked:
            self.cancel(call)

    def _resume(self, call: Call) -> None:
        """The record is used up and this call is not over: go on where it stands."""
        driver = self.driver
        step = driver.line.steps[call.key]
        last = step.last
        if last.state is AttemptState.RUNNING and step.kind != "step":
            if 0 not in last.intents:
                self.launch(call, last.no)
            else:
                driver.effects.resume(call, last.no, None)
        elif last.state is AttemptState.PENDING:
            whole_us = last.not_before - step.attempts[last.no - 2].ended_at  # what is left is never more than that
            self.later(call, last.no, min(last.not_before, clock.wall_us() + whole_us))
        elif step.parked:
            self.try_again(call)
            return
        elif last.state is AttemptState.RUNNING:
            return  # its code runs since it was called, and was cancelled where it is: once more would be twice
        if call.future.cancel_asked and not call.future.done():
            self.cancel(call)

    # ---- an attempt runs ---------------------------------------------------------------------------------------

    def launch(self, call: Call, attempt: int) -> None:
        """Run attempt `attempt` of a call; its start is recorded, or on its way."""
        self.current[call.key] = attempt
        if call.spec.kind == "step":
            self.driver.attempts.run_body(call, attempt)
        else:
            self._run_tool(call, attempt)

    def _run_tool(self, call: Call, attempt: int) -> None:
        step = self.driver.line.steps.get(call.key)
        known = step.inherited(attempt).get(0) if step is not None and attempt > 1 else None
        if known is None and call.spec.is_pure:
            self.driver.spawn(self.driver.attempts.compute(call, attempt))
        elif known is None:
            self.driver.effects.perform_step(call, attempt)
        elif known.abandoned:
            record = ErrorRecord(
                type="EffectAbandoned", message=f"{known.id} was abandoned", fields={"intent_id": str(known.id)}
            )
            self.driver.submit((AttemptFailed(step=call.key, attempt=attempt, error=record),))
        else:
            self.driver.submit((AttemptSucceeded(step=call.key, attempt=attempt, value=known.value),))

    # ---- the next attempt --------------------------------------------------------------------------------------

    def try_again(self, call: Call) -> None:
        """Start a new attempt of a parked step once everything unknown in the last one is resolved."""
        step = self.driver.line.steps[call.key]
        begun = self.current.get(call.key, 1) > step.last.no
        if self.driver.stopping() or self.driver.root_ended() or begun or not step.parked or call.future.done():
            return
        if any(i.open for i in step.last.intents.values()):
            return
        no = step.last.late_no
        if no is None or step.kind == "step":  # the code of a step is told of it in its next attempt
            self._next(call, step.last.no + 1)
            return
        # the far side's no came late: it counts as one that came in time, for the tool's attempts too
        error = rebuild("rejected" if isinstance(no, RejectedOutcome) else "not_sent", no.error)
        at = self.retry_at(call.spec, call, step.last.no, error)
        if at is None:
            self._next(call, step.last.no + 1, failed=no.error)
        else:
            self.later(call, step.last.no + 1, at)

    def _next(self, call: Call, attempt: int, failed: ErrorRecord | None = None) -> None:
        """Start an attempt; `failed`: one that is over before it begins."""
        self._timers.pop(call.key, None)
        self.current[call.key] = attempt
        driver = self.driver
        seq = driver.line.steps[call.key].seq if call.key in driver.line.steps else 0
        started = AttemptStarted(
            step=call.key,
            attempt=attempt,
            seq=seq,
            kind=call.spec.kind,
            name=call.spec.name,
            version=call.spec.version,
            args=b"null",
            args_digest=call.digest,
        )
        over = () if failed is None else (AttemptFailed(step=call.key, attempt=attempt, error=failed),)
        driver.submit((started, *over))

    def later(self, call: Call, attempt: int, at: int) -> None:
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

        self._timers[call.key] = driver.main.call_later(delay, due, context=empty())

    def retry_at(self, spec: ToolSpec, call: Call | None, attempt: int, error: BaseException) -> int | None:
        """When the next attempt is due, microseconds since the Unix epoch; None when there is none."""
        attempts = spec.attempts
        if call is not None and call.options.attempts is not None:
            attempts = call.options.attempts
        attempt -= self._without_end(call, attempt)
        if attempt >= attempts or self.driver.stopping() or not _retryable(spec, error):
            return None
        doubled: float = spec.backoff_s * 2.0 ** min(attempt - 1, 30)
        delay_s = min(doubled, LONGEST_BACKOFF_S) * clock.jitter(0.2)
        return clock.wall_us() + round(delay_s * 1e6)

    def _without_end(self, call: Call | None, attempt: int) -> int:
        """How many attempts of a step's code before `attempt` were told in the next one that the far side said no.

        The two are one try of the code: the no counts once, as one that comes in time does.
        """
        step = None if call is None else self.driver.line.steps.get(call.key)
        if step is None or step.kind != "step":
            return 0
        return sum(1 for before in step.attempts[: attempt - 1] if before.late_no is not None)

    def started(self, call: Call, attempt: int) -> None:
        """A further attempt begins at its place in the order; one that has ended in the record is not run again."""
        step = self.driver.line.steps.get(call.key)
        over = step is not None and (
            attempt < len(step.attempts) or (attempt == len(step.attempts) and step.last.state in TERMINAL)
        )
        if over:
            return
        if call.future.cancel_asked and self.driver.live:
            self.driver.submit((AttemptCancelled(step=call.key, attempt=attempt, why=self.driver.why_cancelled()),))
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
        timer = self._timers.pop(call.key, None)
        if timer is not None:
            timer.cancel()
            driver.moving -= 1
        if driver.dropped or call.parked:
            call.future.end_cancelled()
            driver.loop.arm()
            return
        attempt = self.current.get(call.key, 1)
        if timer is not None:
            driver.submit((AttemptCancelled(step=call.key, attempt=attempt, why=driver.why_cancelled()),))
            return
        scope = driver.attempts.scopes.get((call.key, attempt))
        if scope is not None and scope.work is not None:
            scope.work.cancel()
        guard = driver.effects.guards.get((call.key, attempt, 0))
        if guard is not None and scope is None:
            guard.stop("cancel")


def _retryable(spec: ToolSpec, error: BaseException) -> bool:
    if spec.retry_on is not None:
        try:
            return matches(spec.retry_on, error)
        except Exception:  # noqa: BLE001 (a predicate of the user)
            _log.exception("retry_on= of %s (%s) raised: the attempt is not repeated", spec.name, spec.where)
            return False
    cls = type(error)  # not by its `__class__`, which may raise
    return issubclass(cls, NotSent) or (issubclass(cls, Exception) and not issubclass(cls, PoimenError))
