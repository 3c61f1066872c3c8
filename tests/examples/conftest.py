"""The release agent's folder is on the path, and its services can be started."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from world import Service

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "release_agent"))


@pytest.fixture
def running(tmp_path):
    """Start a service of the example; gives its process and port."""
    from world import Service

    started: list[Service] = []

    def start(script: str, *args: str) -> tuple[Service, int]:
        started.append(Service(script, *args, log=tmp_path / "log"))
        return started[-1], started[-1].port()

    yield start
    for service in started:
        service.stop()
