"""What every backend of the log does when it is read, leased and looked after."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from poimen import clock
from poimen.kernel.errors import Fenced, InvariantViolated, NotFound, NotStorable, PoimenError, ReadOnly, StorageFailed
from poimen.log.api import TERMINAL_STATES, Committed
from tests.log.stores import MovableClock, World, admitted, batch, blob, claimed, landed, lsns

# ---- reading -------------------------------------------------------------------------------------------------------


def test_read_takes_a_part(store: Any) -> None:
    admitted(store, n=5)

    def part(**limits: int) -> list[int]:
        return [each.lsn for each in store.read("r1", **limits)]

    assert part(after=2) == [3, 4, 5]
    assert part(after=1, upto=3) == [2, 3]
    assert part(upto=2) == [1, 2]
    assert part(after=5) == part(after=9) == part(after=3, upto=2) == part(upto=0) == []


def test_the_feed_is_in_order_of_appending_over_all_runs(store: Any) -> None:
    landed(store, batch("r1", admits=True), batch("r2", admits=True, n=2), batch("r1", n=2))
    landed(store, batch("r2"))
    feed = store.feed()
    assert [(each.run, each.lsn) for each in feed] == [
        ("r1", 1), ("r2", 1), ("r2", 2), ("r1", 2), ("r1", 3), ("r2", 3),
    ]  # fmt: skip
    assert [each.pos for each in feed] == sorted({each.pos for each in feed})
    assert store.feed(feed[1].pos, limit=2) == feed[2:4]
    assert store.feed(feed[-1].pos) == []


def test_heads_are_listed_by_id(store: Any) -> None:
    runs = ["a%1", "a_1", "a*1", "ab", "b1", "B1", "z"]
    landed(store, *(batch(run, admits=True) for run in runs))
    for state, run in zip(sorted(TERMINAL_STATES), runs, strict=False):
        landed(store, batch(run, state=state))

    def ids(**how: Any) -> list[str]:
        return [head.run for head in store.heads(**how)]

    assert ids() == sorted(runs)
    assert ids(live=True) == ["B1", "z"]
    assert ids(prefix="a_") == ["a_1"]
    assert ids(prefix="a") == ["a%1", "a*1", "a_1", "ab"]
    assert ids(prefix="a", after="a*1", limit=1) == ["a_1"]
    assert ids(after="ab") == ["b1", "z"]
    assert ids(live=True, prefix="q") == []
    assert store.heads(limit=1)[0] == store.head("B1")


def test_a_run_comes_back_to_life_when_its_newest_branch_does(store: Any) -> None:
    admitted(store, state="FAILED")
    assert store.heads(live=True) == []
    landed(store, batch("r1", state="RUNNING"))
    assert [head.run for head in store.heads(live=True)] == ["r1"]


def test_blobs_ride_with_their_batch(store: Any) -> None:
    one, two = blob(b"one"), blob(b"two")
    admitted(store, blobs=(one, one))
    store.commit([batch("r1", epoch=7, blobs=(two,)), batch("r1", blobs=(one,))])
    assert store.blob(one.digest) == b"one"
    assert store.blob(two.digest) is None
    assert store.blob("nonsense") is None


def test_a_blob_under_a_false_name_is_refused(store: Any) -> None:
    admitted(store)
    false = blob(b"one")
    object.__setattr__(false, "body", b"two")
    answers = store.commit([batch("r1", blobs=(false,)), batch("r1")])
    assert [type(each) for each in answers] == [NotStorable, Committed]
    assert store.blob(false.digest) is None


# ---- leases --------------------------------------------------------------------------------------------------------


def test_a_lease_keeps_others_out_until_it_ends(world: World, time: MovableClock) -> None:
    one, two = world.open(), world.open()
    admitted(one)
    lease = claimed(one, lease_s=10)
    assert lease.epoch == 1
    assert 9_000_000 < lease.until - clock.boot_us() <= 10_000_000
    assert two.claim("r1", worker="w2", lease_s=10) is None
    assert one.claim("r1", worker="w1", lease_s=10) is None
    time.ahead_s = 9
    (longer,) = one.renew([lease], lease_s=10)
    assert (longer.epoch, longer.until > lease.until) == (1, True)
    time.ahead_s = 15
    assert two.claim("r1", worker="w2", lease_s=10) is None
    time.ahead_s = 25
    assert claimed(two, worker="w2").epoch == 2
    assert one.renew([longer], lease_s=10) == []
    assert isinstance(one.commit([batch("r1", epoch=1)])[0], Fenced)
    head = one.head("r1")
    assert (head.epoch, head.worker, head.boot_id) == (2, "w2", clock.boot_id())
    one.close()
    two.close()


def test_a_worker_that_is_gone_holds_nothing(world: World) -> None:
    one, two = world.open(), world.open()
    admitted(one)
    claimed(one, lease_s=1000)
    assert two.claim("r1", worker="w2", lease_s=10) is None
    one.close()
    assert claimed(two, worker="w2").epoch == 2
    two.close()


def test_a_lease_that_was_given_back_is_free(store: Any) -> None:
    admitted(store)
    lease = claimed(store)
    store.release([lease, lease])
    head = store.head("r1")
    assert (head.worker, head.lease_until, head.epoch) == ("", 0, 1)
    assert store.renew([lease], lease_s=10) == []
    again = claimed(store, worker="w2")
    assert again.epoch == 2
    store.release([lease])
    assert store.head("r1").worker == "w2"


def test_renewing_tells_which_still_hold(store: Any) -> None:
    landed(store, batch("r1", admits=True), batch("r2", admits=True), batch("r3", admits=True))
    leases = [claimed(store, run) for run in ("r1", "r2", "r3")]
    store.release([leases[1]])
    kept = store.renew(leases, lease_s=20)
    assert [lease.run for lease in kept] == ["r1", "r3"]
    assert store.head("r1").lease_until == kept[0].until
    assert store.renew([], lease_s=20) == []


def test_claiming_what_is_not_there(store: Any) -> None:
    with pytest.raises(NotFound):
        store.claim("r1", worker="w1", lease_s=10)


def test_an_ended_run_can_be_claimed_for_its_open_intents(store: Any) -> None:
    admitted(store, state="CANCELLED")
    assert claimed(store).epoch == 1


def test_a_worker_id_belongs_to_one(world: World) -> None:
    one, two = world.open(), world.open()
    assert not two.alive("w1")
    one.worker("w1")
    one.worker("w1")
    with pytest.raises(InvariantViolated):
        two.worker("w1")
    assert one.alive("w1") and two.alive("w1")
    one.close()
    assert not two.alive("w1")
    two.worker("w1")
    two.close()


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
