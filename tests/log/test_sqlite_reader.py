"""A log is read without a trace, whoever has it open or had it open when he was killed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from poimen.kernel.errors import StorageFailed
from poimen.log.disk import connect
from poimen.log.sqlite import SqliteStore
from tests.log.stores import Child, admitted, batch, landed

if TYPE_CHECKING:
    from pathlib import Path

    import apsw


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "poimen.db"


def listing(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder and what is in it (not of -shm, which is shared memory)."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and path.suffix != ".db-shm" else None
        for path in sorted(folder.rglob("*"))
    }


# ---- reading without a trace ---------------------------------------------------------------------------------------


def left_behind(db: Path) -> None:
    """A log whose writer was killed: its WAL is full, nobody has it open."""
    with Child("hold", db, "r1") as child:
        assert child.says() == 2
        child.kill()


def filled(db: Path) -> None:
    store = SqliteStore(db)
    admitted(store, n=3)
    lease = store.claim("r1", worker="w1", lease_s=1)
    assert lease is not None
    store.close()


@pytest.mark.parametrize("how", ["closed", "killed", "copied with its WAL", "copied with an empty WAL"])
def test_a_reader_leaves_no_trace_of_a_log_that_nobody_has_open(db: Path, how: str) -> None:
    filled(db)
    if how != "closed":
        left_behind(db)
        assert db.with_name("poimen.db-wal").stat().st_size > 0
    if how.startswith("copied"):
        db.with_name("poimen.db-shm").unlink()
    if how.endswith("empty WAL"):
        SqliteStore(db).close()
        db.with_name("poimen.db-wal").touch()
    before = listing(db.parent)
    reader = SqliteStore(db, read_only=True)
    assert [each.lsn for each in reader.read("r1")] == [1, 2, 3]
    head = reader.head("r1")
    assert head is not None
    assert head.epoch == (1 if how == "closed" else 2)
    assert list(reader.check()) == []
    assert reader.changed() == reader.changed()
    assert listing(db.parent) == before
    reader.close()
    assert listing(db.parent) == before


def test_a_reader_follows_writers_that_come_and_go(db: Path) -> None:
    filled(db)
    reader = SqliteStore(db, read_only=True)
    seen = [reader.changed()]
    for n in range(4, 7):
        writer = SqliteStore(db)
        landed(writer, batch("r1"))
        assert [each.lsn for each in reader.read("r1")][-1] == n
        seen.append(reader.changed())
        writer.close()
        assert len(reader.read("r1")) == n
    assert len(set(seen)) == 4
    reader.close()


def test_a_reading_is_done_again_when_the_log_changes_meanwhile(db: Path) -> None:
    filled(db)
    reader = connect.Reader(db)
    tries: list[int] = []

    def work(connection: apsw.Connection) -> int:
        before: int = connection.execute("SELECT count(*) FROM record").get
        if not tries:
            writer = SqliteStore(db)
            landed(writer, batch("r1"))
            writer.close()
        tries.append(before)
        return before

    assert reader.using(work) == 4
    assert tries == [3, 4]
    reader.close()


def test_a_log_that_never_stands_still_is_an_error(db: Path) -> None:
    filled(db)
    reader = connect.Reader(db)
    stamp = [1]

    def work(_: apsw.Connection) -> None:
        stamp[0] += 1
        os.utime(db, ns=(stamp[0], stamp[0]))

    with pytest.raises(StorageFailed, match="changes faster"):
        reader.using(work)


def test_a_reader_holds_up_no_writer(db: Path) -> None:
    writer = SqliteStore(db)
    admitted(writer)
    reader = SqliteStore(db, read_only=True)
    assert len(reader.read("r1")) == 1
    landed(writer, batch("r1"))
    writer._writing().truncate("a test")
    assert db.with_name("poimen.db-wal").stat().st_size == 0
    assert len(reader.read("r1")) == 2
    writer.close()
    reader.close()


@pytest.mark.parametrize("how", ["open", "closed", "killed", "copied"])
def test_a_reader_cannot_write_whatever_it_is_asked(db: Path, how: str) -> None:
    filled(db)
    writer = SqliteStore(db) if how == "open" else None
    if how in {"killed", "copied"}:
        left_behind(db)
    if how == "copied":
        db.with_name("poimen.db-shm").unlink()
    reader = connect.Reader(db)
    with pytest.raises(StorageFailed, match="readonly"):
        reader.rows("UPDATE run SET lsn = 0")
    assert reader.rows("SELECT lsn FROM run") == [(3,)]
    reader.close()
    if writer is not None:
        writer.close()
