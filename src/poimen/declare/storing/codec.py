"""What a codec is, what a refusal is, and the codecs that users register.

A codec turns values of one annotation into JSON trees and back. A refusal says why a value or an
annotation cannot be stored; it gathers its path while it rises, so that values that are fine pay
nothing for paths. A registered codec has a name, which is what the log holds where the annotation
does not tell the class; the class itself may move. This module must never know which annotations
there are. It keeps the invariant that one registered name stands for one class.

Source: design api.md, "Values" (refused before anything happens, naming the path; registered codecs).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final, TypeAlias

from poimen.declare.storing.canonical import NotJson, from_bytes, to_bytes
from poimen.declare.storing.hints import label
from poimen.declare.storing.screening import screened
from poimen.kernel.errors import BadDeclaration, NotStorable
from poimen.secrecy.speaking import redacted

Encode: TypeAlias = Callable[[Any, int], Any]
"""From a value and the number of containers around it to a JSON tree."""

Decode: TypeAlias = Callable[[Any], Any]
"""From a JSON tree to a value."""

MAX_DEPTH: Final = 100
ALL_KINDS: Final[frozenset[type]] = frozenset({NoneType, bool, int, float, str, list, dict})
_SHOWN_PARTS: Final = 12
_LONGEST: Final = 4096

_KIND_NAMES: Final[dict[type, str]] = {
    NoneType: "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """How values of one annotation are stored.

    Arguments:
        label: the annotation as messages name it.
        tag: what tells its values from others where the JSON alone does not (`{"$type": tag}`).
        types: the classes whose direct instances it takes; empty when it cannot say.
        kinds: the JSON kinds that it makes, as the classes of the tree.
        enc, dec: the two ways.
        natural: the decoded value is the JSON tree itself, whatever the codec; such codecs share a
            kind without a tag.
        same: values of exactly this class are encoded as themselves, without a check.
        open: it takes any value (`Any`, `object`).
    """

    label: str
    tag: str
    types: frozenset[type]
    kinds: frozenset[type]
    enc: Encode
    dec: Decode
    natural: bool = False
    same: type | None = None
    open: bool = False

    def dump(self, value: object, path: str) -> bytes:
        """A value as canonical JSON, after the last look at it.

        Raises:
            NotStorable: when it does not match, cannot be stored, or holds a secret; the message starts with the path.
        """
        try:
            body = to_bytes(self.enc(value, 0))
        except Refusal as refusal:
            raise refusal.error(path) from refusal.__cause__
        except Exception as cause:  # the value's own code (properties, `__eq__`) runs inside and may raise anything
            raise foreign(path, cause) from cause
        return screened(body, path)

    def load(self, body: bytes, path: str) -> Any:
        """The value of JSON bytes, canonical or not.

        Raises:
            NotStorable: when they are no JSON, or do not fit; the message starts with the path.
        """
        try:
            return self.dec(from_bytes(body))
        except Refusal as refusal:
            raise refusal.error(path) from refusal.__cause__
        except NotJson as cause:
            raise Refusal(f"{self.label} is annotated, the bytes are no JSON: {cause}").error(path) from cause
        except Exception as cause:  # the class's own code runs inside and may raise anything
            raise foreign(path, cause) from cause


RESERVED: Final = frozenset(
    {"Secret", "str", "bytes", "datetime", "date", "time", "timedelta", "Decimal", "UUID", "Path", "PurePath"}
    | {"list", "dict", "object", "pairs", "tuple", "set", "frozenset"}
)
"""Tags that poimen itself gives."""


def class_tag(cls: type) -> str:
    """The tag of a user's class: its bare name, so that a class may move to another module."""
    return label(cls) if cls.__name__ in RESERVED else cls.__name__


class Refusal(Exception):
    """Why something cannot be stored; `inside` adds the path from the inner end.

    Arguments:
        text: what is wrong, without the path.
        hint: how to go on.
        deep: the value is nested too deep, or contains itself.
        later: a name is not defined yet; it may work later.
    """

    def __init__(self, text: str, *, hint: str = "", deep: bool = False, later: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint
        self.deep = deep
        self.later = later
        self._parts: list[str] = []
        self._within: list[int] = []

    def inside(self, part: str, container: object = None) -> Refusal:
        """Say that it happened in `part` (`.name`, `[3]`) of a container; returns itself."""
        self._parts.append(part)
        self._within.append(id(container))
        return self

    def error(self, root: str, *, where: str = "") -> NotStorable:
        """The public error, its path starting with the name `root`."""
        text, parts = self.text, self._parts[::-1]
        if self.deep:
            first_seen: dict[int, int] = {}
            for depth, place in enumerate(self._within[::-1]):
                if place in first_seen:
                    text, parts = "the value contains itself", parts[:depth]
                    break
                first_seen[place] = depth
        if len(parts) > _SHOWN_PARTS:
            parts = [*parts[: _SHOWN_PARTS - 1], "…", parts[-1]]
        path = root + "".join(parts)
        return NotStorable(f"{path or 'annotations'}: {text}", where=where, hint=self.hint, path=path)


def foreign(path: str, cause: Exception, *, where: str = "") -> NotStorable:
    """The public error for what a value's own code (a property, `__eq__`) raised while it was stored or read."""
    said = "it is nested too deep" if isinstance(cause, RecursionError) else f"its own code raised {text_of(cause)}"
    return NotStorable(f"{path}: {said}", where=where, path=path)


def text_of(cause: BaseException) -> str:
    """The class and the text of an exception, whose `__str__` may itself raise."""
    try:
        return redacted(f"{type(cause).__name__}: {cause}", most=_LONGEST)
    except Exception:  # noqa: BLE001 (an error about an error must not hide the first)
        return type(cause).__name__


def too_deep() -> Refusal:
    """The refusal of a value with more than `MAX_DEPTH` containers inside each other."""
    return Refusal(
        f"nested more than {MAX_DEPTH} levels deep",
        hint="store a flatter value, such as a list of nodes that name each other by id",
        deep=True,
    )


def mismatch(expected: str, value: object) -> Refusal:
    """The refusal of a value that is no instance of its annotation."""
    return Refusal(
        f"expected {expected}, found {label(type(value))}",
        hint="pass a value of the annotated type, or annotate the type passed",
    )


def differs(expected: str, tree: object) -> Refusal:
    """The refusal of stored JSON that does not fit the annotation."""
    return Refusal(f"{expected} is annotated, {_KIND_NAMES.get(type(tree), 'something else')} is stored", hint=CHANGED)


CHANGED: Final = (
    "if the type changed since: keep reading the old form (a union, a default), or run the recorded version of the code"
)


def subclass_refused(expected: str, value: object) -> Refusal:
    """The refusal of an instance of a subclass, which would come back without what the subclass adds."""
    found = label(type(value))
    return Refusal(
        f"expected {expected}, found its subclass {found}, which would lose what it adds",
        hint=f"annotate {found} or a union of the classes that occur, or register a codec for {expected}",
    )


def as_base(value: Any, expected: str, base: type, plain: Callable[[Any], Any]) -> Any:
    """A value of a subclass of a builtin as the builtin, where nothing is lost by it.

    A `StrEnum` member where `str` is annotated is stored as its text: equal, and without attributes of its own.

    Raises:
        Refusal: when it is no instance, carries attributes, or differs from its plain form.
    """
    if not isinstance(value, base):
        raise mismatch(expected, value)
    carries = getattr(value, "__dict__", None) and not hasattr(type(value), "__members__")
    if carries or hasattr(value, "_fields") or (bare := plain(value)) != value:
        raise subclass_refused(expected, value)
    return bare


def key_part(key: object) -> str:
    """The path of an item under its key, long keys cut."""
    text = repr(key)
    return f"[{text}]" if len(text) <= 40 else f"[{text[:39]}…]"  # noqa: PLR2004


def json_tree(value: Any, depth: int = 0) -> Any:
    """A checked copy of what a foreign encoder (a registered codec, pydantic) gives as JSON.

    Raises:
        Refusal: when it is not made of JSON types alone.
    """
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        if value - value == 0.0:
            return value
        raise Refusal(f"{value} has no JSON", hint="store None for a missing number")
    if depth >= MAX_DEPTH and kind in {list, dict}:
        raise too_deep()
    if kind is list:
        out: list[Any] = []
        try:
            for one in value:
                out.append(json_tree(one, depth + 1))  # noqa: PERF401 (the path needs the place)
        except Refusal as refusal:
            raise refusal.inside(f"[{len(out)}]", value) from refusal.__cause__
        return out
    if kind is dict:
        found: dict[str, Any] = {}
        key: Any = None
        try:
            for key, one in value.items():
                if type(key) is not str:
                    raise mismatch("a str key", key)
                found[key] = json_tree(one, depth + 1)
        except Refusal as refusal:
            raise refusal.inside(key_part(key), value) from refusal.__cause__
        return found
    raise mismatch("JSON", value)


# ---- codecs that users register ----------------------------------------------------------------------------

_OWN: Final[frozenset[type]] = ALL_KINDS | {tuple, set, frozenset}


class Registry:
    """The registered codecs of this process; `generation` grows with each change."""

    def __init__(self) -> None:
        self.generation = 0
        self.by_class: dict[type, Codec] = {}
        self.by_name: dict[str, Codec] = {}
        self._classes: dict[str, type] = {}

    def add(self, cls: type, name: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
        """Register a codec; the same class defined anew (a notebook cell run again) replaces its own.

        Raises:
            BadDeclaration: when the name is taken by another class, or is one of poimen's own.
        """
        if not isinstance(cls, type) or cls in _OWN:
            raise BadDeclaration(
                f"register_codec cannot take {label(cls)}",
                why="a codec is for a class of yours; builtin values have one form in all of JSON",
                hint="pass the class itself; wrap a builtin in a class of your own",
            )
        if not name or not name.isprintable() or name in RESERVED:
            raise BadDeclaration(
                f"{name!r} cannot name the codec of {label(cls)}",
                why="the name is stored with the values; poimen uses some names itself",
                hint="choose a name such as 'money.v1'",
            )
        other = self._classes.get(name)
        if other is not None and label(other) != label(cls):
            raise BadDeclaration(
                f"the codec name {name!r} is taken by {label(other)} and cannot name {label(cls)} too",
                why="values stored under the name could not be told apart",
                hint="choose another name",
            )
        for taken in [taken for taken, owner in self._classes.items() if label(owner) == label(cls)]:
            self.by_class.pop(self._classes.pop(taken))
            self.by_name.pop(taken)
        self._classes[name] = cls
        self.by_class[cls] = self.by_name[name] = _codec(cls, name, encode, decode)
        self.generation += 1


def _codec(cls: type, name: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> Codec:
    shown = label(cls)

    def enc(value: Any, depth: int) -> Any:
        # Instances of subclasses are the codec's to judge: it was written by who knows them.
        if not isinstance(value, cls):
            raise mismatch(shown, value)
        try:
            tree = encode(value)
        except Exception as cause:
            raise Refusal(f"the codec {name!r} failed: {text_of(cause)}") from cause
        try:
            return json_tree(tree, depth)
        except Refusal as refusal:
            refusal.text = f"{refusal.text}; the codec {name!r} must give JSON types"
            raise

    def dec(tree: Any) -> Any:
        try:
            value = decode(tree)
        except Exception as cause:
            raise Refusal(f"the codec {name!r} failed: {text_of(cause)}", hint=CHANGED) from cause
        if not isinstance(value, cls):
            raise Refusal(f"the codec {name!r} gave {label(type(value))} instead of {shown}")
        return value

    return Codec(label=shown, tag=name, types=frozenset({cls}), kinds=ALL_KINDS, enc=enc, dec=dec)


REGISTRY: Final = Registry()
"""Registration is a declaration about a class, like a method on it; it holds for all runtimes of the process."""
