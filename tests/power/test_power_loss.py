"""The power goes at any moment, with any part of what was not synced: nothing acknowledged is lost (P3).

A process records what it does to its files; each state that a cut could have left is opened as a restart opens it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from poimen.testing import Cut, power_sweep

if TYPE_CHECKING:
    from pathlib import Path

    from poimen.testing import ForkServer, PowerReport
    from tests.conftest import Figures, Scale, Seeds

PARTS = 8
STATES = (20_000, 240_000)
"""By day and by night, in all parts together."""
STANDARD = "tests.power.programs:standard"

pytestmark = pytest.mark.harness("P3")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_a_power_cut_leaves_every_acknowledgement_is_there(
    server: ForkServer, tmp_path: Path, part: int, scale: Scale, seeds: Seeds, figures: Figures
) -> None:
    states = scale(*STATES) // PARTS
    report = power_sweep(
        STANDARD,
        folder=tmp_path,
        args=(scale(3, 6),),
        states=states + states // 50,  # some moments have fewer different states than were asked for
        recoveries=scale(3, 20),
        seed=next(seeds()) * PARTS + part,
        server=server,
    )
    figures(
        f"P3 power loss, part {part + 1} of {PARTS}: {report}",
        asked=states,
        reached=report.states,
        unit="states",
        lost=len(report.losses),
    )
    assert [str(loss) for loss in report.losses] == []
    assert report.states >= states
    assert report.recoveries == scale(3, 20)
    assert report.acknowledged > 100
    assert report.effects > 20
    assert report.answers > 3
    assert report.contents > 50, "hardly a state differs from the others in what it has lost"


def broken(server: ForkServer, folder: Path, control: str) -> PowerReport:
    return power_sweep(
        STANDARD, folder=folder, args=(2,), states=1500, recoveries=0, sabotage=control, most=400, server=server
    )


@pytest.mark.parametrize("control", ["normal_sync", "lying_sync"])
def test_commits_that_are_not_synced_are_caught(
    server: ForkServer, tmp_path: Path, control: str, figures: Figures
) -> None:
    report = broken(server, tmp_path, control)
    said = [loss.what for loss in report.losses]
    lost = sum("I2: " in what and "acknowledged records are gone" in what for what in said)
    unknown = sum("I1: the witness saw" in what for what in said)
    figures(
        f"P3 control {control}: {report.states} states, {lost} lose records, {unknown} effects without Dispatched",
        control=control,
        caught=min(lost, unknown),
    )
    assert lost > 10
    assert unknown > 10


def test_a_loss_names_a_state_that_can_be_made_again(server: ForkServer, tmp_path: Path) -> None:
    report = broken(server, tmp_path, "lying_sync")
    cut = next(loss.cut for loss in report.losses if loss.cut is not None)
    assert isinstance(cut, Cut)
    for name in ("one", "two"):
        cut.lay_out(tmp_path / name)
    one, two = (
        {
            path.relative_to(tmp_path / name): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }
        for name in ("one", "two")
    )
    assert one == two
    assert one
