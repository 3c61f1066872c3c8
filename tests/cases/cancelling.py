"""Workflows that are stopped: from outside, by themselves, willingly and not.

Beside each tool of `agents` that is a step of its own stands a step that makes the same effect.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import poimen
from poimen import effects
from tests.cases.agents import charge, double, look, mail, push, row, world

ARGS: dict[str, tuple[Any, ...]] = {
    "charge": ("ann", 10),
    "mail": ("bob",),
    "push": ("news",),
    "row": (7,),
    "look": ("sky",),
}
TOOLS: dict[str, Any] = {"charge": charge, "mail": mail, "push": push, "row": row, "look": look}


@poimen.step(attempts=1)
async def part(name: str) -> str:
    return str(await TOOLS[name](*ARGS[name]))


@poimen.workflow
async def alone(name: str) -> str:
    """A tool that is its own step."""
    return str(await TOOLS[name](*ARGS[name]))


@poimen.workflow
async def inside(name: str) -> str:
    """The same effect in a step."""
    return await part(name)


@poimen.tool(effect=effects.READ)
async def stand() -> str:
    """A second effect under way, so that commits are not made in place."""
    await world.stop("stand")
    return "stood"


@poimen.workflow
async def bystander() -> str:
    return await stand()


@poimen.workflow
async def idle() -> str:
    """Waits for a time that never comes, with nothing dispatched."""
    await asyncio.sleep(3600)
    return "slept"


@poimen.workflow
async def nested(n: int) -> list[str]:
    """Some reads at once, in tasks of tasks."""

    async def one(i: int) -> str:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(look(f"left {i}"))
            second = group.create_task(part("look"))
        return first.result() + second.result()

    return await asyncio.gather(*[one(i) for i in range(n)])


# ---- code that does not want to hear ------------------------------------------------------------------------------


@poimen.workflow
async def swallows(then: str) -> str:
    """Does not let the cancellation through."""
    told = "not told"
    try:
        await look("sky")
    except asyncio.CancelledError:
        try:
            told = await mail("after the end")
        except poimen.NotSent as refused:
            told = f"refused: {refused.message}"
    match then:
        case "returns":
            return told
        case "raises":
            raise ValueError(told)
        case "waits":
            await asyncio.Event().wait()
        case "sleeps":
            await asyncio.sleep(3600)
        case "insists":
            while True:
                try:
                    await mail("again")
                except (poimen.PoimenError, asyncio.CancelledError):
                    continue
        case _:
            raise AssertionError(then)
    return told


@poimen.step(attempts=1)
async def deaf(then: str) -> str:
    """A step that goes on waiting after it was cancelled."""
    while True:
        try:
            await look("sky")
            return "saw"  # noqa: TRY300 (what was seen first counts)
        except asyncio.CancelledError:
            break
    while True:
        try:
            if then == "waits":
                await asyncio.Event().wait()
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


@poimen.workflow
async def with_deaf(then: str) -> str:
    return await deaf(then)


@poimen.workflow
async def leaves_deaf(then: str) -> str:
    """Ends while a step of its own goes on."""
    left = asyncio.ensure_future(deaf(then))
    await look("sea")
    return "left" if not left.done() else "over"


# ---- retries ------------------------------------------------------------------------------------------------------


@poimen.tool(effect=effects.KEYED(ttl=timedelta(hours=1)), attempts=3, backoff=60)
async def away() -> str:
    raise poimen.NotSent("the far side is away")


@poimen.step(attempts=3, backoff=60)
async def trying() -> str:
    raise ValueError("not this time")


@poimen.workflow
async def backing_off(kind: str) -> str:
    return await (away() if kind == "tool" else trying())


# ---- limits of its own --------------------------------------------------------------------------------------------


@poimen.workflow
async def limited(name: str, *, in_step: bool) -> list[str]:
    """A time limit around one call; an effect afterwards, where a test can stop the process."""
    try:
        async with asyncio.timeout(3600):
            told = await (part(name) if in_step else TOOLS[name](*ARGS[name]))
    except TimeoutError:
        told = "timed out"
    return [str(told), str(await double(21)), str(await row(1))]


# ---- plain functions ----------------------------------------------------------------------------------------------


@poimen.workflow
def in_thread(name: str) -> str:
    """A workflow that is a plain function: the cancellation arrives at its call."""
    try:
        told = TOOLS[name].sync(*ARGS[name])
    except asyncio.CancelledError:
        try:
            row.sync(1)
        except poimen.NotSent:
            world.refused += 1
        raise
    return str(told) + str(row.sync(2))


@poimen.step(attempts=1)
def thread_part(name: str) -> str:
    return str(TOOLS[name].sync(*ARGS[name])) + str(row.sync(2))


@poimen.workflow
async def with_thread(name: str) -> str:
    return await thread_part.aio(name)
