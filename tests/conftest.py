"""What every test stands on: an environment without settings of this machine, the numbers of a day or a night, seeds.

What harnesses tell by `figures` stands at the end of what pytest prints, and with `--report FOLDER` in a report.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import core, settings

from tools.nightly.collecting import Collecting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

settings.register_profile("day", deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile("night", deadline=None, max_examples=5_000, database=None, print_blob=True)


class Scale(Protocol):
    """How often a test repeats itself."""

    def __call__(self, day: int, night: int) -> int:
        """`day` for every change, `night` with `--nightly`."""
        ...


class Figures(Protocol):
    """What a harness has reached, in the summary at the end of the tests."""

    def __call__(self, text: str, **numbers: int | str) -> None:
        """One line, such as `P2: 1,000 kills, 0 lost`, and what of it the report adds up.

        `asked` and `reached` of a `unit`, `lost`, `misclassified`, `against_class`; or `control`, its name, and
        `caught`, how often it was seen: at 0 the session fails.
        """
        ...


class Seeds(Protocol):
    """Where everything random in a test begins."""

    def __call__(self, stop: int = 1, *, start: int = 0, step: int = 1) -> Iterator[int]:
        """Of the seeds from `--seed` on those that `range(start, stop, step)` counts.

        The report names the last one that was given out, so ask for the next one when you begin with it.
        """
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="the numbers of a night, and the tests that need one")
    parser.addoption("--factor", type=float, default=1.0, help="so much of the numbers of a night (0.4, 2)")
    parser.addoption("--seed", type=int, help="where random tests begin: 0, at night anywhere")
    parser.addoption("--minutes", type=float, default=0.0, help="of the soak: 1/3, at night 30")
    parser.addoption("--report", type=Path, help="the folder that takes report.json and report.md")


def pytest_configure(config: pytest.Config) -> None:
    nightly: bool = config.getoption("--nightly")
    settings.load_profile("night" if nightly else "day")
    given: dict[str, int] = getattr(config, "workerinput", {})  # of a process of xdist
    if config.option.seed is None:
        config.option.seed = given["seed"] if given else int.from_bytes(os.urandom(3)) if nightly else 0
    if nightly:
        core.global_force_seed = config.option.seed  # as --hypothesis-seed; a day's examples are always the same
    folder: Path | None = config.option.report
    if folder is not None and not hasattr(config, "workerinput"):
        options = [f"--factor {config.option.factor:g}"] if config.option.factor != 1 else []
        options += [f"--minutes {config.option.minutes:g}"] if config.option.minutes else []
        collecting = Collecting(folder.resolve(), nightly=nightly, seed=config.option.seed, options=tuple(options))
        config.pluginmanager.register(collecting, "poimen-report")
    for name in [name for name in os.environ if name.startswith("POIMEN_")]:
        del os.environ[name]  # a database or an actor set in the shell must not reach a test
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background, also by children


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a process of xdist the seed that was drawn here."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if harness := item.get_closest_marker("harness"):
            item.user_properties.append(("harness", harness.args[0]))
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


def pytest_report_header(config: pytest.Config) -> str:
    return f"random tests begin with --seed {config.option.seed}"


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Figures:
    """`figures("P2: 1,000 kills", reached=1_000)`: a line at the end of what pytest prints, and in the report."""

    def tell(text: str, **numbers: int | str) -> None:
        record_property("figures", text)
        record_property("told", {"text": text, **numbers})

    return tell


@pytest.fixture(scope="session")
def scale(pytestconfig: pytest.Config) -> Scale:
    """`scale(20, 1_000)`: 20 for every change, 1,000 with `--nightly`, 400 with `--nightly --factor 0.4`."""
    nightly: bool = pytestconfig.getoption("--nightly")
    factor: float = pytestconfig.getoption("--factor")
    return lambda day, night: max(min(day, night), round(night * factor)) if nightly else day


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> Seeds:
    """`for seed in seeds(scale(1, 50))`: consecutive ones from `--seed` on."""
    base: int = request.config.getoption("--seed")
    known = request.node.user_properties

    def given(stop: int = 1, *, start: int = 0, step: int = 1) -> Iterator[int]:
        for n in range(start, stop, step):
            known[:] = [one for one in known if one[0] != "seed"]
            known.append(("seed", base + n - start))  # with this --seed, n's is the first one
            yield base + n

    return given
