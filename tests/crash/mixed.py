"""One run with everything in it: each class, steps of several effects, effects side by side, retries, decisions.

Each effect leaves a line at the witness and says so; what the code was told of, it notes there too.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import poimen
from poimen import effects
from poimen.engine.reading import find_intent
from poimen.testing import Witness, recording_tool

KEY_LIVES = timedelta(hours=24)


def acts(what: str) -> str:
    """Leave a mark on the world; give its name, so that the code can say that it was told of it."""
    Witness.here().note(f"{poimen.request_id()} {what}")
    return f"{poimen.request_id()} {what}"


def told(outcome: str) -> str:
    """The code has been told of an outcome."""
    request_id, _, what = outcome.partition(" ")
    Witness.here().note(f"told outcome {request_id}")
    return what


def decided(name: str, value: str) -> None:
    poimen.decide(name, value)
    Witness.here().note(f"told decision {name}")


async def find(what: str) -> effects.Landed[str] | effects.Absent | effects.Unknown:
    line = f"{poimen.request_id()} {what}"
    return effects.Landed(line) if line in Witness.here().lines() else effects.Absent()


look = recording_tool("READ", name="look")


@poimen.tool(effect=effects.IDEMPOTENT)
async def reserve(what: str) -> str:
    return acts(f"reserved {what}")


@poimen.tool(effect=effects.KEYED(ttl=KEY_LIVES))
async def charge(what: str) -> str:
    return acts(f"charged {what}")


@poimen.tool(effect=effects.PROBE(find, lag=timedelta(0)))
async def book(what: str) -> str:
    return acts(what)


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def mail(what: str) -> str:
    return acts(f"mailed {what}")


@poimen.tool(effect=effects.AT_MOST_ONCE, attempts=4, backoff=0.001)
async def call_in(what: str) -> str:
    busy = Path(f"{Witness.here().path}.busy")
    if not busy.exists():
        busy.touch()
        raise poimen.NotSent("the line is busy")
    return acts(f"called in {what}")


@poimen.tool(effect=effects.PURE)
async def add_up(a: str, b: str) -> str:
    return f"{a} + {b}"


@poimen.step
async def prepare(what: str) -> str:
    """Three effects in one attempt, the last two side by side."""
    first = told(await reserve(what))
    both = await asyncio.gather(charge(what), book(what))
    return " & ".join([first, *map(told, both)])


@poimen.step(attempts=3, backoff=0.001)
async def insist(what: str) -> str:
    """Its first attempt fails behind an effect, which the second one inherits."""
    done = told(await charge(f"{what} deposit"))
    failed = Path(f"{Witness.here().path}.failed")
    if not failed.exists():
        failed.touch()
        raise RuntimeError("an unlucky first attempt")
    return done


@poimen.workflow
async def mixed(what: str) -> list[str]:
    decided("plan", what)
    await look(what)
    prepared = await prepare(what)
    side_by_side = await asyncio.gather(mail(what), book(f"{what} too"), charge(f"{what} too"), insist(what))
    decided("call", what)
    called = told(await call_in.options(decision="call")(what))
    poimen.settle("call")
    last = told(await mail(f"{what} again"))
    return [prepared, *map(told, side_by_side[:3]), side_by_side[3], called, last, await add_up(prepared, called)]


def operator(db: str) -> int:
    """Whoever is called: look at the world, and say what it shows."""
    return asyncio.run(_decide(db))


async def _decide(db: str) -> int:
    lines = {line.partition(" ")[0]: line for line in Witness.here().lines()}
    done = 0
    async with poimen.Client(db) as client:
        async for item in client.inbox():
            assert item.kind == "effect", item
            _, intent = find_intent(client.store, item.id)
            line = lines.get(intent.pending.request_id)
            why = "looked at the world"
            if line is None:
                await client.resolve(item.id, "not_landed", by="ann", why=why, expect_lsn=item.lsn)
            else:
                await client.resolve(item.id, "landed", by="ann", why=why, result=line, expect_lsn=item.lsn)
            done += 1
    return done
