"""The runtime keeps its promises in whatever order its callbacks run (P11).

The control of the engine asks whether a cancel lies below and appends Dispatched a turn later; that of the workload
looks whether a piece is there and sells it a turn later. Schedules find both. One schedule in asyncio's own order finds
neither; the second is found by none of fifty seeds in that order, the first where the cancel comes at the very moment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from poimen.testing import schedule_sweep, simulate

if TYPE_CHECKING:
    from tests.conftest import Figures, Scale

PROGRAMS = "tests.schedules.programs"
MIXED = f"{PROGRAMS}:mixed"
ROOT = Path(__file__).parents[2]
FIXED = 2
"""A schedule with a cancel; in the order of asyncio it does not strike between check and append."""

ALL_OF_IT = {
    "ended SUCCEEDED",
    "ended FAILED",
    "ended CANCELLED",
    "classified never_sent",
    "classified may_have_been_sent",
    "probe landed",
    "probe absent",
    "probe unknown",
    "landed by probe",
    "landed by ann",
    "not_landed by ann",
    "a further send",
    "resumed: recovered",
    "resumed: woken",
    "cancelled",
    "a late outcome",
    "Indeterminate",
    "a timer fired",
}


def again(*words: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own, whose strings hash as `seed` says."""
    command = [sys.executable, "-m", "poimen.testing.schedules", *words]
    env = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("half", [0, 1])
def test_nothing_is_wrong_in_any_schedule(half: int, scale: Scale, figures: Figures) -> None:
    count = scale(2_500, 50_000)
    swept = schedule_sweep(MIXED, seeds=range(half * count, (half + 1) * count))
    swept.assert_clean()
    assert swept.schedules == count
    assert swept.different > count * 0.8
    assert swept.replays > count
    assert set(swept.met) >= ALL_OF_IT, ALL_OF_IT - set(swept.met)
    figures(f"P11 schedules, part {half}: {swept}")


def test_a_check_and_an_act_a_turn_later_are_found_in_the_engine(figures: Figures) -> None:
    found = again(MIXED, "--seeds", "300", "--sabotage", "checked_then_acted")
    assert found.returncode == 1, found.stdout + found.stderr
    assert "dispatched, and a cancel stands below it" in found.stdout
    fixed = again(MIXED, "--seed", str(FIXED), "--order", "asyncio", "--sabotage", "checked_then_acted")
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert "cancel.requested.v1" in fixed.stdout
    assert "intent.dispatched.v1" in fixed.stdout
    figures(f"P11 control: {found.stdout.splitlines()[0]}")


def test_a_check_and_an_act_a_turn_later_are_found_in_a_tool() -> None:
    shop, check = f"{PROGRAMS}:shop", f"{PROGRAMS}:oversold"
    swept = schedule_sweep(shop, seeds=1000, check=check, most=1)
    assert [fault.what[0][:8] for fault in swept.faults] == ["oversold"]
    assert swept.faults[0].command in str(swept.faults[0])
    schedule_sweep(shop, seeds=50, check=check, order="asyncio").assert_clean()
    _, _, words = swept.faults[0].command.partition("schedules ")
    told = again(*words.split())
    assert told.returncode == 1, told.stderr
    assert swept.faults[0].what[0] in told.stdout


def test_one_seed_is_one_schedule_in_each_process() -> None:
    seeds = range(40)
    here = [simulate(MIXED, seed=seed).digest() for seed in seeds]
    assert len(set(here)) == len(seeds)
    code = (
        "from poimen.testing import simulate\n"
        f"for seed in range({len(seeds)}): print(simulate({MIXED!r}, seed=seed).digest())"
    )
    for hashes in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hashes}
        told = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True
        )
        assert told.stdout.split() == here
