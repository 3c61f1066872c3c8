"""What is kept of an exception, and the exception that is made of it again.

A record holds the class's name, the text and the plain fields; no class is looked up by its module,
imported or unpickled. What a workflow catches comes from one closed set: our own four, the builtins
listed here, and `StepError` for all others. This module must never know why an error was raised or
what it means for an effect. It keeps two invariants: recording never raises and is bounded, and
`rebuild` depends on nothing but the record as its bytes give it back, so that live and replay hand out
exceptions that look alike to every line of a program, down to the order of their fields.

Source: design protocol.md, section 3 ("errors from one closed set of types with recorded fields");
api.md, "Errors"; case C38.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from poimen.declare.values import error_fields
from poimen.kernel.errors import (
    Corrupt,
    EffectAbandoned,
    IndeterminateOutcome,
    NotSent,
    PoimenError,
    Rejected,
    StepError,
)
from poimen.kernel.intent import ErrorRecord, NotSentOutcome
from poimen.secrecy.named import missing
from poimen.secrecy.rules import REDACTED
from poimen.secrecy.setting import in_force
from poimen.secrecy.speaking import redacted

if TYPE_CHECKING:
    from poimen.kernel.intent import Json

Kind: TypeAlias = Literal["rejected", "not_sent", "failed", "indeterminate", "abandoned"]
"""What a workflow is told of an error; only `failed` leaves the type to the record."""

LONGEST: Final = 4096
"""Bytes of a message; each text among the fields has the same bound."""

MOST: Final = 16 * 1024
"""Bytes of all fields of one record, roughly: beyond it fields are left out and `cut` says so."""

_DEEPEST: Final = 6
_INT64: Final = 2**63

_NAMES: Final = frozenset({"module", "args", "cause", "notes", "exceptions", "predicate_error", "unknown", "cut"})
"""Names of fields that are ours; an attribute of such a name is kept with a `_` at its end."""

# ---- recording ---------------------------------------------------------------------------------------------------


def record_of(exc: BaseException) -> ErrorRecord:
    """What is kept of an exception. Never raises, whatever the exception does when it is looked at.

    The class's module is a field beside its name: a class may move, and old records stay as they are. Fields
    of ours: `args` where the text does not tell them, `notes`, `cause` (the error behind it, if any), and the
    `exceptions` of a group. A `StepError` is kept as what it stands for.

    Arguments:
        exc: any exception.

    Source: case C38.
    """
    try:
        if isinstance(exc, StepError):
            return ErrorRecord(type=_cut(exc.type), message=_cut(exc.message), fields=_Room().fields(exc.fields))
        return _record(exc, _Room(), _DEEPEST)
    except Exception as broken:  # noqa: BLE001 (an exception of a user may do anything when it is looked at)
        cls = type(exc)
        noted: dict[str, Json] = {"module": _cut(str(cls.__module__)), "fields_error": type(broken).__name__}
        return ErrorRecord(type=_cut(cls.__name__), message=message_of(exc), fields=noted)


def _record(exc: BaseException, room: _Room, depth: int) -> ErrorRecord:
    cls, message = type(exc), message_of(exc)
    found: dict[str, object] = {"module": cls.__module__}
    if not isinstance(exc, (PoimenError, BaseExceptionGroup)) and not _is_told(exc.args, message):
        found["args"] = exc.args
    if notes := vars(exc).get("__notes__"):
        found["notes"] = notes
    for name, value in _attributes(exc).items():
        found[f"{name}_" if name in _NAMES else name] = value
    fields = room.fields(found)
    if isinstance(exc, BaseExceptionGroup):
        members = [_inner(one, room, depth) for one in exc.exceptions]
        fields["exceptions"] = [member for member in members if member is not None]
        if None in members:
            fields["cut"] = True
    # An exception may compare itself or its truth in its own way: only identity is asked.
    behind = exc.__cause__ if exc.__cause__ is not None or exc.__suppress_context__ else exc.__context__
    if behind is not None and (inner := _inner(behind, room, depth)) is not None:
        fields["cause"] = inner
    return ErrorRecord(type=_cut(cls.__name__), message=message, fields=fields)


def _inner(exc: BaseException, room: _Room, depth: int) -> Json:
    if depth == 0 or not room.take(len(message_of(exc))):
        return None
    return to_json(_record(exc, room, depth - 1))


def _is_told(args: tuple[object, ...], message: str) -> bool:
    return len(args) == 1 and type(args[0]) is str and args[0] == message


def _attributes(exc: BaseException) -> Mapping[str, object]:
    """The plain attributes of an exception; of one of ours, what its constructor took."""
    try:
        if not isinstance(exc, PoimenError):
            return error_fields(exc)
        said = {"where": exc.where, "why": exc.why, "hint": vars(exc).get("hint")}
        if isinstance(exc, Rejected):
            said["all_sends"] = exc.all_sends
        return {**{name: value for name, value in said.items() if value}, **exc.ids}
    except Exception as broken:  # noqa: BLE001 (as above)
        return {"fields_error": type(broken).__name__}


def message_of(exc: BaseException) -> str:
    """The text of an exception, bounded; a text that cannot be had is replaced by one that says so."""
    try:
        said: object = exc.message if isinstance(exc, PoimenError) else exc  # one of ours may be given anything too
        return _cut("" if said is None else str(said))
    except Exception as broken:  # noqa: BLE001 (as above)
        return f"<no text: it raised {type(broken).__name__}>"


def _cut(text: str) -> str:
    """The text without secrets, as UTF-8 can hold it (a lone surrogate cannot be), at most `LONGEST` bytes."""
    whole = str.encode(redacted(text, most=LONGEST), "utf-8", "backslashreplace")
    if len(whole) > LONGEST:
        return whole[: LONGEST - 3].decode("utf-8", "ignore") + "…"
    return whole.decode()


class _Full(Exception):
    """The record has no room left."""


class _Room:
    """What may still be kept in one record; brings values down to JSON, and leaves out what is not plain."""

    def __init__(self) -> None:
        self.left = MOST

    def fields(self, values: Mapping[str, object]) -> dict[str, Json]:
        kept: dict[str, Json] = {}
        for name, value in values.items():
            before = self.left
            try:
                kept[self._text(name)] = self._under(name, value, _DEEPEST)
            except _Full:
                self.left, kept["cut"] = before, True
            except Exception:  # noqa: BLE001 (not plain, or it raises when it is looked at: left out)
                self.left = before
        return kept

    def take(self, size: int) -> bool:
        """Room for something that is kept in any case; whether any was left."""
        had = self.left > 0
        self.left -= size
        return had

    def _text(self, text: str) -> str:
        kept = _cut(text)
        self._spend(len(kept))
        return kept

    def _spend(self, size: int) -> None:
        if size > self.left:
            raise _Full
        self.left -= size

    def _value(self, value: object, depth: int) -> Json:
        self._spend(8)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int):
            return int(value) if -_INT64 <= value < _INT64 else self._text(str(value))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else str(value)
        if depth and isinstance(value, (list, tuple)):
            return [self._value(one, depth - 1) for one in value]
        if depth and isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return {self._text(name): self._under(name, one, depth - 1) for name, one in value.items()}
        raise TypeError(type(value))

    def _under(self, name: str, value: object, depth: int) -> Json:
        """A value by what its name says of it: one that is secret is told of and not kept."""
        is_secret = value and isinstance(value, (str, bytes, list, tuple)) and in_force().hides(name)
        return REDACTED if is_secret else self._value(value, depth)


def without_secret(packed: bytes) -> NotSentOutcome | None:
    """The outcome of a call one of whose `Secret` arguments is not there: its body is not entered.

    Arguments:
        packed: the arguments, as stored.
    """
    nowhere = missing(packed)
    if nowhere is None:
        return None
    return NotSentOutcome(error=record_of(NotSent(nowhere.message, why=nowhere.why, hint=nowhere.hint)))


# ---- as plain JSON --------------------------------------------------------------------------------------------------


def to_json(record: ErrorRecord) -> dict[str, Json]:
    """The record as a plain dict: `type`, `message`, `fields`, and what a newer version has put beside them."""
    fields = dict(record.fields)
    unknown = fields.pop("unknown", None)
    beside = unknown if isinstance(unknown, dict) else {}
    return {**beside, "type": record.type, "message": record.message, "fields": fields}


def from_json(plain: Mapping[str, Any]) -> ErrorRecord:
    """The record of a plain dict; what is not known beside `type`, `message`, `fields` is kept as it is.

    Raises:
        Corrupt: it is not the dict of an error.
    """
    beside = dict(plain)
    cls, message, fields = beside.pop("type", None), beside.pop("message", ""), beside.pop("fields", {})
    if not (isinstance(cls, str) and isinstance(message, str) and isinstance(fields, Mapping)):
        raise Corrupt("a recorded error has no type, message and fields", why="nothing can be said of what it was")
    return ErrorRecord(type=cls, message=message, fields={**fields, "unknown": beside} if beside else dict(fields))


# ---- making the exception again -----------------------------------------------------------------------------------

_CLOSED: Final[dict[str, type[PoimenError]]] = {
    cls.__name__: cls for cls in (Rejected, NotSent, IndeterminateOutcome, EffectAbandoned)
}

BUILTINS: Final[dict[str, type[Exception]]] = {
    cls.__name__: cls
    for cls in (
        *(Exception, ArithmeticError, AssertionError, AttributeError, BlockingIOError, BrokenPipeError, BufferError),
        *(ChildProcessError, ConnectionAbortedError, ConnectionError, ConnectionRefusedError, ConnectionResetError),
        *(EOFError, FileExistsError, FileNotFoundError, FloatingPointError, ImportError, IndentationError, IndexError),
        *(InterruptedError, IsADirectoryError, KeyError, LookupError, MemoryError, ModuleNotFoundError, NameError),
        *(NotADirectoryError, NotImplementedError, OSError, OverflowError, PermissionError, ProcessLookupError),
        *(RecursionError, ReferenceError, RuntimeError, SyntaxError, SystemError, TabError, TimeoutError, TypeError),
        *(UnboundLocalError, UnicodeError, ValueError, ZeroDivisionError),
    )
}
"""Builtins that come back as themselves: each takes one text. Not here: StopIteration, which a coroutine cannot
raise, and those of another shape, such as UnicodeDecodeError and groups; they come back as StepError."""


def rebuild(kind: Kind, record: ErrorRecord, *, intent_id: str = "") -> Exception:
    """The exception that a workflow catches for a recorded error.

    `rejected`, `not_sent`, `indeterminate` and `abandoned` give our own type; the error of another class that
    led there is in its text and in its attributes `type` and `fields`. `failed` gives the recorded type where
    it is in the closed set, else `StepError`. Its fields, and objects inside them, have their names in order,
    whether the record was just made or read.

    Arguments:
        kind: what the workflow is told.
        record: of the original exception.
        intent_id: for `indeterminate` and `abandoned`: which effect.

    Source: design api.md, "Errors".
    """
    record = replace(record, fields={name: _as_stored(record.fields[name]) for name in sorted(record.fields)})
    error = _made(kind, record)
    if intent_id and isinstance(error, PoimenError):
        error.ids = {**error.ids, "intent_id": intent_id}
        _set(error, {"intent_id": intent_id})
    notes = record.fields.get("notes")
    for note in notes if isinstance(notes, list) else []:
        error.add_note(str(note))
    return error


def _as_stored(value: Json) -> Json:
    """A value as the log gives it back, keys in order, and of its own: what a program does to it stays there."""
    if isinstance(value, dict):
        return {name: _as_stored(value[name]) for name in sorted(value)}
    return [_as_stored(one) for one in value] if isinstance(value, (list, tuple)) else value


def _made(kind: Kind, record: ErrorRecord) -> Exception:
    match kind:
        case "rejected":
            return _ours(Rejected, record)
        case "not_sent":
            return _ours(NotSent, record)
        case "indeterminate":
            return _ours(IndeterminateOutcome, record)
        case "abandoned":
            return _ours(EffectAbandoned, record)
        case "failed":
            pass
    root = _root(record)
    if root in {"poimen", ""} and record.type in _CLOSED:
        return _ours(_CLOSED[record.type], record)
    if root in {"builtins", ""} and record.type in BUILTINS:
        return _builtin(BUILTINS[record.type], record)
    return StepError(record.type, record.message, dict(record.fields))


def _root(record: ErrorRecord) -> str:
    """The package of the recorded class; empty for a record that poimen itself has written, of no exception."""
    return str(record.fields.get("module", "")).partition(".")[0]


def _ours(cls: type[PoimenError], record: ErrorRecord) -> PoimenError:
    if record.type == cls.__name__ and _root(record) in {"poimen", ""}:
        error = cls(record.message)
        said = _attributes_in(record)
        beside = {"where", "why", "hint", "all_sends"}
        error.ids = {name: value for name, value in said.items() if name not in beside}
        _set(error, said)
        return error
    error = cls(": ".join(part for part in (record.type, record.message) if part))
    error.ids = {"type": record.type, "fields": dict(record.fields)} if record.type else {}
    _set(error, error.ids)
    return error


def _builtin(cls: type[Exception], record: ErrorRecord) -> Exception:
    args = record.fields.get("args")
    error: Exception | None = None
    if isinstance(args, list):
        # A key is hashable: what JSON made a list of was a tuple.
        with suppress(Exception):
            error = cls(*(_tuples(args) if cls is KeyError else args))
    # OSError chooses its own subclass by errno: the recorded name wins.
    if type(error) is not cls:
        error = cls(record.message)
    # None is what an attribute is before it is set; an OSError with a filename of None would say so.
    _set(error, {name: value for name, value in _attributes_in(record).items() if value is not None})
    return error


def _attributes_in(record: ErrorRecord) -> dict[str, Json]:
    """The fields that are attributes of the exception, under their own names again."""
    found = {name: value for name, value in record.fields.items() if name not in _NAMES}
    return {name[:-1] if name[-1:] == "_" and name[:-1] in _NAMES else name: value for name, value in found.items()}


def _tuples(value: Json) -> Any:
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value


def _set(error: Exception, attributes: Mapping[str, Json]) -> None:
    for name, value in attributes.items():
        if name == "args" or name.startswith("__") or callable(getattr(type(error), name, None)):
            continue
        with suppress(AttributeError, TypeError, ValueError):
            setattr(error, name, value)
