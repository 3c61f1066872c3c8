"""The pytest plugin: lets tests take the plain function of a tool, and gives them a database and a witness.

pytest loads it in every project where poimen is installed, so this module must never load the engine
before a test asks for it; it keeps the invariant that a fixture leaves nothing of itself behind.

Source: design api.md, "Testing".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from poimen.testing.permission import allow_raw

if TYPE_CHECKING:
    from pathlib import Path

    from poimen.testing.witness import Witness


def pytest_configure() -> None:
    """Allow `poimen.testing.raw` in the test process."""
    allow_raw()


@pytest.fixture
def poimen_db(tmp_path: Path) -> Path:
    """A place for a database of the test's own; nothing is created yet."""
    return tmp_path / "poimen.db"


@pytest.fixture
def witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Witness:
    """A witness of the test's own, which recording tools find in this process and in its children."""
    from poimen.testing.witness import VARIABLE, Witness  # noqa: PLC0415 (only for tests that ask)

    found = Witness(tmp_path / "witness")
    monkeypatch.setenv(VARIABLE, str(found.path))
    return found
