"""Each rule that schedules are held to complains of what breaks it: a schedule without a fault, falsified by hand."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen.kernel.errors import ConfigurationError
from poimen.testing import Simulation, World, schedule_sweep, simulate
from poimen.testing.schedules.judging import faults_of
from poimen.testing.schedules.loop import NothingComes, OutOfSteps, SimulatedLoop
from tests.schedules import programs

if TYPE_CHECKING:
    from collections.abc import Callable

    from poimen.log.api import Record

FEWEST = 15
"""Records of a letter that nothing has disturbed."""
MIXED = "tests.schedules.programs:mixed"


def plain() -> Simulation:
    """A letter, undisturbed: two effects, each in the world one time."""
    letters = (simulate(lambda: programs.letter("hello"), seed=seed, order="asyncio") for seed in range(100))
    found = next(one for one in letters if not one.disturbances.cancels and len(records_of(one)) == FEWEST)
    assert (found.faults, found.states, len(found.marks)) == ([], {"r0": "SUCCEEDED"}, 2)
    return found


def at(simulation: Simulation, kind: str) -> int:
    return next(n for n, record in enumerate(simulation.runs["r0"]) if record.kind == kind)


def put(simulation: Simulation, n: int, **more: Any) -> None:
    simulation.runs["r0"][n] = simulation.runs["r0"][n]._replace(**more)


def insert(simulation: Simulation, behind: int, kind: str, *, like: int | None = None, **body: Any) -> None:
    """One more record, renumbered."""
    records = simulation.runs["r0"]
    of = records[behind if like is None else like]
    fresh = of._replace(kind=kind, record_id="more", body=json.dumps({**json.loads(of.body), **body}).encode())
    records.insert(behind + 1, fresh)
    simulation.runs["r0"] = [record._replace(lsn=lsn) for lsn, record in enumerate(records, start=1)]


def unseen(simulation: Simulation) -> None:
    simulation.marks[0] = replace(simulation.marks[0], dispatched=0)


def twice(simulation: Simulation) -> None:
    simulation.marks.append(simulation.marks[0])


def nowhere(simulation: Simulation) -> None:
    simulation.marks.clear()


def forgotten(simulation: Simulation) -> None:
    simulation.acknowledged.batches.append(("r0", 3, b"another"))


def with_a_gap(simulation: Simulation) -> None:
    del simulation.runs["r0"][3]


def fenced(simulation: Simulation) -> None:
    simulation.acknowledged.claims.append(("r0", 2, 99))


def behind_the_end(simulation: Simulation) -> None:
    end = at(simulation, "branch.ended.v1")
    insert(simulation, end, "branch.resumed.v1")


def ended_twice(simulation: Simulation) -> None:
    n = at(simulation, "attempt.succeeded.v1")
    insert(simulation, n, "attempt.failed.v1")


def cancelled_over_an_unknown(simulation: Simulation) -> None:
    insert(simulation, at(simulation, "intent.dispatched.v1"), "attempt.cancelled.v1")


def indeterminate_over_nothing(simulation: Simulation) -> None:
    insert(simulation, at(simulation, "intent.pending.v1"), "attempt.indeterminate.v1")


def two_live(simulation: Simulation) -> None:
    insert(simulation, at(simulation, "attempt.started.v1"), "attempt.started.v1", attempt=2)


def two_meanings(simulation: Simulation) -> None:
    pending = at(simulation, "intent.pending.v1")
    dispatched = at(simulation, "intent.dispatched.v1")
    insert(simulation, dispatched, "intent.dispatched.v1", like=dispatched)
    insert(simulation, dispatched, "intent.pending.v1", like=pending, args_digest="other")


def behind_a_cancel(simulation: Simulation) -> None:
    insert(simulation, at(simulation, "intent.pending.v1"), "cancel.requested.v1")


def sent_again(simulation: Simulation) -> None:
    insert(simulation, at(simulation, "intent.dispatched.v1"), "intent.dispatched.v1", send=2)


@pytest.mark.parametrize(
    ("falsify", "says"),
    [
        (unseen, "I1: the world has seen 'mail hello' with no Dispatched"),
        (twice, "I1: the world has seen 'mail hello' 2 times, of 1 sends"),
        (nowhere, "lost: mail#0 is recorded as done"),
        (forgotten, "I2: LSN 3"),
        (with_a_gap, "I3"),
        (fenced, "I4"),
        (behind_the_end, "I5"),
        (ended_twice, "ends a second time"),
        (cancelled_over_an_unknown, "I6"),
        (indeterminate_over_nothing, "I7"),
        (two_live, "I8"),
        (two_meanings, "I10"),
        (behind_a_cancel, "a cancel stands below it"),
        (sent_again, "sent again by a machine"),
    ],
)
def test_a_rule_complains(falsify: Callable[[Simulation], None], says: str) -> None:
    found = plain()
    falsify(found)
    assert any(says in what for what in faults_of(found)), faults_of(found)


def test_what_is_left_over_or_stuck_is_a_fault() -> None:
    found = plain()
    found.left, found.stuck, found.held = ["a timer"], "it waits", ["a view"]
    assert faults_of(found) == ["stuck: it waits", "left over: a timer", "I9: a view"]


# ---- the loop --------------------------------------------------------------------------------------------------------


def orders(order: Any) -> set[tuple[int, ...]]:
    """In which orders twenty seeds run three callbacks."""
    found = set()
    for seed in range(20):
        loop = SimulatedLoop(random.Random(seed), order=order)
        ran: list[int] = []
        for n in range(3):
            loop.call_soon(ran.append, n)
        loop.run_until_complete(World(chance=random.Random(0)).wait(1))
        assert loop.left() == []
        found.add(tuple(ran))
        loop.close()
    return found


def test_a_seed_chooses_the_order() -> None:
    assert orders("asyncio") == {(0, 1, 2)}
    assert len(orders("seeded")) > 3


def test_time_jumps_and_waiting_for_nothing_is_told() -> None:
    loop = SimulatedLoop(random.Random(0), order="asyncio")
    loop.run_until_complete(World(chance=random.Random(0)).wait(86_400))
    assert loop.time() == pytest.approx(86_400, abs=1)
    forever = loop.create_task(asyncio.Event().wait())
    with pytest.raises(NothingComes):
        loop.run_until_complete(forever)
    assert len(loop.left()) == 1
    loop.abandon()


def test_a_program_without_end_is_told() -> None:
    loop = SimulatedLoop(random.Random(0), steps=100)

    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    spinning = loop.create_task(spins())
    with pytest.raises(OutOfSteps):
        loop.run_until_complete(spinning)
    loop.abandon()


# ---- what is refused -------------------------------------------------------------------------------------------------


@poimen.workflow
def threaded(what: str) -> str:
    return what


@poimen.step
def in_a_thread(what: str) -> str:
    return what


@poimen.workflow
async def stepping(what: str) -> str:
    return await in_a_thread.aio(what)


@pytest.mark.parametrize("workflow", [threaded, stepping])
def test_a_body_in_a_thread_is_refused(workflow: Any) -> None:
    with pytest.raises(ConfigurationError, match="is a plain function and cannot be simulated"):
        simulate(lambda: workflow("tea"), seed=0)


def test_a_timer_that_is_left_over_is_found() -> None:
    found = simulate(lambda: programs.leaves("tea"), seed=0, order="asyncio")
    assert any("left over: <TimerHandle" in what for what in found.faults), found.faults


def test_a_program_without_runs_and_an_empty_sweep_show_nothing() -> None:
    with pytest.raises(ConfigurationError, match="gives no workflow called"):
        simulate(lambda: [][:0], seed=0)
    with pytest.raises(ConfigurationError, match="names no function"):
        simulate("tests.schedules.programs:nobody", seed=0)
    with pytest.raises(ConfigurationError, match="no simulation runs here"):
        World.here()
    with pytest.raises(AssertionError, match="no schedule was made"):
        schedule_sweep(MIXED, seeds=0).assert_clean()


def records_of(simulation: Simulation) -> list[Record]:
    return [record for records in simulation.runs.values() for record in records]


def test_a_trace_has_each_record_the_world_and_the_steps() -> None:
    found = plain()
    trace = found.trace()
    assert all(any(record.hash.hex() in line for line in trace) for record in records_of(found))
    assert sum(line.startswith("world ") for line in trace) == len(found.marks)
    assert f"{found.steps} callbacks" in trace[len(records_of(found)) + len(found.marks)]
