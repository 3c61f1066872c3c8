"""Raw edits of a log's database by somebody who knows SQL: each must be located, also when the chain was made anew.

The editor changes, deletes, inserts, moves and swaps records, heads, bodies and what the log says of itself. The better
one makes every hash of the run anew behind an edit, and the head with it; the anchor is not theirs. This module must
never edit the database that it is given. It keeps the invariant that an edit counts as found only if the check names
its run, where it touched one.

Source: design storage.md, "The log" (log check); proof.md, P8.
"""

from __future__ import annotations

import random  # noqa: TID251 (seeded: one seed is one list of edits)
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import apsw

from poimen.kernel.errors import PoimenError
from poimen.log import chain
from poimen.log.disk.connect import SQL
from poimen.log.disk.rows import raw_record_of
from poimen.testing.rot.content import named_damages
from poimen.testing.rot.flips import copied

if TYPE_CHECKING:
    import os
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One edit and what the check said.

    Arguments:
        kind: what was done.
        run, lsn: what was touched; empty and 0 where it belongs to no run.
        found: the check, or the opening, complained.
        located: it named the run (and, but for an editor who made the chain anew, the LSN or the one after it).
        what: its first sentence.
    """

    kind: str
    run: str
    lsn: int
    found: bool
    located: bool
    what: str


class _Touched(NamedTuple):
    run: str = ""
    lsn: int = 0
    exact: bool = True


def edit_rows(db: str | os.PathLike[str], *, folder: str | os.PathLike[str], edits: int, seed: int = 0) -> list[Edit]:
    """Edit copies of a log that was closed, one edit each, and see what a check says.

    Arguments:
        db: the database, closed; its anchor and large bodies lie beside it.
        folder: for the copies; created.
        edits: how many.
        seed: decides which.
    """
    chance = random.Random(seed)  # noqa: S311 (a repeatable choice)
    found: list[Edit] = []
    for n in range(edits):
        place = Path(folder) / "edited"
        copied(Path(db), place)
        kind = list(_KINDS)[n % len(_KINDS)]
        path = place / Path(db).name
        with_it = apsw.Connection(str(path))
        try:
            touched = _KINDS[kind](with_it, chance)
        finally:
            with_it.close()
        found.append(_judged(kind, touched, path))
        shutil.rmtree(place)
    return found


def told_edits(edits: list[Edit]) -> str:
    """The edits in a line."""
    lost = Counter(edit.kind for edit in edits if not edit.located)
    return f"{len(edits)} raw edits of {len(_KINDS)} kinds: {sum(e.located for e in edits)} located" + (
        f"; not: {dict(lost)}" if lost else ""
    )


def _judged(kind: str, touched: _Touched, path: Path) -> Edit:
    try:
        damages = named_damages(path)
    except PoimenError as error:
        damages = [{"run_id": error.ids.get("run_id"), "lsn": error.ids.get("lsn"), "what": error.message}]
    of_run = [damage for damage in damages if not touched.run or damage["run_id"] == touched.run]
    near = {touched.lsn, touched.lsn + 1}
    located = [damage for damage in of_run if not (touched.run and touched.exact) or damage["lsn"] in near]
    what = str((located or damages or [{"what": ""}])[0]["what"])
    return Edit(kind=kind, run=touched.run, lsn=touched.lsn, found=bool(damages), located=bool(located), what=what)


# ---- the edits -----------------------------------------------------------------------------------------------------

_COLUMNS: Final = ("branch", "kind", "subject", "body", "record_id", "hash", "at", "epoch")


def _all(db: apsw.Connection, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
    return db.execute(sql, values).fetchall()


def _record(db: apsw.Connection, chance: random.Random) -> tuple[int, str, int, int]:
    """A record: its position, its run's id and number, its LSN."""
    rows = _all(db, "SELECT pos, run_id, record.run, record.lsn FROM record JOIN run USING (run)")
    pos, run_id, number, lsn = chance.choice(rows)
    return int(pos), str(run_id), int(number), int(lsn)


def _bytes_changed(value: Any, chance: random.Random) -> Any:
    if isinstance(value, int):
        return value + chance.choice((-1, 1, 1 << 20))
    raw = bytearray(value if isinstance(value, bytes) else value.encode())
    raw[chance.randrange(len(raw))] ^= 1
    return bytes(raw) if isinstance(value, bytes) else raw.decode()


def _change_record(db: apsw.Connection, chance: random.Random) -> _Touched:
    pos, run, _, lsn = _record(db, chance)
    column = chance.choice(_COLUMNS)
    value = db.execute(f"SELECT {column} FROM record WHERE pos = ?", (pos,)).get  # noqa: S608 (one of ours)
    db.execute(f"UPDATE record SET {column} = ? WHERE pos = ?", (_bytes_changed(value, chance), pos))  # noqa: S608
    return _Touched(run, lsn)


def _delete_record(db: apsw.Connection, chance: random.Random) -> _Touched:
    pos, run, _, lsn = _record(db, chance)
    db.execute("DELETE FROM record WHERE pos = ?", (pos,))
    return _Touched(run, lsn)


def _cut_tail(db: apsw.Connection, chance: random.Random) -> _Touched:
    """Everything behind a record, and the head set back to it."""
    _, run, number, lsn = _record(db, chance)
    kept = max(1, lsn - 1)
    db.execute("DELETE FROM record WHERE run = ? AND lsn > ?", (number, kept))
    db.execute(
        "UPDATE run SET (lsn, hash) = (SELECT lsn, hash FROM record WHERE run = ?1 AND lsn = ?2),"
        " outsider_lsn = (SELECT coalesce(max(lsn), 0) FROM record WHERE run = ?1 AND epoch = 0) WHERE run = ?1",
        (number, kept),
    )
    return _Touched(run, kept)


def _swap_bodies(db: apsw.Connection, chance: random.Random) -> _Touched:
    pos, run, number, lsn = _record(db, chance)
    sql = "SELECT pos, lsn, body FROM record WHERE run = ? AND body != (SELECT body FROM record WHERE pos = ?)"
    other, other_lsn, body = chance.choice(_all(db, sql, (number, pos)))
    db.execute("UPDATE record SET body = (SELECT body FROM record WHERE pos = ?) WHERE pos = ?", (pos, other))
    db.execute("UPDATE record SET body = ? WHERE pos = ?", (body, pos))
    return _Touched(run, min(lsn, other_lsn))


def _swap_records(db: apsw.Connection, chance: random.Random) -> _Touched:
    _, run, number, lsn = _record(db, chance)
    last = db.execute("SELECT lsn FROM run WHERE run = ?", (number,)).get
    other = chance.choice([n for n in range(1, last + 1) if n != lsn])
    for frm, to in ((lsn, -1), (other, lsn), (-1, other)):
        db.execute("UPDATE record SET lsn = ? WHERE run = ? AND lsn = ?", (to, number, frm))
    return _Touched(run, min(lsn, other))


def _insert_record(db: apsw.Connection, chance: random.Random) -> _Touched:
    _, run, number, _ = _record(db, chance)
    last = db.execute("SELECT max(lsn) FROM record WHERE run = ?", (number,)).get
    db.execute(
        "INSERT INTO record (run, lsn, branch, record_id, kind, subject, body, at, epoch, hash)"
        " SELECT run, lsn + 1, branch, randomblob(16), kind, subject, body, at, epoch, randomblob(32)"
        " FROM record WHERE run = ? AND lsn = ?",
        (number, last),
    )
    return _Touched(run, last)


def _move_record(db: apsw.Connection, chance: random.Random) -> _Touched:
    """To the end of another run."""
    pos, run, number, lsn = _record(db, chance)
    other = chance.choice(_all(db, "SELECT run, lsn FROM run WHERE run != ?", (number,)))
    db.execute("UPDATE record SET run = ?, lsn = ? WHERE pos = ?", (other[0], other[1] + 1, pos))
    return _Touched(run, lsn)


def _change_head(db: apsw.Connection, chance: random.Random) -> _Touched:
    _, run, number, _ = _record(db, chance)
    to = {"lsn": "lsn - 1", "hash": "randomblob(32)", "outsider_lsn": "outsider_lsn + 1", "epoch": "0"}
    column = chance.choice(["state", *to])
    value = to.get(column, "CASE state WHEN 'FAILED' THEN 'SUCCEEDED' ELSE 'FAILED' END")
    db.execute(f"UPDATE run SET {column} = {value} WHERE run = ?", (number,))  # noqa: S608 (one of ours)
    return _Touched(run, exact=False)


def _rename_run(db: apsw.Connection, chance: random.Random) -> _Touched:
    _, run, number, _ = _record(db, chance)
    db.execute("UPDATE run SET run_id = run_id || 'x' WHERE run = ?", (number,))
    return _Touched(run, exact=False)


def _delete_run(db: apsw.Connection, chance: random.Random) -> _Touched:
    _, run, number, _ = _record(db, chance)
    if chance.random() < 0.5:  # noqa: PLR2004 (a coin)
        db.execute("DELETE FROM record WHERE run = ?", (number,))
    db.execute("DELETE FROM run WHERE run = ?", (number,))
    return _Touched(run, exact=False)


def _change_blob(db: apsw.Connection, chance: random.Random) -> _Touched:
    rowid, digest, body = chance.choice(_all(db, "SELECT rowid, digest, body FROM blob"))
    (run, lsn), *_ = _all(
        db,
        "SELECT run_id, record.lsn FROM record JOIN run USING (run) WHERE instr(CAST(body AS TEXT), ?) ORDER BY pos",
        (digest.hex(),),
    )
    how = chance.choice(("body", "digest", "gone"))
    if how == "gone":
        db.execute("DELETE FROM blob WHERE rowid = ?", (rowid,))
    else:
        value = _bytes_changed({"body": body, "digest": digest}[how], chance)
        db.execute(f"UPDATE blob SET {how} = ? WHERE rowid = ?", (value, rowid))  # noqa: S608 (one of ours)
    return _Touched(str(run), int(lsn))


def _change_meta(db: apsw.Connection, chance: random.Random) -> _Touched:
    key = chance.choice(("log_id", "generation", "base"))
    if key == "log_id" or chance.random() < 0.5:  # noqa: PLR2004 (a coin)
        db.execute("DELETE FROM meta WHERE key = ?", ("log_id" if key == "base" else key,))
    else:
        db.execute("UPDATE meta SET value = value - 1 WHERE key = 'generation'")
    return _Touched()


def _change_tables(db: apsw.Connection, chance: random.Random) -> _Touched:
    db.execute(
        chance.choice(
            (
                "DROP INDEX run_live",
                "DROP INDEX record_lsn",
                "CREATE TRIGGER t AFTER INSERT ON record BEGIN DELETE FROM record WHERE pos = new.pos; END",
            )
        )
    )
    return _Touched()


def _rechain(db: apsw.Connection, chance: random.Random) -> _Touched:
    """Change a body and make every hash behind it anew, and the head's."""
    pos, run, number, lsn = _record(db, chance)
    body = db.execute("SELECT body FROM record WHERE pos = ?", (pos,)).get
    db.execute("UPDATE record SET body = ? WHERE pos = ?", (body[:-1] + b',"zz":1}', pos))
    log_id = db.execute("SELECT value FROM meta WHERE key = 'log_id'").get
    prev = chain.first_prev(log_id, run)
    for row in db.execute(SQL["read_raw"], (number, 0, 1 << 62, -1)).fetchall():
        record = raw_record_of(run, row)
        prev = chain.link_of(prev, record)
        db.execute("UPDATE record SET hash = ? WHERE run = ? AND lsn = ?", (prev, number, record.lsn))
    db.execute("UPDATE run SET hash = ? WHERE run = ?", (prev, number))
    return _Touched(run, lsn, exact=False)


_KINDS: Final[dict[str, Callable[[apsw.Connection, random.Random], _Touched]]] = {
    "a record's column": _change_record,
    "a record deleted": _delete_record,
    "a tail cut off": _cut_tail,
    "two bodies swapped": _swap_bodies,
    "two records swapped": _swap_records,
    "a record inserted": _insert_record,
    "a record moved to another run": _move_record,
    "a head": _change_head,
    "a run renamed": _rename_run,
    "a run deleted": _delete_run,
    "a body": _change_blob,
    "the log's id or generation": _change_meta,
    "the tables": _change_tables,
    "a body, every hash made anew": _rechain,
}
