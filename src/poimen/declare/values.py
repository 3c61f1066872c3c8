"""Values as stored: checked against their annotations both ways, as canonical JSON.

`dump` and `load` are the two directions, `Parameters` does both for the arguments of a call, and
`storable` says beforehand whether an annotation can be stored at all. What a program is handed is
always the value decoded from the bytes, live as in replay.

What comes back differs from what was given in these documented ways, each with an equal value: the
order of mapping keys; `Sequence` and `Iterable` come back as lists, `Mapping` as dict, `Set` as
set; a subclass of a builtin (a `StrEnum` member, a `defaultdict`) comes back as the annotated
builtin; an int where `float` is annotated comes back as float. Constraints inside `Annotated` are
for whoever reads them: here the type alone is checked. Where nothing is annotated (`Any`,
`object`), JSON types are stored as they are, tuples, sets, bytes, times, Decimal, UUID, paths and
registered classes with a tag; other classes are refused with the advice to annotate them. `dump_own`
stores by the classes of the value itself, for a reader who has an equal one at hand.

This module must never know about the log or a run. It keeps the invariant that no stored byte
chooses which class is made: annotations and registered names alone do.

Source: design api.md, "Values"; storage.md, "The log" (canonical JSON); cases C34 and C38.
"""

from __future__ import annotations

import ast
from math import isfinite
from types import GenericAlias, GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Union

from poimen.declare.storing.annotations import codec_for
from poimen.declare.storing.canonical import Json, digest, from_bytes, to_bytes
from poimen.declare.storing.codec import REGISTRY, Codec, Refusal, foreign
from poimen.declare.storing.hints import label
from poimen.declare.storing.own import OwnClasses
from poimen.declare.storing.parameters import Parameters
from poimen.declare.storing.screening import screened
from poimen.kernel.errors import NotStorable
from poimen.secrecy.speaking import redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Json",
    "Parameters",
    "digest",
    "dump",
    "dump_own",
    "error_fields",
    "load",
    "may_be",
    "register_codec",
    "storable",
]

T = TypeVar("T")

_ANY: Final = codec_for(Any)

_BUILTIN: Final[dict[str, type]] = {
    kind.__name__: kind for kind in (bool, int, float, str, bytes, list, tuple, set, frozenset, dict)
}


def dump(value: object, annotation: Any = Any, *, path: str = "value") -> bytes:
    """Check a value against its annotation and write it as canonical JSON.

    Arguments:
        value: what to store.
        annotation: an evaluated annotation in which no name is left; what a function returns is written and read by
            its `Parameters`, which know where the names in its annotation are looked up.
        path: how messages name the value.

    Raises:
        NotStorable: when it does not match, cannot be stored, or holds a secret; the message starts with the path.

    Source: design api.md, "Values".
    """
    return _codec(annotation, path).dump(value, path)


def dump_own(value: T, *, path: str = "value") -> tuple[bytes, T]:
    """Write a value by its own class, and read it back.

    Arguments:
        value: what to store: what `Any` takes, and objects whose class could be annotated, also inside lists,
            tuples, sets and dicts.
        path: how messages name the value.

    Returns:
        Canonical JSON, and an equal value of the same class, decoded from it.

    Raises:
        NotStorable: when it cannot be stored, or would not come back equal; the message starts with the path.

    Source: design api.md, "Values"; protocol.md, section 3, "Decisions".
    """
    try:
        try:
            body = to_bytes(_ANY.enc(value, 0))
            back = _ANY.dec(from_bytes(body))
        except Refusal:  # a class that only the value itself tells; the bytes of all others are the same
            own = OwnClasses()
            body = to_bytes(own.enc(value))
            back = own.dec(from_bytes(body))
    except Refusal as refusal:
        raise refusal.error(path) from refusal.__cause__
    except Exception as cause:  # the value's own code (properties, `__eq__`) runs inside and may raise anything
        raise foreign(path, cause) from cause
    return screened(body, path), back


def load(body: bytes, annotation: Any = Any, *, path: str = "value") -> Any:
    """Read what `dump` wrote and check it against the annotation.

    Arguments:
        body: JSON, UTF-8; need not be canonical.
        annotation: as given to `dump`, or what the code says now.
        path: how messages name the value.

    Raises:
        NotStorable: when it is no JSON, or does not fit the annotation (the type has changed since).

    Source: design api.md, "Values".
    """
    return _codec(annotation, path).load(body, path)


def _codec(annotation: Any, path: str) -> Codec:
    try:
        return codec_for(annotation)
    except Refusal as refusal:
        raise refusal.error(path) from refusal.__cause__
    except Exception as cause:  # a class that is looked into may raise anything
        raise foreign(path, cause) from cause


def storable(annotation: Any, *, path: str) -> None:
    """Refuse an annotation whose values can never be stored; open ones (`Any`, type variables) pass.

    Arguments:
        annotation: an evaluated annotation.
        path: how messages name the value.

    Raises:
        NotStorable: with the path to the part at fault (`plan.client: httpx.Client cannot be stored`).

    Source: design api.md, "Values" (refused before anything happens).
    """
    try:
        codec_for(annotation)
    except Refusal as refusal:
        raise refusal.error(path) from refusal.__cause__


def may_be(words: str, body: bytes) -> bool:
    """Whether a stored value can be what an annotation says in words, for whoever has the words and not the code.

    Only Python's plain types are known by their words; of everything else nothing is told, so it passes.

    Arguments:
        words: an annotation as messages write it, such as `list[int] | None`. They are parsed and never evaluated.
        body: JSON, UTF-8.
    """
    try:
        annotation = _said_by(ast.parse(words, mode="eval").body)
        storable(annotation, path="value")
    except (SyntaxError, ValueError, TypeError, RecursionError, NotStorable):
        return True
    try:
        load(body, annotation)
    except NotStorable:
        return b'"$' in body  # a form of storing that only the code of its class may read
    return True


def _said_by(node: ast.expr) -> Any:
    """The annotation that an expression names, `Any` in place of what is no plain type."""
    if isinstance(node, ast.Constant):
        return node.value if node.value in {None, ...} else Literal[node.value]
    if isinstance(node, ast.Name):
        return _BUILTIN.get(node.id, Any)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        arms = _said_by(node.left), _said_by(node.right)
        return Any if Any in arms else Union[arms]  # noqa: UP007 (made at run time, and `None | None` is an error)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in _BUILTIN:
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return GenericAlias(_BUILTIN[node.value.id], tuple(_said_by(one) for one in inner))
    return Any


def register_codec(cls: type[T], *, name: str, encode: Callable[[T], Json], decode: Callable[[Json], T]) -> None:
    """Say how values of a class are stored; it then works as an annotation, inside others, and under `Any`.

    Arguments:
        cls: the class; instances of subclasses are handed to `encode` too.
        name: what the log calls it where no annotation tells the class; never change it. A version in it
            (`money.v1`) lets a later codec read old values.
        encode: from a value to JSON types.
        decode: the reverse.

    Raises:
        BadDeclaration: when the name is taken by another class.

    Source: design api.md, "Values" (registered codecs).
    """
    REGISTRY.add(cls, name, encode, decode)


# ---- errors ------------------------------------------------------------------------------------------------

_MAX_FIELDS: Final = 32
_MAX_BYTES: Final = 4096
_MAX_NESTING: Final = 4
_NOT_FIELDS: Final = frozenset({"args", "with_traceback", "add_note"})


def error_fields(exc: BaseException) -> dict[str, Json]:
    """The plain attributes of an exception, for a record that is readable for ever.

    Arguments:
        exc: any exception; its `__str__`, attributes and properties are never trusted, properties not called.

    Returns:
        At most 32 fields by attribute name: JSON scalars, and lists and dicts of them, each at most 4 KiB as
        JSON. A text that was cut says so at its end, a list or dict that is too large is told in words.

    Source: design api.md, "Errors" (`StepError.fields`); case C38.
    """
    fields: dict[str, Json] = {}
    try:
        for name, value in _attributes(exc):
            if len(fields) == _MAX_FIELDS:
                break
            try:
                fields[name] = _bounded(_plain(value, 0))
            except Exception:  # noqa: BLE001, S112 (an attribute that cannot be read is no reason to lose the error)
                continue
    except Exception:  # noqa: BLE001 (nor is an exception that cannot be looked into)
        return fields
    return fields


def _attributes(exc: BaseException) -> Iterator[tuple[str, object]]:
    own = object.__getattribute__(exc, "__dict__")
    yield from ((name, value) for name, value in list(own.items()) if _is_field(name))
    for cls in type(exc).__mro__:
        for name, slot in list(vars(cls).items()):
            # What C code and __slots__ hold (OSError.errno); properties are code and may do anything.
            if isinstance(slot, MemberDescriptorType | GetSetDescriptorType) and _is_field(name) and name not in own:
                try:
                    yield name, slot.__get__(exc, type(exc))
                except Exception:  # noqa: BLE001, S112 (an unset slot raises)
                    continue


def _is_field(name: object) -> bool:
    return type(name) is str and not name.startswith("_") and name not in _NOT_FIELDS and len(name) <= 200  # noqa: PLR2004


def _plain(value: object, nesting: int) -> Json:
    """A JSON form of a plain value.

    Raises:
        TypeError: when it is not plain.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return redacted(str.__str__(value)).encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int):
        bare = int.__int__(value)
        return bare if bare.bit_length() <= _MAX_BYTES else f"an integer of {bare.bit_length()} bits"
    if isinstance(value, float):
        number = float.__float__(value)
        return number if isfinite(number) else str(number)
    if nesting < _MAX_NESTING and type(value) in {list, tuple}:
        items: Any = value
        return [_plain(one, nesting + 1) for one in items]
    if nesting < _MAX_NESTING and type(value) is dict:
        return {key: _plain(one, nesting + 1) for key, one in value.items() if _is_key(key)}
    raise TypeError(label(type(value)))


def _is_key(key: object) -> bool:
    if type(key) is not str:
        raise TypeError(label(type(key)))
    key.encode()
    return True


def _bounded(tree: Json) -> Json:
    size = len(to_bytes(tree))
    if size <= _MAX_BYTES:
        return tree
    if not isinstance(tree, str):
        kind = "dict" if isinstance(tree, dict) else "list"
        return f"… (a {kind} of {size} bytes as JSON, not kept)"
    mark = f"… (cut, {len(tree)} characters)"
    # Escapes make up to six bytes of a character: halve what is too much until it fits.
    kept = min(len(tree), _MAX_BYTES)
    while len(to_bytes(tree[:kept] + mark)) > _MAX_BYTES:
        kept -= max(1, (len(to_bytes(tree[:kept] + mark)) - _MAX_BYTES) // 6)
    return tree[:kept] + mark
