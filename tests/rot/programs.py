"""A workflow whose log has a bit of everything: steps, decisions, tools, small, middling and large bodies."""

from __future__ import annotations

import poimen
from poimen.testing import recording_tool

put = recording_tool("IDEMPOTENT", name="put")
mail = recording_tool("AT_MOST_ONCE", name="mail")


@poimen.step
async def gather(what: str) -> str:
    await put(f"{what}-1")
    await put("m" * 17_000)
    return what * 3_000


@poimen.workflow
async def order(what: str) -> str:
    poimen.decide("what", what)
    for _ in range(2):
        await gather(what)
    await put("L" * 70_000 + what)
    return await mail(what)
