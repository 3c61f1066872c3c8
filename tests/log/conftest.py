"""Each backend of the log in turn, for the tests that all of them must pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.log.stores import WORLDS, MovableClock, World, moved_clock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return WORLDS[request.param](tmp_path / "log")


@pytest.fixture
def store(world: World) -> Iterator[Any]:
    opened = world.open()
    yield opened
    opened.close()


@pytest.fixture
def time() -> Iterator[MovableClock]:
    with moved_clock() as source:
        yield source
