"""Each backend of the log in turn, for the tests that all of them must pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.log.stores import MemoryWorld, MovableClock, SqliteWorld, World, moved_clock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return MemoryWorld() if request.param == "memory" else SqliteWorld(tmp_path / "log" / "poimen.db")


@pytest.fixture
def store(world: World) -> Iterator[Any]:
    opened = world.open()
    yield opened
    opened.close()


@pytest.fixture
def time() -> Iterator[MovableClock]:
    with moved_clock() as source:
        yield source
