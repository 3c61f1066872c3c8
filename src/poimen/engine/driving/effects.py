"""Effects of a run: from a call to a guard at work on the main loop, and from its end to records.

A tool that is its own step and a tool called in a step go the same way; they differ in what their end
means for the attempt. This module must never open a tool; it keeps the invariant that in an attempt
with an unknown effect nothing more is dispatched.

Source: design protocol.md, sections 3 to 5.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from poimen import clock
from poimen.blobs.api import SMALL_BYTES
from poimen.declare.specs import described
from poimen.declare.storing.hints import label
from poimen.engine.driving.replay import SHOWN
from poimen.engine.driving.scopes import AttemptScope, BodyScope, Call, CallFuture
from poimen.engine.eventloop.loop import empty
from poimen.engine.reading import find_intent
from poimen.engine.standing import contradiction
from poimen.gate.guard import Guard
from poimen.gate.port import Closed, Dropped, Key, Known, Landed, Stopped, Unknown
from poimen.gate.request_id import generation, read_request_id, request_id
from poimen.kernel.effect_class import EffectClass, Terms, key_lapse, stricter
from poimen.kernel.errors import CodeChanged, PoimenError, Suspended
from poimen.kernel.intent import IntentDemoted, IntentPending, RuleApplied, short
from poimen.secrecy.speaking import logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from poimen.declare.specs import Options, ToolSpec
    from poimen.engine.driving.driver import Driver
    from poimen.kernel.events import Event
    from poimen.kernel.intent import AppliedRule, DropReason, LateOutcome, Outcome, Payload
    from poimen.kernel.views import IntentView

_log: Final = logger("poimen.run")


class EffectPort:
    """The run, as one guard sees it (`gate.port.Port`)."""

    def __init__(self, effects: Effects, scope: AttemptScope | None) -> None:
        self._effects = effects
        self._driver = effects.driver
        self._scope = scope
        driver = effects.driver
        self.threads = driver.worker.threads
        # Asked several times in each effect: the run answers by itself.
        self.intent, self.stopping, self.lease_left_s = driver.intent, driver.stopping, driver.lease_left_s
        self.lease_left_now_s, self.request = driver.lease_left_now_s, driver.view.requests.__getitem__

    def append(self, *events: Event) -> Awaitable[int]:
        """Append under the run's epoch; durable once awaited."""
        return self._driver.append(events)

    def dispatch(self, *events: Event) -> Awaitable[int]:
        """Append a Dispatched, unless something that was not folded lies below it."""
        if self._driver.draining:
            raise Suspended
        return self._driver.append(events, look=True)

    def late(self, event: LateOutcome | RuleApplied) -> None:
        """Append as an outsider; a log that is closed by then can keep nothing any more."""
        run, rest = self._driver.run, f"{event.step}/{event.attempt}/{event.ordinal}"

        def told(error: PoimenError | None) -> None:
            if error is None:
                self._warn(f"{run}/{self._driver.line.id}/{rest}")
                return
            which, why = f"{run}/{rest}", error.message
            _log.warning("the end of %s came when the log was closed, and is not on record: %s", which, why)

        self._driver.append_outside(event, told)

    def _warn(self, which: str) -> None:
        """Tell whoever watches that a late end contradicts what was said of the effect, whoever drives the run now."""
        try:
            alarm = contradiction(find_intent(self._driver.worker.store, which)[1])
        except PoimenError as error:
            alarm = f"a late end is on record, and cannot be compared: {error.message}"
        if alarm:
            _log.warning("%s: %s (poimen intents show %s)", which, alarm, which)

    def left_running(self, key: Key) -> None:
        """A body goes on past its grace: the run may rest meanwhile, and stays this worker's until it has ended."""
        running = self._effects.running
        running[key] = running.get(key, 0) + 1

    def ended_late(self, key: Key, outcome: LateOutcome | None) -> None:
        """It has ended."""
        running = self._effects.running
        left = running.pop(key, 0)
        if left > 1:
            running[key] = left - 1
        if outcome is not None:
            self.late(outcome)
        elif left and self._driver.dropped:
            self.late(_applied(key, "call-ended", "unknown"))
        elif left:  # else it was not given up: the run was let go of around it
            self._driver.submit((_applied(key, "call-ended", "unknown"),))
        self._driver.worker.lingering.body_ended(self._driver)
        self._driver.loop.arm()

    def closing(self, key: Key, outcome: Outcome) -> tuple[Event, ...]:
        """The end of the attempt, where the tool is its own step."""
        return () if self._scope is not None else self._driver.attempts.closing(key, outcome)

    def dropping(self, key: Key, why: DropReason) -> tuple[Event, ...]:
        """The end of the attempt with a READ that was given up, where the tool is its own step."""
        return () if self._scope is not None else self._driver.attempts.dropping(key, why)

    def keep(self, body: bytes) -> Payload:
        """A body that a record will name; a large one is a file from now on, whoever appends the record."""
        return self._driver.worker.bodies.payload(body, most=SMALL_BYTES)

    def caller(self, key: Key, request_id: str, *, probing: bool) -> BodyScope:
        """What stands behind poimen calls made in the body."""
        return BodyScope(self._driver.where(key[0], key[1]), request_id, probing=probing)

    def held(self) -> str:
        """Why nothing may be dispatched in this attempt."""
        unknown = self._scope is not None and self._scope.unknown
        return "another effect of this attempt is unknown" if unknown else ""

    @property
    def epoch(self) -> int:
        """The epoch under which the guard works."""
        return self._driver.epoch

    @property
    def lease_taken_at(self) -> int:
        """When the lease was taken."""
        return self._driver.taken_at

    @property
    def lease_taken_boot(self) -> int:
        """The same by the boot clock."""
        return self._driver.taken_boot

    @property
    def latest_at(self) -> int:
        """The largest time in any record of the run."""
        return self._driver.view.latest_at


@lru_cache(maxsize=1024)
def terms_of(spec: ToolSpec, timeout_s: float | None = None) -> Terms:
    """What an intent freezes of the tool's declaration."""
    effect = spec.effect
    effect_class = EffectClass[effect.effect_class] if effect is not None else EffectClass.READ
    ttl, lag = getattr(effect, "ttl", None), getattr(effect, "lag", None)
    declared_us = round(spec.timeout_s * 1e6)
    timeout_us = declared_us if timeout_s is None else round(timeout_s * 1e6)
    return Terms(
        effect_class=effect_class,
        ttl_us=round(ttl.total_seconds() * 1e6) if ttl is not None else None,
        probe=spec.probe_name,
        probe_version=spec.version if spec.probe_name is not None else None,
        lag_us=round(lag.total_seconds() * 1e6) if lag is not None else 0,
        timeout_us=timeout_us,
        grace_us=round(spec.grace_s * 1e6),
        max_sends=spec.max_sends,
        declared_timeout_us=declared_us if declared_us != timeout_us else None,
    )


@lru_cache(maxsize=1024)
def returns_of(spec: ToolSpec) -> str:
    """What the tool returns, in words: an operator who says that it landed must say with which value."""
    return label(spec.parameters.result)


class Effects:
    """All guards at work for one run."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._port = EffectPort(self, None)
        self.guards: dict[Key, Guard] = {}
        self.running: dict[Key, int] = {}
        self.at_work: dict[Guard, asyncio.Task[None]] = {}

    # ---- in a step -----------------------------------------------------------------------------------------------

    def begin(self, scope: AttemptScope, spec: ToolSpec, packed: bytes, digest: str, options: Options) -> CallFuture:
        """Make an effect in an attempt: replay what is recorded of it, or perform it."""
        ordinal = scope.ordinal
        scope.ordinal += 1
        call = Call(scope.step, ordinal, spec, packed, digest, options)
        future = scope.future(call)
        known = scope.recorded.get(ordinal) or scope.inherited.get(ordinal)
        if known is None:
            self.perform_in_step(scope, call)
        elif (known.pending.tool, known.pending.args_digest) != (spec.name, digest):
            recorded = f"{short(known.pending.tool)} as effect {ordinal} of {scope.step}"
            recorded += f", arguments {known.pending.args_digest[:SHOWN]}"
            self.driver.ending.differ(recorded, call.asked(), about=scope.step)
        elif ordinal in scope.recorded:
            self.driver.when_live(lambda: self.resume(call, scope.attempt, scope))
        return future

    def perform_in_step(self, scope: AttemptScope, call: Call) -> None:
        """Perform an effect of a step for the first time in this attempt."""
        self.driver.when_live(lambda: self._perform(call, scope.attempt, scope))

    def cancel(self, scope: AttemptScope, call: Call) -> None:
        """The code no longer wants this effect."""
        if self.driver.dropped or scope.dropped:
            call.future.end_cancelled()
            return
        guard = self.guards.get((scope.step, scope.attempt, call.ordinal))
        if guard is not None:
            guard.stop("cancel")

    # ---- performing ------------------------------------------------------------------------------------------------

    def perform_step(self, call: Call, attempt: int) -> None:
        """Perform a tool that is its own step."""
        self._perform(call, attempt, None)

    def _perform(self, call: Call, attempt: int, scope: AttemptScope | None) -> None:
        try:
            pending = self._pending(call, attempt)
            guard = self._guard(call.spec, pending, scope, call.packed)
        except CodeChanged as changed:
            self.driver.ending.differ(changed.message, call.asked(), about=call.key)
            return
        except Exception as broken:  # noqa: BLE001 (a value or a text of the user: this run stops, and says so)
            self.driver.ending.stop(broken)
            return
        self._go(guard, guard.perform(), scope)
        if call.future.cancel_asked:
            guard.stop("cancel")

    def _pending(self, call: Call, attempt: int) -> IntentPending:
        driver, spec = self.driver, call.spec
        step, ordinal = call.key, call.ordinal
        terms = terms_of(spec, call.options.timeout_s)
        read = terms.effect_class is EffectClass.READ
        earlier = [] if read else driver.view.generations.get((step, ordinal, spec.name), [])
        number = generation(earlier, args_digest=call.digest)
        if any(self._lapsed(known, terms) for known in earlier if known.pending.generation == number):
            number += 1  # nothing of it landed, and the far side may have forgotten its key
        identity = request_id(nonce=driver.nonce, step=step, ordinal=ordinal, tool=spec.name, generation=number)
        return IntentPending(
            step=step,
            attempt=attempt,
            ordinal=ordinal,
            tool=spec.name,
            version=spec.version,
            terms=terms,
            class_source="declared",
            args=driver.keep(call.packed) if driver.is_step(step) else None,
            args_digest=call.digest,
            request_id=read_request_id(identity, attempt=attempt) if read else identity,
            generation=number,
            summary=described(spec.summary, spec, *spec.parameters.unpack(call.packed)) if spec.summary else "",
            decision=call.options.decision or "",
            returns=returns_of(spec),
        )

    def _lapsed(self, known: IntentView, terms: Terms) -> bool:
        """Whether an earlier attempt's request id, of which nothing landed, may not be sent any more."""
        view = self.driver.view
        request = view.requests[known.pending.request_id]
        lapse = key_lapse(
            terms,
            first_dispatched_at_us=(first := request.first_dispatched_at),
            now_us=clock.wall_us(),
            latest_known_us=view.latest_at,
            boot_age_us=clock.boot_age_us(*request.first_boot),
        )
        return bool(first) and lapse is not None and known.did_nothing

    def _guard(self, spec: ToolSpec, pending: IntentPending, scope: AttemptScope | None, packed: bytes) -> Guard:
        port = self._port if scope is None else EffectPort(self, scope)
        guard = Guard(port, spec, pending, packed)
        self.guards[guard.key] = guard
        return guard

    def _go(self, guard: Guard, work: Coroutine[Any, Any, Closed], scope: AttemptScope | None) -> None:
        driver = self.driver
        driver.moving += 1
        driver.worker.open_guards += 1
        self.at_work[guard] = driver.main.create_task(self._run(guard, work, scope), context=empty())

    async def _run(self, guard: Guard, work: Coroutine[Any, Any, Closed], scope: AttemptScope | None) -> None:
        driver = self.driver
        try:
            try:
                closed = await work
            finally:
                driver.worker.open_guards -= 1
                self.guards.pop(guard.key, None)
                self._note_original(guard)
            if not driver.dropped:
                await self._closed(guard, closed, scope)
        except (Suspended, asyncio.CancelledError):
            return
        except Exception as error:  # noqa: BLE001 (the run stops, the cause is told to whoever drives it)
            driver.ending.stop(error)
        finally:
            driver.moving -= 1
            self.at_work.pop(guard, None)
            driver.loop.arm()

    def _note_original(self, guard: Guard) -> None:
        """While the process lives, the error that the tool raised is the cause of the one that the code is told."""
        scope = self.driver.attempts.scopes.get(guard.key[:2])
        call = scope.effects.get(guard.key[2]) if scope is not None else None
        if call is not None:
            call.original = guard.error

    async def _closed(self, guard: Guard, closed: Closed, scope: AttemptScope | None) -> None:
        if scope is None:
            await self.driver.attempts.tool_closed(guard, closed)
            return
        match closed:
            case Known() | Landed() | Dropped():
                pass
            case Stopped():
                if not scope.unknown:
                    await self.driver.append((_applied(guard.key, "called-off", "stopped"),))
            case Unknown():
                scope.unknown = True
        if scope.unknown and not any(k[:2] == guard.key[:2] for k in self.guards):
            await self.driver.attempts.end_unknown(scope)

    # ---- after a restart -------------------------------------------------------------------------------------------

    def resume(self, call: Call, attempt: int, scope: AttemptScope | None) -> None:
        """Go on with an effect that is recorded and was not ended before the restart."""
        known = self.driver.intent((call.key, attempt, call.ordinal))
        if known.told_lsn or known.id.local in self.local_guards() or (scope is not None and scope.unknown):
            return
        guard, sentence = self._recorded(call.spec, known, scope, self.driver.packed(known, call.packed))
        self._go(guard, self._continue(guard, sentence, sent=bool(known.sends)), scope)
        if call.future.cancel_asked:
            guard.stop("cancel")

    def bodies(self) -> set[Key]:
        """Effects whose bodies go on whatever becomes of the run: given up, or in threads."""
        return {*self.running, *(key for key, guard in self.guards.items() if guard.in_thread)}

    def going_on(self) -> bool:
        """Whether anything of this run is still under way here: a guard at work, or a body that was given up."""
        return bool(self.at_work or self.bodies())

    def local_guards(self) -> set[str]:
        """The intents that have a guard at work, by their local ids."""
        return {f"{step}/{attempt}/{ordinal}" for step, attempt, ordinal in self.guards}

    def recover(self, intent: IntentView, spec: ToolSpec, scope: AttemptScope | None, packed: bytes) -> None:
        """Climb the ladder for an intent that a crash left Dispatched."""
        guard, sentence = self._recorded(spec, intent, scope, packed)
        if self.driver.line.cancel_lsn:
            guard.stop("cancel")
        self._go(guard, self._continue(guard, sentence, sent=True), scope)

    def _recorded(
        self, spec: ToolSpec, intent: IntentView, scope: AttemptScope | None, packed: bytes
    ) -> tuple[Guard, str]:
        """A guard for an intent of before, by the stricter of its terms and the present ones."""
        guard = self._guard(spec, intent.pending, scope, packed)
        guard.terms, sentence = stricter(intent.pending.terms, terms_of(spec))
        return guard, sentence

    async def _continue(self, guard: Guard, sentence: str, *, sent: bool) -> Closed:
        if sentence:
            await self.driver.append((_stricter(guard, sentence),))
        return await (guard.climb() if sent else guard.proceed())


def _stricter(guard: Guard, sentence: str) -> Event:
    """The record of a judgement that the present declaration makes stricter than the stored one."""
    step, attempt, ordinal = guard.key
    stored, now = guard.pending.terms.effect_class, guard.terms.effect_class
    if now is stored:
        return _applied(guard.key, "stricter-now", sentence)
    why = {"why": sentence}
    return IntentDemoted(
        step=step, attempt=attempt, ordinal=ordinal, frm=stored, to=now, rule="stricter-now", inputs=why
    )


def _applied(key: Key, rule: AppliedRule, result: str) -> RuleApplied:
    step, attempt, ordinal = key
    return RuleApplied(
        step=step, attempt=attempt, ordinal=ordinal, rule=rule, inputs={"at": clock.wall_us()}, result=result
    )
