"""Writes and syncs that fail, through a VFS in this process: what is said, what is kept, what is settled (C03)."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import apsw
import pytest

from poimen import clock
from poimen.kernel.errors import CommitUnknown, Corrupt, PoimenError, StorageFailed
from poimen.log.api import Batch, Committed
from poimen.log.disk import connect, doubt, files, locks
from poimen.log.disk.anchor import Anchor
from poimen.log.disk.doubt import Settled
from poimen.log.sqlite import SqliteStore
from tests.log.stores import Child, admitted, batch, landed, record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "poimen.db"
    store = SqliteStore(path)
    admitted(store)
    store.close()
    return path


def ids(store: SqliteStore, run: str = "r1") -> list[str]:
    return [each.record_id for each in store.read(run)]


class Faults:
    """An apsw VFS whose writes and syncs of the WAL fail when told to, after half of the bytes."""

    def __init__(self) -> None:
        self.name = f"faults-{clock.random_hex(6)}"
        self.write: type[apsw.Error] | None = None
        self.sync: type[apsw.Error] | None = None
        self.writes_left = 0
        faults = self

        class File(apsw.VFSFile):
            def __init__(self, filename: Any, flags: Any) -> None:
                super().__init__("", filename, flags)
                self.wal = bool(flags[0] & apsw.SQLITE_OPEN_WAL)

            def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 (SQLite's name)
                if self.wal and faults.write is not None:
                    faults.writes_left -= 1
                    if faults.writes_left < 0:
                        super().xWrite(data[: len(data) // 2], offset)
                        raise faults.write
                super().xWrite(data, offset)

            def xSync(self, flags: int) -> None:  # noqa: N802 (SQLite's name)
                if self.wal and faults.sync is not None:
                    raise faults.sync
                super().xSync(flags)

        class Vfs(apsw.VFS):
            def __init__(self) -> None:
                super().__init__(faults.name, "")

            def xOpen(self, filename: Any, flags: Any) -> File:  # noqa: N802 (SQLite's name)
                return File(filename, flags)

        self._vfs = Vfs()

    def unregister(self) -> None:
        self._vfs.unregister()


@pytest.fixture
def faults() -> Iterator[Faults]:
    made = Faults()
    yield made
    made.unregister()


# ---- in this process, through a VFS --------------------------------------------------------------------------------


def test_a_torn_write_is_cut_and_records_never_fuse(db: Path, faults: Faults) -> None:
    store = SqliteStore(db, vfs=faults.name)
    acknowledged = ids(store)
    faults.writes_left = 33
    faults.write = apsw.FullError
    failed: CommitUnknown | None = None
    while failed is None:
        one = record(body=b'{"long":"' + b"x" * 9000 + b'"}')
        try:
            landed(store, batch("r1", one))
            acknowledged.append(one.record_id)
        except CommitUnknown as error:
            failed = error
            assert failed.ids["record_ids"] == (one.record_id,)
    assert failed.ids["runs"] == ("r1",)
    with pytest.raises(StorageFailed, match="dead"):
        store.commit([batch("r1")])
    store.close()
    after = SqliteStore(db)
    assert ids(after)[: len(acknowledged)] == acknowledged
    assert len(ids(after)) == len(acknowledged) + 1
    assert list(after.check()) == []
    after.close()


def test_every_batch_of_a_failed_group_is_settled_in_its_own_run(db: Path, faults: Faults) -> None:
    store = SqliteStore(db, vfs=faults.name)
    landed(store, batch("r2", admits=True))
    faults.sync = apsw.IOError
    group = [batch("r1", n=2), batch("r2"), batch("r3", admits=True), batch("missing")]
    with pytest.raises(CommitUnknown) as caught:
        store.commit(group)
    wanted = [(one.run, each.record_id) for one in group[:3] for each in one.records]
    assert caught.value.ids["record_ids"] == tuple(record_id for _, record_id in wanted)
    after = SqliteStore(db)
    assert {each.found for each in after.settled} == {True}
    assert [(each.run, each.record_id) for each in after.settled] == wanted
    for run, one in zip(("r1", "r2", "r3"), group, strict=False):
        last = after.read(run)[-1]
        assert last.kind == "append.settled.v1"
        assert json.loads(last.body) == {"found": True, "record_ids": [each.record_id for each in one.records]}
    assert after.head("missing") is None
    after.close()
    store.close()
    with pytest.raises(StorageFailed):
        store.read("r1")


def test_a_failed_admission_that_is_not_found_is_told_though_no_run_can_hold_it(db: Path, faults: Faults) -> None:
    other = SqliteStore(db)
    store = SqliteStore(db, vfs=faults.name)
    faults.sync = apsw.IOError
    one = batch("new", admits=True)
    with pytest.raises(CommitUnknown):
        store.commit([one])
    after = SqliteStore(db)
    assert after.settled == (Settled(run="new", record_id=one.records[0].record_id, found=False),)
    assert after.head("new") is None
    landed(other, one)
    for each in (after, other, store):
        each.close()


def test_a_lease_whose_commit_failed_closes_the_log_too(db: Path, faults: Faults) -> None:
    store = SqliteStore(db, vfs=faults.name)
    faults.sync = apsw.IOError
    with pytest.raises(CommitUnknown):
        store.claim("r1", worker="w1", lease_s=10)
    assert files.Sides.of(db).doubt.exists()
    after = SqliteStore(db)
    assert after.settled == ()
    head = after.head("r1")
    assert head is not None
    lease = after.claim("r1", worker="w2", lease_s=10)
    assert lease is None or lease.epoch == head.epoch + 1
    after.close()
    store.close()


def test_the_marker_stays_until_a_checkpoint_of_the_wal_has_succeeded(
    db: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "BUSY_MS", 30)
    keeper = SqliteStore(db)
    landed(keeper, batch("r1"))
    reader = apsw.Connection(str(db))
    reader.execute("BEGIN").fetchall()
    reader.execute("SELECT count(*) FROM record").fetchall()
    store = SqliteStore(db, vfs=faults.name)
    faults.sync = apsw.IOError
    with pytest.raises(CommitUnknown):
        landed(store, batch("r1"))
    faults.sync = None
    with pytest.raises(StorageFailed, match="settling a failed commit") as caught:
        SqliteStore(db)
    assert "process" in caught.value.why
    assert files.Sides.of(db).doubt.exists()
    assert not files.Sides.of(db).doubt_log.exists()
    with pytest.raises(StorageFailed, match="closed until"):
        keeper.commit([batch("r1")])
    reader.execute("ROLLBACK").fetchall()
    reader.close()
    settled = SqliteStore(db)
    assert len(settled.settled) == 1
    landed(keeper, batch("r1"))
    for each in (settled, keeper, store):
        each.close()


def test_an_opening_that_cannot_make_the_tail_durable_fails(db: Path, faults: Faults) -> None:
    with Child("hold", db, "r1") as child:
        assert child.says() == 1
        child.kill()
    assert files.Sides.of(db).wal.stat().st_size > 0
    faults.sync = apsw.IOError
    with pytest.raises(StorageFailed, match="TRUNCATE"):
        SqliteStore(db, vfs=faults.name)
    faults.sync = None
    store = SqliteStore(db, vfs=faults.name)
    head = store.head("r1")
    assert head is not None
    assert head.epoch == 1
    store.close()


def test_settling_can_be_killed_and_done_again_without_a_second_verdict(
    db: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(db, vfs=faults.name)
    faults.sync = apsw.IOError
    with pytest.raises(CommitUnknown):
        landed(store, batch("r1"))
    faults.sync = None

    def power_cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(doubt, "_append", power_cut)
        with pytest.raises(KeyboardInterrupt):
            SqliteStore(db)
    assert files.Sides.of(db).doubt.exists()
    after = SqliteStore(db)
    assert len(after.settled) == 1
    assert [each.kind for each in after.read("r1")].count("append.settled.v1") == 1
    after.close()


def test_an_error_before_the_commit_leaves_nothing_and_stops_the_handle(db: Path, faults: Faults) -> None:
    store = SqliteStore(db, vfs=faults.name)
    store._rows("PRAGMA cache_size = 1")
    faults.write = apsw.FullError
    big = [batch(f"big{n}", record(body=b"x" * 200_000), admits=True) for n in range(20)]
    with pytest.raises(StorageFailed) as caught:
        store.commit(big)
    assert "nothing of it is in the log" in caught.value.why
    with pytest.raises(StorageFailed, match="dead"):
        store.commit([batch("r1")])
    faults.write = None
    assert not files.Sides.of(db).doubt.exists()
    after = SqliteStore(db)
    assert after.settled == ()
    assert [head.run for head in after.heads()] == ["r1"]
    after.close()
    store.close()


def test_when_even_the_marker_cannot_be_written_the_error_says_so(
    db: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(db, vfs=faults.name)
    faults.sync = apsw.IOError

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(doubt, "_append", full)
    with pytest.raises(CommitUnknown) as caught:
        landed(store, batch("r1"))
    assert "could not be written" in caught.value.why
    assert "No space left" in caught.value.why
    monkeypatch.undo()
    faults.sync = None
    store.close()
    after = SqliteStore(db)
    assert len(after.read("r1")) == 2
    after.close()


def test_a_torn_marker_still_closes_the_log_and_is_kept_for_people(db: Path) -> None:
    sides = files.Sides.of(db)
    doubt.mark(sides, [batch("r1")], worker="w", error="EIO")
    whole = sides.doubt.read_text()
    sides.doubt.write_text(whole + whole[:30])
    store = SqliteStore(db)
    assert len(store.settled) == 1
    assert json.loads(sides.doubt_log.read_text())["marker"] == whole + whole[:30]
    store.close()


def test_a_lock_that_cannot_be_had_is_no_death(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "BUSY_MS", 20)
    store = SqliteStore(db)
    holder = apsw.Connection(str(db))
    holder.execute("BEGIN IMMEDIATE").fetchall()
    with pytest.raises(StorageFailed, match="locked"):
        store.commit([batch("r1")])
    holder.execute("ROLLBACK").fetchall()
    holder.close()
    landed(store, batch("r1"))
    store.close()


def test_a_worker_does_not_stand_still_for_long_in_a_locked_log(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for the lock, nor for the turn once the log is known to be locked, which a stopped writer may hold."""
    monkeypatch.setattr(connect, "AGAIN_MS", 7)
    store = SqliteStore(db)
    patience = store._writing()._connection.pragma
    assert patience("busy_timeout") == connect.BUSY_MS
    store.worker("w")
    assert patience("busy_timeout") == 7
    turn, waited = store._writing()._turn, []
    take = turn.take

    def taken(patience_s: float) -> bool:
        waited.append(patience_s)
        return take(patience_s)

    monkeypatch.setattr(turn, "take", taken)
    holder = apsw.Connection(str(db))
    holder.execute("BEGIN IMMEDIATE").fetchall()
    for _ in range(2):
        with pytest.raises(StorageFailed, match="locked"):
            store.commit([batch("r1")])
    holder.close()
    landed(store, batch("r1"))
    landed(store, batch("r1"))
    assert waited == [locks.TURN_PATIENCE_S, 0.007, 0.007, locks.TURN_PATIENCE_S]
    store.close()


def test_an_interrupt_in_a_commit_leaves_the_store_usable_and_true(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(db)
    landed(store, batch("r1"))
    handle = store._writing()
    real = handle.execute
    for moment in ("before", "after"):

        def interrupted(sql: str, *values: Any, moment: str = moment) -> Any:
            if sql == "COMMIT":
                if moment == "after":
                    real(sql, *values)
                raise KeyboardInterrupt
            return real(sql, *values)

        monkeypatch.setattr(handle, "execute", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.commit([batch("r1")])
        monkeypatch.setattr(handle, "execute", real)
        n = len(store.read("r1"))
        store.anchor()
        assert Anchor(files.Sides.of(db).anchor).read().heads["r1"][0] <= n
        assert landed(store, batch("r1"))[0].first == n + 1
    assert [each.lsn for each in store.read("r1")] == [1, 2, 3, 4, 5]
    assert list(store.check()) == []
    store.close()


def test_a_head_that_moved_without_our_knowing_stops_the_commit(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(db)
    landed(store, batch("r1"))
    handle = store._writing()
    other = apsw.Connection(str(db))
    other.execute("UPDATE run SET lsn = 1 WHERE run_id = 'r1'").fetchall()
    other.close()
    monkeypatch.setattr(handle, "moved", store._memory._moved)
    monkeypatch.setattr(type(store._memory), "renew", lambda self, moved: None)
    with pytest.raises(PoimenError):
        store.commit([batch("r1")])
    monkeypatch.undo()
    assert len(store.read("r1")) == 2
    assert isinstance(store.commit([batch("r1")])[0], Corrupt)
    store.close()


def test_a_commit_that_is_only_refused_syncs_nothing(db: Path, faults: Faults) -> None:
    store = SqliteStore(db, vfs=faults.name)
    faults.sync = apsw.IOError
    faults.write = apsw.IOError
    faults.writes_left = 0
    assert not isinstance(store.commit([batch("r1", epoch=9), Batch(run="r9", records=(record(),))])[0], Committed)
    faults.sync = faults.write = None
    landed(store, batch("r1"))
    with contextlib.suppress(PoimenError):
        store.close()
