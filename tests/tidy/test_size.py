"""A file, a function and a package stay small enough for one sitting."""

from __future__ import annotations

import ast

import pytest

from tests.tidy.tree import SRC, modules, texts_under

FILE_LINES = 400
FUNCTION_LINES = 60
PACKAGE_MODULES = 10

# docs/decisions/0002-kernel-modules.md: one noun of the protocol each, and no others.
KERNEL = frozenset({
    "attempt",
    "branch",
    "domain",
    "effect_class",
    "errors",
    "events",
    "fold",
    "ids",
    "intent",
    "plan",
    "resolution",
    "views",
})  # fmt: skip


def test_files_are_short() -> None:
    lengths = {name: text.count("\n") for name, text in texts_under("src/").items()}
    assert len(lengths) > PACKAGE_MODULES
    assert {name: n for name, n in lengths.items() if n >= FILE_LINES} == {}


def test_functions_are_short() -> None:
    functions = [
        (f"{name}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(functions) > FUNCTION_LINES
    assert [f"{where}: {n} lines" for where, n in functions if n >= FUNCTION_LINES] == []


def _module_names(package: str) -> set[str]:
    return {path.stem for path in (SRC / package).glob("*.py") if path.stem not in {"__init__", "__main__"}}


@pytest.mark.parametrize(
    "package", sorted(path.parent.relative_to(SRC).as_posix() for path in SRC.rglob("__init__.py"))
)
def test_packages_are_small(package: str) -> None:
    names = _module_names(package)
    if package == "kernel":
        assert names <= KERNEL
    else:
        assert len(names) <= PACKAGE_MODULES, sorted(names)
