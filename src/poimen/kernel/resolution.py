"""What is done with an effect that was dispatched and has no outcome: the ladder, as one pure function.

Recovery asks it for each open intent, and a live call that ended in *maybe* asks it in place. It looks at
facts and names a ruling with the rule and the inputs that led to it, so that each choice can be a record.
Whoever asks carries it out, and asks again with the new facts. This module must never know how a thing is
sent, how a probe is asked or what time it is. It keeps promise 4: an effect whose class forbids it is not
sent again.

All times are integers: microseconds since the Unix epoch, UTC; durations end in `_us` too.

Source: design protocol.md, sections 4 and 9; the rules by name are in docs/reference/effect-classes.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, assert_never

from poimen.kernel.effect_class import EffectClass, KeyLapse, Terms, key_lapse, stricter_class
from poimen.kernel.errors import invariant

_SECOND: Final = 1_000_000
ABSENCE_APART_US: Final = 1 * _SECOND
"""Two reads that confirm an absence begin at least this far apart."""
PROBING_US: Final = 60 * _SECOND
"""For how long a probe that gives no clear answer is asked before a person is."""
BACKOFF_FIRST_US: Final = 1 * _SECOND
BACKOFF_LAST_US: Final = 60 * _SECOND

Answer: TypeAlias = Literal["landed", "absent", "unknown"]
Inputs: TypeAlias = Mapping[str, int | str]

Rule: TypeAlias = Literal[
    "pure",
    "read",
    "idempotent",
    "key-alive",
    "key-expired",
    "key-ttl-unknown",
    "clock-went-back",
    "no-probe",
    "probe-not-loaded",
    "probe-first",
    "probe-after-lag",
    "probe-confirm",
    "probe-back-off",
    "probe-landed",
    "probe-unknown",
    "absent-confirmed",
    "sends-used-up",
    "at-most-once",
]
"""The rules of the ladder; they are in records (`intent.AppliedRule` has more), so a name never changes its meaning."""


# ---- facts -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One question to the probe.

    Arguments:
        at_us: when it *began*: a read that began before the lag was over may have looked too early.
        answer: an error, a timeout, an incomplete read or an odd shape is `unknown`.
        boot_age_us: how long ago it began by the boot clock; None: not known.
    """

    at_us: int
    answer: Answer
    boot_age_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that a ruling depends on.

    Arguments:
        terms: in force, after `effect_class.stricter`.
        sends: how often the intent was dispatched so far, at least 1.
        first_dispatched_at_us: the first Dispatched of the *request id*, over all attempts and branches.
        last_dispatched_at_us: the last Dispatched of the intent.
        lease_taken_at_us: when the present driver took the run.
        now_us: the wall clock.
        latest_known_us: the largest time of any record of the run; a `now_us` below it is a clock that went back.
        readings: what the probe was asked so far, in the order of asking; those before the last Dispatched may be
            among them and prove no absence.
        probing_since_us: when the first reading after the last Dispatched began, None before.
        probe_loaded: a probe of the name and version in the terms is loaded here.
        demoted_to: the class to which a ruling on record has demoted this intent; a demotion stays, also when the
            clock that caused it has caught up.
        lapsed: one of these rulings was that the key had lapsed, not that the present declaration is stricter.
        probing_us: for how long an unclear probe is asked before a person is.
        first_boot_age_us, last_boot_age_us, lease_boot_age_us: how long ago the first and the last Dispatched and the
            taking of the lease were by the boot clock, which nobody sets; None: not known.
    """

    terms: Terms
    sends: int
    first_dispatched_at_us: int
    last_dispatched_at_us: int
    lease_taken_at_us: int
    now_us: int
    latest_known_us: int
    readings: tuple[Reading, ...] = ()
    probing_since_us: int | None = None
    probe_loaded: bool = False
    demoted_to: EffectClass | None = None
    lapsed: bool = False
    probing_us: int = PROBING_US
    first_boot_age_us: int | None = None
    last_boot_age_us: int | None = None
    lease_boot_age_us: int | None = None

    def __post_init__(self) -> None:
        invariant(self.sends >= 1, "only an intent that was dispatched is ruled upon", sends=self.sends)


# ---- rulings -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Demotion:
    """The intent is judged by a stricter class from here on; a record of its own."""

    frm: EffectClass
    to: EffectClass
    rule: Rule
    inputs: Inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ruled:
    """Every ruling names its rule and what that looked at, and the demotions that are not on record yet."""

    rule: Rule
    inputs: Inputs
    demotions: tuple[Demotion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute(_Ruled):
    """Run the code again: it has left nothing outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAgain(_Ruled):
    """Send again: the same attempt, intent, request id and stored arguments, as send number `send`.

    It holds for this moment. Who waits first (`backoff_us`) asks again afterwards: a key may have lapsed.
    """

    send: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskProbe(_Ruled):
    """Ask the probe, not before `at_us` (a time gone by means now); jitter may only add to it."""

    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Land(_Ruled):
    """It has landed: commit the value that the reading begun at `at_us` gave, as reconciled."""

    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp(_Ruled):
    """No machine may go on: the attempt becomes INDETERMINATE and a person is asked."""


Ruling: TypeAlias = Recompute | SendAgain | AskProbe | Land | GiveUp


# ---- the ladder --------------------------------------------------------------------------------------------


def rule(facts: Facts) -> Ruling:
    """What to do with an intent that was dispatched and has no outcome.

    Arguments:
        facts: see `Facts`.

    Returns:
        One ruling. Its `demotions` are those that are not on record yet, in their order.

    Source: design protocol.md, section 4.
    """
    effect_class = _in_force(facts)
    for reading in facts.readings:
        if reading.answer == "landed":
            return Land(at_us=reading.at_us, rule="probe-landed", inputs={"reading_at_us": reading.at_us})
    match effect_class:
        case EffectClass.PURE:
            return Recompute(rule="pure", inputs={})
        case EffectClass.READ:
            return _send_again(facts, "read", {}, ())
        case EffectClass.IDEMPOTENT:
            return _send_again(facts, "idempotent", {}, ())
        case EffectClass.KEYED:
            return _keyed(facts)
        case EffectClass.PROBE:
            return _by_probe(facts)
        case EffectClass.AT_MOST_ONCE:
            return _at_most_once(facts, ())
    assert_never(effect_class)


def lapse_now(facts: Facts) -> KeyLapse | None:
    """Why the request id may not be sent now, None too where no key binds; asked right before the call as well."""
    effect_class = _in_force(facts)
    if effect_class is facts.terms.effect_class is EffectClass.PROBE and facts.terms.ttl_us is not None:
        # An older KEYED declaration bounds this probe: its key must live, and must not have lapsed on record.
        return "key-expired" if facts.lapsed else _lapse(facts)
    return _lapse(facts) if effect_class is EffectClass.KEYED else None


def _in_force(facts: Facts) -> EffectClass:
    stored = facts.terms.effect_class
    return stored if facts.demoted_to is None else stricter_class(stored, facts.demoted_to)


def backoff_us(n: int) -> int:
    """How long to wait after the `n`-th try (from 1) in a row without an answer; the caller adds jitter.

    Source: design protocol.md, section 9.
    """
    invariant(n >= 1, "tries are counted from 1", n=n)
    return min(BACKOFF_FIRST_US << min(n - 1, 32), BACKOFF_LAST_US)


def _keyed(facts: Facts) -> Ruling:
    lapse = lapse_now(facts)
    may_ask = facts.terms.probe is not None
    if lapse is None:
        used_up = facts.sends >= facts.terms.max_sends
        if not (used_up and may_ask and facts.probe_loaded):
            return _send_again(facts, "key-alive", _key_inputs(facts), ())
        # Nothing is sent any more, but the probe may spare a person the question.
        why: Rule = "sends-used-up"
        inputs = _send_inputs(facts)
    else:
        why, inputs = lapse, _key_inputs(facts)
    to = EffectClass.PROBE if may_ask else EffectClass.AT_MOST_ONCE
    demotions = (Demotion(frm=EffectClass.KEYED, to=to, rule=why, inputs=inputs),)
    return _probed(facts, demotions) if may_ask else _at_most_once(facts, demotions)


def _by_probe(facts: Facts) -> Ruling:
    lapse = lapse_now(facts)
    if lapse is not None:
        return _at_most_once(facts, (_from_probe(lapse, _key_inputs(facts)),))
    return _probed(facts, ())


def _probed(facts: Facts, demotions: tuple[Demotion, ...]) -> Ruling:
    probe = facts.terms.probe
    if probe is None:
        return _at_most_once(facts, (_from_probe("no-probe", {}),))
    if not facts.probe_loaded:
        inputs = {"probe": probe, "probe_version": facts.terms.probe_version or ""}
        return _at_most_once(facts, (*demotions, _from_probe("probe-not-loaded", inputs)))
    times = [r.at_us for r in facts.readings]
    asked_us = max(facts.probing_since_us or 0, *times, 0)
    if asked_us > facts.now_us or times != sorted(times):
        # The clock went back while the probe was being asked: no waiting time can be measured.
        back = {"asked_at_us": asked_us, "now_us": facts.now_us}
        return GiveUp(rule="clock-went-back", inputs=back, demotions=demotions)
    settled_at_us = _settled_at_us(facts)
    late = [r for r in facts.readings if r.at_us >= settled_at_us and _boot_settled_us(facts, r.boot_age_us) <= 0]
    if not late:
        lacking_us = _boot_settled_us(facts, 0)
        return _ask_early(facts, max(settled_at_us, facts.now_us + lacking_us if lacking_us else 0), demotions)
    if late[-1].answer == "absent":
        return _ask_twice(facts, late, settled_at_us, demotions)
    return _back_off(facts, late, settled_at_us, demotions)


def _ask_early(facts: Facts, settled_at_us: int, demotions: tuple[Demotion, ...]) -> Ruling:
    """Before the lag is over only *landed* counts; asking at once often spares the whole wait."""
    begun_us = max(_seen(facts, facts.last_dispatched_at_us), _seen(facts, facts.lease_taken_at_us))
    early = [r for r in facts.readings if r.at_us >= begun_us]
    inputs = {"settled_at_us": settled_at_us, "readings": len(early)}
    if not early:
        return AskProbe(at_us=facts.now_us, rule="probe-first", inputs=inputs, demotions=demotions)
    at_us = early[-1].at_us + backoff_us(len(early))
    if early[-1].answer == "unknown" and at_us < min(settled_at_us, early[0].at_us + facts.probing_us):
        return AskProbe(at_us=at_us, rule="probe-back-off", inputs=inputs, demotions=demotions)
    return AskProbe(at_us=settled_at_us, rule="probe-after-lag", inputs=inputs, demotions=demotions)


def _ask_twice(facts: Facts, late: list[Reading], settled_at_us: int, demotions: tuple[Demotion, ...]) -> Ruling:
    """Two absences in a row, apart: an unknown between them voids the first, the far side was not well then.

    A first absence is worth its second read even when the time for probing has run out.
    """
    first = last = late[-1]
    for reading in reversed(late[:-1]):
        if reading.answer != "absent":
            break
        first = reading
    inputs = {"settled_at_us": settled_at_us, "first_absent_us": first.at_us, "last_absent_us": last.at_us}
    known = first.boot_age_us is not None and last.boot_age_us is not None
    boot_apart_us = (first.boot_age_us or 0) - (last.boot_age_us or 0) if known else ABSENCE_APART_US
    if last.at_us - first.at_us >= ABSENCE_APART_US <= boot_apart_us:
        return _send_again(facts, "absent-confirmed", inputs, demotions)
    at_us = max(first.at_us, facts.now_us - (first.boot_age_us or 0) if known else 0) + ABSENCE_APART_US
    return AskProbe(at_us=at_us, rule="probe-confirm", inputs=inputs, demotions=demotions)


def _back_off(facts: Facts, late: list[Reading], settled_at_us: int, demotions: tuple[Demotion, ...]) -> Ruling:
    since_us = late[0].at_us if facts.probing_since_us is None else facts.probing_since_us
    until_us = max(since_us, settled_at_us) + facts.probing_us
    unclear = 0
    for reading in reversed(late):
        if reading.answer != "unknown":
            break
        unclear += 1
    inputs = {"until_us": until_us, "unknown_in_a_row": unclear}
    last_us = late[-1].at_us
    if last_us >= until_us:
        return GiveUp(rule="probe-unknown", inputs=inputs, demotions=demotions)
    at_us = min(last_us + backoff_us(unclear), until_us)
    return AskProbe(at_us=at_us, rule="probe-back-off", inputs=inputs, demotions=demotions)


def _settled_at_us(facts: Facts) -> int:
    """From when on an absence counts: every send has ended or can reach nothing, and the lag is over."""
    terms = facts.terms
    sent_us = _seen(facts, facts.last_dispatched_at_us) + terms.timeout_us + terms.grace_us
    return max(sent_us, _seen(facts, facts.lease_taken_at_us)) + terms.lag_us


def _boot_settled_us(facts: Facts, age_us: int | None) -> int:
    """How much the boot clock says was lacking, so long ago, until an absence counts; 0 where it cannot tell."""
    if age_us is None:
        return 0
    terms, sent_us, taken_us = facts.terms, facts.last_boot_age_us, facts.lease_boot_age_us
    lacking = [0]
    if sent_us is not None:
        lacking.append(terms.timeout_us + terms.grace_us + terms.lag_us - (sent_us - age_us))
    if taken_us is not None:
        lacking.append(terms.lag_us - (taken_us - age_us))
    return max(lacking)


def _seen(facts: Facts, at_us: int) -> int:
    """The time, or, where the clock has gone back behind it, the first later moment known by the present clock."""
    if at_us <= facts.now_us:
        return at_us
    return facts.now_us if facts.probing_since_us is None else facts.probing_since_us


def _send_again(facts: Facts, by: Rule, inputs: Inputs, demotions: tuple[Demotion, ...]) -> Ruling:
    inputs = {**_send_inputs(facts), **inputs}
    if facts.sends >= facts.terms.max_sends:
        return GiveUp(rule="sends-used-up", inputs=inputs, demotions=demotions)
    return SendAgain(send=facts.sends + 1, rule=by, inputs=inputs, demotions=demotions)


def _at_most_once(facts: Facts, demotions: tuple[Demotion, ...]) -> Ruling:
    return GiveUp(rule="at-most-once", inputs={"sends": facts.sends}, demotions=demotions)


def _from_probe(why: Rule, inputs: Inputs) -> Demotion:
    return Demotion(frm=EffectClass.PROBE, to=EffectClass.AT_MOST_ONCE, rule=why, inputs=inputs)


def _lapse(facts: Facts) -> KeyLapse | None:
    return key_lapse(
        facts.terms,
        first_dispatched_at_us=facts.first_dispatched_at_us,
        now_us=facts.now_us,
        latest_known_us=facts.latest_known_us,
        boot_age_us=facts.first_boot_age_us,
    )


def _send_inputs(facts: Facts) -> dict[str, int | str]:
    return {"sends": facts.sends, "max_sends": facts.terms.max_sends}


def _key_inputs(facts: Facts) -> dict[str, int | str]:
    ttl_us = facts.terms.ttl_us
    return {
        **({} if facts.first_boot_age_us is None else {"boot_age_us": facts.first_boot_age_us}),
        "first_dispatched_at_us": facts.first_dispatched_at_us,
        "now_us": facts.now_us,
        "latest_known_us": facts.latest_known_us,
        "ttl_us": "unknown" if ttl_us is None else ttl_us,
        "margin_us": facts.terms.margin_us,
        "demoted_to": "" if facts.demoted_to is None else facts.demoted_to.name,
    }
