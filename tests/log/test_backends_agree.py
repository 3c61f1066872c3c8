"""The model and the database say the same, whatever is asked of them and in whatever order."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from poimen.log.api import Batch, Committed, Expect, Lease, NewRecord
from poimen.log.memory import Contents, MemoryStore
from poimen.log.sqlite import SqliteStore

RUNS = st.sampled_from(["r1", "r2"])
SUBJECTS = st.sampled_from(["a", "b"])
RECORDS = st.lists(st.tuples(SUBJECTS, st.integers(0, 40)), min_size=1, max_size=3)
MAYBE = st.one_of(st.none(), st.integers(0, 12))

BATCHES = st.fixed_dictionaries({
    "run": RUNS,
    "records": RECORDS,
    "epoch": st.one_of(st.none(), st.integers(0, 4)),
    "seen": MAYBE,
    "expect": st.one_of(st.none(), st.tuples(SUBJECTS, st.integers(0, 12))),
    "state": st.sampled_from([None, "RUNNING", "FAILED"]),
    "admits": st.sampled_from([False, False, True]),
})  # fmt: skip
STEPS = st.one_of(
    st.tuples(st.just("commit"), st.lists(BATCHES, min_size=1, max_size=5)),
    st.tuples(st.just("claim"), st.tuples(RUNS, st.sampled_from(["w1", "w2"]))),
    st.tuples(st.just("release"), st.tuples(RUNS, st.integers(1, 4))),
    st.tuples(st.just("reopen"), st.none()),
    st.tuples(st.just("rebuild"), st.none()),
)


def as_batch(given_: dict[str, Any], n: int) -> Batch:
    records = tuple(
        NewRecord(raw_id=key.to_bytes(16, "big"), branch="main", kind="k.v1", subject=subject, body=b"{}", at=n)
        for subject, key in given_["records"]
    )
    # Ids repeat on purpose, but not after reopening: what a database remembers of them ends there.
    records = tuple(each._replace(raw_id=(n // 1000).to_bytes(8, "big") + each.raw_id[8:]) for each in records)
    expect = Expect(subject=given_["expect"][0], lsn=given_["expect"][1]) if given_["expect"] else None
    return Batch(**(given_ | {"records": records, "expect": expect}))


def told(answer: Any) -> Any:
    if isinstance(answer, Committed):
        return answer.first, answer.last
    return type(answer).__name__, answer.ids.get("lsn"), answer.ids.get("epoch")


def picture(store: Any) -> Any:
    heads = [replace(head, hash=b"", lease_until=0) for head in store.heads()]
    return heads, [each._replace(hash=b"") for each in store.feed()], [head.run for head in store.heads(live=True)]


@settings(max_examples=settings().max_examples // 3)
@given(st.lists(STEPS, max_size=12))
def test_the_database_does_what_the_model_does(steps: list[Any]) -> None:
    contents = Contents()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "poimen.db"
        model, store = MemoryStore(contents), SqliteStore(path)
        reopened = 0
        for n, (act, how) in enumerate(steps):
            if act == "commit":
                batches = [as_batch(each, reopened * 1000 + n) for each in how]
                assert list(map(told, store.commit(batches))) == list(map(told, model.commit(batches)))
            elif act == "claim":
                run, worker = how
                if model.head(run):
                    mine, theirs = (each.claim(run, worker=worker, lease_s=600) for each in (store, model))
                    assert (mine and mine.epoch) == (theirs and theirs.epoch)
            elif act == "release":
                run, epoch = how
                for each in (store, model):
                    each.release([Lease(run=run, worker="w1", epoch=epoch, until=0)])
            elif act == "rebuild":
                assert store.rebuild() == model.rebuild() == 0
            else:
                store.close()
                model.close()
                reopened += 1
                model, store = MemoryStore(contents), SqliteStore(path)
            assert picture(store) == picture(model)
        assert list(store.check()) == list(model.check()) == []
        store.close()
