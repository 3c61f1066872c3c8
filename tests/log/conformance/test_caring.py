"""What every backend of the log does when it is looked after, closed, copied, or fails."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from poimen.kernel.errors import CommitUnknown, ConfigurationError, PoimenError, ReadOnly, StorageFailed
from poimen.testing.storage.faults import Fault, FaultyCall
from tests.log.stores import World, admitted, batch, blob, claimed, landed, lsns, record

# ---- care ----------------------------------------------------------------------------------------------------------


def test_a_sound_log_stands_the_check_and_its_heads_need_no_change(store: Any) -> None:
    admitted(store, n=3)
    epoch = claimed(store).epoch
    landed(store, batch("r1", epoch=epoch), batch("r2", admits=True, blobs=(blob(b"b"),)))
    assert list(store.check()) == []
    assert store.rebuild() == 0


def test_states_can_be_derived_anew(store: Any) -> None:
    landed(store, batch("r1", admits=True), batch("r2", admits=True, n=2))
    assert store.rebuild(lambda run, records: "RUNNING" if run == "r1" else f"OF_{len(records)}") == 2
    assert [store.head(run).state for run in ("r1", "r2")] == ["RUNNING", "OF_2"]
    assert landed(store, batch("r1"))[0].first == 2


def test_after_closing_every_call_is_refused(world: World) -> None:
    store = world.open()
    admitted(store)
    store.close()
    store.close()
    for call in (store.heads, store.feed, store.changed, lambda: store.commit([batch("r1")]), store.rebuild):
        with pytest.raises(StorageFailed):
            call()


def test_read_only_reads_and_refuses_to_write(world: World) -> None:
    writer = world.open()
    admitted(writer)
    reader = world.open(read_only=True)
    assert lsns(reader) == [1]
    landed(writer, batch("r1"))
    assert lsns(reader) == [1, 2]
    calls = [
        lambda: reader.commit([batch("r1")]),
        lambda: reader.claim("r1", worker="w", lease_s=1),
        lambda: reader.renew([], lease_s=1),
        lambda: reader.release([]),
        lambda: reader.worker("w"),
        reader.rebuild,
    ]
    for call in calls:
        with pytest.raises(ReadOnly):
            call()
    assert list(reader.check()) == []
    reader.close()
    writer.close()


def test_a_log_goes_on_where_it_was(world: World) -> None:
    first = world.open()
    place = admitted(first, n=2)
    epoch = claimed(first).epoch
    first.close()
    second = world.open()
    assert second.head("r1").hash == place.hash
    assert second.head("r1").epoch == epoch
    assert landed(second, batch("r1", epoch=epoch))[0].first == 3
    assert list(second.check()) == []
    second.close()


def test_threads_share_a_store(store: Any) -> None:
    landed(store, *(batch(f"r{n}", admits=True) for n in range(4)))
    start = threading.Barrier(4)

    def work(n: int) -> list[int]:
        start.wait()
        firsts = []
        for _ in range(10):
            firsts.append(landed(store, batch(f"r{n}"), batch("r0"))[0].first)
            assert store.read(f"r{n}")[-1].lsn >= firsts[-1]
            assert len(store.heads()) == 4
        return firsts

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(4)))
    assert found[1:] == [list(range(2, 12))] * 3
    assert lsns(store, "r0") == list(range(1, 52))
    assert list(store.check()) == []


def test_errors_say_where_and_carry_what_is_needed(store: Any) -> None:
    admitted(store)
    for refused in store.commit([batch("r1", epoch=4), batch("r9"), batch("r1", admits=True)]):
        assert isinstance(refused, PoimenError)
        assert "r1" in refused.message or "r9" in refused.message


def test_rebuilding_twice_changes_nothing_more(store: Any) -> None:
    landed(store, batch("r1", admits=True, state="RUNNING"), batch("r2", admits=True, n=2, state="FAILED"))
    before = store.heads()
    assert store.rebuild() == 0
    assert store.heads() == before

    def state_of(run: str, records: list[Any]) -> str:
        return f"{run}_{len(records)}"

    assert (store.rebuild(state_of), store.rebuild(state_of)) == (2, 0)
    assert [head.state for head in store.heads()] == ["r1_1", "r2_2"]


def test_a_killed_process_leaves_what_it_was_told_and_holds_nothing(world: World) -> None:
    first = world.open()
    admitted(first, blobs=(blob(b"one"),))
    epoch = claimed(first, lease_s=1000).epoch
    landed(first, batch("r1", epoch=epoch, n=2, state="RUNNING"))
    before = first.feed()
    world.die(first)
    second = world.open()
    assert second.feed() == before
    assert second.blob(blob(b"one").digest) == b"one"
    assert (second.head("r1").state, second.head("r1").epoch) == ("RUNNING", epoch)
    assert claimed(second, worker="w2").epoch == epoch + 1
    assert list(second.check()) == []
    second.close()


def test_a_backup_holds_the_same_and_leaves_the_log_as_it_was(world: World) -> None:
    store, to = world.open(), world.folder.parent / "copy" / "poimen.db"
    admitted(store, n=3, blobs=(blob(b"one"),))
    to.parent.mkdir(exist_ok=True)
    if not world.copies:
        with pytest.raises(ConfigurationError):
            store.backup(to)
    else:
        asked = []
        store.backup(to, bodies=lambda: asked.append(to.exists()))
        assert asked == [False], "the bodies are copied before the copy has a name"
        landed(store, batch("r1"))
        copy = world.elsewhere(to).open(read_only=True)
        assert copy.read("r1") == store.read("r1", upto=3)
        assert copy.blob(blob(b"one").digest) == b"one"
        assert list(copy.check()) == []
        copy.close()
    assert list(store.check()) == []
    store.close()


# ---- failing -------------------------------------------------------------------------------------------------------


def test_a_commit_whose_sync_fails_is_unknown_and_the_last_one(world: World) -> None:
    failing_commit(world, "sync")


def test_a_commit_whose_write_fails_is_unknown_and_the_last_one(world: World) -> None:
    failing_commit(world, "write")


def failing_commit(world: World, call: FaultyCall) -> None:
    layered = world.layers()
    store = layered.open()
    admitted(store)
    before = landed(store, batch("r1"))[0]
    if not layered.fails:
        store.close()
        return
    one = record()
    layered.fail(Fault(call=call, nth=1, only=layered.written))
    with pytest.raises(CommitUnknown):
        store.commit([batch("r1", one)])
    assert layered.struck()
    layered.fail(None)
    for refused in (lambda: store.commit([batch("r1")]), lambda: store.claim("r1", worker="w", lease_s=1)):
        with pytest.raises(StorageFailed):
            refused()
    store.close()
    again = layered.open()
    assert [(each.run, each.record_id) for each in again.settled] == [("r1", one.record_id)]
    known = [each.record_id for each in again.read("r1")]
    assert again.read("r1")[1].hash == before.hash
    assert (one.record_id in known) is again.settled[0].found
    assert landed(again, batch("r1"))[0].first == len(known) + 1
    assert list(again.check()) == []
    again.close()
    layered.end()
