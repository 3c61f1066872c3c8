"""What every backend of the log does with what is appended."""

from __future__ import annotations

from typing import Any

from poimen.kernel.errors import (
    Conflict,
    Fenced,
    NotFound,
    NotStorable,
    RunExists,
)
from poimen.log import chain
from poimen.log.api import MAX_BODY_BYTES, Batch, Committed, Expect
from tests.log.stores import (
    admitted,
    batch,
    claimed,
    landed,
    lsns,
    record,
)

BAD: tuple[dict[str, Any], ...] = (
    {"raw_id": b"1"},
    {"raw_id": "z" * 16},
    {"raw_id": bytes(17)},
    {"subject": "\ud800"},
    {"kind": "\udfff"},
    {"branch": 3},
    {"at": 1 << 63},
    {"body": "text"},
    {"body": bytes(MAX_BODY_BYTES + 1)},
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


def test_what_cannot_be_stored_is_refused_alone(store: Any) -> None:
    admitted(store)
    for n, bad in enumerate(BAD):
        answers = store.commit([batch("r1"), batch("r1", record(**({"subject": "s"} | bad))), batch("r1")])
        assert [type(each) for each in answers] == [Committed, NotStorable, Committed], bad
        assert lsns(store) == list(range(1, 2 * n + 4))


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


def test_hostile_bytes_come_back_as_they_were(store: Any) -> None:
    bodies = [
        b"",
        b"\0",
        b"\xff\xfe\0",
        b"a\r\nb",
        bytes(range(256)),
        b"'; DROP TABLE record; --",
        b"\xed\xa0\x80",
        b"x" * 70_000,
    ]
    names = ["", "\0", "a\0b", "'\"`", "\u202e", "e\u0301", "\u00e9", "\U0010ffff", "\n", "%_*?[", "x" * 5_000]
    landed(store, *(batch("r", record(body=body), admits=not n) for n, body in enumerate(bodies)))
    assert [each.body for each in store.read("r")] == [each.body for each in store.feed()] == bodies
    for name in names:
        landed(store, batch(f"n{name}", record(name, branch=name, kind=name), admits=True, state=name))
        (found,) = store.read(f"n{name}")
        assert (found.run, found.subject, found.branch, found.kind) == (f"n{name}", name, name, name)
        assert store.head(f"n{name}").state == name
        expect = Expect(subject=name, lsn=0)
        assert isinstance(store.commit([batch(f"n{name}", record(name), expect=expect)])[0], Conflict), "it is there"
    assert {head.run for head in store.heads(prefix="n")} == {f"n{name}" for name in names}
    assert list(store.check()) == []


def test_the_hashes_of_a_run_are_one_chain(store: Any) -> None:
    place = landed(store, batch("r1", n=3, admits=True), batch("r2", admits=True), batch("r1", n=2))[-1]
    first, *rest = store.read("r1")
    assert list(chain.verify(rest, first.hash, first=2)) == []
    assert rest[-1].hash == place.hash == store.head("r1").hash
    assert store.read("r2")[0].hash != first.hash
    assert [each.hash for each in store.feed() if each.run == "r1"] == [each.hash for each in (first, *rest)]
