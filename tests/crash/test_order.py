"""No tool is entered before the sync of its Dispatched has returned (P6; I1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.test_syncs import waves

if TYPE_CHECKING:
    from pathlib import Path

    from poimen.testing import ForkServer
    from tests.conftest import Figures, Scale

SHAPES = ([100, 1], [900, 8], [5_000, 64], [4_000, 250])
"""Effects, and how many of them at once: 10,000 in all."""

pytestmark = pytest.mark.harness("P6")


def test_no_tool_is_entered_before_its_dispatched_is_durable(
    server: ForkServer, tmp_path: Path, scale: Scale, figures: Figures
) -> None:
    turns, entered, early = scale(1, 10), 0, 0
    for turn in range(turns):
        told = waves(server, tmp_path / f"db{turn}", *SHAPES)
        entered, early = entered + told["entered"], early + len(told["early"])
        assert told["early"] == []
        assert told["shared"] == []
        assert told["entered"] == 10_000
    figures(
        f"P6 order: {entered:,} effects, {early} entered before their Dispatched was durable",
        asked=10_000 * turns,
        reached=entered,
        unit="effects",
    )


@pytest.mark.parametrize(("shape", "early"), [([10, 1], 10), ([128, 64], 128)])
def test_a_call_that_was_moved_up_is_caught(
    server: ForkServer, tmp_path: Path, shape: list[int], early: int, figures: Figures
) -> None:
    told = waves(server, tmp_path / "db", shape, sabotage="moved_up")
    caught = len(told["early"])
    figures(f"P6 control moved_up, {shape[1]} at once: {caught} entered early", control="moved_up", caught=caught)
    assert len(told["early"]) == told["entered"] == early
    assert "whose Dispatched was not durable" in told["early"][0]
