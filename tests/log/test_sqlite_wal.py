"""A WAL that is broken in its middle, or lies beside a database that is not its own, is refused and left as it is."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import apsw
import pytest

from poimen.kernel.errors import Corrupt
from poimen.log import wal
from poimen.log.disk.files import Sides
from poimen.log.sqlite import SqliteStore
from tests.log.stores import Child, admitted, batch, damages, edited, landed, lsns

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FRAME = 24 + 4096


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A log whose last process was killed: what it had appended lies in the WAL."""
    db = tmp_path / "log" / "poimen.db"
    store = SqliteStore(db)
    admitted(store)
    store.close()
    killed(db, 10)
    return db


def killed(db: Path, n: int) -> None:
    """Append `n` batches of two records, and die."""
    with Child("append_until_it_fails", db, "r1", n) as child:
        child.says()
        child.kill()


def wal_of(db: Path) -> Path:
    return Sides.of(db).wal


def contents(db: Path) -> dict[str, bytes]:
    """What is in the files that hold records."""
    return {path.name: path.read_bytes() for path in (db, wal_of(db))}


def refused(db: Path, match: str) -> None:
    before = contents(db)
    for _ in range(2):
        with pytest.raises(Corrupt, match=match):
            SqliteStore(db)
    assert contents(db) == before


def commits(db: Path) -> list[int]:
    with wal._opened(wal_of(db), apsw.SQLITE_OPEN_WAL) as file:
        return list(wal._commits(file, file.xRead(32, 0)))


def flipped(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


# ---- broken ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [2000, 24 - 1, 4, 8])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.8])
def test_a_bit_that_was_flipped_before_other_commits_is_damage(db: Path, part: float, at: int) -> None:
    broken = int(len(commits(db)) * part)
    flipped(wal_of(db), 32 + FRAME * (commits(db)[broken] - 1) + at)
    refused(db, "damaged in frame")
    assert ("", 0) in damages(db)


def test_a_last_transaction_that_is_torn_was_never_acknowledged(db: Path) -> None:
    flipped(wal_of(db), 32 + FRAME * (commits(db)[-1] - 1) + 100)
    assert damages(db) == []
    store = SqliteStore(db)
    head = store.head("r1")
    assert lsns(store) == list(range(1, 23))
    assert head is not None
    assert head.epoch == 0, "what was torn is the claim behind the last record"
    store.close()


def test_frames_of_an_earlier_use_of_the_wal_mean_nothing(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poimen.log.disk.handle.CHECKPOINT_PAGES", 12)
    store = SqliteStore(db)
    for _ in range(40):
        landed(store, batch("r1"))
        landed(store, batch("r1", n=3))
        copy = db.parent.parent / "copy" / db.name
        shutil.rmtree(copy.parent, ignore_errors=True)
        shutil.copytree(db.parent, copy.parent)
        other = SqliteStore(copy)
        assert lsns(other) == lsns(store)
        other.close()
    store.close()


# ---- of another database ---------------------------------------------------------------------------------------------


def a_backup(db: Path, old: Path) -> None:
    reader = SqliteStore(db, read_only=True)
    reader.backup(old)
    reader.close()


def a_copy_at_rest(db: Path, old: Path) -> None:
    SqliteStore(db).close()
    shutil.copyfile(db, old)


@pytest.mark.parametrize(("take", "anchored"), [(a_backup, True), (a_backup, False), (a_copy_at_rest, True)])
def test_an_old_database_put_under_a_newer_wal_is_refused(
    db: Path, tmp_path: Path, take: Callable[[Path, Path], None], *, anchored: bool
) -> None:
    take(db, tmp_path / "old.db")
    killed(db, 5)
    shutil.copyfile(tmp_path / "old.db", db)
    if not anchored:
        Sides.of(db).anchor.unlink()
    refused(db, "does not fit its WAL")


def test_a_record_that_was_anchored_and_is_not_there_is_noticed_before_anything_is_written(db: Path) -> None:
    store = SqliteStore(db)
    landed(store, batch("r1"))
    store.close()
    raw = Sides.of(db).anchor.read_bytes()
    edited(db, "UPDATE record SET hash = zeroblob(32) WHERE run = 1 AND lsn = (SELECT max(lsn) FROM record)")
    with pytest.raises(Corrupt, match="is not the log that was anchored") as caught:
        SqliteStore(db)
    assert (caught.value.ids["run_id"], caught.value.ids["lsn"]) == ("r1", 23)
    assert Sides.of(db).anchor.read_bytes() == raw
