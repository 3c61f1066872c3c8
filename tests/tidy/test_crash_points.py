"""A point at which a process can be made to die is worth its place only if a test makes one die there."""

from __future__ import annotations

import re

import pytest

from poimen.gate.points import POINTS
from tests.tidy.tree import texts_under


@pytest.mark.parametrize("point", sorted(POINTS))
def test_every_crash_point_is_used(point: str) -> None:
    named = re.compile(rf"[\"']{point}[\"':]")
    tests = {name: text for name, text in texts_under("tests/").items() if "crash" in text.lower()}
    assert [name for name, text in tests.items() if named.search(text)] != []
