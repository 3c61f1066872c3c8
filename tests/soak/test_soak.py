"""A soak: mixed load, a worker killed every two seconds; nothing is lost, and nothing grows (at night for long).

Three controls: a line taken from the witness, a worker that keeps every record, a poimen that sends again what it must
not.
"""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.soak.driving import KILL_EACH_S, soak
from tests.soak.judging import judged

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Figures, Seeds
    from tests.soak.driving import Soaked

pytestmark = [pytest.mark.harness("soak"), pytest.mark.xdist_group("soak"), pytest.mark.timeout(7200)]

DAY_S, NIGHT_S, CONTROL_S = 20.0, 1800.0, 16.0


@pytest.fixture(scope="module")
def soaked(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Soaked:
    seconds = 60 * pytestconfig.getoption("--minutes") or (NIGHT_S if pytestconfig.getoption("--nightly") else DAY_S)
    return soak(tmp_path_factory.mktemp("soak"), seconds=seconds, seed=pytestconfig.getoption("--seed"))


def test_nothing_is_lost_or_stranded_and_nothing_grows(soaked: Soaked, seeds: Seeds, figures: Figures) -> None:
    next(seeds())
    verdict = judged(soaked)
    told = ", ".join(f"{n:,} {what}" for what, n in verdict.figures.items() if isinstance(n, int))
    figures(
        f"soak: {soaked.seconds:g} s, {told}; {len(verdict.wrong)} faults",
        asked=math.floor(soaked.seconds / KILL_EACH_S / 3),  # a slow machine starts its workers slowly
        reached=soaked.kills,
        unit="kills",
        lost=verdict.count("lost") + verdict.count("stranded"),
        misclassified=verdict.count("misclassified"),
        against_class=verdict.count("against_class"),
    )
    for line in verdict.lines:
        figures(f"soak: {line.what}: {line.said}")
    assert verdict.wrong == [], verdict.table()
    assert verdict.figures["effects"] > 100
    assert verdict.figures["classified"] > 0
    assert verdict.figures["cancelled"] > 0
    assert json.loads(json.dumps(verdict.plain()))["ok"]
    assert verdict.table().count("\n") == len(verdict.lines) - 1


@pytest.mark.parametrize("which", ["mailed", "deposit", "told decision"])
def test_a_line_that_is_taken_from_the_witness_or_put_there_is_missed(
    soaked: Soaked, tmp_path: Path, which: str, figures: Figures
) -> None:
    lines = soaked.witness.lines()
    taken = next(n for n, line in enumerate(lines) if which in line and not line.split()[-1].endswith("x"))
    kept = soaked.witness.path.read_bytes()
    copy = tmp_path / "witness"
    shutil.copyfile(soaked.witness.path, copy)
    try:
        if which == "told decision":
            lines.append(lines[taken].replace("decision plan", "decision never"))
        else:
            del lines[taken]
        soaked.witness.path.write_text("\n".join(lines) + "\n")
        caught = judged(soaked).count("lost")
    finally:
        soaked.witness.path.write_bytes(kept)
    name = "a line too many" if which == "told decision" else "a line removed"
    figures(f"soak control {name} ({which}): {caught} lost", control=name, caught=caught)
    assert caught == 1


def test_workers_that_keep_records_and_send_again_are_caught(tmp_path: Path, seeds: Seeds, figures: Figures) -> None:
    seed = next(seeds())
    verdict = judged(soak(tmp_path, seconds=CONTROL_S, seed=seed, controls=["keeps_records", "sent_again"]))
    leaks = sum(what.startswith("memory of the old worker") for what in verdict.wrong)
    again = verdict.count("against_class")
    rise = verdict.figures["memory of the old worker, MiB"]
    figures(f"soak control keeps_records: memory rises by {rise}", control="keeps_records", caught=leaks)
    figures(f"soak control sent_again: {again} against class", control="sent_again", caught=again)
    assert leaks, verdict.table()
    assert again, verdict.table()
