"""The kernel's tables are closed: a new state or cause is an error of the type checkers, never swallowed by an arm."""

from __future__ import annotations

import ast
import sys
from typing import Final

import pytest

from tests.kernel.catch_alls import catch_alls
from tests.tidy.tree import modules, texts_under

KERNEL: Final = modules("src/poimen/kernel/")


def enums() -> list[str]:
    """The enums of all kernel modules: one module may match on the enum of another."""
    return sorted(
        node.name
        for tree in KERNEL.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id.endswith("Enum") for base in node.bases)
    )


def arms(source: str) -> list[str]:
    """The catch-all arms of a module of the kernel."""
    return catch_alls(source + "".join(f"\nclass {name}(Enum): ..." for name in enums()))


def test_no_arm_catches_all() -> None:
    assert any(isinstance(node, ast.Match) for tree in KERNEL.values() for node in ast.walk(tree))
    found = {name: arms(text) for name, text in texts_under("src/poimen/kernel/").items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize("arm", ["_", "other", "other if flag", "Admitted() | _", "object()", "AttemptState()"])
def test_a_catch_all_is_seen(arm: str) -> None:
    source = f"match cause:\n    case Completed(at=other):\n        pass\n    case {arm}:\n        pass"
    assert [line.partition(":")[0] for line in arms(source)] == ["4"]


def test_the_kernel_imports_the_standard_library_only() -> None:
    imported = {
        (name, top.split(".")[0])
        for name, tree in KERNEL.items()
        for node in ast.walk(tree)
        for top in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert ("src/poimen/kernel/ids.py", "re") in imported
    assert sorted(pair for pair in imported if pair[1] not in sys.stdlib_module_names | {"poimen"}) == []
