"""A fresh database and witness for each case, and one nursery for all children."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cases.nursery import Nursery
from tests.cases.world import Case

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where children come from. Its folder has a short path: names of sockets are at most 100 bytes."""
    with tempfile.TemporaryDirectory(prefix="poimen-") as folder:
        opened = Nursery(Path(folder))
        yield opened
        opened.close()


@pytest.fixture
def case(tmp_path: Path, nursery: Nursery) -> Case:
    """One database, one witness."""
    return Case(tmp_path, nursery)
