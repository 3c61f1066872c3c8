"""Programs that run in children, to be killed there: one workflow for each effect class, and some for counting."""

from __future__ import annotations

import asyncio

import poimen
from poimen import effects
from poimen.testing import Tape, entered_early, recording_tool, shared_syncs, sync_counter, taped

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


# ---- for counting ------------------------------------------------------------------------------------------------


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def touch(n: int) -> int:
    if taping():
        Tape.here().enter()
    return n


@poimen.workflow
async def one_after_another(n: int) -> int:
    return sum([await touch(i) for i in range(n)])


@poimen.workflow
async def at_once(n: int) -> int:
    return sum(await asyncio.gather(*[touch(i) for i in range(n)]))


def counted(db: str, n: int) -> dict[str, int]:
    """What a run of `n` effects costs, seen from inside."""
    with taped() as tape, sync_counter() as counter:
        poimen.run(one_after_another(n), db=db, run_id="r")
    return {"commits": len(tape.commits), "wal_syncs": counter.wal_syncs(db)}
