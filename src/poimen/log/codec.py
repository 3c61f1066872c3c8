"""Events to bytes and back: canonical JSON, one tag and version per event type.

Keys are sorted, a field that has its default value is left out, payloads that users brought are embedded as the
JSON they are, nothing is pickled.
An unknown field stays in the stored body, which is never rewritten. This module must never know
what an event means; it keeps the invariant that decoding what was encoded gives an equal event.

Source: design storage.md, "The log".
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

import msgspec
from msgspec.structs import asdict, astuple

from poimen import clock
from poimen.kernel import events as e
from poimen.kernel import intent as i
from poimen.kernel.effect_class import EffectClass, Terms
from poimen.kernel.errors import Corrupt, NotStorable, invariant
from poimen.log.api import NewRecord
from poimen.log.upcast import NEWER, upcast
from poimen.secrecy.redacting import redacted_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from poimen.log.api import Record

TAGS: Final[dict[str, type]] = {
    "run.admitted.v1": e.RunAdmitted,
    "branch.started.v1": e.BranchStarted,
    "branch.resumed.v1": e.BranchResumed,
    "branch.waiting.v1": e.BranchWaiting,
    "branch.verifying.v1": e.BranchVerifying,
    "branch.ended.v1": e.BranchEnded,
    "cancel.requested.v1": e.CancelRequested,
    "cancel.delivered.v1": e.CancelDelivered,
    "resume.requested.v1": e.ResumeRequested,
    "attempt.started.v1": e.AttemptStarted,
    "attempt.resumed.v1": e.AttemptResumed,
    "attempt.succeeded.v1": e.AttemptSucceeded,
    "attempt.failed.v1": e.AttemptFailed,
    "attempt.timed_out.v1": e.AttemptTimedOut,
    "attempt.indeterminate.v1": e.AttemptIndeterminate,
    "attempt.cancelled.v1": e.AttemptCancelled,
    "step.computed.v1": e.StepComputed,
    "intent.pending.v1": i.IntentPending,
    "intent.dispatched.v1": i.IntentDispatched,
    "intent.committed.v1": i.IntentCommitted,
    "intent.send_answered.v1": i.SendAnswered,
    "intent.classified.v1": i.IntentClassified,
    "intent.probed.v1": i.IntentProbed,
    "intent.demoted.v1": i.IntentDemoted,
    "intent.rule_applied.v1": i.RuleApplied,
    "intent.resolved.v1": i.IntentResolved,
    "intent.claimed.v1": i.IntentClaimed,
    "intent.late_outcome.v1": i.LateOutcome,
    "intent.read_dropped.v2": i.ReadDropped,
    "decision.recorded.v1": e.DecisionRecorded,
    "decision.settled.v1": e.DecisionSettled,
    "timer.fired.v1": e.TimerFired,
    "append.settled.v1": e.AppendSettled,
}
"""Stable names of the event types as stored. A name is never given to another shape."""

KINDS: Final[dict[type, str]] = {cls: tag for tag, cls in TAGS.items()}


def class_of(kind: str) -> type | None:
    """The event type of a stored tag, of an old one too; None where it is not known."""
    return TAGS.get(NEWER.get(kind, kind))


OUTCOMES: Final[dict[str, type]] = {
    "returned": i.Returned,
    "rejected": i.RejectedOutcome,
    "not_sent": i.NotSentOutcome,
    "failed": i.FailedRead,
}
_OUTCOME_TAGS: Final[dict[type, str]] = {cls: tag for tag, cls in OUTCOMES.items()}

_TIMED: Final = frozenset({KINDS[i.IntentDispatched], KINDS[i.RuleApplied]})

OWN: Final[frozenset[type]] = frozenset({
    e.AttemptStarted, e.AttemptSucceeded, e.StepComputed, i.IntentPending, i.IntentDispatched, i.IntentCommitted
})  # fmt: skip
"""Events whose fields poimen fills itself, from what was checked when it was declared or stored."""

_BLOB: Final = "$blob"
_TERMS: Final = tuple(spec.name for spec in dataclasses.fields(Terms))
_encode: Final[Callable[[Any], bytes]] = msgspec.json.Encoder(order="sorted").encode


# ---- out -------------------------------------------------------------------------------------------------------


def _out_payload(value: i.Payload | None) -> Any:
    if type(value) is bytes:
        return msgspec.Raw(value)
    return None if value is None else {_BLOB: value}


def _out(value: Any) -> msgspec.Struct:
    return _FORMS[type(value)](value)


class _Forms(dict[type, "Callable[[Any], msgspec.Struct]"]):
    """By class: a function that turns an instance into a struct that is encoded as the instance shall be stored.

    The struct leaves out what has its default value; it is made when it is first wanted. What can be done to a record
    beforehand, for its class, is done here: this runs for each record, and reflection costs more than the JSON.
    """

    def __missing__(self, cls: type) -> Callable[[Any], msgspec.Struct]:
        hints = get_type_hints(cls)
        shape: list[tuple[str, Any, Any]] = []
        for spec in dataclasses.fields(cls):
            default = None if cls is Terms and type(None) in get_args(hints[spec.name]) else spec.default
            shape.append((spec.name, Any, msgspec.NODEFAULT if default is dataclasses.MISSING else default))
        shape.sort(key=lambda field: field[2] is not msgspec.NODEFAULT)
        names = [name for name, _, _ in shape]
        turns = [(n, turn) for n, name in enumerate(names) if (turn := _turn(hints[name], shape[n][2])) is not None]
        tag = (_OUTCOME_TAGS[cls],) if cls in _OUTCOME_TAGS else ()
        shape[:0] = [("kind", str, msgspec.NODEFAULT)] * len(tag)
        struct = msgspec.defstruct(cls.__name__, shape, omit_defaults=True, gc=False)
        get = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)

        def form(value: Any) -> msgspec.Struct:
            given = [*get(value)]
            for n, turn in turns:
                given[n] = turn(given[n])
            return struct(*tag, *given)

        self[cls] = made = form if tag or turns else lambda value: struct(*get(value))
        return made


_FORMS: Final = _Forms()


def _turn(hint: Any, default: Any) -> Callable[[Any], Any] | None:
    """What must be done to a field's value. A struct knows its defaults by identity, and texts have one if interned."""
    if _is_payload(hint):
        return _out_payload
    if _is_outcome(hint) or hint is Terms:
        return _out
    return sys.intern if isinstance(default, str) and default else None


def _is_payload(hint: object) -> bool:
    return bytes in get_args(hint)


def _is_outcome(hint: object) -> bool:
    return i.Returned in get_args(hint)


def encode(event: e.Event) -> bytes:
    """The canonical JSON of an event's fields."""
    try:
        return _encode(_FORMS[type(event)](event))
    except UnicodeEncodeError:
        return _encode(_scrubbed(_FORMS[type(event)](event)))


def _scrubbed(value: Any) -> Any:
    """Texts for people (reasons, evidence, tags) with what is no Unicode replaced; payloads are escaped before."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_scrubbed(name): _scrubbed(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_scrubbed(each) for each in value)
    if isinstance(value, msgspec.Struct):
        return type(value)(*(_scrubbed(each) for each in astuple(value)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {spec.name: _scrubbed(getattr(value, spec.name)) for spec in dataclasses.fields(value)}
    return value


def record(event: e.Event, *, branch: str, at: int | None = None) -> NewRecord:
    """An event on its way into the log, with an id of its own and the time of writing.

    Arguments:
        event: what happened.
        branch: the branch that it belongs to.
        at: microseconds since the Unix epoch; now when left out.

    Raises:
        NotStorable: a field holds what could not be read back.
    """
    cls: Any = type(event)
    kind = KINDS[cls]
    if cls in OWN:
        body = encode(event)
    else:  # people and far sides have words in it: what could not be read would make the whole run unreadable
        try:
            body = encode(redacted_event(event))
            _reader(cls)(body)
        except (msgspec.MsgspecError, TypeError, ValueError, KeyError) as error:
            raise NotStorable(f"a record of kind {kind} cannot be written: {error}", hint="give text as str") from error
    written = clock.wall_us() if at is None else at
    # past the named tuple's own constructor: this runs for each record
    return tuple.__new__(NewRecord, (clock.record_id(), branch, kind, e.SUBJECTS[cls](event), body, written))


def waited(made: NewRecord, *, at: int, boot_us: int) -> NewRecord:
    """A record that has stood in line, as it is written now.

    Arguments:
        made: as `record` gave it.
        at: microseconds since the Unix epoch.
        boot_us: the same moment by the boot clock.
    """
    moved = i.waited(decode(made.kind, made.body), boot_us) if made.kind in _TIMED else None
    return made._replace(at=at) if moved is None else made._replace(at=at, body=encode(moved))


# ---- back ------------------------------------------------------------------------------------------------------


def _in_payload(raw: msgspec.Raw) -> i.Payload | None:
    body = bytes(raw)
    if body.startswith(b'{"$blob":'):
        return msgspec.json.decode(body, type=dict[str, i.BlobRef])[_BLOB]
    return body


def _in_optional_payload(raw: msgspec.Raw) -> i.Payload | None:
    return _in_payload(raw) if bytes(raw) else None


def _in_terms(raw: msgspec.Raw) -> Terms:
    given: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, Any])
    known: dict[str, Any] = {name: given.get(name) for name in _TERMS}
    known["effect_class"] = EffectClass(known["effect_class"])
    return Terms(**known)


def _in_outcome(raw: msgspec.Raw) -> Any:
    kind = msgspec.json.decode(raw, type=_Kind).kind
    return _reader(OUTCOMES[kind])(bytes(raw))


class _Kind(msgspec.Struct):
    kind: str


@cache
def _reader(cls: type) -> Callable[[bytes], Any]:
    """A function that decodes a body into `cls`: a generated struct with raw payloads, then the event."""
    hints = get_type_hints(cls)
    shape: list[tuple[str, Any, Any]] = []
    turns: list[tuple[str, Callable[[Any], Any]]] = []
    for spec in dataclasses.fields(cls):
        hint = hints[spec.name]
        kind: Any = msgspec.Raw
        default: Any = msgspec.NODEFAULT
        if spec.default is not dataclasses.MISSING:
            default = spec.default
        elif spec.default_factory is not dataclasses.MISSING:
            default = msgspec.field(default_factory=spec.default_factory)
        if _is_payload(hint):
            default = msgspec.Raw(b"") if default is None else default
            turns.append((spec.name, _in_optional_payload if type(None) in get_args(hint) else _in_payload))
        elif _is_outcome(hint):
            turns.append((spec.name, _in_outcome))
        elif hint is Terms:
            turns.append((spec.name, _in_terms))
        else:
            kind = hint
        shape.append((spec.name, kind, default))
    struct = msgspec.defstruct(cls.__name__, shape, kw_only=True, gc=False)
    decode = msgspec.json.Decoder(struct).decode

    def read(body: bytes) -> Any:
        fields = asdict(decode(body))
        for name, turn in turns:
            fields[name] = turn(fields[name])
        return cls(**fields)

    return read


def decode(kind: str, body: bytes) -> e.Event:
    """The event of a stored body; old versions are brought up to date first.

    Raises:
        Corrupt: the tag is unknown, or the body does not have the shape of its tag.
    """
    cls = class_of(kind)
    if cls is None:
        raise Corrupt(f"a record has the unknown kind {kind!r}", hint="was it written by a newer poimen?")
    try:
        event: e.Event = _reader(cls)(upcast(kind, body))
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"a record of kind {kind!r} cannot be read: {error}") from error
    return event


def event_of(stored: Record) -> e.Event:
    """The event of a stored record.

    Raises:
        Corrupt: as `decode`, naming the run and the LSN.
    """
    try:
        return decode(stored.kind, stored.body)
    except Corrupt as error:
        raise Corrupt(error.message, where=f"{stored.run} LSN {stored.lsn}", run=stored.run, lsn=stored.lsn) from error


def plain(stored: Record) -> dict[str, Any]:
    """The stored body as plain JSON values, for people and `--json`."""
    found: dict[str, Any] = msgspec.json.decode(stored.body)
    return found


def canonical(value: object) -> bytes:
    """Canonical JSON of plain values."""
    invariant(not isinstance(value, Enum), "only plain values are encoded here")
    return _encode(value)
