"""How a tool's call ended: returned, rejected, not sent, failed, or maybe.

`judge` turns an exception into one of them. This module must never know about records, sends or the
ladder. It keeps the invariant that *maybe* is what is left when nobody has said otherwise.

What is kept of an exception, and what a workflow sees of it, is in `poimen.gate.error_record`.

Source: design protocol.md, section 3, "Outcomes"; cases C11, C14.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from poimen import effects
from poimen.declare.specs import matches
from poimen.gate import exchanges as known
from poimen.gate.error_record import LONGEST, message_of, record_of
from poimen.kernel import intent as kept
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.errors import NotSent, NotStorable, Rejected, Suspended
from poimen.secrecy.speaking import redacted

if TYPE_CHECKING:
    from collections.abc import Callable

    from poimen.declare.specs import Errors, ToolSpec
    from poimen.declare.values import Parameters
    from poimen.gate.port import ProbeSays
    from poimen.kernel.intent import ErrorRecord

# ---- how a call ends -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RejectedBy:
    """The far side said no: this send did nothing; with `all_sends`, no earlier one did either.

    `rule` says, here and below, by which rule it is known.
    """

    error: ErrorRecord
    all_sends: bool = False
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Unsent:
    """Refused before the request left."""

    error: ErrorRecord
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """A PURE or READ body raised: an error, and nothing is unknown."""

    error: ErrorRecord
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Maybe:
    """It may have happened."""

    error: ErrorRecord
    rule: str = ""


Raised: TypeAlias = RejectedBy | Unsent | Failed | Maybe

_INTERRUPTS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, Suspended)
"""They come from outside, at any moment of the call: no declaration can know what was done by then."""


def judge(
    exc: BaseException,
    *,
    effect_class: EffectClass,
    rejected: Errors | None,
    not_sent: Errors | None,
    exchanges: int | None,
) -> Raised:
    """What an exception says about the effect; maybe, unless somebody knows better.

    Asked in this order: the tool itself (`poimen.Rejected`, `poimen.NotSent`), its declaration (`not_sent=`,
    then `rejected=`), the class (a PURE or READ body has only failed), and with `exchanges=1` what is known
    of the library. A predicate that raises knows nothing, and its error is noted in the record. An
    exception by which an agent framework steers its own control flow is maybe like any other: the effect
    may lie before it. So is a group: it says that several things went on at once.

    Arguments:
        exc: as the body raised it, with its traceback.
        effect_class: of the tool.
        rejected: as declared; None or an empty tuple: nothing.
        not_sent: as declared, likewise.
        exchanges: as declared; 1 says that one call makes one exchange, without redirects and retries.

    Source: design protocol.md, section 3, "Outcomes"; case C11.
    """
    error = record_of(exc)
    if _interrupted(exc):
        return Maybe(error, "interrupted from outside")
    cls = type(exc)  # asked by its type: an exception may raise, or lie, when it is asked for its `__class__`
    if issubclass(cls, Rejected):
        return RejectedBy(error, all_sends=getattr(exc, "all_sends", None) is True, rule="raised by the tool")
    if issubclass(cls, NotSent):
        return Unsent(error, "raised by the tool")
    declared, trouble = _declared(exc, rejected=rejected, not_sent=not_sent)
    match declared:
        case "not_sent":
            return Unsent(error, "declared: not_sent=")
        case "rejected":
            return RejectedBy(error, rule="declared: rejected=")
        case "":
            pass
    if trouble:
        error = replace(error, fields={**error.fields, "predicate_error": trouble})
    if issubclass(cls, Exception) and effect_class in {EffectClass.PURE, EffectClass.READ}:
        return Failed(error, f"a {effect_class.name} leaves nothing unknown")
    if trouble:
        return Maybe(error, f"a declared predicate could not tell: {trouble}")
    if exchanges != 1:
        return Maybe(error, "nothing is declared for it")
    return _by_library(exc, error)


def _by_library(exc: BaseException, error: ErrorRecord) -> Raised:
    found, why = known.answer(exc)
    match found:
        case known.Answer.NOT_SENT:
            return Unsent(error, f"exchanges=1: {why}")
        case known.Answer.REJECTED:
            return RejectedBy(error, rule=f"exchanges=1: {why}")
        case known.Answer.MAYBE:
            return Maybe(error, f"exchanges=1: {why}")


def _interrupted(exc: BaseException) -> bool:
    return _is_any(exc, _INTERRUPTS)


def _is_any(exc: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Whether an exception, or one in its group, is of these classes: by type, with nothing of its own code run."""
    if issubclass(type(exc), BaseExceptionGroup):
        return any(_is_any(one, kinds) for one in BaseExceptionGroup.exceptions.__get__(exc))
    return issubclass(type(exc), kinds)


def _declared(
    exc: BaseException, *, rejected: Errors | None, not_sent: Errors | None
) -> tuple[Literal["rejected", "not_sent", ""], str]:
    """Which declaration names the exception, and what went wrong when a predicate was asked."""
    asked: tuple[tuple[Literal["rejected", "not_sent"], Errors | None], ...]
    asked = (("not_sent", not_sent), ("rejected", rejected))
    for name, errors in asked:
        try:
            if errors is not None and matches(errors, exc):
                return name, ""
        except Exception as broken:  # noqa: BLE001 (whatever a user's predicate raises means that it cannot tell)
            return "", f"{name}= raised {type(broken).__name__}: {message_of(broken)}"
    return "", ""


# ---- as the guard records it -----------------------------------------------------------------------------------------


def returned(value: object, parameters: Parameters, keep: Callable[[bytes], kept.Payload]) -> kept.Returned:
    """The outcome of a body that came back.

    A value that cannot be stored takes nothing back: the effect has happened, and the record says so.

    Arguments:
        value: what the body returned.
        parameters: of the tool; they know how its result is stored.
        keep: gives what goes into the record: the stored value, or the name of where a large one is durable.

    Raises:
        StorageFailed: a large one cannot be kept.

    Source: case C34.
    """
    try:
        body = parameters.dump_result(value)
    except NotStorable as error:
        return kept.Returned(value=b"null", unstorable=message_of(error))
    except Exception as error:  # noqa: BLE001 (a codec of a user may raise anything)
        return kept.Returned(value=b"null", unstorable=f"{type(error).__name__}: {message_of(error)}")
    return kept.Returned(value=keep(body))


def judged(exc: BaseException, spec: ToolSpec, effect_class: EffectClass) -> kept.Outcome | None:
    """The outcome of a body that raised, as recorded; None is *maybe*, and so is an error that cannot be judged.

    Arguments:
        exc: as the body raised it.
        spec: the tool's declaration.
        effect_class: the class in force.
    """
    try:
        ending = judge(
            exc, effect_class=effect_class, rejected=spec.rejected, not_sent=spec.not_sent, exchanges=spec.exchanges
        )
    except Exception:  # noqa: BLE001 (an exception of a user may do anything when it is looked at)
        return None
    match ending:
        case RejectedBy():
            return kept.RejectedOutcome(error=ending.error, all_sends=ending.all_sends)
        case Unsent():
            return kept.NotSentOutcome(error=ending.error)
        case Failed():
            return kept.FailedRead(error=ending.error)
        case Maybe():
            return None


def not_called(why: str) -> kept.NotSentOutcome:
    """The outcome of a send whose body was not entered."""
    return kept.NotSentOutcome(error=kept.ErrorRecord(type=kept.NOT_CALLED, message=why))


def is_cancelled(exc: BaseException) -> bool:
    """Whether a body ended because it was cancelled, alone or in a group of its own."""
    return _is_any(exc, (asyncio.CancelledError,))


def given(found: object) -> object:
    """What a probe gave, or an error in its place where it is no answer: by type, for a proxy may raise when asked."""
    if issubclass(type(found), (effects.Landed, effects.Absent, effects.Unknown)):
        return found
    return TypeError(f"the probe returned {type(found).__name__}, not Landed, Absent or Unknown")


def read_answer(answer: object, spec: ToolSpec) -> tuple[ProbeSays, str, kept.Payload | None]:
    """What a probe's answer says. An error, a time-out or an odd shape is unknown, never absent."""
    match answer:
        case effects.Landed():
            try:
                value = spec.parameters.dump_result(answer.value, path="Landed.value")
            except NotStorable as error:
                return "unknown", f"landed, with a value that cannot be stored: {error.message}", None
            return "landed", _words(answer.evidence), value
        case effects.Absent():
            return "absent", _words(answer.evidence), None
        case effects.Unknown():
            return "unknown", _words(answer.why), None
        case BaseException():
            return "unknown", f"{type(answer).__name__}: {message_of(answer)}"[:500], None
        case other:
            return "unknown", f"{type(other).__name__} is no answer of a probe", None


def _words(evidence: object) -> str:
    """What a probe gave as evidence, as text: it may have given anything."""
    if isinstance(evidence, str):
        return redacted(evidence, most=LONGEST)
    try:
        return redacted(str(evidence), most=500) if evidence is not None else ""
    except Exception:  # noqa: BLE001 (a user's object)
        return type(evidence).__name__
