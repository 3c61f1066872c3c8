"""A cancellation at each place of an effect's way: Indeterminate if something is unknown, else Cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen.kernel.attempt import AttemptState
from poimen.kernel.branch import BranchState
from poimen.kernel.events import (
    AttemptCancelled,
    AttemptIndeterminate,
    BranchEnded,
    CancelDelivered,
    CancelRequested,
)
from poimen.kernel.intent import (
    IntentCommitted,
    IntentDispatched,
    IntentPending,
    LateOutcome,
    NotSentOutcome,
    ReadDropped,
    Resolution,
    Returned,
)
from tests.cases.agents import world
from tests.cases.cancelling import alone, inside
from tests.cases.holding import Stage, sound, stage

if TYPE_CHECKING:
    from tests.cases.world import Case, Log

STEP = {alone: "{}#0", inside: "part#0"}
WAYS = [pytest.param(alone, id="alone"), pytest.param(inside, id="in-step")]
EFFECTS = [
    pytest.param(tool, way, by, id=f"{tool}-{'alone' if way is alone else 'in-step'}-{by}")
    for tool, way, by in [
        ("charge", alone, "here"),
        ("charge", inside, "here"),
        ("look", alone, "here"),
        ("look", inside, "here"),
        ("charge", alone, "another process"),
        ("look", inside, "another process"),
    ]
]


def stopped(log: Log) -> tuple[BranchState, str, int]:
    """How the branch ended."""
    sound(log)
    ended = log.one(BranchEnded)
    return log.line.state, ended.cause, ended.unresolved


CANCELLED = (BranchState.CANCELLED, "enough", 0)


# ---- while a record is being written --------------------------------------------------------------------------------


async def hold_and_cancel(at: Stage, call: Any, event: type[Any], *, after: bool, by: str) -> Log:
    """Cancel while the batch with `event` is held, then let go."""
    at.door.hold("r", event, after=after)
    await at.start(call)
    await at.door.held()
    await at.cancel(by)
    at.door.release()
    assert await at.end() is poimen.RunCancelled
    log = at.log()
    assert (log.lsn(event) < log.lsn(CancelRequested)) == after or not log.lsn(event)
    return log


@pytest.mark.parametrize("after", [False, True], ids=["in line", "durable"])
@pytest.mark.parametrize(("tool", "way", "by"), EFFECTS)
def test_during_the_commit_of_pending_nothing_is_sent(case: Case, tool: str, way: Any, after: bool, by: str) -> None:
    async def main() -> Log:
        async with stage(case) as at:
            return await hold_and_cancel(at, way(tool), IntentPending, after=after, by=by)

    log = asyncio.run(main())
    assert stopped(log) == CANCELLED
    assert log.lsn(IntentPending) and not log.all(IntentDispatched)
    assert log.attempt(STEP[way].format(tool)).state is AttemptState.CANCELLED
    assert log.one(AttemptCancelled).why == "enough"
    assert case.lines() == [] and log.inbox == []


@pytest.mark.parametrize("after", [False, True], ids=["in line", "durable"])
@pytest.mark.parametrize(("tool", "way", "by"), EFFECTS)
def test_during_the_commit_of_dispatched_the_call_is_not_made(
    case: Case, tool: str, way: Any, after: bool, by: str
) -> None:
    async def main() -> Log:
        async with stage(case) as at:
            return await hold_and_cancel(at, way(tool), IntentDispatched, after=after, by=by)

    log = asyncio.run(main())
    assert stopped(log) == CANCELLED
    assert log.attempt(STEP[way].format(tool)).state is AttemptState.CANCELLED
    assert case.lines() == [] and log.inbox == []
    if after:
        assert isinstance(log.one(IntentCommitted).outcome, NotSentOutcome)
    else:
        assert not log.all(IntentDispatched), "the log took a Dispatched above a cancellation"


@pytest.mark.parametrize("after", [False, True], ids=["in line", "durable"])
@pytest.mark.parametrize(("tool", "way", "by"), EFFECTS)
def test_during_the_commit_of_the_outcome_it_is_kept(case: Case, tool: str, way: Any, after: bool, by: str) -> None:
    async def main() -> Log:
        async with stage(case) as at:
            return await hold_and_cancel(at, way(tool), IntentCommitted, after=after, by=by)

    log = asyncio.run(main())
    assert stopped(log) == CANCELLED
    assert isinstance(log.one(IntentCommitted).outcome, Returned)
    assert log.attempt(STEP[way].format(tool)).state in {AttemptState.SUCCEEDED, AttemptState.CANCELLED}
    if way is alone:
        assert log.attempt(STEP[way].format(tool)).state is AttemptState.SUCCEEDED
    assert len(case.lines()) == 1 and log.inbox == []


# ---- during the call ------------------------------------------------------------------------------------------------


async def cancel_in_call(at: Stage, call: Any, tool: str, *, by: str = "here") -> Log:
    await at.start(call)
    await world.meetings[tool].entered.wait()
    await at.cancel(by)
    assert await at.end() is poimen.RunCancelled
    return at.log()


@pytest.mark.parametrize("manner", ["stubborn", "plain"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tool", ["charge", "mail", "push", "row"])
def test_an_effect_that_does_not_end_in_its_grace_is_unknown(case: Case, tool: str, way: Any, manner: Any) -> None:
    async def main() -> tuple[Log, Log]:
        async with stage(case, **{tool: manner}) as at:
            log = await cancel_in_call(at, way(tool), tool)
            world.meetings[tool].go.set()
            if manner == "stubborn":
                await at.door.landed("r", LateOutcome)
            return log, at.log()

    log, later = asyncio.run(main())
    assert stopped(log) == (BranchState.CANCELLED, "enough", 1)
    key = STEP[way].format(tool)
    assert log.attempt(key).state is AttemptState.INDETERMINATE
    assert (log.one(AttemptIndeterminate).cause, log.one(AttemptIndeterminate).unknown) == ("cancel", (0,))
    assert [item.id for item in log.inbox] == [f"r/main/{key}/1/0"]
    assert "verify first" in log.inbox[0].summary and "again" not in log.inbox[0].summary
    assert not log.all(IntentCommitted)
    assert len(case.lines(tool)) == len(log.all(IntentDispatched)) == 1
    # Its end, when it comes, is kept; it unsays nothing.
    assert len(later.all(LateOutcome)) == (1 if manner == "stubborn" else 0)
    assert later.attempt(key).state is AttemptState.INDETERMINATE
    assert later.line.state is BranchState.CANCELLED
    assert bool(later.inbox) == (manner == "plain")
    if manner == "stubborn":
        resolution = later.intent(key).resolution
        assert resolution is not None and (resolution.to, resolution.by) == (Resolution.LANDED, "late")


@pytest.mark.parametrize("manner", ["finishes", "not sent", "rejected"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tool", ["charge", "mail"])
def test_an_effect_that_ends_in_its_grace_is_known(case: Case, tool: str, way: Any, manner: Any) -> None:
    async def main() -> Log:
        async with stage(case, **{tool: manner}) as at:
            return await cancel_in_call(at, way(tool), tool)

    log = asyncio.run(main())
    assert stopped(log) == CANCELLED
    expected = {"finishes": "SUCCEEDED", "not sent": "CANCELLED", "rejected": "FAILED"}[manner]
    assert log.attempt(STEP[way].format(tool)).state.name == (expected if way is alone else "CANCELLED")
    assert len(log.all(IntentCommitted)) == len(log.all(IntentDispatched)) == 1
    assert log.inbox == []


@pytest.mark.parametrize("manner", ["stubborn", "plain", "finishes"])
@pytest.mark.parametrize("way", WAYS)
def test_a_read_leaves_nothing_unknown(case: Case, way: Any, manner: Any) -> None:
    async def main() -> Log:
        async with stage(case, look=manner) as at:
            return await cancel_in_call(at, way("look"), "look")

    log = asyncio.run(main())
    assert stopped(log) == CANCELLED
    finished = manner == "finishes"
    assert log.attempt(STEP[way].format("look")).state.name == (
        "SUCCEEDED" if finished and way is alone else "CANCELLED"
    )
    assert (len(log.all(ReadDropped)), len(log.all(IntentCommitted))) == ((0, 1) if finished else (1, 0))
    if not finished:
        assert log.one(ReadDropped).why == "cancel"
    assert log.inbox == []


@pytest.mark.parametrize("tool", ["charge", "look"])
def test_another_process_can_stop_a_call(case: Case, tool: str) -> None:
    async def main() -> Log:
        async with stage(case, **{tool: "plain"}) as at:  # type: ignore[arg-type]
            return await cancel_in_call(at, alone(tool), tool, by="another process")

    log = asyncio.run(main())
    assert log.one(CancelRequested).by == "another process"
    assert stopped(log) == (BranchState.CANCELLED, "enough", 0 if tool == "look" else 1)
    assert log.lsn(CancelRequested) < log.lsn(CancelDelivered) < log.lsn(BranchEnded)
