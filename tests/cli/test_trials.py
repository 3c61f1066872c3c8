"""A trial (`--dry-run`) refuses what the command itself refuses, in the same words, and says what would be done."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import apsw
import pytest

from tests.cli.conftest import AGENT, MAIL, child

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

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
