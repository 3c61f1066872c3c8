"""What the tests of power loss and failing storage share: one process that has loaded their workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from poimen.testing import ForkServer

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = "tests.power.programs"


@pytest.fixture(scope="package")
def server() -> Iterator[ForkServer]:
    with ForkServer(f"{PROGRAMS}:standard") as made:
        yield made
