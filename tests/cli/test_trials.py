"""A trial (`--dry-run`) refuses what the command itself refuses, in the same words, and says what would be done."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import apsw
import pytest

from poimen.log.disk.anchor import Anchor
from poimen.log.sqlite import SqliteStore
from tests.cli.conftest import AGENT, MAIL, child
from tests.log.stores import edited

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Cli, Said

NO_TEXT = os.fsdecode(b"a\xff")
SURE = ("--why", "looked", "--confirm", MAIL)


@pytest.mark.parametrize(
    "words",
    [
        ("run", f"{AGENT}:shop", "tea", "--id", "t", "--tag", f"a={NO_TEXT}"),
        ("run", f"{AGENT}:shop", "tea", "--id", "t", "--tag", f"{NO_TEXT}=b"),
        ("runs", "cancel", "tea-1", "--why", "x", "--by", NO_TEXT),
        ("runs", "cancel", "tea-1", "--why", NO_TEXT),
        ("runs", "resume", "tea-1", "--why", "x", "--by", NO_TEXT),
        ("inbox", "claim", MAIL, "--by", NO_TEXT),
        ("inbox", "resolve", MAIL, "--not-landed", *SURE, "--by", NO_TEXT),
        ("inbox", "resolve", MAIL, "--not-landed", *SURE, "--evidence", NO_TEXT),
        ("decisions", "settle", "tea-1/order", "--why", NO_TEXT),
    ],
)
def test_what_is_no_text_is_refused_as_by_the_command(cli: Cli, waiting: Path, words: tuple[str, ...]) -> None:
    tried = cli(*words, "--dry-run", "--db", waiting)
    done = cli(*words, "--db", waiting)
    assert (tried.code, tried.out, tried.err) == (done.code, done.out, done.err) == (2, "", done.err)
    assert "UTF-8" in tried.err


def test_an_actor_of_the_environment_is_looked_at_too(waiting: Path) -> None:
    words = ("runs", "cancel", "tea-1", "--why", "x", "--db", waiting)
    tried, done = (child(*words, *dry, cwd=waiting.parent, POIMEN_BY=NO_TEXT) for dry in (("--dry-run",), ()))
    assert tried == done
    assert (tried.code, "by holds a lone surrogate" in tried.err) == (2, True)


def test_a_trial_needs_no_reason_but_takes_no_empty_one(cli: Cli, waiting: Path) -> None:
    for words, code in (((), 0), (("--why", " "), 2)):
        assert cli("runs", "cancel", "tea-1", *words, "--dry-run", "--db", waiting).code == code


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_tag_that_is_given_twice_is_refused(cli: Cli, tmp_path: Path, dry: tuple[str, ...]) -> None:
    done = cli("run", f"{AGENT}:shop", "tea", "--tag", "a=b", "--tag", "a=c", *dry, "--db", "db")
    assert (done.code, done.out) == (2, "")
    assert "--tag a is given twice: 'b' and 'c'" in done.err
    assert list(tmp_path.iterdir()) == []


def test_it_says_what_would_be_done(cli: Cli, waiting: Path) -> None:
    assert cli("runs", "resume", "tea-1", "--dry-run", "--db", waiting).out == "run tea-1: would be let go on\n"
    assert cli("runs", "cancel", "tea-1", "--dry-run", "--db", waiting).out == "run tea-1: would be asked to stop\n"


# ---- a database that nothing was written to --------------------------------------------------------------------------


def _empty(db: Path) -> None:
    db.touch()


def _half_created(db: Path) -> None:
    connection = apsw.Connection(str(db))
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.close()
    assert db.stat().st_size > 0


@pytest.mark.parametrize("made", [_empty, _half_created])
@pytest.mark.parametrize("words", [(), ("--detach",)])
def test_a_run_begins_where_no_log_was_written_yet(cli: Cli, tmp_path: Path, made: object, words: tuple[str]) -> None:
    db = tmp_path / "db"
    made(db)  # type: ignore[operator]
    before = db.read_bytes()
    target = (f"{AGENT}:nothing", "--id", "n")
    tried = cli("run", *target, *words, "--dry-run", "--db", db)
    assert (tried.code, tried.out) == (0, "would run <call of nothing()> as n\n")
    assert db.read_bytes() == before
    done = cli("run", *target, *words, "--db", db)
    assert done.code == 0, done
    assert cli("runs", "show", "n", "--db", db).code == 0


def test_what_is_no_log_is_refused_as_before(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"hello, this is no database at all" * 99)
    connection = apsw.Connection(str(tmp_path / "other"))
    connection.execute("CREATE TABLE t (x)").fetchall()
    connection.close()
    for name, says in (("text", "is not a SQLite database"), ("other", "but not a log of poimen")):
        before = (tmp_path / name).read_bytes()
        for dry in (("--dry-run",), ()):
            done = cli("run", f"{AGENT}:nothing", "--id", "n", *dry, "--db", name)
            assert (done.code, done.err.partition(" ")[0], says in done.err) == (6, "PO111", True), done
        assert (tmp_path / name).read_bytes() == before


# ---- a log that whoever writes is refused ----------------------------------------------------------------------------


def _old(db: Path) -> None:
    copy = db.read_bytes()
    for _ in range(2):
        SqliteStore(db).close()
    db.write_bytes(copy)


def _other_anchor(db: Path) -> None:
    SqliteStore(db.with_name("other")).close()
    db.with_name("other.anchor").replace(db.with_name("db.anchor"))


def _lost(db: Path) -> None:
    line = Anchor(db.with_name("db.anchor"))
    mark = line.mark()
    assert mark is not None
    line.note(mark, {"tea-1": (2, bytes(32))})


def _altered(db: Path) -> None:
    edited(db, "DROP INDEX run_live")


def _anchor_is_a_folder(db: Path) -> None:
    db.with_name("db.anchor").unlink()
    db.with_name("db.anchor").mkdir()


def _anchor_is_a_loop(db: Path) -> None:
    db.with_name("db.anchor").unlink()
    db.with_name("db.anchor").symlink_to(db.with_name("db.anchor"))


def _open_is_a_folder(db: Path) -> None:
    db.with_name("db.open").unlink()
    db.with_name("db.open").mkdir()


def _turn_is_a_link(db: Path) -> None:
    db.with_name("db.turn").replace(db.with_name("turn"))
    db.with_name("db.turn").symlink_to(db.with_name("turn"))


def listing(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder and what is in it."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


REFUSED: dict[Callable[[Path], None], tuple[int, str]] = {
    _old: (7, "PO501"),
    _other_anchor: (7, "PO501"),
    _lost: (7, "PO501"),
    _altered: (7, "PO501"),
    _anchor_is_a_folder: (6, "PO403"),
    _anchor_is_a_loop: (6, "PO403"),
    _open_is_a_folder: (6, "PO403"),
    _turn_is_a_link: (6, "PO403"),
}
WRITERS = {
    "cancel": ("runs", "cancel", "tea-1", "--why", "x"),
    "resume": ("runs", "resume", "tea-1", "--why", "x"),
    "claim": ("inbox", "claim", MAIL),
    "resolve": ("inbox", "resolve", MAIL, "--not-landed", *SURE),
    "settle": ("decisions", "settle", "tea-1/order", "--why", "x"),
    "reject": ("decisions", "reject", "tea-1/order", "--why", "x"),
    "backup": ("db", "backup", "copy"),
    "rebuild": ("db", "check", "--rebuild"),
    "run": ("run", f"{AGENT}:nothing", "--id", "new"),
    "detach": ("run", f"{AGENT}:nothing", "--id", "new", "--detach"),
    "each": ("run", f"{AGENT}:nothing", "--id", "new", "--each", "@lines"),
}


def tried_and_done(cli: Cli, db: Path, words: tuple[str | Path, ...]) -> tuple[Said, Said]:
    """How the trial ended, which left everything as it was, and the command."""
    before = listing(db.parent)
    tried = cli(*words, "--dry-run", "--db", db)
    assert listing(db.parent) == before
    return tried, cli(*words, "--db", db)


@pytest.mark.parametrize("name", [*WRITERS])
@pytest.mark.parametrize("make", [*REFUSED])
def test_a_log_that_the_command_is_refused_is_refused_to_the_trial(
    cli: Cli, waiting: Path, make: Callable[[Path], None], name: str
) -> None:
    waiting.with_name("lines").write_text("{}\n", encoding="utf-8")
    make(waiting)
    tried, done = tried_and_done(cli, waiting, (*WRITERS[name], "--json"))
    assert [(said.code, said.error["code"]) for said in (tried, done)] == [REFUSED[make]] * 2, (tried, done)
    assert tried.error == done.error


@pytest.mark.parametrize("name", [*WRITERS])
def test_a_log_that_is_whole_is_refused_to_neither(cli: Cli, waiting: Path, name: str) -> None:
    waiting.with_name("lines").write_text("{}\n", encoding="utf-8")
    tried, done = tried_and_done(cli, waiting, WRITERS[name])
    assert (tried.code, done.code) == (0, 0), (tried, done)


def _empty_beside_an_anchor(db: Path) -> None:
    SqliteStore(db).close()
    db.write_bytes(b"")


def _half_beside_an_anchor(db: Path) -> None:
    _empty_beside_an_anchor(db)
    _half_created(db)


def _gone_beside_an_anchor(db: Path) -> None:
    SqliteStore(db).close()
    db.unlink()


def _in_a_file(db: Path) -> None:
    db.parent.touch()


def _workers_is_a_file(db: Path) -> None:
    db.with_name("db.workers").touch()


def _doubtful(db: Path) -> None:
    db.touch()
    db.with_name("db.doubt").write_bytes(b"junk")


def _doubt_is_a_folder(db: Path) -> None:
    db.with_name("db.doubt").mkdir()


def _nothing_at_all(db: Path) -> None:
    assert not db.exists()


@pytest.mark.parametrize(
    ("make", "name", "code"),
    [
        (_empty_beside_an_anchor, "db", 7),
        (_half_beside_an_anchor, "db", 7),
        (_gone_beside_an_anchor, "db", 7),
        (_in_a_file, "file/db", 6),
        (_nothing_at_all, "/proc/db", 6),
        (_workers_is_a_file, "db", 6),
        (_doubt_is_a_folder, "db", 6),
        (_doubtful, "db", 0),
        (_nothing_at_all, "a/b/db", 0),
    ],
)
def test_a_run_is_refused_where_no_log_can_begin(
    cli: Cli, tmp_path: Path, make: Callable[[Path], None], name: str, code: int
) -> None:
    make(tmp_path / name)
    before = listing(tmp_path)
    target = ("run", f"{AGENT}:nothing", "--id", "n", "--db", name)
    tried = cli(*target, "--dry-run")
    assert listing(tmp_path) == before
    done = cli(*target)
    assert (tried.code, done.code) == (code, code), (tried, done)
    assert tried.err.partition(" ")[0] == done.err.partition(" ")[0] or not code


def test_a_trial_of_a_run_says_that_a_failed_commit_is_settled_first(cli: Cli, waiting: Path) -> None:
    waiting.with_name("db.doubt").write_bytes(b"junk")
    tried = cli("run", f"{AGENT}:nothing", "--id", "n", "--dry-run", "--db", waiting)
    assert (tried.code, "a failed commit is settled first" in tried.err) == (0, True)
    assert cli("run", f"{AGENT}:nothing", "--id", "n", "--db", waiting).code == 0


def test_a_copy_that_would_not_stand_its_check_is_refused_to_the_trial(cli: Cli, waiting: Path) -> None:
    edited(waiting, "UPDATE record SET at = 0 WHERE lsn = 2")
    tried, done = tried_and_done(cli, waiting, ("db", "backup", "copy"))
    assert (tried.code, done.code) == (7, 7)
    assert "record 2 (" in tried.err
    assert "record 2 (" in done.err


# ---- the doctor ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [*REFUSED])
def test_the_doctor_names_what_refuses_whatever_writes(cli: Cli, waiting: Path, make: Callable[[Path], None]) -> None:
    make(waiting)
    before = listing(waiting.parent)
    told = cli("doctor", "--json", "--db", waiting)
    refused = [found for found in told.data["findings"] if found.startswith("whatever writes to it is refused: ")]
    assert ((told.code, told.error["code"]), len(refused)) == (REFUSED[make], 1), told
    assert refused[0].endswith(told.error["title"])
    assert [run["id"] for run in told.data["runs"]] == ["tea-1"]
    assert listing(waiting.parent) == before


def test_the_doctor_of_who_may_only_look_tells_it_and_ends_well(
    cli: Cli, waiting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and ask(path, mode))
    told = cli("doctor", "--json", "--db", waiting)
    assert told.code == 0
    assert any("cannot be written by this user" in found for found in told.data["findings"])


def test_the_doctor_misses_a_log_that_is_gone_from_its_anchor(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POIMEN_DB", raising=False)
    db = tmp_path / ".poimen" / "poimen.db"
    SqliteStore(db).close()
    db.unlink()
    told = cli("doctor", "--json")
    assert told.code == 7
    assert any("there is no database" in found for found in told.data["findings"])
