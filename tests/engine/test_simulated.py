"""The loop of simulated time waits for threads: its time stands still while a body is at work in one, however long."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import effects
from poimen.declare.registry import Registry
from poimen.declare.specs import spec_of
from tests.engine.simulated import CutStore, Driven, admit, drive, simulated

if TYPE_CHECKING:
    from tests.engine.simulated import SimulatedLoop

loops: list[SimulatedLoop] = []
"""The loop of the test that runs."""


def lasts() -> str:
    """End only when the loop has nothing to do but to wait for this thread, or to let its time jump."""
    assert loops[-1].waits.wait(10), "time has jumped while a thread was at work"
    return "done"


@poimen.tool(effect=effects.AT_MOST_ONCE, timeout=1, grace=0)
def acts() -> str:
    return lasts()


def looks() -> effects.Landed[str] | effects.Absent | effects.Unknown:
    return effects.Landed(lasts())


@poimen.tool(effect=effects.PROBE(looks, lag=timedelta(0)), timeout=1, grace=0)
async def is_asked_about() -> str:
    raise RuntimeError("the answer was lost")


@poimen.step(attempts=1)
def steps() -> str:
    return lasts()


@poimen.workflow
async def flow(kind: str) -> str:
    if kind == "tool":
        return await acts.aio()
    if kind == "probe":
        return await is_asked_about()
    async with asyncio.timeout(1):
        return await steps.aio()


@pytest.mark.parametrize("kind", ["tool", "probe", "step"])
def test_time_stands_still_while_a_thread_is_at_work(kind: str) -> None:
    registry = Registry()
    for one in (flow, acts, is_asked_about, steps):
        spec: Any = spec_of(one)
        registry.add(spec)
    with simulated(0) as loop:
        loops.append(loop)
        store = CutStore()
        admit(store, flow, "r", kind)
        done: Driven = loop.run_until_complete(drive(store, "r", registry))
        assert (done.how, done.driver.line.state.name) == ("ended", "SUCCEEDED"), done.driver.line.body
