"""What every backend of the log does with drivers, who have epochs, and outsiders, who have expectations."""

from __future__ import annotations

from typing import Any

from poimen.kernel.errors import Conflict, Fenced
from poimen.log.api import Committed, Expect
from tests.log.stores import World, admitted, batch, claimed, landed, lsns, record

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
