"""Who is named as holding a database: others, never the process that asks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import apsw
import pytest

from poimen.log.disk.connect import translated

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("found", "said"), [([], "another process"), ([7], "process 7")])
def test_the_asking_process_is_not_named(
    found: list[int], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poimen.log.disk.locks.holders", lambda _paths: sorted([os.getpid(), *found]))
    error = translated(apsw.BusyError("database is locked"), tmp_path / "p.db", "opening")
    assert error.why == f"{said} has it open: somebody is reading or writing it"
