"""A disk of 2 MiB that is really full: the run stops where it stands, tells why, and ends when there is room (P7)."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from poimen.testing import Witness, child_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Figures, Scale

ROUNDS = 6
DISK_KIB = 2048

pytestmark = pytest.mark.harness("P7")


def alone_with_a_disk(disk: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script that sees a small disk at a place where nobody else sees one."""
    mount = f"mount -t tmpfs -o size={DISK_KIB}k,mode=700 tmpfs {shlex.quote(str(disk))}"
    unshared = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]
    try:
        tried = subprocess.run([*unshared, "sh", "-c", mount], check=False, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        pytest.fail("a small disk needs the command unshare")
    if tried.returncode:
        pytest.fail(f"a small disk needs the right to mount: run as root, or allow user namespaces\n{tried.stderr}")
    return subprocess.run(
        [*unshared, "sh", "-ec", f"{mount}\n{script}"], check=False, capture_output=True, text=True, timeout=120
    )


def filled_and_freed(folder: Path, filler_kib: int) -> tuple[list[dict[str, Any]], Witness, Witness]:
    """Run until the disk is full, make room, run again: what both have told, the witness, what code was given."""
    disk, witness, results = folder / "disk", folder / "witness", folder / "results"
    disk.mkdir(parents=True)
    env = {"POIMEN_WITNESS": str(witness), "POIMEN_RESULTS": str(results), "TOLD": str(folder / "told")}
    first, second = (
        shlex.join(child_command(f"tests.power.programs:{name}", args=(str(disk / "poimen.db"), ROUNDS), env=env))
        for name in ("until_full", "with_room")
    )
    filler = shlex.quote(str(disk / "filler"))
    done = alone_with_a_disk(disk, f"head -c {filler_kib}K /dev/zero > {filler}\n{first}\nrm {filler}\n{second}")
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in (folder / "told").read_text().splitlines()]
    return told, Witness(witness), Witness(results)


def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path: Path, scale: Scale, figures: Figures) -> None:
    errors: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    sizes = range(1100, 2000, 900 // scale(10, 60))
    for filler_kib in sizes:
        (full, after), witness, results = filled_and_freed(tmp_path / str(filler_kib), filler_kib)
        errors[full["error"]] += 1
        ends[after["ended"]] += 1
        assert full["error"] in {"", "StorageFailed", "CommitUnknown"}, full
        assert after["damages"] == []
        assert after["ended"] in {str(ROUNDS), "waiting"}
        assert set(results.lines()) <= set(after["closed"])
        seen = Counter(line.split()[0] for line in witness.lines())
        assert seen <= Counter(after["sent"]), "an effect of which the log knows nothing"
        mails = Counter(line.split()[0] for line in witness.lines() if " after " in line)
        assert max(mails.values(), default=0) <= 1, "an effect that nobody may repeat was repeated"
    figures(
        f"P7 full disk: {len(sizes)} times, ended with {dict(errors)}, then {dict(ends)}",
        reached=len(sizes),
        unit="faults",
    )
    assert errors["StorageFailed"] + errors["CommitUnknown"] > 2
