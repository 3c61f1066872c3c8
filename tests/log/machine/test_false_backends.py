"""The controls: a backend that breaks a promise is caught by the suite, by the machine, or by both."""

from __future__ import annotations

import inspect
import logging
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from poimen.kernel.errors import NotFound
from poimen.testing.false_stores import FALSE_STORES, falsified
from tests.log.machine.machine import Machine
from tests.log.stores import WORLDS, FalseWorld, World, moved_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Figures

SUITE: Final = sorted(path.stem for path in (Path(__file__).parents[1] / "conformance").glob("test_*.py"))
NOT_FOR: Final = {("unknown_acknowledged", "memory"), ("backup_differs", "memory")}
"""Memory fails no commit and makes no copy: there is nothing to break."""
CASES: Final = [(control, kind) for control in FALSE_STORES for kind in WORLDS if (control, kind) not in NOT_FOR]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def promises() -> dict[str, Callable[..., Any]]:
    """Every test of the suite: a function of a store, of a world, of a world and its time."""
    modules = [import_module(f"tests.log.conformance.{name}") for name in SUITE]
    found = {name: call for each in modules for name, call in vars(each).items() if name.startswith("test_")}
    assert all({*inspect.signature(call).parameters} <= {"store", "world", "time"} for call in found.values())
    return found


def broken(world: World, promise: Callable[..., Any]) -> bool:
    """Whether a log does not keep a promise."""
    wanted = inspect.signature(promise).parameters
    with moved_clock() as time:
        given: dict[str, Any] = {"world": world, "time": time}
        if "store" in wanted:
            given["store"] = world.open()
        try:
            promise(**{name: value for name, value in given.items() if name in wanted})
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 (a false backend may end in any way but well)
            return True
        finally:
            if "store" in given:
                given["store"].close()
    return False


def broken_promises(kind: str, control: str, folder: Path) -> list[str]:
    found = []
    for name, promise in promises().items():
        world = WORLDS[kind](folder / name)
        if broken(FalseWorld(world, control), promise):
            found.append(name)
    return found


@contextmanager
def false_machine(kind: str, control: str) -> Iterator[type[Machine]]:
    class FalseMachine(Machine):
        @classmethod
        def worlds_of(cls, folder: Path) -> list[World]:
            world = WORLDS[kind](folder / kind, layered=True)
            return [FalseWorld(world, control)]

    kept = Machine.counts.copy()
    try:
        yield FalseMachine
    finally:
        Machine.counts.clear()
        Machine.counts.update(kept)


def caught_by_the_machine(kind: str, control: str, *, examples: int = 150) -> bool:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=50,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with false_machine(kind, control) as machine:
        try:
            run_state_machine_as_test(machine, settings=chosen)
        except Exception:  # noqa: BLE001 (a false backend may end in any way but well)
            return True
    return False


@pytest.mark.parametrize("kind", WORLDS)
def test_a_true_backend_breaks_no_promise(kind: str, tmp_path: Path) -> None:
    """What stands before a store breaks nothing by standing there."""
    assert broken_promises(kind, "", tmp_path) == []


@pytest.mark.parametrize(("control", "kind"), CASES)
def test_the_suite_catches_a_false_backend(control: str, kind: str, tmp_path: Path, figures: Figures) -> None:
    found = broken_promises(kind, control, tmp_path)
    figures(f"P14 control {control}, {kind}: {len(found)} of {len(promises())} promises broken")
    assert found


@pytest.mark.parametrize("control", FALSE_STORES)
def test_the_machine_catches_a_false_backend(control: str) -> None:
    assert caught_by_the_machine("sqlite" if (control, "memory") in NOT_FOR else "memory", control)


@pytest.mark.parametrize("kind", WORLDS)
def test_the_machine_passes_each_backend_alone(kind: str) -> None:
    assert not caught_by_the_machine(kind, "", examples=10)


def test_there_is_no_such_control() -> None:
    with pytest.raises(NotFound, match="there is no control 'kind'"):
        falsified(WORLDS["memory"](Path()).open(), "kind")
