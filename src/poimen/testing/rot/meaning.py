"""Which bytes of a SQLite file mean anything: read from the file itself, by the rules of its format.

A walk of our own over every b-tree: header, cell pointers, cells, overflow pages, free-list trunks. What it does not
come to is free. This module must never ask poimen; the roots of the trees are SQLite's own word. It keeps the invariant
that a byte it calls free is in no cell and no list.

Source: SQLite, "Database File Format", sections 1.3 to 1.6 and 4; design proof.md, P8.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import apsw

if TYPE_CHECKING:
    from pathlib import Path

_TABLE_LEAF, _TABLE, _INDEX_LEAF, _INDEX = 13, 5, 10, 2
_SAYS_NOTHING: Final = ((24, 28), (40, 44), (48, 52), (72, 100))
"""Header fields that no reader needs: change counter, schema cookie, cache size, reserved space, version numbers."""
_WAL_HEADER: Final = 32
_FRAME: Final = 24


@dataclass(slots=True, kw_only=True)
class Wal:
    """The frames of a WAL.

    Arguments:
        page: bytes of a page.
        pages: the page number of each frame, up to the last commit, from the first.
        commits: the numbers of the frames that end a transaction, from 1.
    """

    page: int = 4096
    pages: list[int] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, raw: bytes) -> Wal:
        """Read the frames under the header's salts, up to the last commit."""
        if len(raw) <= _WAL_HEADER:
            return cls()
        page, salts = struct.unpack(">I", raw[8:12])[0], raw[16:24]
        wal = cls(page=page)
        for at in range(_WAL_HEADER, len(raw) - _FRAME - page + 1, _FRAME + page):
            number, size = struct.unpack(">II", raw[at : at + 8])
            if raw[at + 8 : at + 16] != salts:
                break
            wal.pages.append(number)
            if size:
                wal.commits.append(len(wal.pages))
        del wal.pages[wal.commits[-1] if wal.commits else 0 :]
        return wal

    def frame_at(self, offset: int) -> int:
        """The number of the frame that holds a byte, from 1; 0: the header."""
        return 0 if offset < _WAL_HEADER else (offset - _WAL_HEADER) // (_FRAME + self.page) + 1


class Meaning:
    """What the bytes of a database mean, together with its WAL.

    Arguments:
        db: the database at rest, whole.
    """

    def __init__(self, db: Path) -> None:
        wal_path = db.with_name(f"{db.name}-wal")
        raw_wal = wal_path.read_bytes() if wal_path.exists() else b""
        self.wal = Wal.of(raw_wal)
        image = bytearray(db.read_bytes())
        self.page = struct.unpack(">H", image[16:18])[0] if image else 4096
        for n, number in enumerate(self.wal.pages):
            at, start = _WAL_HEADER + n * (_FRAME + self.page) + _FRAME, (number - 1) * self.page
            image.extend(bytes(max(0, start + self.page - len(image))))
            image[start : start + self.page] = raw_wal[at : at + self.page]
        self._image = bytes(image)
        self._usable = self.page - image[20]
        self._used = bytearray(len(image))
        self._mark(0, 100)
        for first, last in _SAYS_NOTHING:
            self._used[first:last] = bytes(last - first)
        for root in (1, *_roots(db)):
            self._tree(root)
        self._free_list()

    def free_in_db(self, offset: int) -> str:
        """Why a byte of the database file means nothing; empty when it means something."""
        if offset // self.page + 1 in self.wal.pages:
            return "the page is superseded by a committed frame of the WAL"
        return "" if self._used[offset] else "SQLite uses the byte for nothing"

    def free_in_wal(self, offset: int) -> str:
        """As `free_in_db`, for a byte of the WAL: every frame up to the last commit is part of its sums."""
        return "the frame lies behind the last commit" if self.wal.frame_at(offset) > len(self.wal.pages) else ""

    def in_last_transaction(self, offset: int) -> bool:
        """Whether a byte of the WAL belongs to the last transaction, whose damage looks like a torn write."""
        commits = self.wal.commits
        before = commits[-2] if len(commits) > 1 else 0
        return bool(commits) and before < self.wal.frame_at(offset) <= commits[-1]

    # ---- the walk ----------------------------------------------------------------------------------------------

    def _mark(self, at: int, size: int) -> None:
        self._used[at : at + size] = b"\1" * size

    def _int(self, at: int, size: int) -> int:
        return int.from_bytes(self._image[at : at + size])

    def _varint(self, at: int) -> tuple[int, int]:
        value = 0
        for n in range(9):
            byte = self._image[at + n]
            if n == 8:  # noqa: PLR2004 (the ninth byte counts whole)
                return value << 8 | byte, at + 9
            value = value << 7 | byte & 0x7F
            if byte < 0x80:  # noqa: PLR2004 (the high bit says that there is more)
                return value, at + n + 1
        raise AssertionError

    def _tree(self, number: int) -> None:
        start = (number - 1) * self.page
        at = start + (100 if number == 1 else 0)
        kind = self._image[at]
        inner = kind in {_TABLE, _INDEX}
        size, cells = (12 if inner else 8), self._int(at + 3, 2)
        self._mark(at, size + 2 * cells)
        block = self._int(at + 1, 2)
        while block:
            self._mark(start + block, 4)
            block = self._int(start + block, 2)
        for n in range(cells):
            self._cell(kind, start + self._int(at + size + 2 * n, 2))
        if inner:
            self._tree(self._int(at + 8, 4))

    def _cell(self, kind: int, begin: int) -> None:
        at = begin
        if kind in {_TABLE, _INDEX}:
            self._tree(self._int(at, 4))
            at += 4
        if kind == _TABLE:
            _, at = self._varint(at)
            self._mark(begin, at - begin)
            return
        payload, at = self._varint(at)
        if kind == _TABLE_LEAF:
            _, at = self._varint(at)
        usable = self._usable
        most = usable - 35 if kind == _TABLE_LEAF else (usable - 12) * 64 // 255 - 23
        local = payload
        if payload > most:
            least = (usable - 12) * 32 // 255 - 23
            local = least + (payload - least) % (usable - 4)
            local = local if local <= most else least
            self._overflow(self._int(at + local, 4), payload - local)
            at += 4
        self._mark(begin, at + local - begin)

    def _overflow(self, number: int, left: int) -> None:
        while number and left > 0:
            start = (number - 1) * self.page
            here = min(left, self._usable - 4)
            self._mark(start, 4 + here)
            left -= here
            number = self._int(start, 4)

    def _free_list(self) -> None:
        trunk = self._int(32, 4)
        while trunk:
            start = (trunk - 1) * self.page
            self._mark(start, 8 + 4 * self._int(start + 4, 4))
            trunk = self._int(start, 4)


def _roots(db: Path) -> list[int]:
    connection = apsw.Connection(str(db), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        return [root for (root,) in connection.execute("SELECT rootpage FROM sqlite_schema WHERE rootpage") if root > 1]
    finally:
        connection.close()
