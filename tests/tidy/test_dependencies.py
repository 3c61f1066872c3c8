"""The lock pins what the project asks for, names no place to get it from, and each dependency has its reason."""

from __future__ import annotations

import re
import tomllib
from typing import Final

import apsw
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.tree import ROOT

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK: Final = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PINS: Final = {
    canonicalize_name(pin["name"]): pin
    for pin in re.finditer(
        r"(?m)^(?P<name>[\w.-]+)==(?P<version>[\w.+!]+) \\\n(?P<hashes>(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
        LOCK,
    )
}
CORE: Final = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
EXTRAS: Final = {
    extra: [Requirement(text) for text in texts] for extra, texts in PROJECT["project"]["optional-dependencies"].items()
}
BUILD: Final = [Requirement(text) for text in PROJECT["build-system"]["requires"]]
WAL_RESET_MENDED: Final = (3, 51, 3)


@pytest.mark.parametrize("wanted", [*CORE, *EXTRAS["dev"], *BUILD], ids=str)
def test_the_lock_pins_what_is_asked_for(wanted: Requirement) -> None:
    assert wanted.specifier.contains(PINS[canonicalize_name(wanted.name)]["version"])


def test_every_line_of_the_lock_is_a_pin_with_its_hashes() -> None:
    rest = LOCK
    for pin in PINS.values():
        rest = rest.replace(pin.group(), "")
    assert [line for line in rest.splitlines() if line.strip() and not line.lstrip().startswith("#")] == []


def test_the_lock_names_no_place() -> None:
    assert re.findall(r"://|^-|--(?!hash=)[a-z-]+| @ ", LOCK, flags=re.MULTILINE) == []


@pytest.mark.parametrize("wanted", [*CORE, *(one for many in EXTRAS.values() for one in many)], ids=str)
def test_each_dependency_has_its_reason(wanted: Requirement) -> None:
    page = (ROOT / "docs" / "decisions" / "0001-dependencies.md").read_text(encoding="utf-8")
    assert re.search(rf"(?m)^\| `{re.escape(wanted.name)}` \|", page)


def test_sqlite_is_recent_enough() -> None:
    assert tuple(int(part) for part in apsw.sqlite_lib_version().split(".")) >= WAL_RESET_MENDED
