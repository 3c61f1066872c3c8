"""The same seen from outside: an unmodified child under strace, whose bodies lie in files of their own (P4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from poimen.testing import power_sweep

if TYPE_CHECKING:
    from pathlib import Path

    from poimen.testing import PowerReport
    from tests.conftest import Figures, Scale, Seeds

pytestmark = pytest.mark.harness("P4")


def swept(folder: Path, states: int, rounds: int, **more: object) -> PowerReport:
    given: dict[str, object] = {"recoveries": 0, "traced": True, **more}
    return power_sweep("tests.power.programs:large_bodies", folder=folder, args=(rounds,), states=states, **given)  # type: ignore[arg-type]


@pytest.mark.timeout(3600)
def test_whatever_a_power_cut_leaves_every_body_that_a_record_names_is_there(
    tmp_path: Path, scale: Scale, seeds: Seeds, figures: Figures
) -> None:
    states = scale(5_000, 50_000)
    report = swept(tmp_path, states + states // 50, scale(5, 12), seed=next(seeds()))
    figures(f"P4 system calls: {report}", asked=states, reached=report.states, unit="states", lost=len(report.losses))
    assert [str(loss) for loss in report.losses] == []
    assert report.states >= states
    assert report.answers >= scale(5, 12), "no code was given an outcome, so nothing was acknowledged"
    assert report.contents > 20


def test_a_folder_whose_names_are_not_synced_is_caught(tmp_path: Path, figures: Figures) -> None:
    report = swept(tmp_path, 600, 4, sabotage="no_folder_sync", most=50)
    dangling = sum("names a body that is not there" in loss.what for loss in report.losses)
    figures(
        f"P4 control no_folder_sync: {report.states} states, {dangling} dangling",
        control="no_folder_sync",
        caught=dangling,
    )
    assert dangling > 5
    assert dangling == len(report.losses)
