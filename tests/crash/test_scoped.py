"""anyio's cancel scopes, killed at each commit: what was left stays left, and what was done is not done again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poimen.testing import ForkServer, sweep
from tests.crash.scoped import leaves

if TYPE_CHECKING:
    from pathlib import Path


def test_scopes_around_tools_steps_and_groups_are_left_in_every_life(tmp_path: Path) -> None:
    with ForkServer("tests.crash.scoped:leaves") as server:
        found = sweep(leaves("tea"), folder=tmp_path, server=server, points=False, width=16)
    found.assert_clean()  # each life came to the same end, the cancelled scopes included
    assert (found.duplicates, found.losses, found.other_ends) == (0, 0, ())
