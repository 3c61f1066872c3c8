"""Codecs of values with parts: lists, tuples, sets, mappings.

Sets are stored sorted by the bytes of their elements and mappings by their keys, so that equal
values have equal bytes in every process. This module must never know which annotation it serves: it
is handed the codecs of the parts. It keeps the invariant that no container is deeper than
`MAX_DEPTH`.

Source: design storage.md, "The log" (canonical JSON).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from poimen.declare.storing.canonical import to_bytes
from poimen.declare.storing.codec import (
    CHANGED,
    MAX_DEPTH,
    Codec,
    Decode,
    Encode,
    Refusal,
    as_base,
    differs,
    key_part,
    too_deep,
)

_LIST: Final = frozenset({list})
_DICT: Final = frozenset({dict})


def _items_enc(value: Any, depth: int, item: Codec) -> list[Any]:
    """The elements of a sequence or set; those that need no look are taken as they are."""
    if depth >= MAX_DEPTH:
        raise too_deep()
    if item.same is not None and set(map(type, value)) <= {item.same}:
        return list(value)
    enc, inner, out = item.enc, depth + 1, list[Any]()
    append = out.append
    try:
        for one in value:
            append(enc(one, inner))
    except Refusal as refusal:
        raise refusal.inside(f"[{len(out)}]", value) from refusal.__cause__
    return out


def _items_dec(tree: Any, item: Codec) -> list[Any]:
    dec, out = item.dec, list[Any]()
    append = out.append
    try:
        for one in tree:
            append(dec(one))
    except Refusal as refusal:
        raise refusal.inside(f"[{len(out)}]") from refusal.__cause__
    return out


def list_codec(item: Codec, *, name: str = "list", tuples: bool = False) -> Codec:
    """The codec of `list[item]`; with `tuples` of `Sequence[item]`, whose values come back as lists."""
    shown = f"{name}[{item.label}]"
    classes = frozenset({list, tuple}) if tuples else _LIST

    def enc(value: Any, depth: int) -> list[Any]:
        if type(value) not in classes:
            if tuples and isinstance(value, tuple):
                value = as_base(value, shown, tuple, tuple)
            else:
                value = as_base(value, shown, list, list)
        return _items_enc(value, depth, item)

    def dec(tree: Any) -> list[Any]:
        if type(tree) is not list:
            raise differs(shown, tree)
        return _items_dec(tree, item)

    return Codec(label=shown, tag="list", types=classes, kinds=_LIST, enc=enc, dec=dec, natural=item.natural)


def tuple_codec(items: tuple[Codec, ...], *, repeat: bool) -> Codec:
    """The codec of `tuple[a, b]`, or with `repeat` of `tuple[a, ...]`."""
    shown = f"tuple[{', '.join(item.label for item in items)}{', ...' if repeat else ''}]"
    if not items:
        shown = "tuple[()]"

    def enc(value: Any, depth: int) -> list[Any]:
        if type(value) is not tuple:
            value = as_base(value, shown, tuple, tuple)
        if repeat:
            return _items_enc(value, depth, items[0])
        if len(value) != len(items):
            raise Refusal(f"expected {shown}, found {len(value)} elements")
        if depth >= MAX_DEPTH:
            raise too_deep()
        out: list[Any] = []
        try:
            for one, item in zip(value, items, strict=True):
                out.append(item.enc(one, depth + 1))
        except Refusal as refusal:
            raise refusal.inside(f"[{len(out)}]", value) from refusal.__cause__
        return out

    def dec(tree: Any) -> tuple[Any, ...]:
        if type(tree) is not list:
            raise differs(shown, tree)
        if repeat:
            return tuple(_items_dec(tree, items[0]))
        if len(tree) != len(items):
            raise Refusal(f"{shown} is annotated, {len(tree)} elements are stored", hint=CHANGED)
        out: list[Any] = []
        try:
            for one, item in zip(tree, items, strict=True):
                out.append(item.dec(one))
        except Refusal as refusal:
            raise refusal.inside(f"[{len(out)}]") from refusal.__cause__
        return tuple(out)

    return Codec(label=shown, tag="tuple", types=frozenset({tuple}), kinds=_LIST, enc=enc, dec=dec)


def set_codec(item: Codec, *, made: type = set, name: str = "", also: type | None = None) -> Codec:
    """The codec of `set[item]` or `frozenset[item]`; sorted by the bytes of the elements."""
    shown = f"{name or made.__name__}[{item.label}]"
    classes = frozenset({made} if also is None else {made, also})

    def enc(value: Any, depth: int) -> list[Any]:
        if type(value) not in classes:
            base = also if also is not None and isinstance(value, also) else made
            value = as_base(value, shown, base, base)
        trees = _items_enc(value, depth, item)
        trees.sort(key=to_bytes)
        return trees

    def dec(tree: Any) -> Any:
        if type(tree) is not list:
            raise differs(shown, tree)
        try:
            return made(_items_dec(tree, item))
        except TypeError as cause:
            raise Refusal(f"{shown} is annotated, elements that cannot be in a set are stored", hint=CHANGED) from cause

    return Codec(label=shown, tag=made.__name__, types=classes, kinds=_LIST, enc=enc, dec=dec)


def dict_codec(key: Codec, item: Codec, *, name: str = "dict", proxies: bool = False) -> Codec:
    """The codec of `dict[key, item]`: an object where keys are texts or integers, else sorted pairs."""
    shown = f"{name}[{key.label}, {item.label}]"
    classes = frozenset({dict, MappingProxyType}) if proxies else _DICT
    if key.kinds <= {str}:
        enc, dec = _object_enc(key.enc, item), _object_dec(key.dec, item, shown)
    elif key.kinds <= {int}:
        enc, dec = _object_enc(lambda k, d: str(key.enc(k, d)), item), _object_dec(_int_key(key.dec), item, shown)
    else:
        enc, dec = _pairs_enc(key, item), _pairs_dec(key, item, shown)

    def checked(value: Any, depth: int) -> Any:
        if type(value) not in classes:
            value = as_base(value, shown, dict, dict)
        if depth >= MAX_DEPTH:
            raise too_deep()
        return enc(value, depth + 1)

    return Codec(
        label=shown,
        tag="dict",
        types=classes,
        kinds=_DICT if key.kinds <= {str} or key.kinds <= {int} else _LIST,
        enc=checked,
        dec=dec,
        natural=key.natural and item.natural and key.kinds <= {str},
    )


def _object_enc(key_enc: Encode, item: Codec) -> Encode:
    enc = item.enc

    def object_enc(value: Any, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        key: Any = None
        try:
            for key, one in value.items():
                out[key_enc(key, depth)] = enc(one, depth)
        except Refusal as refusal:
            raise refusal.inside(key_part(key), value) from refusal.__cause__
        if len(out) != len(value):
            raise Refusal("two keys have one stored form", hint="make the keys distinct texts")
        return out

    return object_enc


def _object_dec(key_dec: Decode, item: Codec, shown: str) -> Decode:
    dec = item.dec

    def object_dec(tree: Any) -> dict[Any, Any]:
        if type(tree) is not dict:
            raise differs(shown, tree)
        out: dict[Any, Any] = {}
        key: Any = None
        try:
            for key, one in tree.items():
                out[key_dec(key)] = dec(one)
        except Refusal as refusal:
            raise refusal.inside(key_part(key)) from refusal.__cause__
        return out

    return object_dec


def _int_key(dec: Decode) -> Decode:
    def key_dec(text: Any) -> Any:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()):
            raise Refusal("an integer is annotated as key, another text is stored", hint=CHANGED)
        return dec(int(text))

    return key_dec


def _pairs_enc(key: Codec, item: Codec) -> Encode:
    def pairs_enc(value: Any, depth: int) -> list[Any]:
        out: list[Any] = []
        at: Any = None
        try:
            for at, one in value.items():
                out.append([key.enc(at, depth), item.enc(one, depth)])
        except Refusal as refusal:
            raise refusal.inside(key_part(at), value) from refusal.__cause__
        out.sort(key=lambda pair: to_bytes(pair[0]))
        return out

    return pairs_enc


def _pairs_dec(key: Codec, item: Codec, shown: str) -> Decode:
    def pairs_dec(tree: Any) -> dict[Any, Any]:
        if type(tree) is not list or not all(type(pair) is list and len(pair) == 2 for pair in tree):  # noqa: PLR2004
            raise differs(shown, tree)
        out: dict[Any, Any] = {}
        for n, (at, one) in enumerate(tree):
            try:
                out[key.dec(at)] = item.dec(one)
            except Refusal as refusal:
                raise refusal.inside(f"[{n}]") from refusal.__cause__
            except TypeError as cause:
                raise Refusal(f"{shown} is annotated, a key that no dict can have is stored", hint=CHANGED) from cause
        return out

    return pairs_dec
