"""What every backend of the log does: one suite, run over each of them."""

from __future__ import annotations

from typing import Any

import pytest

from poimen.kernel.errors import (
    Conflict,
    Fenced,
    NotFound,
    NotStorable,
    RunExists,
)
from poimen.log.api import Batch, Committed, Expect
from tests.log.stores import (
    World,
    admitted,
    batch,
    claimed,
    landed,
    lsns,
    record,
)

# ---- appending -----------------------------------------------------------------------------------------------------


def test_what_was_appended_is_read_back(store: Any) -> None:
    first = record("run:r1", body=b'{"a":"\xc3\xa4"}', branch="b2", kind="run.admitted.v1", at=17)
    place = landed(store, batch("r1", first, record(), admits=True))[0]
    assert (place.first, place.last) == (1, 2)
    one, two = store.read("r1")
    assert (one.run, one.lsn, one.branch, one.record_id, one.kind, one.subject, one.body, one.at, one.epoch) == (
        "r1", 1, "b2", first.record_id, "run.admitted.v1", "run:r1", b'{"a":"\xc3\xa4"}', 17, 0,
    )  # fmt: skip
    assert two.lsn == 2
    assert two.hash == place.hash != one.hash
    head = store.head("r1")
    assert (head.run, head.lsn, head.hash, head.epoch, head.outsider_lsn) == ("r1", 2, place.hash, 0, 2)
    assert (head.state, head.worker) == ("PENDING", "")


def test_an_outsider_may_write_any_time_and_negative_times_too(store: Any) -> None:
    admitted(store)
    landed(store, batch("r1", record(at=-5)))
    assert store.read("r1")[-1].at == -5


def test_a_run_is_admitted_once(store: Any) -> None:
    answers = store.commit([batch("r1", admits=True), batch("r1", admits=True), batch("r1")])
    assert [type(each) for each in answers] == [Committed, RunExists, Committed]
    assert isinstance(store.commit([batch("r1", admits=True)])[0], RunExists)
    assert lsns(store) == [1, 2]


def test_a_refused_batch_takes_nothing_from_its_neighbours(store: Any) -> None:
    admitted(store)
    epoch = claimed(store).epoch
    answers = store.commit([
        batch("r1", epoch=epoch, n=2),
        batch("r1", epoch=epoch + 1),
        batch("missing"),
        batch("r1", epoch=epoch),
        batch("r2", admits=True, n=3),
        batch("r1", expect=Expect(subject="step:a#0", lsn=0)),
    ])  # fmt: skip
    assert [type(each) for each in answers] == [Committed, Fenced, NotFound, Committed, Committed, Conflict]
    assert [(each.first, each.last) for each in answers if isinstance(each, Committed)] == [(2, 3), (4, 4), (1, 3)]
    assert lsns(store) == [1, 2, 3, 4]
    assert lsns(store, "r2") == [1, 2, 3]
    assert lsns(store, "missing") == []
    assert store.head("missing") is None


def test_when_all_are_refused_nothing_changes(store: Any) -> None:
    admitted(store)
    before = store.head("r1")
    assert [type(each) for each in store.commit([batch("r1", epoch=3), batch("r2")])] == [Fenced, NotFound]
    assert store.head("r1") == before
    assert len(store.feed()) == 1
    assert landed(store, batch("r1"))[0].first == 2


def test_a_refused_batch_leaves_no_state_behind(store: Any) -> None:
    admitted(store)
    one = record()
    landed(store, batch("r1", one, state="RUNNING"))
    answers = store.commit([
        batch("r1", one, state="FAILED"),
        batch("r1", record(subject="\ud800"), state="FAILED"),
        batch("r1", record(), state="\ud800"),
        batch("r1", epoch=3, state="FAILED"),
        batch("r2", one, one, admits=True, state="FAILED"),
        batch("r1"),
    ])  # fmt: skip
    assert [type(each) for each in answers] == [Conflict, NotStorable, NotStorable, Fenced, Conflict, Committed]
    assert [(head.run, head.state) for head in store.heads()] == [("r1", "RUNNING")]


def test_nothing_to_commit_is_nothing(store: Any) -> None:
    assert store.commit([]) == []


def test_states_follow_the_batches(store: Any) -> None:
    admitted(store, state="PENDING")
    epoch = claimed(store).epoch
    landed(store, batch("r1", epoch=epoch, state="RUNNING"), batch("r1", epoch=epoch, state="WAITING"))
    assert store.head("r1").state == "WAITING"
    store.commit([batch("r1", epoch=epoch + 1, state="FAILED"), batch("r1", epoch=epoch)])
    assert store.head("r1").state == "WAITING"
    landed(store, batch("r2", admits=True, state="RUNNING"), batch("r2", state="SUCCEEDED"))
    assert store.head("r2").state == "SUCCEEDED"


@pytest.mark.parametrize(
    "bad",
    [
        {"raw_id": b"1"},
        {"raw_id": "z" * 16},
        {"raw_id": bytes(17)},
        {"subject": "\ud800"},
        {"kind": "\udfff"},
        {"branch": 3},
        {"at": 1 << 63},
        {"body": "text"},
    ],
)
def test_what_cannot_be_stored_is_refused_alone(store: Any, bad: dict[str, Any]) -> None:
    admitted(store)
    answers = store.commit([batch("r1"), batch("r1", record(**({"subject": "s"} | bad))), batch("r1")])
    assert [type(each) for each in answers] == [Committed, NotStorable, Committed]
    assert lsns(store) == [1, 2, 3]


def test_a_batch_without_records_is_refused(store: Any) -> None:
    answers = store.commit([Batch(run="r1", records=(), admits=True), batch("r1", admits=True)])
    assert [type(each) for each in answers] == [NotStorable, Committed]


def test_a_record_id_is_appended_once_in_a_run(store: Any) -> None:
    admitted(store)
    one, two = record(), record()
    landed(store, batch("r1", one))
    answers = store.commit([
        batch("r1", one),
        batch("r1", record(), one),
        batch("r1", two, two),
        batch("r1", two),
        batch("r1", two),
        batch("r2", one, admits=True),
    ])  # fmt: skip
    assert [type(each) for each in answers] == [Conflict, Conflict, Conflict, Committed, Conflict, Committed]
    assert lsns(store) == [1, 2, 3]


# ---- drivers and outsiders -----------------------------------------------------------------------------------------


def test_a_driver_needs_the_newest_epoch(store: Any) -> None:
    admitted(store)
    assert isinstance(store.commit([batch("r1", epoch=0)])[0], Fenced)
    assert isinstance(store.commit([batch("r1", epoch=1)])[0], Fenced)
    old = claimed(store)
    landed(store, batch("r1", epoch=old.epoch))
    store.release([old])
    new = claimed(store, worker="w2")
    assert new.epoch == old.epoch + 1
    refused = store.commit([batch("r1", epoch=old.epoch)])[0]
    assert isinstance(refused, Fenced)
    assert refused.ids["epoch"] == new.epoch
    landed(store, batch("r1", epoch=new.epoch))
    assert [each.epoch for each in store.read("r1")] == [0, old.epoch, new.epoch]


def test_outsiders_append_beside_the_driver(store: Any) -> None:
    admitted(store)
    epoch = claimed(store).epoch
    landed(store, batch("r1", epoch=epoch, seen=1), batch("r1", record("cancel")), batch("r1", epoch=epoch))
    assert [each.epoch for each in store.read("r1")] == [0, epoch, 0, epoch]
    assert store.head("r1").outsider_lsn == 3


def test_a_driver_that_has_not_folded_an_outsider_is_refused(store: Any) -> None:
    admitted(store)
    epoch = claimed(store).epoch
    landed(store, batch("r1", epoch=epoch, seen=1))
    cancel = landed(store, batch("r1", record("cancel")))[0].last
    refused = store.commit([batch("r1", epoch=epoch, seen=1)])[0]
    assert isinstance(refused, Conflict)
    assert refused.ids["lsn"] == cancel
    landed(store, batch("r1", epoch=epoch, seen=cancel), batch("r1", epoch=epoch, seen=None))
    landed(store, batch("r1", epoch=epoch, seen=cancel))


def test_an_outsider_in_the_same_group_counts_too(store: Any) -> None:
    admitted(store)
    epoch = claimed(store).epoch
    answers = store.commit([batch("r1", record("cancel")), batch("r1", epoch=epoch, seen=1)])
    assert [type(each) for each in answers] == [Committed, Conflict]


def test_expect_asks_about_its_subject_alone(store: Any) -> None:
    admitted(store)
    asked = landed(store, batch("r1", record("question:q1")))[0].last
    landed(store, *(batch("r1", record("step:busy#0")) for _ in range(5)))
    expect = Expect(subject="question:q1", lsn=asked)
    answered = landed(store, batch("r1", record("question:q1"), expect=expect))[0].last
    refused = store.commit([batch("r1", record("question:q1"), expect=expect)])[0]
    assert isinstance(refused, Conflict)
    assert refused.ids["lsn"] == answered
    landed(store, batch("r1", record("question:q2"), expect=Expect(subject="question:q2", lsn=0)))


def test_of_two_answers_in_one_group_the_first_wins(store: Any) -> None:
    asked = admitted(store).last
    expect = Expect(subject="question:q1", lsn=asked)
    answers = store.commit([
        batch("r2", record("question:q1"), admits=True),
        batch("r1", record("question:q1"), record("other"), expect=expect),
        batch("r1", record("question:q1"), expect=expect),
    ])  # fmt: skip
    assert [type(each) for each in answers] == [Committed, Committed, Conflict]
    assert isinstance(answers[2], Conflict)
    assert answers[2].ids["lsn"] == 2


def test_what_another_store_appends_is_seen(world: World) -> None:
    one, two = world.open(), world.open()
    admitted(one)
    for n in range(2, 8):
        writer = one if n % 2 else two
        assert landed(writer, batch("r1"))[0].first == n
    lease = claimed(two)
    assert isinstance(one.commit([batch("r1", epoch=lease.epoch + 1)])[0], Fenced)
    landed(one, batch("r1", epoch=lease.epoch))
    assert lsns(two) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert list(one.check()) == []
    one.close()
    two.close()


def test_changed_tells_of_others(world: World) -> None:
    one, two = world.open(), world.open()
    admitted(one)
    before = one.changed()
    assert one.changed() == before
    admitted(two, "r2")
    after = one.changed()
    assert after != before
    assert one.changed() == after
    one.close()
    two.close()
