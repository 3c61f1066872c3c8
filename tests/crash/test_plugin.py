"""The pytest plugin: declared for every project, light until it is used, and what its fixtures give."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

from tests.tidy.tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SUITE = """
import poimen
from poimen import effects, testing


@poimen.tool(effect=effects.AT_MOST_ONCE)
def mail(to: str) -> str:
    testing.Witness.here().note(to)
    return to


@poimen.workflow
async def shop(to: str) -> str:
    return await mail.aio(to)


def test_the_plain_function(witness):
    assert testing.raw(mail)("ann") == "ann"
    assert witness.lines() == ["ann"]


def test_a_run(poimen_db, witness):
    assert not poimen_db.exists()
    assert poimen.run(shop("bob"), db=str(poimen_db)) == "bob"
    assert poimen_db.exists()
    assert witness.lines() == ["bob"]


def test_a_child_finds_the_witness_too(poimen_db, witness):
    target = f"{__file__}:shop"
    assert testing.crash(target, at="called", tool="mail", args=("cid",), db=poimen_db) == -9
    assert witness.lines() == ["cid"]
"""

LIGHT = """
import sys
import poimen.testing.plugin
heavy = [name for name in sys.modules if name.startswith(("poimen.engine", "poimen.log", "poimen.gate", "apsw"))]
print(heavy)
"""


def pytest_in(folder: Path, *plugins: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins, str(folder)],
        cwd=folder,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_it_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"poimen": "poimen.testing.plugin"}


def test_a_suite_of_a_user(tmp_path: Path) -> None:
    (tmp_path / "test_mail.py").write_text(SUITE, encoding="utf-8")
    done = pytest_in(tmp_path, "-p", "poimen.testing.plugin")
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_without_it_a_suite_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_mail.py").write_text(SUITE.replace("(witness)", "(monkeypatch)"), encoding="utf-8")
    done = pytest_in(tmp_path)
    assert done.returncode == 1
    assert "was asked for in a process that is no test" in done.stdout


def test_it_loads_nothing_heavy() -> None:
    assert subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True).stdout == "[]\n"
