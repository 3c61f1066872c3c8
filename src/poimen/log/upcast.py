"""Brings bodies of old versions up to the present shape, one function per step.

A log is never rewritten: an old record stays as it was written and is brought up to date each time
it is read. This module must never drop a field; it keeps the invariant that each tag that was ever
written can be read.

Source: design storage.md, "The log" (upcasters for old versions, unknown fields kept).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

UPCASTS: Final[dict[str, Callable[[bytes], tuple[str, bytes]]]] = {}
"""From an old tag to the function that gives the next tag and body. Every tag of version 1 is current."""


def upcast(kind: str, body: bytes) -> tuple[str, bytes]:
    """Follow the steps from `kind` to the present version.

    Arguments:
        kind: tag and version as stored.
        body: the body as stored.
    """
    while (step := UPCASTS.get(kind)) is not None:
        kind, body = step(body)
    return kind, body
