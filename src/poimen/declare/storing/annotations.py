"""Which codec an annotation gets.

Read `Building.build` top to bottom: it is the list of what can be stored. A codec is built once per
annotation and kept; recursive types refer to the codec that is still being built. This module must
never see a value. It keeps the invariant that an annotation which can never be stored is refused
here, before anything happens, with the path to the part at fault.

Source: design api.md, "Values".
"""

from __future__ import annotations

import collections
import enum
import types
import typing
from collections.abc import Callable
from inspect import Parameter
from typing import Any, Final

from poimen.declare.storing.classes.pydantic_models import has_schema, is_model, model_codec, model_kinds, schema_codec
from poimen.declare.storing.classes.records import (
    record_codec,
    shape_of,
    typed_dict_codec,
    typed_dict_required,
)
from poimen.declare.storing.codec import (
    ALL_KINDS,
    MAX_DEPTH,
    REGISTRY,
    Codec,
    Refusal,
    class_tag,
    mismatch,
    text_of,
)
from poimen.declare.storing.containers import dict_codec, list_codec, set_codec, tuple_codec
from poimen.declare.storing.hints import (
    Scope,
    Unresolved,
    alias_value,
    class_hints,
    is_alias,
    is_typed_dict,
    label,
    owner,
    resolved,
    stands_for,
    substituted,
    type_arguments,
)
from poimen.declare.storing.leaves import LEAVES, enum_codec, literal_codec
from poimen.declare.storing.unions import ANY, any_of, union_codec

_KEPT: Final = 4096
_LISTS: Final = frozenset(
    {
        collections.abc.Sequence,
        collections.abc.MutableSequence,
        collections.abc.Collection,
        collections.abc.Iterable,
    }
)
_MAPPINGS: Final = frozenset({collections.abc.Mapping, collections.abc.MutableMapping})
_SETS: Final = frozenset({collections.abc.Set, collections.abc.MutableSet})
_ANYTHING: Final[tuple[Any, ...]] = (Any, object, Parameter.empty)

_kept: dict[Any, Codec] = {}
_kept_generation = 0


def codec_for(annotation: Any, scope: Scope | None = None) -> Codec:
    """The codec of an annotation, built once.

    Arguments:
        annotation: evaluated; strings inside it are looked up in the scope.
        scope: where it was written.

    Raises:
        Refusal: when it can never be stored, or a name in it is not defined yet.
    """
    global _kept_generation  # noqa: PLW0603 (a cache beside the registry that it depends on)
    if _kept_generation != REGISTRY.generation or len(_kept) > _KEPT:
        _kept.clear()
        _kept_generation = REGISTRY.generation
    try:
        found = _kept.get(annotation)
    except TypeError:
        return _Building(scope).build(annotation)
    if found is None:
        building = _Building(scope)
        found = building.build(annotation)
        _kept.update(building.classes())
        if not building.contextual:
            _kept[annotation] = found
    return found


class _Building:
    """One construction of a codec and of all that it refers to."""

    def __init__(self, scope: Scope | None) -> None:
        self.contextual = False
        self._scope = scope
        self._owner: Any = None
        self._depth = 0
        self._done: dict[Any, Codec] = {}
        self._open: dict[Any, list[Codec]] = {}
        self._unions: list[tuple[Any, list[Codec]]] = []

    def classes(self) -> dict[Any, Codec]:
        """The codecs of classes that were built on the way; they do not depend on who asked."""
        return {key: codec for key, codec in self._done.items() if isinstance(key, type)}

    def build(self, annotation: Any) -> Codec:
        """The codec of one annotation."""
        if self._depth > MAX_DEPTH:
            raise Refusal(f"{label(annotation)} grows without end")
        self._depth += 1
        try:
            return self._one(annotation)
        finally:
            self._depth -= 1

    def _one(self, annotation: Any) -> Codec:
        if annotation is None:
            return LEAVES[types.NoneType]
        if any(annotation is one for one in _ANYTHING):
            return ANY
        origin = typing.get_origin(annotation)
        try:
            registered = REGISTRY.by_class.get(annotation) or REGISTRY.by_class.get(origin)
            leaf = LEAVES.get(annotation) or LEAVES.get(origin)
        except TypeError:
            registered = leaf = None
        if registered or leaf:
            return typing.cast("Codec", registered or leaf)
        if isinstance(annotation, str | typing.ForwardRef):
            return self._forward(annotation)
        if origin is typing.Union or origin is types.UnionType:
            return self._union(annotation)
        if origin is typing.Literal:
            return literal_codec(annotation, typing.get_args(annotation))
        other = stands_for(annotation)
        if other is not None:
            return self.build(other)
        if is_alias(annotation):
            return self._once(annotation, label(annotation), lambda: self._alias(annotation))
        if annotation is typing.Self and self._owner is not None:
            self.contextual = True
            return self.build(self._owner)
        if annotation is typing.NoReturn or annotation is typing.Never:
            return _never()
        return self._generic(annotation, origin or annotation)

    def _forward(self, annotation: str | typing.ForwardRef) -> Codec:
        self.contextual = True
        name = annotation if isinstance(annotation, str) else annotation.__forward_arg__
        if self._scope is None:
            raise Refusal(f"the name {name!r} cannot be looked up", hint="pass the type itself, not its name")
        try:
            found = resolved(annotation, self._scope)
        except Unresolved as cause:
            raise unresolved(cause) from cause
        return self._once((name, id(self._scope.names)), name, lambda: self.build(found))

    def _alias(self, annotation: Any) -> Codec:
        outer = self._scope
        self._scope = Scope.of(typing.get_origin(annotation) or annotation)
        try:
            return self.build(_value_of(annotation))
        finally:
            self._scope = outer

    # ---- parts ---------------------------------------------------------------------------------------------

    def _union(self, annotation: Any) -> Codec:
        for one, bound in self._unions:
            if one == annotation:
                # An alias that names itself in a union inside itself: `type J = None | list[J | bytes]`.
                return _reference(label(annotation), bound, None)
        arms: list[Any] = []
        for arm in self._arms(annotation, []):
            if arm not in arms:
                arms.append(arm)
        self._unions.append((annotation, []))
        try:
            codec = union_codec([self.build(arm) for arm in arms])
        finally:
            _, bound = self._unions.pop()
        bound.append(codec)
        return codec

    def _arms(self, annotation: Any, within: list[Any]) -> list[Any]:
        """The arms of a union, and those of the unions and aliases among them."""
        origin = typing.get_origin(annotation)
        if origin is typing.Union or origin is types.UnionType:
            return [inner for arm in typing.get_args(annotation) for inner in self._arms(arm, within)]
        other = stands_for(annotation)
        if other is None and is_alias(annotation) and annotation not in within:
            other = _value_of(annotation)
        return [annotation] if other is None or isinstance(other, str) else self._arms(other, [*within, annotation])

    def _item(self, annotation: Any, part: str = "[]") -> Codec:
        try:
            return self.build(annotation)
        except Refusal as refusal:
            raise refusal.inside(part) from refusal.__cause__

    def _generic(self, annotation: Any, origin: Any) -> Codec:
        args = typing.get_args(annotation)
        name = label(origin)
        if origin is list or origin in _LISTS:
            loose = tuple if origin in _LISTS else None
            if not args:
                return any_of(list, name, also=loose)
            return list_codec(self._item(args[0]), name=name, tuples=origin in _LISTS)
        if origin is dict or origin in _MAPPINGS:
            proxy = origin in _MAPPINGS
            if not args:
                return any_of(dict, name, also=types.MappingProxyType if proxy else None)
            return dict_codec(self._item(args[0], "[key]"), self._item(args[1]), name=name, proxies=proxy)
        if origin is set or origin is frozenset:
            return set_codec(self._item(args[0]) if args else ANY, made=origin)
        if origin in _SETS:
            return set_codec(self._item(args[0]) if args else ANY, name=name, also=frozenset)
        if origin is tuple:
            return self._tuple(annotation, args)
        if isinstance(origin, type):
            return self._class(annotation, origin, args)
        if has_schema(annotation):
            return schema_codec(annotation)
        raise not_storable(annotation)

    def _tuple(self, annotation: Any, args: tuple[Any, ...]) -> Codec:
        if not args:
            empty = annotation is not tuple and annotation is not typing.Tuple  # noqa: UP006 (the bare old name)
            return tuple_codec((), repeat=False) if empty else tuple_codec((ANY,), repeat=True)
        if any(typing.get_origin(arg) is typing.Unpack or getattr(arg, "__unpacked__", False) for arg in args):
            raise Refusal(f"{label(annotation)} cannot be stored", hint="annotate tuple[T, ...], or a list")
        if len(args) == 2 and args[1] is Ellipsis:  # noqa: PLR2004
            return tuple_codec((self._item(args[0]),), repeat=True)
        return tuple_codec(tuple(self._item(arg, f"[{n}]") for n, arg in enumerate(args)), repeat=False)

    # ---- classes -------------------------------------------------------------------------------------------

    def _class(self, annotation: Any, cls: Any, args: tuple[Any, ...]) -> Codec:
        if issubclass(cls, enum.Enum):
            return enum_codec(cls)
        shown = label(annotation)
        if is_model(cls):
            return self._once(annotation, shown, lambda: model_codec(cls, self.build), cls)
        if is_typed_dict(cls) or shape_of(cls) is not None:
            return self._once(annotation, shown, lambda: self._record(annotation, cls, args), cls)
        if has_schema(cls):
            return schema_codec(annotation)
        raise not_storable(annotation)

    def _record(self, annotation: Any, cls: Any, args: tuple[Any, ...]) -> Codec:
        shape = None if is_typed_dict(cls) else shape_of(cls)
        try:
            hints = class_hints(cls)
        except Unresolved as cause:
            raise unresolved(cause) from cause
        names = list(hints) if shape is None else [field.name for field in shape.fields]
        given = type_arguments(cls, args)
        everywhere = {variable: found for one in given.values() for variable, found in one.items()}
        outer = self._scope, self._owner
        codecs: dict[str, Codec] = {}
        try:
            for name in names:
                home = owner(cls, name)
                self._scope, self._owner = Scope.of(home), annotation
                hint = substituted(hints.get(name, Any), everywhere if shape is None else given.get(home, {}))
                codecs[name] = self._item(_without_unset(hint, shape), f".{name}")
        finally:
            self._scope, self._owner = outer
        if shape is None:
            return typed_dict_codec(cls, label(annotation), codecs, typed_dict_required(cls, hints))
        return record_codec(shape, label(annotation), codecs)

    def _once(self, key: Any, shown: str, build: Callable[[], Codec], cls: type | None = None) -> Codec:
        """Build what may refer to itself: an inner reference is bound when the outer one is done."""
        if key in self._done:
            return self._done[key]
        if key in self._open:
            return _reference(shown, self._open[key], cls)
        bound = self._open[key] = []
        outer, before = self.contextual, set(self._done)
        self.contextual = False
        try:
            codec = build()
        except Refusal:
            # What was built inside may refer to what is refused now.
            self._done = {done: codec for done, codec in self._done.items() if done in before}
            raise
        finally:
            del self._open[key]
            self.contextual = outer or (self.contextual and cls is None)
        bound.append(codec)
        self._done[key] = codec
        return codec


def _value_of(alias: Any) -> Any:
    try:
        return alias_value(alias)
    except Unresolved as cause:
        raise unresolved(cause) from cause


def _reference(shown: str, bound: list[Codec], cls: type | None) -> Codec:
    def enc(value: Any, depth: int) -> Any:
        return bound[0].enc(value, depth)

    def dec(tree: Any) -> Any:
        return bound[0].dec(tree)

    if cls is None:
        return Codec(label=shown, tag=shown, types=frozenset(), kinds=ALL_KINDS, enc=enc, dec=dec)
    classes: frozenset[type] = frozenset({dict if is_typed_dict(cls) else cls})
    kinds: frozenset[type] = model_kinds(cls) if is_model(cls) else frozenset({dict})
    return Codec(label=shown, tag=class_tag(cls), types=classes, kinds=kinds, enc=enc, dec=dec)


def _without_unset(hint: Any, shape: Any) -> Any:
    """A field's annotation without msgspec's `UnsetType`, whose only value is stored as no field at all."""
    if shape is None or shape.unset is None or typing.get_origin(hint) not in {typing.Union, types.UnionType}:
        return hint
    arms = tuple(arm for arm in typing.get_args(hint) if arm is not type(shape.unset))
    return typing.Union[arms]  # noqa: UP007 (made at run time)


def _never() -> Codec:
    def enc(value: Any, _depth: int) -> Any:
        raise mismatch("no value at all", value)

    def dec(_tree: Any) -> Any:
        raise Refusal("a value is stored where none can be")

    return Codec(label="Never", tag="Never", types=frozenset(), kinds=frozenset(), enc=enc, dec=dec)


def not_storable(annotation: Any) -> Refusal:
    """The refusal of a type that has no stored form."""
    return Refusal(
        f"{label(annotation)} cannot be stored",
        hint="pass plain data; open clients and files inside the tool that uses them; "
        "or register a codec for the class with register_codec",
    )


def unresolved(cause: Exception) -> Refusal:
    """The refusal of an annotation that cannot be evaluated."""
    return Refusal(
        f"an annotation cannot be evaluated: {text_of(cause)}",
        later=True,
        hint="import the name at run time, not only under TYPE_CHECKING; define it before the first call",
    )
