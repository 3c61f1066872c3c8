"""Bodies by digest: small ones ride with their record, large ones are files, none is served that does not match."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poimen.blobs import files as blob_files
from poimen.blobs.api import SMALL_BYTES, is_digest
from poimen.blobs.files import FileBlobs, beside
from poimen.blobs.tables import TieredBlobs
from poimen.kernel.errors import ConfigurationError, Corrupt, NotFound, StorageFailed
from poimen.kernel.intent import BlobRef
from poimen.log.api import Blob
from poimen.log.memory import MemoryStore
from poimen.log.sqlite import SqliteStore
from tests.log.stores import Child, admitted, batch, landed

if TYPE_CHECKING:
    from collections.abc import Iterator

NOWHERE = Path("/nonexistent/poimen.db")
LARGE = b"x" * (SMALL_BYTES + 1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "poimen.db.blobs"


@pytest.fixture
def blobs(root: Path) -> FileBlobs:
    return FileBlobs(root)


def place_of(root: Path, body: bytes) -> Path:
    digest = sha256(body).hexdigest()
    return root / digest[:2] / digest


# ---- files ---------------------------------------------------------------------------------------------------------


def test_a_body_is_kept_under_its_digest_and_private(blobs: FileBlobs, root: Path) -> None:
    ref = blobs.put(LARGE, "text/plain")
    assert (ref.digest, ref.size, ref.media_type) == (sha256(LARGE).hexdigest(), len(LARGE), "text/plain")
    assert blobs.get(ref.digest) == LARGE
    assert blobs.put(LARGE) == blobs.put(LARGE)
    assert [path for path in root.rglob("*") if path.is_file()] == [place_of(root, LARGE)]
    assert stat.S_IMODE(root.stat().st_mode) == stat.S_IMODE(place_of(root, LARGE).parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(place_of(root, LARGE).stat().st_mode) == 0o600
    assert blobs.put(b"").size == 0
    assert blobs.get(sha256(b"").hexdigest()) == b""


def test_a_body_is_whole_and_named_before_put_returns(blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []
    for name in ("write", "fsync", "rename"):
        real = getattr(os, name)

        def noted(*arguments: Any, name: str = name, real: Any = real, **more: Any) -> Any:
            is_folder = name == "fsync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode)
            did.append("sync folder" if is_folder else name)
            return real(*arguments, **more)

        monkeypatch.setattr(os, name, noted)
    blobs.put(LARGE)
    assert did[-4:] == ["write", "fsync", "rename", "sync folder"]
    assert did[:-4] == ["sync folder", "sync folder"]
    did.clear()
    blobs.put(LARGE)
    assert did == ["sync folder"]


def test_a_body_that_was_damaged_is_not_served_and_is_healed_by_putting_it_again(blobs: FileBlobs, root: Path) -> None:
    ref = blobs.put(LARGE)
    place_of(root, LARGE).write_bytes(LARGE[:-1] + b"y")
    with pytest.raises(Corrupt):
        blobs.get(ref.digest)
    assert list(blobs.check()) == [(ref.digest, f"blob {ref.digest} does not match its digest")]
    blobs.put(LARGE)
    assert blobs.get(ref.digest) == LARGE
    assert list(blobs.check()) == []


def test_links_are_not_followed(blobs: FileBlobs, root: Path, tmp_path: Path) -> None:
    ref = blobs.put(LARGE)
    outside = tmp_path / "outside"
    outside.write_bytes(LARGE)
    place_of(root, LARGE).unlink()
    place_of(root, LARGE).symlink_to(outside)
    with pytest.raises(Corrupt, match="link"):
        blobs.get(ref.digest)
    blobs.put(LARGE)
    assert not place_of(root, LARGE).is_symlink()
    folder = place_of(root, LARGE).parent
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Corrupt, match="link"):
        blobs.get(ref.digest)
    with pytest.raises(StorageFailed):
        blobs.put(LARGE)


HOSTILE = st.one_of(
    st.text(max_size=80),
    st.sampled_from(["../../etc/passwd", "/etc/passwd", "..", "", "a" * 63, "A" * 64, "a" * 65, "a" * 64 + "\n", "\0"]),
)


@given(HOSTILE)
def test_a_name_that_is_no_digest_leads_nowhere(name: str) -> None:
    opened: list[Any] = []
    real = os.open
    os.open = lambda *a, **k: opened.append(a) or real(*a, **k)  # type: ignore[func-returns-value]
    try:
        for store in (FileBlobs(NOWHERE), TieredBlobs(MemoryStore(), NOWHERE)):
            if not is_digest(name):
                with pytest.raises(NotFound):
                    store.get(name)
    finally:
        os.open = real
    assert opened == []


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_body_that_cannot_be_written_leaves_nothing(
    blobs: FileBlobs, root: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    blobs.put(b"other")
    blobs.put(LARGE)
    place_of(root, LARGE).unlink()

    def fails(*arguments: Any, **more: Any) -> Any:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(StorageFailed, match=os.strerror(error)):
        blobs.put(LARGE)
    monkeypatch.undo()
    assert [path for path in root.rglob("*") if path.is_file()] == [place_of(root, b"other")]
    with pytest.raises(NotFound):
        blobs.get(sha256(LARGE).hexdigest())
    assert blobs.get(blobs.put(LARGE).digest) == LARGE


def test_what_a_killed_writer_has_left_is_swept_and_what_a_live_one_writes_is_not(blobs: FileBlobs, root: Path) -> None:
    blobs.put(LARGE)
    (place_of(root, LARGE).parent / ".new-dead").write_bytes(b"half")
    with Child("hold_blob", root) as child:
        name = child.says()
        FileBlobs(root).put(LARGE)
        assert not (place_of(root, LARGE).parent / ".new-dead").exists()
        blob_files._sweep((root / name).parent)
        assert (root / name).exists()
        child.process.send_signal(signal.SIGKILL)
        child.process.wait()
        blob_files._sweep((root / name).parent)
    assert [path for path in root.rglob("*") if path.is_file()] == [place_of(root, LARGE)]
    assert list(blobs.check()) == []


def test_a_sweep_between_a_new_file_and_its_lock_costs_nothing(
    blobs: FileBlobs, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, swept = fcntl.flock, list[Path]()

    def after_a_sweep(fd: int, how: int) -> None:
        if not swept:
            swept.extend(root.rglob(".new-*"))
            blob_files._sweep(place_of(root, LARGE).parent)
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", after_a_sweep)
    blobs.put(LARGE)
    assert len(swept) == 1
    assert not swept[0].exists()
    assert blobs.get(sha256(LARGE).hexdigest()) == LARGE


def test_bodies_are_copied_and_verified_on_the_way(blobs: FileBlobs, root: Path, tmp_path: Path) -> None:
    blobs.put(LARGE)
    blobs.put(LARGE * 2)
    assert blobs.copy(tmp_path / "copy.blobs") == 2
    assert FileBlobs(tmp_path / "copy.blobs").get(sha256(LARGE).hexdigest()) == LARGE
    place_of(root, LARGE).write_bytes(b"damaged")
    with pytest.raises(Corrupt):
        blobs.copy(tmp_path / "other.blobs")


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db.blobs").touch()
    with pytest.raises(ConfigurationError):
        beside(tmp_path / "x.db")
    assert blob_files.beside(tmp_path / "y.db") == tmp_path / "y.db.blobs"


# ---- tiers ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite"])
def tiers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, TieredBlobs]]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "poimen.db")
    yield store, TieredBlobs(store, store.path)
    store.close()


def test_small_bodies_ride_and_large_ones_are_files(tiers: tuple[Any, TieredBlobs], tmp_path: Path) -> None:
    store, blobs = tiers
    small, edge, large = b"small", b"e" * SMALL_BYTES, LARGE
    riding: list[Blob] = []
    refs = []
    for body in (small, edge, large):
        ref, rides = blobs.kept(body, "text/plain")
        refs.append(ref)
        if rides is not None:
            riding.append(Blob(digest=ref.digest, media_type=ref.media_type, body=rides))
    in_memory = store.path is None
    assert [len(each.body) for each in riding] == [5, SMALL_BYTES, *([len(LARGE)] if in_memory else [])]
    with pytest.raises(NotFound):
        blobs.get(refs[0].digest)
    admitted(store)
    landed(store, batch("r1", blobs=tuple(riding)))
    assert [blobs.get(ref.digest) for ref in refs] == [small, edge, large]
    files = [path for path in tmp_path.rglob("*") if is_digest(path.name)]
    assert len(files) == (0 if in_memory else 1)
    assert list(blobs.check()) == []


def test_a_body_put_on_its_own_is_there_whatever_its_size(tiers: tuple[Any, TieredBlobs]) -> None:
    _, blobs = tiers
    for body in (b"small", LARGE):
        assert blobs.get(blobs.put(body).digest) == body
    with pytest.raises(NotFound):
        blobs.get("0" * 64)


def test_a_copy_of_a_log_finds_its_large_bodies(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "poimen.db")
    blobs = TieredBlobs(store, store.path)
    ref, rides = blobs.kept(LARGE)
    assert rides is None
    admitted(store)
    to = tmp_path / "copy.db"

    def copied() -> None:
        assert not to.exists(), "a backup that can be seen is whole"
        assert blobs.copy(to) == 1

    store.backup(to, bodies=copied)
    copy = SqliteStore(tmp_path / "copy.db", read_only=True)
    assert TieredBlobs(copy, copy.path).get(ref.digest) == LARGE
    copy.close()
    store.close()
    assert TieredBlobs(MemoryStore(), None).copy(tmp_path / "x") == 0


def test_a_backup_whose_bodies_cannot_be_copied_does_not_appear(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "poimen.db")
    blobs = TieredBlobs(store, store.path)
    ref, _ = blobs.kept(LARGE)
    place_of(tmp_path / "poimen.db.blobs", LARGE).write_bytes(b"damaged")
    with pytest.raises(Corrupt, match=ref.digest):
        store.backup(tmp_path / "copy.db", bodies=lambda: blobs.copy(tmp_path / "copy.db"))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("copy.db")] == []
    store.close()


def test_a_body_that_a_record_names_and_that_is_gone_is_damage(tiers: tuple[Any, TieredBlobs]) -> None:
    _, blobs = tiers
    ref = blobs.put(LARGE)
    assert blobs.has(ref.digest)
    assert blobs.read(ref, "run r1 LSN 1") == LARGE
    assert blobs.read(b"inline", "run r1 LSN 1") == b"inline"
    lost = BlobRef(digest="0" * 64, size=9, media_type="application/json")
    assert not blobs.has(lost.digest)
    with pytest.raises(Corrupt, match="run r1 LSN 1 names blob 0000") as caught:
        blobs.read(lost, "run r1 LSN 1")
    assert caught.value.where == blobs.place(lost.digest)
