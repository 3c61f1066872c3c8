"""A choice that a step has made stands, whatever befalls the step afterwards: what it was made from is told again."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.promises.apart import play

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import asyncio, os, poimen
from poimen import effects

def note(line):
    with open("witness", "a") as far_side:
        far_side.write(line + "\\n")
    return open("witness").read().count(line)

@poimen.tool(effect=effects.READ)
def model(question: str) -> str:
    return f"plan {note('model')}"

@poimen.tool(effect=effects.AT_MOST_ONCE)
def act(plan: str) -> str:
    if note("act") == 1 and os.environ.get("REFUSES"):
        raise poimen.NotSent("nobody is there")
    return f"done by {plan}"

@poimen.step(attempts=3, backoff=0.0)
async def unit(question: str) -> str:
    plan = await model.aio(question)
    if os.environ.get("TIMER"):
        await asyncio.sleep(0.001)
    poimen.decide("plan", plan)
    return await act.aio(plan)

@poimen.workflow
async def flow(question: str) -> str:
    return await unit(question)

async def main():
    async with poimen.Runtime("p.db") as runtime:
        run = await runtime.start(flow("which?"), run_id="r")
        while True:
            try:
                print(await run.result(timeout=30, waiting="raise"))
                return
            except poimen.RunWaiting:
                (item,) = [item async for item in runtime.inbox()]
                await runtime.resolve(item.id, "not_landed", by="op", why="I looked", expect_lsn=item.lsn)

asyncio.run(main())
"""


@pytest.mark.parametrize("timer", ["", "1"])
def test_an_effect_that_is_tried_again_is_that_of_the_choice(tmp_path: Path, timer: str) -> None:
    done = play(tmp_path, PROGRAM, REFUSES="1", TIMER=timer)
    assert (done.stdout, done.stderr) == ("done by plan 1\n", "")
    assert (tmp_path / "witness").read_text() == "model\nact\nact\n"


@pytest.mark.parametrize("timer", ["", "1"])
@pytest.mark.parametrize("crash", ["decided", "pending:act", "dispatched:act", "in_call:act"])
def test_a_choice_stands_over_a_crash_and_an_answer_of_the_operator(tmp_path: Path, timer: str, crash: str) -> None:
    assert play(tmp_path, PROGRAM, crash=crash, TIMER=timer).returncode == -signal.SIGKILL
    done = play(tmp_path, PROGRAM, TIMER=timer)
    assert (done.stdout, done.stderr) == ("done by plan 1\n", "")
    assert (tmp_path / "witness").read_text() == "model\nact\n"
