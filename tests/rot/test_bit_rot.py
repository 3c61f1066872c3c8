"""Flipped bits and edited rows in the files of real runs: each found, or shown to mean nothing (P8)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

from poimen.log.sqlite import SqliteStore
from poimen.testing import crash
from poimen.testing.rot.edits import edit_rows, told_edits
from poimen.testing.rot.flips import copied, flip_bits, told, wrong
from poimen.testing.rot.meaning import Meaning

if TYPE_CHECKING:
    from tests.conftest import Figures, Scale, Seeds

pytestmark = [pytest.mark.harness("P8"), pytest.mark.xdist_group("rot"), pytest.mark.timeout(3_000)]

ROOT = Path(__file__).parents[2]
LEAST_KINDS = 14


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, each killed in its last effect: the newest records are in the WAL alone."""
    folder = tmp_path_factory.mktemp("killed")
    db = folder / "poimen.db"
    for n in range(3):
        code = crash(
            "tests.rot.programs:order",
            at="dispatched" if n == 2 else "committed",
            tool="mail",
            args=("tea",),
            db=db,
            run_id=f"run-{n}",
            env={"POIMEN_WITNESS": str(folder / "witness")},
        )
        assert code == -signal.SIGKILL
    assert db.with_name("poimen.db-wal").stat().st_size > 0
    return db


@pytest.fixture(scope="module")
def closed(killed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, opened and closed again: all in the database, all anchored."""
    folder = tmp_path_factory.mktemp("closed")
    copied(killed, folder)
    SqliteStore(folder / killed.name).close()
    assert not (folder / "poimen.db-wal").exists()
    return folder / killed.name


@pytest.fixture(scope="module")
def half(killed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The WAL has been copied into the database, and lies there still."""
    folder = tmp_path_factory.mktemp("half")
    copied(killed, folder)
    db = folder / killed.name
    connection = apsw.Connection(str(db))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    connection.close()
    assert db.with_name("poimen.db-wal").stat().st_size > 0
    return db


FLIPS = {"killed": (400, 8_000), "half": (200, 4_000), "closed": (400, 8_000)}


@pytest.mark.parametrize("which", FLIPS)
def test_every_flipped_bit_is_found_or_means_nothing(
    which: str, scale: Scale, seeds: Seeds, tmp_path: Path, request: pytest.FixtureRequest, figures: Figures
) -> None:
    asked, seed = scale(*FLIPS[which]), next(seeds())
    flips = flip_bits(request.getfixturevalue(which), folder=tmp_path, flips=asked, seed=seed)
    lost = len(wrong(flips))
    figures(f"P8 {which}: {told(flips)}", asked=asked, reached=len(flips), unit="flips and edits", lost=lost)
    assert wrong(flips) == []
    verdicts = {flip.verdict for flip in flips}
    assert {"named", "unused"} <= verdicts
    assert {Path(flip.file).suffix for flip in flips} >= {".db", ".anchor", ""}  # "": a body's name is its digest
    assert which == "closed" or any(flip.file.endswith("-wal") for flip in flips)


def test_with_the_chain_off_flips_pass_and_are_seen_to(closed: Path, tmp_path: Path, figures: Figures) -> None:
    program = (
        "import sys; from poimen.testing import sabotage; from poimen.testing.rot.flips import *\n"
        "sabotage.apply('chain_off')\n"
        "print(len(wrong(flip_bits(sys.argv[1], folder=sys.argv[2], flips=150))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(closed), str(tmp_path)], check=True, capture_output=True, text=True
    )
    caught = int(done.stdout)
    figures(f"P8 control chain_off: of 150 flips {caught} pass", control="chain_off", caught=caught)
    assert caught > 0


def test_every_raw_edit_is_located(closed: Path, scale: Scale, seeds: Seeds, tmp_path: Path, figures: Figures) -> None:
    asked = scale(1_000, 10_000)
    edits = edit_rows(closed, folder=tmp_path, edits=asked, seed=next(seeds()))
    lost = sum(not edit.located for edit in edits)
    figures(f"P8 rows: {told_edits(edits)}", asked=asked, reached=len(edits), unit="flips and edits", lost=lost)
    assert len({edit.kind for edit in edits}) == LEAST_KINDS
    assert [edit for edit in edits if not edit.located] == []


@pytest.mark.parametrize("offset", [0, 16, 100, 105, 4_096])
def test_the_command_ends_with_a_code_and_no_traceback(closed: Path, tmp_path: Path, offset: int) -> None:
    copied(closed, tmp_path / "flipped")
    db = tmp_path / "flipped" / closed.name
    raw = bytearray(db.read_bytes())
    raw[offset] ^= 1
    db.write_bytes(raw)
    env = {name: value for name, value in os.environ.items() if not name.startswith("POIMEN_")}
    done = subprocess.run(
        [sys.executable, "-m", "poimen", "log", "check", "--db", str(db)],
        check=False, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=60,
    )  # fmt: skip
    assert done.returncode not in {0, 1}, done
    assert "Traceback" not in done.stderr


def test_what_is_called_free_is_free(closed: Path, tmp_path: Path) -> None:
    """Every byte that the walk calls free is turned over at once; SQLite finds nothing, and the rows are the same."""
    copied(closed, tmp_path / "free")
    db = tmp_path / "free" / closed.name
    meaning = Meaning(db)
    before = rows(db)
    raw = bytearray(db.read_bytes())
    free = [at for at in range(100, len(raw)) if meaning.free_in_db(at)]
    assert len(free) > len(raw) // 100
    for at in free:
        raw[at] ^= 0xFF
    db.write_bytes(raw)
    assert rows(db) == before


def rows(db: Path) -> list[object]:
    connection = apsw.Connection(str(db), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [connection.execute(f"SELECT * FROM {table}").fetchall() for table in ("run", "record", "blob", "meta")]
    finally:
        connection.close()
