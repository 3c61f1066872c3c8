"""A workflow with anyio's cancel scopes around a tool, a step and a group."""

from __future__ import annotations

import asyncio

import anyio

import poimen
from poimen import effects
from tests.crash.swept import order


@poimen.tool(effect=effects.READ, grace=0.05)
async def never(what: str) -> str:
    await asyncio.Event().wait()
    return what


@poimen.step
async def looks(what: str) -> str:
    return await never(what)


@poimen.workflow
async def leaves(what: str) -> list[bool]:
    with anyio.move_on_after(0.01) as tool:
        await never(what)
    with anyio.move_on_after(0.05) as step:
        await looks(what)
    with anyio.move_on_after(0.05) as outer:
        async with anyio.create_task_group() as group:
            group.start_soon(never, what)
            try:
                with anyio.fail_after(20):
                    await asyncio.gather(never.aio(what), never.aio(f"{what}, too"))
            finally:
                with anyio.CancelScope(shield=True):
                    await order(what)
    return [scope.cancelled_caught for scope in (tool, step, outer)]
