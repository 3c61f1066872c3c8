"""What is measured: one tool, one pure step, and workflows that call them."""

from __future__ import annotations

import asyncio
import time

import poimen
from poimen import effects


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def act(order: str, cents: int) -> str:
    """Do nothing, as an effect."""
    return f"charged {cents} for {order}"


@poimen.step
async def pure(n: int) -> int:
    """Do nothing, as a step without effects."""
    return n


LAPS: list[float] = []
"""Seconds that each lone effect took, filled by `lone`."""


@poimen.workflow
async def lone(times: int) -> int:
    """Make effects one at a time, and note how long each took."""
    for n in range(times):
        began = time.perf_counter()
        await act("tea", n)
        LAPS.append(time.perf_counter() - began)
    return times


@poimen.workflow
async def crowd(callers: int, times: int) -> int:
    """Let many callers make effects at once."""

    async def caller(number: int) -> None:
        for n in range(times):
            await act(f"order {number}", n)

    await asyncio.gather(*(caller(number) for number in range(callers)))
    return callers * times


@poimen.workflow
async def steps(times: int) -> int:
    """Make pure steps, one after another."""
    for n in range(times):
        await pure(n)
    return times
