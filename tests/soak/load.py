"""What the workers of a soak drive: each class, steps, decisions, effects side by side; every effect leaves a line.

A line is `REQUEST_ID TIME RUN WHAT`, its time in microseconds; what code was told of, `told outcome REQUEST_ID RUN` and
`told decision NAME RUN`.
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta

import poimen
from poimen import effects
from poimen.testing import Witness

FAR = "SOAK_FAR"
"""The variable that names the socket of the far side."""

FIRST: list[float] = []
"""When this process entered its first tool."""


def line(what: str) -> str:
    return f"{poimen.request_id()} {time.time_ns() // 1000} {what}"


def entered() -> None:
    if not FIRST:
        FIRST.append(time.monotonic())
        print("first", FIRST[0], flush=True)


def acts(what: str) -> str:
    entered()
    Witness.here().note(line(what))
    return f"{poimen.request_id()} {what}"


async def ask_far(verb: str, what: str) -> str:
    """Say something to the service, which dedupes by request id."""
    reader, writer = await asyncio.open_unix_connection(f"\0{os.environ[FAR]}")
    try:
        writer.write(f"{verb} {line(what)}\n".encode())
        return (await reader.readline()).decode().strip()
    finally:
        writer.close()


async def put(what: str) -> str:
    entered()
    if await ask_far("put", what) not in {"new", "known"}:
        raise ConnectionError("the far side did not answer")
    return f"{poimen.request_id()} {what}"


async def find(what: str) -> effects.Landed[str] | effects.Absent | effects.Unknown:
    answer = await ask_far("find", what)
    if answer == "known":
        return effects.Landed(f"{poimen.request_id()} {what}")
    return effects.Absent() if answer == "new" else effects.Unknown("no answer")


def told(outcome: str) -> str:
    request_id, run, what = outcome.split(" ", 2)
    Witness.here().note(f"told outcome {request_id} {run}")
    return what


def decided(run: str, name: str) -> None:
    poimen.decide(name, run)
    Witness.here().note(f"told decision {name} {run}")


@poimen.tool(effect=effects.READ)
async def look(what: str) -> str:
    entered()
    return what


@poimen.tool(effect=effects.IDEMPOTENT)
async def reserve(what: str) -> str:
    return acts(what)


@poimen.tool(effect=effects.KEYED(ttl=timedelta(hours=24)))
async def charge(what: str) -> str:
    return await put(what)


@poimen.tool(effect=effects.PROBE(find, lag=timedelta(0)), timeout=2, grace=0.5)
async def book(what: str) -> str:
    return await put(what)


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def mail(what: str) -> str:
    done = acts(what)
    await ask_far("wait", what)  # done, and not told yet: where a kill leaves what only a person can tell
    return done


@poimen.tool(effect=effects.PURE)
async def add_up(n: int) -> int:
    return n * n


@poimen.step
async def prepare(run: str) -> str:
    first = told(await reserve(f"{run} reserved"))
    both = await asyncio.gather(charge(f"{run} deposit"), book(f"{run} room"))
    return " ".join([first, *map(told, both)])


@poimen.step(attempts=3, backoff=0.001)
async def insist(run: str, n: int) -> str:
    """Its first attempt fails behind an effect, in one run of four."""
    done = told(await charge(f"{run} insisted"))
    if n % 4 == 0 and poimen.current().attempt == 1:
        raise RuntimeError("an unlucky first attempt")
    return done


@poimen.workflow
async def mixed(run: str, n: int) -> list[str]:
    decided(run, "plan")
    await look(f"{run} looked")
    said = [await prepare(run)]
    several = await asyncio.gather(
        mail(f"{run} mailed {'x' * (n % 7) * 400}"), book(f"{run} seat"), charge(f"{run} rest"), insist(run, n)
    )
    said += [*map(told, several[:3]), several[3]]
    decided(run, "call")
    said.append(told(await mail.options(decision="call")(f"{run} called")))
    poimen.settle("call")
    return [*said, str(await add_up(n))]
