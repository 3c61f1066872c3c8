"""The time of a send counts from a record: probe and key rely on when it must have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import effects
from poimen.engine.reading import read_run
from poimen.gate import points
from poimen.kernel.intent import IntentCommitted, IntentDispatched, RuleApplied
from poimen.kernel.views import newest_branch
from poimen.log import codec
from poimen.log.sqlite import SqliteStore
from tests.log.stores import moved_clock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from poimen.log.api import Batch

called: list[str] = []


@poimen.tool(effect=effects.IDEMPOTENT, timeout=2)
async def put(what: str) -> str:
    called.append(what)
    return what


@poimen.workflow
async def puts(what: str) -> str:
    return await put(what)


def test_a_worker_that_was_stalled_behind_its_dispatched_says_on_record_that_its_send_begins_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever judges the send from another process counts from then: its last Dispatched has that time."""
    db = tmp_path / "poimen.db"
    called.clear()
    with moved_clock() as time:

        def stalled(point: str, tool: str) -> None:
            if point == "dispatched" and not time.ahead_s:
                assert called == []
                time.ahead_s = 3  # longer than the tool's timeout, shorter than the lease

        monkeypatch.setattr(points, "reach", stalled)
        assert poimen.run(puts("tea"), db=str(db), run_id="r1") == "tea"
    store = SqliteStore(db, read_only=True)
    records = list(store.read("r1"))
    view, _ = read_run(store, "r1")
    store.close()
    kinds = [type(codec.event_of(record)) for record in records]
    late = records[kinds.index(RuleApplied)]
    assert kinds.index(IntentDispatched) < kinds.index(RuleApplied) < kinds.index(IntentCommitted)
    assert late.at >= records[kinds.index(IntentDispatched)].at + 3_000_000
    (send,) = newest_branch(view).steps["put#0"].last.intents[0].sends
    assert send.at == late.at
    assert called == ["tea"]


def test_a_send_whose_time_is_over_even_so_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine sleeps once more, while it is put on record that the send begins."""
    called.clear()
    with moved_clock() as time:
        commit = SqliteStore.commit

        def slow(self: SqliteStore, batches: Sequence[Batch]) -> Any:
            done = commit(self, batches)
            if any(record.kind == codec.KINDS[RuleApplied] for batch in batches for record in batch.records):
                time.ahead_s += 3
            return done

        def stalled(point: str, tool: str) -> None:
            if point == "dispatched" and not time.ahead_s:
                time.ahead_s = 3

        monkeypatch.setattr(points, "reach", stalled)
        monkeypatch.setattr(SqliteStore, "commit", slow)
        with pytest.raises(poimen.RunFailed, match="was over before the call"):
            poimen.run(puts("tea"), db=str(tmp_path / "poimen.db"), run_id="r1")
    assert called == []
