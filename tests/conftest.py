"""What every test stands on: an environment without settings of this machine, and the numbers of a day or a night."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable

settings.register_profile("day", deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile("night", deadline=None, max_examples=5_000, database=None, print_blob=True)


class Scale(Protocol):
    """How often a test repeats itself."""

    def __call__(self, day: int, night: int) -> int:
        """`day` for every change, `night` with `--nightly`."""
        ...


class Figures(Protocol):
    """What a harness has reached, in the summary at the end of the tests."""

    def __call__(self, text: str) -> None:
        """One line, such as `P2: 1,000 kills, 0 lost`."""
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [one for several in terminalreporter.stats.values() for one in several if hasattr(one, "user_properties")]
    told = sorted({str(text) for one in reports for name, text in one.user_properties if name == "figures"})
    if told:
        terminalreporter.section("figures")
        for text in told:
            terminalreporter.line(text)


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Figures:
    """`figures("P2: 1,000 kills")`: a line that stands at the end of what pytest prints."""
    return lambda text: record_property("figures", text)


@pytest.fixture(scope="session")
def scale(pytestconfig: pytest.Config) -> Scale:
    """`scale(20, 1_000)`: 20 for every change, 1,000 with `--nightly`."""
    nightly: bool = pytestconfig.getoption("--nightly")
    return lambda day, night: night if nightly else day
