"""What the lines of a decision ledger say: how an event becomes a line, and what a file of lines means.

This module must never know about files: it sees bytes. Invariants: a line is one event with exactly its
keys, sorted; one id has one value; every commit follows its intent; what is handed out is a copy.

Source: requirement decision-ledger.md (the two events and their keys).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from poimen.kernel.errors import Corrupt, NotStorable
from poimen.secrecy.setting import in_force

if TYPE_CHECKING:
    from collections.abc import Collection

Json: TypeAlias = bool | int | float | str | Sequence[Any] | Mapping[str, Any] | None
"""What a decision may be: what JSON can say, in Python's plain types (a tuple would come back as a list: refused)."""

MAX_ID_CHARS: Final = 500
"""An id is a name that people type and grep, no place for content."""

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""One `write` takes a line whole; a decision names a choice, and large bodies belong elsewhere."""

_MAX_DEPTH: Final = 100
_MAX_INT_BITS: Final = 2048
_DEEPEST: Final = _MAX_DEPTH + 2
"""Of a line of ours: the event around a decision whose innermost value is empty brackets."""
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_SHOWN_CHARS: Final = 200
_SHOWN_KEY: Final = 40
_SHOWN_PARTS: Final = 12
_DIGITS: Final = 8
_PLAIN: Final = (type(None), bool, int, float, str, list, dict)
_KEYS: Final = {"intent": {"decision", "decision_id", "event"}, "commit": {"decision_id", "event"}}
_HEAD: Final = b'{"decision'


class LedgerView:
    """What a ledger held at one moment.

    `torn` is the number of bytes after the last whole line: the trace of a write that was never
    acknowledged (or, for a reader, of one that is just being made). A last line that lacks nothing but
    its end is whole.
    """

    def __init__(self) -> None:
        self.torn = 0
        self._decisions: dict[str, str] = {}
        self._owed: dict[str, None] = {}
        self._order: list[tuple[str, str]] = []

    def __contains__(self, decision_id: object) -> bool:
        """Whether a decision of this id is recorded, owed or not."""
        return decision_id in self._decisions

    def events(self) -> list[dict[str, Any]]:
        """All events in the order of their lines; keys `decision` (intents only), `decision_id`, `event`."""
        return [
            {"decision": json.loads(self._decisions[name]), "decision_id": name, "event": kind}
            if kind == "intent"
            else {"decision_id": name, "event": kind}
            for kind, name in self._order
        ]

    def pending(self) -> dict[str, Json]:
        """The owed decisions by id, oldest first: intents that have no commit."""
        return {name: json.loads(self._decisions[name]) for name in self._owed}


class Fold(LedgerView):
    """A view that still grows.

    `size` is the length of its whole lines, `last` is where the last of them begins, `ended` says whether that
    one has its newline.
    """

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self.last = 0
        self.ended = True

    def text_of(self, decision_id: str) -> str | None:
        """The canonical JSON of a recorded decision."""
        return self._decisions.get(decision_id)

    def owes(self, decision_id: str) -> bool:
        """Whether the intent is recorded and its commit is not."""
        return decision_id in self._owed

    def apply(self, kind: str, decision_id: str, text: str = "") -> str:
        """Take in one event, `text` being an intent's canonical JSON; returns why it cannot be, or nothing."""
        known = self._decisions.get(decision_id)
        if kind == "commit":
            if known is None:
                return f"it commits {decision_id!r}, which no line before it decides"
            self._owed.pop(decision_id, None)
        elif known is None:
            self._decisions[decision_id] = text
            self._owed[decision_id] = None
        elif known != text:
            return f"it gives {decision_id!r} another value than a line before it"
        self._order.append((kind, decision_id))
        return ""

    def committed(self) -> list[str]:
        """The ids of decisions that are not owed."""
        return [name for name in self._decisions if name not in self._owed]

    def without(self, dropped: Collection[str]) -> Fold:
        """What is left when these go, but for what is owed."""
        left = Fold()
        for kind, name in self._order:
            if name not in dropped or name in self._owed:
                left.apply(kind, name, self._decisions[name])
        return left

    def count(self) -> int:
        """The number of decisions."""
        return len(self._decisions)

    def to_bytes(self) -> bytes:
        """A whole file that says the same."""
        return b"".join(encode(kind, name, self._decisions[name]) for kind, name in self._order)


# ---- out ---------------------------------------------------------------------------------------------------


def check_id(decision_id: object) -> None:
    """Check the id of a decision.

    Raises:
        NotStorable: it is not a str of 1 to 500 characters that UTF-8 can say.
    """
    if type(decision_id) is not str or not 1 <= len(decision_id) <= MAX_ID_CHARS:
        said = f"{len(decision_id)} characters" if isinstance(decision_id, str) else type(decision_id).__name__
        raise _not_storable("decision_id", f"an id is a plain str of 1 to {MAX_ID_CHARS} characters, not {said}")
    _check(decision_id, ("decision_id",), 0)
    if what := in_force().in_name(decision_id):
        raise _not_storable("decision_id", what, hint="name the choice, not what was chosen")


def canonical(decision: object) -> str:
    """The JSON text by which decisions are compared: sorted keys, so equal texts are equal decisions.

    Raises:
        NotStorable: with the path of the part that JSON cannot say, that would come back as something else, or that
            holds a secret.
    """
    _check(decision, ("decision",), 0)
    text = _dumps(decision)
    if found := in_force().find(text.encode(), json.loads):
        hint = "record the choice without it: the code that acts on it knows where it is"
        raise _not_storable(f"decision{found.path}", found.what, hint=hint)
    return text


def encode(kind: str, decision_id: str, text: str = "") -> bytes:
    """One event as its line; `text` is the canonical JSON of an intent's decision.

    Raises:
        NotStorable: the line is longer than one write may be.
    """
    name = _dumps(decision_id)
    head = f'"decision": {text}, ' if kind == "intent" else ""
    line = f'{{{head}"decision_id": {name}, "event": "{kind}"}}\n'.encode()
    if len(line) > MAX_LINE_BYTES:
        why = f"its line would have {len(line)} bytes, {MAX_LINE_BYTES} is the limit"
        raise _not_storable("decision", why, hint="record the choice here and keep its body elsewhere")
    return line


def short(text: str) -> str:
    """A text as a message shows it."""
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… ({len(text)} characters)"


def digest(text: str) -> str:
    """A value as a message shows it, which may be confidential: the start of its digest."""
    return sha256(text.encode()).hexdigest()[:_DIGITS]


def _dumps(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def _not_storable(path: str, why: str, *, hint: str = "") -> NotStorable:
    return NotStorable(
        f"{path} cannot be written to a decision ledger: {why}",
        where=path,
        why="nothing was written",
        hint=hint or "use None, bool, int, float, str, list and dict with str keys",
        path=path,
    )


def _check(value: object, path: tuple[str, ...], depth: int) -> None:
    why = _refusal(value)
    if depth > _MAX_DEPTH:
        why = f"it is nested more than {_MAX_DEPTH} deep, or contains itself"
    if why:
        raise _not_storable(_shown(path), why)
    if isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, (*path, f"[{index}]"), depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str or not _is_text(key):
                why = f"a key must be plain text, not {type(key).__qualname__}"
                raise _not_storable(_shown((*path, _key(key))), why)
            _check(item, (*path, _key(key)), depth + 1)


def _key(key: object) -> str:
    """A key as a part of a path, long ones cut."""
    text = f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"
    return text if len(text) <= _SHOWN_KEY else f"{text[: _SHOWN_KEY - 1]}…{text[-1] if text[0] == '[' else ''}"


def _shown(path: tuple[str, ...]) -> str:
    """A path as a message shows it: the first parts and the last one."""
    if len(path) > _SHOWN_PARTS:
        path = (*path[: _SHOWN_PARTS - 1], "…", path[-1])
    return "".join(path)


def _refusal(value: object) -> str:
    """Why a value cannot stand in a line, whatever it contains."""
    if type(value) not in _PLAIN:
        return f"{type(value).__qualname__} is not a plain JSON type"
    if isinstance(value, float) and not math.isfinite(value):
        return f"JSON has no {value}"
    if isinstance(value, int) and value.bit_length() > _MAX_INT_BITS:
        return f"an integer of {value.bit_length()} bits may not be read back; write it as text"
    if isinstance(value, str) and not _is_text(value):
        return "it has half a surrogate pair, which is no text"
    return ""


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


# ---- in ----------------------------------------------------------------------------------------------------


def load(data: bytes, path: str) -> Fold:
    """Read a whole file; a torn last line is counted in `torn` and not part of `size`.

    Torn is a last line that JSON refuses and that lacks its end, or pages: a write reaches the disk in pages, in any
    order, and one that did not arrive reads as NULs. Any other that JSON refuses was whole once, and acknowledged: it
    is damaged, and never cut. No part of a line of ours is JSON, so one that is and has no newline lacks only that: an
    editor or a crash took it.

    Arguments:
        data: the bytes of the file.
        path: its name, for messages.

    Raises:
        Corrupt: another line is no event, or no line is and the bytes are not the beginning of one.
        RecursionError, MemoryError: the stack or the memory of the caller does not do for a line that is whole.
            Nothing is known of that line then, least of all that it is torn.
    """
    fold = Fold()
    number = 0
    while fold.size < len(data):
        number += 1
        end = data.find(b"\n", fold.size)
        line = data[fold.size : end] if end >= 0 else data[fold.size :]
        is_last = end < 0 or end + 1 == len(data)
        try:
            value, problem, torn = _parse(line)
        except RecursionError:
            if _depth(line) <= _DEEPEST:
                raise
            _corrupt(path, number, f"its decision is nested more than {_MAX_DEPTH} deep")
        if is_last and torn and (end < 0 or b"\0" in line):
            if number == 1 and not _begins_like_ours(line):
                _corrupt(path, number, "the file does not begin like a decision ledger")
            fold.torn = len(data) - fold.size
            return fold
        problem = problem or _problem(value) or fold.apply(value["event"], value["decision_id"], _text(value))
        if problem:
            _corrupt(path, number, problem)
        fold.ended = end >= 0
        fold.last, fold.size = fold.size, (end + 1 if fold.ended else len(data))
    return fold


def _parse(line: bytes) -> tuple[Any, str, bool]:
    """The line's value, why there is none, and whether that may be a torn write (what we refuse ourselves is none)."""
    try:
        value = json.loads(line.decode(), object_pairs_hook=_unique, parse_constant=_refused, parse_float=_finite)
    except json.JSONDecodeError as error:
        return None, f"it is no JSON ({error})", error.msg != "Extra data" or b"\0" in line
    except UnicodeDecodeError as error:
        return None, f"it is no JSON ({error})", error.reason == "unexpected end of data" or b"\0" in line
    except ValueError as error:
        return None, f"it is no JSON of ours ({error})", False
    return value, "", False


def _depth(line: bytes) -> int:
    """How deep a line is nested, without parsing it."""
    deepest = depth = 0
    for bracket in _STRING.sub(b"", line):
        depth += (bracket in b"[{") - (bracket in b"]}")
        deepest = max(deepest, depth)
    return deepest


def _problem(value: object) -> str:
    """Why a parsed line is no event."""
    if not isinstance(value, dict):
        return f"it is no object but {short(repr(value))}"
    kind = value.get("event")
    if not isinstance(kind, str) or kind not in _KEYS:
        return "it is neither an intent nor a commit"
    if set(value) != _KEYS[kind]:
        return f"its keys are {short(str(sorted(value)))}, those of this event are {sorted(_KEYS[kind])}"
    try:
        check_id(value["decision_id"])
        _check(value.get("decision"), ("decision",), 0)
    except NotStorable as error:
        return error.message
    return ""


def _text(event: dict[str, Any]) -> str:
    return _dumps(event["decision"]) if event["event"] == "intent" else ""


def _begins_like_ours(line: bytes) -> bool:
    """A torn first line is the beginning of one of ours, or pages that never arrived; else the file is somebody's."""
    head = line[: len(_HEAD)]
    return head.startswith(b"\0") or _HEAD.startswith(head)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")
    return value


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is not in JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value


def _corrupt(path: str, number: int, problem: str) -> NoReturn:
    raise Corrupt(
        f"line {number} of {path} cannot be used: {problem}",
        where=f"{path}:{number}",
        why="nothing was changed; only a last line that lacks its end or pages of it is ever cut",
        hint=f"look at it (sed -n {number}p {path}), mend it or move the file away, and open it again",
        path=path,
        line=number,
    )
