"""Damage to a database is found and named, nothing is repaired, and a copy is whole or not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from poimen.kernel.errors import Corrupt
from poimen.log.sqlite import SqliteStore
from tests.log.stores import admitted, batch, blob, damages, edited, filled, landed, record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "poimen.db"


@pytest.fixture
def store(db: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(db)
    yield opened
    opened.close()


# ---- edits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "branch = 'other'",
        "record_id = zeroblob(16)",
        "kind = 'k.v9'",
        "subject = 'intent:other'",
        "body = CAST('{}' AS BLOB)",
        "at = at + 1",
        "epoch = epoch + 1",
        "hash = zeroblob(32)",
        "kind = CAST(x'ff' AS TEXT)",
    ],
)
def test_an_edit_of_any_column_is_located_and_not_served(db: Path, change: str) -> None:
    filled(db)
    assert damages(db) == []
    edited(db, f"UPDATE record SET {change} WHERE lsn = 3 AND run = (SELECT run FROM run WHERE run_id = 'r1')")
    assert ("r1", 3) in damages(db)
    assert {run for run, _ in damages(db)} == {"r1"}
    store = SqliteStore(db)
    with pytest.raises(Corrupt):
        store.read("r1")
    with pytest.raises(Corrupt):
        store.feed()
    assert len(store.read("r2")) == 5
    store.close()


def test_reading_behind_the_damage_goes_on_and_says_where_it_is(db: Path) -> None:
    filled(db)
    edited(db, "UPDATE record SET body = zeroblob(2) WHERE lsn = 2")
    store = SqliteStore(db)
    assert [each.lsn for each in store.read("r1", after=2)] == [3, 4, 5]
    assert [each.lsn for each in store.read("r1", upto=1)] == [1]
    with pytest.raises(Corrupt) as caught:
        store.read("r1")
    assert (caught.value.ids["run_id"], caught.value.ids["lsn"]) == ("r1", 2)
    store.close()


@pytest.mark.parametrize("pos", ["pos + 1", "1000", "-1"])
def test_a_record_that_was_moved_in_the_feed_is_found(db: Path, pos: str) -> None:
    filled(db)
    edited(db, f"UPDATE record SET pos = {pos} WHERE pos = (SELECT max(pos) FROM record)")
    assert ("", 0) in damages(db)


def test_swapped_records_are_located(db: Path) -> None:
    filled(db)
    edited(
        db,
        "UPDATE record SET lsn = -1 WHERE run = 1 AND lsn = 2",
        "UPDATE record SET lsn = 2 WHERE run = 1 AND lsn = 3",
        "UPDATE record SET lsn = 3 WHERE run = 1 AND lsn = -1",
    )
    assert {("r1", 2), ("r1", 3)} <= set(damages(db))


def test_a_record_that_was_cut_out_is_located(db: Path) -> None:
    filled(db)
    edited(db, "DELETE FROM record WHERE run = 1 AND lsn = 3")
    assert ("r1", 3) in damages(db)
    store = SqliteStore(db)
    with pytest.raises(Corrupt):
        store.read("r1")
    with pytest.raises(Corrupt):
        store.read("r1", after=3)
    store.close()


def test_a_blob_that_was_edited_is_found_and_not_served(db: Path) -> None:
    filled(db)
    edited(db, "UPDATE blob SET body = x'00'")
    assert damages(db) == [("", 0)]
    store = SqliteStore(db)
    with pytest.raises(Corrupt):
        store.blob(blob(b"body").digest)
    store.close()


def test_a_record_id_that_occurs_twice_is_found(db: Path) -> None:
    store = SqliteStore(db)
    one = record()
    admitted(store)
    landed(store, batch("r1", one))
    store.close()
    store = SqliteStore(db)
    landed(store, batch("r1", one))
    assert [(damage.run, damage.lsn) for damage in store.check()] == [("r1", 3)]
    store.close()


def test_records_without_a_run_are_found(db: Path) -> None:
    filled(db)
    edited(db, "DELETE FROM run WHERE run_id = 'r2'")
    assert [what for what in damages(db) if what[0] == ""]


def test_a_flipped_bit_in_the_file_is_not_served(db: Path) -> None:
    store = SqliteStore(db)
    admitted(store)
    landed(store, batch("r1", record(body=b'{"amount":"needle"}')))
    store.close()
    raw = bytearray(db.read_bytes())
    raw[raw.index(b"needle") + 2] ^= 1
    db.write_bytes(raw)
    assert ("r1", 2) in damages(db)
    store = SqliteStore(db)
    with pytest.raises(Corrupt):
        store.read("r1")
    store.close()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON record BEGIN UPDATE record SET at = 0; END", "trigger t"),
        ("CREATE TRIGGER t AFTER UPDATE ON run BEGIN DELETE FROM record; END", "trigger t"),
        ("DROP INDEX record_lsn", "index record_lsn"),
        ("DROP INDEX run_live", "index run_live"),
        ("ALTER TABLE record ADD COLUMN more TEXT", "table record"),
    ],
)
def test_tables_that_were_altered_are_refused_and_found(db: Path, change: str, what: str) -> None:
    filled(db)
    edited(db, change)
    before = db.read_bytes()
    with pytest.raises(Corrupt, match=what):
        SqliteStore(db)
    assert db.read_bytes() == before
    assert ("", 0) in damages(db)


def test_what_others_keep_in_the_database_is_theirs(db: Path) -> None:
    filled(db)
    edited(db, "CREATE VIEW v AS SELECT * FROM record", "CREATE TABLE t (a)", "ANALYZE")
    assert damages(db) == []
    SqliteStore(db).close()


# ---- heads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change", ["lsn = 4", "lsn = 6", "hash = zeroblob(32)", "outsider_lsn = 0", "epoch = 0", "lsn = 0"]
)
def test_a_head_that_contradicts_its_records_is_found_and_derived_anew(db: Path, change: str) -> None:
    filled(db)
    edited(db, f"UPDATE run SET {change} WHERE run_id = 'r1'")
    assert {run for run, _ in damages(db)} == {"r1"}
    store = SqliteStore(db)
    assert store.rebuild() == 1
    head = store.head("r1")
    assert head is not None
    assert (head.lsn, head.epoch, head.outsider_lsn, head.hash) == (5, 1, 5, store.read("r1")[-1].hash)
    assert landed(store, batch("r1"))[0].first == 6
    assert list(store.check()) == []
    store.close()


def test_nothing_is_appended_after_a_head_that_contradicts_its_records(db: Path) -> None:
    filled(db)
    edited(db, "UPDATE run SET lsn = 4 WHERE run_id = 'r1'")
    store = SqliteStore(db)
    refused, place = store.commit([batch("r1"), batch("r2")])
    assert isinstance(refused, Corrupt)
    assert not isinstance(place, Exception)
    store.close()


def test_heads_are_not_derived_from_damaged_records(db: Path) -> None:
    filled(db)
    edited(db, "UPDATE record SET at = 0 WHERE lsn = 2", "UPDATE run SET lsn = 1")
    store = SqliteStore(db)
    with pytest.raises(Corrupt):
        store.rebuild()
    assert {head.lsn for head in store.heads()} == {1}
    store.close()


def test_an_epoch_that_was_granted_is_not_derived_away(store: SqliteStore) -> None:
    admitted(store)
    lease = store.claim("r1", worker="w1", lease_s=10)
    assert lease is not None
    store.release([lease])
    assert store.rebuild() == 0
    again = store.claim("r1", worker="w1", lease_s=10)
    assert again is not None
    assert again.epoch == 2
