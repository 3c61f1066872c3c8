"""Tools that leave a line with an outside witness, and the workflows of the acceptance cases.

The witness is an append-only file outside the database: what it holds has happened, whatever the log says.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import poimen
from poimen import effects

# ---- the world outside --------------------------------------------------------------------------------------------


class Meeting:
    """Where a body of this process stops until it is let go.

    Arguments:
        manner: what it does when it is cancelled there: `stubborn` goes on waiting, `finishes` comes back as if
            nothing had happened, `not sent` and `rejected` say so, `plain` lets the cancellation through.
    """

    def __init__(self, manner: str = "plain") -> None:
        self.manner = manner
        self.entered = asyncio.Event()
        self.go = asyncio.Event()

    async def met(self) -> None:
        self.entered.set()
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                match self.manner:
                    case "stubborn":
                        continue
                    case "finishes":
                        return
                    case "not sent":
                        raise poimen.NotSent("called off in time") from None
                    case "rejected":
                        raise poimen.Rejected("the far side took the cancellation") from None
                    case _:
                        raise


class World:
    """What the tools act upon: the witness file, and places where they stop until they are let go."""

    def __init__(self) -> None:
        self.witness = ""
        self.stops: set[str] = set()
        self.meetings: dict[str, Meeting] = {}
        self.refused = 0
        self.outcomes: dict[str, asyncio.Event] = {}

    def mark(self, tool: str, about: str = "") -> None:
        """One line, in one write."""
        line = {"tool": tool, "about": about, "id": poimen.request_id(), "pid": os.getpid()}
        fd = os.open(self.witness, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, json.dumps(line).encode() + b"\n")
        os.close(fd)

    def lines(self, tool: str = "") -> list[dict[str, Any]]:
        try:
            with open(self.witness, encoding="utf-8") as file:  # noqa: PTH123 (nothing of the database)
                found = [json.loads(line) for line in file]
        except FileNotFoundError:
            return []
        return [line for line in found if tool in ("", line["tool"])]

    async def stop(self, tool: str) -> None:
        """Say that the body has been entered, and wait, if this tool is to stop: for a test here, or for the parent."""
        if tool in self.meetings:
            await self.meetings[tool].met()
        if tool in self.stops:
            say({"entered": tool, "id": poimen.request_id()})
            await asyncio.get_running_loop().run_in_executor(None, os.read, 0, 1)

    def outcome(self, tool: str) -> asyncio.Event:
        """Set when an outcome of the tool has become durable in this process."""
        return self.outcomes.setdefault(tool, asyncio.Event())


def say(what: Any) -> None:
    """One JSON line for the parent, in one write."""
    os.write(1, json.dumps(what).encode() + b"\n")


def time_passes(runtime: poimen.Runtime, run_id: str) -> None:
    """Let every timer fire that the code of a run waits for, as if its time had come."""
    worker = runtime._worker
    assert worker is not None
    driver = worker.drivers[run_id]
    due = [timer for timer in driver.workflow.timers.values() if timer.real is not None]
    assert due, "nothing waits for a time"
    for timer in due:
        timer.real.cancel()  # type: ignore[union-attr]
        driver.timers._fire(timer)


world = World()


# ---- tools ----------------------------------------------------------------------------------------------------------


async def landed(order: str) -> effects.Landed[str] | effects.Absent | effects.Unknown:
    """A complete look at the witness."""
    await world.stop("probe")
    found = [line for line in world.lines("push") if line["id"] == poimen.request_id()]
    return effects.Landed(f"pushed {order}", evidence=f"{len(found)} lines") if found else effects.Absent()


@poimen.tool(effect=effects.AT_MOST_ONCE, summary="mail to {to}", grace=0.05)
async def mail(to: str) -> str:
    world.mark("mail", to)
    await world.stop("mail")
    return f"mailed {to}"


@poimen.tool(effect=effects.KEYED(ttl=timedelta(hours=1)), summary="charge {cents} to {who}", grace=0.05)
async def charge(who: str, cents: int) -> str:
    world.mark("charge", f"{who} {cents}")
    await world.stop("charge")
    return f"charged {cents} to {who}"


@poimen.tool(effect=effects.PROBE(landed, lag=timedelta(0)), timeout=0.1, grace=0.05)
async def push(order: str) -> str:
    world.mark("push", order)
    await world.stop("push")
    return f"pushed {order}"


@poimen.tool(effect=effects.PROBE(landed, lag=timedelta(0)), timeout=30, grace=0.05)
async def parcel(order: str) -> str:
    """As `push`, where the far side may take its time."""
    world.mark("parcel", order)
    return f"sent {order}"


@poimen.tool(effect=effects.IDEMPOTENT, grace=0.05)
async def row(n: int) -> int:
    world.mark("row", str(n))
    await world.stop("row")
    return n


@poimen.tool(effect=effects.READ, grace=0.05)
async def look(what: str) -> str:
    world.mark("look", what)
    await world.stop("look")
    return f"saw {what}"


@poimen.tool(effect=effects.READ)
async def after(tool: str) -> str:
    """Comes back when an outcome of another tool is durable."""
    await world.outcome(tool).wait()
    return tool


@poimen.tool(effect=effects.KEYED(ttl=timedelta(hours=1)))
async def third(limit: int) -> str:
    """Is not reached the first `limit` times."""
    if len(world.lines("third")) < limit:
        world.mark("third", "refused")
        raise poimen.NotSent("the far side is away")
    world.mark("third", "done")
    return "third"


@poimen.tool(effect=effects.PURE)
async def double(n: int) -> int:
    return 2 * n


@dataclass(frozen=True)
class Wanted:
    """A call that a model asked for."""

    tool: str
    arg: str


@dataclass(frozen=True)
class Reply:
    """What a model answered."""

    text: str
    calls: tuple[Wanted, ...]


@poimen.model
async def chat(prompt: str) -> Reply:
    world.mark("chat", prompt)
    return Reply(f"about {prompt}", (Wanted("charge", "ann"), Wanted("push", "news"), Wanted("mail", "bob")))


# ---- workflows ------------------------------------------------------------------------------------------------------


@poimen.workflow
async def one_charge(who: str) -> str:
    return await charge(who, 10)


@poimen.workflow
async def one_mail(to: str) -> str:
    return await mail(to)


@poimen.workflow
async def one_push(order: str) -> str:
    return await push(order)


@poimen.workflow
async def one_parcel(order: str) -> str:
    return await parcel(order)


@poimen.workflow
async def one_row(n: int) -> int:
    return await row(n)


@poimen.workflow
async def one_look(what: str) -> str:
    return await look(what)


ONE: dict[str, Any] = {"charge": one_charge, "mail": one_mail, "push": one_push, "row": one_row, "look": one_look}


@poimen.step(attempts=3, backoff=0.001)
async def notify(to: str, failures: int) -> list[str]:
    """Mail, row, and a third tool that fails at first."""
    return [await mail(to), str(await row(1)), await third(failures)]


@poimen.workflow
async def notifying(to: str, failures: int) -> list[str]:
    return await notify(to, failures)


@poimen.workflow
async def agent(prompt: str) -> list[str]:
    """Ask the model once, then do what it asked for, one call after another."""
    reply = await chat(prompt)
    done = [reply.text]
    for wanted in reply.calls:
        match wanted.tool:
            case "charge":
                done.append(await charge(wanted.arg, 5))
            case "push":
                done.append(await push(wanted.arg))
            case _:
                done.append(await mail(wanted.arg))
    return done


@poimen.workflow
async def agent_at_once(prompt: str) -> list[str]:
    """Ask the model once, then do what it asked for; two of the calls at the same time."""
    reply = await chat(prompt)
    first = await charge(reply.calls[0].arg, 5)
    return [first, *await asyncio.gather(push(reply.calls[1].arg), mail(reply.calls[2].arg))]


@poimen.workflow
async def siblings() -> list[str]:
    """Two calls at once; the second is made when the first is answered."""

    async def second() -> str:
        await after("charge")
        return await mail("bob")

    return list(await asyncio.gather(charge("ann", 10), second()))


@poimen.workflow
async def pair(who: str) -> list[str]:
    """Two different effects at once."""
    return list(await asyncio.gather(charge(who, 10), mail(who)))


@poimen.workflow
async def fan(n: int) -> list[int]:
    """Many different steps at once."""
    return await asyncio.gather(*[row.options(key=f"row-{i}")(i) for i in range(n)])


@poimen.workflow
async def long(n: int) -> int:
    """Effects one after another."""
    total = 0
    for i in range(n):
        total += await row(i)
    return total


@poimen.workflow
async def tenant(prompt: str) -> list[str]:
    """A model call, a decision and an effect, whoever the run is for."""
    reply = await chat(prompt)
    poimen.decide("plan", reply.text)
    return [reply.text, await charge("ann", len(prompt))]
