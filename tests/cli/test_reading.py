"""Commands that look leave no trace: no file appears, none changes, and a wrong path stays empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.cli.conftest import MAIL, Cli, child

if TYPE_CHECKING:
    from pathlib import Path

READS: Final = [
    ("runs",),
    ("runs", "show", "tea"),
    ("intents",),
    ("intents", "show", "tea-1/main/mail"),
    ("decisions",),
    ("inbox", "--check"),
    ("inbox", "show", MAIL),
    ("log", "show", "tea"),
    ("log", "tail"),
    ("log", "check"),
    ("db", "info"),
    ("db", "check"),
    ("doctor",),
]


def traces(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """All files with their size, time and bytes; of SQLite's shared memory only that it is there."""
    found = {".": (0, folder.stat().st_mtime_ns, b"")}
    for path in sorted(folder.rglob("*")):
        about, is_memory = path.stat(), path.name.endswith("-shm")
        body = path.read_bytes() if path.is_file() and not is_memory else b""
        found[str(path.relative_to(folder))] = (0, 0, b"") if is_memory else (about.st_size, about.st_mtime_ns, body)
    return found


@pytest.mark.parametrize("words", READS, ids=" ".join)
@pytest.mark.parametrize("state", ["killed", "waiting"])
def test_a_look_leaves_no_trace(cli: Cli, request: pytest.FixtureRequest, state: str, words: tuple[str, ...]) -> None:
    db: Path = request.getfixturevalue(state)
    before = traces(db.parent)
    assert ("db-wal" in before) is (state == "killed"), "one database at rest, one as a kill leaves it"
    for form in ((), ("--json",), ("--content",)):
        assert cli(*words, *form, "--db", db).code in {0, 4}
    assert traces(db.parent) == before


def test_a_process_of_its_own_leaves_no_trace(killed: Path) -> None:
    before = traces(killed.parent)
    for words in (("runs", "show", "tea"), ("doctor",)):
        assert child(*words, "--db", killed, cwd=killed.parent).code == 0
    assert traces(killed.parent) == before


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "cancel", "tea", "--why", "x"),
        ("inbox", "claim", "tea"),
        ("inbox", "resolve", "tea", "--landed", "--value", '"m"'),
        ("decisions", "settle", "tea-1/order"),
        ("db", "backup", "copy"),
        ("db", "check", "--rebuild"),
    ],
    ids=" ".join,
)
def test_a_dry_run_leaves_no_trace(cli: Cli, waiting: Path, words: tuple[str, ...]) -> None:
    before = traces(waiting.parent)
    done = cli(*words, "--dry-run", "--db", waiting)
    assert done.code == 0, done
    assert done.out
    assert traces(waiting.parent) == before


def test_a_dry_run_of_a_run_admits_nothing(cli: Cli, tmp_path: Path) -> None:
    from tests.cli.conftest import AGENT

    done = cli("run", f"{AGENT}:shop", "tea", "--id", "t", "--dry-run", "--json")
    assert (done.code, done.data["input"]) == (0, {"order": "tea", "cents": 4200})
    assert list(tmp_path.iterdir()) == []


def test_doctor_where_there_is_nothing_yet(cli: Cli, tmp_path: Path) -> None:
    done = cli("doctor", "--json")
    assert (done.code, done.data["database"]["exists"], done.data["runs"]) == (0, False, [])
    assert done.data["database"]["source"].startswith("new, in ")
    assert list(tmp_path.iterdir()) == []
    assert cli("doctor", "--db", "nowhere/db").code == 6
    assert list(tmp_path.iterdir()) == []
