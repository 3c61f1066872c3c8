"""The door: what waits is committed together, in order, and nobody is told before it is durable."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from poimen.kernel.errors import CommitUnknown, Fenced, StorageFailed
from poimen.log.api import Batch, Committed, NewRecord
from poimen.log.writer import Door

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poimen.kernel.errors import PoimenError
    from poimen.log.writer import Ticket


class Notebook:
    """A store that writes down each commit, and can be held or made to fail."""

    def __init__(self) -> None:
        self.commits: list[list[str]] = []
        self.fail: PoimenError | None = None
        self.unheard_of: BaseException | None = None
        self.refuse: dict[str, PoimenError] = {}
        self.entered = threading.Event()
        self.go = threading.Event()
        self.held = False

    def commit(self, batches: Sequence[Batch]) -> list[Committed | PoimenError]:
        self.entered.set()
        if self.held:
            self.go.wait()
        if self.fail is not None:
            raise self.fail
        if self.unheard_of is not None:
            raise self.unheard_of
        self.commits.append([batch.run for batch in batches])
        return [self.refuse.get(batch.run) or Committed(first=1, last=1, hash=b"") for batch in batches]


def batch(run: str) -> Batch:
    record = NewRecord(raw_id=bytes(16), branch="main", kind="timer.fired.v1", subject="branch", body=b"{}", at=0)
    return Batch(run=run, records=(record,), epoch=1)


def door_of(store: Notebook) -> Door:
    return Door(store)  # type: ignore[arg-type]  # the door uses nothing but commit


def test_all_that_waits_shares_one_commit_in_the_order_of_submission() -> None:
    store = Notebook()
    door = door_of(store)
    tickets = [door.submit(batch(run)) for run in ("c", "a", "b", "a")]
    assert not any(ticket.done for ticket in tickets)
    door.flush()
    assert store.commits == [["c", "a", "b", "a"]]
    assert all(ticket.done for ticket in tickets)


def test_each_owner_is_told_once_for_all_its_tickets_and_not_before_the_commit() -> None:
    store = Notebook()
    door = door_of(store)
    told: list[tuple[str, list[str]]] = []

    def one(tickets: Sequence[Ticket]) -> None:
        assert store.commits, "told before the commit"
        told.append(("one", [t.batch.run for t in tickets]))

    def two(tickets: Sequence[Ticket]) -> None:
        told.append(("two", [t.batch.run for t in tickets]))

    door.submit(batch("a"), one)
    door.submit(batch("b"), two)
    door.submit(batch("c"), one)
    assert told == []
    door.flush()
    assert told == [("one", ["a", "c"]), ("two", ["b"])]


def test_a_refused_batch_takes_nothing_from_its_neighbours() -> None:
    store = Notebook()
    store.refuse["b"] = Fenced("b is driven elsewhere")
    door = door_of(store)
    first, second, third = (door.submit(batch(run)) for run in "abc")
    door.flush()
    assert first.outcome().first == 1
    assert third.outcome().first == 1
    with pytest.raises(Fenced):
        second.outcome()


def test_what_is_submitted_during_a_commit_goes_into_the_next_one_without_another_call() -> None:
    store = Notebook()
    store.held = True
    door = door_of(store)
    door.submit(batch("a"))
    committing = threading.Thread(target=door.flush)
    committing.start()
    store.entered.wait()
    late = door.submit(batch("b"))
    door.flush()  # returns at once: whoever commits takes it
    before = late.done
    store.held = False
    store.go.set()
    committing.join()
    assert (before, late.done) == (False, True)
    assert store.commits == [["a"], ["b"]]


def test_a_caller_that_may_block_waits_for_whoever_commits() -> None:
    store = Notebook()
    store.held = True
    door = door_of(store)
    door.submit(batch("a"))
    committing = threading.Thread(target=door.flush)
    committing.start()
    store.entered.wait()
    got: list[Committed] = []
    waiting = threading.Thread(target=lambda: got.append(door.append(batch("b"))))
    waiting.start()
    store.held = False
    store.go.set()
    waiting.join()
    committing.join()
    assert [c.first for c in got] == [1]


def test_after_an_unknown_commit_nothing_is_acknowledged_any_more() -> None:
    store = Notebook()
    store.fail = CommitUnknown("EIO at the sync")
    door = door_of(store)
    with pytest.raises(CommitUnknown):
        door.append(batch("a"))
    store.fail = None
    with pytest.raises(StorageFailed):
        door.append(batch("b"))
    assert store.commits == [], "a door that failed once must not reach the store again"


def test_a_clean_failure_is_told_to_all_and_the_door_lives_on() -> None:
    store = Notebook()
    store.fail = StorageFailed("locked")
    door = door_of(store)
    with pytest.raises(StorageFailed):
        door.append(batch("a"))
    store.fail = None
    assert door.append(batch("a")).first == 1


def test_an_unheard_of_failure_leaves_nobody_waiting() -> None:
    store = Notebook()
    store.held = True
    store.unheard_of = MemoryError("no room")
    door = door_of(store)
    told: list[Sequence[Ticket]] = []
    door.submit(batch("a"), told.append)
    failed: list[BaseException] = []

    def flush() -> None:
        try:
            door.flush()
        except MemoryError as error:
            failed.append(error)

    waited: list[BaseException] = []

    def append() -> None:
        try:
            door.append(batch("b"))
        except (CommitUnknown, StorageFailed) as error:
            waited.append(error)

    committing = threading.Thread(target=flush)
    committing.start()
    store.entered.wait()
    waiting = threading.Thread(target=append, daemon=True)
    waiting.start()
    while not door.waiting:
        threading.Event().wait(0.001)
    store.held = False
    store.go.set()
    committing.join()
    waiting.join(timeout=10)
    assert [type(error) for error in failed] == [MemoryError]
    assert [len(tickets) for tickets in told] == [1]
    assert len(waited) == 1


def test_a_door_that_waits_keeps_what_a_locked_log_refuses_in_its_order() -> None:
    store = Notebook()
    door = Door(store, waits=True)  # type: ignore[arg-type]  # as in `door_of`
    told: list[str] = []

    def tell(tickets: Sequence[Ticket]) -> None:
        told.extend(ticket.batch.run for ticket in tickets)

    store.fail = StorageFailed("locked", locked=True)
    for run in ("c", "a", "b"):
        door.submit(batch(run), tell)
    door.flush()
    door.submit(batch("a"), tell)
    door.flush()
    assert door.locked is store.fail
    assert [ticket.batch.run for ticket in door.in_line()] == ["c", "a", "b", "a"]
    assert told == []
    store.fail = None
    door.flush()
    assert store.commits == [["c", "a", "b", "a"]]
    assert told == ["c", "a", "b", "a"]
    assert door.locked is None


def test_a_door_that_waits_refuses_what_a_log_refuses_that_has_failed() -> None:
    store = Notebook()
    door = Door(store, waits=True)  # type: ignore[arg-type]  # as in `door_of`
    store.fail = StorageFailed("the disk is gone")
    ticket = door.submit(batch("a"))
    door.flush()
    assert ticket.error is store.fail


def test_a_door_that_gives_up_waiting_says_what_it_has_refused() -> None:
    store = Notebook()
    door = Door(store, waits=True)  # type: ignore[arg-type]  # as in `door_of`
    store.fail = StorageFailed("locked", locked=True)
    ticket = door.submit(batch("a"))
    door.flush()
    assert door.give_up() == [ticket]
    assert ticket.error is store.fail
    later = door.submit(batch("b"))
    door.flush()
    assert later.error is store.fail
    assert store.commits == []
