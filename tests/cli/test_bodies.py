"""Bodies beside the records: a check misses those that are gone, and a backup is not seen before they are in it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

import poimen
from poimen import effects
from poimen.blobs.files import FileBlobs
from poimen.kernel.errors import StorageFailed
from poimen.log.sqlite import SqliteStore
from tests.log.stores import edited

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def mail(text: str) -> str:
    return text[:1]


@poimen.workflow
async def mails(small: str, large: str) -> str:
    return await mail(small) + await mail(large)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    db = tmp_path / "poimen.db"
    poimen.run(mails("s" * 20_000, "l" * 90_000), db=str(db), run_id="r")
    return db


def named(db: Path) -> dict[int, str]:
    """LSNs of the records that name a body, with its digest."""
    store = SqliteStore(db, read_only=True)
    found = {each.lsn: each.body.partition(b'"$blob":')[2] for each in store.read("r") if b'"$blob"' in each.body}
    store.close()
    return {lsn: json.JSONDecoder().raw_decode(rest.decode())[0]["digest"] for lsn, rest in found.items()}


def test_a_body_that_a_record_names_and_that_is_gone_is_found_by_a_check(cli: Cli, db: Path) -> None:
    assert cli("log", "check", "--db", db).code == 0
    digests = named(db)
    assert len(digests) >= 3
    shutil.rmtree(db.with_name("poimen.db.blobs"))
    files = cli("log", "check", "--json", "--db", db)
    lost = {one["lsn"]: one["what"] for one in files.data["damages"]}
    assert files.code == 7
    assert 1 in lost
    assert all(digests[lsn] in what for lsn, what in lost.items())
    edited(db, "DELETE FROM blob")
    every = cli("db", "check", "--json", "--db", db)
    assert (every.code, {one["lsn"] for one in every.data["damages"]}) == (7, set(digests))
    assert {one["run_id"] for one in every.data["damages"]} == {"r"}


def test_a_backup_is_not_seen_before_its_bodies_are_in_it(
    cli: Cli, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = FileBlobs.copy

    def killed(blobs: FileBlobs, to: Path) -> int:
        copy(blobs, to)
        raise StorageFailed("the power went out")

    monkeypatch.setattr(FileBlobs, "copy", killed)
    assert cli("db", "backup", tmp_path / "copy.db", "--db", db).code == 6
    assert not (tmp_path / "copy.db").exists()
    monkeypatch.undo()
    assert cli("db", "backup", tmp_path / "copy.db", "--db", db).code == 0
    assert cli("log", "check", "--db", tmp_path / "copy.db").code == 0


def test_a_backup_of_a_log_whose_body_is_gone_is_refused(cli: Cli, db: Path, tmp_path: Path) -> None:
    shutil.rmtree(db.with_name("poimen.db.blobs"))
    to = tmp_path / "copy.db"
    refused = cli("db", "backup", to, "--db", db)
    assert (refused.code, "run r LSN" in refused.err, "gone" in refused.err) == (7, True, True), refused
    assert not to.exists()
