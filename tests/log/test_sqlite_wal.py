"""A WAL that is broken in its middle, or lies beside a database that is not its own, is refused and left as it is."""

from __future__ import annotations

import shutil
import struct
from typing import TYPE_CHECKING

import apsw
import pytest

from poimen.kernel.errors import Corrupt, StorageFailed
from poimen.log import wal
from poimen.log.disk import doubt, files
from poimen.log.disk.files import Sides
from poimen.log.sqlite import SqliteStore
from poimen.testing.storage.faults import Fault, faulty_storage
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


def test_a_commit_in_doubt_hides_no_damage(db: Path) -> None:
    doubt.mark(files.Sides.of(db), (), worker="w", error="disk I/O error")
    flipped(wal_of(db), 32 + FRAME * (commits(db)[2] - 1) + 100)
    refused(db, "damaged in frame")


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


def composed(raw: bytes, at: int, frames: list[tuple[int, int, bytes]]) -> bytes:
    """The WAL with frames (page number, pages after a commit or 0, page) behind frame `at`, as SQLite sums them."""
    magic, _, _, _, *salts, one, two = struct.unpack(">8I", raw[:32])
    words = struct.Struct(f"{'>' if magic & 1 else '<'}1026I")
    if at:
        one, two = struct.unpack(">2I", raw[32 + FRAME * (at - 1) + 16 :][:8])
    new = b""
    for number, pages, page in frames:
        head = struct.pack(">2I", number, pages)
        one, two = wal._summed(words.unpack(head + page), (one, two))
        new += head + struct.pack(">4I", *salts, one, two) + page
    start = 32 + FRAME * at
    return raw[:start] + new + raw[start + len(new) :]


def repeated(raw: bytes, n: int, mark: int) -> list[tuple[int, int, bytes]]:
    """A transaction of `n` frames that changes nothing: the last one again, under a free page behind it."""
    number, pages = struct.unpack(">2I", raw[-FRAME:][:8])
    page = raw[-FRAME + 24 :]
    return [(pages + 9, 0, bytes([mark]) * 4096)] * (n - 1) + [(number, pages, page)]


def test_what_killed_writers_left_under_the_commits_of_others_is_no_damage(db: Path) -> None:
    """Each was killed before the wal-index named its commit; the process that lived wrote over the start of it."""
    raw = wal_of(db).read_bytes()[: 32 + FRAME * commits(db)[-1]]
    end = commits(db)[-1]
    left = composed(raw, end, repeated(raw, 20, 1))
    left = composed(left, end, repeated(raw, 3, 2))
    left = composed(left, end + 3, repeated(raw, 12, 3))
    left = composed(left, end + 3, repeated(raw, 2, 4))
    wal_of(db).write_bytes(left)
    assert commits(db)[-4:] == [end + 3, end + 5, end + 15, end + 20]
    assert damages(db) == []
    store = SqliteStore(db)
    assert lsns(store) == list(range(1, 23))
    store.close()


@pytest.mark.parametrize("named", [0, 1])
def test_frames_that_go_on_from_the_last_good_one_are_not_broken(db: Path, named: int) -> None:
    """A wal-index that was made anew, or is behind, names fewer frames than are good."""
    good = [0, commits(db)[2]][named]
    assert wal.damaged(lambda _sql, _values: [(0, good, 0)], wal_of(db)) == ""
    flipped(wal_of(db), 32 + FRAME * good + 2000)
    assert wal.damaged(lambda _sql, _values: [(0, good, 0)], wal_of(db)) != ""


@pytest.mark.parametrize("at", [2000, 24 - 1, 8])
def test_a_flipped_bit_is_seen_before_what_killed_writers_left(db: Path, at: int) -> None:
    raw = wal_of(db).read_bytes()[: 32 + FRAME * commits(db)[-1]]
    end = commits(db)[-1]
    broken = commits(db)[-3]
    wal_of(db).write_bytes(composed(composed(raw, end, repeated(raw, 9, 1)), end, repeated(raw, 2, 2)))
    flipped(wal_of(db), 32 + FRAME * (broken - 1) + at)
    refused(db, "damaged in frame")


@pytest.mark.parametrize("at", [2000, 24 - 1, 4])
def test_one_commit_behind_a_flipped_bit_is_enough_when_the_frame_still_tells_its_own(db: Path, at: int) -> None:
    broken = commits(db)[-2]
    flipped(wal_of(db), 32 + FRAME * (broken - 1) + at)
    refused(db, "damaged in frame")


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


def test_a_checkpoint_that_was_broken_off_in_the_page_that_names_the_base_is_no_other_database(db: Path) -> None:
    """A power loss leaves old and new sectors beside each other; the WAL still has the whole page."""
    connection = apsw.Connection(str(db), flags=apsw.SQLITE_OPEN_READONLY)
    page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'meta'").get
    connection.close()
    raw = bytearray(db.read_bytes())
    raw[(page - 1) * 4096 + 3 : (page - 1) * 4096 + 5] = b"\0\0"  # of the page's header: no row
    db.write_bytes(raw)
    store = SqliteStore(db)
    assert lsns(store) == list(range(1, 23))
    assert list(store.check()) == []
    store.close()


def test_a_wal_that_cannot_be_read_is_told_as_of_the_log(db: Path, tmp_path: Path) -> None:
    told = 0
    for nth in range(1, 30):
        copy = shutil.copytree(db.parent, tmp_path / str(nth)) / db.name
        with faulty_storage(copy, Fault(call="read", nth=nth)) as layer:
            try:
                SqliteStore(copy).close()
            except StorageFailed:
                told += 1
                assert layer.struck == 1
        store = SqliteStore(copy)
        assert lsns(store) == list(range(1, 23))
        store.close()
    assert told > 20


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
