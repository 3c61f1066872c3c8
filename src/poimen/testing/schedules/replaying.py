"""The log of a schedule, replayed: each run comes to the same end, and nothing is sent again.

The log is cut where a crash could have left it, behind the last commit before the branch ended, and driven once more,
in the order of asyncio, by one undisturbed worker. This module must never change what it was given; it keeps the
invariant that only what was on record can give the same end.

Source: design protocol.md, section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from poimen.log.api import Head
from poimen.log.memory import Contents
from poimen.testing.schedules.simulation import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from poimen.declare.registry import Registry
    from poimen.declare.shapes import Call
    from poimen.log.api import Record
    from poimen.testing.schedules.traces import Simulation


def other_ends(calls: Sequence[Call[Any]], registry: Registry, simulation: Simulation) -> list[str]:
    """Replay what has ended by itself; where it ends otherwise, a sentence.

    Arguments:
        calls: the runs.
        registry: their code.
        simulation: that has ended.
    """
    cuts = {run: at for run in simulation.runs if (at := _cut(run, simulation))}
    if not cuts:
        return []
    contents = _contents(simulation, cuts)
    begin_s = simulation.seconds + 1
    stage = Stage(calls, simulation.seed, "asyncio", undisturbed=True, registry=registry, begin_s=begin_s)
    again = stage.play(contents)
    found = [f"the replay is stuck: {again.stuck}"] if again.stuck else []
    found += [f"the replay has sent {mark.what!r} again" for mark in again.marks]
    simulation.replayed = len(cuts)
    for run in cuts:
        right, other = ((s.states[run], s.values[run]) for s in (simulation, again))
        if right != other:
            found.append(f"{run} ended as {right}, and its replay as {other}")
    return found


def _cut(run: str, simulation: Simulation) -> int:
    """Where to cut, an LSN; 0: the run was ended from outside."""
    end = next((r.lsn for r in simulation.runs[run] if r.kind == "branch.verifying.v1"), 0)
    return max((lsn for of, lsn in simulation.acknowledged.commits if of == run and lsn < end), default=0)


def _contents(simulation: Simulation, cuts: dict[str, int]) -> Contents:
    runs = {run: records[: cuts.get(run, len(records))] for run, records in simulation.runs.items()}
    kept = sorted((record for records in runs.values() for record in records), key=lambda record: record.pos)
    fed = [record._replace(pos=pos) for pos, record in enumerate(kept, start=1)]
    contents = Contents(log_id=simulation.log_id, all=fed)
    for record in fed:
        contents.runs.setdefault(record.run, []).append(record)
    contents.heads = {run: _head(records, simulation.states[run], cut=run in cuts) for run, records in runs.items()}
    contents.blobs = dict(simulation.blobs)
    return contents


def _head(records: list[Record], state: str, *, cut: bool) -> Head:
    return Head(
        run=records[-1].run,
        lsn=records[-1].lsn,
        hash=records[-1].hash,
        epoch=max(record.epoch for record in records),
        outsider_lsn=max((record.lsn for record in records if not record.epoch), default=0),
        state="RUNNING" if cut else state,
        worker="",
        lease_until=0,
        boot_id="",
    )
