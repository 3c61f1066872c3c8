"""Runs that park on an unknown effect, each kind of code in its own way; what tools were asked for goes to stdout.

Started by test_dropping.py: `parked.py RUNS KIND...`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
from collections import Counter
from typing import Any

import poimen
from poimen import effects

SEEN: Counter[str] = Counter()
HELD: list[asyncio.Future[Any]] = []


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def act(n: int) -> int:
    """Whether it acted, nobody knows."""
    SEEN["entered"] += 1
    raise ConnectionResetError(n)


@poimen.tool(effect=effects.IDEMPOTENT)
async def clean(n: int) -> int:
    SEEN["cleaned up in the world"] += 1
    return n


@poimen.tool(effect=effects.IDEMPOTENT)
async def fine(n: int) -> int:
    return n


async def _acting(n: int) -> int:
    try:
        return await act(n)
    except Exception:
        SEEN["caught as an error"] += 1
        raise
    except asyncio.CancelledError:
        SEEN["caught as a cancellation"] += 1
        raise
    finally:
        SEEN["in finally"] += 1
        await clean(n)
        SEEN["went on after an effect in finally"] += 1


@poimen.workflow
async def plain() -> int:
    return await _acting(1)


@poimen.workflow
async def gathered() -> int:
    await fine(1)
    return sum(await asyncio.gather(_acting(1), _acting(2), fine(3)))


@poimen.workflow
async def grouped() -> int:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_acting(1))
            group.create_task(_acting(2))
            await _acting(3)
    except Exception:
        SEEN["a group caught as an error"] += 1
        raise
    return 0


@poimen.workflow
async def shielded() -> int:
    return await asyncio.shield(asyncio.ensure_future(_acting(1)))


@poimen.workflow
async def stray() -> int:
    HELD.append(asyncio.ensure_future(_acting(1)))
    return await _acting(2)


@poimen.workflow
async def generator() -> int:
    async def results() -> Any:
        try:
            yield await fine(1)
            yield await act(1)
        finally:
            SEEN["in finally"] += 1
            await clean(1)

    total = 0
    async for value in results():
        total += value
    return total


@poimen.workflow
async def locked() -> int:
    lock, queue = asyncio.Lock(), asyncio.Queue[int]()

    async def holder() -> int:
        async with lock:
            return await _acting(1)

    async def waiter() -> int:
        try:
            async with lock:
                return await queue.get()
        finally:
            SEEN["in finally"] += 1
            await clean(2)

    return sum(await asyncio.gather(holder(), waiter(), queue.get()))


@poimen.workflow
async def timed() -> int:
    async with asyncio.timeout(60):
        await fine(1)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.sleep(3600), 0.005)
    return await _acting(1)


@poimen.workflow
async def hostile() -> int:
    while True:
        try:
            return await act(1)
        except BaseException:  # noqa: BLE001 (what this program is about)
            continue


@poimen.workflow
async def deaf() -> int:
    async def hears_nothing() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except BaseException:  # noqa: BLE001 (what this program is about)
                continue

    HELD.append(asyncio.ensure_future(hears_nothing()))
    return await act(1)


@poimen.workflow
async def spinning() -> int:
    try:
        return await act(1)
    except BaseException:  # noqa: BLE001 (what this program is about)
        while True:
            try:
                await asyncio.sleep(0)
            except BaseException:  # noqa: BLE001 (as above)
                continue


@poimen.step
async def _hostile_body(n: int) -> int:
    while True:
        try:
            return await act(n)
        except BaseException:  # noqa: BLE001 (what this program is about)
            continue


@poimen.workflow
async def hostile_step() -> int:
    return await _hostile_body(1)


@poimen.workflow
async def deciding() -> int:
    try:
        return await act(1)
    finally:
        SEEN["in finally"] += 1
        poimen.decide("late", 1)
        SEEN["decided in finally"] += 1


@poimen.step
async def _body(n: int) -> int:
    return await _acting(n)


@poimen.workflow
async def in_step() -> int:
    return await _body(1) + await fine(2)


@poimen.step
async def _grouped_body(n: int) -> int:
    async with asyncio.TaskGroup() as group:
        group.create_task(_acting(n))
        group.create_task(asyncio.Event().wait())
        return await _acting(n + 1)


@poimen.workflow
async def grouped_step() -> int:
    return await _grouped_body(1)


@poimen.workflow
def sync_workflow() -> int:
    return act.sync(1) + fine.sync(2)


@poimen.step
def _sync_body(n: int) -> int:
    return act.sync(n)


@poimen.workflow
async def sync_step() -> int:
    return await _sync_body.aio(1)


@poimen.workflow
def sync_finally() -> int:
    try:
        return act.sync(1)
    finally:
        SEEN["in finally"] += 1
        clean.sync(1)
        SEEN["went on after an effect in finally"] += 1


async def noisy() -> None:
    async def fails() -> None:
        raise ValueError

    left = asyncio.ensure_future(fails())
    await asyncio.sleep(0)
    del left


async def main(runs: int, kinds: list[str]) -> None:
    if kinds == ["noisy"]:
        await noisy()
        return
    workflows = [globals()[kind] for kind in kinds]
    async with poimen.Runtime("memory:", modules=[sys.modules["__main__"]], concurrency=runs, drain=0) as runtime:
        handles = [await runtime.start(workflows[n % len(workflows)]()) for n in range(runs)]
        for handle in handles:
            try:
                await handle.result(waiting="raise", timeout=60)
            except poimen.RunWaiting as waiting:
                SEEN["parked"] += waiting.reason == "operator"
        gc.collect()
        await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
    gc.collect()
    sys.stdout.write(json.dumps(SEEN))
