"""No stored byte becomes code: nothing in the source can unpickle, evaluate or import by a name that was read."""

from __future__ import annotations

import ast
from typing import Final

import pytest

from tests.tidy.tree import modules

MODULES: Final = frozenset(
    {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "joblib"}
)
CALLS: Final = frozenset({"eval", "exec", "__import__"})
METHODS: Final = frozenset({"allow_pickle", "read_pickle"})


def unsafe(tree: ast.AST) -> list[str]:
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES:
            found.append(str(node.module))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            found.append(node.func.id)
        elif isinstance(node, ast.keyword) and node.arg in METHODS:
            found.append(str(node.arg))
    return found


def test_nothing_in_the_source_unpickles_or_evaluates() -> None:
    trees = modules()
    assert len(trees) > 100
    assert {name: found for name, tree in trees.items() if (found := unsafe(tree))} == {}


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from marshal import loads", "import os, shelve as s", "eval('1')", "x = exec(y)", "import yaml"],
)
def test_what_does_is_seen(text: str) -> None:
    assert unsafe(ast.parse(text))
