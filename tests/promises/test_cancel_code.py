"""A cancellation and the code it reaches: before it runs, while it waits, when it will not hear, behind its end."""

from __future__ import annotations

import asyncio
import random
import signal
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen.engine import desk
from poimen.engine.reading import read_run
from poimen.kernel import resolution
from poimen.kernel.attempt import AttemptState
from poimen.kernel.branch import BranchState
from poimen.kernel.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptIndeterminate,
    BranchEnded,
    BranchStarted,
    BranchWaiting,
    CancelDelivered,
    CancelRequested,
    TimerFired,
)
from poimen.kernel.intent import (
    IntentClassified,
    IntentCommitted,
    IntentDispatched,
    IntentPending,
    IntentProbed,
    IntentResolved,
    NotSentOutcome,
    Resolution,
    RuleApplied,
)
from poimen.log.opening import open_store
from poimen.log.writer import Door
from tests.cases import cancelling
from tests.cases.agents import time_passes, world
from tests.cases.cancelling import alone, backing_off, idle, in_thread, limited, nested, swallows, with_thread
from tests.cases.holding import sound, stage

if TYPE_CHECKING:
    from tests.cases.world import Case, Log
    from tests.conftest import Scale, Seeds

MODULE = "tests.cases.cancelling"


def ended(log: Log) -> tuple[str, int]:
    """State and unresolved effects of a run that is over."""
    sound(log)
    return log.line.state.value, log.one(BranchEnded).unresolved


# ---- before and behind the run --------------------------------------------------------------------------------------


def test_a_run_that_nobody_has_claimed_ends_without_having_begun(case: Case) -> None:
    async def main() -> None:
        async with poimen.Client(str(case.db)) as client:
            run = await client.start(alone("charge"), run_id="r")
            await run.cancel("enough")

    asyncio.run(main())
    assert case.log("r").line.state is BranchState.PENDING
    assert case.says("serve", MODULE, "r")[-1]["error"] == "RunCancelled"
    log = case.log("r")
    assert log.names == ["RunAdmitted", "CancelRequested", "BranchEnded"]
    assert ended(log) == ("CANCELLED", 0)
    assert not log.all(BranchStarted) and case.lines() == []


def test_a_run_that_waits_for_the_operator_ends_and_its_unknown_stays(case: Case) -> None:
    case.dies("run", "r", "one_mail", '["bob"]', crash="called:mail")

    async def main() -> tuple[Log, Log]:
        async with stage(case) as at:
            assert await at.end() is poimen.RunWaiting
            await at.cancel("here")
            assert await at.end() is poimen.RunCancelled
            log = at.log()
            await at.runtime.resolve(
                "r/main/mail#0/1/0", "not_landed", by="ann", why="asked bob", expect_lsn=log.inbox[0].lsn
            )
            return log, at.log()

    log, later = asyncio.run(main())
    assert ended(log) == ("CANCELLED", 1)
    assert log.attempt("mail#0").state is AttemptState.INDETERMINATE and len(log.line.steps["mail#0"].attempts) == 1
    assert [item.id for item in log.inbox] == ["r/main/mail#0/1/0"]
    assert later.inbox == [] and later.line.state is BranchState.CANCELLED
    assert later.names[len(log.names) :] == ["IntentResolved"], "a resolution after the end started something"
    assert len(case.lines("mail")) == 1


def test_a_run_that_waits_for_its_code_ends_without_it(case: Case) -> None:
    file = case.folder / "flow.py"
    text = (
        "import poimen\nfrom tests.cases.agents import charge, mail\n\n\n@poimen.workflow\nasync def flow() -> str:\n"
    )
    file.write_text(text + '    await charge("ann", 1)\n    return await mail("bob")\n', "utf-8")
    case.dies("run", "r", f"{file}:flow", crash="called:mail")
    file.write_text(text + '    return await mail("bob")\n', "utf-8")
    assert case.says("serve", file, "r")[-1]["error"] == "RunWaiting"
    case.says("cancel", "r", "enough")
    case.says("looks", file, 1)
    assert case.says("serve", file, "r")[-1]["error"] == "RunCancelled"
    log = case.log("r")
    assert ended(log) == ("CANCELLED", 1)
    assert [item.kind for item in log.inbox] == ["effect"]
    assert len(case.lines("mail")) == 1


def test_two_cancellations_are_one_and_one_after_the_end_is_none(case: Case) -> None:
    async def main() -> list[str]:
        async with stage(case, charge="finishes") as at:
            run = await at.start(alone("charge"))
            await world.meetings["charge"].entered.wait()
            await asyncio.gather(run.cancel("enough", by="ann"), run.cancel("no, really", by="bob"))
            await at.cancel("another process")
            assert await at.end() is poimen.RunCancelled
            names = at.log().names
            await at.cancel("here")
            await at.cancel("another process")
            assert at.log().names == names
            await at.start(alone("row"), run_id="done")
            assert await at.end("done") == "7"
            await at.cancel("here", run_id="done")
            assert "CancelRequested" not in at.log("done").names
            return names

    assert asyncio.run(main()).count("CancelRequested") == 1
    assert case.log("r").line.cancel_by == "ann"
    assert ended(case.log("r")) == ("CANCELLED", 0)


def test_a_cancellation_that_lost_the_race_with_the_end_is_not_written(case: Case) -> None:
    """What was read of the run is old when the request is written: the log says no, and the end is seen."""
    case.says("run", "r", "one_row", "[7]")
    store = open_store(str(case.db))
    read = read_run
    head: list[Any] = []

    def late(store: Any, run: str, *, upto: int | None = None) -> Any:
        view = read(store, run, upto=None if head else case.log("r").head.lsn - 2)
        head.append(view)
        return view

    try:
        desk.read_run = late  # type: ignore[attr-defined]
        assert desk.cancel(store, Door(store), "r", by="ann", why="too late") is False
    finally:
        desk.read_run = read  # type: ignore[attr-defined]
        store.close()
    assert len(head) == 2
    assert ended(case.log("r")) == ("SUCCEEDED", 0)
    assert not case.log("r").all(CancelRequested)


# ---- code that waits, code that does not hear -----------------------------------------------------------------------


def test_waiting_for_a_time_with_nothing_dispatched_is_cancelled(case: Case) -> None:
    async def main() -> Log:
        async with stage(case) as at:
            await at.start(idle())
            await at.door.landed("r", BranchStarted)
            await at.cancel("here")
            assert await at.end() is poimen.RunCancelled
            return at.log()

    log = asyncio.run(main())
    assert ended(log) == ("CANCELLED", 0)
    assert log.line.steps == {}


def test_reads_at_once_in_tasks_of_tasks_all_end_cancelled(case: Case) -> None:
    async def main() -> Log:
        async with stage(case, look="plain") as at:
            await at.start(nested(5))
            await at.door.landed("r", IntentDispatched)
            await at.cancel("here")
            assert await at.end() is poimen.RunCancelled
            return at.log()

    log = asyncio.run(main())
    assert ended(log) == ("CANCELLED", 0)
    assert len(log.line.steps) == 10
    assert {step.last.state for step in log.line.steps.values()} == {AttemptState.CANCELLED}


@pytest.mark.parametrize("then", ["returns", "raises", "waits", "sleeps", "insists"])
def test_code_that_swallows_it_ends_all_the_same_and_dispatches_nothing(case: Case, then: str) -> None:
    async def main() -> Log:
        async with stage(case, patience_s=0.1, look="plain") as at:
            await at.start(swallows(then))
            await world.meetings["look"].entered.wait()
            await at.cancel("here")
            assert await at.end() is poimen.RunCancelled
            return at.log()

    log = asyncio.run(main())
    assert ended(log) == ("CANCELLED", 0)
    assert [line["tool"] for line in case.lines()] == ["look"]
    assert list(log.line.steps) == ["look#0"], "a call that was refused left a record"


@pytest.mark.parametrize("then", ["waits", "sleeps"])
def test_a_step_that_swallows_it_is_closed(case: Case, then: str) -> None:
    async def main() -> Log:
        async with stage(case, patience_s=0.1, look="plain") as at:
            await at.start(cancelling.with_deaf(then))
            await world.meetings["look"].entered.wait()
            await at.cancel("here")
            assert await at.end() is poimen.RunCancelled
            return at.log()

    log = asyncio.run(main())
    assert ended(log) == ("CANCELLED", 0)
    assert log.attempt("deaf#0").state is AttemptState.CANCELLED


def test_a_step_that_the_workflow_leaves_behind_does_not_hold_up_its_end(case: Case) -> None:
    async def main() -> Log:
        async with stage(case) as at:
            await at.start(cancelling.leaves_deaf("waits"))
            await world.meetings["stand"].entered.wait()
            assert await at.end() in {"left", "over"}
            return at.log()

    log = asyncio.run(main())
    assert ended(log) == ("SUCCEEDED", 0)


@pytest.mark.parametrize("kind", ["tool", "step"])
def test_during_a_back_off_the_attempt_that_has_not_begun_is_cancelled(case: Case, kind: str) -> None:
    async def main() -> Log:
        async with stage(case) as at:
            await at.start(backing_off(kind))
            await at.door.landed("r", AttemptFailed)
            await at.cancel("here")
            assert await at.end() is poimen.RunCancelled
            return at.log()

    log = asyncio.run(main())
    assert ended(log) == ("CANCELLED", 0)
    key = "away#0" if kind == "tool" else "trying#0"
    assert [attempt.state.name for attempt in log.line.steps[key].attempts] == ["FAILED", "CANCELLED"]
    assert (log.one(AttemptCancelled).attempt, log.attempt(key, 2).started_lsn) == (2, 0)


@pytest.mark.parametrize("manner", ["finishes", "stubborn"])
@pytest.mark.parametrize("flow", [in_thread, with_thread])
def test_plain_functions_are_told_at_their_call(case: Case, flow: Any, manner: str) -> None:
    async def main() -> Log:
        async with stage(case, charge=manner) as at:
            world.refused = 0
            await at.start(flow("charge"))
            await world.meetings["charge"].entered.wait()
            await at.cancel("here")
            assert await at.end() is poimen.RunCancelled
            return at.log()

    log = asyncio.run(main())
    assert ended(log) == ("CANCELLED", int(manner == "stubborn"))
    assert [line["tool"] for line in case.lines()] == ["charge"], "something was sent after the cancellation"
    if flow is in_thread:
        assert world.refused == 1


# ---- while recovery is at work --------------------------------------------------------------------------------------


@pytest.mark.parametrize("manner", ["plain", "stubborn"])
def test_while_a_probe_is_asked_nothing_is_sent_any_more(case: Case, manner: str) -> None:
    case.dies("run", "r", "one_parcel", '["news"]', crash="dispatched:parcel")

    async def main() -> Log:
        async with stage(case, probe=manner) as at:
            await world.meetings["probe"].entered.wait()
            await at.cancel("here")
            async with asyncio.timeout(15):  # the probe itself may take 30 s
                assert await at.end() is poimen.RunCancelled
            return at.log()

    log = asyncio.run(main())
    assert ended(log) == ("CANCELLED", 1)
    assert log.attempt("parcel#0").state is AttemptState.INDETERMINATE
    assert [event.answer for event in log.all(IntentProbed)] == ["unknown"]
    assert len(log.all(IntentDispatched)) == 1 and case.lines("parcel") == []
    assert [item.id for item in log.inbox] == ["r/main/parcel#0/1/0"]


@pytest.mark.parametrize(("tool", "unresolved"), [("charge", 1), ("row", 1), ("look", 0)])
def test_before_something_is_sent_again_it_is_not(
    case: Case, tool: str, unresolved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = {"charge": '["ann"]', "row": "[7]", "look": '["sky"]'}[tool]
    case.dies("run", "r", f"one_{tool}", args, crash=f"dispatched:{tool}")
    monkeypatch.setattr(resolution, "BACKOFF_FIRST_US", 30_000_000)

    async def main() -> Log:
        async with stage(case) as at:
            await at.door.landed("r", RuleApplied)
            await at.cancel("here")
            assert await at.end() is poimen.RunCancelled
            return at.log()

    log = asyncio.run(main())
    assert ended(log) == ("CANCELLED", unresolved)
    assert log.one(RuleApplied).result == "send_again"
    assert len(log.all(IntentDispatched)) == 1 and case.lines(tool) == []


@pytest.mark.parametrize("commit", [0, 4, 5, 6])
@pytest.mark.parametrize("tool", ["charge", "mail"])
def test_killed_while_it_is_being_cancelled_it_ends_cancelled_and_nothing_is_sent(
    case: Case, tool: str, commit: int
) -> None:
    """Killed before it has heard of the request, or in the commit in which it answers: delivered, unknown, ended."""
    args = {"charge": '["ann"]', "mail": '["bob"]'}[tool]
    with case.child("asleep", "r", f"one_{tool}", args, stops=[tool], dies_at=("advance_head", commit)) as child:
        child.hear()
        if commit:
            case.says("cancel", "r", "enough")
            child.died()
        else:
            child.signal(signal.SIGSTOP)
            case.says("cancel", "r", "enough")
            child.kill()
    before = case.log("r")
    assert (len(before.all(CancelDelivered)), len(before.all(AttemptIndeterminate))) == (
        int(commit > 4),
        int(commit > 5),
    )
    assert case.says("serve", "tests.cases.agents", "r")[-1]["error"] == "RunCancelled"
    log = case.log("r")
    assert ended(log) == ("CANCELLED", 1)
    assert log.attempt(f"{tool}#0").state is AttemptState.INDETERMINATE
    assert len(log.all(IntentClassified)) == int(commit < 6)
    assert len(log.all(IntentDispatched)) == len(case.lines(tool)) == len(log.all(CancelDelivered)) == 1


# ---- limits that the code sets itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("in_step", [False, True], ids=["alone", "in-step"])
@pytest.mark.parametrize(("event", "sent"), [(IntentPending, 0), (IntentDispatched, 0), (IntentCommitted, 1)])
@pytest.mark.parametrize("tool", ["charge", "look"])
def test_a_time_limit_that_passes_during_a_commit(case: Case, tool: str, event: Any, sent: int, in_step: bool) -> None:
    async def main() -> tuple[Any, Log]:
        async with stage(case) as at:
            at.door.hold("r", event, after=False)
            await at.start(limited(tool, in_step=in_step))
            await at.door.held()
            time_passes(at.runtime, "r")
            await at.door.waits("r", TimerFired)
            at.door.release()
            return await at.end(), at.log()

    told, log = asyncio.run(main())
    assert ended(log) == ("SUCCEEDED", 0)
    known = {"charge": "charged 10 to ann", "look": "saw sky"}[tool]
    key = "part#0" if in_step else f"{tool}#0"
    if sent:  # the effect's end is handed over before the limit's; of a step, the end comes behind it
        assert told == ["timed out" if in_step else known, "42", "1"]
        assert log.attempt(key).state is AttemptState.SUCCEEDED
    else:
        assert told == ["timed out", "42", "1"]
        assert log.attempt(key).state is AttemptState.CANCELLED
    assert len(case.lines(tool)) == sent
    assert log.inbox == []
    if event is IntentDispatched:
        assert [type(e.outcome) for e in log.all(IntentCommitted) if e.step == key] == [NotSentOutcome]


@pytest.mark.parametrize("in_step", [False, True], ids=["alone", "in-step"])
@pytest.mark.parametrize("manner", ["finishes", "not sent"])
def test_a_time_limit_that_passes_during_a_call_that_ends_in_its_grace(case: Case, manner: str, in_step: bool) -> None:
    async def main() -> tuple[Any, Log]:
        async with stage(case, charge=manner) as at:
            await at.start(limited("charge", in_step=in_step))
            await world.meetings["charge"].entered.wait()
            time_passes(at.runtime, "r")
            return await at.end(), at.log()

    told, log = asyncio.run(main())
    assert told == ["timed out", "42", "1"]
    assert ended(log) == ("SUCCEEDED", 0)
    succeeded = manner == "finishes" and not in_step
    assert log.attempt("part#0" if in_step else "charge#0").state.name == ("SUCCEEDED" if succeeded else "CANCELLED")


@pytest.mark.parametrize("in_step", [False, True], ids=["alone", "in-step"])
@pytest.mark.parametrize("to", ["landed", "not_landed", "abandoned"])
def test_a_time_limit_does_not_end_the_wait_for_an_unknown(case: Case, to: Any, in_step: bool) -> None:
    async def main() -> tuple[Any, Log]:
        async with stage(case, charge="plain") as at:
            await at.start(limited("charge", in_step=in_step))
            await world.meetings["charge"].entered.wait()
            time_passes(at.runtime, "r")
            assert await at.end() is poimen.RunWaiting
            item = at.log().inbox[0]
            assert "verify first" in item.summary
            world.meetings.pop("charge")
            value: dict[str, Any] = {"result": "found"} if to == "landed" else {}
            await at.runtime.resolve(item.id, to, by="ann", why="looked", expect_lsn=item.lsn, **value)
            run = await at.runtime.get("r")
            return await run.result(), at.log()

    told, log = asyncio.run(main())
    assert told == ["timed out", "42", "1"], "the code had been told that its time is over"
    assert ended(log) == ("SUCCEEDED", 0)
    assert len(case.lines("charge")) == 1
    assert log.one(IntentResolved).to is Resolution(to)
    assert len(log.all(BranchWaiting)) == 1


@pytest.mark.parametrize("in_step", ["false", "true"])
@pytest.mark.parametrize("crash", ["pending:row", "called:row"])
def test_a_time_limit_repeats_itself_after_a_kill(case: Case, crash: str, in_step: str) -> None:
    case.dies("limited", "r", "charge", in_step, crash=crash)
    before = case.log("r")
    assert case.says("limited", "r", "charge", in_step) == [{"result": ["timed out", "42", "1"]}]
    log = case.log("r")
    assert log.names[: len(before.names)] == before.names
    assert ended(log) == ("SUCCEEDED", 0)
    assert len(case.lines("charge")) == 1


# ---- many -----------------------------------------------------------------------------------------------------------


def test_ordinary_cancellations_do_not_move_the_alert(case: Case, scale: Scale, seeds: Seeds) -> None:
    """Reads in the call, calls that end in their grace, waits, runs that have hardly begun: none is Indeterminate."""
    count, chance = scale(200, 2_000), random.Random(7 + next(seeds()))

    async def main() -> list[Log]:
        async with stage(case, look="plain", charge="finishes", row="stubborn") as at:
            world.meetings["row"].go.set()

            async def one(n: int) -> None:
                run_id = f"r{n}"
                call = [alone("look"), cancelling.inside("look"), alone("charge"), idle(), alone("row"), nested(2)][
                    n % 6
                ]
                run = await at.start(call, run_id=run_id)
                if n % 12 > 5:
                    await at.door.landed(run_id, BranchStarted if n % 6 == 3 else IntentDispatched)
                for _ in range(chance.randrange(5)):
                    await asyncio.sleep(0)
                await run.cancel("enough")
                assert await at.end(run_id) in {poimen.RunCancelled, "7"}

            for n in range(0, count, 20):
                await asyncio.gather(*(one(i) for i in range(n, n + 20)))
            return [at.log(f"r{n}") for n in range(count)]

    logs = asyncio.run(main())
    for log in logs:
        sound(log)
    states = [attempt.state for log in logs for step in log.line.steps.values() for attempt in step.attempts]
    assert states.count(AttemptState.INDETERMINATE) == 0
    assert states.count(AttemptState.CANCELLED) > count // 2
    assert sum(log.line.state is BranchState.CANCELLED for log in logs) > count * 3 // 4
    assert [item for log in logs for item in log.inbox] == []
    assert sum(log.one(BranchEnded).unresolved for log in logs) == 0


def test_a_cancellation_that_races_the_end_leaves_one_terminal_state(case: Case, scale: Scale, seeds: Seeds) -> None:
    count, chance = scale(200, 1_000), random.Random(20 + next(seeds()))

    async def main() -> list[Log]:
        async with stage(case) as at:

            async def one(n: int) -> None:
                run = await at.start(alone("row"), run_id=f"r{n}")
                event: Any = (IntentPending, IntentDispatched, IntentCommitted, BranchEnded)[n % 4]
                await at.door.landed(f"r{n}", event)
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                await run.cancel("enough")
                assert await at.end(f"r{n}") in {poimen.RunCancelled, "7"}

            for n in range(0, count, 10):
                await asyncio.gather(*(one(i) for i in range(n, n + 10)))
            return [at.log(f"r{n}") for n in range(count)]

    logs = asyncio.run(main())
    ends: dict[str, int] = {}
    for log in logs:
        sound(log)
        ends[log.line.state.value] = ends.get(log.line.state.value, 0) + 1
        if log.line.state is BranchState.SUCCEEDED:
            assert not log.all(CancelRequested) or log.lsn(CancelRequested) > log.lsn(BranchEnded)
    assert set(ends) == {"CANCELLED", "SUCCEEDED"}, ends
    assert len(case.lines("row")) == sum(len(log.all(IntentDispatched)) for log in logs) - sum(
        isinstance(event.outcome, NotSentOutcome) for log in logs for event in log.all(IntentCommitted)
    )
