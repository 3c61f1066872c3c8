"""Bodies of any size: small ones ride into the log's own table, large ones become files.

A small body costs no sync of its own, since it is written by the transaction whose record names it. This
module must never know what a record is: the log hands it a way to look a body up.

Source: design storage.md, "The log" (blobs).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from poimen.blobs.api import INLINE_BYTES, SMALL_BYTES, gone, is_digest, ref_of, unknown
from poimen.blobs.files import FileBlobs, beside
from poimen.kernel.errors import Corrupt, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from poimen.kernel.intent import BlobRef, Payload


class Table(Protocol):
    """Where small bodies lie: a log's store is one."""

    def blob(self, digest: str) -> bytes | None:
        """The body, checked against its digest, or None."""
        ...


class TieredBlobs:
    """A `BlobStore` over a log's table and a folder of files.

    Arguments:
        table: the log's store.
        db: the database's file, beside which large bodies lie; None: a log in memory, where all are small.
    """

    def __init__(self, table: Table, db: Path | None) -> None:
        self._table = table
        self._files = FileBlobs(beside(db)) if db is not None else None
        self._where = str(db) if db is not None else "memory"
        self._loose: dict[str, bytes] = {}

    def kept(self, body: bytes, media_type: str = "application/json") -> tuple[BlobRef, bytes | None]:
        """Name a body, and decide where it goes.

        Returns:
            The name, and the body if it must ride in the batch of the record that names it; None when it is
            durable already, as a file.

        Raises:
            StorageFailed: when a large one cannot be written.
        """
        if self._files is None or len(body) <= SMALL_BYTES:
            return ref_of(body, media_type), body
        return self._files.put(body, media_type), None

    def payload(self, body: bytes, *, most: int = INLINE_BYTES) -> Payload:
        """A body as it goes into a record: itself when it is small, else the name of a file, which is durable.

        Arguments:
            body: canonical JSON.
            most: bytes that may stand in the record.

        Raises:
            StorageFailed: when a large one cannot be written.
        """
        return body if len(body) <= most else self.put(body)

    def put(self, body: bytes, media_type: str = "application/json") -> BlobRef:
        """Keep a body on its own, whatever its size: without a batch it becomes a file."""
        if self._files is not None:
            return self._files.put(body, media_type)
        ref = ref_of(body, media_type)
        self._loose[ref.digest] = body
        return ref

    def get(self, digest: str) -> bytes:
        """The body of this name, from the table or from its file.

        Raises:
            NotFound: when there is none, or the name is no digest.
            Corrupt: when it does not match its name.
        """
        if not is_digest(digest):
            raise unknown(digest, self._where)
        body = self._table.blob(digest)
        if body is None and self._files is not None:
            return self._files.get(digest)
        if body is None:
            body = self._loose.get(digest)
        if body is None:
            raise unknown(digest, self._where)
        return body

    def read(self, payload: Payload, named_by: str) -> bytes:
        """The bytes of a recorded body: as it stands in the record, or from where the record says.

        Arguments:
            payload: the body, or its name.
            named_by: the record, such as `run r1 LSN 1`, for the error.

        Raises:
            Corrupt: when it is gone, since a record names only what is durable; or it does not match its name.
        """
        if isinstance(payload, bytes):
            return payload
        try:
            return self.get(payload.digest)
        except NotFound as error:
            raise gone(payload.digest, named_by, self.place(payload.digest)) from error

    def has(self, digest: str) -> bool:
        """Whether there is a body of this name; one that does not match it counts, and is for `check` to find."""
        if self._files is not None and self._files.has(digest):
            return True
        with suppress(Corrupt):
            return digest in self._loose or self._table.blob(digest) is not None
        return True

    def place(self, digest: str) -> str:
        """Where a body of this name would lie as a file, for people."""
        return self._files.place(digest) if self._files is not None else self._where

    def fault(self, digest: str) -> str:
        """What is wrong with the body of this name; empty when nothing is, as of any file: `check` reads those."""
        try:
            there = digest in self._loose or self._table.blob(digest) is not None
        except Corrupt as error:
            return error.message
        there = there or (self._files is not None and self._files.has(digest))
        return "" if there else f"blob {digest} is gone: {self.place(digest)}"

    def check(self) -> Iterator[tuple[str, str]]:
        """Read every body in a file, see `FileBlobs.check`; the table is part of the log's own check."""
        if self._files is not None:
            yield from self._files.check()

    def copy(self, db: Path) -> int:
        """Copy the bodies in files to beside a copy of the database, before it has its name; their number."""
        return self._files.copy(beside(db)) if self._files is not None else 0
