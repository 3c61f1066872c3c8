"""Values stored by their own classes, where there is no annotation and the class is at hand: decisions.

JSON types and what is stored under `Any` have the same bytes here as there. An object of another class is
stored as that class would be if it were annotated, with its bare name as a tag. Whoever reads has an equal
value at hand (a replay offers it again), so its classes are known. This module must never know what a
decision is. It keeps two invariants: no stored byte chooses a class, for only the classes of the value at
hand are looked up; and what does not come back equal is refused.

Source: design api.md, "Values" and surface (`decide(id, value: T) -> T`).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import replace
from typing import Any, Final

from poimen.declare.storing.annotations import codec_for, not_storable
from poimen.declare.storing.codec import REGISTRY, Codec, Refusal, class_tag
from poimen.declare.storing.containers import dict_codec, list_codec, set_codec, tuple_codec
from poimen.declare.storing.hints import label
from poimen.declare.storing.leaves import LEAVES
from poimen.declare.storing.unions import ANY, CLOSED, ESCAPE, PAIRS, TYPE, VALUE, any_dec, any_enc, is_tagged, tagged

_SCALARS: Final = frozenset({type(None), bool, int, float, str})
_BUILTIN: Final = (dict, list, tuple, set, frozenset, deque, bytes, bytearray, str, int, float)


class OwnClasses:
    """The codec of one value by the classes that are in it. Not to be used for another value."""

    def __init__(self) -> None:
        self._codecs: dict[type, Codec] = {}
        self._tags: dict[type, str] = {}
        part = replace(ANY, enc=self._enc, dec=self._dec)
        self._list = list_codec(part)
        self._object = dict_codec(LEAVES[str], part)
        self._pairs = dict_codec(part, part)
        containers = (tuple_codec((part,), repeat=True), set_codec(part), set_codec(part, made=frozenset))
        self._containers = {kind: codec for codec in containers for kind in codec.types}
        self._by_tag = {codec.tag: codec for codec in containers} | {PAIRS: self._pairs}

    def enc(self, value: Any) -> Any:
        """The value as a JSON tree.

        Raises:
            Refusal: a part cannot be stored, or would not come back equal.
        """
        tree = self._enc(value, 0)
        return self._enc(value, 0) if self._named_apart() else tree

    def dec(self, tree: Any) -> Any:
        """The reverse, for a tree that `enc` made of an equal value."""
        return self._dec(tree)

    def _named_apart(self) -> bool:
        """Give classes of one bare name their long names; whether any tag has changed.

        Raises:
            Refusal: two of them have one long name too, or that of a registered codec.
        """
        bare = Counter(class_tag(cls) for cls in self._codecs)
        tags = {
            cls: class_tag(cls) if bare[class_tag(cls)] == 1 and class_tag(cls) not in REGISTRY.by_name else label(cls)
            for cls in self._codecs
        }
        for tag, n in Counter(tags.values()).items():
            if n > 1 or tag in REGISTRY.by_name:
                raise Refusal(
                    f"two classes of the value are both stored under the name {tag!r}",
                    hint="rename one of the classes, or register a codec for it with register_codec",
                )
        changed = tags != self._tags
        self._tags = tags
        return changed

    def _enc(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is list:
            return self._list.enc(value, depth)
        if kind is dict:
            if not all(type(key) is str for key in value):
                return tagged(PAIRS, self._pairs.enc(value, depth))
            out = self._object.enc(value, depth)
            return tagged(ESCAPE, out) if TYPE in out else out
        container = self._containers.get(kind)
        if container is not None:
            return tagged(container.tag, container.enc(value, depth))
        if kind in _SCALARS or kind in REGISTRY.by_class or kind in CLOSED:
            return any_enc(value, depth)
        tree = self._object_of(kind, value, depth)
        return tagged(self._tags.setdefault(kind, class_tag(kind)), tree)

    def _object_of(self, kind: type, value: Any, depth: int) -> Any:
        """An object of a class of its own, if it comes back equal."""
        codec = self._codecs.get(kind)
        if codec is None:
            codec = self._codecs[kind] = _codec_of(kind, value)
        tree = codec.enc(value, depth)
        back = codec.dec(tree)
        alike = bool(back == value) if _has_equality(kind) else codec.enc(back, depth) == tree
        if type(back) is not kind or not alike:
            raise Refusal(
                f"{label(kind)} would not come back equal",
                hint="annotate its fields with the classes that they hold, or register a codec with register_codec",
            )
        return tree

    def _dec(self, tree: Any) -> Any:
        if type(tree) is list:
            return self._list.dec(tree)
        if type(tree) is not dict:
            return tree
        if not is_tagged(tree):
            return self._object.dec(tree)
        tag, inner = tree[TYPE], tree[VALUE]
        for cls, own in self._tags.items():
            if own == tag:
                return self._codecs[cls].dec(inner)
        if tag == ESCAPE:
            return self._object.dec(inner)
        container = self._by_tag.get(tag)
        return any_dec(tree) if container is None else container.dec(inner)


def _has_equality(kind: type) -> bool:
    """Whether equal objects of a class can be told; else each is equal to itself alone."""
    return any("__eq__" in vars(cls) for cls in kind.__mro__ if cls is not object)


def _codec_of(kind: type, value: Any) -> Codec:
    """The codec of a class.

    Raises:
        Refusal: it has none.
    """
    if not isinstance(value, _BUILTIN) or hasattr(kind, "_fields") or hasattr(kind, "__members__"):
        codec = codec_for(kind)
        if codec.open:
            raise not_storable(kind)
        return codec
    base = list if isinstance(value, deque) else next(one for one in _BUILTIN if isinstance(value, one))
    plain = f"{'bytes' if base is bytearray else base.__name__}(value)"
    also = " (its default is lost)" if isinstance(value, defaultdict) else ""
    raise Refusal(
        f"{label(kind)} would not come back as {label(kind)}",
        hint=f"pass the plain value, {plain}{also}, or register a codec for the class with register_codec",
    )
