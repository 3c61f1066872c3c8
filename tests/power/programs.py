"""Workflows whose power is cut and whose storage fails: effects of every class, bodies of every size."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import poimen
from poimen.log.sqlite import SqliteStore
from poimen.testing import Witness, recording_tool
from poimen.testing.power.inside import RESULTS_VARIABLE

LARGE = 90_000
MIDDLE = 9_000

read = recording_tool("READ", name="power_read")
idempotent = recording_tool("IDEMPOTENT", name="power_idempotent")
keyed = recording_tool("KEYED", name="power_keyed")
probe = recording_tool("PROBE", name="power_probe")
once = recording_tool("AT_MOST_ONCE", name="power_once")


@poimen.tool(effect=poimen.effects.IDEMPOTENT)
async def fetched(n: int, size: int) -> str:
    """A long answer, with the effect's request id before it."""
    request = poimen.request_id()
    Witness.here().note(f"{request} {n}")
    return f"{request} {str(n) * size}"


def given(value: str) -> str:
    """Tell the outside that code was given an outcome."""
    if place := os.environ.get(RESULTS_VARIABLE):
        Witness(place).note(value.partition(" ")[0])
    return value


@poimen.step
async def pure(n: int) -> int:
    return n * n


@poimen.step
async def buys(what: str) -> str:
    await read(f"price of {what}")
    bought = await once(f"buy {what}")
    await idempotent(f"file {what}")
    return bought


@poimen.workflow
async def standard(rounds: int) -> int:
    """Effects alone and together, steps, a decision, small, middle and large bodies."""
    total = 0
    for n in range(rounds):
        poimen.decide(f"go-{n}", n)
        await keyed(f"k{n}")
        await asyncio.gather(probe(f"p{n}"), once(f"o{n}"), read(f"r{n}"))
        await buys(f"thing {n}")
        total += await pure(n)
        given(await fetched(n, MIDDLE))
        if n % 2 == 0:
            given(await fetched(n, LARGE))
    return total


@poimen.workflow
async def small(what: str) -> str:
    """Three effects: enough for every kind of call, few enough to fail each of them."""
    await keyed(what)
    given(await fetched(1, LARGE))
    return await once(what)


@poimen.workflow
async def large_bodies(rounds: int) -> int:
    """Every effect leaves a body that lies in a file of its own."""
    for n in range(rounds):
        given(await fetched(n, LARGE))
        await once(f"after {n}")
    return rounds


def until_full(db: str, rounds: int) -> dict[str, Any]:
    """Run on a small disk, of which a file takes most; tell how it ends."""
    try:
        poimen.run(large_bodies(rounds), db=db, run_id="r")
    except poimen.PoimenError as error:
        return told({"error": type(error).__name__, "why": error.message})
    return told({"error": ""})


def with_room(db: str, rounds: int) -> dict[str, Any]:
    """Go on where there is room again; tell how it ends and what the log says."""
    try:
        ended = str(poimen.run(large_bodies(rounds), db=db, run_id="r"))
    except poimen.RunWaiting:
        ended = "waiting"
    store = SqliteStore(db)
    records = store.read("r")
    damages = [damage.what for damage in store.check()]
    store.close()
    requests = {r.subject: json.loads(r.body)["request_id"] for r in records if r.kind == "intent.pending.v1"}
    closed = [requests[r.subject] for r in records if r.kind == "intent.committed.v1"]
    sent = [requests[r.subject] for r in records if r.kind == "intent.dispatched.v1"]
    return told({"ended": ended, "damages": damages, "closed": closed, "sent": sent})


def told(what: dict[str, Any]) -> dict[str, Any]:
    """A line of JSON, in a file that the parent has named."""
    with Path(os.environ["TOLD"]).open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(what)}\n")
    return what
