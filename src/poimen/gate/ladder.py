"""Carries out what the kernel rules for an effect that was dispatched and has no outcome.

The same ladder serves recovery and a live call that ended in *maybe*: ask the kernel with the facts,
record its choice, do it, ask again. This module must never decide what an unknown effect means; it keeps
promise 4 (nothing is sent against its class) by sending only on a ruling that is on record. What only the
moment of the act can tell is judged here, and only towards less: whether a send that was ruled may still leave
(`sendable`), and that an absence says nothing while the body of the send is at work here.

Source: design protocol.md, section 4; the rules by name are in docs/reference/effect-classes.md.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from poimen import clock
from poimen.gate import outcome
from poimen.gate.port import Closed, Landed, Stopped, Unknown
from poimen.kernel.effect_class import EffectClass, counts_time, key_ttl_us
from poimen.kernel.errors import NotSent
from poimen.kernel.intent import (
    BEGINS_LATE,
    IntentDemoted,
    IntentProbed,
    IntentResolved,
    Resolution,
    Returned,
    RuleApplied,
)
from poimen.kernel.resolution import (
    AskProbe,
    Facts,
    GiveUp,
    Land,
    Reading,
    Recompute,
    Ruling,
    SendAgain,
    backoff_us,
    lapse_now,
    rule,
)
from poimen.secrecy.speaking import logger

if TYPE_CHECKING:
    from poimen.declare.specs import ToolSpec
    from poimen.gate.guard import Guard
    from poimen.kernel.effect_class import Terms
    from poimen.kernel.views import IntentView, RequestView

PAUSE_S = 0.2
"""The longest sleep between two looks at whether the ladder is still wanted, in seconds."""


EARLY: Final = 4
"""A send begins in the first of so many parts of its time, or another record says that it begins now."""
LEASE_OVER: Final = "the lease ended before the call"
TIME_OVER: Final = "the time of this send was over before the call"

TOLD_US = 2 * clock.US
"""A wait for the next question that is shorter is not told, in microseconds."""

_told = logger("poimen.told")

LADDER = "ladder"
"""Who asked, in the records of its own readings; what a probe told a person decides nothing."""


def facts_of(guard: Guard, intent: IntentView) -> Facts:
    """What the kernel needs to know of an open intent, from its records and the clock."""
    return facts_from(
        intent,
        guard.terms,
        guard.port.request(intent.pending.request_id),
        taken_us=guard.port.lease_taken_at,
        taken_boot_us=guard.port.lease_taken_boot,
        latest_us=guard.port.latest_at,
        loaded=probe_loaded(guard.spec, guard.terms),
    )


def facts_from(
    intent: IntentView,
    terms: Terms,
    request: RequestView,
    *,
    taken_us: int,
    latest_us: int,
    loaded: bool,
    taken_boot_us: int = 0,
) -> Facts:
    """The facts of an open intent, for the ladder and for those who look at it.

    Arguments:
        intent: with at least one send.
        terms: by which it is judged.
        request: its request id.
        taken_us: when whoever drives the run took it, in microseconds since the Unix epoch.
        latest_us: the largest time of any record of the run, likewise.
        loaded: the probe in the terms is loaded there.
        taken_boot_us: when it was taken by the boot clock of this machine; 0: not known.
    """
    last = intent.sends[-1]
    since = [event for lsn, event, _ in intent.probes if lsn > last.lsn and event.by == LADDER]
    return Facts(
        terms=terms,
        sends=len(intent.sends),
        first_dispatched_at_us=request.first_dispatched_at or last.at,
        last_dispatched_at_us=last.at,
        lease_taken_at_us=taken_us,
        now_us=clock.wall_us(),
        latest_known_us=latest_us,
        readings=tuple(
            Reading(at_us=e.asked_at, answer=e.answer, boot_age_us=clock.boot_age_us(e.boot_us, boot))
            for _, e, boot in intent.probes
            if e.by == LADDER
        ),
        probing_since_us=since[0].asked_at if since else None,
        probe_loaded=loaded,
        demoted_to=intent.demoted_to,
        lapsed=intent.lapsed,
        first_boot_age_us=clock.boot_age_us(*request.first_boot),
        last_boot_age_us=clock.boot_age_us(*last.boot),
        lease_boot_age_us=clock.boot_age_us(taken_boot_us, clock.boot_mark()),
    )


def probe_loaded(spec: ToolSpec, terms: Terms) -> bool:
    """Whether the probe that was frozen is the one that is loaded: a probe of another version is another probe."""
    return spec.probe_name is not None and (terms.probe, terms.probe_version) == (spec.probe_name, spec.version)


async def sendable(guard: Guard, *, begun_us: int) -> tuple[str, int]:
    """Whether a send may be made, now that its Dispatched is durable.

    Its time counts from a record: by that, whoever drives the run next knows when it must have ended. Where much of it
    is gone already (a slow disk, a machine that slept) another record says that it begins now.

    Arguments:
        guard: about to call its tool.
        begun_us: the time of its Dispatched, of the clock that only goes on, in microseconds.

    Returns:
        Why it may not be made, empty when it may; from when on its time counts.

    Source: docs/decisions/0013-when-a-send-has-ended.md.
    """
    why, now_us = await _held_back(guard), clock.boot_us()
    late = (now_us - begun_us) * EARLY > guard.terms.timeout_us
    if late and not why:
        begun_us = await _begins_late(guard)
        why = await _held_back(guard) if guard.port.intent(guard.key).open else "it was closed before the call"
    if not why and clock.boot_us() >= begun_us + guard.terms.timeout_us:
        why = TIME_OVER
    return why or last_look(guard, begun_us), begun_us


def last_look(guard: Guard, begun_us: int) -> str:
    """What is looked at again with nothing between it and the first line of the body: lease, time, key.

    Time passes after every ruling, in lines, locks and stopped processes; an absence that was confirmed does not age.
    It looks at what is known here and asks nobody. A plain function asks it from its thread, where its time begins.

    Arguments:
        guard: about to call its tool.
        begun_us: from when on the time of the send counts, of the clock that only goes on, in microseconds.

    Returns:
        Why the call may not be made now; empty while it may.

    Source: docs/decisions/0015-which-clock-counts.md.
    """
    if guard.port.lease_left_now_s() <= 0:
        return LEASE_OVER
    if guard.spec.is_async and clock.boot_us() >= begun_us + guard.terms.timeout_us:
        return TIME_OVER
    if key_ttl_us(guard.terms) is None:
        return ""
    intent = guard.port.intent(guard.key)
    if guard.port.request(intent.pending.request_id).sends <= 1:  # the key's life begins with this send
        return ""
    lapse = lapse_now(facts_of(guard, intent))
    return f"{lapse} before the call: the send has waited" if lapse is not None else ""


async def _begins_late(guard: Guard) -> int:
    step, attempt, ordinal = guard.key
    inputs = {"dispatched_us": guard.port.intent(guard.key).sends[-1].at}
    if counts_time(guard.terms):
        inputs["boot_us"] = clock.boot_us()
    late = RuleApplied(
        step=step, attempt=attempt, ordinal=ordinal, rule=BEGINS_LATE, inputs=inputs, result="begins now"
    )
    return await guard.port.append(late)


async def _held_back(guard: Guard) -> str:
    lease_left_s = await guard.port.lease_left_s()
    if guard.called_off:
        return f"called off before the call: {guard.called_off}"
    return LEASE_OVER if lease_left_s <= 0 else ""


class LastLook:
    """Looks once more when the turn of a body has come, which may be long after it was given one.

    Arguments:
        guard: about to call its tool.
        begun_us: see `last_look`.
    """

    __slots__ = ("_begun_us", "_guard", "refused")

    def __init__(self, guard: Guard, begun_us: int) -> None:
        self._guard, self._begun_us = guard, begun_us
        self.refused = ""

    def __call__(self) -> None:
        """Let the body begin.

        Raises:
            NotSent: it must not.
        """
        self.refused = last_look(self._guard, self._begun_us)
        if self.refused:
            raise NotSent(self.refused)


async def climb(guard: Guard) -> Closed:
    """Follow the rulings until the effect is closed or no machine may go on.

    Raises:
        Fenced: another worker drives the run now.
        CommitUnknown: the log has failed.
    """
    step, attempt, ordinal = guard.key
    while True:
        intent = guard.port.intent(guard.key)
        if not intent.open:
            return await _closed_from_outside(guard, intent)
        if guard.stopping:
            read = guard.effect_class is EffectClass.READ
            return await guard.give_up_read("cancel") if read else Unknown(why="cancel")
        ruling = rule(facts_of(guard, intent))
        await _record(guard, ruling)
        match ruling:
            case Recompute():
                return Stopped(why=ruling.rule)
            case SendAgain():
                await _pause(guard, clock.wall_us() + round(backoff_us(ruling.send - 1) * clock.jitter(0.2)))
                if guard.stopping or not guard.port.intent(guard.key).open:
                    continue
                if guard.called_off:
                    return Unknown(why=guard.called_off)  # a READ is closed with its attempt: the next one asks anew
                again = rule(facts_of(guard, guard.port.intent(guard.key)))
                if isinstance(again, SendAgain):
                    return await guard.proceed()
            case AskProbe():
                _tell(intent, ruling)
                await _pause(guard, ruling.at_us)
                if not guard.stopping and guard.port.intent(guard.key).open:
                    await _probe(guard)
            case Land():
                asked_us = ruling.at_us
                reading = next(
                    e for _, e, _ in intent.probes if (e.by, e.answer, e.asked_at) == (LADDER, "landed", asked_us)
                )
                resolved = IntentResolved(
                    step=step,
                    attempt=attempt,
                    ordinal=ordinal,
                    to=Resolution.LANDED,
                    rule=ruling.rule,
                    by="probe",
                    why="the probe found it",
                    evidence=reading.evidence,
                    value=reading.value,
                )
                await guard.port.append(
                    resolved, *guard.port.closing(guard.key, Returned(value=reading.value or b"null"))
                )
                return Landed()
            case GiveUp():
                if guard.effect_class is EffectClass.READ:
                    return await guard.give_up_read("sends-used-up")  # or what else the ruling on record says
                return Unknown(why=ruling.rule)


async def _closed_from_outside(guard: Guard, intent: IntentView) -> Closed:
    """Somebody else closed the intent meanwhile; our own record of it is where the order of hand-overs has it."""
    step, attempt, ordinal = guard.key
    to = intent.resolution.to.value if intent.resolution is not None else "closed"
    applied = RuleApplied(step=step, attempt=attempt, ordinal=ordinal, rule="closed-from-outside", inputs={}, result=to)
    if intent.landed:
        await guard.port.append(applied, *guard.port.closing(guard.key, Returned(value=intent.value)))
        return Landed()
    await guard.port.append(applied)
    return Unknown(why=to)


async def _record(guard: Guard, ruling: Ruling) -> None:
    """Each demotion and each choice is a record naming rule, inputs and result."""
    step, attempt, ordinal = guard.key
    events: list[IntentDemoted | RuleApplied] = [
        IntentDemoted(
            step=step,
            attempt=attempt,
            ordinal=ordinal,
            frm=demotion.frm,
            to=demotion.to,
            rule=demotion.rule,
            inputs=dict(demotion.inputs),
        )
        for demotion in ruling.demotions
    ]
    if not isinstance(ruling, AskProbe | Land):
        events.append(
            RuleApplied(
                step=step,
                attempt=attempt,
                ordinal=ordinal,
                rule=ruling.rule,
                inputs=dict(ruling.inputs),
                result=_result(ruling),
            )
        )
    if events:
        await guard.port.append(*events)


def _result(ruling: SendAgain | GiveUp | Recompute) -> str:
    match ruling:
        case SendAgain():
            return "send_again"
        case GiveUp():
            return "indeterminate"
        case Recompute():
            return "recompute"


async def _pause(guard: Guard, until_us: int) -> None:
    """Wait for a time of the wall clock, but no longer than the ladder is wanted."""
    deadline = clock.monotonic() + (until_us - clock.wall_us()) / 1e6
    while (left := deadline - clock.monotonic()) > 0:
        if guard.stopping or not guard.port.intent(guard.key).open:
            return
        await asyncio.sleep(min(left, PAUSE_S))


def _tell(intent: IntentView, ruling: AskProbe) -> None:
    """Tell whoever watches when a probe is asked again, where that is not at once: nothing else is heard until then."""
    answers = [event.answer for _, event, _ in intent.probes if event.by == LADDER]
    now_us = clock.wall_us()
    if not answers or ruling.at_us - now_us < TOLD_US:
        return
    settled_us = int(ruling.inputs.get("settled_at_us", 0))
    counts = f" (absence counts from {clock.of_day(settled_us)})" if settled_us > now_us else ""
    again = clock.of_day(ruling.at_us)
    _told.info("%s: asked, %s; asked again at %s%s", intent.pending.tool, answers[-1], again, counts)


async def _probe(guard: Guard) -> None:
    step, attempt, ordinal = guard.key
    asked_at, boot_us = clock.wall_us(), clock.boot_us()
    said, evidence, value = outcome.read_answer(await guard.ask_probe(), guard.spec)
    if guard.running and said == "absent":  # what is still at work here may land yet
        said, evidence = "unknown", f"absent, but the body of the send still runs: {evidence}"
    await guard.port.append(
        IntentProbed(
            step=step,
            attempt=attempt,
            ordinal=ordinal,
            answer=said,
            evidence=evidence,
            by=LADDER,
            asked_at=asked_at,
            boot_us=boot_us,
            value=guard.port.keep(value) if isinstance(value, bytes) else value,
        )
    )
