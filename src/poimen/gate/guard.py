"""The only door to the world: four steps around every external effect.

    1. append IntentPending     one commit, one sync     window A opens: never sent
    2. append IntentDispatched  one commit, one sync     window B opens: may have been sent
    3. perform the call
    4. append the outcome       one commit, one sync

Read `Guard.perform` from top to bottom. A guard is never cancelled: it is asked to stop, and acts on
that where a record is durable. This module must never know about replay, retries or workflows; it
keeps the invariants I1 (no call without an older durable Dispatched) and I10.

Source: requirement write-ahead-intent; design protocol.md, section 3.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from poimen import clock, effects
from poimen.declare.specs import ToolSpec
from poimen.gate import _call, outcome, points
from poimen.gate._call import Ended, GivenUp, Raised, Value
from poimen.gate.error_record import message_of, without_secret
from poimen.gate.ladder import LEASE_OVER, LastLook, climb, sendable
from poimen.gate.port import Closed, Dropped, Key, Known, Port, Stopped
from poimen.kernel.effect_class import EffectClass, counts_time
from poimen.kernel.errors import Conflict, Fenced, StorageFailed, Suspended, invariant
from poimen.kernel.intent import LateOutcome
from poimen.kernel.plan import Answer, Claim, Plan, Send, Then, plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

    from poimen.declare.calling import Caller
    from poimen.declare.specs import Spec
    from poimen.effects import Answer as ProbeAnswer
    from poimen.gate.port import ProbeSays
    from poimen.kernel.effect_class import Terms
    from poimen.kernel.intent import DropReason, IntentPending, Outcome, Payload
    from poimen.kernel.views import IntentView

    Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_log: Final = logging.getLogger("poimen.gate")


@dataclass(frozen=True, slots=True)
class _Maybe:
    """The call ended and nobody knows. `detail`: what interrupted it."""

    why: DropReason
    detail: str = ""


class Guard:
    """Performs one effect.

    Arguments:
        port: the run that it works for.
        spec: the tool.
        pending: the intent as frozen.
        packed: the tool's arguments, the frozen bytes.

    Raises:
        NotStorable: the arguments do not fit the tool that is loaded.
    """

    __slots__ = (
        "_open",
        "_stop",
        "_unused",
        "error",
        "key",
        "packed",
        "pending",
        "port",
        "running",
        "spec",
        "terms",
    )

    def __init__(self, port: Port, spec: ToolSpec, pending: IntentPending, packed: bytes) -> None:
        self.port = port
        self.spec = spec
        self.pending = pending
        self.terms = pending.terms
        self.packed = packed
        self._unused: Arguments | None = spec.parameters.unpack(packed)
        self.key: Key = (pending.step, pending.attempt, pending.ordinal)
        self.error: BaseException | None = None
        self.running = 0
        self._stop = ""
        self._open: _call.OpenCall | None = None

    # ---- asked from outside ------------------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """Ask the guard to stop: nothing is dispatched from now on, an open call gets its grace."""
        self._stop = self._stop or why
        if self._open is not None:
            self._open.stop("cancel", self.terms.grace_us / 1e6)

    @property
    def stopping(self) -> str:
        """Why this effect is given up; empty while it is wanted."""
        return self._stop or self.port.stopping()

    @property
    def called_off(self) -> str:
        """Why nothing more may be dispatched; empty while it may."""
        return self.stopping or self.port.held()

    @property
    def effect_class(self) -> EffectClass:
        """The class in force."""
        return self.terms.effect_class

    @property
    def in_thread(self) -> bool:
        """Whether a body of it is at work that nothing can stop."""
        return self.running > 0 or (self._open is not None and not self.spec.is_async)

    # ---- the four steps ----------------------------------------------------------------------------------------

    async def perform(self) -> Closed:
        """Perform the effect for the first time.

        Raises:
            Fenced: another worker drives the run now.
            CommitUnknown: the log has failed; whether the last record is durable is unknown.
        """
        # 1. the claim, with everything recovery will need
        await self.port.append(*plan(None, Claim(pending=self.pending)).commit)
        points.reach("pending", self.spec.name)
        return await self.proceed()

    async def proceed(self) -> Closed:
        """Go on from a durable Pending, or from a send that is known to have done nothing."""
        send_it = Send(called_off=self.called_off, boot_us=clock.boot_us() if counts_time(self.terms) else 0)
        planned = plan(self.port.intent(self.key), send_it)
        if planned.then is Then.LEAVE or planned.then is Then.CLIMB:
            return await self.climb()
        if planned.then is not Then.CALL:
            return Stopped(why=self.called_off)
        # 2. from here on it may have been sent
        try:
            begun_us = await self.port.dispatch(*planned.commit)
        except Conflict:  # something that was not folded lies below: look again
            return await self.proceed()
        points.reach("dispatched", self.spec.name)
        # 3. the call, unless it was called off or its lease or key has run out meanwhile
        send = len(self.port.intent(self.key).sends)
        ended: Outcome | _Maybe | None = None
        while ended is None:
            why, begun_us = await sendable(self, begun_us=begun_us)
            ended = outcome.not_called(why) if why else await self._perform_call(send, begun_us)
        # 4. the outcome
        return await self._record(send, ended)

    async def climb(self) -> Closed:
        """Go on from a Dispatched without an outcome: by the rule of its class, never by hope."""
        return await climb(self)

    def _arguments(self) -> Arguments:
        """The frozen arguments, made anew for each send and each question: what a body does to its own ends there."""
        unused, self._unused = self._unused, None
        return unused if unused is not None else self.spec.parameters.unpack(self.packed)

    # ---- step 3 --------------------------------------------------------------------------------------------------

    async def _perform_call(self, send: int, begun_us: int) -> Outcome | _Maybe | None:
        if (nowhere := without_secret(self.packed)) is not None:
            return nowhere
        args, kwargs = self._arguments()
        look = LastLook(self, begun_us)
        self._open = call = _call.OpenCall(
            self.spec.token,
            args,
            kwargs,
            is_async=self.spec.is_async,
            caller=self.port.caller(self.key, self.send_request_id(send), probing=False),
            threads=self.port.threads,
            name=self.spec.name,
            what=str(self.port.intent(self.key).id),
            first=look,
            late=lambda ended: self._late(send, ended),
        )
        left_us = self.terms.timeout_us - (clock.boot_us() - begun_us)  # of its time, which counts from its record
        ended = await call.end(timeout_s=max(0, left_us) / 1e6, grace_s=self.terms.grace_us / 1e6)
        self._open = None
        if look.refused:  # its turn came too late: it was not begun; a lease is asked for anew
            return None if look.refused == LEASE_OVER else outcome.not_called(look.refused)
        points.reach("called", self.spec.name)
        if isinstance(ended, GivenUp):
            self.running += 1
            self.port.left_running(self.key)
            return _Maybe(ended.why)
        return self._judged(ended)

    def _judged(self, ended: Value | Raised) -> Outcome | _Maybe:
        if isinstance(ended, Value):
            return outcome.returned(ended.value, self.spec.parameters, self.port.keep)
        if ended.told_to_stop and outcome.is_cancelled(ended.error):
            return _Maybe(ended.told_to_stop)
        self.error = ended.error
        judged = outcome.judged(ended.error, self.spec, self.effect_class)
        return judged or _Maybe("interrupted", f"{type(ended.error).__name__}: {message_of(ended.error)}"[:500])

    def _late(self, send: int, ended: Value | Raised) -> None:
        self.running = max(0, self.running - 1)
        try:
            judged = self._judged(ended)
        except StorageFailed as error:
            judged = _Maybe("interrupted", error.message)
        late = None if isinstance(judged, _Maybe) else self._late_outcome(send, judged)
        self.port.ended_late(self.key, late)

    # ---- step 4 --------------------------------------------------------------------------------------------------

    async def _record(self, send: int, ended: Outcome | _Maybe) -> Closed:
        known, maybe = (None, ended) if isinstance(ended, _Maybe) else (ended, _Maybe("timeout"))
        why: DropReason = "cancel" if self.stopping else maybe.why
        answer = Answer(send=send, outcome=known, effect_class=self.effect_class, why=why, detail=maybe.detail)
        planned = plan(self.port.intent(self.key), answer)
        if planned.then is Then.DROP:
            return await self._drop(planned, why)
        closing = () if known is None or planned.then is not Then.CLOSE else self.port.closing(self.key, known)
        if planned.commit:
            try:
                await self.port.append(*planned.commit, *closing)
            except (Fenced, Suspended):
                # The run is driven elsewhere by now, or by nobody: what the world has answered is kept all the same.
                if known is not None:
                    self.port.late(self._late_outcome(send, known))
                raise
        if known is None or planned.then is not Then.CLOSE:
            return await self.climb()
        points.reach("committed", self.spec.name)
        return Known(outcome=known)

    async def _drop(self, planned: Plan, why: DropReason) -> Dropped:
        await self.port.append(*planned.commit, *self.port.dropping(self.key, why))
        return Dropped(why=why)

    async def give_up_read(self, why: DropReason) -> Dropped:
        """Close a READ that is open and will not be sent again: nothing is unknown behind it.

        Arguments:
            why: for the record, and for its code.
        """
        intent = self.port.intent(self.key)
        answer = Answer(send=len(intent.sends), outcome=None, effect_class=EffectClass.READ, why=why)
        return await self._drop(plan(intent, answer), why)

    def _late_outcome(self, send: int, ended: Outcome) -> LateOutcome:
        step, attempt, ordinal = self.key
        return LateOutcome(step=step, attempt=attempt, ordinal=ordinal, send=send, epoch=self.port.epoch, outcome=ended)

    def send_request_id(self, send: int) -> str:
        """The request id that the tool sees; each send of a READ asks anew."""
        if self.effect_class is EffectClass.READ and send > 1:
            return f"{self.pending.request_id}.{send}"
        return self.pending.request_id

    async def ask_probe(self) -> object:
        """Run the probe once; what it returned, or the exception that it raised."""
        caller = self.port.caller(self.key, self.pending.request_id, probing=True)
        try:
            return await _asked(
                self.spec,
                *self._arguments(),
                caller,
                self.port.threads,
                terms=self.terms,
                intent_id=str(self.port.intent(self.key).id),
                begun=self._asking,
            )
        finally:
            self._open = None

    def _asking(self, call: _call.OpenCall) -> None:
        """The probe is at work: whoever asks the guard to stop does not wait for its answer."""
        self._open = call
        if self.stopping:
            self.stop(self.stopping)


# ---- code that is no effect ------------------------------------------------------------------------------------------


def open_code(spec: Spec) -> Callable[..., Any]:
    """The function behind a workflow, a step or a pure tool: code that runs inside a run and is no effect itself.

    Raises:
        InvariantViolated: asked for a tool or model with an intent; only `Guard.perform` reaches those.
    """
    if isinstance(spec, ToolSpec) and spec.kind != "step":
        invariant(spec.is_pure, "a tool with an intent is reached through its guard alone", tool=spec.name)
    return _call.body(spec.token)


async def compute(
    spec: ToolSpec,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    caller: Caller,
    threads: ThreadPoolExecutor,
    *,
    timeout_s: float | None = None,
) -> Ended:
    """Run a pure tool on the main loop; a plain function runs in a thread.

    Arguments:
        spec: the tool.
        args: what it is called with.
        kwargs: the same, by name.
        caller: what stands behind its body.
        threads: where a plain function runs.
        timeout_s: of this call; None: as declared.
    """
    open_code(spec)
    call = _call.OpenCall(
        spec.token, args, kwargs, is_async=spec.is_async, caller=caller, threads=threads, what=_call.place(caller)
    )
    return await call.end(timeout_s=spec.timeout_s if timeout_s is None else timeout_s, grace_s=spec.grace_s)


async def ask_once(
    spec: ToolSpec, packed: bytes, intent: IntentView, caller: Caller, threads: ThreadPoolExecutor
) -> tuple[ProbeAnswer[Any], ProbeSays, str, Payload | None]:
    """Ask a tool's probe for a person, outside any run.

    Returns:
        The answer, what it says, its evidence, and the value that it gave as stored.
    """
    invariant(spec.probe is not None, "only a tool with a probe is asked", tool=spec.name)
    args, kwargs = spec.parameters.unpack(packed)
    found = await _asked(spec, args, kwargs, caller, threads, terms=intent.pending.terms, intent_id=str(intent.id))
    said, evidence, value = outcome.read_answer(found, spec)
    match found:
        case effects.Landed() | effects.Absent() | effects.Unknown():
            return found, said, evidence, value
        case _:
            return effects.Unknown(evidence), said, evidence, value


async def _asked(
    spec: ToolSpec,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    caller: Caller,
    threads: ThreadPoolExecutor,
    *,
    terms: Terms,
    intent_id: str,
    begun: Callable[[_call.OpenCall], None] = lambda _call: None,
) -> object:
    """What a probe returned, or the exception that it raised; it may only read."""
    if spec.probe is None:
        return LookupError("no probe is loaded")
    call = _call.OpenCall(
        spec.probe,
        args,
        kwargs,
        is_async=_call.is_coroutine(spec.probe),
        caller=caller,
        threads=threads,
        what=f"the probe of {intent_id}",
    )
    begun(call)
    ended = await call.end(timeout_s=terms.timeout_us / 1e6, grace_s=terms.grace_us / 1e6)
    match ended:
        case Value():
            return outcome.given(ended.value)
        case Raised():
            return ended.error
        case GivenUp():
            _log.warning(
                "the probe of %s goes on although it was told to stop: nothing waits for its answer", intent_id
            )
            return TimeoutError("the probe did not answer in time")


def thread_pool(threads: int) -> ThreadPoolExecutor:
    """Threads for bodies that are plain functions."""
    return _call.pool(threads)


__all__ = ["Ended", "GivenUp", "Guard", "Raised", "Value", "ask_once", "compute", "open_code", "thread_pool"]
