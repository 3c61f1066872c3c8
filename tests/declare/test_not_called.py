"""What is started is the call of a workflow: anything else is refused, with what to write instead."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import poimen
from poimen import effects
from poimen.engine.handle import NotACall

HERE = Path(__file__)


@poimen.tool(effect=effects.IDEMPOTENT)
def put(order: str) -> str:
    return order


@poimen.workflow
async def shop(order: str) -> str:
    return await put.aio(order)


async def plain() -> str:
    return ""


GIVEN = [
    (lambda: shop, "shop, a workflow that was not called", "call it: {by}(shop(...))"),
    (lambda: put, "tool put, not the call of a workflow", "call a workflow: {by}(workflow(...))"),
    (lambda: 42, "int, not the call of a workflow", "call a workflow: {by}(workflow(...))"),
    (plain, "coroutine, not the call of a workflow", "call a workflow: {by}(workflow(...))"),
]


@pytest.mark.parametrize(("given", "what", "hint"), GIVEN)
@pytest.mark.parametrize("by", ["poimen.run", "Runtime", "Client"])
def test_what_is_no_call_is_refused_and_nothing_is_started(
    tmp_path: Path, given: Any, what: str, hint: str, by: str
) -> None:
    db = str(tmp_path / "p.db")

    async def start() -> None:
        async with getattr(poimen, by)(db) as client:
            await client.start(given())

    with pytest.raises(NotACall) as refused:
        poimen.run(given(), db=db) if by == "poimen.run" else asyncio.run(start())
    name = {"poimen.run": by, "Runtime": "rt.start", "Client": "client.start"}[by]
    assert refused.value.message == f"{name} was given {what}"
    assert refused.value.hint == hint.format(by=name)
    assert refused.value.where.rpartition(":")[0].endswith(HERE.name)
    assert by != "poimen.run" or not (tmp_path / "p.db").exists()
