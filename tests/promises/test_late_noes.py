"""A no that comes when the call was given up is told to the code of a step at its place, like one that came in time."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from poimen.kernel.events import AttemptStarted
from poimen.kernel.intent import LateOutcome
from tests.promises.apart import events, play

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import asyncio, os, threading, poimen
from poimen import effects

LATE, NO = os.environ["LATE"] == "1", getattr(poimen, os.environ["NO"])
GO = threading.Event()

def note(line):
    with open("witness", "a") as far_side:
        far_side.write(line + "\\n")

@poimen.tool(effect=effects.AT_MOST_ONCE, timeout=0.3, grace=0.01)
def ask(n: int) -> str:
    note(f"ask {n}")
    if LATE:
        GO.wait(30)
    raise NO("no seats")

@poimen.tool(effect=effects.AT_MOST_ONCE)
def mail(n: int) -> str:
    note(f"mail {n}")
    return f"mailed {n}"

@poimen.tool(effect=effects.IDEMPOTENT)
def phone(n: int) -> str:
    note("phone")
    return "by phone"

@poimen.step
async def catches(n: int) -> str:
    before = await mail.aio(n)
    try:
        return await ask.aio(n)
    except NO as no:
        return f"{before}, {type(no).__name__} {no.message}, {await phone.aio(n)}"

@poimen.step
async def beside(n: int) -> str:
    told = await asyncio.gather(ask.aio(n), mail.aio(n), return_exceptions=True)
    return f"{type(told[0]).__name__}, {told[1]}, {await phone.aio(n)}"

@poimen.step(attempts=3, backoff=0.0, retry_on=NO)
async def insists(n: int) -> str:
    if poimen.current().attempt > 6:
        return "never comes here"
    return await ask.aio(n)

@poimen.tool(effect=effects.AT_MOST_ONCE)
def full(n: int) -> str:
    note("full")
    if open("witness").read().count("full") == 1:
        raise poimen.Rejected("full")
    return "booked"

@poimen.tool(effect=effects.READ)
def model(n: int) -> str:
    note("model")
    return f"plan {open('witness').read().count('model')}"

async def refused_or_not(n: int) -> str:
    try:
        found = await full.aio(n)
    except poimen.Rejected:
        found = "refused"
    return poimen.decide("room", found)

async def planned(n: int) -> str:
    return poimen.decide("plan", await model.aio(n))

@poimen.step
async def decides(n: int) -> str:
    told = await asyncio.gather(ask.aio(n), refused_or_not(n), planned(n), return_exceptions=True)
    return f"{type(told[0]).__name__}, {told[1]}, {told[2]}"

@poimen.step
async def siblings(n: int) -> str:
    told = await asyncio.gather(ask.aio(n), full.aio(n), model.aio(n), return_exceptions=True)
    return f"{type(told[0]).__name__}, {type(told[1]).__name__}, {told[2]}"

@poimen.step
async def times_out(n: int) -> str:
    asked = asyncio.ensure_future(ask.aio(n))
    done, _ = await asyncio.wait([asked], timeout=0.1)
    if not done:
        asked.cancel()
        await asyncio.wait([asked])
    return f"{'told' if done else 'not waited for'}, {await phone.aio(n)}"

@poimen.workflow
async def flow(step: str) -> str:
    try:
        return await globals()[step](1)
    except NO as no:
        return f"raised {type(no).__name__} {no.message}"

async def main():
    async with poimen.Runtime("p.db") as runtime:
        run = await runtime.start(flow(os.environ["STEP"]), run_id="r")
        while True:
            try:
                print(await run.result(timeout=30, waiting="raise"))
                return
            except poimen.RunWaiting:
                GO.set()
                while (await run.standing()).state.value == "WAITING":
                    await asyncio.sleep(0)
                if os.environ["STEP"] == "insists":
                    GO.clear()

asyncio.run(main())
"""


def told(folder: Path, step: str, no: str, *, late: bool, crash: str = "") -> tuple[str, list[str]]:
    """What the workflow returns, and what the far side has seen in any order; over a kill if there is one."""
    folder.mkdir()
    asked = {"STEP": step, "NO": no, "LATE": str(int(late))}
    if crash:
        assert play(folder, PROGRAM, crash=crash, **asked).returncode == -signal.SIGKILL
    done = play(folder, PROGRAM, **asked)
    assert done.returncode == 0, done.stderr
    assert any(isinstance(event, LateOutcome) for event in events(folder / "p.db")) == late
    return done.stdout, sorted((folder / "witness").read_text().splitlines())


@pytest.mark.parametrize("no", ["Rejected", "NotSent"])
@pytest.mark.parametrize("step", ["catches", "beside", "insists", "decides", "siblings"])
def test_a_step_s_code_is_told_of_a_late_no(tmp_path: Path, step: str, no: str) -> None:
    in_time = told(tmp_path / "in time", step, no, late=False)
    assert in_time == told(tmp_path / "late", step, no, late=True)
    assert in_time[1].count("ask 1") == (3 if step == "insists" else 1)


def test_code_that_did_not_wait_for_it_does_not_wait_for_it_again(tmp_path: Path) -> None:
    result, witness = told(tmp_path / "late", "times_out", "Rejected", late=True)
    assert (result, witness) == ("not waited for, by phone\n", ["ask 1", "phone"])


@pytest.mark.parametrize("step", ["catches", "beside"])
@pytest.mark.parametrize("crash", ["pending:phone", "dispatched:phone", "called:phone", "committed:phone"])
def test_a_late_no_is_told_again_after_a_crash(tmp_path: Path, step: str, crash: str) -> None:
    result, witness = told(tmp_path / "crashed", step, "Rejected", late=True, crash=crash)
    assert (result, witness.count("ask 1")) == (told(tmp_path / "whole", step, "Rejected", late=True)[0], 1)


def test_a_no_that_was_told_late_is_one_try(tmp_path: Path) -> None:
    """Six attempts on record: each try of the code is one that ended unknown and one that was told the no."""
    told(tmp_path / "late", "insists", "NotSent", late=True)
    found = [event for event in events(tmp_path / "late" / "p.db") if isinstance(event, AttemptStarted)]
    assert [event.attempt for event in found] == [1, 2, 3, 4, 5, 6]
