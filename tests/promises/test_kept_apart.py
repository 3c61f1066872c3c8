"""What goes wrong with one run is told of that run: it neither hangs nor stops the others, and mended it goes on."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import poimen
from poimen import effects
from poimen.kernel.errors import Corrupt
from tests.log.stores import edited

if TYPE_CHECKING:
    from pathlib import Path


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def mail(to: str) -> str:
    raise ConnectionError("the answer was lost")


@poimen.step
async def large(n: int) -> str:
    return "x" * n


@poimen.tool(effect=effects.READ)
async def fetch(n: int) -> str:
    return "y" * n


@poimen.workflow
async def waits(n: int) -> int:
    text = await large(n)
    return len(text) + len(await mail("bob"))


@poimen.workflow
async def healthy(n: int) -> int:
    return n


@poimen.workflow
async def fetches(n: int) -> int:
    return len(await fetch(n))


@poimen.workflow
async def long_input(text: str) -> int:
    return len(text)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """One run that waits for a person, with a body beside it."""
    db = tmp_path / "p.db"
    with pytest.raises(poimen.RunWaiting):
        poimen.run(waits(90_000), db=str(db), run_id="w")
    return db


def test_a_waiting_run_that_cannot_be_read_stops_no_other(db: Path) -> None:
    edited(db, "UPDATE record SET body = CAST('{}' AS BLOB) WHERE lsn = 3")

    async def main() -> list[int]:
        async with poimen.Runtime(str(db), modules=[__name__]) as runtime:
            found = [await (await runtime.start(healthy(n))).result(timeout=30) for n in range(2)]
            with pytest.raises(Corrupt):
                await (await runtime.get("w")).result(timeout=30)
            return found

    assert asyncio.run(main()) == [0, 1]


def test_a_result_that_is_gone_is_told_and_the_run_does_not_hang(db: Path) -> None:
    blobs = db.with_name("p.db.blobs")
    away = db.with_name("away")
    shutil.move(blobs, away)

    async def main() -> int:
        async with poimen.Runtime(str(db), modules=[__name__]) as runtime:
            (item,) = [item async for item in runtime.inbox()]
            await runtime.resolve(item.id, "landed", by="op", why="seen", result="sent", expect_lsn=item.lsn)
            run = await runtime.get("w", waits)
            with pytest.raises(Corrupt, match="gone"):
                await run.result(timeout=30)
            return await (await runtime.start(healthy(7))).result(timeout=30)

    async def mended() -> int:
        async with poimen.Runtime(str(db), modules=[__name__]) as runtime:
            return await (await runtime.get("w", waits)).result(timeout=30)

    assert asyncio.run(main()) == 7
    shutil.move(away, blobs)
    assert asyncio.run(mended()) == 90_004


def test_what_a_tool_returns_lies_beside_the_log_when_it_is_large(tmp_path: Path) -> None:
    db = tmp_path / "p.db"
    assert poimen.run(fetches(2_000_000), db=str(db), run_id="r") == 2_000_000
    assert poimen.run(fetches(2_000_000), db=str(db), run_id="r") == 2_000_000
    assert db.stat().st_size < 1_000_000
    assert sum(file.stat().st_size for file in db.with_name("p.db.blobs").rglob("*") if file.is_file()) > 2_000_000
    checked = subprocess.run([sys.executable, "-m", "poimen", "--db", str(db), "log", "check"], check=False)
    assert checked.returncode == 0


def test_a_folder_that_is_gone_hides_no_difference(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    script = f"""
import os, poimen
from poimen import effects

@poimen.tool(effect=effects.IDEMPOTENT)
def put(n: int) -> int:
    return n

@poimen.workflow
def flow() -> int:
    return put(int(os.environ["N"])) + put(3)

os.rmdir({str(folder)!r})
try:
    poimen.run(flow(), db={str(tmp_path / "p.db")!r}, run_id="r")
except poimen.RunWaiting as waiting:
    print(waiting.reason)
try:
    poimen.run(flow)
except poimen.PoimenError as error:
    print(error.code)
"""
    said = []
    for n, crash in (("1", "committed:put:1"), ("2", "")):
        folder.mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=folder,
            env={"N": n, "POIMEN_CRASH": crash, "PATH": ""},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        said.append(done.stdout.split())
    assert said == [[], ["code", "PO115"]]
