"""Calls that stand nowhere: tests do not sleep to wait for a state, the product does not run data as code."""

from __future__ import annotations

import ast
import re
from typing import Final

import pytest

from tests.tidy.tree import modules

# Inside a run the timers are the run's own: recorded, and simulated in tests.
OWN_TIME: Final = frozenset({"step", "workflow"})
UNSAFE_MODULES: Final = frozenset({"cPickle", "cloudpickle", "dill", "marshal", "pickle", "shelve", "yaml"})
UNSAFE_CALLS: Final = frozenset({"compile", "eval", "exec"})
SLEEP_IN_TEXT: Final = re.compile(r"\b(?:time\.sleep\(|from time import .*\bsleep\b|asyncio\.sleep\((?!0\)))")


def dotted(node: ast.expr) -> str:
    """`asyncio.sleep` for the function of a call or a decorator; empty when it is no plain name."""
    if isinstance(node, ast.Call):
        return dotted(node.func)
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


class Sleeps(ast.NodeVisitor):
    """The lines where a test, or a program that it holds as text, sleeps."""

    def __init__(self) -> None:
        self.lines: list[int] = []
        self.in_run = False

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer = self.in_run
        self.in_run = outer or any(dotted(mark).split(".")[-1] in OWN_TIME for mark in node.decorator_list)
        self.generic_visit(node)
        self.in_run = outer

    visit_FunctionDef = _function  # noqa: N815 (the name that the visitor looks for)
    visit_AsyncFunctionDef = _function  # noqa: N815 (as above)

    def visit_Call(self, node: ast.Call) -> None:
        name = dotted(node.func)
        zero = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
        yields = name in {"asyncio.sleep", "anyio.sleep"} and (zero or self.in_run)
        if name in {"time.sleep", "asyncio.sleep", "anyio.sleep"} and not yields:
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module in {"time", "asyncio", "anyio"} and any(alias.name == "sleep" for alias in node.names):
            self.lines.append(node.lineno)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and SLEEP_IN_TEXT.search(node.value):
            program = _parsed(node.value)
            if program is None:
                self.lines.append(node.lineno)
            else:
                inner = Sleeps()
                inner.visit(program)
                self.lines.extend(node.lineno + line - 1 for line in inner.lines)


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def sleeps_in(tree: ast.Module) -> list[int]:
    visitor = Sleeps()
    visitor.visit(tree)
    return visitor.lines


def test_tests_do_not_sleep() -> None:
    trees = {name: tree for name, tree in modules("tests/").items() if not name.startswith("tests/tidy/")}
    assert [f"{name}:{line}" for name, tree in trees.items() for line in sleeps_in(tree)] == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("time.sleep(0)", [1]),
        ("await asyncio.sleep(0.01)", [1]),
        ("await asyncio.sleep(delay)", [1]),
        ("await asyncio.sleep(0)", []),
        ("from time import sleep", [1]),
        ("CHILD = '''\nimport time\ntime.sleep(60)\n'''", [3]),
        ("@poimen.workflow\nasync def w():\n    await asyncio.sleep(3600)", []),
        ("@poimen.workflow(name='w')\nasync def w():\n    time.sleep(1)", [3]),
        ("@poimen.tool(effect=READ)\nasync def t():\n    await asyncio.sleep(1)", [3]),
    ],
)
def test_a_sleep_is_seen(text: str, lines: list[int]) -> None:
    assert sleeps_in(ast.parse(text)) == lines


def unsafe_in(tree: ast.Module) -> list[int]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            names = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in UNSAFE_CALLS:
                found.append(node.lineno)
        found.extend(node.lineno for name in names if name.split(".")[0] in UNSAFE_MODULES)  # type: ignore[attr-defined]
    return found


def test_no_data_is_run_as_code() -> None:
    assert [f"{name}:{line}" for name, tree in modules().items() for line in unsafe_in(tree)] == []


@pytest.mark.parametrize(
    "text", ["import pickle", "from yaml import safe_load", "eval(x)", "exec(x)", "import os, shelve"]
)
def test_unsafe_code_is_seen(text: str) -> None:
    assert unsafe_in(ast.parse(text)) == [1]
