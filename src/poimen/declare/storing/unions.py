"""Codecs of annotations that leave the class open: `Any`, and unions.

Where the JSON alone does not tell the class, a value is stored as `{"$type": tag, "value": ...}`.
Under `Any`, JSON types are stored as they are, a closed list of standard types and registered
classes by tag; everything else is refused with the advice to annotate, because finding a class by a
stored name would be unpickling by another name. This module must never know about classes of users.
It keeps the invariant that what is stored under an open annotation comes back as the same class.

Source: design api.md, "Values" and "Errors" (nothing is unpickled).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path, PurePath
from types import NoneType
from typing import Any, Final

from poimen.declare.storing.canonical import to_bytes
from poimen.declare.storing.codec import (
    ALL_KINDS,
    CHANGED,
    MAX_DEPTH,
    REGISTRY,
    Codec,
    Refusal,
    as_base,
    differs,
    key_part,
    mismatch,
    too_deep,
)
from poimen.declare.storing.containers import dict_codec, set_codec, tuple_codec
from poimen.declare.storing.hints import label
from poimen.declare.storing.leaves import LEAVES, NAMED, TEXTS, float_enc
from poimen.secrecy.named import Secret

TYPE: Final = "$type"
VALUE: Final = "value"
ESCAPE: Final = "object"
"""The tag of an object that has a key `$type` of its own."""
PAIRS: Final = "pairs"
"""The tag of a dict whose keys are not all texts."""


_AS_THEY_ARE: Final[frozenset[type]] = frozenset({str, int, bool, NoneType})
_TEXT: Final = {str}


def tagged(tag: str, tree: Any) -> dict[str, Any]:
    """A tree with the tag of its class."""
    return {TYPE: tag, VALUE: tree}


def is_tagged(tree: Any) -> bool:
    """Whether a tree has the form that `tagged` makes."""
    return type(tree) is dict and len(tree) == 2 and TYPE in tree and VALUE in tree  # noqa: PLR2004


# ---- any value ---------------------------------------------------------------------------------------------


def any_enc(value: Any, depth: int) -> Any:
    """A value whose annotation says nothing (`Any`, `object`, none)."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is float:
        return float_enc(value, depth)
    if kind is dict:
        return _any_dict(value, depth)
    if kind is list:
        if depth >= MAX_DEPTH:
            raise too_deep()
        out: list[Any] = []
        try:
            for one in value:
                out.append(one if type(one) in _AS_THEY_ARE else any_enc(one, depth + 1))  # noqa: PERF401 (the path)
        except Refusal as refusal:
            raise refusal.inside(f"[{len(out)}]", value) from refusal.__cause__
        return out
    codec = REGISTRY.by_class.get(kind) or CLOSED.get(kind)
    if codec is None:
        raise _open_refusal(value)
    return tagged(codec.tag, codec.enc(value, depth))


def _any_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    if depth >= MAX_DEPTH:
        raise too_deep()
    if not set(map(type, value)) <= _TEXT:
        return tagged(PAIRS, _PAIRS.enc(value, depth))
    out: dict[str, Any] = {}
    key = ""
    try:
        for key, one in value.items():
            out[key] = one if type(one) in _AS_THEY_ARE else any_enc(one, depth + 1)
    except Refusal as refusal:
        raise refusal.inside(key_part(key), value) from refusal.__cause__
    return tagged(ESCAPE, out) if TYPE in out else out


def _open_refusal(value: object) -> Refusal:
    found = label(type(value))
    if isinstance(value, str | int | float | list | dict | tuple | set | frozenset | bytes):
        return Refusal(
            f"{found} would not come back as {found} where no class is annotated",
            hint=f"annotate {found}, or pass the plain value",
        )
    return Refusal(
        f"{found} cannot be stored where no class is annotated",
        hint=f"annotate {found} if it is plain data, or register a codec for it with register_codec",
    )


def any_dec(tree: Any) -> Any:
    """The reverse of `any_enc`."""
    kind = type(tree)
    if kind is list:
        return [one if type(one) in _AS_THEY_ARE else any_dec(one) for one in tree]
    if kind is not dict:
        return tree
    if is_tagged(tree):
        tag, inner = tree[TYPE], tree[VALUE]
        if tag == ESCAPE and type(inner) is dict:
            return {key: any_dec(one) for key, one in inner.items()}
        codec = (REGISTRY.by_name.get(tag) or _BY_TAG.get(tag)) if type(tag) is str else None
        if codec is None:
            raise Refusal(
                f"no codec is registered under the stored tag {tag!r}", hint="register it with register_codec"
            )
        return codec.dec(inner)
    return {key: one if type(one) in _AS_THEY_ARE else any_dec(one) for key, one in tree.items()}


ANY: Final = Codec(label="Any", tag="Any", types=frozenset(), kinds=ALL_KINDS, enc=any_enc, dec=any_dec, open=True)
"""The codec of `Any`, `object` and what is not annotated."""

_PAIRS: Final = dict_codec(ANY, ANY)
CLOSED: Final[dict[type, Codec]] = {
    **TEXTS,
    Secret: NAMED,
    type(Path()): LEAVES[Path],
    type(PurePath()): LEAVES[PurePath],
    tuple: tuple_codec((ANY,), repeat=True),
    set: set_codec(ANY),
    frozenset: set_codec(ANY, made=frozenset),
}
"""Other classes than those of JSON that are stored under `Any`."""
_BY_TAG: Final[dict[str, Codec]] = {codec.tag: codec for codec in CLOSED.values()} | {PAIRS: _PAIRS}


def any_of(kind: type, name: str, *, also: type | None = None) -> Codec:
    """The codec of a bare `dict` or `list`, whose parts may be anything.

    Arguments:
        kind: what comes back.
        name: the annotation in messages.
        also: another class that is taken.
    """

    def enc(value: Any, depth: int) -> Any:
        if type(value) is not kind:
            value = kind(value) if type(value) is also else as_base(value, name, kind, kind)
        return any_enc(value, depth)

    def dec(tree: Any) -> Any:
        value = any_dec(tree)
        if type(value) is not kind:
            raise differs(name, tree)
        return value

    types = frozenset({kind} if also is None else {kind, also})
    return Codec(label=name, tag=kind.__name__, types=types, kinds=frozenset({kind}), enc=enc, dec=dec)


# ---- unions ------------------------------------------------------------------------------------------------


def union_codec(arms: list[Codec]) -> Codec:
    """The codec of a union.

    Arguments:
        arms: the codecs of its arms in order, nested unions flattened, none twice.

    An arm gets a tag where another arm makes the same JSON kind, unless both are natural.

    Raises:
        Refusal: when two arms cannot be told apart by any tag.
    """
    if any(arm.open for arm in arms):
        arms = [*(arm for arm in arms if not arm.natural and not arm.open), ANY]
    if len(arms) == 1:
        return arms[0]
    if len(arms) == 2 and arms[0].kinds == _NULL and not arms[1].kinds & _NULL:  # noqa: PLR2004
        return _optional(arms[1])
    if len(arms) == 2 and arms[1].kinds == _NULL and not arms[0].kinds & _NULL:  # noqa: PLR2004
        return _optional(arms[0])
    return _Union(arms).codec()


_NULL: Final = LEAVES[NoneType].kinds


def _optional(arm: Codec) -> Codec:
    some_enc, some_dec = arm.enc, arm.dec

    def enc(value: Any, depth: int) -> Any:
        return None if value is None else some_enc(value, depth)

    def dec(tree: Any) -> Any:
        return None if tree is None else some_dec(tree)

    return dataclasses.replace(
        arm,
        label=f"{arm.label} | None",
        types=arm.types | _NULL if arm.types else arm.types,
        kinds=arm.kinds | _NULL,
        enc=enc,
        dec=dec,
        same=None,
    )


class _Union:
    """The arms of a union: which value goes to which, and which stored form comes from which."""

    def __init__(self, arms: list[Codec]) -> None:
        self._arms = arms
        self._label = " | ".join(arm.label for arm in arms)
        needing = [arm for arm in arms if not arm.open and any(_confusable(arm, other) for other in arms)]
        seen = Counter(arm.tag for arm in needing)
        self._tags = [(arm, arm.tag if seen[arm.tag] == 1 else arm.label) for arm in needing]
        names = Counter(tag for _, tag in self._tags)
        for _, tag in self._tags:
            if names[tag] > 1:
                raise Refusal(
                    f"two arms of {self._label} are both stored under the name {tag!r}",
                    hint="rename one of the classes, or register a codec for it",
                )
        self._plain = [arm for arm in arms if arm not in needing]
        self._open = any(arm.open for arm in arms)
        self._exact = {kind: [arm for arm in arms if kind in arm.types] for arm in arms for kind in arm.types}

    def codec(self) -> Codec:
        """The codec over all arms."""
        types = [arm.types for arm in self._arms]
        kinds = [arm.kinds for arm in self._arms]
        return Codec(
            label=self._label,
            tag="union",
            types=frozenset().union(*types) if all(types) else frozenset(),
            kinds=frozenset({dict} if self._tags else ()).union(*kinds),
            enc=self._enc,
            dec=self._dec,
            natural=not self._tags and all(arm.natural for arm in self._arms),
            open=self._open,
        )

    def _enc(self, value: Any, depth: int) -> Any:
        exact = self._exact.get(type(value), [])
        refusals: list[Refusal] = []
        taken: list[Any] = []
        for arm in exact or self._arms:
            try:
                tree = arm.enc(value, depth)
            except Refusal as refusal:
                if refusal.deep:
                    raise
                refusals.append(refusal)
                continue
            found = self._with_tag(arm, tree)
            if len(exact) < 2 or not arm.natural or _is_itself(tree, value, depth):  # noqa: PLR2004
                return found
            taken.append(found)
        if taken:
            return taken[0]
        if refusals and len(exact) == 1:
            raise refusals[0]
        raise mismatch(self._label, value)

    def _with_tag(self, arm: Codec, tree: Any) -> Any:
        for tagged_arm, tag in self._tags:
            if tagged_arm is arm:
                return tagged(tag, tree)
        if not self._tags or type(tree) is not dict or TYPE not in tree:
            return tree
        if not arm.open:
            return tagged(ESCAPE, tree)
        if any(tag == tree[TYPE] for _, tag in self._tags):
            raise Refusal(
                f"the codec {tree[TYPE]!r} has the name of another arm of {self._label}", hint="rename the codec"
            )
        return tree

    def _dec(self, tree: Any) -> Any:
        arms = self._plain
        if self._tags and is_tagged(tree):
            tag, inner = tree[TYPE], tree[VALUE]
            # A tag from before another arm was added is the short one, and may fit several arms.
            named = [arm for arm, own in self._tags if own == tag] or [arm for arm, _ in self._tags if arm.tag == tag]
            if named:
                return self._only(named, inner, first=len(named) == 1)
            if tag == ESCAPE and not self._open:
                return self._only([arm for arm in arms if dict in arm.kinds], inner)
            if not self._open:
                raise Refusal(f"{self._label} is annotated, {tag!r} is stored", hint=CHANGED)
        fitting = [arm for arm in arms if type(tree) in arm.kinds]
        # Stored when the arm had no tag yet, because the union was smaller.
        older = [arm for arm, _ in self._tags if type(tree) in arm.kinds]
        return self._only(fitting or older or arms, tree, first=bool(fitting))

    def _only(self, arms: list[Codec], tree: Any, *, first: bool = True) -> Any:
        """The value by the first arm that takes the tree as it is, or, not `first`, by the one arm that takes it."""
        values: list[Any] = []
        refusals: list[Refusal] = []
        for arm in arms:
            try:
                value = arm.dec(tree)
            except Refusal as refusal:
                refusals.append(refusal)
                continue
            if first and (len(arms) == 1 or not arm.natural or _is_itself(tree, value, 0)):
                return value
            values.append(value)
        if values and (first or len(values) == 1):
            return values[0]
        if len(refusals) == len(arms) == 1:
            raise refusals[0]
        raise differs(self._label, tree)


def _is_itself(tree: Any, value: Any, depth: int) -> bool:
    """Whether a natural arm stores a value as it is: `[1]` is a `list[int]` rather than a `list[float]`."""
    try:
        return to_bytes(any_enc(value, depth)) == to_bytes(tree)
    except Refusal:
        return False


def _confusable(arm: Codec, other: Codec) -> bool:
    return arm is not other and not arm.natural and bool(arm.kinds & other.kinds)
