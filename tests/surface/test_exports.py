"""The public names: each exported once, each documented, none imported before it is asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import poimen
from poimen.cli.demo import known_errors

HERE = Path(poimen.__file__)
HOMES: dict[str, str] = vars(poimen)["_HOMES"]
HOME_OF: dict[str, str] = vars(poimen)["_HOME_OF"]
MODULES: tuple[str, ...] = vars(poimen)["_MODULES"]


def typed_imports() -> list[tuple[str, str]]:
    """What type checkers are shown: (module below poimen, name)."""
    tree = ast.parse(HERE.read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return [
        ((node.module or "").removeprefix("poimen").removeprefix("."), alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is None
    ]


def test_each_name_has_one_home() -> None:
    assert sorted(poimen.__all__) == sorted([*HOME_OF, *MODULES])
    assert sum(len(names.split()) for names in HOMES.values()) == len(HOME_OF)


def test_type_checkers_and_programs_see_the_same() -> None:
    assert sorted(typed_imports()) == sorted(
        [*((home, name) for name, home in HOME_OF.items()), *(("", name) for name in MODULES)]
    )


@pytest.mark.parametrize("name", sorted(poimen.__all__))
def test_each_name_is_looked_up_once(name: str) -> None:
    value: Any = getattr(poimen, name)
    assert getattr(poimen, name) is value
    assert name in MODULES or vars(poimen)[name] is value


def test_every_error_is_public() -> None:
    public = {value for name in poimen.__all__ if isinstance(value := getattr(poimen, name), type)}
    ours = [error for error in known_errors().values() if error.__module__.startswith("poimen.kernel")]
    assert len(ours) > 30
    assert [error.__name__ for error in ours if error not in public] == []


def test_a_name_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'poimen' has no attribute 'chrage'"):
        poimen.chrage  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(ImportError):
        from poimen import chrage  # type: ignore[attr-defined] # noqa: F401


def test_dir_lists_the_public_names() -> None:
    assert dir(poimen) == sorted([*poimen.__all__, "__version__"])


def imported_by(program: str) -> set[str]:
    told = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(told.stdout.split())


HEAVY = {"apsw", "asyncio", "click", "dataclasses", "inspect", "msgspec", "pydantic", "rich", "typing_extensions"}


def test_importing_poimen_imports_nothing_heavy() -> None:
    bare = imported_by("")
    found = imported_by("import poimen") - bare
    assert found & HEAVY == set()
    assert {name for name in found if name.startswith("poimen")} == {"poimen"}


def test_declaring_imports_no_engine() -> None:
    found = imported_by(
        "import poimen\nfrom poimen import effects\n@poimen.tool(effect=effects.READ)\ndef f(x: int) -> int: return x\n"
    )
    assert "poimen.declare.decorators" in found
    assert {
        name for name in found if name.startswith(("poimen.engine", "poimen.log", "poimen.gate", "apsw", "rich"))
    } == set()


def test_a_star_import_gives_the_public_names() -> None:
    program = "from poimen import *\nprint(charge if 'charge' in globals() else tool.__name__)\n"
    told = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (told.returncode, told.stdout) == (0, "tool\n"), told.stderr


@pytest.mark.parametrize("home", sorted({*HOME_OF.values()}))
def test_a_home_can_be_imported_first(home: str) -> None:
    subprocess.run([sys.executable, "-c", f"import poimen.{home}"], check=True)
