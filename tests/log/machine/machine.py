"""Every backend of the log and a plain model of it, side by side: whatever is done to them, they say the same.

Two ways lead into each log, as two processes do. Time stands still unless a rule moves it, so that leases can be
compared to the microsecond. `Machine.worlds_of` is replaced by whoever wants to see a false backend caught.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import astuple
from functools import partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from poimen import clock
from poimen.kernel.errors import CommitUnknown, ConfigurationError, PoimenError
from poimen.log import chain
from poimen.log.api import Batch, Blob, Committed, Expect, Lease, NewRecord
from poimen.testing.storage.faults import Fault
from tests.log.machine.plain import ANY, Plain
from tests.log.stores import WORLDS, World

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS: Final = ("r1", "r2", "s\u00e4")
SUBJECTS: Final = ("a", "b", "")
WORKERS: Final = ("w1", "w2", "w3")
STATES: Final = ("PENDING", "RUNNING", "FAILED", "SUCCEEDED")
BODIES: Final = (b"{}", b"", b"\0\xff", b"\xed\xa0\x80", bytes(range(256)) * 20)

ways = st.sampled_from([0, 1])
runs = st.sampled_from(RUNS)
bodies = st.integers(0, len(BODIES) - 1)  # a body itself would make the story of a failure long
near = st.sampled_from([0, 0, 0, 0, -1, 1])
record_plans = st.tuples(st.sampled_from(SUBJECTS), st.sampled_from(["main", "b2"]), bodies, st.integers(0, 7))
batch_plans = st.fixed_dictionaries({
    "run": runs,
    "records": st.lists(record_plans, min_size=1, max_size=3),
    "driver": st.booleans(),
    "epoch": near,
    "seen": st.none() | near,
    "expect": st.none() | st.tuples(st.sampled_from(SUBJECTS), near),
    "state": st.none() | st.sampled_from(STATES),
    "admits": st.sampled_from([None, None, None, None, None, True, False]),
    "blob": st.none() | bodies,
})  # fmt: skip
ADMITTED: Final = {
    "records": [("a", "main", 0, 0)], "driver": False, "epoch": 0, "seen": None, "expect": None, "state": None,
    "admits": None, "blob": None,
}  # fmt: skip
faults = st.tuples(st.sampled_from(["sync", "write", "write"]), st.integers(1, 4), st.sampled_from(["EIO", "ENOSPC"]))
groups = st.lists(batch_plans, min_size=1, max_size=4)


class Still(clock.Source):
    """A clock that goes when it is told to; only who waits and looks at it again finds it ahead."""

    def __init__(self) -> None:
        self.us = clock.wall_us()
        self.looks = 0

    def wall_us(self) -> int:
        return self.us

    def boot_us(self) -> int:
        return self.us

    def monotonic(self) -> float:
        self.looks += 1
        return self.us / clock.US + self.looks / 20


def told(answer: Any) -> Any:
    if isinstance(answer, Committed):
        return answer.first, answer.last
    return type(answer).__name__, answer.ids.get("lsn"), answer.ids.get("epoch")


def told_no(answer: Any) -> bool:
    return not isinstance(answer, Committed)


def same(mine: Any, theirs: Any) -> bool:
    """Whether two answers agree, where the model does not leave one open."""
    return len(mine) == len(theirs) and all(b in {a, ANY} for a, b in zip(mine, theirs, strict=True))


def asked(call: Callable[[], Any]) -> Any:
    """What a call gives, or the name of its error."""
    try:
        return call()
    except PoimenError as error:
        return type(error).__name__


def record_of(each: Any) -> dict[str, Any]:
    return {name: value for name, value in each._asdict().items() if name not in {"pos", "hash"}}


class Machine(RuleBasedStateMachine):
    """The rules: what processes, drivers, outsiders, disks and clocks do to a log."""

    counts: ClassVar[Counter[str]] = Counter()

    @classmethod
    def worlds_of(cls, folder: Path) -> list[World]:
        return [world(folder / kind, layered=True) for kind, world in WORLDS.items()]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.time = Still()
        self.before = clock.use(self.time)
        self.worlds: list[World] = []
        self.stores: list[list[Any]] = []
        self.plain = Plain()
        self.ids = 0
        self.leases: list[Lease] = []
        self.cursors: list[int] = []
        self.followed = 0
        self.copied = 0
        self.others = [False, False]
        self.quiet = [False, False]
        self.counts["examples"] += 1

    @initialize()
    def opened(self) -> None:
        self.worlds = self.worlds_of(self.folder)
        self.stores = [[world.open(), world.open()] for world in self.worlds]
        self.cursors = [0] * len(self.worlds)
        self.numbers = [[store.changed() for store in pair] for pair in self.stores]
        self.committed(0, [self.batch_of(0, ADMITTED | {"run": run}) for run in RUNS[:2]])

    def teardown(self) -> None:
        try:
            for world, pair in zip(self.worlds, self.stores, strict=False):
                self.sound(world, pair[0])
        finally:
            for pair in self.stores:
                for store in pair:
                    store.close()
            for world in reversed(self.worlds):
                world.end()
            clock.use(self.before)
            shutil.rmtree(self.folder)

    # ---- appending ---------------------------------------------------------------------------------------------

    def batch_of(self, way: int, plan: dict[str, Any]) -> Batch:
        run = plan["run"]
        row = self.plain.rows.get(run)
        known = sorted(raw for of, raw in self.plain.appended[way] if of == run)
        records = []
        for subject, branch, body, again in plan["records"]:
            self.ids += 1
            raw = known[again % len(known)] if known and again == 7 else self.ids.to_bytes(16, "big")
            records.append(NewRecord(raw, branch, "k.v1", subject, BODIES[body], self.time.us - self.ids))
        epoch = max(0, (row.epoch if row else 0) + plan["epoch"])
        seen = None if plan["seen"] is None else max(0, (row.outsider if row else 0) + plan["seen"])
        expect = None
        if plan["expect"] is not None:
            subject, off = plan["expect"]
            expect = Expect(subject=subject, lsn=max(0, self.plain.last_about(run, subject) + off))
        body = None if plan["blob"] is None else BODIES[plan["blob"]]
        return Batch(
            run=run,
            records=tuple(records),
            epoch=epoch if plan["driver"] and (epoch or plan["epoch"]) else None,
            seen=seen,
            expect=expect,
            state=plan["state"],
            admits=row is None if plan["admits"] is None else plan["admits"],
            blobs=() if body is None else (Blob(digest=sha256(body).hexdigest(), media_type="x/y", body=body),),
        )

    @rule(way=ways, plans=groups)
    def commit(self, way: int, plans: list[dict[str, Any]]) -> None:
        self.committed(way, [self.batch_of(way, plan) for plan in plans])

    @rule(way=ways, run=runs, n=st.integers(1, 5), state=st.sampled_from(STATES), last=st.booleans())
    def go_on(self, way: int, run: str, n: int, state: str, last: bool) -> None:
        """What a driver does all day."""
        row = self.plain.rows.get(run)
        plan = ADMITTED | {"run": run, "driver": True, "seen": 0 if row else None, "records": [("a", "main", 0, 0)] * n}
        self.committed(way, [self.batch_of(way, plan)] * (not last) + [self.batch_of(way, plan | {"state": state})])

    @precondition(lambda self: self.leases)
    @rule(way=ways, which=st.integers(0, 30), behind=st.integers(0, 1), outsider=st.booleans())
    def zombie(self, way: int, which: int, behind: int, outsider: bool) -> None:
        """A driver goes on under a lease that it had once, having folded all that outsiders said, or not the last."""
        lease = self.leases[-1 - which % len(self.leases)]
        if outsider:
            self.committed(1 - way, [self.batch_of(1 - way, ADMITTED | {"run": lease.run})])
        plan = ADMITTED | {"run": lease.run, "driver": True, "seen": -behind}
        self.committed(way, [self.batch_of(way, plan)._replace(epoch=lease.epoch)])

    def committed(self, way: int, batches: list[Batch], *, known: dict[int, Any] | None = None) -> None:
        """Commit through every backend, but those whose answers are known."""
        expected = self.plain.commit(way, batches)
        for n, pair in enumerate(self.stores):
            answers = (known or {}).get(n) or pair[way].commit(batches)
            assert len(answers) == len(expected)
            assert all(same(told(mine), theirs) for mine, theirs in zip(answers, expected, strict=True)), (
                list(map(told, answers)), expected,
            )  # fmt: skip
            last = {
                batch.run: each for batch, each in zip(batches, answers, strict=True) if isinstance(each, Committed)
            }
            for run, place in last.items():
                assert pair[way].head(run).hash == place.hash
        self.counts["batches"] += len(batches)
        self.counts.update(f"answered {each[0] if isinstance(each[0], str) else 'Committed'}" for each in expected)
        self.wrote(way, any(isinstance(each[0], int) for each in expected))

    def wrote(self, way: int, something: bool) -> None:
        self.counts["operations"] += 1
        if something:
            self.others[1 - way] = True
        self.quiet = [False, False]

    @rule(way=ways, plans=groups, fault=faults, end=st.sampled_from(["one opens", "both open", "all died"]))
    def commit_that_fails(self, way: int, plans: list[dict[str, Any]], fault: tuple[Any, int, Any], end: str) -> None:
        """Where a commit can fail: it is unknown, the store says no more, and the next opening settles it."""
        batches = [self.batch_of(way, plan) for plan in plans]
        known: dict[int, Any] = {}
        verdicts: list[Batch] = []
        landed: bool | None = None
        failing = [n for n, world in enumerate(self.worlds) if world.fails]
        for n in failing[:1]:  # one at a time: what became of it is then told to the others
            answers = self.failed(n, way, batches, fault)
            if answers is not None:
                known[n] = answers
                continue
            landed, verdicts = self.settled_at(n, way, batches, end=end)
        if landed is None:
            self.committed(way, batches, known=known)
            return
        self.counts["commits that failed, found" if landed else "commits that failed, gone"] += 1
        if landed:
            self.plain.commit(way, batches)
        self.replayed(failing[0], way, batches if landed else [], verdicts)
        self.reopened(failing[0], way, end=end)

    def failed(self, n: int, way: int, batches: list[Batch], fault: tuple[Any, int, Any]) -> Any:
        """Answers, when the fault has not struck."""
        world, store = self.worlds[n], self.stores[n][way]
        call, nth, error = fault
        world.fail(Fault(call=call, nth=nth, error=error, only=world.written))
        try:
            answers = store.commit(batches)
        except CommitUnknown:
            assert world.struck()
            world.fail(None)
            for again in (lambda: store.commit(batches), lambda: store.renew([], lease_s=1), store.rebuild):
                assert asked(again) == "StorageFailed"
            return None
        struck = world.struck()
        world.fail(None)
        assert not struck, "a commit that failed was acknowledged"
        return answers

    def settled_at(self, n: int, way: int, batches: list[Batch], *, end: str) -> tuple[bool, list[Batch]]:
        """Open it again; whether the batches are found, and the records that say so."""
        world, pair = self.worlds[n], self.stores[n]
        if end == "one opens":
            assert asked(lambda: pair[1 - way].commit(batches)) == "StorageFailed", "the marker closes it to all"
        before = len(self.plain.order)
        self.close_some(world, pair, way, end=end)
        verdicts = pair[way].settled
        fresh = pair[way].feed(limit=100_000)[before:]
        said = [each for each in fresh if each.kind == "append.settled.v1"]
        found = {each.record_id for each in fresh if each.kind != "append.settled.v1"}
        assert {each.record_id for each in verdicts if each.found} == found
        assert len({each.found for each in verdicts}) == 1, "a transaction is there whole or not at all"
        runs = {each.run for each in verdicts}
        assert runs <= {batch.run for batch in batches}
        assert {each.run for each in said} == {run for run in runs if pair[way].head(run)}, "a verdict is a record"
        return bool(found), [
            Batch(e.run, (NewRecord(bytes.fromhex(e.record_id), e.branch, e.kind, e.subject, e.body, e.at),))
            for e in said
        ]

    def close_some(self, world: World, pair: list[Any], way: int, *, end: str) -> None:
        if end == "all died":
            world.die(*pair)
        else:
            pair[way].close()
            if end == "both open":
                pair[1 - way].close()
        pair[way] = world.open()
        if end != "one opens":
            pair[1 - way] = world.open()

    def replayed(self, n: int, way: int, batches: list[Batch], verdicts: list[Batch]) -> None:
        """What one backend has settled, done to the others and to the model."""
        self.plain.commit(way, verdicts)
        for other, pair in enumerate(self.stores):
            if other != n:
                pair[way].commit(batches)
                assert all(isinstance(each, Committed) for each in pair[way].commit(verdicts))
        self.counts["operations"] += 1

    def reopened(self, n: int, way: int, *, end: str) -> None:
        """The others are closed and opened as that one was."""
        for other, pair in enumerate(self.stores):
            if other != n:
                self.close_some(self.worlds[other], pair, way, end=end)
        gone = (way,) if end == "one opens" else (0, 1)
        self.plain.gone(*gone)
        if end == "all died":
            self.plain.workers.clear()
        self.unnumbered()

    # ---- leases ------------------------------------------------------------------------------------------------

    @rule(way=ways, run=runs, worker=st.sampled_from(WORKERS), lease_s=st.sampled_from([2, 30]), own=st.booleans())
    def claim(self, way: int, run: str, worker: str, lease_s: int, own: bool) -> None:
        mine = next((each for each in reversed(self.leases) if each.run == run), None) if own else None
        now, until = self.time.us, self.time.us + lease_s * clock.US
        expected = self.plain.claim(way, run, worker, now=now, until=until, own=mine)
        for pair in self.stores:
            found = asked(partial(pair[way].claim, run, worker=worker, lease_s=lease_s, own=mine))
            lease = isinstance(expected, int)
            assert found == (Lease(run=run, worker=worker, epoch=expected, until=until) if lease else expected)
        if isinstance(expected, int):
            self.leases.append(Lease(run=run, worker=worker, epoch=expected, until=until))
        self.counts[f"claims {'given' if isinstance(expected, int) else 'refused'}"] += 1
        self.wrote(way, isinstance(expected, int))

    @precondition(lambda self: self.leases)
    @rule(way=ways, which=st.lists(st.integers(0, 30), max_size=3), lease_s=st.sampled_from([2, 30]))
    def renew(self, way: int, which: list[int], lease_s: int) -> None:
        leases = [self.leases[-1 - n % len(self.leases)] for n in which]
        expected = self.plain.renew(leases, until=self.time.us + lease_s * clock.US)
        for pair in self.stores:
            assert [astuple(each) for each in pair[way].renew(leases, lease_s=lease_s)] == expected
        self.wrote(way, False)

    @precondition(lambda self: self.leases)
    @rule(way=ways, which=st.integers(0, 30))
    def release(self, way: int, which: int) -> None:
        lease = self.leases[-1 - which % len(self.leases)]
        self.plain.release([lease])
        for pair in self.stores:
            pair[way].release([lease])
        self.wrote(way, False)

    @rule(s=st.sampled_from([1, 2, 31, 61]))
    def time_passes(self, s: int) -> None:
        self.time.us += s * clock.US

    # ---- processes ---------------------------------------------------------------------------------------------

    @rule(way=ways, lingers=st.sampled_from([False, False, True]))
    def closes_and_opens(self, way: int, lingers: bool) -> None:
        for world, pair in zip(self.worlds, self.stores, strict=True):
            if lingers:
                pair[way].linger()
            pair[way].close()
            assert asked(pair[way].heads) == "StorageFailed"
            pair[way] = world.open()
        if lingers:  # they count as alive for as long as this process is: nobody's, and not dead
            self.plain.workers = {worker: -1 if of == way else of for worker, of in self.plain.workers.items()}
        self.plain.gone(way)
        self.unnumbered()

    @rule()
    def all_close_and_open(self) -> None:
        for world, pair in zip(self.worlds, self.stores, strict=True):
            for store in pair:
                store.close()
            pair[:] = [world.open(), world.open()]
        self.plain.gone(0, 1)
        self.unnumbered()

    @rule()
    def all_die(self) -> None:
        for world, pair in zip(self.worlds, self.stores, strict=True):
            world.die(*pair)
            pair[:] = [world.open(), world.open()]
        self.plain.gone(0, 1)
        self.plain.workers.clear()
        self.unnumbered()

    def unnumbered(self) -> None:
        self.counts["operations"] += 1
        self.numbers = [[store.changed() for store in pair] for pair in self.stores]
        self.others, self.quiet = [False, False], [True, True]

    # ---- reading and care --------------------------------------------------------------------------------------

    @rule(way=ways, run=runs, after=st.integers(-1, 12), upto=st.none() | st.integers(0, 12))
    def read(self, way: int, run: str, after: int, upto: int | None) -> None:
        expected = [
            each for each in self.plain.of(run) if each["lsn"] > after and (upto is None or each["lsn"] <= upto)
        ]
        for pair in self.stores:
            assert [record_of(each) for each in pair[way].read(run, after=after, upto=upto)] == expected
        self.counts["operations"] += 1

    @rule(way=ways, limit=st.integers(1, 6))
    def follow(self, way: int, limit: int) -> None:
        expected = self.plain.order[self.followed : self.followed + limit]
        for n, pair in enumerate(self.stores):
            found = pair[way].feed(self.cursors[n], limit=limit)
            assert [record_of(each) for each in found] == expected
            self.cursors[n] = found[-1].pos if found else self.cursors[n]
        self.followed += len(expected)
        self.counts["operations"] += 1

    @rule(way=ways, live=st.booleans(), prefix=st.sampled_from(["", "r", "s", "x"]),
          after=st.sampled_from(["", "r1", "r9"]), limit=st.integers(1, 4))  # fmt: skip
    def list_heads(self, way: int, live: bool, prefix: str, after: str, limit: int) -> None:
        expected = [run for run, _ in self.plain.heads(live=live, prefix=prefix, after=after, limit=limit)]
        for pair in self.stores:
            found = pair[way].heads(live=live, prefix=prefix, after=after, limit=limit)
            assert [head.run for head in found] == expected
        self.counts["operations"] += 1

    @rule(way=ways)
    def ask_what_changed(self, way: int) -> None:
        for numbers, pair in zip(self.numbers, self.stores, strict=True):
            found = pair[way].changed()
            assert found != numbers[way] if self.others[way] else not self.quiet[way] or found == numbers[way]
            numbers[way] = found
        self.others[way], self.quiet[way] = False, True
        self.counts["operations"] += 1

    @rule(way=ways, derived=st.booleans())
    def rebuild(self, way: int, derived: bool) -> None:
        def state_of(run: str, records: list[Any]) -> str:
            return STATES[len(records) % len(STATES)] if run != "r1" else "RUNNING"

        expected = self.plain.rebuild(state_of) if derived else 0
        for pair in self.stores:
            assert (pair[way].rebuild(state_of) if derived else pair[way].rebuild()) == expected
        self.wrote(way, False)

    @rule(way=ways)
    def idle(self, way: int) -> None:
        for pair in self.stores:
            pair[way].idle()
        self.counts["operations"] += 1
        self.quiet = [False, False]

    @rule(way=ways)
    def back_up_and_open(self, way: int) -> None:
        self.copied += 1
        for world, pair in zip(self.worlds, self.stores, strict=True):
            to = self.folder / f"copy-{world.kind}-{self.copied}" / "poimen.db"
            to.parent.mkdir()
            if not world.copies:
                assert asked(partial(pair[way].backup, to)) == ConfigurationError.__name__
                continue
            pair[way].backup(to)
            copy = world.elsewhere(to).open()
            assert copy.feed(limit=100_000) == pair[way].feed(limit=100_000)
            assert copy.heads() == pair[way].heads()
            self.sound(world, copy)
            copy.close()
            self.counts["backups"] += 1
        self.wrote(way, False)

    @rule(way=ways)
    def check(self, way: int) -> None:
        for world, pair in zip(self.worlds, self.stores, strict=True):
            self.sound(world, pair[way])
        self.counts["operations"] += 1

    def sound(self, world: World, store: Any) -> None:
        """No damage, one chain, every body."""
        assert list(store.check()) == [], world.kind
        for run, row in self.plain.rows.items():
            first, *rest = store.read(run)
            assert list(chain.verify(rest, first.hash, first=2)) == []
            assert store.head(run).hash == (rest[-1] if rest else first).hash
            assert row.lsn == len(rest) + 1
        for digest, body in self.plain.blobs.items():
            assert store.blob(digest) == body

    @invariant()
    def all_say_the_same(self) -> None:
        for pair in self.stores:
            for store in pair:
                heads = store.heads()
                assert [
                    (head.run, {"lsn": head.lsn, "epoch": head.epoch, "outsider": head.outsider_lsn,
                                "state": head.state, "worker": head.worker, "until": head.lease_until})
                    for head in heads
                ] == self.plain.heads()  # fmt: skip
            feed = store.feed(limit=100_000)
            assert [record_of(each) for each in feed] == self.plain.order
            assert all(a.pos < b.pos for a, b in pairwise(feed))
            for worker in WORKERS:
                assert store.alive(worker) is (worker in self.plain.workers)
