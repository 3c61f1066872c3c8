"""Every state of a small model of the protocol keeps its promises, and the real kernel agrees with it (P10)."""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING

import pytest

from poimen.testing.model import invariants, moves, rules, state
from poimen.testing.model.explorer import explore
from poimen.testing.model.replaying import differences
from poimen.testing.model.searching import CLASSES, CONTROLS, search, sought
from poimen.testing.model.state import Setup
from poimen.testing.model.walking import walk

if TYPE_CHECKING:
    from poimen.testing.model.state import Control
    from tests.conftest import Figures, Scale, Seeds

LEAST_STATES = 100_000
LEAST_TRACES = 500

pytestmark = pytest.mark.harness("P10")


def every_move() -> set[str]:
    """The names of the moves, as the source has them."""
    return set(re.findall(r'Move\([^,()]+(?:\.epoch)?, "(\w+)"', inspect.getsource(moves)))


def test_no_promise_is_broken_in_any_state_and_the_kernel_agrees(scale: Scale, seeds: Seeds, figures: Figures) -> None:
    found = search(limit=scale(60_000, 1_000_000), walks=scale(200, 5_000), seed=next(seeds()))
    figures(
        found.told(),
        asked=LEAST_STATES,
        reached=found.states,
        unit="states",
        misclassified=len(found.broken) + len(found.differing),
    )
    assert (found.broken, found.differing) == ((), ())
    assert found.states >= LEAST_STATES
    assert found.traces >= LEAST_TRACES
    assert found.kinds == every_move() - {"look"}  # only a driver without a fence finds an attempt ended by another one


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_gives_a_readable_counterexample(control: Control, figures: Figures) -> None:
    found = sought(control)
    told = found.told()
    moves_made = len(found.counterexample)
    figures(
        f"P10 control {control}: {found.broken}, in {moves_made} moves", control=control, caught=int(bool(found.broken))
    )
    assert found.broken
    assert found.counterexample
    assert told.count("\n") == len(found.counterexample) + 1
    assert found.broken in told


def test_without_a_fence_the_kernel_is_no_longer_that_of_the_model() -> None:
    setup = Setup(effect_class="AT_MOST_ONCE", control="no_fence")
    told = [what for seed in range(60) for what in differences(setup, walk(setup, seed)[0])]
    assert any("epoch" in what or "append" in what for what in told), told[:3]


@pytest.mark.parametrize("effect_class", CLASSES)
def test_a_small_world_is_looked_at_whole(effect_class: state.Class) -> None:
    found = explore(Setup(effect_class=effect_class, horizon=2, epochs=1, attempts=1))
    assert (found.broken, found.whole) == ("", True)
    last = next(reversed(found.ways))
    assert found.way_to(last)[-1][1] == last


def test_one_seed_is_one_walk() -> None:
    setup = Setup(effect_class="PROBE")
    assert walk(setup, 1) == walk(setup, 1)
    assert walk(setup, 1) != walk(setup, 2)


@pytest.mark.parametrize("module", [state, rules, moves, invariants])
def test_the_model_knows_nothing_of_what_it_models(module: object) -> None:
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]
    named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    named += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    ours = [name for name in named if name.startswith("poimen")]
    assert [name for name in ours if not name.startswith("poimen.testing.model")] == []
