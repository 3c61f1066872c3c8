"""`log check` tells everything that is damaged at once, with run and LSN; what is in its way, and how to go on."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import effects
from poimen.engine import reading
from poimen.log.disk import doubt, files
from poimen.log.sqlite import SqliteStore
from tests.log.stores import edited

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli, Said


@poimen.tool(effect=effects.IDEMPOTENT)
async def mail(text: str) -> str:
    return text


@poimen.workflow
async def mails(text: str) -> int:
    return len(await mail(text))


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Three runs; bodies of `b` are in the table, those of `c` in files."""
    db = tmp_path / "poimen.db"
    for name, size in (("a", 1), ("b", 20_000), ("c", 90_000)):
        poimen.run(mails(name * size), db=str(db), run_id=name)
    return db


def damages(checked: Said) -> list[tuple[Any, Any, str]]:
    return [(one["run_id"], one["lsn"], one["what"]) for one in checked.data["damages"]]


def naming(db: Path, digests: set[str]) -> list[tuple[str, int]]:
    """Run and LSN of each record that names one of these bodies."""
    store = SqliteStore(db, read_only=True)
    named = [(run, lsn, ref.digest) for run in ("a", "b", "c") for lsn, ref in reading.bodies_named(store.read(run))]
    store.close()
    return [(run, lsn) for run, lsn, digest in named if digest in digests]


def test_a_run_id_that_is_no_text_is_named_and_hides_no_other_damage(cli: Cli, db: Path) -> None:
    of_c = "lsn = 3 AND run = (SELECT run FROM run WHERE run_id = 'c')"
    edited(
        db,
        "UPDATE run SET run_id = CAST(x'62ff' AS TEXT) WHERE run_id = 'b'",
        f"UPDATE record SET body = CAST('{{}}' AS BLOB) WHERE {of_c}",
        "UPDATE run SET state = 'RUNNING' WHERE run_id = 'a'",
    )
    for words in (("log", "check"), ("db", "check")):
        checked = cli(*words, "--json", "--db", db)
        found = damages(checked)
        assert checked.code == 7
        assert any("is no text: b'b\\xff'" in what for _, _, what in found), found
        assert any((run, lsn) == ("c", 3) for run, lsn, _ in found), found
        assert any(run == "a" and "the head says RUNNING" in what for run, _, what in found), found
        assert (checked.data["runs"], checked.data["ok"]) == (None, False)
    told = cli("log", "check", "--db", db)
    assert (told.code, "run c LSN 3: " in told.out, "is no text" in told.out) == (7, True, True)
    assert "whole" not in told.out


def test_heads_are_not_derived_of_a_run_whose_id_is_no_text(cli: Cli, db: Path) -> None:
    edited(db, "UPDATE run SET run_id = CAST(x'62ff' AS TEXT) WHERE run_id = 'b'")
    done = cli("db", "check", "--rebuild", "--db", db)
    assert (done.code, done.err.partition(" ")[0], "is no text" in done.err) == (7, "PO501", True), done


@pytest.mark.parametrize("column", ["state", "worker"])
def test_a_head_that_is_no_text_hides_no_other_damage(cli: Cli, db: Path, column: str) -> None:
    edited(db, f"UPDATE run SET {column} = CAST(x'ff' AS TEXT) WHERE run_id = 'a'")
    shutil.rmtree(db.with_name("poimen.db.blobs"))
    found = damages(cli("log", "check", "--json", "--db", db))
    assert {run for run, _, _ in found} == {"a", "c"}, found


def test_a_newest_record_that_is_damaged_is_named_as_json_too(cli: Cli, db: Path) -> None:
    edited(db, "UPDATE record SET body = CAST('{}' AS BLOB) WHERE pos = (SELECT max(pos) FROM record)")
    checked = cli("log", "check", "--json", "--db", db)
    assert (checked.code, checked.envelope["as_of"]["feed"]) == (7, None), checked
    assert {run for run, _, _ in damages(checked)} == {"c"}


def test_a_damaged_body_is_named_with_the_runs_and_records_that_name_it(cli: Cli, db: Path) -> None:
    bodies = sorted(path for path in db.with_name("poimen.db.blobs").rglob("*") if path.is_file())
    for path in bodies:
        path.write_bytes(b"another")
    found = damages(cli("log", "check", "--json", "--db", db))
    assert [(run, lsn) for run, lsn, _ in found] == naming(db, {path.name for path in bodies}) != []
    assert all(f", which does not match its digest: {db}.blobs/" in what for _, _, what in found)
    assert "run c LSN 1: it names blob " in cli("log", "check", "--db", db).out


def test_so_is_one_in_the_table(cli: Cli, db: Path) -> None:
    edited(db, "UPDATE blob SET body = x'00'")
    found = [(run, lsn, what) for run, lsn, what in damages(cli("log", "check", "--json", "--db", db)) if run]
    assert {run for run, _, _ in found} == {"b"}
    in_table = {what.split()[3].rstrip(",") for _, _, what in found}
    assert [(run, lsn) for run, lsn, _ in found] == naming(db, in_table)


def test_a_damaged_file_that_no_record_names_is_told_too(cli: Cli, db: Path) -> None:
    digest = "ab" * 32
    place = db.with_name("poimen.db.blobs") / "ab" / digest
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(b"who knows")
    ((run, lsn, what),) = damages(cli("log", "check", "--json", "--db", db))
    assert (run, lsn, digest in what) == (None, None, True)


# ---- what is in the way ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("log", "check"), ("db", "check", "--rebuild"), ("db", "backup", "copy")])
def test_an_anchor_that_cannot_be_read_is_told_with_what_to_do(cli: Cli, db: Path, words: tuple[str, ...]) -> None:
    anchor = db.with_name("poimen.db.anchor")
    anchor.unlink()
    anchor.mkdir()
    done = cli(*words, "--db", db)
    assert (done.code, done.out, done.err.count("\n")) == (6, "", 1), done
    assert done.err.startswith(f"PO403 the anchor {anchor} cannot be read: Is a directory · ")
    assert "move what stands there away" in done.err
    anchor.rmdir()
    assert cli("db", "check", "--rebuild", "--db", db).code == 0
    assert cli("log", "check", "--db", db).code == 0


def test_what_a_failed_commit_left_is_settled_by_the_command_that_is_named(cli: Cli, db: Path) -> None:
    doubt.mark(files.Sides.of(db), (), worker="w", error=os.strerror(5))
    for words in (("log", "check"), ("db", "check"), ("runs",)):
        done = cli(*words, "--db", db)
        assert (done.code, done.out, done.err.count("\n")) == (6, "", 1), done
        assert f"· poimen --db {db} db check --rebuild opens it for writing, which settles it" in done.err
    assert f"settles it (poimen --db {db} db check --rebuild)" in cli("doctor", "--db", db).out
    assert "db check --rebuild" in poimen.CommitUnknown.hint
    assert cli("db", "check", "--rebuild", "--db", db).code == 0
    assert cli("log", "check", "--db", db).code == 0
