"""A setting is honoured or refused: none is taken and forgotten."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import poimen
from poimen import effects

if TYPE_CHECKING:
    from pathlib import Path


@poimen.tool(effect=effects.PURE, timeout=0.01, grace=0.01)
async def longer(n: int) -> int:
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 0.3)
    return n


@poimen.tool(effect=effects.PURE)
async def endless() -> None:
    await asyncio.Event().wait()


@poimen.workflow
async def has_time() -> int:
    return await longer.options(timeout=30)(7)


@poimen.workflow
async def has_none() -> str:
    try:
        await endless.options(timeout=0.01)()
    except TimeoutError as error:
        return str(error)
    return "it ended"


@poimen.step
async def unit() -> int:
    return await longer.options(timeout=30)(7)


@poimen.workflow
async def in_a_step() -> int:
    return await unit()


def test_the_time_of_one_call_of_a_pure_tool_is_kept(tmp_path: Path) -> None:
    assert poimen.run(has_time(), db=str(tmp_path / "p.db")) == 7
    assert poimen.run(has_none(), db=str(tmp_path / "p.db")) == "endless did not end in time"


def test_it_is_refused_inside_a_step_where_nobody_would_keep_it(tmp_path: Path) -> None:
    with pytest.raises(poimen.RunFailed) as caught:
        poimen.run(in_a_step(), db=str(tmp_path / "p.db"))
    assert "longer.options: timeout= was given inside the step unit#0" in str(caught.value)
    assert caught.value.error.type == "BadDeclaration"


def test_a_runtime_that_only_reads_is_refused_with_the_way_to_read(tmp_path: Path) -> None:
    db = tmp_path / "p.db"
    poimen.run(has_time(), db=str(db), run_id="r")

    async def main() -> None:
        with pytest.raises(poimen.ReadOnly) as caught:
            await poimen.Runtime.open(str(db), read_only=True)
        assert "poimen.Client.open(url, read_only=True)" in caught.value.hint
        assert "test_settings.py:" in caught.value.where
        with pytest.raises(poimen.ReadOnly):
            await poimen.Runtime.open(str(tmp_path / "nowhere.db"), read_only=True)
        client = await poimen.Client.open(str(db), read_only=True)
        assert await (await client.get("r")).result() == 7
        await client.close()
        runtime = await poimen.Runtime.open(str(db), modules=[__name__])
        await runtime.close()

    asyncio.run(main())
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("nowhere")] == []
