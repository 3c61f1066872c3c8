"""What every test stands on: an environment without settings of this machine, and the numbers of a day or a night."""

from __future__ import annotations

import os
import signal
from typing import Protocol

import pytest
from hypothesis import settings

settings.register_profile("day", deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile("night", deadline=None, max_examples=5_000, database=None, print_blob=True)


class Scale(Protocol):
    """How often a test repeats itself."""

    def __call__(self, day: int, night: int) -> int:
        """`day` for every change, `night` with `--nightly`."""
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="the numbers of a night, and the tests that need one")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("night" if config.getoption("--nightly") else "day")
    for name in [name for name in os.environ if name.startswith("POIMEN_")]:
        del os.environ[name]  # a database or an actor set in the shell must not reach a test
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background, also by children


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--nightly"):
        return
    nightly = [item for item in items if item.get_closest_marker("nightly")]
    if nightly:
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if item not in nightly]


@pytest.fixture(scope="session")
def scale(pytestconfig: pytest.Config) -> Scale:
    """`scale(20, 1_000)`: 20 for every change, 1,000 with `--nightly`."""
    nightly: bool = pytestconfig.getoption("--nightly")
    return lambda day, night: night if nightly else day
