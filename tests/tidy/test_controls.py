"""P17: no harness without a control, no control without a test that runs it, and a page that says so."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from poimen.testing.false_stores import FALSE_STORES
from poimen.testing.model.searching import CONTROLS
from poimen.testing.sabotage import CONTROLS as SABOTAGES
from tests.tidy.controls import COMING, MATRIX, Row, table
from tests.tidy.tree import ROOT, modules, texts_under

if TYPE_CHECKING:
    from tests.conftest import Figures

FIRST = {f"P{n}" for n in range(1, 12)} | {"P14", "P18"}
"""What there has to be a row for, built or coming."""
TAKEN_WHOLE = ("CONTROLS", "FALSE_STORES", "CASES")
"""Names that stand for every control of a kind, in the marks of a test."""


def source_of(test: str) -> str:
    """A test with its marks; empty when there is none."""
    file, _, name = test.partition("::")
    text = texts_under(file).get(file, "")
    for node in modules("tests/").get(file, ast.Module([], [])).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    return ""


def uncovered(harnesses: set[str], rows: tuple[Row, ...], coming: set[str]) -> set[str]:
    return harnesses - {row.harness for row in rows} - coming


def named_by_tests() -> set[str]:
    """The harnesses whose figures the tests print."""
    return {
        number for text in texts_under("tests/").values() for number in re.findall(r"""figures\(\s*f?"(P\d+)\b""", text)
    }


def test_every_harness_has_a_control() -> None:
    assert len(named_by_tests()) > 4
    assert uncovered(FIRST | named_by_tests(), MATRIX, set(COMING)) == set()
    assert COMING.keys() & (named_by_tests() | {row.harness for row in MATRIX}) == set(), "it has come: write its rows"


@pytest.mark.parametrize("test", sorted({row.test for row in MATRIX}))
def test_each_test_exists_and_runs_its_controls(test: str) -> None:
    source = source_of(test)
    assert source, f"there is no {test}"
    spelt = any(name in source for name in TAKEN_WHOLE)
    for row in MATRIX:
        if row.test == test and not spelt:
            assert row.control in source.replace("_", " ") or row.control in source


def test_every_control_that_can_be_applied_has_a_row() -> None:
    controls = {row.control for row in MATRIX}
    assert {*SABOTAGES, *FALSE_STORES, *CONTROLS} - controls == set()
    assert {row.control for row in MATRIX if row.harness == "P14"} - {*FALSE_STORES} == {"every one of the above"}


def test_a_harness_without_a_row_and_a_test_that_is_gone_are_seen() -> None:
    without = tuple(row for row in MATRIX if row.harness != "P6")
    assert uncovered(FIRST, without, set(COMING)) == {"P6"}
    assert source_of("tests/crash/test_order.py::test_nothing_of_the_kind") == ""
    assert source_of("tests/crash/gone.py::test_a_call_that_was_moved_up_is_caught") == ""


def test_the_page_shows_the_matrix(figures: Figures) -> None:
    harnesses = {row.harness for row in MATRIX}
    coming = ", ".join(COMING) or "none"
    figures(f"P17 sabotage matrix: {len(MATRIX)} rows, {len(harnesses)} harnesses, to come: {coming}")
    print(table())
    page = (ROOT / "docs" / "explanation" / "controls.md").read_text(encoding="utf-8")
    assert table() in page, f"docs/explanation/controls.md should hold\n{table()}"
