"""The pytest plugin that writes the report: it hears of every test, also of those that other processes ran.

This module must never change what a test says; it keeps the invariant that a session whose tests have passed, and whose
report says otherwise (a control passed, a harness fell short), ends with a code that is not 0.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw
import pytest

from poimen import clock
from tools.nightly import page
from tools.nightly.report import Entry, Report

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).resolve().parents[2]
_HARNESS: Final = re.compile(r"(P\d+|S\d+|secrets|soak)\b")
_LONGEST: Final = 400
_PATHS: Final = re.compile(r"/(?:[\w.@+-]+/)+")


@dataclass(kw_only=True)
class _Heard:
    """What the phases of one test have said."""

    passed: bool = True
    seconds: float = 0.0
    why: str = ""
    properties: list[tuple[str, Any]] = field(default_factory=list)


class Collecting:
    """Hears of the tests of a session and writes the report at its end.

    Arguments:
        folder: of the report.
        nightly: whether the numbers are those of a night.
        seed: with which the session began.
        options: that a test needs beside its seed to run as it ran here.
    """

    def __init__(self, folder: Path, *, nightly: bool, seed: int, options: tuple[str, ...]) -> None:
        self._folder = folder
        self._nightly = nightly
        self._seed = seed
        self._options = options
        self._heard: dict[str, _Heard] = defaultdict(_Heard)
        self._begun = clock.monotonic()
        self._report: Report | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hear one phase of a test."""
        heard = self._heard[report.nodeid]
        heard.seconds += report.duration
        heard.properties = [(str(name), value) for name, value in report.user_properties]
        if report.failed:
            heard.passed, heard.why = False, heard.why or why(report.longreprtext)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Hear of a file that could not be loaded."""
        if report.failed:
            heard = self._heard[report.nodeid]
            heard.passed, heard.why = False, why(report.longreprtext)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the report, with the portions that lie there already."""
        entries = list(self._entries())
        commit, tree = state_of(ROOT)
        mine = Report(
            commit=commit,
            tree=tree,
            numbers="night" if self._nightly else "day",
            machine=machine(),
            entries=entries,
            portions=[
                {
                    "at": datetime.fromtimestamp(clock.wall_us() / clock.US, UTC).isoformat(timespec="seconds"),
                    "seed": self._seed,
                    "options": list(self._options),
                    "tests": len(self._heard),
                    "failed": sum(not heard.passed for heard in self._heard.values()),
                    "seconds": round(clock.monotonic() - self._begun, 1),
                }
            ],
        )
        self._report = mine.merged(page.load(self._folder))
        page.save(self._report, self._folder)
        if any(row.bad for row in mine.rows()) and session.exitstatus in {0, pytest.ExitCode.OK}:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the report is, and what is wrong in it."""
        if self._report is None:
            return
        terminalreporter.section(f"report: {self._report.verdict}")
        for row in self._report.rows():
            if row.verdict != "ok":
                terminalreporter.line(f"{row.harness}: {row.verdict}")
        for finding in self._report.findings():
            terminalreporter.line(finding["command"])
        terminalreporter.line(f"{os.path.relpath(self._folder / 'report.md')}")

    def _entries(self) -> Iterable[Entry]:
        harnesses = {test: _harness(heard.properties) for test, heard in self._heard.items()}
        of_file: dict[str, set[str]] = defaultdict(set)
        for test, name in harnesses.items():
            of_file[test.partition("::")[0]] |= {name} - {""}
        for test, heard in self._heard.items():
            harness, others = harnesses[test], of_file[test.partition("::")[0]]
            if not harness and heard.passed:
                continue
            if not harness and len(others) == 1:
                harness = min(others)  # it has failed before it could tell anything, beside others that have
            given = {} if heard.passed else dict(heard.properties)
            yield Entry(
                test=test,
                harness=harness,
                seed=int(given.get("seed", self._seed)),
                passed=heard.passed,
                seconds=round(heard.seconds, 2),
                figures=tuple(value for name, value in heard.properties if name == "told"),
                why=heard.why,
                options=self._options,
            )


def _harness(properties: list[tuple[str, Any]]) -> str:
    for name, value in properties:
        if name == "harness":
            return str(value)
    for name, value in properties:
        if name == "figures" and (found := _HARNESS.match(str(value))):
            return found[1]
    return ""


def why(text: str) -> str:
    """The reason of a failure in one line, without folders of this machine.

    Arguments:
        text: what pytest prints of it.
    """
    said = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")] or text.splitlines()[-1:]
    line = " ".join(said[:3]).replace(f"{ROOT}/", "").replace(tempfile.gettempdir(), "tmp")
    return _PATHS.sub("…/", line)[:_LONGEST]


def machine() -> dict[str, str]:
    """What it runs on, without a name."""
    kernel = ".".join(platform.release().split("-")[0].split(".")[:2])
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "system": f"{platform.system()} {kernel}",
        "processor": platform.machine(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "Python": platform.python_version(),
        "SQLite": apsw.sqlite_lib_version(),
    }


def state_of(root: Path) -> tuple[str, str]:
    """The commit of a tree, and a digest of what differs from it: empty when nothing does.

    Arguments:
        root: of the repository; both are empty where it is none.
    """

    def git(*args: str) -> bytes:
        return subprocess.run(["git", *args], cwd=root, check=True, capture_output=True).stdout  # noqa: S603, S607 (ours)

    try:
        commit = git("rev-parse", "HEAD").decode().strip()
        changed = git("diff", "HEAD", "--binary")
        others = git("ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
    except (OSError, subprocess.CalledProcessError):
        return "", ""
    if not changed and others == [b""]:
        return commit, ""
    digest = hashlib.sha256(changed)
    for name in filter(None, others):
        path = root / os.fsdecode(name)
        digest.update(name + b"\0" + (path.read_bytes() if path.is_file() else b""))
    return commit, digest.hexdigest()
