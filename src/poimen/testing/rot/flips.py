"""Single bits of a log's files, flipped one at a time: found, or shown to mean nothing.

    flips = flip_bits("killed/poimen.db", folder="tmp", flips=1000)
    assert wrong(flips) == []

This module must never touch the files that it is given. It keeps the invariant that a flip counts as harmless only if
everything reads back the same, before and after an opening for writing, and the file's format says why.

Source: design proof.md, P8.
"""

from __future__ import annotations

import random  # noqa: TID251 (seeded: one seed is one list of flips)
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from poimen.kernel.errors import PoimenError
from poimen.log.sqlite import SqliteStore
from poimen.testing.rot.content import content_of, named_damages
from poimen.testing.rot.meaning import Meaning

if TYPE_CHECKING:
    import os

    from poimen.testing.rot.content import Content

Verdict: TypeAlias = Literal["named", "refused", "unused", "limit", "silent", "crashed"]

_SHARES: Final = {"db": 55, "wal": 25, "anchor": 8, "blob": 12}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One flipped bit and what became of it.

    Arguments:
        file: its name; `offset` and `bit` (0 to 7) in it.
        verdict: `named` by a check; `refused` by an opening or a reading; `unused`: shown to mean nothing; `limit`: in
            the last transaction of a WAL that no anchor names, which looks like a power loss; `silent`: another answer,
            or no proof that the bit means nothing; `crashed`: an error that is none of poimen's.
        what: the sentence that goes with it.
        run, lsn: where it was named, if any record leads there.
    """

    file: str
    offset: int
    bit: int
    verdict: Verdict
    what: str
    run: str = ""
    lsn: int = 0


def flip_bits(db: str | os.PathLike[str], *, folder: str | os.PathLike[str], flips: int, seed: int = 0) -> list[Flip]:
    """Flip bits of the files of a log at rest, one at a time, and judge each.

    Arguments:
        db: the database; nobody has it open. Its -wal, anchor and large bodies lie beside it.
        folder: for the copies; created.
        flips: how many.
        seed: decides which.

    Source: design proof.md, P8.
    """
    trial = _Trial(Path(db), Path(folder))
    chance = random.Random(seed)  # noqa: S311 (a repeatable choice)
    kinds = [kind for kind in _SHARES if trial.files[kind]]
    found: list[Flip] = []
    for _ in range(flips):
        path = chance.choice(trial.files[chance.choices(kinds, [_SHARES[kind] for kind in kinds])[0]])
        found.append(trial.flip(path, chance.randrange(path.stat().st_size), chance.randrange(8)))
    return found


def wrong(flips: list[Flip]) -> list[Flip]:
    """The flips that were neither found nor shown to mean nothing."""
    return [flip for flip in flips if flip.verdict in {"silent", "crashed"}]


def told(flips: list[Flip]) -> str:
    """The verdicts in a line."""
    counts = Counter(flip.verdict for flip in flips)
    placed = sum(1 for flip in flips if flip.run)
    words = ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common())
    return f"{len(flips)} flips: {words}; {placed} with their run and LSN"


class _Trial:
    """Copies of one log, and what it says when it is whole."""

    def __init__(self, db: Path, folder: Path) -> None:
        self.whole = folder / "whole"
        self.flipped = folder / "flipped"
        self.written = folder / "written"
        for place in (self.whole, self.flipped):
            copied(db, place)
        self.db = self.flipped / db.name
        self.meaning = Meaning(self.whole / db.name)
        shutil.rmtree(self.whole)
        copied(db, self.whole)
        self.content: Content = content_of(self.db)
        names = {"db": self.db, "wal": _beside(self.db, "-wal"), "anchor": _beside(self.db, ".anchor")}
        self.files = {kind: [path] if path.exists() and path.stat().st_size else [] for kind, path in names.items()}
        self.files["blob"] = sorted(path for path in _beside(self.db, ".blobs").glob("*/*") if path.stat().st_size)

    def flip(self, path: Path, offset: int, bit: int) -> Flip:
        raw = path.read_bytes()
        changed = bytearray(raw)
        changed[offset] ^= 1 << bit
        path.write_bytes(changed)
        try:
            verdict, what, run, lsn = self._judged(path, offset)
        except PoimenError as error:
            verdict, what, run, lsn = "refused", error.message, str(error.ids.get("run_id", "")), 0
        except Exception as error:  # noqa: BLE001 (whatever is none of poimen's errors is what is sought)
            verdict, what, run, lsn = "crashed", repr(error), "", 0
        finally:
            path.write_bytes(raw)
            _beside(self.db, "-shm").unlink(missing_ok=True)
        return Flip(file=path.name, offset=offset, bit=bit, verdict=verdict, what=what, run=run, lsn=lsn)

    def _judged(self, path: Path, offset: int) -> tuple[Verdict, str, str, int]:
        if damages := named_damages(self.db):
            one = next((damage for damage in damages if damage["run_id"]), damages[0])
            return "named", one["what"], one["run_id"] or "", one["lsn"] or 0
        same = content_of(self.db) == self.content
        copied(self.db, self.written)
        copy = self.written / self.db.name
        SqliteStore(copy).close()
        same = same and content_of(copy) == self.content
        if same and (why := self._unused(path, offset)):
            return "unused", why, "", 0
        if path == _beside(self.db, "-wal") and self.meaning.in_last_transaction(offset):
            return "limit", "damage in the last transaction of the WAL looks like a power loss", "", 0
        return (
            "silent",
            "the same content, and no proof that the bit means nothing" if same else "another answer",
            "",
            0,
        )

    def _unused(self, path: Path, offset: int) -> str:
        if path == self.db:
            return self.meaning.free_in_db(offset)
        return self.meaning.free_in_wal(offset) if path == _beside(self.db, "-wal") else ""


def _beside(db: Path, ending: str) -> Path:
    return db.with_name(f"{db.name}{ending}")


def copied(db: Path, to: Path) -> None:
    """Copy the files that make a log: not the shared memory, and no lock."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for ending in ("", "-wal", ".anchor"):
        if (path := _beside(db, ending)).exists():
            shutil.copyfile(path, to / path.name)
    if (bodies := _beside(db, ".blobs")).exists():
        shutil.copytree(bodies, to / bodies.name)
