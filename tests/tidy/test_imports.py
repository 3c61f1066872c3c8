"""The import contracts hold, and each is seen to break: one forbidden line in a copy of the package."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.tidy.tree import ROOT, SRC, modules

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LINTER: Final = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint(src: Path, contracts: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    chosen = [argument for contract in contracts for argument in ("--contract", contract)]
    return subprocess.run(
        [sys.executable, "-c", LINTER, "--no-logo", "--no-cache", *chosen, str(ROOT / "pyproject.toml")],
        cwd=src,
        env=os.environ | {"PYTHONPATH": str(src), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    src = tmp_path_factory.mktemp("src")
    shutil.copytree(SRC, src / "poimen", ignore=shutil.ignore_patterns("__pycache__"))
    return src


def unsealing(tree: ast.Module) -> list[int]:
    """Where a module that knows `sealed` names what leads from a token to its function."""
    names = [
        (node.lineno, node.attr if isinstance(node, ast.Attribute) else node.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.alias)
    ]
    if not any(name.split(".")[-1] == "sealed" for _, name in names) and "poimen.declare.sealed" not in {
        node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    }:
        return []
    return [line for line, name in names if name in {"opened", "_bodies"}]


def test_only_the_door_unseals() -> None:
    found = {name for name, tree in modules().items() if unsealing(tree)}
    assert found == {"src/poimen/gate/_call.py"}


@pytest.mark.parametrize(
    "text",
    ["from poimen.declare.sealed import Token, opened", "from poimen.declare import sealed\nf = sealed._bodies"],
)
def test_unsealing_is_seen(text: str) -> None:
    assert unsealing(ast.parse(text))


def test_the_contracts_hold(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    ("contract", "file", "line", "says"),
    [
        ("layers", "kernel/ids.py", "import poimen.clock", "poimen.kernel"),
        ("layers", "log/api.py", "import poimen.gate.guard", "poimen.log"),
        ("layers", "log/api.py", "from poimen import declare", "poimen.declare"),
        ("layers", "stray.py", "", "stray"),
        ("pure-kernel", "kernel/ids.py", "import datetime", "datetime"),
        ("pure-kernel", "kernel/ids.py", "from os import path", "os"),
        ("no-loop-below-the-gate", "log/api.py", "import asyncio", "asyncio"),
        ("one-door", "engine/__init__.py", "from poimen.gate import _call", "poimen.gate._call"),
        ("one-door", "recovery/__init__.py", "import poimen.gate._call", "poimen.gate._call"),
        ("sealed", "engine/__init__.py", "from poimen.declare import sealed", "poimen.declare.sealed"),
        ("sealed", "declare/calling.py", "from poimen.declare.sealed import Token", "poimen.declare.sealed"),
        ("backends", "engine/__init__.py", "import poimen.log.sqlite", "poimen.log.sqlite"),
    ],
)
def test_a_broken_contract_is_seen(copy: Path, contract: str, file: str, line: str, says: str) -> None:
    path = copy / "poimen" / file
    before = path.read_text(encoding="utf-8") if path.exists() else None
    path.write_text(f"{before or ''}\n{line}\n", encoding="utf-8")
    try:
        done = lint(copy, [contract])
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_text(before, encoding="utf-8")
    assert done.returncode == 1
    assert says in done.stdout
    assert "1 broken" in done.stdout or "exhaustive" in done.stdout
