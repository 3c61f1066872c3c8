"""Codecs of classes with named fields: dataclasses, attrs, msgspec structs, named tuples, typed dicts.

Each is stored as an object by field name. Reading is strict on purpose: a stored field that the
class no longer has is refused rather than dropped, because a renamed field with a default would
otherwise lose its value in silence. A new field with a default may be missing. This module must
never know how field types are compiled: it is handed the codecs. It keeps the invariant that a
value comes back with every field as stored, whatever `__post_init__` or a converter does.

Source: design api.md, "Values".
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from poimen.declare.storing.codec import (
    CHANGED,
    MAX_DEPTH,
    Codec,
    Refusal,
    class_tag,
    differs,
    mismatch,
    subclass_refused,
    text_of,
    too_deep,
)
from poimen.declare.storing.hints import label

_DICT: Final = frozenset({dict})


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a record class.

    Arguments:
        name: as stored, and as the attribute.
        init: the argument that sets it, None when the constructor takes none.
        required: reading fails when it is missing.
    """

    name: str
    init: str | None
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a record class is taken apart and put together.

    Arguments:
        cls: the class.
        fields: in order.
        settled: the constructor alone gives back what was stored; else the fields are set again.
        unset: a value that stands for a field that is not there (msgspec's `UNSET`).
        put: sets a field of an instance past a frozen class's own guard.
    """

    cls: type
    fields: tuple[Field, ...]
    settled: bool = True
    unset: object = None
    put: Callable[[Any, str, Any], None] = object.__setattr__


def shape_of(cls: type) -> Shape | None:
    """The fields of a record class; None when it is none.

    Raises:
        Refusal: when its constructor needs more than its fields.
    """
    if dataclasses.is_dataclass(cls):
        return _checked(_dataclass_shape(cls))
    if hasattr(cls, "__attrs_attrs__"):
        return _checked(_attrs_shape(cls))
    if hasattr(cls, "__struct_fields__") and hasattr(cls, "__struct_config__"):
        return _struct_shape(cls)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        defaults = getattr(cls, "_field_defaults", {})
        return Shape(cls=cls, fields=tuple(Field(name=n, init=n, required=n not in defaults) for n in cls._fields))
    return None


def _dataclass_shape(cls: type) -> Shape:
    missing = dataclasses.MISSING
    fields = tuple(
        Field(
            name=field.name,
            init=field.name if field.init else None,
            required=field.init and field.default is missing and field.default_factory is missing,
        )
        for field in dataclasses.fields(cls)
    )
    plain = all(field.init for field in fields) and not hasattr(cls, "__post_init__")
    return Shape(cls=cls, fields=fields, settled=plain)


def _attrs_shape(cls: type) -> Shape:
    attributes: tuple[Any, ...] = cls.__attrs_attrs__  # type: ignore[attr-defined]
    fields = tuple(
        Field(
            name=one.name,
            init=(getattr(one, "alias", None) or one.name.lstrip("_")) if one.init else None,
            required=one.init and type(one.default).__name__ == "_Nothing",
        )
        for one in attributes
    )
    return Shape(cls=cls, fields=fields, settled=False)


def _struct_shape(cls: Any) -> Shape:
    library: Any = sys.modules["msgspec"]
    return Shape(
        cls=cls,
        fields=tuple(Field(name=name, init=name, required=False) for name in cls.__struct_fields__),
        settled=not hasattr(cls, "__post_init__"),
        unset=library.UNSET,
        put=library.structs.force_setattr,
    )


def _checked(shape: Shape) -> Shape:
    parameters = inspect.signature(shape.cls).parameters
    takes = {field.init for field in shape.fields if field.init}
    for name, parameter in parameters.items():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            return shape
        if name not in takes and parameter.default is parameter.empty:
            raise Refusal(
                f"{label(shape.cls)} cannot be made from its fields: its __init__ asks for {name!r}",
                hint="give the argument a default, or register a codec for the class",
            )
    absent = takes - set(parameters)
    if absent:
        raise Refusal(
            f"{label(shape.cls)} cannot be made from its fields: its __init__ does not take {min(absent)!r}",
            hint="let __init__ take all fields, or register a codec for the class",
        )
    return shape


def record_codec(shape: Shape, shown: str, codecs: Mapping[str, Codec]) -> Codec:
    """The codec of a record class.

    Arguments:
        shape: its fields.
        shown: the annotation in messages.
        codecs: by field name.
    """
    cls, unset = shape.cls, shape.unset
    encs = [(field.name, codecs[field.name].enc) for field in shape.fields]
    tag = class_tag(cls)

    def enc(value: Any, depth: int) -> dict[str, Any]:
        if type(value) is not cls:
            raise subclass_refused(shown, value) if isinstance(value, cls) else mismatch(shown, value)
        if depth >= MAX_DEPTH:
            raise too_deep()
        out: dict[str, Any] = {}
        name, inner = "", depth + 1
        try:
            for name, field_enc in encs:
                part = getattr(value, name)
                if part is not unset or unset is None:
                    out[name] = field_enc(part, inner)
        except Refusal as refusal:
            raise refusal.inside(f".{name}", value) from refusal.__cause__
        except AttributeError as cause:
            raise Refusal("the field has no value").inside(f".{name}", value) from cause
        return out

    def dec(tree: Any) -> Any:
        if type(tree) is not dict:
            raise differs(shown, tree)
        if "$type" in tree and tree["$type"] == tag and type(tree.get("value")) is dict and len(tree) == 2:  # noqa: PLR2004
            # Stored when the annotation was a union of this class with others.
            tree = tree["value"]
        return build(_fields_dec(tree, shape, shown, codecs))

    build = _builder(shape, shown)
    return Codec(label=shown, tag=tag, types=frozenset({cls}), kinds=_DICT, enc=enc, dec=dec)


def _fields_dec(tree: dict[str, Any], shape: Shape, shown: str, codecs: Mapping[str, Codec]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    name = ""
    try:
        for field in shape.fields:
            name = field.name
            if name in tree:
                values[name] = codecs[name].dec(tree[name])
            elif field.required:
                raise Refusal(f"{shown} needs the field, none is stored", hint="give the new field a default")
    except Refusal as refusal:
        raise refusal.inside(f".{name}") from refusal.__cause__
    if len(values) != len(tree):
        raise unknown_field(tree, codecs, shown)
    return values


def unknown_field(tree: Mapping[str, Any], known: Mapping[str, Any], shown: str) -> Refusal:
    """The refusal of an object with a field that the class has not."""
    extra = next(name for name in tree if name not in known)
    return Refusal(
        f"{shown} has no such field, one is stored",
        hint="keep the field, with a default, until no stored value has it; a renamed field needs a codec",
    ).inside(f".{extra[:60]}")


def _builder(shape: Shape, shown: str) -> Callable[[dict[str, Any]], Any]:
    cls = shape.cls
    inits = {field.name: field.init for field in shape.fields}

    def build(values: dict[str, Any]) -> Any:
        arguments = {init: value for name, value in values.items() if (init := inits[name]) is not None}
        try:
            made = cls(**arguments)
            if not shape.settled:
                for name, value in values.items():
                    shape.put(made, name, value)
        except Exception as cause:
            raise Refusal(f"{shown} refuses its stored fields: {text_of(cause)}", hint=CHANGED) from cause
        return made

    return build


def typed_dict_codec(cls: type, shown: str, codecs: Mapping[str, Codec], required: frozenset[str]) -> Codec:
    """The codec of a `TypedDict`; keys that it does not declare are refused, as they would be lost to its readers.

    Arguments:
        cls: the class.
        shown: the annotation in messages.
        codecs: by key.
        required: the keys that must be there.
    """

    def enc(value: Any, depth: int) -> dict[str, Any]:
        if type(value) is not dict:
            raise mismatch(shown, value)
        if depth >= MAX_DEPTH:
            raise too_deep()
        out: dict[str, Any] = {}
        name: Any = ""
        try:
            for name, part in value.items():
                if name not in codecs:
                    raise Refusal(f"{shown} declares no such key", hint="declare it, or annotate dict[str, Any]")
                out[name] = codecs[name].enc(part, depth + 1)
        except Refusal as refusal:
            raise refusal.inside(f".{name}", value) from refusal.__cause__
        if missing := required - out.keys():
            raise Refusal(f"{shown} needs the key, there is none").inside(f".{min(missing)}", value)
        return out

    def dec(tree: Any) -> dict[str, Any]:
        if type(tree) is not dict:
            raise differs(shown, tree)
        return _fields_dec(tree, shape, shown, codecs)

    fields = tuple(Field(name=name, init=name, required=name in required) for name in codecs)
    shape = Shape(cls=cls, fields=fields)
    natural = all(codec.natural for codec in codecs.values())
    return Codec(label=shown, tag=class_tag(cls), types=_DICT, kinds=_DICT, enc=enc, dec=dec, natural=natural)


def typed_dict_required(cls: Any, hints: Mapping[str, Any]) -> frozenset[str]:
    """The keys of a `TypedDict` that must be there, also where its annotations are strings."""
    declared: frozenset[str] = cls.__required_keys__

    def required(name: str, hint: Any) -> bool:
        while (origin := typing.get_origin(hint)) is not None:
            if origin is typing.Required:
                return True
            if origin is typing.NotRequired:
                return False
            if origin is not typing.Annotated:
                break
            hint = typing.get_args(hint)[0]
        return name in declared

    return frozenset(name for name, hint in hints.items() if required(name, hint))
