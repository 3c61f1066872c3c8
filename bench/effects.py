"""S1, S2, S3 and S6: what one guarded effect and one pure step cost, in time and in bytes."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Any

import apsw

from bench import workload
from bench.figures import Figure
from bench.floor import Bare
from poimen import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONCURRENCY = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""How many effects are under way at once, for the curve."""

GOALS = {64: ">= 8,000/s (must hold 5,000)", 256: ">= 10,000/s (must hold 5,000)"}


async def lone(folder: Path, *, rounds: int, each: int) -> Figure:
    """S1: blocks of lone effects and of bare commits, turn by turn, because disks drift."""
    bare = Bare(folder / "bare.db")
    ours: list[float] = []
    floor: list[float] = []
    async with Runtime(str(folder / "lone.db"), modules=[workload]) as runtime:
        for _ in range(rounds):
            workload.LAPS.clear()
            run = await runtime.start(workload.lone(each))
            await run.result()
            ours.append(1e6 * statistics.median(workload.LAPS))
            floor.append(1e6 * statistics.median(bare.effect() for _ in range(each)))
    ratio = statistics.median(mine / other for mine, other in zip(ours, floor, strict=True))
    return Figure.of("S1 one effect", ours, "us", "<= 1.25 x floor", floor=statistics.median(floor), ratio=ratio)


async def crowds(folder: Path, *, effects: int, repeat: int) -> list[Figure]:
    """S2 and its curve: effects a second of one run, by how many are under way at once.

    Arguments:
        folder: for the databases.
        effects: of one repetition, about.
        repeat: repetitions.
    """
    bare = Bare(folder / "bare-crowd.db")
    found: list[Figure] = []
    for callers in CONCURRENCY:
        times = max(1, effects // callers)
        call = _crowd(callers, times)
        rates = await rate(folder / f"crowd{callers}.db", call, callers * times, repeat)
        one_by_one = 1 / statistics.median(bare.effect() for _ in range(100))
        goal = GOALS.get(callers, "a point of the curve")
        found.append(Figure.of(f"S2 {callers} at once", rates, "effects/s", goal, floor=one_by_one))
    return found


def _crowd(callers: int, times: int) -> Callable[[], Any]:
    return lambda: workload.crowd(callers, times)


async def steps(folder: Path, *, count: int, repeat: int) -> Figure:
    """S3: pure steps, one after another; the floor is two bare rows in a commit that many share."""
    bare = Bare(folder / "bare-steps.db")
    rates = await rate(folder / "steps.db", lambda: workload.steps(count), count, repeat)
    shared = 100
    floor = statistics.median(bare.commit(*[150] * (2 * shared)) / shared for _ in range(20))
    goal = "<= 60 us (must hold 150)"
    return Figure.of("S3 pure step", [1e6 / found for found in rates], "us", goal, floor=1e6 * floor)


async def rate(db: Path, call: Callable[[], Any], count: int, repeat: int) -> list[float]:
    """How many of `count` effects or steps a second, of each repetition after a first one that warms up."""
    found: list[float] = []
    async with Runtime(str(db), modules=[workload]) as runtime:
        for _ in range(repeat + 1):
            began = time.perf_counter()
            run = await runtime.start(call())
            await run.result()
            found.append(count / (time.perf_counter() - began))
    return found[1:]


def bytes_per_effect(folder: Path, *, effects: int) -> Figure:
    """S6: what one effect adds to the database file, checkpointed."""
    sizes: list[int] = []
    for times in (1, 1 + effects):
        path = folder / f"bytes-{times}.db"
        asyncio.run(_effects(path, times))
        db = apsw.Connection(str(path))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.close()
        sizes.append(path.stat().st_size)
    return Figure.of("S6 bytes of one effect", [(sizes[1] - sizes[0]) / effects], "B", "<= 1,200 B")


async def _effects(path: Path, times: int) -> None:
    async with Runtime(str(path), modules=[workload]) as runtime:
        run = await runtime.start(workload.lone(times))
        await run.result()
