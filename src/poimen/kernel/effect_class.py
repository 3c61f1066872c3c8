"""The closed set of effect classes, and what an intent freezes of a tool's declaration.

The class says what may be done with an effect that was dispatched and has no outcome. An old intent is
judged by what was frozen with it: a deploy may make that judgement stricter, never laxer. This module
must never know about tools, records or clocks. It keeps the invariant that the terms which `stricter`
returns permit no send that the stored ones forbid.

Source: design protocol.md, sections 3 ("IntentPending freezes") and 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Literal, TypeAlias

from poimen.kernel.errors import invariant


class EffectClass(Enum):
    """What may be done with an effect that may have been sent; from the laxest to the strictest.

    PURE: no I/O, no intent. READ: observes; may cost money. IDEMPOTENT: repeating converges. KEYED: the far
    side dedupes on our request id for a while. PROBE: we can ask whether it landed. AT_MOST_ONCE: opaque
    or irreversible, never sent again by a machine.
    """

    PURE = "PURE"
    READ = "READ"
    IDEMPOTENT = "IDEMPOTENT"
    KEYED = "KEYED"
    PROBE = "PROBE"
    AT_MOST_ONCE = "AT_MOST_ONCE"


_ORDER: Final = tuple(EffectClass)

KeyLapse: TypeAlias = Literal["key-expired", "key-ttl-unknown", "clock-went-back"]
"""Why a request id may not be sent any more: rules of the ladder (`kernel.resolution.Rule`)."""


def stricter_class(one: EffectClass, other: EffectClass) -> EffectClass:
    """The stricter of two classes, in the order in which `EffectClass` lists them."""
    return max(one, other, key=_ORDER.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What an intent freezes: all that a later judgement of it needs.

    Arguments:
        effect_class: what the tool declared.
        ttl_us: KEYED: for how long the far side remembers a request id; None: unknown, which counts as 0.
            PROBE: None, or the age after which a send would be outside an older KEYED declaration.
        probe: the name of the probe, None without one.
        probe_version: its version; a probe of another version is another probe.
        lag_us: how long an effect that landed may stay invisible to the probe.
        timeout_us: how long one send may take, from its Dispatched.
        grace_us: how much longer a call that was told to stop may take.
        max_sends: how often the effect may be sent in all, at least 1.
        declared_timeout_us: what the tool declares, where the call asked for another time; None: what is in force.

    Raises:
        InvariantViolated: a negative time, or no send at all (a declaration has refused that before).
    """

    effect_class: EffectClass
    ttl_us: int | None
    probe: str | None
    probe_version: str | None
    lag_us: int
    timeout_us: int
    grace_us: int
    max_sends: int
    declared_timeout_us: int | None = None

    def __post_init__(self) -> None:
        times = (self.ttl_us or 0, self.lag_us, self.timeout_us, self.grace_us)
        invariant(min(times) >= 0, "the times of an intent's terms are not negative", terms=self)
        invariant(self.max_sends >= 1, "an effect may be sent at least once", terms=self)

    @property
    def margin_us(self) -> int:
        """By how much a key must outlive the Dispatched of a send: after that long the send has ended."""
        return self.timeout_us + self.grace_us


def stricter(stored: Terms, current: Terms) -> tuple[Terms, str]:
    """The terms by which an intent is judged now.

    The class is the stricter of the two. `ttl_us` and `max_sends` are the smaller, `lag_us`, `timeout_us` and
    `grace_us` the larger. A probe that was not frozen gives no permission that the stored terms did not
    give: it is used only where it stands before sends that they allowed.

    Arguments:
        stored: frozen in the intent.
        current: what the tool declares in the code that is loaded.

    Returns:
        The terms in force, and a sentence that says what the current declaration made stricter ("" for
        nothing). The sentence belongs into the record of the judgement.

    Source: design protocol.md, section 3.
    """
    ttl_us = _ttl(stored, current)
    probe, probe_version = _probe(stored, current)
    terms = replace(
        stored,
        effect_class=stricter_class(stored.effect_class, current.effect_class),
        ttl_us=ttl_us,
        probe=probe,
        probe_version=probe_version,
        lag_us=max(stored.lag_us, current.lag_us),
        timeout_us=max(
            stored.timeout_us, 0 if stored.declared_timeout_us == current.timeout_us else current.timeout_us
        ),
        grace_us=max(stored.grace_us, current.grace_us),
        max_sends=min(stored.max_sends, current.max_sends),
    )
    return terms, _difference(stored, terms)


def key_ttl_us(terms: Terms) -> int | None:
    """For how long a send is allowed from the first Dispatched of the request id; None: for any time.

    Source: design protocol.md, section 4 ("unknown ttl = 0").
    """
    match terms.effect_class:
        case EffectClass.KEYED:
            return terms.ttl_us or 0
        case EffectClass.PROBE:
            return terms.ttl_us
        case EffectClass.PURE | EffectClass.READ | EffectClass.IDEMPOTENT | EffectClass.AT_MOST_ONCE:
            return None


def key_deadline_us(terms: Terms, first_dispatched_at_us: int) -> int | None:
    """From when on the request id may not be sent any more; None where no key binds.

    The key's age counts from the first Dispatched of the request id; the margin is the tool's timeout and grace, so
    that a send begun just before the deadline has ended while the far side still remembers. Recovery takes
    the nearest deadline first.

    Source: design protocol.md, section 4.
    """
    ttl_us = key_ttl_us(terms)
    return None if ttl_us is None else first_dispatched_at_us + ttl_us - terms.margin_us


def counts_time(terms: Terms) -> bool:
    """Whether its rules count time: such an effect's records carry boot time too.

    Source: docs/decisions/0015-which-clock-counts.md.
    """
    return terms.effect_class in (EffectClass.KEYED, EffectClass.PROBE)


def key_lapse(
    terms: Terms, *, first_dispatched_at_us: int, now_us: int, latest_known_us: int, boot_age_us: int | None = None
) -> KeyLapse | None:
    """Why the request id may not be sent now; None while it may. To be asked before every send.

    Arguments:
        terms: in force.
        first_dispatched_at_us: the first Dispatched of the request id (before it, nothing binds: do not ask).
        now_us: the wall clock.
        latest_known_us: the largest time of any record of the run.
        boot_age_us: how long ago that first Dispatched was by the boot clock; None: not known. The larger age counts.

    Source: design protocol.md, section 4 ("a clock that went back = expired; unknown ttl = 0").
    """
    deadline_us = key_deadline_us(terms, first_dispatched_at_us)
    if deadline_us is None:
        return None
    if terms.ttl_us is None:
        return "key-ttl-unknown"
    if now_us < max(latest_known_us, first_dispatched_at_us) or (boot_age_us or 0) < 0:
        return "clock-went-back"
    oldest_us = max(now_us, first_dispatched_at_us + (boot_age_us or 0))
    return "key-expired" if oldest_us >= deadline_us else None


def _raised(stored: Terms, current: Terms) -> bool:
    """Whether the class in force is the current declaration's and was not the stored one's."""
    return stricter_class(stored.effect_class, current.effect_class) is not stored.effect_class


def _same_probe(stored: Terms, current: Terms) -> bool:
    return (stored.probe, stored.probe_version) == (current.probe, current.probe_version)


def _probe(stored: Terms, current: Terms) -> tuple[str | None, str | None]:
    if _raised(stored, current) and current.effect_class is not EffectClass.AT_MOST_ONCE:
        return current.probe, current.probe_version
    withdrawn = current.probe is None and stored.effect_class is current.effect_class is EffectClass.KEYED
    return (None, None) if withdrawn else (stored.probe, stored.probe_version)


def _ttl(stored: Terms, current: Terms) -> int | None:
    """The ttl in force; a stored key's bound stays where only an unfrozen probe would lift it."""
    if current.effect_class is EffectClass.AT_MOST_ONCE:
        return stored.ttl_us
    if _raised(stored, current):
        if stored.effect_class is EffectClass.KEYED and not _same_probe(stored, current):
            return min(bound for bound in (key_ttl_us(stored), key_ttl_us(current)) if bound is not None)
        return current.ttl_us
    if stored.effect_class is not current.effect_class:
        return stored.ttl_us
    bound, other = key_ttl_us(stored), key_ttl_us(current)
    tightened = other is not None and (bound is None or other < bound)
    return current.ttl_us if tightened else stored.ttl_us


def _difference(stored: Terms, terms: Terms) -> str:
    changes: list[str] = []
    if terms.effect_class is not stored.effect_class:
        changes.append(f"class {stored.effect_class.name} became {terms.effect_class.name}")
    if (terms.probe, terms.probe_version) != (stored.probe, stored.probe_version):
        changes.append(f"probe {_name(stored)} became {_name(terms)}")
    for label, before, after in (
        ("ttl", stored.ttl_us, terms.ttl_us),
        ("lag", stored.lag_us, terms.lag_us),
        ("timeout", stored.timeout_us, terms.timeout_us),
        ("grace", stored.grace_us, terms.grace_us),
    ):
        if before != after:
            changes.append(f"{label} {_seconds(before)} became {_seconds(after)}")
    if terms.max_sends != stored.max_sends:
        changes.append(f"max_sends {stored.max_sends} became {terms.max_sends}")
    return f"stricter by the current declaration: {', '.join(changes)}" if changes else ""


def _name(terms: Terms) -> str:
    return f"{terms.probe} {terms.probe_version or ''}".rstrip() if terms.probe else "none"


def _seconds(us: int | None) -> str:
    if us is None:
        return "unset"
    whole, rest = divmod(us, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") + " s"
