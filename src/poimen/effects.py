"""The six effect classes as values: what may be done with an effect that a crash interrupted.

A plain class carries no type; a probing one carries the tool's own parameters and result, so that a
probe that does not fit its tool is an error of the type checkers. This module must never know how
tools are declared or driven; it keeps the invariant that every class here is complete when it is
made: a key has a life span, a probe has a lag.

Source: design protocol.md, section 4; api.md, "Declaring".
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Generic, Literal, NoReturn, ParamSpec, TypeAlias, TypeVar, overload

from poimen._typing import override
from poimen.kernel.errors import BadDeclaration

__all__ = [
    "AT_MOST_ONCE",
    "IDEMPOTENT",
    "KEYED",
    "PROBE",
    "PURE",
    "READ",
    "Absent",
    "AnyEffect",
    "Effect",
    "Landed",
    "ProbingEffect",
    "Unknown",
]

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ClassName: TypeAlias = Literal["PURE", "READ", "IDEMPOTENT", "KEYED", "PROBE", "AT_MOST_ONCE"]
"""The name of a member of `kernel.effect_class.EffectClass`."""

_NO_TIME: Final = timedelta(0)

# ---- what a probe answers ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Landed(Generic[T_co]):
    """The far side shows the effect: it happened.

    Arguments:
        value: what the tool would have returned.
        evidence: what was seen, for the record.
    """

    value: T_co
    evidence: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class Absent:
    """A complete look did not find the effect. Absence counts only when a second look confirms it.

    Arguments:
        evidence: what was looked at, for the record.
    """

    evidence: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class Unknown:
    """The look could not tell. A probe that raises, or answers anything else, says the same.

    Arguments:
        why: what stood in the way, for the record.
    """

    why: str = ""


Answer: TypeAlias = Landed[T] | Absent | Unknown
Probe: TypeAlias = Callable[P, Answer[T]] | Callable[P, Coroutine[Any, Any, Answer[T]]]

# ---- the classes ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    """What both kinds of class say.

    Arguments:
        effect_class: which of the six, by the name that the kernel knows it by.
        ttl: how long the far side remembers our key; None where there is no key.
        lag: how long the far side may take to show what it has accepted.
    """

    effect_class: ClassName
    ttl: timedelta | None = None
    lag: timedelta = _NO_TIME


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Effect(_Declared):
    """An effect class without a probe; use the values and functions of this module, not this class.

    Arguments:
        effect_class: which of the six.
        ttl: how long the far side remembers our key; None where there is no key.
        lag: how long the far side may take to show what it has accepted.
    """

    @property
    def probe(self) -> None:
        """None: there is no probe."""
        return

    @override
    def __repr__(self) -> str:
        return f"effects.{self.effect_class}" + (f"(ttl={self.ttl!r})" if self.ttl is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProbingEffect(_Declared, Generic[P, T]):
    """An effect class that can be asked whether it landed; made by `KEYED(..., probe=)` and `PROBE`.

    Arguments:
        effect_class: which of the six.
        ttl: how long the far side remembers our key; None where there is no key.
        lag: how long the far side may take to show what it has accepted.
        probe: takes the tool's own parameters, only reads, answers `Landed`, `Absent` or `Unknown`.
    """

    probe: Probe[P, T]

    @override
    def __repr__(self) -> str:
        name = getattr(self.probe, "__name__", repr(self.probe))
        head = f"ttl={self.ttl!r}, probe={name}" if self.ttl is not None else name
        return f"effects.{self.effect_class}({head}, lag={self.lag!r})"


AnyEffect: TypeAlias = Effect | ProbingEffect[..., Any]
"""What `effect=` takes: one of the six classes, with a probe or without."""

PURE: Final = Effect(effect_class="PURE")
"""No input or output: computed again, no intent is written."""

READ: Final = Effect(effect_class="READ")
"""Observes and changes nothing: sent again, and a second spend is counted."""

IDEMPOTENT: Final = Effect(effect_class="IDEMPOTENT")
"""Repeating converges: sent again with the stored arguments.

Not for a call whose late duplicate could land after a later effect on the same thing.
"""

AT_MOST_ONCE: Final = Effect(effect_class="AT_MOST_ONCE")
"""Opaque or irreversible: never sent again by a machine; an unknown waits for a person."""


@overload
def KEYED(ttl: timedelta) -> Effect: ...
@overload
def KEYED(
    ttl: timedelta, *, probe: Callable[P, Coroutine[Any, Any, Landed[T] | Absent | Unknown]], lag: timedelta = ...
) -> ProbingEffect[P, T]: ...
@overload
def KEYED(
    ttl: timedelta, *, probe: Callable[P, Landed[T] | Absent | Unknown], lag: timedelta = ...
) -> ProbingEffect[P, T]: ...
def KEYED(  # noqa: N802 (a class of effect reads like its siblings PURE and READ)
    ttl: Any = None, *, probe: Any = None, lag: Any = _NO_TIME
) -> Effect | ProbingEffect[..., Any]:
    """The far side dedupes on our request id: sent again with the same id and bytes while the key lives.

    Arguments:
        ttl: how long the far side remembers a key, at least; counted from the first send.
        probe: asked when the key has expired; without it an expired key is as AT_MOST_ONCE.
        lag: how long the far side may take to show what it has accepted.

    Raises:
        BadDeclaration: without a positive `ttl`, or with a probe or lag that is none.

    Source: design protocol.md, section 4, KEYED.
    """
    if not isinstance(ttl, timedelta) or ttl <= _NO_TIME:
        _refuse(
            "KEYED",
            f"ttl={ttl!r} is not a positive timedelta",
            why="after that time the far side has forgotten the key, and sending again may act again",
            hint="effects.KEYED(ttl=timedelta(hours=24)), from the far side's documentation",
        )
    if probe is None:
        if lag != _NO_TIME:
            _refuse("KEYED", "lag= speaks of a probe, and there is no probe=", hint="add probe=, or leave lag= out")
        return Effect(effect_class="KEYED", ttl=ttl)
    return ProbingEffect(effect_class="KEYED", ttl=ttl, probe=_probe("KEYED", probe), lag=_lag("KEYED", lag))


@overload
def PROBE(
    fn: Callable[P, Coroutine[Any, Any, Landed[T] | Absent | Unknown]], /, *, lag: timedelta
) -> ProbingEffect[P, T]: ...
@overload
def PROBE(fn: Callable[P, Landed[T] | Absent | Unknown], /, *, lag: timedelta) -> ProbingEffect[P, T]: ...
def PROBE(  # noqa: N802 (as KEYED)
    fn: Any, /, *, lag: Any = None
) -> ProbingEffect[..., Any]:
    """We can ask the far side whether it landed: only a confirmed absence is sent again.

    Arguments:
        fn: takes the tool's own parameters, only reads, answers `Landed`, `Absent` or `Unknown`.
        lag: how long the far side may take to show what it has accepted; timedelta(0) if it shows at once. An
            absence counts from the tool's timeout + grace + lag after the last send.

    Raises:
        BadDeclaration: when `fn` cannot be called, or `lag` is missing or negative.

    Source: design protocol.md, section 4, PROBE.
    """
    return ProbingEffect(effect_class="PROBE", probe=_probe("PROBE", fn), lag=_lag("PROBE", lag))


def _probe(name: str, probe: Any) -> Callable[..., Any]:
    if not callable(probe) or isinstance(probe, type):
        _refuse(
            name,
            f"the probe {probe!r} is not a function",
            hint="give a function with the tool's own parameters that returns Landed(value), Absent() or Unknown(why)",
        )
    found: Callable[..., Any] = probe
    return found


def _lag(name: str, lag: Any) -> timedelta:
    if not isinstance(lag, timedelta) or lag < _NO_TIME:
        _refuse(
            name,
            f"lag={lag!r} is not a timedelta of zero or more",
            why="an answer 'absent' inside the lag says nothing about what was just sent",
            hint="lag=timedelta(seconds=2), or timedelta(0) where the far side shows a write at once",
        )
    return lag


def _refuse(name: str, what: str, *, why: str = "", hint: str) -> NoReturn:
    raise BadDeclaration(f"effects.{name}: {what}", why=why, hint=hint)
