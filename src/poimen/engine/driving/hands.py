"""Hands results over to the code: one at a time, in LSN order, each once nothing in the run is ready.

Live and replay go through here alike. What the code is told is what is recorded: a value decoded from
the stored bytes, an error rebuilt from recorded fields. This module must never append; it keeps the
invariant that what is at the head of the line is handed over before anything behind it.

Source: design protocol.md, section 5 ("Replay"); section 3 ("Live and replay hand out the same thing").
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from poimen.engine.driving.replay import Asked, HandOver, described, hand_over_of
from poimen.gate.error_record import rebuild
from poimen.kernel.attempt import AttemptState
from poimen.kernel.errors import EffectAbandoned, IndeterminateOutcome, InvariantViolated, NotStorable
from poimen.kernel.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptIndeterminate,
    AttemptSucceeded,
    AttemptTimedOut,
    StepComputed,
    Waiting,
)
from poimen.kernel.intent import (
    FailedRead,
    IntentCommitted,
    NotSentOutcome,
    ReadDropped,
    RejectedOutcome,
    Returned,
    RuleApplied,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poimen.engine.driving.driver import Driver
    from poimen.engine.driving.scopes import AttemptScope, Call, Scope
    from poimen.gate.error_record import Kind
    from poimen.kernel.events import Event
    from poimen.kernel.intent import ErrorRecord, Outcome, Payload
    from poimen.kernel.views import IntentView


class _Verdict(Enum):
    GO = "go"
    MOOT = "moot"
    NOT_YET = "not yet"


class Hands:
    """The line of results of one driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._line = driver.script.queue
        self._heirs: list[AttemptScope] = []

    @property
    def blocked(self) -> bool:
        """The next result is not durable yet."""
        return bool(self._line) and not self._line[0].ready

    def line_up(self, event: Event, at: int, *, ready: bool) -> HandOver | None:
        """Put what a record hands over in line."""
        due = hand_over_of(event, at, ready=ready)
        if due is None or (due.kind == "effect" and not self._driver.is_step(due.step)):
            return None
        self._line.append(due)
        if ready:
            self._driver.loop.arm()
        return due

    def next(self) -> bool:
        """Hand over one result; False when there is none that can be."""
        if self._heirs and self._inherited():
            return True
        line, driver = self._line, self._driver
        while line:
            due = line[0]
            if not due.ready:
                return False
            verdict = self._verdict(due)
            if verdict is _Verdict.NOT_YET:
                if not driver.loop.foreign:
                    driver.ending.differ(self._words(due), driver.script.unrecorded, about=due.step)
                return False
            line.popleft()
            if verdict is _Verdict.GO:
                driver.passed(due.at)
                self._give(due)
                return True
        return False

    def _inherited(self) -> bool:
        """What an attempt takes over from the one before comes first, in the order in which it had come."""
        self._heirs = [scope for scope in self._heirs if scope.handed and not scope.dropped]
        return any(self._hand_down(scope) for scope in self._heirs)

    def _hand_down(self, scope: AttemptScope) -> bool:
        kind, n = scope.handed[0]
        if scope.over:
            scope.handed.clear()
            for call in scope.effects.values():
                if call.ordinal in scope.inherited and not call.future.done():
                    call.future.end_cancelled()
        elif kind == "timer" and n < scope.timers_made:
            scope.handed.pop(0)
            self._fire(scope, n)
        elif kind == "effect" and n in scope.effects:
            scope.handed.pop(0)
            self._tell_inherited(scope, scope.effects[n])
        else:
            return False
        return True

    def _tell_inherited(self, scope: AttemptScope, call: Call) -> None:
        known = scope.inherited[call.ordinal]
        if call.future.done():
            return
        if call.future.cancel_asked:
            call.future.end_cancelled()
        elif known.answered:
            self._tell_known(call, known)
        elif call.ordinal not in scope.recorded:
            # it was called off with its attempt, not by the code, which wants it now
            self._driver.effects.perform_in_step(scope, call)

    def _fire(self, scope: Scope, n: int) -> None:
        timer = scope.timers.pop(n, None)
        if timer is not None:
            timer.fired = True
            self._driver.loop.fire(timer)

    def heir(self, scope: AttemptScope) -> None:
        """A scope that takes over what the attempt before was told."""
        self._heirs.append(scope)

    def _words(self, due: HandOver) -> str:
        match due.kind:
            case "told" | "parked" | "start":
                step = self._driver.line.steps[due.step]
                call = described(step.name, step.key, step.args_digest)
                return call if due.attempt == 1 else f"attempt {due.attempt} of {call}"
            case "effect":
                tool = self._driver.intent((due.step, due.attempt, due.n)).pending.tool
                return f"{tool} as effect {due.n} of {due.step}, attempt {due.attempt}"
            case "timer":
                return f"timer {due.n} of {due.step or 'the workflow'}"
            case "cancel":
                return "a cancellation"

    # ---- may it be handed over? ----------------------------------------------------------------------------------

    def _verdict(self, due: HandOver) -> _Verdict:
        match due.kind:
            case "cancel":
                return _Verdict.GO
            case "told" | "parked" | "start":
                return self._verdict_of_call(due)
            case "effect":
                return self._verdict_of_effect(due)
            case "timer":
                return self._verdict_of_timer(due)

    def _verdict_of_call(self, due: HandOver) -> _Verdict:
        call = self._driver.workflow.calls.get(due.step)
        if call is None:
            return _Verdict.NOT_YET
        if call.future.done():
            return _Verdict.MOOT
        if isinstance(due.event, AttemptCancelled) and not (call.future.cancel_asked or self._driver.cancelled):
            return _Verdict.NOT_YET
        return _Verdict.GO

    def _verdict_of_effect(self, due: HandOver) -> _Verdict:
        scope = self._driver.attempts.scopes.get((due.step, due.attempt))
        if scope is None:
            return _Verdict.NOT_YET
        if scope.dropped:
            return _Verdict.MOOT
        call = scope.effects.get(due.n)
        if call is None:
            return _Verdict.NOT_YET
        return _Verdict.MOOT if call.future.done() else _Verdict.GO

    def _verdict_of_timer(self, due: HandOver) -> _Verdict:
        scope: Scope | None = self._driver.workflow
        if due.step:
            scope = self._driver.attempts.scopes.get((due.step, due.attempt))
        if scope is None:
            return _Verdict.NOT_YET
        if scope.dropped:
            return _Verdict.MOOT
        if due.n >= scope.timers_made:
            return _Verdict.NOT_YET
        return _Verdict.GO if due.n in scope.timers else _Verdict.MOOT

    # ---- handing over --------------------------------------------------------------------------------------------

    def _give(self, due: HandOver) -> None:
        driver = self._driver
        match due.kind:
            case "cancel":
                driver.deliver_cancel()
            case "timer":
                scope: Scope = driver.attempts.scopes[due.step, due.attempt] if due.step else driver.workflow
                self._fire(scope, due.n)
            case "start":
                call = driver.workflow.calls[due.step]
                call.parked = False
                driver.steps.started(call, due.attempt)
            case "parked":
                call = driver.workflow.calls[due.step]
                if driver.cancelled:
                    call.future.end_cancelled()
                else:
                    call.parked = True
                    driver.when_live(lambda: driver.steps.try_again(call))
            case "told":
                call = driver.workflow.calls[due.step]
                self._tell(call, due.event)
                call.told(driver.over)
                driver.attempts.forget(due.step, due.attempt)
            case "effect":
                scope_of = driver.attempts.scopes[due.step, due.attempt]
                call = scope_of.effects[due.n]
                self._tell_effect(scope_of, call, due.event)
                call.told(driver.over)

    def _tell(self, call: Call, event: Event) -> None:
        future = call.future
        if future.cancel_asked:
            future.end_cancelled()
            return
        match event:
            case StepComputed():
                self._value(call, event.value)
            case AttemptSucceeded():
                value = event.value
                if value is None:
                    step = self._driver.line.steps[event.step]
                    value = step.effect(event.attempt, event.ordinal or 0).value
                self._value(call, value)
            case AttemptFailed() | AttemptTimedOut():
                original = self._driver.attempts.originals.pop(call.key, None)
                self._error(call, event.error, original, self._kind(event.step, event.attempt))
            case AttemptCancelled():
                future.end_cancelled()
            case AttemptIndeterminate():
                intents = self._driver.line.steps[event.step].attempts[event.attempt - 1].intents
                future.set_exception(indeterminate(intents[event.unknown[0]]))
            case _:
                raise InvariantViolated(f"{type(event).__name__} tells the code nothing, and was handed over to it")

    def _tell_effect(self, scope: AttemptScope, call: Call, event: Event) -> None:
        future = call.future
        if future.cancel_asked:
            future.end_cancelled()
            return
        match event:
            case IntentCommitted():
                self._outcome(call, event.outcome)
            case ReadDropped() if event.why == "cancel":
                future.end_cancelled()
            case ReadDropped():
                future.set_exception(TimeoutError(f"{call.spec.name} did not answer in time"))
            case RuleApplied() if event.rule == "called-off":
                future.end_cancelled()
            case _:
                self._tell_known(call, self._driver.intent((scope.step, scope.attempt, call.ordinal)))

    def _tell_known(self, call: Call, known: IntentView) -> None:
        """Tell what is known of an effect: its outcome, the far side's late no, or how it was resolved."""
        said = known.outcome or known.late_no
        if said is not None:
            self._outcome(call, said)
        elif known.timed_out:
            call.future.set_exception(TimeoutError(f"{call.spec.name} did not answer in time"))
        elif known.abandoned:
            call.future.set_exception(
                EffectAbandoned(
                    f"{known.id} was abandoned: {known.resolution.why if known.resolution else ''}",
                    intent_id=str(known.id),
                )
            )
        else:
            self._value(call, known.value)

    def _outcome(self, call: Call, outcome: Outcome) -> None:
        match outcome:
            case Returned(unstorable=""):
                self._value(call, outcome.value)
            case Returned():
                call.future.set_exception(NotStorable(outcome.unstorable, path="result"))
            case RejectedOutcome():
                self._error(call, outcome.error, call.original, "rejected")
            case NotSentOutcome():
                self._error(call, outcome.error, call.original, "not_sent")
            case FailedRead():
                self._error(call, outcome.error, call.original)

    def _value(self, call: Call, payload: Payload) -> None:
        try:
            value = call.spec.parameters.load_result(self._driver.fetch(payload), path=f"{call.spec.name}()")
        except NotStorable as error:
            self._driver.ending.differ(
                f"{call.key} returned a value that the code can no longer read", Asked(error.message), about=call.key
            )
            return
        call.future.set_result(value)

    def _kind(self, key: str, attempt: int) -> Kind:
        """What a failed attempt is told as: the far side's no, where a tool that is its own step was given one."""
        step = self._driver.line.steps.get(key)
        tried = step.attempts[:attempt] if step is not None and step.kind != "step" else []
        last = next((a for a in reversed(tried) if 0 in a.intents), None)
        match (last.intents[0].outcome or last.late_no) if last is not None else None:
            case RejectedOutcome():
                return "rejected"
            case NotSentOutcome():
                return "not_sent"
            case _:
                return "failed"

    @staticmethod
    def _error(call: Call, record: ErrorRecord, original: BaseException | None, kind: Kind = "failed") -> None:
        error = rebuild(kind, record)
        if original is not None:
            error.__cause__ = original
        call.future.set_exception(error)

    # ---- why nothing moves ---------------------------------------------------------------------------------------

    def parked(self) -> list[Waiting]:
        """The unknown effects that calls of the workflow wait for."""
        found: list[Waiting] = []
        for call in self._driver.workflow.calls.values():
            if not call.parked or call.future.done():
                continue
            step = self._driver.line.steps[call.key]
            found += [
                Waiting(reason="operator", about=str(intent.id), detail=intent.says, matter="unknown-effect")
                for intent in step.last.intents.values()
                if intent.open
            ]
        return found

    def reasons(self) -> Sequence[Waiting]:
        """Why the branch waits, now that nothing is on its way."""
        return (
            self.parked()
            or self._not_asked_for()
            or (
                Waiting(
                    reason="code",
                    about="workflow",
                    detail="the workflow awaits what no record will bring: a lock, an event, a call that is parked",
                ),
            )
        )

    def _not_asked_for(self) -> list[Waiting]:
        """What attempts before were told and the code that takes it over does not come to."""
        return [
            Waiting(
                reason="code",
                about=scope.step,
                detail=f"recorded: {kind} {n} of {scope.step} in an attempt before; the code asked for: nothing more",
            )
            for scope in self._heirs
            for kind, n in scope.handed[:1]
        ]

    def unclaimed_effect(self) -> tuple[str, str]:
        """An effect of a live attempt that is recorded and that its code has not asked for, and its step."""
        for (key, attempt), scope in self._driver.attempts.scopes.items():
            last = self._driver.line.steps[key].last if key in self._driver.line.steps else None
            if last is None or last.no != attempt or last.state is not AttemptState.RUNNING:
                continue
            for ordinal, known in scope.recorded.items():
                if ordinal not in scope.effects and not scope.unknown:
                    return f"{known.pending.tool} as effect {ordinal} of {key}", key
        return "", ""


def indeterminate(intent: IntentView) -> IndeterminateOutcome:
    """The error that a workflow is given about an unknown effect, where it wants to be told."""
    return IndeterminateOutcome(
        f"{intent.says} may have happened: verify first",
        where=str(intent.id),
        hint=f"poimen inbox show {intent.id}",
        intent_id=str(intent.id),
    )
