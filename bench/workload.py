"""What is measured: tools, pure steps, and workflows that call them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

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
"""Seconds that each effect or step took, filled by `lone` and `grow`."""


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


WITNESS = "POIMEN_BENCH_WITNESS"
"""Names the file that the tool `stay` writes to."""


@poimen.tool(effect=effects.AT_MOST_ONCE, timeout=600)
async def stay(number: int) -> None:
    """Leave a line with the witness and do not come back."""
    with Path(os.environ[WITNESS]).open("a", encoding="utf-8") as witness:
        witness.write(f"{number}\n")
    await asyncio.Event().wait()


@poimen.workflow
async def killed(number: int) -> None:
    """Make one effect in which the process will be killed."""
    await stay(number)


@poimen.workflow
async def grow(times: int) -> int:
    """Make pure steps, and note how long each took."""
    for n in range(times):
        began = time.perf_counter()
        await pure(n)
        LAPS.append(time.perf_counter() - began)
    return times


@poimen.step
async def write(size: int) -> str:
    """Give back a text of `size` characters."""
    return "x" * size


@poimen.workflow
async def texts(times: int, size: int) -> int:
    """Make steps with results of a size, in characters."""
    for _ in range(times):
        await write(size)
    return times
