"""Canonical JSON: one value, one sequence of bytes.

Keys sorted by code point at every level, no blanks, UTF-8, shortest floats, no Unicode
normalisation. What other readers of JSON trip over is escaped, so that nothing is lost and the bytes
are plain UTF-8 for each of them: lone surrogates, integers of more than some 4,200 digits, objects
that use the escape's own key, and those that begin like a reference to a blob in the log. This module
must never know about annotations. It keeps the invariant `to_bytes(from_bytes(b)) == b` for every
`b` that it made.

Source: design storage.md, "The log" (canonical JSON).
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, Final, TypeAlias

import msgspec

Json: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None

_KEY: Final = "$escaped"
_MARK: Final = b'"$escaped"'
_BLOB: Final = b'{"$blob":'
"""A payload in the log that begins so is a reference to a body elsewhere."""

_SURROGATE: Final = re.compile("[\ud800-\udfff\\\\]")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-f]{4}|\\)")
_WIDE_BITS: Final = 14_000
"""Integers of more bits have more than some 4,200 digits; the decimal form of longer ones is refused by Python."""

_encode: Final = msgspec.json.Encoder(order="sorted").encode
_decode: Final = msgspec.json.Decoder().decode


class NotJson(ValueError):
    """The bytes are not JSON; the text says where."""


def to_bytes(tree: Json) -> bytes:
    """Write a JSON tree as canonical bytes.

    Arguments:
        tree: None, bool, int, finite float, str, list, dict with str keys; exact classes. Floats that are
            not finite must have been refused before: they have no JSON.

    Source: design storage.md, "The log".
    """
    try:
        body = _encode(tree)
    except ValueError:
        return _escaped_bytes(tree)
    return _escaped_bytes(tree) if _MARK in body or body.startswith(_BLOB) else body


def from_bytes(body: bytes) -> Any:
    """Read JSON bytes into a tree; the reverse of `to_bytes`.

    Raises:
        NotJson: when they are not JSON, or nested too deep to be read.
    """
    try:
        tree = _decode(body)
    except (msgspec.MsgspecError, ValueError) as cause:
        raise NotJson(str(cause)) from cause
    except RecursionError as cause:
        raise NotJson("nested too deep") from cause
    return _restored(tree) if _MARK in body else tree


def digest(body: bytes) -> str:
    """The name of a body: its sha256 as 64 hex digits."""
    return sha256(body).hexdigest()


def _escaped_bytes(tree: Any) -> bytes:
    plain = _escaped(tree)
    body = _encode(plain)
    return _encode({_KEY: ["dict", plain]}) if body.startswith(_BLOB) else body


def _escaped(tree: Any) -> Any:
    """The tree with whatever has no plain UTF-8 JSON put as `{"$escaped": [kind, form]}`."""
    if isinstance(tree, str):
        return tree if _is_utf8(tree) else {_KEY: ["str", _ascii(tree)]}
    if isinstance(tree, int):
        return {_KEY: ["int", f"{tree:x}"]} if tree.bit_length() > _WIDE_BITS else tree
    if isinstance(tree, list):
        return [_escaped(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if not all(_is_utf8(key) for key in tree):
        pairs = [[_escaped(key), _escaped(item)] for key, item in sorted(tree.items())]
        return {_KEY: ["pairs", pairs]}
    inner = {key: _escaped(item) for key, item in tree.items()}
    return {_KEY: ["dict", inner]} if _KEY in tree else inner


def _restored(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_restored(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    match tree:  # only what `_escaped` makes is one of these
        case {"$escaped": ["str", str(text)]} if len(tree) == 1:
            return _ESCAPE.sub(_unescape, text)
        case {"$escaped": ["int", str(text)]} if len(tree) == 1:
            return int(text, 16)
        case {"$escaped": ["pairs", list(pairs)]} if len(tree) == 1:
            return {_restored(key): _restored(item) for key, item in pairs}
        case {"$escaped": ["dict", dict(inner)]} if len(tree) == 1:
            return {key: _restored(item) for key, item in inner.items()}
        case _:
            return {key: _restored(item) for key, item in tree.items()}


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _ascii(text: str) -> str:
    return _SURROGATE.sub(lambda found: "\\\\" if found[0] == "\\" else f"\\u{ord(found[0]):04x}", text)


def _unescape(found: re.Match[str]) -> str:
    return "\\" if found[1] == "\\" else chr(int(found[1][1:], 16))
