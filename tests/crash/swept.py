"""Workflows that are swept: rightly declared, and wrongly in each way that a sweep must show."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import poimen
from poimen import effects
from poimen.testing import Witness, recording_tool


def mark(what: str) -> str:
    Witness.here().note(f"{poimen.request_id()} {what}")
    return what


async def find(what: str) -> effects.Landed[str] | effects.Absent | effects.Unknown:
    line = f"{poimen.request_id()} {what}"
    return effects.Landed(what) if line in Witness.here().lines() else effects.Absent()


async def believe(what: str) -> effects.Landed[str] | effects.Absent | effects.Unknown:
    return effects.Landed(what)


@poimen.tool(effect=effects.READ)
async def look(what: str) -> str:
    return what


@poimen.tool(effect=effects.KEYED(ttl=timedelta(days=1)))
async def charge(what: str) -> str:
    """The far side knows our key: the second time it does nothing."""
    known = any(line.startswith(poimen.request_id()) for line in Witness.here().lines())
    return what if known else mark(what)


@poimen.tool(effect=effects.PROBE(find, lag=timedelta(0)))
async def book(what: str) -> str:
    return mark(what)


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def mail(what: str) -> str:
    return mark(what)


@poimen.step
async def order(what: str) -> str:
    return await charge(what) + await book(what)


@poimen.workflow
async def right(what: str) -> str:
    poimen.decide("the:order", what)
    await look(what)
    await order(what)
    return await mail(what)


wrongly_idempotent = recording_tool("IDEMPOTENT", name="wrongly_idempotent")


@poimen.workflow
async def mails_twice(what: str) -> str:
    return await wrongly_idempotent(what)


@poimen.tool(effect=effects.PROBE(believe, lag=timedelta(0)))
async def credulous(what: str) -> str:
    return mark(what)


@poimen.workflow
async def loses(what: str) -> str:
    return await credulous(what)


@poimen.workflow
async def mails(what: str) -> str:
    return await mail(what)


@poimen.tool(effect=effects.IDEMPOTENT)
async def publish(what: str) -> str:
    Witness.here().note(f"publish {what}")
    Witness.here().note(f"page-{what}")
    return what


@poimen.workflow
async def names_otherwise(what: str) -> str:
    return await publish(what)


@poimen.tool(effect=effects.IDEMPOTENT)
async def silent(what: str) -> str:
    return what


@poimen.workflow
async def unseen(what: str) -> str:
    return await silent(await mail(what))


@poimen.workflow
async def shows_nothing(what: str) -> str:
    return await silent(what)


@poimen.tool(effect=effects.READ)
async def look_alone(what: str) -> str:
    entered = Path(f"{os.environ['POIMEN_WITNESS']}.entered")
    if entered.exists():
        raise ValueError("it cannot be read a second time")
    entered.touch()
    return mark(what)


@poimen.workflow
async def ends_otherwise(what: str) -> str:
    return await look_alone(what)


@poimen.workflow
async def fails(what: str) -> str:
    raise ValueError(what)
