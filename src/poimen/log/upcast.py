"""Brings bodies of old versions up to the present shape, one function per old version.

A log is never rewritten: an old record stays as it was written and is brought up to date each time
it is read. This module must never drop a field; it keeps the invariant that each tag that was ever
written can be read.

Source: design storage.md, "The log" (upcasters for old versions, unknown fields kept).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_DROPPED: Final = {
    "cancel": "cancel",
    "timeout": "timeout",
    "crash loop": "crash-loop",
    "another effect of this attempt is unknown": "held-back",
    # the rules by which the ladder gives up, which stand in a record of their own beside
    "sends-used-up": "sends-used-up",
    "at-most-once": "sends-used-up",
    "probe-unknown": "sends-used-up",
    "clock-went-back": "sends-used-up",
}


def _read_dropped(body: bytes) -> bytes:
    """The reason was any text; what is none of those above was the error that had interrupted the body."""
    given: dict[str, Any] = json.loads(body)
    known = _DROPPED.get(given["why"])
    given |= {"why": known} if known is not None else {"why": "interrupted", "detail": given["why"]}
    return json.dumps(given).encode()


NEWER: Final = {"intent.read_dropped.v1": "intent.read_dropped.v2"}
"""By the tag of an old version: the present one."""

UPCASTS: Final[dict[str, Callable[[bytes], bytes]]] = {"intent.read_dropped.v1": _read_dropped}
"""By the tag of an old version: what brings a body of it up to the present one."""


def upcast(kind: str, body: bytes) -> bytes:
    """A body in the form of the present version of its tag.

    Arguments:
        kind: tag and version as stored.
        body: the body as stored.

    Raises:
        ValueError, KeyError, TypeError: it does not have the form of its version.
    """
    step = UPCASTS.get(kind)
    return body if step is None else step(body)
