"""The time of a send counts from its Dispatched: probe and key rely on when it must have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import poimen
from poimen import effects
from poimen.gate import points
from poimen.kernel.intent import IntentCommitted, NotSentOutcome
from poimen.log import codec
from poimen.log.sqlite import SqliteStore
from tests.log.stores import moved_clock

if TYPE_CHECKING:
    from pathlib import Path

called: list[str] = []


@poimen.tool(effect=effects.IDEMPOTENT, timeout=2)
async def put(what: str) -> str:
    called.append(what)
    return what


@poimen.workflow
async def puts(what: str) -> str:
    return await put(what)


def test_a_worker_that_was_stalled_behind_its_dispatched_for_longer_than_a_send_may_take_does_not_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "poimen.db"
    called.clear()
    with moved_clock() as time:

        def stalled(point: str, tool: str) -> None:
            if point == "dispatched" and not time.ahead_s:
                assert called == []
                time.ahead_s = 3  # longer than the tool's timeout, shorter than the lease

        monkeypatch.setattr(points, "reach", stalled)
        with pytest.raises(poimen.RunFailed, match="was over before the call"):
            poimen.run(puts("tea"), db=str(db), run_id="r1")
    store = SqliteStore(db, read_only=True)
    first = next(e for e in map(codec.event_of, store.read("r1")) if isinstance(e, IntentCommitted))
    store.close()
    assert isinstance(first.outcome, NotSentOutcome)
    assert first.outcome.error.type == "NotCalled"
    assert called == []
