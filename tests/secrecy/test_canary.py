"""500 made-up secrets in 20 forms, through every way in, with a kill in the middle: nothing that is left holds one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner

import poimen
from poimen.cli.main import root
from poimen.testing import CANARY_KINDS, canaries_in, made_up_secrets
from tests.secrecy.leaky import SEED

if TYPE_CHECKING:
    from tests.conftest import Figures, Scale, Seeds

PROGRAM: Final = Path(__file__).with_name("leaky.py")
HOME: Final = Path(poimen.__file__).parents[1]

pytestmark = pytest.mark.harness("secrets")


def leak(folder: Path, n: int, *kinds: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """The program as a process, to its end or its kill; what it has printed is left in the folder too."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POIMEN_")}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *kinds],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(HOME), "LEAKY_DB": str(folder / "db"), "LEAKY_N": str(n), "POIMEN_BY": "t"} | env,
        capture_output=True,
        timeout=280,
        check=False,
    )
    (folder / f"printed-{done.returncode}").write_bytes(done.stdout + done.stderr)
    return done


def looked_at(folder: Path) -> bytes:
    """What all commands that list print, with agent text, for people and for programs."""
    db, runs = ("--db", str(folder / "db")), ["leaks-url", "leaks-password", "waits-0", "waits-18"]
    looks = [
        ("runs",),
        ("inbox",),
        ("intents", "ls"),
        ("decisions",),
        ("log", "tail", "--limit", "5000"),
        ("doctor", "-v"),
    ]
    looks += [(noun, "show", run) for noun in ("runs", "log") for run in runs]
    printed = b""
    for look in looks:
        for more in (("--content",), ("--content", "--json"), ()):
            given = [*look, *(one for one in more if look[0] != "doctor" or one != "--content"), *db]
            done = CliRunner().invoke(root, given)
            assert done.exit_code in {0, 4}, (given, done.output)
            printed += done.stdout_bytes + done.stderr_bytes
    return printed


@pytest.mark.timeout(600)
def test_none_of_500_is_found_anywhere(tmp_path: Path, scale: Scale, seeds: Seeds, figures: Figures) -> None:
    n, seed = scale(500, 2_000), next(seeds())
    sought = made_up_secrets(n, seed=SEED + seed)
    killed = leak(tmp_path, n, POIMEN_CRASH=f"called:lost:{n // 3}", LEAKY_SEED=str(seed))
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    assert (tmp_path / "db-wal").stat().st_size > 0, "the WAL is searched as the kill has left it"
    assert canaries_in(sought, tmp_path) == []
    done = leak(tmp_path, n, LEAKY_SEED=str(seed))
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    printed = looked_at(tmp_path)
    assert canaries_in(sought, tmp_path, printed) == []
    # What was said is there, only not the secret.
    kept = (tmp_path / "db").read_bytes() + (tmp_path / "ledger.jsonl").read_bytes() + printed + done.stderr
    for words in (b"the far side says", b"asks for", b"found with", b"stumbled over", b"asked with"):
        assert words in kept
    assert b"cannot tell" in done.stderr + killed.stderr, "a predicate's error was logged"
    figures(
        f"secrets: {n} canaries in {len(CANARY_KINDS)} forms, 17 ways in and people's: 0 found",
        asked=n,
        reached=len(sought),
        unit="canaries",
    )


@pytest.mark.timeout(600)
def test_with_the_rules_off_every_form_is_found(tmp_path: Path, figures: Figures) -> None:
    """The control: the same program, search and ways; without the rules the canaries are in the database."""
    n = 2 * len(CANARY_KINDS)
    done = leak(tmp_path, n, POIMEN_SECRETS="off")
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    sought = made_up_secrets(n, seed=SEED)
    found = Counter(kind for kind, _ in canaries_in(sought, tmp_path / "db", tmp_path / "db.blobs"))
    figures(f"secrets control off: {len(found)} forms found", control="off", caught=len(found))
    assert set(found) == set(CANARY_KINDS)
    assert {Path(place).name for _, place in canaries_in(sought, tmp_path)} >= {"db", "printed-0", "ledger.jsonl"}
    assert canaries_in(sought, looked_at(tmp_path))


def test_a_canary_is_found_in_its_other_forms() -> None:
    for one in made_up_secrets(40):
        for ahead in (b"", b"x", b"xy"):
            assert canaries_in([one], b64encode(ahead + one.hidden.encode() + b"tail")), one
        assert canaries_in([one], one.text.encode()) and canaries_in([one], one.hidden.encode().hex().encode())
        assert not canaries_in([one], b"nothing here")
    assert len(CANARY_KINDS) == 20
