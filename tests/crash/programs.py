"""Programs that run in children, to be killed, counted or stopped there."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import poimen
from poimen import effects
from poimen.testing import (
    Rendezvous,
    Tape,
    Witness,
    entered_early,
    recording_tool,
    shared_syncs,
    sync_counter,
    taped,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

DISPATCHED = "intent.dispatched.v1"

# ---- one effect of each class --------------------------------------------------------------------------------------

read = recording_tool("READ")
idempotent = recording_tool("IDEMPOTENT")
keyed = recording_tool("KEYED")
probe = recording_tool("PROBE")
at_most_once = recording_tool("AT_MOST_ONCE")


@poimen.workflow
async def reads(what: str) -> str:
    return await read(what)


@poimen.workflow
async def converges(what: str) -> str:
    return await idempotent(what)


@poimen.workflow
async def dedupes(what: str) -> str:
    return await keyed(what)


@poimen.workflow
async def can_be_asked(what: str) -> str:
    return await probe(what)


@poimen.workflow
async def mails(what: str) -> str:
    return await at_most_once(what)


@poimen.workflow
async def decides(what: str) -> str:
    poimen.decide("drink", what)
    return await at_most_once(what)


# ---- many effects, counted -----------------------------------------------------------------------------------------


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def touch(n: int) -> int:
    Tape.here().enter()
    return n


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def count(n: int) -> int:
    return n


@poimen.workflow
async def one_after_another(n: int) -> int:
    return sum([await count(i) for i in range(n)])


@poimen.workflow
async def in_waves(n: int, width: int) -> int:
    total = 0
    for first in range(0, n, width):
        total += sum(await asyncio.gather(*[touch(i) for i in range(first, min(first + width, n))]))
    return total


def seen_from_inside(db: str, n: int) -> dict[str, int]:
    """What a run of `n` effects costs."""
    with sync_counter() as counter, taped() as tape:
        poimen.run(one_after_another(n), db=db, run_id="r")
    return {"commits": len(tape.commits), "syncs": counter.wal_syncs(db), "of_the_database": counter.syncs[db]}


def taped_waves(db: str, waves: list[list[int]]) -> dict[str, Any]:
    """Make runs of `[n, width]` effects; tell what is wrong with the order of things, and how much there was."""
    with taped() as tape:
        for number, (n, width) in enumerate(waves):
            poimen.run(in_waves(n, width), db=db, run_id=f"r{number}")
    return {
        "early": entered_early(tape),
        "shared": shared_syncs(tape),
        "entered": sum(entry.what == "entered" for entry in tape.entries),
        "together": max(sum(record.kind == DISPATCHED for _, record in entry.records) for entry in tape.commits),
    }


# ---- one that stands still in the middle of its effect -------------------------------------------------------------


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def stand_still(folder: str) -> str:
    with Rendezvous(folder) as meeting:
        await meeting.arrive_async()
    return "stood"


@poimen.workflow
async def stands_still(folder: str) -> str:
    return await stand_still(folder)


# ---- one whose log fails -------------------------------------------------------------------------------------------


@poimen.workflow
async def goes_on(n: int) -> int:
    for i in range(n):
        await at_most_once(str(i))
    return n


def fails(db: str, n: int) -> None:
    """Run until the log fails; tell how, what the witness had seen by then, and stay until the parent has looked."""
    try:
        poimen.run(goes_on(n), db=db, run_id="r")
    except poimen.PoimenError as error:
        say({"error": type(error).__name__, "ids": list(error.ids.get("record_ids", ())), "seen": len(Witness.here())})
    sys.stdin.readline()


def fails_for_all(db: str, n: int) -> None:
    """The same for two runs of one runtime; then try to begin a third."""
    asyncio.run(_fails_for_all(db, n))


async def _fails_for_all(db: str, n: int) -> None:
    runtime = await poimen.Runtime.open(db, modules=["tests.crash.programs"])
    runs = [await runtime.start(goes_on(n), run_id=f"r{number}") for number in (1, 2)]
    errors = [await _error(run.result()) for run in runs]
    seen = len(Witness.here())
    late = await _error(runtime.start(goes_on(1), run_id="late"))
    await _error(runtime.close())
    say({"errors": errors, "late": late, "seen": seen, "seen_after": len(Witness.here())})


async def _error(work: Coroutine[Any, Any, object]) -> str:
    try:
        await work
    except poimen.PoimenError as error:
        return type(error).__name__
    return ""


def say(what: object) -> None:
    """One JSON line, in one write."""
    os.write(1, json.dumps(what).encode() + b"\n")


# ---- what a child can do -------------------------------------------------------------------------------------------


def add(left: int, right: int) -> int:
    return left + right


def tell(name: str) -> dict[str, object]:
    """What a child sees of itself."""
    print(f"hello from {name}", flush=True)
    return {"pid": os.getpid(), "cwd": str(Path.cwd()), "env": os.environ.get(name), "now": threading.active_count()}


def fail(why: str) -> None:
    raise ValueError(why)


def leave(code: int) -> None:
    os._exit(code)


def never_end() -> None:
    threading.Event().wait()


def never_end_holding(fifo: str) -> None:
    """Whoever reads at the other end is told of this process by its end alone."""
    with Path(fifo).open("wb", buffering=0) as held:
        held.write(b"here")
        never_end()
