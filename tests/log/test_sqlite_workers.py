"""What cannot be asked of a worker's lock says nothing of the worker, and a disk that refuses is a storage error."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from poimen.engine import desk
from poimen.kernel.errors import StorageFailed
from poimen.log.disk import files
from poimen.log.sqlite import SqliteStore
from tests.log.stores import admitted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "poimen.db"


@pytest.fixture
def store(db: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(db)
    admitted(opened)
    yield opened
    opened.close()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.EACCES, errno.ENOMEM])
def test_a_lock_that_cannot_be_asked_is_that_of_a_live_worker(
    db: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    other = SqliteStore(db)
    assert store.claim("r1", worker="w1", lease_s=1000) is not None
    other.worker("w2")
    opens = os.open

    def refused(path: Any, *arguments: Any, **more: Any) -> int:
        if str(path).endswith("w1.lock"):
            raise OSError(error, os.strerror(error))
        return opens(path, *arguments, **more)

    monkeypatch.setattr(os, "open", refused)
    head = other.head("r1")
    assert head is not None
    assert desk.driven(head, other)
    assert other.claim("r1", worker="w2", lease_s=10) is None
    monkeypatch.undo()
    other.close()


@pytest.mark.parametrize(
    "declare", [lambda store: store.worker("w1"), lambda store: store.claim("r1", worker="w1", lease_s=10)]
)
def test_a_worker_that_cannot_be_declared_is_a_storage_error(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, declare: Callable[[SqliteStore], Any]
) -> None:
    def fails(_path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(files, "sync_directory", fails)
    with pytest.raises(StorageFailed, match="Input/output error") as caught:
        declare(store)
    assert "poimen.db.workers" in caught.value.where
    monkeypatch.undo()
    assert store.claim("r1", worker="w1", lease_s=10) is not None
