"""Several processes on one database: order, leases, turns, forks; the deaths are real SIGKILLs (I2, I3, C24)."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

from poimen.kernel.errors import Corrupt, Fenced, InvariantViolated, StorageFailed
from poimen.log.api import Lease
from poimen.log.disk import connect, files, locks
from poimen.log.sqlite import SqliteStore
from tests.log.stores import Child, admitted, batch, landed, moved_clock

if TYPE_CHECKING:
    from tests.conftest import Scale, Seeds


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "poimen.db"


# ---- order ---------------------------------------------------------------------------------------------------------


def test_lsns_have_no_gap_and_nothing_acknowledged_is_lost_under_kills(db: Path, scale: Scale, seeds: Seeds) -> None:
    chance = random.Random(7 + next(seeds()))
    SqliteStore(db).close()
    told: list[tuple[str, int, list[str]]] = []
    kills = 0

    def started(name: str) -> Child:
        child = Child("hammer", db, name)
        assert child.says() == "ready"
        return child

    names = ["run-a", "run-b", "run-c", "run-d"]
    children = {name: started(name) for name in names}
    try:
        while kills < scale(16, 200):
            name = chance.choice(names)
            for _ in range(chance.randrange(1, 30)):
                told.append(tuple(children[name].says()))
            children[name].process.send_signal(signal.SIGKILL)
            while (line := children[name].says()) is not None:
                told.append(tuple(line))
            assert children[name].end() == -signal.SIGKILL
            kills += 1
            children[name] = started(name)
        survivor = SqliteStore(db)
        assert len(survivor.heads()) == 5
    finally:
        for child in children.values():
            child.process.kill()
            while (line := child.says()) is not None:
                told.append(tuple(line))
            child.end()
    store = SqliteStore(db)
    assert list(store.check()) == []
    where = {(each.run, each.record_id): each.lsn for run in [*names, "shared"] for each in store.read(run)}
    for run, first, ids in told:
        assert [where[run, each] for each in ids] == list(range(first, first + len(ids)))
    heads = {head.run: head for head in store.heads()}
    for run in [*names, "shared"]:
        assert [each.lsn for each in store.read(run)] == list(range(1, heads[run].lsn + 1))
    assert len(told) > 100
    assert sum(heads[name].epoch for name in names) == kills + 4
    survivor.close()
    store.close()


def test_many_may_open_a_new_database_at_once(db: Path) -> None:
    with contextlib.ExitStack() as all_ended:
        children = [all_ended.enter_context(Child("create", db)) for _ in range(5)]
        assert [child.says() for child in children] == ["ready"] * 5
        for child in children:
            child.go_on()
        assert [child.says() for child in children] == ["done"] * 5
        assert [child.end() for child in children] == [0] * 5
    store = SqliteStore(db)
    assert len(store.heads()) == 5
    assert list(store.check()) == []
    store.close()


def test_an_opening_that_is_overtaken_accuses_nobody(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever one opening has asked what the database says of itself, another process moves it and its anchor."""
    store = SqliteStore(db)
    admitted(store)
    store.close()
    mark_of = connect.mark_of
    with contextlib.ExitStack() as all_ended:
        first = all_ended.enter_context(Child("hold", db, "r1"))
        assert first.says() == 1
        others = [all_ended.enter_context(Child("create", db)) for _ in range(3)]
        assert [other.says() for other in others] == ["ready"] * 3
        waiting = iter(others)

        def overtaken(rows: Any) -> Any:
            mark = mark_of(rows)
            other = next(waiting)
            other.go_on()
            assert other.says() == "done"
            return mark

        monkeypatch.setattr(connect, "mark_of", overtaken)
        store = SqliteStore(db)
        monkeypatch.undo()
        assert next(waiting, None) is None
        assert {head.run for head in store.heads()} == {"r1", *(f"r{other.process.pid}" for other in others)}
        store.close()


def test_writers_take_turns(db: Path, scale: Scale) -> None:
    SqliteStore(db).close()
    children = [Child("race", db, f"r{n}", 100_000) for n in range(3)]
    assert [child.says() for child in children] == ["ready"] * 3
    for child in children:
        child.go_on()
    counts = dict.fromkeys(range(3), 0)
    pipes: dict[Any, int] = {child.process.stdout: n for n, child in enumerate(children)}
    while sum(counts.values()) < scale(300, 3000):
        for pipe in select.select(list(pipes), [], [], 30)[0]:
            counts[pipes[pipe]] += os.read(pipe.fileno(), 1 << 16).count(b"\n")
    for child in children:
        child.kill()
    assert min(counts.values()) >= sum(counts.values()) / 3 / 4, counts


def test_who_never_gives_the_turn_back_holds_others_up_for_a_second_at_most(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "TURN_PATIENCE_S", 0.05)
    store = SqliteStore(db)
    admitted(store)
    stuck = locks.Turn(files.Sides.of(db))
    assert stuck.take(0.05)
    landed(store, batch("r1"))
    assert not store._writing()._turn.take(0.05)
    stuck.give()
    assert store._writing()._turn.take(0.05)
    store._writing()._turn.give()
    landed(store, batch("r1"))
    stuck.close()
    store.close()


def test_the_one_that_waits_is_not_overtaken(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "TURN_PATIENCE_S", 0.05)
    sides = files.Sides.of(db)
    holder, waiting = locks.Turn(sides), locks.LockFile(sides.next)
    assert waiting.try_exclusive()
    assert not holder.take(0.05)
    waiting.unlock()
    assert holder.take(0.05)
    holder.give()
    holder.close()
    waiting.close()


# ---- leases --------------------------------------------------------------------------------------------------------


def test_a_second_process_gets_no_lease_while_the_first_lives_and_gets_it_at_once_when_it_is_dead_c24(db: Path) -> None:
    store = SqliteStore(db)
    admitted(store)
    with Child("hold", db, "r1") as child:
        assert child.says() == 1
        assert store.claim("r1", worker="here", lease_s=60) is None
        child.go_on()
        assert child.says() == ""
        assert store.claim("r1", worker="here", lease_s=60) is None
        child.kill()
        lease = store.claim("r1", worker="here", lease_s=60)
    assert lease is not None
    assert lease.epoch == 2
    assert [each.epoch for each in store.read("r1")] == [0, 1]
    store.close()


def test_a_live_worker_loses_its_lease_only_with_its_time_and_is_fenced_then(db: Path) -> None:
    store = SqliteStore(db)
    admitted(store)
    with Child("hold", db, "r1") as child:
        assert child.says() == 1
        child.process.send_signal(signal.SIGSTOP)
        with moved_clock() as time:
            time.ahead_s = 59
            assert store.claim("r1", worker="here", lease_s=60) is None
            time.ahead_s = 61
            lease = store.claim("r1", worker="here", lease_s=60)
        assert lease is not None
        assert lease.epoch == 2
        child.process.send_signal(signal.SIGCONT)
        child.go_on()
        assert child.says().startswith(Fenced.__name__)
    assert [each.epoch for each in store.read("r1")] == [0]
    store.close()


def test_a_lease_of_another_boot_is_void(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = SqliteStore(db), SqliteStore(db)
    admitted(store)
    assert store.claim("r1", worker="w1", lease_s=1000) is not None
    assert other.claim("r1", worker="w2", lease_s=10) is None
    monkeypatch.setattr("poimen.clock.boot_id", lambda: "another boot")
    lease = other.claim("r1", worker="w2", lease_s=10)
    assert lease is not None
    assert lease.epoch == 2
    assert store.renew([Lease(run="r1", worker="w1", epoch=1, until=0)], lease_s=10) == []
    other.close()
    store.close()


def test_a_forked_child_does_not_keep_a_dead_parents_lease_alive(db: Path) -> None:
    store = SqliteStore(db)
    admitted(store)
    with Child("orphan", db, "r1") as child:
        grandchild, got = child.says()
        assert got
        assert store.claim("r1", worker="here", lease_s=60) is None
        child.process.kill()
        child.process.wait()
        os.kill(grandchild, 0)
        lease = store.claim("r1", worker="here", lease_s=60)
        assert lease is not None
        assert lease.epoch == 2
    store.close()


def test_files_of_dead_workers_are_removed_by_who_opens_alone(db: Path) -> None:
    store = SqliteStore(db)
    admitted(store)
    store.close()
    with Child("hold", db, "r1") as child:
        assert child.says() == 1
        workers = files.Sides.of(db).workers
        assert [path.name for path in workers.iterdir()] == [f"w-{child.process.pid}.lock"]
        child.kill()
    assert len(list(workers.iterdir())) == 1
    store = SqliteStore(db)
    assert list(workers.iterdir()) == []
    store.worker("w1")
    other = SqliteStore(db)
    assert [path.name for path in workers.iterdir()] == ["w1.lock"]
    other.close()
    store.close()
    assert list(workers.iterdir()) == []


def test_a_lock_on_a_removed_file_does_not_count(tmp_path: Path) -> None:
    one = locks.Workers(tmp_path / "workers")
    one.declare("w1")
    (tmp_path / "workers" / "w1.lock").unlink()
    other = locks.Workers(tmp_path / "workers")
    assert not other.alive("w1")
    other.declare("w1")
    one.close()
    assert (tmp_path / "workers" / "w1.lock").exists()
    assert locks.Workers(tmp_path / "workers").alive("w1")
    other.close()


def test_a_file_that_is_swept_just_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = locks.LockFile.try_exclusive
    swept: list[Path] = []

    def swept_first(lock: locks.LockFile) -> bool:
        if not swept:
            swept.append(lock.path)
            lock.path.unlink()
        return take(lock)

    monkeypatch.setattr(locks.LockFile, "try_exclusive", swept_first)
    worker = locks.Workers(tmp_path / "workers")
    worker.declare("w1")
    assert swept
    assert locks.Workers(tmp_path / "workers").alive("w1")
    worker.close()


@pytest.mark.parametrize("name", ["../../etc/passwd", "", ".hidden", "a/b", "x" * 65])
def test_a_worker_id_cannot_lead_out_of_its_folder(tmp_path: Path, name: str) -> None:
    workers = locks.Workers(tmp_path / "workers")
    with pytest.raises(InvariantViolated):
        workers.declare(name)
    assert not workers.alive(name)
    assert list(tmp_path.iterdir()) == []


def test_who_holds_a_lock_can_be_named(db: Path) -> None:
    store = SqliteStore(db)
    admitted(store)
    with Child("hold", db, "r1") as child:
        child.says()
        held = locks.holders([files.Sides.of(db).open])
        assert {os.getpid(), child.process.pid} <= set(held)
    assert locks.holders([db.with_name("missing")]) == []
    store.close()


# ---- opening and closing -------------------------------------------------------------------------------------------


def test_who_opens_alone_empties_the_wal_that_was_left_and_who_closes_last_too(db: Path) -> None:
    wal = files.Sides.of(db).wal
    store = SqliteStore(db)
    admitted(store)
    store.close()
    assert not wal.exists()
    with Child("hold", db, "r1") as child:
        child.says()
        child.kill()
    left = wal.stat().st_size
    assert left > 0
    second = SqliteStore(db)
    assert second.head("r1").epoch == 1  # type: ignore[union-attr]
    assert wal.stat().st_size < left + 4 * 4120
    third = SqliteStore(db)
    second.close()
    assert wal.exists()
    landed(third, batch("r1"))
    third.close()
    assert not wal.exists()


def test_an_opening_waits_for_one_that_is_under_way(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poimen.log.disk.handle.OPENING_PATIENCE_S", 0.05)
    SqliteStore(db).close()
    opening = locks.LockFile(files.Sides.of(db).open)
    assert opening.try_exclusive()
    with pytest.raises(StorageFailed, match="has been opening") as caught:
        SqliteStore(db)
    assert str(os.getpid()) in caught.value.why
    opening.close()
    SqliteStore(db).close()


def descriptors() -> int:
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_what_an_opening_holds_is_given_back_when_it_fails(db: Path) -> None:
    store = SqliteStore(db)
    admitted(store)
    store.close()
    connection = apsw.Connection(str(db))
    connection.execute("UPDATE meta SET value = 0 WHERE key = 'generation'").fetchall()
    connection.close()
    before = descriptors()
    with pytest.raises(Corrupt, match="generation"):
        SqliteStore(db)
    assert descriptors() == before
    assert not files.Sides.of(db).wal.exists() or files.Sides.of(db).wal.stat().st_size == 0


def test_closing_gives_every_descriptor_back(db: Path) -> None:
    before = descriptors()
    store = SqliteStore(db)
    admitted(store)
    store.worker("w1")
    assert list(store.check()) == []
    store.close()
    assert descriptors() == before


# ---- forks ---------------------------------------------------------------------------------------------------------


def test_after_a_fork_every_call_is_refused_and_the_parent_goes_on(db: Path) -> None:
    with Child("fork", db) as child:
        refused = child.says()
        assert len(refused) == 16
        for call, said in refused.items():
            assert said.startswith("StorageFailed"), call
            assert "fork" in said, call
        assert child.says() == ""
        assert child.says() == []
        assert child.end() == 0
    store = SqliteStore(db)
    assert len(store.read("r1")) == 2
    store.close()


def test_a_killed_process_that_never_closed_loses_nothing(db: Path) -> None:
    store = SqliteStore(db)
    admitted(store)
    store.close()
    with Child("append_until_it_fails", db, "r1", 5) as child:
        told = child.says()
        child.kill()
    store = SqliteStore(db)
    assert [each.record_id for each in store.read("r1")][1:] == told["acknowledged"] + [
        each.record_id for each in store.read("r1", after=11)
    ]
    assert len(told["acknowledged"]) == 10
    store.close()
