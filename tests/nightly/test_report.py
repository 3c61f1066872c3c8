"""A small session of tests in a child, and the report that it leaves: a failure, a control that passes, portions."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crash import test_anywhere as anywhere
from tests.power import test_power_loss as power_loss
from tools.nightly import page
from tools.nightly.collecting import machine, state_of, why
from tools.nightly.report import GOALS, Entry, Report, command

ROOT = Path(__file__).parents[2]

TESTS = """
import pytest

def test_holds(figures, seeds):
    figures("P2 small", asked=2, reached=3, unit="kills", lost=0)

@pytest.mark.parametrize("chunk", [0, 1])
def test_loops(seeds, chunk):
    for seed in seeds(20, start=chunk, step=2):
        assert seed != 107, "seven"

@pytest.mark.harness("P3")
def test_fails_before_it_tells_anything(figures):
    assert False, "in /some/folder/of/mine"

def test_its_control(figures):
    figures("P2 control upside_down", control="upside_down", caught=4)

def test_a_control_that_is_passed_over(figures):
    figures("P4 control unseen", control="unseen", caught=0)

def test_tells_the_control_is_there(figures):
    figures("P6 holds", reached=1)

def test_falls_short(figures):
    figures("P8 short", asked=5, reached=4)

def test_loses(figures):
    figures("P7 loses", asked=5, reached=5, lost=1)

def test_without_a_harness():
    pass
"""


def session(folder: Path, *args: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run the small tests; what pytest has said, and the report."""
    file = folder / "test_small.py"
    if not file.exists():
        file.write_text(TESTS)
    base = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "--rootdir", str(folder), "-p", "tests.conftest"]
    done = subprocess.run(
        [*base, "-p", "no:cacheprovider", "--report", str(folder / "report"), *(args or [str(file)])],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done, json.loads((folder / "report" / "report.json").read_text())


def rows(report: dict[str, Any]) -> dict[str, Any]:
    return {row["harness"]: row for row in report["harnesses"]}


def test_a_file_of_one_harness_lends_its_name_to_a_test_that_fails_early(tmp_path: Path) -> None:
    (tmp_path / "test_small.py").write_text(
        "def test_tells(figures):\n    figures('P11 5,000 seeds')\n\ndef test_fails():\n    assert False\n"
    )
    _, report = session(tmp_path, str(tmp_path / "test_small.py"))
    assert rows(report)["P11"]["verdict"] == "FAILED: 1 tests"
    assert rows(report)["P11"]["lines"] == ["P11 5,000 seeds"]


def small(folder: Path, test: str) -> str:
    return f"{folder / 'test_small.py'}::{test}"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], str]:
    folder = tmp_path_factory.mktemp("session")
    done, report = session(folder, str(folder / "test_small.py"), "--seed", "100", "-n", "2")
    assert done.returncode == 1
    return done.stdout, report, (folder / "report" / "report.md").read_text()


def test_a_row_has_the_numbers_of_its_harness(told: tuple[str, dict[str, Any], str]) -> None:
    row = rows(told[1])["P2"]
    assert (row["asked"], row["reached"], row["unit"], row["lost"]) == (2, 3, "kills", 0)
    assert row["controls"] == {"upside_down": 4}
    assert row["seeds"] == [100]
    assert row["lines"] == ["P2 control upside_down", "P2 small"]


def test_a_failing_harness_says_so_although_it_has_told_nothing(told: tuple[str, dict[str, Any], str]) -> None:
    out, report, text = told
    assert rows(report)["P3"]["verdict"] == "FAILED: 1 tests"
    assert report["verdict"] == "failed"
    assert "P3: FAILED: 1 tests" in out
    finding = next(one for one in report["findings"] if one["harness"] == "P3")
    assert "AssertionError: in …/mine" in finding["why"]
    assert "/some/folder" not in text
    assert "| P3 power loss | FAILED: 1 tests |" in text


def test_a_control_that_passes_is_an_error_although_its_test_has_passed(
    told: tuple[str, dict[str, Any], str], tmp_path: Path
) -> None:
    assert rows(told[1])["P4"]["verdict"] == "CONTROL PASSED: unseen"
    done, _ = session(tmp_path, small(tmp_path, "test_a_control_that_is_passed_over"))
    assert done.returncode == 1
    assert "1 passed" in done.stdout
    assert "P4: CONTROL PASSED: unseen" in done.stdout


@pytest.mark.parametrize(
    ("test", "verdict", "code"),
    [
        ("test_falls_short", "FELL SHORT: 4 of 5", 1),
        ("test_loses", "FAILED: 1 lost", 1),
        ("test_tells_the_control_is_there", "incomplete: no control was seen to fail", 0),
    ],
)
def test_a_test_that_passes_does_not_make_its_harness_whole(tmp_path: Path, test: str, verdict: str, code: int) -> None:
    (tmp_path / "test_small.py").write_text(TESTS)
    done, report = session(tmp_path, small(tmp_path, test))
    assert [row["verdict"] for row in report["harnesses"]] == [verdict]
    assert done.returncode == code


def test_a_finding_comes_again_at_once_by_its_command(told: tuple[str, dict[str, Any], str], tmp_path: Path) -> None:
    finding = next(one for one in told[1]["findings"] if "test_loops" in one["test"])
    assert finding["test"].endswith("test_loops[1]")
    assert "seven" in finding["why"]
    _, args = finding["command"].split(" ARGS=")
    test, seed, number = shlex.split(shlex.split(args)[0])
    assert (seed, number) == ("--seed", "106"), "with which the second chunk begins at 107"
    (tmp_path / "test_small.py").write_text(TESTS)
    done, again = session(tmp_path, small(tmp_path, test.partition("::")[2]), seed, number)
    assert done.returncode == 1
    assert [(one["seed"], one["why"]) for one in again["findings"]] == [(106, finding["why"])]


def test_processes_of_a_night_begin_with_the_same_seed(tmp_path: Path) -> None:
    (tmp_path / "test_small.py").write_text(
        "def test_one(figures, seeds):\n    seed = next(seeds())\n    figures(f'P2 {seed}')\n    assert not seed\n"
    )
    _, report = session(tmp_path, str(tmp_path / "test_small.py"), "--nightly", "-n", "1")
    (row,), (portion,) = report["harnesses"], report["portions"]
    assert row["seeds"] == [portion["seed"]]
    assert row["lines"] == [f"P2 {portion['seed']}"]
    assert portion["seed"] > 0
    assert report["findings"][0]["command"].startswith("make nightly ")


def test_portions_of_one_commit_are_one_report(tmp_path: Path) -> None:
    (tmp_path / "test_small.py").write_text(TESTS)
    _, report = session(tmp_path, small(tmp_path, "test_holds"))
    assert rows(report)["P2"]["verdict"] == "incomplete: no control was seen to fail"
    assert report["verdict"] == "incomplete: P2"
    done, report = session(tmp_path, small(tmp_path, "test_its_control"))
    assert done.returncode == 0
    assert rows(report)["P2"]["verdict"] == report["verdict"] == "ok"
    assert [portion["tests"] for portion in report["portions"]] == [1, 1]
    session(tmp_path, small(tmp_path, "test_loops"), "--seed", "100")
    _, report = session(tmp_path, small(tmp_path, "test_loops"), "--seed", "0")
    assert report["verdict"] == "failed", "what was found with one seed stays found when another one finds nothing"


def entry(**more: Any) -> Entry:
    given: dict[str, Any] = {"test": "t.py::a", "harness": "P2", "seed": 1, "passed": True, "seconds": 1.0}
    return Entry(**given | more)


def report(*entries: Entry, commit: str = "c", **more: Any) -> Report:
    return Report(commit=commit, tree="", numbers="night", machine={}, entries=list(entries), portions=[], **more)


CONTROL = entry(test="t.py::c", figures=({"text": "P2 control x", "control": "x", "caught": 1},))


def reached(n: int) -> Entry:
    return entry(figures=({"text": f"P2 {n}", "asked": 10, "reached": n},))


def test_other_commits_other_numbers_and_unknown_ones_are_not_mixed() -> None:
    one, two = report(reached(20)), report(CONTROL)
    assert len(two.merged(one).entries) == 2
    assert len(two.merged(report(reached(20), commit="other")).entries) == 1
    assert len(report(CONTROL, commit="").merged(report(reached(20), commit="")).entries) == 1
    assert len(two.merged(None).entries) == 1


def test_a_failure_goes_when_the_same_test_passes_with_the_same_seed() -> None:
    found = report(entry(passed=False, why="E"))
    assert found.findings()
    assert report(entry(seed=2)).merged(found).findings()
    assert not report(entry()).merged(found).findings()


def test_a_night_below_its_goal_is_incomplete() -> None:
    assert report(reached(GOALS["P2"] - 1), CONTROL).rows()[0].verdict.startswith("incomplete: 19,999 of 20,000")
    assert report(reached(GOALS["P2"]), CONTROL).rows()[0].verdict == "ok"
    assert report(reached(GOALS["P2"]), CONTROL).verdict == "incomplete: P3, soak"


def test_a_night_and_four_tenths_of_its_kills_reach_the_goals() -> None:
    assert 2 * anywhere.ROUNDS[1] * anywhere.KILLS == 50_000
    assert 2 * round(0.4 * anywhere.ROUNDS[1]) * anywhere.KILLS == GOALS["P2"] == 20_000
    assert power_loss.PARTS * (power_loss.STATES[1] // power_loss.PARTS) >= GOALS["P3"] == 200_000


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    one = report(reached(20), CONTROL, entry(passed=False, test="t.py::b", why="a | b", options=("--factor 2",)))
    page.save(one, tmp_path)
    assert page.load(tmp_path) == one
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.md"]
    assert "a \\| b" in (tmp_path / "report.md").read_text()
    (tmp_path / "report.json").write_text("{")
    assert page.load(tmp_path) is None
    assert page.load(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("test", "shown"),
    [
        ("t.py::a", '"t.py::a --seed 1"'),
        ("t.py::a[b c]", "\"'t.py::a[b c]' --seed 1\""),
        ("t.py::a['$x']", None),
    ],
)
def test_a_command_survives_make_and_the_shell(test: str, shown: str | None) -> None:
    line = command(entry(test=test), "night")
    assert shown is None or line == f"make nightly ARGS={shown}"
    makefile = "SHELL := /bin/bash\nnightly:\n\t@printf '%s\\n' $(ARGS)\n"
    done = subprocess.run(
        f"{line.replace('make', 'make -f -', 1)}",
        shell=True,
        input=makefile,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [test, "--seed", "1"]


def test_a_tree_is_named_by_its_commit_and_what_differs(tmp_path: Path) -> None:
    def git(*args: str) -> None:
        settings = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *settings, *args], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-qm", "one")
    commit, clean = state_of(tmp_path)
    assert (len(commit), clean) == (40, "")
    (tmp_path / "b").write_text("1")
    one = state_of(tmp_path)[1]
    (tmp_path / "b").write_text("2")
    (two,) = {state_of(tmp_path)[1]} - {one}
    assert one
    assert two
    assert state_of(tmp_path / "none") == ("", "")


def test_a_reason_names_no_folder_and_a_machine_no_host() -> None:
    import platform

    assert why(f"x\nE   AssertionError: {ROOT}/tests/a.py\nE   +  where /a/b/c = 1\n") == (
        "AssertionError: tests/a.py +  where …/c = 1"
    )
    assert platform.node() not in json.dumps(machine())
    assert set(machine()) == {"system", "processor", "cores", "memory", "Python", "SQLite"}
