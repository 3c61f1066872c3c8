"""The public names: each exported once, each documented, none hidden behind a module of the same name."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections import Counter
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import pytest

from tests.tidy.tree import SRC, modules

if TYPE_CHECKING:
    from collections.abc import Iterator

ENOUGH: Final = 20
"""Characters of a docstring: less is a label, no sentence."""

PUBLIC: Final = ("poimen", "poimen.effects", "poimen.ledger", "poimen.testing")


def documented_values() -> set[str]:
    """Names of values in the source with a docstring right below their assignment."""
    found: set[str] = set()
    for tree in modules().values():
        for before, after in zip(tree.body, tree.body[1:], strict=False):
            targets = (
                before.targets
                if isinstance(before, ast.Assign)
                else [before.target]
                if isinstance(before, ast.AnnAssign)
                else []
            )
            match after:
                case ast.Expr(value=ast.Constant(value=str())):
                    found.update(target.id for target in targets if isinstance(target, ast.Name))
                case _:
                    pass
    return found


def doc_of(value: Any) -> str:
    """What the thing itself says; nothing where it only inherits what its type says."""
    if isinstance(value, ModuleType | type) or inspect.isroutine(value):
        return inspect.cleandoc(value.__doc__ or "")
    if type(value).__module__.startswith("poimen"):
        return inspect.cleandoc(type(value).__doc__ or "")
    return ""


@pytest.mark.parametrize("module", PUBLIC)
def test_each_is_exported_once_and_documented(module: str) -> None:
    namespace = importlib.import_module(module)
    names: list[str] = namespace.__all__
    assert names
    assert [name for name, n in Counter(names).items() if n > 1] == []
    values = {name: getattr(namespace, name) for name in names}
    things = Counter(id(value) for value in values.values() if isinstance(value, type) or inspect.isroutine(value))
    assert [name for name, value in values.items() if things[id(value)] > 1] == [], "one thing under two names"
    below = documented_values()
    assert [name for name, value in values.items() if len(doc_of(value)) < ENOUGH and name not in below] == []


@pytest.mark.parametrize("module", PUBLIC)
def test_nothing_public_is_left_out(module: str) -> None:
    namespace = importlib.import_module(module)
    home = "poimen" if hasattr(namespace, "__path__") else module
    ours = {
        name
        for name, value in vars(namespace).items()
        if not name.startswith("_")
        and not isinstance(value, TypeVar | ParamSpec)
        and f"{getattr(value, '__module__', '')}.".startswith(f"{home}.")
    }
    assert sorted(ours - set(namespace.__all__)) == []


def test_the_package_is_typed() -> None:
    assert (SRC / "py.typed").is_file()


def names_bound(package: str, tree: ast.Module, submodules: set[str]) -> Iterator[str]:
    """Names that a package offers for something else than its own submodule, type-checking branches included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                itself = node.module == package and alias.name in submodules
                if not (itself and alias.asname in {None, alias.name}):
                    yield alias.asname or alias.name
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def shadowed(package: str, tree: ast.Module, submodules: set[str]) -> list[str]:
    return sorted(submodules & set(names_bound(package, tree, submodules)))


@pytest.mark.parametrize("folder", sorted({path.parent for path in SRC.rglob("*.py")}), ids=lambda path: path.name)
def test_no_name_is_hidden_by_a_module(folder: Any) -> None:
    package = ".".join(("poimen", *folder.relative_to(SRC).parts))
    submodules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()} - {"__init__"}
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    assert shadowed(package, tree, submodules) == []


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("from poimen.engine.running import run", ["run"]),
        ("if TYPE_CHECKING:\n    from poimen.engine.running import go as run", ["run"]),
        ("def run(): ...", ["run"]),
        ("run = 1", ["run"]),
        ("from poimen import run", []),
        ("from poimen.run import start", []),
    ],
)
def test_a_hidden_name_is_seen(text: str, hidden: list[str]) -> None:
    assert shadowed("poimen", ast.parse(text), {"run", "engine"}) == hidden
