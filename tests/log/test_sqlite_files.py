"""The files of a log: private, on one machine, recognised before they are touched, read without a trace."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

from poimen.kernel.errors import ConfigurationError, Corrupt, PoimenError, StorageFailed
from poimen.log.api import TERMINAL_STATES
from poimen.log.disk import connect, files
from poimen.log.sqlite import SqliteStore
from tests.log.stores import ROOT, Child, admitted, batch, landed, record

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "poimen.db"


def listing(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder and what is in it (not of -shm, which is shared memory)."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and path.suffix != ".db-shm" else None
        for path in sorted(folder.rglob("*"))
    }


# ---- modes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", ["000", "077", "777"])
def test_files_are_private_under_any_umask(tmp_path: Path, mask: str) -> None:
    with Child("masked", tmp_path / "new" / "deep" / "poimen.db", mask) as child:
        assert child.says() == "ready"
        modes = {path.relative_to(tmp_path): path.stat().st_mode for path in tmp_path.rglob("*")}
    made = {path.name for path in modes}
    for name in ["poimen.db", "copy.db", *(f"poimen.db{end}" for end in ("-wal", "-shm", ".anchor", ".turn", ".open"))]:
        assert name in made
    for name in ("poimen.db.settle", "poimen.db.doubt.log", "poimen.db.workers", "w.lock", "poimen.db.blobs"):
        assert name in made
    for path, mode in modes.items():
        wanted = 0o700 if stat.S_ISDIR(mode) else 0o600
        assert (path, stat.S_IMODE(mode)) == (path, wanted)


@pytest.mark.parametrize("beside", [(), ("-wal", ".turn", ".open", ".anchor")])
def test_a_log_that_begins_in_an_empty_file_is_private_too(db: Path, beside: tuple[str, ...]) -> None:
    for end in ("", *beside):
        path = db.with_name(f"poimen.db{end}")
        path.touch()
        path.chmod(0o666)
    store = SqliteStore(db)
    admitted(store)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in db.parent.iterdir() if path.is_file()}
    store.close()
    assert {"poimen.db", "poimen.db-wal", "poimen.db-shm", "poimen.db.anchor"} <= set(modes)
    assert set(modes.values()) == {0o600}, modes


def test_the_mode_of_a_log_that_has_begun_is_left_as_it_is(db: Path) -> None:
    SqliteStore(db).close()
    db.chmod(0o640)
    SqliteStore(db).close()
    assert stat.S_IMODE(db.stat().st_mode) == 0o640


def test_the_directory_of_somebody_else_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    SqliteStore(tmp_path / "poimen.db").close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


# ---- what cannot be a log ------------------------------------------------------------------------------------------


def a_directory(db: Path) -> None:
    db.mkdir()


def some_text(db: Path) -> None:
    db.write_text("a shopping list, longer than the head of a database file\n" * 100)


def another_database(db: Path) -> None:
    connection = apsw.Connection(str(db))
    connection.execute("CREATE TABLE t (a)").fetchall()
    connection.close()


def a_newer_version(db: Path) -> None:
    SqliteStore(db).close()
    connection = apsw.Connection(str(db))
    connection.execute("PRAGMA user_version = 99").fetchall()
    connection.close()


def two_names(db: Path) -> None:
    SqliteStore(db).close()
    db.with_name("other.db").hardlink_to(db)


def a_pipe(db: Path) -> None:
    os.mkfifo(db)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("make", [a_directory, some_text, another_database, a_newer_version, two_names, a_pipe])
def test_what_cannot_be_a_log_is_refused_and_left_alone(
    db: Path, make: Callable[[Path], None], *, read_only: bool
) -> None:
    make(db)
    before = listing(db.parent)
    with pytest.raises(ConfigurationError) as caught:
        SqliteStore(db, read_only=read_only)
    assert str(db) in str(caught.value)
    after = listing(db.parent)
    assert {name: after[name] for name in before} == before


def test_what_is_missing_is_not_created_by_a_reader(db: Path) -> None:
    for path in (db, db.parent / "no" / "folder" / "poimen.db"):
        with pytest.raises(StorageFailed, match="no database at") as caught:
            SqliteStore(path, read_only=True)
        assert str(path) in caught.value.message
    db.touch()
    with pytest.raises(ConfigurationError, match="empty"):
        SqliteStore(db, read_only=True)
    assert [path.name for path in db.parent.iterdir()] == ["poimen.db"]


def test_a_folder_that_is_a_file_is_refused(db: Path) -> None:
    db.touch()
    with pytest.raises(StorageFailed, match="cannot create"):
        SqliteStore(db / "poimen.db")


def test_a_place_that_cannot_be_written_is_refused(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteStore(db).close()
    denied = [db]
    before = listing(db.parent)
    ask = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path not in denied and ask(path, mode))
    with pytest.raises(StorageFailed, match="cannot be written"):
        SqliteStore(db)
    with pytest.raises(StorageFailed, match="cannot be read"):
        SqliteStore(db, read_only=True)
    denied[:] = [db.parent]
    with pytest.raises(StorageFailed, match="cannot be written"):
        SqliteStore(db)
    assert listing(db.parent) == before


MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:40 / /mnt/share rw - nfs4 host:/x rw
41 40 0:41 / /mnt/share/local rw - xfs /dev/vdb rw
42 27 0:42 / /mnt/with\\040space rw shared:7 - fuse.sshfs host:/y rw
43 27 0:43 / /over rw - tmpfs none rw
44 43 0:44 / /over rw - cifs //host/z rw
garbage
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/a/b.db", "ext4"),
        ("/mnt/share/p/q.db", "nfs4"),
        ("/mnt/share/local/q.db", "xfs"),
        ("/mnt/shared/q.db", "ext4"),
        ("/mnt/with space/q.db", "fuse.sshfs"),
        ("/over/q.db", "cifs"),
    ],
)
def test_the_filesystem_is_that_of_the_nearest_and_newest_mount(path: str, kind: str) -> None:
    assert files.filesystem_of(Path(path), MOUNTS) == kind


@pytest.mark.parametrize(
    ("kind", "refused"),
    [("nfs4", True), ("cifs", True), ("9p", True), ("fuse.sshfs", True), ("ext4", False), ("tmpfs", False)],
)
def test_network_filesystems_are_refused_before_anything_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, *, refused: bool
) -> None:
    (tmp_path / "mounts").write_text(f"27 1 254:0 / / rw - {kind} x rw\n")
    monkeypatch.setattr(files, "_MOUNTS", tmp_path / "mounts")
    db = tmp_path / "new" / "poimen.db"
    if not refused:
        SqliteStore(db).close()
        return
    for read_only in (False, True):
        with pytest.raises(ConfigurationError, match=kind):
            SqliteStore(db, read_only=read_only)
    assert not db.parent.exists()


@pytest.mark.parametrize("name", ["poimen.db", "a b.db", "añ☕.db"])
def test_a_database_file_that_is_a_mount_point_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    db = tmp_path / "place" / name
    SqliteStore(db).close()
    before = {path.name: path.read_bytes() for path in db.parent.iterdir() if path.is_file()}
    point = str(db).replace(" ", "\\040")
    (tmp_path / "mounts").write_text(f"27 1 254:0 / / rw - ext4 x rw\n28 27 254:0 /b/p.db {point} rw - ext4 x rw\n")
    monkeypatch.setattr(files, "_MOUNTS", tmp_path / "mounts")
    for read_only in (False, True):
        with pytest.raises(ConfigurationError, match="is a mount point"):
            SqliteStore(db, read_only=read_only)
    assert {path.name: path.read_bytes() for path in db.parent.iterdir() if path.is_file()} == before
    SqliteStore(db.with_name("other.db")).close()


def test_a_bind_mount_of_the_file_alone_is_no_second_name(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "poimen.db", tmp_path / "b" / "poimen.db"
    SqliteStore(first).close()
    second.parent.mkdir()
    second.touch()
    apart = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    mount = 'mount --bind "$0" "$1"'
    if not shutil.which("unshare") or subprocess.run([*apart, mount, first, second], check=False).returncode:
        pytest.skip("this system does not let us mount in a namespace of our own")
    code = (
        "import sys; from poimen.log.sqlite import SqliteStore; from poimen.kernel.errors import ConfigurationError\n"
        "SqliteStore(sys.argv[1]).close()\n"
        "try: SqliteStore(sys.argv[2])\n"
        "except ConfigurationError as error: print(error.message)"
    )
    run = subprocess.run(
        [*apart, f'{mount} && exec "$2" -c "$3" "$0" "$1"', first, second, sys.executable, code],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "is a mount point" in run.stdout


def test_where_the_system_does_not_tell_any_filesystem_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MOUNTS", tmp_path / "missing")
    SqliteStore(tmp_path / "poimen.db").close()


@pytest.mark.parametrize(
    ("version", "old"), [("3.40.1", True), ("3.51.2", True), ("3.51.3", False), ("3.54.1", False), ("4.0.0", False)]
)
def test_a_sqlite_that_can_lose_commits_is_refused(version: str, *, old: bool) -> None:
    if old:
        with pytest.raises(ConfigurationError, match="WAL-reset"):
            connect.refuse_old(version)
    else:
        connect.refuse_old(version)


def test_links_to_a_log_lead_to_the_same_side_files(db: Path) -> None:
    first = SqliteStore(db)
    admitted(first)
    db.with_name("link.db").symlink_to(db)
    second = SqliteStore(db.with_name("link.db"))
    assert second.path == first.path
    landed(second, batch("r1"))
    assert len(first.read("r1")) == 2
    assert not [path for path in db.parent.iterdir() if path.name.startswith("link.db.")]
    second.close()
    first.close()


def test_side_files_are_not_followed_through_links(db: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    db.with_name("poimen.db.turn").symlink_to(victim)
    with pytest.raises(StorageFailed):
        SqliteStore(db)
    assert victim.read_text() == "mine"


# ---- settings ------------------------------------------------------------------------------------------------------


def pragma(store: SqliteStore, name: str) -> Any:
    return store._rows(f"PRAGMA {name}")[0][0]


def test_a_commit_is_durable_when_it_returns(db: Path) -> None:
    store = SqliteStore(db)
    assert pragma(store, "journal_mode") == "wal"
    assert pragma(store, "synchronous") == 2
    assert pragma(store, "wal_autocheckpoint") == 0
    store.close()
    connection = connect.connect(db, vfs=None)
    assert connection.execute("PRAGMA wal_autocheckpoint").get == 0
    connection.close()


def test_a_setting_that_does_not_take_is_an_error(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteStore(db).close()
    set_pragma = connect._set

    def weaker(connection: Any, path: Path, name: str, value: str, *, expect: object) -> None:
        set_pragma(connection, path, name, "NORMAL" if name == "synchronous" else value, expect=expect)

    monkeypatch.setattr(connect, "_set", weaker)
    with pytest.raises(StorageFailed, match="synchronous"):
        SqliteStore(db)


def test_the_schema_knows_the_same_terminal_states(db: Path) -> None:
    schema = (ROOT / "src/poimen/log/sql/schema.sql").read_text()
    queries = (ROOT / "src/poimen/log/sql/queries.sql").read_text()
    listed = "NOT IN ({})".format(", ".join(f"'{state}'" for state in sorted(TERMINAL_STATES)))
    assert schema.count(listed) == queries.count(listed) == 1
    store = SqliteStore(db)
    plan = store._rows(f"EXPLAIN QUERY PLAN {connect.SQL['live_heads']}", ("", "", "z", 1))
    assert any("run_live" in str(row) for row in plan)
    store.close()


def test_an_append_touches_one_table_with_one_index(db: Path) -> None:
    store = SqliteStore(db)
    found = store._rows("SELECT type, name FROM sqlite_schema WHERE tbl_name = 'record' ORDER BY type")
    assert found == [("index", "record_lsn"), ("table", "record")]
    assert store._rows("SELECT count(*) FROM sqlite_schema WHERE type IN ('trigger', 'view')") == [(0,)]
    store.close()


def test_the_bytes_of_an_effect_on_disk(db: Path) -> None:
    store = SqliteStore(db)
    admitted(store)
    store.close()
    before = db.stat().st_size
    store = SqliteStore(db)
    body = b'{"v":1,"pad":"%s"}' % (b"x" * 80)
    for n in range(100):
        kind = "intent.pending.v1" if n % 2 else "intent.dispatched.v1"
        landed(store, *(batch("r1", record("intent:charge#0/1/0", body=body, kind=kind)) for _ in range(8)))
    store.close()
    assert (db.stat().st_size - before) / 800 <= len(body) + 150


# ---- moved under our feet ------------------------------------------------------------------------------------------


def test_a_file_that_was_replaced_is_noticed_and_no_anchor_is_written_for_it(db: Path) -> None:
    store = SqliteStore(db)
    admitted(store)
    db.rename(db.with_name("moved.db"))
    before = db.with_name("poimen.db.anchor").read_bytes()
    with pytest.raises(StorageFailed, match="moved, removed or replaced"):
        store.anchor()
    with pytest.raises(StorageFailed, match="dead"):
        store.commit([batch("r1")])
    store.close()
    assert db.with_name("poimen.db.anchor").read_bytes() == before
    assert not db.exists()


def removed(db: Path) -> None:
    db.unlink()


def renamed(db: Path) -> None:
    db.rename(db.with_name("old.db"))


def replaced(db: Path) -> None:
    db.with_name("new.db").write_bytes(db.read_bytes())
    db.with_name("new.db").replace(db)


def wal_removed(db: Path) -> None:
    db.with_name(f"{db.name}-wal").unlink()


def wal_replaced(db: Path) -> None:
    wal = db.with_name(f"{db.name}-wal")
    copy = db.with_name("copy")
    copy.write_bytes(wal.read_bytes())
    copy.replace(wal)


@pytest.mark.parametrize("move", [removed, renamed, replaced, wal_removed, wal_replaced])
@pytest.mark.parametrize(
    "write", [lambda store: store.commit([batch("r1")]), lambda store: store.claim("r1", worker="w1", lease_s=9)]
)
def test_nothing_is_acknowledged_that_nobody_would_find(
    db: Path, move: Callable[[Path], None], write: Callable[[SqliteStore], Any]
) -> None:
    store = SqliteStore(db)
    admitted(store)
    store.worker("w1")
    move(db)
    with pytest.raises(StorageFailed, match="moved, removed or replaced"):
        write(store)
    with pytest.raises(StorageFailed, match="dead"):
        store.read("r1")
    store.close()


def test_errors_name_what_to_do(db: Path) -> None:
    some_text(db)
    with pytest.raises(PoimenError) as caught:
        SqliteStore(db)
    assert caught.value.hint
    assert not isinstance(caught.value, Corrupt)
