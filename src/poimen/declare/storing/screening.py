"""The last look at a value before it is stored: its size, and that it holds no secret.

A value is stored as it is or not at all: what code is told must be what is stored. This module must never know
annotations. It keeps the invariant that what it refuses is named by its path and what it is, and is not shown.

Source: docs/decisions/0014-secrets.md; design api.md, "Values" (refused before anything happens, naming the path).
"""

from __future__ import annotations

from typing import Any, Final

from poimen.declare.storing.canonical import from_bytes
from poimen.kernel.errors import NotStorable
from poimen.secrecy.setting import in_force

MAX_BYTES: Final = 64 * 1024 * 1024
"""Of one value as stored."""

MAX_PARTS: Final = 1_000_000
"""Items and keys of one value, those of all its parts counted."""

_HINT: Final = (
    'pass poimen.Secret("env:NAME") and ask for the value in the tool, with .reveal(); if it is none: '
    "[tool.poimen.secrets] allow"
)
_SIZE_HINT: Final = "keep it where it belongs (a file, an object store) and store its name and digest"


def screened(body: bytes, path: str, *, where: str = "") -> bytes:
    """The stored form of a value, when it may be stored.

    Arguments:
        body: canonical JSON.
        path: how messages name the value; "" where its keys do that, being the names of arguments.
        where: of the function that it is an argument of.

    Raises:
        NotStorable: it is too large, or holds a secret; the path is named.
    """
    if len(body) > MAX_PARTS:
        _check_size(body, path, where)
    found = in_force().find(body, from_bytes)
    if found is None:
        return body
    at = (path + found.path).removeprefix(".")
    raise NotStorable(
        f"{at}: {found.what} is not written to the log", where=where, why="nothing was recorded", hint=_HINT, path=at
    )


def _check_size(body: bytes, path: str, where: str) -> None:
    """A value of at most `MAX_PARTS` bytes has no more parts than that: only larger ones are counted."""
    what = f"{len(body)} bytes as stored, {MAX_BYTES} is the limit" if len(body) > MAX_BYTES else ""
    if not what and (parts := _parts(from_bytes(body))) > MAX_PARTS:
        what = f"{parts} keys and items, {MAX_PARTS} is the limit"
    if what:
        at = path or "arguments"
        raise NotStorable(f"{at}: {what}", where=where, why="nothing was recorded", hint=_SIZE_HINT, path=at)


def _parts(tree: Any) -> int:
    ahead, n = [tree], 0
    while ahead:
        one = ahead.pop()
        inner = one.values() if type(one) is dict else one if type(one) is list else ()
        n += len(inner)
        ahead.extend(each for each in inner if type(each) in {dict, list})
    return n
