"""What every backend of the log does when it is read."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from poimen.kernel.errors import NotStorable
from poimen.log.api import TERMINAL_STATES, Committed
from tests.log.stores import World, admitted, batch, blob, landed

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


def test_a_follower_sees_each_record_once_and_in_order(world: World) -> None:
    writer, reader = world.open(), world.open()
    admitted(writer)
    seen: list[Any] = []
    for n in range(2, 14):
        landed(writer, batch("r1"), batch(f"s{n}", n=2, admits=True))
        while found := reader.feed(seen[-1].pos if seen else 0, limit=2):
            assert len(found) <= 2
            seen += found
    assert seen == writer.feed()
    assert [each.lsn for each in seen if each.run == "r1"] == list(range(1, 14))
    writer.close()
    reader.close()


def test_no_reader_sees_half_a_batch(world: World) -> None:
    writer, reader = world.open(), world.open()
    admitted(writer, n=5)
    begun, done = threading.Event(), threading.Event()

    def write() -> None:
        try:
            for _ in range(40):
                landed(writer, batch("r1", n=5, state="RUNNING"))
                begun.set()
        finally:
            done.set()
            begun.set()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        begun.wait()
        lengths = []
        while not done.is_set():
            lengths.append(len(reader.read("r1")))
            assert len(reader.feed()) % 5 == 0
        writing.result()
    lengths.append(len(reader.read("r1")))
    assert lengths == sorted(lengths)
    assert {n % 5 for n in lengths} == {0}
    assert lengths[-1] == 205
    writer.close()
    reader.close()
