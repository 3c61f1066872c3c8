"""Backends and a plain model, driven together by chance: every answer, error, feed and read is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.log.machine.machine import Machine
from tests.log.stores import WORLDS

if TYPE_CHECKING:
    from tests.conftest import Figures, Scale


def test_backends_and_model_say_the_same(scale: Scale, figures: Figures) -> None:
    Machine.counts.clear()
    run_state_machine_as_test(Machine, settings=settings(max_examples=scale(120, 5_000), stateful_step_count=50))
    counts = dict(sorted(Machine.counts.items()))
    figures(f"P14 {', '.join(WORLDS)} and a model: {counts.pop('operations'):,} operations, {counts}")
    assert counts["commits that failed, gone"]
    assert counts["commits that failed, found"]
    assert counts["backups"]
    assert {"answered Committed", "answered Fenced", "answered Conflict", "answered RunExists"} <= counts.keys()
