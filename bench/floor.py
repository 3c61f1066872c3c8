"""The machine's floor: the same bytes committed by nothing but SQLite."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import apsw

if TYPE_CHECKING:
    from pathlib import Path

EFFECT_BYTES = (620, 110, 330)
"""What the three commits of one effect hold: claim, dispatch, outcome with what rides along."""


class Bare:
    """Commits by bare apsw, synchronous=FULL, one table, no checkpoints.

    Arguments:
        path: a new database file.
    """

    def __init__(self, path: Path) -> None:
        self.db = apsw.Connection(str(path))
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=0"):
            self.db.execute(f"PRAGMA {pragma}").fetchall()
        self.db.execute("CREATE TABLE r(pos INTEGER PRIMARY KEY, body BLOB)").fetchall()

    def commit(self, *sizes: int) -> float:
        """One commit of a row of each size, in bytes; the seconds it took."""
        began = time.perf_counter()
        self.db.execute("BEGIN IMMEDIATE")
        for size in sizes:
            self.db.execute("INSERT INTO r(body) VALUES (?)", (b"x" * size,))
        self.db.execute("COMMIT")
        return time.perf_counter() - began

    def effect(self) -> float:
        """The three commits of one effect; the seconds they took."""
        return sum(self.commit(size) for size in EFFECT_BYTES)
