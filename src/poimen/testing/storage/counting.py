"""Counts writes and syncs of each database file, from inside: a layer between SQLite and the operating system.

This module must never change what is written or when; it keeps the invariant that a sync is counted only
after the system has said that it is done.

Source: design proof.md, P5; storage.md, "SQLite".
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw

from poimen import clock
from poimen._typing import override

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class CountingVFS(apsw.VFS):
    """An apsw VFS that passes everything on and counts it.

    Arguments:
        default: every database that this process opens from now on goes through it, until `unregister`.
        on_sync: called with the file's path after each sync.

    Attributes:
        name: as `vfs=` of a connection takes it.
        base: the name of the VFS behind it, the default one until now.
        writes, syncs: how many, by the file's path; the -wal file is a file of its own.
    """

    def __init__(self, *, default: bool = False, on_sync: Callable[[str], None] | None = None) -> None:
        self.name = f"counting-{clock.random_hex(6)}"
        self.writes: Counter[str] = Counter()
        self.syncs: Counter[str] = Counter()
        self._on_sync = on_sync
        self.base = apsw.vfs_names()[0]  # named: "the default one" would be this one, once it is the default
        super().__init__(self.name, self.base, makedefault=default)

    @override
    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802 (SQLite's name)
        """Open a file behind a counter."""
        return _CountedFile(self, name, flags)

    def wal_syncs(self, db: str | os.PathLike[str]) -> int:
        """Syncs of a database's -wal file: one for each commit.

        Arguments:
            db: the database's path.
        """
        return self.syncs[f"{os.path.realpath(db)}-wal"]

    def synced(self, path: str) -> None:
        """A sync of this file has returned."""
        self.syncs[path] += 1
        if self._on_sync is not None:
            self._on_sync(path)


class _CountedFile(apsw.VFSFile):
    def __init__(self, vfs: CountingVFS, name: Any, flags: Any) -> None:
        super().__init__(vfs.base, name, flags)
        self._vfs = vfs
        given = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._path = os.path.realpath(given) if given else ""

    @override
    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 (as above)
        super().xWrite(data, offset)
        self._vfs.writes[self._path] += 1

    @override
    def xSync(self, flags: int) -> None:  # noqa: N802 (as above)
        super().xSync(flags)
        self._vfs.synced(self._path)


@contextmanager
def sync_counter(*, on_sync: Callable[[str], None] | None = None) -> Iterator[CountingVFS]:
    """Count what reaches the files of every database that this process opens inside the block.

    Arguments:
        on_sync: called with the file's path after each sync, in the thread that has committed.

    Source: design proof.md, P5.
    """
    vfs = CountingVFS(default=True, on_sync=on_sync)
    try:
        yield vfs
    finally:
        vfs.unregister()
