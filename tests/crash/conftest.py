"""What the crash tests share: one process that has loaded their programs and forks for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from poimen.testing import ForkServer

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = "tests.crash.programs"


@pytest.fixture(scope="package")
def server() -> Iterator[ForkServer]:
    with ForkServer(f"{PROGRAMS}:reads") as made:
        yield made
