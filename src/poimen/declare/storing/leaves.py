"""Codecs of values without parts: JSON scalars, texts of standard types, enums, literals.

Each text form is the shortest standard one that loses nothing: ISO 8601 for times (with the zone's
name as in RFC 9557), base64 for bytes, the exact digits for decimals. This module must never know
about containers. It keeps the invariant that a value that is accepted comes back equal.

Source: design api.md, "Values".
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from math import isfinite
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import NoneType
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from poimen.declare.storing.codec import (
    CHANGED,
    Codec,
    Refusal,
    as_base,
    class_tag,
    differs,
    mismatch,
    subclass_refused,
)
from poimen.declare.storing.hints import label
from poimen.kernel.errors import NotStorable
from poimen.secrecy.named import KEY, Secret
from poimen.secrecy.setting import in_force

# ---- JSON scalars ------------------------------------------------------------------------------------------


def none_enc(value: Any, _depth: int) -> None:
    """None, which is all there is of it."""
    if value is not None:
        raise mismatch("None", value)


def none_dec(tree: Any) -> None:
    """The reverse of `none_enc`."""
    if tree is not None:
        raise differs("None", tree)


def bool_enc(value: Any, _depth: int) -> bool:
    """A boolean."""
    if value is True or value is False:
        return bool(value)
    raise mismatch("bool", value)


def bool_dec(tree: Any) -> bool:
    """The reverse of `bool_enc`."""
    if tree is True or tree is False:
        return bool(tree)
    raise differs("bool", tree)


def int_enc(value: Any, _depth: int) -> int:
    """An integer of any size; True is 1 and an `IntEnum` member is its value where `int` is annotated."""
    if type(value) is int:
        return value
    bare: int = int(value) if type(value) is bool else as_base(value, "int", int, int.__int__)
    return bare


def int_dec(tree: Any) -> int:
    """The reverse of `int_enc`."""
    if type(tree) is int:
        return tree
    raise differs("int", tree)


def float_enc(value: Any, _depth: int) -> float:
    """A finite float; an integer is taken where a float holds it (PEP 484 lets it pass for one)."""
    if type(value) is not float:
        value = _float_of(value) if type(value) is int else as_base(value, "float", float, float.__float__)
    if isfinite(value):
        return float(value)
    raise Refusal(f"{value} has no JSON", hint="store None for a missing number, or a Decimal")


def float_dec(tree: Any) -> float:
    """The reverse of `float_enc`."""
    if type(tree) is float:
        return tree
    if type(tree) is int:
        return _float_of(tree)
    raise differs("float", tree)


def _float_of(number: int) -> float:
    try:
        found = float(number)
    except OverflowError:
        found = 0.0
    if found != number:
        raise Refusal("expected float, found an int that no float holds exactly", hint="annotate int")
    return found


def str_enc(value: Any, _depth: int) -> str:
    """A text; a `StrEnum` member is its text where `str` is annotated."""
    if type(value) is str:
        return value
    bare: str = as_base(value, "str", str, str.__str__)
    return bare


def str_dec(tree: Any) -> str:
    """The reverse of `str_enc`."""
    if type(tree) is str:
        return tree
    raise differs("str", tree)


def _scalar(kind: type, enc: Callable[[Any, int], Any], dec: Callable[[Any], Any], *, same: bool = True) -> Codec:
    name = label(kind)
    kinds = frozenset({kind})
    return Codec(
        label=name, tag=name, types=kinds, kinds=kinds, enc=enc, dec=dec, natural=True, same=kind if same else None
    )


# ---- standard types as text --------------------------------------------------------------------------------

_DURATION: Final = re.compile(r"([+-]?)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,6}))?S)?)?", re.ASCII)
_ZONED: Final = re.compile(r"([^\[\]]+)\[([^\[\]]+)\]")
_FOLD: Final = "fold=1"


def _duration_text(span: timedelta) -> str:
    sign, span = ("-", -span) if span.days < 0 else ("", span)
    fraction = f".{span.microseconds:06d}".rstrip("0") if span.microseconds else ""
    return f"{sign}P{span.days}DT{span.seconds}{fraction}S"


def _duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None or text[-1] in "PT":
        raise ValueError(text)
    sign, days, hours, minutes, seconds, fraction = found.groups(default="0")
    span = timedelta(
        days=int(days),
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(seconds),
        microseconds=int(fraction.ljust(6, "0")),
    )
    return -span if sign == "-" else span


def _moment_text(moment: datetime) -> str:
    zone, text = moment.tzinfo, moment.isoformat()
    if zone is not None and moment.utcoffset() is None:
        raise Refusal(
            f"its time zone, {label(type(zone))}, has no offset", hint="use datetime.timezone or zoneinfo.ZoneInfo"
        )
    if isinstance(zone, ZoneInfo) and zone.key:
        return f"{text}[{zone.key}]"
    return f"{text}[{_FOLD}]" if moment.fold and zone is None else text


def _moment(text: str) -> datetime:
    found = _ZONED.fullmatch(text)
    if found is None:
        return datetime.fromisoformat(text)
    moment, suffix = datetime.fromisoformat(found[1]), found[2]
    if suffix == _FOLD:
        return moment.replace(fold=1)
    zone = ZoneInfo(suffix)
    for fold in (0, 1):
        local = moment.replace(tzinfo=zone, fold=fold)
        if local.utcoffset() == moment.utcoffset():
            return local
    # The zone's rules have changed since: the instant is what was meant.
    return moment.astimezone(zone)


def _clock_text(clock: time) -> str:
    if clock.tzinfo is not None and clock.utcoffset() is None:
        raise Refusal("a time without a date has no offset in a named zone", hint="store a datetime, or a naive time")
    return f"{clock.isoformat()}[{_FOLD}]" if clock.fold else clock.isoformat()


def _clock(text: str) -> time:
    found = _ZONED.fullmatch(text)
    return time.fromisoformat(text) if found is None else time.fromisoformat(found[1]).replace(fold=1)


def _text_codec(
    cls: type, tag: str, to_text: Callable[[Any], str], from_text: Callable[[str], Any], *, also: type | None = None
) -> Codec:
    name = label(cls)

    def enc(value: Any, _depth: int) -> str:
        if type(value) is cls or type(value) is also:
            return to_text(value)
        if not isinstance(value, cls):
            raise mismatch(name, value)
        text = to_text(value)
        try:
            # A subclass (a framework's own UUID, say) is stored as the base only where that is equal.
            equal = not getattr(value, "__dict__", None) and bool(from_text(text) == value)
        except (ValueError, ArithmeticError):
            equal = False
        if not equal:
            raise subclass_refused(name, value)
        return text

    def dec(tree: Any) -> Any:
        if type(tree) is not str:
            raise differs(name, tree)
        try:
            return from_text(tree)
        except (ValueError, ArithmeticError, KeyError, OSError) as cause:
            raise Refusal(f"{name} is annotated, the stored text does not read as one", hint=CHANGED) from cause

    types = frozenset({cls} if also is None else {cls, also})
    return Codec(label=name, tag=tag, types=types, kinds=frozenset({str}), enc=enc, dec=dec)


def _bytes_text(data: bytes) -> str:
    if what := in_force().in_bytes(data):  # in base64 nobody would see it
        raise Refusal(f"{what} is not written to the log", hint="pass a poimen.Secret, and reveal it in the tool")
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _decimal_text(number: Decimal) -> str:
    # The decimal context may ask for a small "e".
    return str(number).replace("e", "E")


def _paths() -> dict[type, Codec]:
    exact: tuple[type[PurePath], ...] = (type(Path()), PurePosixPath, PureWindowsPath)
    path = _text_codec(Path, "Path", str, Path, also=type(Path()))
    pure = _text_codec(PurePath, "PurePath", str, PurePath, also=type(PurePath()))
    texts = {cls: _text_codec(cls, cls.__name__, str, cls) for cls in exact}
    return {**texts, Path: path, os.PathLike: path, PurePath: pure}


TEXTS: Final[dict[type, Codec]] = {
    bytes: _text_codec(bytes, "bytes", _bytes_text, _bytes),
    datetime: _text_codec(datetime, "datetime", _moment_text, _moment),
    date: _text_codec(date, "date", date.isoformat, date.fromisoformat),
    time: _text_codec(time, "time", _clock_text, _clock),
    timedelta: _text_codec(timedelta, "timedelta", _duration_text, _duration),
    Decimal: _text_codec(Decimal, "Decimal", _decimal_text, Decimal),
    UUID: _text_codec(UUID, "UUID", str, UUID),
}
"""Standard types that are stored as text, by class."""


def _secret_enc(value: Any, _depth: int) -> dict[str, str]:
    """A `Secret` by its name, in an object of its own: under a name such as `password` no text may stand."""
    if type(value) is not Secret:
        raise mismatch("Secret", value)
    return {KEY: value.name}


def _secret_dec(tree: Any) -> Secret:
    if type(tree) is not dict or tree.keys() != {KEY}:
        raise differs("Secret", tree)
    try:
        return Secret(tree[KEY])
    except NotStorable:
        raise Refusal("Secret is annotated, what is stored is the name of none", hint=CHANGED) from None


NAMED: Final = Codec(
    label="Secret",
    tag="Secret",
    types=frozenset({Secret}),
    kinds=frozenset({dict}),
    enc=_secret_enc,
    dec=_secret_dec,
)
"""The codec of `Secret`."""

LEAVES: Final[dict[type, Codec]] = {
    NoneType: _scalar(NoneType, none_enc, none_dec),
    bool: _scalar(bool, bool_enc, bool_dec),
    int: _scalar(int, int_enc, int_dec),
    float: _scalar(float, float_enc, float_dec, same=False),
    str: _scalar(str, str_enc, str_dec),
    Secret: NAMED,
    **TEXTS,
    **_paths(),
}
"""All codecs of fixed classes without parts, by class."""

# ---- enums and literals ------------------------------------------------------------------------------------


def enum_codec(cls: type[Enum]) -> Codec:
    """The codec of an enum: by value where all values are texts, else by name; flags by number.

    Numbers are no names: those that `auto()` gives move when a member is put in between.
    """
    name = label(cls)
    if issubclass(cls, Flag):
        return _flag_codec(cls)
    by_value = all(type(member.value) is str for member in cls)
    by_text: dict[str, Enum] = {member.value: member for member in cls} if by_value else dict(cls.__members__)

    def enc(value: Any, _depth: int) -> str:
        if type(value) is not cls:
            raise mismatch(name, value)
        text: str = value.value if by_value else value.name
        return text

    def dec(tree: Any) -> Enum:
        member = by_text.get(tree) if type(tree) is str else None
        if member is None:
            raise Refusal(f"{name} has no member that is stored as {short(tree)}", hint=CHANGED)
        return member

    return Codec(label=name, tag=class_tag(cls), types=frozenset({cls}), kinds=frozenset({str}), enc=enc, dec=dec)


def _flag_codec(cls: type[Flag]) -> Codec:
    name = label(cls)

    def enc(value: Any, _depth: int) -> int:
        if type(value) is not cls:
            raise mismatch(name, value)
        return int(value.value)

    def dec(tree: Any) -> Flag:
        if type(tree) is not int:
            raise differs(name, tree)
        try:
            return cls(tree)
        except ValueError as cause:
            raise Refusal(f"{name} has no flags {tree}", hint=CHANGED) from cause

    return Codec(label=name, tag=class_tag(cls), types=frozenset({cls}), kinds=frozenset({int}), enc=enc, dec=dec)


def literal_codec(annotation: Any, values: tuple[Any, ...]) -> Codec:
    """The codec of `Literal[...]`: its values, told apart by class too (`Literal[1]` is not True)."""
    name = label(annotation)
    parts = [enum_codec(type(value)) if isinstance(value, Enum) else LEAVES[type(value)] for value in values]
    known = [(value, part, part.enc(value, 0)) for value, part in zip(values, parts, strict=True)]
    trees = {(type(value), value): tree for value, _, tree in known}
    back = {(type(tree), tree): value for value, _, tree in reversed(known)}

    def enc(value: Any, _depth: int) -> Any:
        try:
            return trees[type(value), value]
        except (KeyError, TypeError):
            raise Refusal(f"expected {name}, found another {label(type(value))}") from None

    def dec(tree: Any) -> Any:
        try:
            return back[type(tree), tree]
        except (KeyError, TypeError):
            raise Refusal(f"{name} is annotated, {short(tree)} is stored", hint=CHANGED) from None

    return Codec(
        label=name,
        tag="Literal",
        types=frozenset(type(value) for value in values),
        kinds=frozenset(type(tree) for _, _, tree in known),
        enc=enc,
        dec=dec,
        natural=all(part.natural for part in parts),
    )


def short(tree: object) -> str:
    """A stored name or number in a message; longer and other content is not shown."""
    text = repr(tree) if isinstance(tree, str | int | float | None) else label(type(tree))
    return text if len(text) <= 40 else f"{text[:39]}…"  # noqa: PLR2004
