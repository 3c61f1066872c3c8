"""Programs for simulated schedules: each class, side by side and one after the other, slow, failing, given up."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import poimen
from poimen import effects
from poimen.testing import World

if TYPE_CHECKING:
    from poimen.testing import Simulation

KEY_LIVES = timedelta(seconds=40)
SLOW_S = 1.6
"""How long a call can take; its time is out after 0.4 s, its grace 0.2 s later."""
LAG = timedelta(seconds=1)
"""A booking shows so long after it was made."""


async def moved(what: str, kind: str) -> str:
    """Take a while, perhaps do something, perhaps fail before or behind it."""
    world = World.here()
    draw = world.chance.random()
    await world.wait(0 if draw < 0.5 else draw * 0.1 if draw < 0.9 else SLOW_S * world.chance.random())
    fails = world.chance.random()
    if fails < 0.04:
        raise poimen.NotSent("refused before bytes left")
    if fails < 0.08 and kind != "mail":
        raise poimen.Rejected("no room")
    if fails < 0.12:
        raise ConnectionError("lost on the way there")
    if kind != "charge" or not any(m.what == f"{kind} {what}" for m in world.of(poimen.request_id())):
        world.note(f"{kind} {what}", result=f"{kind} {what}")
    if fails < 0.18:
        raise ConnectionError("lost on the way back")
    if fails > 0.95:
        await world.wait(SLOW_S * world.chance.random())
    return f"{kind} {what}"


async def find(what: str) -> effects.Landed[str] | effects.Absent | effects.Unknown:
    world = World.here()
    if world.chance.random() < 0.2:
        await world.wait(world.chance.random() * 0.1)
    if world.chance.random() < 0.1:
        raise ConnectionError("not to be reached")
    shown = [m for m in world.of(poimen.request_id()) if world.now_s() >= m.at_s + LAG.total_seconds() * 0.9]
    return effects.Landed(str(shown[-1].result)) if shown else effects.Absent()


@poimen.tool(effect=effects.READ, timeout=0.4, grace=0.2, attempts=3, backoff=0.01)
async def look(what: str) -> str:
    return await moved(what, "look")


@poimen.tool(effect=effects.IDEMPOTENT, timeout=0.4, grace=0.2, attempts=3, backoff=0.01)
async def reserve(what: str) -> str:
    return await moved(what, "reserve")


@poimen.tool(effect=effects.KEYED(ttl=KEY_LIVES), timeout=0.4, grace=0.2, attempts=3, backoff=0.01)
async def charge(what: str) -> str:
    return await moved(what, "charge")


@poimen.tool(effect=effects.PROBE(find, lag=LAG), timeout=0.4, grace=0.2, attempts=3, backoff=0.01)
async def book(what: str) -> str:
    return await moved(what, "book")


@poimen.tool(effect=effects.AT_MOST_ONCE, timeout=0.4, grace=0.2, attempts=3, backoff=0.01)
async def mail(what: str) -> str:
    return await moved(what, "mail")


@poimen.tool(effect=effects.AT_MOST_ONCE, timeout=0.4, grace=0.2)
def print_out(what: str) -> str:
    World.here().note(f"print {what}", result=f"print {what}")
    return f"print {what}"


@poimen.tool(effect=effects.PURE)
async def add_up(a: str, b: str) -> str:
    return f"{a} + {b}"


@poimen.step(attempts=2, backoff=0.01)
async def prepare(what: str) -> list[str]:
    """Two effects in one attempt, side by side."""
    return list(await asyncio.gather(reserve(what), book(what)))


@poimen.workflow
async def order(what: str) -> list[str]:
    """A step beside an effect, then a time-out of the workflow's own."""
    poimen.decide("plan", what)
    done = await asyncio.gather(prepare(what), mail(what), return_exceptions=True)
    try:
        async with asyncio.timeout(0.3):
            last = await charge(what)
    except TimeoutError:
        last = "too late"
    return [str(done), await add_up(last, last)]


@poimen.workflow
async def letter(what: str) -> str:
    """One effect behind the other."""
    return await add_up(await mail(what), await print_out.aio(what))


@poimen.workflow
async def pair(what: str) -> list[str]:
    """Two effects side by side; the first that ends calls the other off."""
    first, *others = [asyncio.ensure_future(one) for one in (charge(what), look(what))]
    done, left = await asyncio.wait([first, *others], return_when=asyncio.FIRST_COMPLETED)
    for one in left:
        one.cancel()
    found = await asyncio.gather(*done, *left, return_exceptions=True)
    return sorted(type(one).__name__ for one in found)


def mixed(seed: int) -> list[poimen.Call[list[str]] | poimen.Call[str]]:
    """One run or two that share their workers."""
    programs: list[list[poimen.Call[list[str]] | poimen.Call[str]]] = [
        [order("tea")],
        [letter("hello")],
        [pair("tea")],
        [letter("hello"), pair("tea")],
        [letter("hello")],
        [pair("tea")],
    ]
    return programs[seed % len(programs)]


@poimen.workflow
async def leaves(what: str) -> str:
    """Set a timer where it is nobody's, for long after the end."""
    loop = asyncio.get_running_loop()._main  # type: ignore[attr-defined]
    loop.call_later(1e6, print, what)
    return what


# ---- a tool that checks, and then acts -------------------------------------------------------------------------------


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def sell(what: str) -> str:
    """One piece is there. Whoever sees it takes it a turn later."""
    shop = World.here()
    if shop.memory.get("sold"):
        raise poimen.Rejected("sold out")
    await shop.wait(0)
    shop.memory["sold"] = what
    shop.note(f"sold {what}", result=f"sold {what}")
    return f"sold {what}"


@poimen.workflow
async def early(what: str) -> str:
    return await sell(what)


@poimen.workflow
async def late(what: str) -> str:
    await add_up(what, what)
    return await sell(what)


def shop() -> list[poimen.Call[str]]:
    """Two customers, of whom one comes a little later."""
    return [early("ann"), late("bob")]


def oversold(simulation: Simulation) -> list[str]:
    sold = [mark.what for mark in simulation.marks]
    return [f"oversold: {sold}"] if len(sold) > 1 else []
