"""The anchor sees cut tails and old copies; a backup is whole or not there; the WAL stays short."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

from poimen import clock
from poimen.kernel.errors import ConfigurationError, Corrupt, StorageFailed
from poimen.log.disk import files
from poimen.log.disk.anchor import Anchor, Mark
from poimen.log.disk.locks import LockFile
from poimen.log.sqlite import SqliteStore
from tests.log.stores import admitted, batch, damages, edited, filled, landed, moved_clock, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "poimen.db"


@pytest.fixture
def store(db: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(db)
    yield opened
    opened.close()


# ---- the anchor ----------------------------------------------------------------------------------------------------


def cut(db: Path, run: int, upto: int) -> None:
    """Cut a tail off and make the head agree, which no chain can see."""
    edited(
        db,
        f"DELETE FROM record WHERE run = {run} AND lsn > {upto}",
        f"UPDATE run SET (lsn, hash) = (SELECT lsn, hash FROM record WHERE run = {run} AND lsn = {upto}),"
        f" outsider_lsn = (SELECT max(lsn) FROM record WHERE run = {run} AND epoch = 0) WHERE run = {run}",
    )


def test_a_tail_that_was_cut_off_is_seen(db: Path) -> None:
    filled(db)
    cut(db, 1, 3)
    assert ("r1", 4) in damages(db)
    with pytest.raises(Corrupt, match="feed position"):
        SqliteStore(db)


def test_a_tail_that_was_cut_off_below_the_end_of_the_feed_is_seen(db: Path) -> None:
    filled(db)
    store = SqliteStore(db)
    landed(store, batch("r1"))
    store.close()
    cut(db, 2, 3)
    assert damages(db) == [("", 0), ("r2", 4)]


def test_a_tail_that_was_written_anew_is_seen(db: Path) -> None:
    filled(db)
    anchor = Anchor(db.with_name("poimen.db.anchor"))
    before = anchor.read()
    cut(db, 1, 4)
    anchor_bytes = db.with_name("poimen.db.anchor").read_bytes()
    db.with_name("poimen.db.anchor").unlink()
    store = SqliteStore(db)
    landed(store, batch("r1"), batch("r1"))
    store.close()
    assert damages(db) == []
    db.with_name("poimen.db.anchor").write_bytes(anchor_bytes)
    assert before.heads["r1"][0] == 5
    assert ("r1", 5) in damages(db)


def test_a_run_that_is_gone_is_seen(db: Path) -> None:
    filled(db)
    edited(db, "DELETE FROM record WHERE run = 1", "DELETE FROM run WHERE run_id = 'r1'")
    assert ("r1", 1) in damages(db)


def test_the_anchor_is_written_each_minute_and_never_leads(db: Path) -> None:
    with moved_clock() as time:
        store = SqliteStore(db)
        anchor = Anchor(db.with_name("poimen.db.anchor"))
        admitted(store)
        assert anchor.read().heads == {}
        time.ahead_s = 59
        landed(store, batch("r1"))
        assert anchor.read().heads == {}
        time.ahead_s = 61
        place = landed(store, batch("r1"))[0]
        assert anchor.read().heads == {"r1": (place.last, place.hash)}
        landed(store, batch("r2", admits=True))
        store.anchor()
        assert sorted(anchor.read().heads) == ["r1", "r2"]
        last = landed(store, batch("r1"))[0]
        store.close()
        assert anchor.read().heads["r1"] == (last.last, last.hash)


def test_a_failing_anchor_unsays_no_commit(db: Path) -> None:
    with moved_clock() as time:
        store = SqliteStore(db)
        db.with_name("poimen.db.anchor").unlink()
        db.with_name("poimen.db.anchor").mkdir()
        time.ahead_s = 61
        place = admitted(store)
        with pytest.raises(StorageFailed):
            store.anchor()
        db.with_name("poimen.db.anchor").rmdir()
        store.anchor()
        assert Anchor(db.with_name("poimen.db.anchor")).read().heads == {"r1": (1, place.hash)}
        store.close()


def test_a_restored_backup_is_refused_where_the_newer_log_was(db: Path, tmp_path: Path) -> None:
    store = SqliteStore(db)
    admitted(store)
    store.backup(tmp_path / "copy.db")
    store.close()
    db.write_bytes((tmp_path / "copy.db").read_bytes())
    with pytest.raises(Corrupt, match="generation") as caught:
        SqliteStore(db)
    assert "poimen.db.anchor" in caught.value.hint
    assert damages(db)[0] == ("", 0)
    db.with_name("poimen.db.anchor").unlink()
    store = SqliteStore(db)
    assert [each.lsn for each in store.read("r1")] == [1]
    store.close()


def test_another_log_in_the_same_place_is_refused(db: Path, tmp_path: Path) -> None:
    filled(db)
    filled(tmp_path / "other.db")
    db.write_bytes((tmp_path / "other.db").read_bytes())
    with pytest.raises(Corrupt, match="another log"):
        SqliteStore(db)


@pytest.mark.parametrize("empty", [False, True])
def test_a_log_that_is_gone_is_not_silently_begun_anew(db: Path, *, empty: bool) -> None:
    filled(db)
    db.unlink()
    if empty:
        db.touch()
    with pytest.raises(Corrupt, match="no database"):
        SqliteStore(db)
    assert db.exists() == empty
    assert not empty or db.stat().st_size == 0


def test_a_damaged_anchor(db: Path) -> None:
    filled(db)
    path = db.with_name("poimen.db.anchor")
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[40] ^= 1
    path.write_bytes(flipped)
    assert damages(db) == [("", 0)]
    path.write_bytes(whole)
    assert damages(db) == []


def test_a_line_of_the_anchor_of_which_a_power_loss_has_kept_the_end_alone_is_no_damage(db: Path) -> None:
    filled(db)
    path = files.Sides.of(db).anchor
    whole = path.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    path.write_bytes(whole[: -len(last)] + bytes(len(last) - 9) + last[-9:])
    assert damages(db) == []
    store = SqliteStore(db)
    landed(store, batch("r1"))
    store.close()
    assert damages(db) == []


def test_a_bit_that_turns_a_letter_of_the_anchor_into_a_zero_is_damage(db: Path) -> None:
    filled(db)
    path = files.Sides.of(db).anchor
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b" ", b"\0", 1))  # one bit
    assert damages(db) == [("", 0)]


@pytest.mark.parametrize("torn", [b"0123 {", b"\0" * 300_000, -30, -1])
def test_a_torn_last_line_of_the_anchor_is_no_damage_after_it_was_used_again(
    db: Path, tmp_path: Path, torn: bytes | int
) -> None:
    filled(db)
    path = db.with_name("poimen.db.anchor")
    whole = path.read_bytes()
    path.write_bytes(whole + torn if isinstance(torn, bytes) else whole[:torn])
    assert damages(db) == []
    store = SqliteStore(db)
    landed(store, batch("r1"))
    store.close()
    found = Anchor(path).read()
    assert found.damaged == []
    assert found.heads["r1"][0] == 6
    assert path.read_bytes().startswith(whole[:torn].rpartition(b"\n")[0] if torn == -30 else whole)
    assert damages(db) == []
    store = SqliteStore(db)
    store.backup(tmp_path / "copy.db")
    store.close()


def test_a_line_that_another_process_is_writing_is_not_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anchor, path = Anchor(tmp_path / "x.anchor"), tmp_path / "x.anchor"
    anchor.note(Mark(log_id="log", generation=1, feed=1), {"r1": (1, bytes(32))})
    first = path.read_bytes()
    path.write_bytes(first + first[:40])
    monkeypatch.setattr("poimen.log.disk.anchor._PATIENCE_S", 0.0)
    other = LockFile(path)
    assert other.try_exclusive()
    with pytest.raises(BlockingIOError):
        anchor.note(Mark(log_id="log", generation=1, feed=2), {})
    with path.open("ab") as file:
        file.write(first[40:])
    other.close()
    anchor.note(Mark(log_id="log", generation=1, feed=2), {})
    assert path.read_bytes().startswith(first * 2)
    assert anchor.read().damaged == []


def test_a_long_anchor_is_written_anew_without_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poimen.log.disk.anchor._COMPACT_ABOVE_BYTES", 1000)
    anchor = Anchor(tmp_path / "x.anchor")
    for n in range(1, 30):
        heads = {"often": (n, b"%032d" % n), f"once{n}": (1, b"%032d" % n)}
        anchor.note(Mark(log_id="log", generation=1, feed=n), heads)
    before, size = anchor.read(), (tmp_path / "x.anchor").stat().st_size
    anchor.compact()
    assert (tmp_path / "x.anchor").stat().st_size < size
    assert anchor.read() == before
    assert len(before.heads) == 30
    assert anchor.mark() == Mark(log_id="log", generation=1, feed=29)
    assert stat.S_IMODE((tmp_path / "x.anchor").stat().st_mode) == 0o600


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("lose", [zeroed, emptied, Path.unlink])
def test_an_anchor_that_is_lost_is_told_and_written_anew(
    db: Path, lose: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    filled(db)
    anchor = Anchor(db.with_name("poimen.db.anchor"))
    before = anchor.read().heads
    lose(db.with_name("poimen.db.anchor"))
    assert damages(db) == [("", 0)]
    store = SqliteStore(db)
    assert [line for line in caplog.messages if "the anchor is gone" in line and str(db) in line]
    assert anchor.read().heads == before
    store.close()
    caplog.clear()
    assert anchor.mark() is not None
    SqliteStore(db).close()
    assert caplog.messages == []


def test_a_backup_needs_no_anchor_until_it_is_opened(db: Path, tmp_path: Path) -> None:
    filled(db)
    store = SqliteStore(db)
    store.backup(tmp_path / "copy.db")
    store.close()
    assert damages(tmp_path / "copy.db") == []
    SqliteStore(tmp_path / "copy.db").close()
    tmp_path.joinpath("copy.db.anchor").unlink()
    assert damages(tmp_path / "copy.db") == [("", 0)]


# ---- what stands in the place of an anchor -------------------------------------------------------------------------


def sealed(text: str) -> bytes:
    """A line with the right digest over a text that we never wrote."""
    return b"%s %s\n" % (sha256(text.encode()).hexdigest()[:16].encode(), text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "[]",
        '{"log":"x"}',
        '{"log":"x","generation":"z","feed":1,"heads":[]}',
        '{"log":"x","generation":1,"feed":1,"heads":7}',
        '{"log":"x","generation":1,"feed":1,"heads":[["r1",1]]}',
        '{"log":"x","generation":1,"feed":1,"heads":[["r1","1","00"]]}',
        '{"log":"x","generation":1,"feed":1,"heads":[["r1",1,"no"]]}',
        "[" * 100_000,
    ],
)
def test_a_line_that_no_anchor_has_is_damage_though_its_digest_is_right(db: Path, text: str) -> None:
    filled(db)
    anchor, path = Anchor(db.with_name("poimen.db.anchor")), db.with_name("poimen.db.anchor")
    before = anchor.read()
    with path.open("ab") as file:
        file.write(sealed(text))
    found = anchor.read()
    assert (found.mark, found.heads, len(found.damaged)) == (before.mark, before.heads, 1)
    assert (anchor.mark(), anchor.newest()) == (before.mark, before.heads)
    assert damages(db) == [("", 0)]
    SqliteStore(db).close()


def test_a_pipe_in_the_place_of_the_anchor_holds_nobody_up(db: Path) -> None:
    filled(db)
    db.with_name("poimen.db.anchor").unlink()
    os.mkfifo(db.with_name("poimen.db.anchor"))
    code = (
        "import sys; from poimen.log.sqlite import SqliteStore; from poimen.kernel.errors import StorageFailed\n"
        "def check(): list(SqliteStore(sys.argv[1], read_only=True).check())\n"
        "for work in (lambda: SqliteStore(sys.argv[1]), check):\n"
        "    try: work()\n"
        "    except StorageFailed as error: print(error.message)"
    )
    done = subprocess.run([sys.executable, "-c", code, db], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.count("cannot be read: it is no regular file\n") == 2


# ---- copies --------------------------------------------------------------------------------------------------------


def test_a_backup_is_whole_private_and_a_log_of_its_own(db: Path, tmp_path: Path) -> None:
    filled(db)
    store = SqliteStore(db)
    landed(store, batch("r1"))
    to = tmp_path / "deep" / "copy.db"
    store.backup(to)
    landed(store, batch("r1"))
    assert stat.S_IMODE(to.stat().st_mode) == 0o600
    assert [path.name for path in to.parent.iterdir()] == ["copy.db"]
    with pytest.raises(ConfigurationError, match="exists"):
        store.backup(to)
    copy = SqliteStore(to)
    assert [each.lsn for each in copy.read("r1")] == [1, 2, 3, 4, 5, 6]
    assert list(copy.check()) == []
    copy.close()
    store.close()


def test_a_reader_can_make_a_backup(db: Path, tmp_path: Path) -> None:
    filled(db)
    reader = SqliteStore(db, read_only=True)
    reader.backup(tmp_path / "copy.db")
    reader.close()
    assert damages(tmp_path / "copy.db") == []


def test_damage_is_not_copied(db: Path, tmp_path: Path) -> None:
    filled(db)
    edited(db, "UPDATE record SET at = 0 WHERE lsn = 2 AND run = 2")
    store = SqliteStore(db)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(Corrupt, match="does not stand the check"):
        store.backup(tmp_path / "copy.db")
    assert sorted(tmp_path.iterdir()) == before
    store.close()


def test_a_backup_that_cannot_be_written_leaves_nothing(store: SqliteStore, tmp_path: Path) -> None:
    admitted(store)
    (tmp_path / "file").touch()
    with pytest.raises(StorageFailed):
        store.backup(tmp_path / "file" / "copy.db")


# ---- the WAL -------------------------------------------------------------------------------------------------------


def test_the_wal_is_emptied_when_idle_and_kept_short_meanwhile(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poimen.log.disk.handle.CHECKPOINT_PAGES", 20)
    wal = db.with_name("poimen.db-wal")
    store = SqliteStore(db)
    admitted(store)
    sizes = []
    for _ in range(60):
        landed(store, batch("r1", record(body=b"x" * 8000)))
        sizes.append(wal.stat().st_size)
    assert max(sizes) < 60 * 4120
    monkeypatch.setattr("poimen.log.sqlite._TRUNCATE_ABOVE_PAGES", 0)
    store.idle()
    assert wal.stat().st_size == 0
    assert len(store.read("r1")) == 61
    store.close()


def test_a_failing_passive_checkpoint_unsays_no_commit(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poimen.log.disk.handle.CHECKPOINT_PAGES", 5)
    name = f"full-{clock.random_hex(4)}"

    class File(apsw.VFSFile):
        def __init__(self, filename: Any, flags: Any) -> None:
            super().__init__("", filename, flags)
            self.main = flags[0] & apsw.SQLITE_OPEN_MAIN_DB

        def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 (SQLite's name)
            if self.main and failing:
                failed.append(offset)
                raise apsw.FullError
            super().xWrite(data, offset)

    class Vfs(apsw.VFS):
        def __init__(self) -> None:
            super().__init__(name, "")

        def xOpen(self, filename: Any, flags: Any) -> File:  # noqa: N802 (SQLite's name)
            return File(filename, flags)

    failing: list[int] = []
    failed: list[int] = []
    vfs = Vfs()
    store = SqliteStore(db, vfs=name)
    admitted(store)
    failing.append(1)
    for _ in range(10):
        landed(store, batch("r1", record(body=b"x" * 5000)))
    assert failed
    failing.clear()
    for _ in range(10):
        landed(store, batch("r1", record(body=b"x" * 5000)))
    assert len(store.read("r1")) == 21
    store.close()
    assert damages(db) == []
    vfs.unregister()
