"""No tool is entered before the sync of its Dispatched has returned (P6; I1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.test_syncs import waves

if TYPE_CHECKING:
    from pathlib import Path

    from poimen.testing import ForkServer
    from tests.conftest import Scale

SHAPES = ([100, 1], [900, 8], [5_000, 64], [4_000, 250])
"""Effects, and how many of them at once: 10,000 in all."""


def test_no_tool_is_entered_before_its_dispatched_is_durable(server: ForkServer, tmp_path: Path, scale: Scale) -> None:
    for turn in range(scale(1, 10)):
        told = waves(server, tmp_path / f"db{turn}", *SHAPES)
        assert told["early"] == []
        assert told["shared"] == []
        assert told["entered"] == 10_000


@pytest.mark.parametrize(("shape", "early"), [([10, 1], 10), ([128, 64], 128)])
def test_a_call_that_was_moved_up_is_caught(server: ForkServer, tmp_path: Path, shape: list[int], early: int) -> None:
    told = waves(server, tmp_path / "db", shape, sabotage="moved_up")
    assert len(told["early"]) == told["entered"] == early
    assert "whose Dispatched was not durable" in told["early"][0]
