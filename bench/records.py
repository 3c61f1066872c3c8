"""S7 and S8: how fast a log is read, and whether anything grows dearer with what is already there."""

from __future__ import annotations

import asyncio
import statistics
import time
import tracemalloc
from typing import TYPE_CHECKING

from bench import workload
from bench.figures import Figure, median_around
from bench.floor import Bare
from poimen import Call, Runtime, clock
from poimen.engine.reading import read_run
from poimen.kernel.events import RunAdmitted
from poimen.kernel.ids import TRUNK
from poimen.log import codec
from poimen.log.api import Batch
from poimen.log.sqlite import SqliteStore
from poimen.log.writer import Door

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

FLAT = "flat within 1.3 x"


def fold(folder: Path, *, steps: int, repeat: int) -> list[Figure]:
    """S7: records a second, read and folded from a file; what is held in memory with results of two sizes."""
    db = folder / "fold.db"
    asyncio.run(_steps(db, workload.steps(steps), "fold"))
    rates = []
    for _ in range(repeat):
        store = SqliteStore(db)
        began = time.perf_counter()
        _, events = read_run(store, "fold")
        rates.append(len(events) / (time.perf_counter() - began))
        store.close()
    held = []
    for size in (100, 100_000):
        db = folder / f"fold-{size}.db"
        asyncio.run(_steps(db, workload.texts(300, size), "fold"))
        held.append((size, _held(db)))
    memory = [
        _growth(f"S7 memory, texts of {size:,} B", kept / 1e3, held[0][1] / 1e3, unit="kB") for size, kept in held
    ]
    return [Figure.of("S7 cold fold", rates, "records/s", ">= 150,000"), *memory]


async def _steps(db: Path, call: Call[int], run_id: str) -> None:
    async with Runtime(str(db), modules=[workload]) as runtime:
        run = await runtime.start(call, run_id=run_id)
        await run.result()


def _held(db: Path) -> float:
    """What a folded run holds, in bytes."""
    store = SqliteStore(db)
    tracemalloc.start()
    view, events = read_run(store, "fold")
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    store.close()
    del view, events
    return float(held)


def nth_step(folder: Path, *, places: Sequence[int]) -> list[Figure]:
    """S8: the n-th step of one run against an early one.

    Arguments:
        folder: for the database.
        places: which n, rising.
    """
    workload.LAPS.clear()
    asyncio.run(_steps(folder / "grown.db", workload.grow(places[-1] + 50), "grown"))
    laps = [1e6 * lap for lap in workload.LAPS]
    early = median_around(laps, places[0])
    return [_growth(f"S8 step {n:,}", median_around(laps, n), early) for n in places]


def nth_run(folder: Path, *, places: Sequence[int], each: int = 200) -> list[Figure]:
    """S8: one append with n runs in the database, against one with few; beside it the bare commit of that moment.

    Arguments:
        folder: for the database.
        places: how many runs, rising.
        each: appends measured at each place.
    """
    store, bare = SqliteStore(folder / "many.db"), Bare(folder / "bare-many.db")
    door, runs, found = Door(store), _admissions(), list[Figure]()
    present = 0
    try:
        for n in places:
            while present < n - each:
                for _ in range(size := min(500, n - each - present)):
                    door.submit(next(runs))
                door.flush()
                present += size
            laps, floors = [], []
            for _ in range(each):
                began = time.perf_counter()
                door.append(next(runs))
                laps.append(time.perf_counter() - began)
                floors.append(bare.commit(400))
            present += each
            floor = 1e6 * statistics.median(floors)
            took = 1e6 * statistics.median(laps)
            early = found[0].value if found else took
            found.append(_growth(f"S8 append, {n:,} runs", took, early, floor=floor))
    finally:
        store.close()
    return found


def _growth(name: str, took: float, early: float, *, unit: str = "us", floor: float | None = None) -> Figure:
    """A figure whose ratio is to the first of its kind."""
    ratio = took / early
    return Figure(name=name, value=took, unit=unit, low=took, high=took, goal=FLAT, floor=floor, growth=ratio)


def _admissions() -> Iterator[Batch]:
    """Runs that are admitted and that nobody drives."""
    n = 0
    while True:
        n += 1
        event = RunAdmitted(
            workflow="lone",
            version="1",
            code="",
            args=b"[1]",
            args_digest="0" * 32,
            nonce=clock.random_hex(16),
            by="bench",
        )
        yield Batch(run=f"run-{n:07}", records=(codec.record(event, branch=TRUNK),), admits=True, state="PENDING")
