"""Types survive everything: the programs pass both checkers in strict mode, and each wrong statement is an error.

A statement of `bad*.py` is numbered by a comment at its end; a decorated function is one statement. The
checkers say the line: each number must be hit, and no other line.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import poimen

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAMS = Path(__file__).parent / "programs"
GOOD = ("a_shop.py", "b_release.py", "c_fanout.py", "d_loop.py", "e_verify.py", "f_fastapi.py")
BAD = ("bad.py", "bad_more.py")
SRC = Path(poimen.__file__).parents[1]
BIN = Path(sys.executable).parent

Hits = dict[str, dict[int, str]]


def mypy(folder: Path) -> Hits:
    config = folder / "mypy.ini"
    config.write_text("[mypy]\nstrict = True\nwarn_unreachable = True\npython_version = 3.11\n")
    files = sorted(path.name for path in (folder / "programs").glob("*.py"))
    told = subprocess.run(
        [BIN / "mypy", "--config-file", config, "--no-error-summary", "--hide-error-context", *files],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder / "programs",
        env={**os.environ, "MYPYPATH": str(SRC)},
    )
    assert told.returncode in (0, 1), told.stdout + told.stderr
    hits: Hits = {}
    for line in told.stdout.splitlines():
        found = re.match(r"(.*?):(\d+): error: (.*)", line)
        if found:
            hits.setdefault(Path(found[1]).name, {}).setdefault(int(found[2]), found[3])
    return hits


def basedpyright(folder: Path) -> Hits:
    config = folder / "pyrightconfig.json"
    settings = {
        "include": ["programs"],
        "extraPaths": [str(SRC)],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
    }
    config.write_text(json.dumps(settings))
    told = subprocess.run(
        [BIN / "basedpyright", "--project", config, "--pythonpath", sys.executable, "--outputjson"],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert told.returncode in (0, 1), told.stdout + told.stderr
    hits: Hits = {}
    for each in json.loads(told.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            line = each["range"]["start"]["line"] + 1
            hits.setdefault(Path(each["file"]).name, {}).setdefault(line, each["message"])
    return hits


CHECKERS = {"mypy": mypy, "basedpyright": basedpyright}


@pytest.fixture(scope="module", params=CHECKERS)
def hits(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Hits:
    """The errors that one checker finds in a copy of the programs: file, line, what it says."""
    folder = tmp_path_factory.mktemp(request.param)
    shutil.copytree(PROGRAMS, folder / "programs", ignore=shutil.ignore_patterns("__pycache__"))
    return CHECKERS[request.param](folder)


def numbered(file: Path) -> Mapping[int, range]:
    """The lines of each numbered statement."""
    text = file.read_text()
    lines = text.splitlines()
    statements: list[ast.stmt] = []
    for node in ast.parse(text).body:
        statements += node.body if isinstance(node, ast.AsyncFunctionDef) and not node.decorator_list else [node]
    found: dict[int, range] = {}
    for node in statements:
        first = min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", []))])
        last = node.end_lineno or first
        number = re.search(r"# (\d+)\b", lines[last - 1])
        if number:
            found[int(number[1])] = range(first, last + 1)
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", GOOD)
def test_programs_as_users_write_them_have_no_error(hits: Hits, program: str) -> None:
    assert hits.get(program, {}) == {}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("program", "count"), [("bad.py", 14), ("bad_more.py", 31)])
def test_each_wrong_statement_is_an_error_and_nothing_else_is(hits: Hits, program: str, count: int) -> None:
    statements = numbered(PROGRAMS / program)
    assert sorted(statements) == list(range(1, count + 1))
    found = hits[program]
    missed = [number for number, lines in statements.items() if not any(line in found for line in lines)]
    assert missed == []
    expected = {line for lines in statements.values() for line in lines}
    assert {line: what for line, what in found.items() if line not in expected} == {}


def test_the_programs_are_those_that_are_listed() -> None:
    assert sorted(path.name for path in PROGRAMS.glob("*.py")) == sorted([*GOOD, *BAD])
