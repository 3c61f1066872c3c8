"""What a workflow is told of a tool that says no, and whether the tool is tried again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import effects
from poimen.kernel.events import AttemptFailed
from tests.cases.agents import world

if TYPE_CHECKING:
    from tests.cases.world import Case


class Declined(Exception):
    """The far side says no, in a class of the user's own."""


KEYED = effects.KEYED(ttl=timedelta(hours=1))


@poimen.tool(effect=KEYED, rejected=Declined, not_sent=ConnectionError, attempts=3, backoff=0.001)
async def pay(how: str) -> str:
    world.mark("pay", how)
    match how:
        case "declined":
            raise Declined("no funds")
        case "rejected":
            raise poimen.Rejected("no funds")
        case "not sent":
            raise poimen.NotSent("no network")
        case _:
            raise ConnectionError("no network")


@poimen.step(attempts=1)
async def paid(how: str) -> str:
    return await pay(how)


@poimen.workflow
async def paying(how: str, *, in_step: bool) -> list[str]:
    try:
        if in_step:
            await paid(how)
        else:
            await pay(how)
    except (poimen.Rejected, poimen.NotSent, poimen.StepError) as error:
        return [type(error).__name__, str(error.message)]
    return []


@pytest.mark.parametrize(
    ("how", "told", "times"),
    [
        ("declined", ["Rejected", "Declined: no funds"], 1),
        ("rejected", ["Rejected", "no funds"], 1),
        ("not sent", ["NotSent", "no network"], 3),
        ("lost", ["NotSent", "ConnectionError: no network"], 3),
    ],
)
def test_a_no_is_final_and_what_was_not_sent_is_tried_again(case: Case, how: str, told: list[str], times: int) -> None:
    world.witness = str(case.witness)

    async def main(run_id: str, **settings: Any) -> Any:
        async with poimen.Runtime(str(case.db), modules=[__import__(__name__, fromlist=["pay"])]) as runtime:
            return await (await runtime.start(paying(how, **settings), run_id=run_id)).result()

    assert asyncio.run(main("alone", in_step=False)) == told
    assert len(case.lines("pay")) == times
    assert len(case.log("alone").all(AttemptFailed)) == times
