"""Bodies that records name by digest: what they are, and what a place that keeps them must do.

A body is content addressed: its name is its sha256 in 64 hex digits and nothing else. It is durable before
the record that names it. This module must never know where bodies lie; it keeps the
invariant that what is read is what was named.

Source: design storage.md, "The log" (blobs).
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol

from poimen.kernel.errors import Corrupt, NotFound
from poimen.kernel.intent import BlobRef

if TYPE_CHECKING:
    from collections.abc import Iterator

INLINE_BYTES: Final = 16 * 1024
"""Up to here a body stands in the record itself."""

SMALL_BYTES: Final = 64 * 1024
"""Up to here a body rides in the transaction of the record that names it; what a tool has returned, in the record."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class BlobStore(Protocol):
    """A place that keeps bodies."""

    def put(self, body: bytes, media_type: str = "application/json") -> BlobRef:
        """Keep a body, durably when this returns; once, however often it is put."""
        ...

    def get(self, digest: str) -> bytes:
        """The body of this name.

        Raises:
            NotFound: when there is none, or the name is no digest.
            Corrupt: when what is there does not match its name.
        """
        ...

    def check(self) -> Iterator[tuple[str, str]]:
        """Read every body; yield for each damaged one its digest and a sentence."""
        ...


def ref_of(body: bytes, media_type: str) -> BlobRef:
    """The name of a body. `media_type` is such as `application/json`."""
    return BlobRef(digest=sha256(body).hexdigest(), size=len(body), media_type=media_type)


def is_digest(text: str) -> bool:
    """Whether a text can name a body: 64 lower-case hex digits, so that it cannot lead out of its folder."""
    return _DIGEST.fullmatch(text) is not None


def verified(digest: str, body: bytes, where: str) -> bytes:
    """The body, after a look at its digest.

    Raises:
        Corrupt: when they do not match.
    """
    if sha256(body).hexdigest() != digest:
        raise Corrupt(f"blob {digest} does not match its digest", where=where, digest=digest)
    return body


def unknown(digest: str, where: str) -> NotFound:
    """The error for a name that leads to nothing."""
    return NotFound(f"no blob {digest[:80]!r}", where=where, digest=digest)


def gone(digest: str, named_by: str, where: str) -> Corrupt:
    """The error for a body that a record names and that is not there; `where` it should be."""
    return Corrupt(f"{named_by} names blob {digest}, which is gone", where=where, digest=digest)
