"""Two processes on one database, leases that run out, disks that fill, clocks that jump."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

import poimen
from poimen.kernel.attempt import AttemptState
from poimen.kernel.branch import BranchState
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.events import BranchResumed, BranchStarted, DecisionRecorded
from poimen.kernel.intent import (
    Classification,
    IntentClassified,
    IntentCommitted,
    IntentDemoted,
    IntentDispatched,
    IntentPending,
    LateOutcome,
    RuleApplied,
)
from poimen.log.opening import open_store

if TYPE_CHECKING:
    from poimen.engine.surface.results import Standing
    from tests.cases.world import Case

AGENTS = "tests.cases.agents"


def damages(case: Case) -> tuple[list[str], int]:
    """What a check finds, and how many rows would have to be derived anew."""
    store = open_store(str(case.db))
    try:
        return [damage.what for damage in store.check()], store.rebuild()
    finally:
        store.close()


# ---- C03 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "tool", "spare"), [("admitted", "pair", 1000), ("pending", "charge", 1000), ("pending", "mail", 4200)]
)
def test_c03_a_disk_that_fills_in_an_append_forbids_dispatch_and_loses_nothing(
    case: Case, point: str, tool: str, spare: int
) -> None:
    said = case.says("starved", "r", point, tool, spare)
    assert [one.get("error") or one["then"] for one in said][1:] == ["StorageFailed", "StorageFailed"], said
    assert said[0]["error"] in {"CommitUnknown", "StorageFailed"}, said
    assert case.lines() == [], "an effect was sent although its Dispatched had failed"

    served = case.says("serve", AGENTS, "r")
    assert served[-1]["result"] == ["charged 10 to ann", "mailed ann"]
    assert sorted(line["tool"] for line in case.lines()) == ["charge", "mail"]
    log = case.log("r")
    assert [event.send for event in log.all(IntentDispatched)] == [1, 1]
    assert damages(case) == ([], 0)


# ---- C10 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [20, 40_000])
def test_c10_runs_that_differ_only_in_a_tag_share_nothing(case: Case, size: int) -> None:
    args = json.dumps(["x" * size])
    case.dies("run", "a", "tenant", args, '{"tenant": "ann"}', crash="committed:chat")
    (ours,) = case.says("run", "b", "tenant", args, '{"tenant": "bob"}')
    (theirs,) = case.says("run", "a", "tenant", args, '{"tenant": "ann"}')
    assert ours == theirs and "result" in ours
    a, b = case.log("a"), case.log("b")
    assert [log.view.admitted.tags for log in (a, b) if log.view.admitted] == [{"tenant": "ann"}, {"tenant": "bob"}]
    requests = [{event.request_id for event in log.all(IntentPending)} for log in (a, b)]
    assert len(requests[0]) == len(requests[1]) == 2
    assert requests[0].isdisjoint(requests[1])
    assert {line["id"] for line in case.lines("chat")} | {line["id"] for line in case.lines("charge")} == set.union(
        *requests
    )
    assert len(case.lines()) == 4
    assert a.one(DecisionRecorded).value_digest == b.one(DecisionRecorded).value_digest

    async def tagged() -> list[str]:
        async with poimen.Client(str(case.db), read_only=True) as client:
            return [run.id async for run in client.runs(tag="tenant=bob")]

    assert asyncio.run(tagged()) == ["b"]


# ---- C13 ------------------------------------------------------------------------------------------------------------


def test_c13_what_a_worker_that_was_taken_for_dead_brings_is_kept_as_late(case: Case) -> None:
    with case.child("asleep", "r", "one_charge", '["ann"]', stops=["charge"], lease_s=1.0) as first:
        entered = first.hear()
        first.signal(signal.SIGSTOP)
        (second,) = case.says("run", "r", "one_charge", '["ann"]', lease_s=1.0)
        assert second == {"result": "charged 10 to ann"}
        between = case.log("r")
        first.tell()
        first.signal(signal.SIGCONT)
        told = [first.hear(), first.hear()]
        assert {"late": "LateOutcome"} in told and {"result": "charged 10 to ann"} in told
    log = case.log("r")
    assert log.names == [*between.names, "LateOutcome"]
    assert log.one(IntentCommitted).send == 2
    assert (log.one(LateOutcome).send, log.one(LateOutcome).epoch) == (1, 1)
    assert [epoch for _, epoch, event in log.records if isinstance(event, IntentCommitted | LateOutcome)] == [2, 0]
    assert log.attempt("charge#0").state is AttemptState.SUCCEEDED
    assert [line["id"] for line in case.lines("charge")] == [entered["id"]] * 2
    assert len(log.intent("charge#0").late) == 1 and log.intent("charge#0").resolution is None


def test_c13_a_late_outcome_settles_what_nobody_knew(case: Case) -> None:
    with case.child("asleep", "r", "one_mail", '["bob"]', stops=["mail"], lease_s=1.0) as first:
        first.hear()
        first.signal(signal.SIGSTOP)
        with case.child("serve", AGENTS, "r", lease_s=1.0) as second:
            second.hear()
            assert second.hear()["error"] == "RunWaiting"
            assert [item.kind for item in case.log("r").inbox] == ["effect"]
        with case.child("beside", "other", "r") as third:
            assert third.hear() == {"own": 1}
            first.tell()
            first.signal(signal.SIGCONT)
            assert third.hear() == {"result": "mailed bob"}
    log = case.log("r")
    assert [attempt.state.name for attempt in log.line.steps["mail#0"].attempts] == ["INDETERMINATE", "SUCCEEDED"]
    assert log.all(IntentCommitted) == []
    assert len(case.lines("mail")) == len(log.all(IntentDispatched)) == 1
    assert log.inbox == []


# ---- C16 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "at", [("advance_head", 1), ("advance_head", 3), ("advance_head", 5), ("set_state", 1), ("set_state", 2)]
)
def test_c16_a_kill_between_an_event_and_the_head_leaves_neither_or_both(case: Case, at: tuple[str, int]) -> None:
    with case.child("run", "r", "one_row", "[7]", dies_at=at) as child:
        child.died()
    log = case.log("r")
    assert log.head.lsn == log.view.lsn == len(log.records)
    assert log.head.hash == log.view.hash
    assert log.head.state == log.line.state.value
    assert damages(case) == ([], 0)
    assert case.says("serve", AGENTS, "r")[-1]["result"] == 7
    after = case.log("r")
    assert after.names[: len(log.names)] == log.names
    assert (after.head.state, after.line.state) == ("SUCCEEDED", BranchState.SUCCEEDED)
    assert damages(case) == ([], 0)


# ---- C18, C24 -------------------------------------------------------------------------------------------------------


def test_c18_a_run_that_nobody_asks_for_is_resumed_by_the_scan_at_the_start(case: Case) -> None:
    case.dies("run", "long", "long", "[6]", crash="called:row:4")
    case.dies("run", "mail", "one_mail", '["bob"]', crash="called:mail")
    assert len(case.lines("row")) == 4
    with case.child("watch", "long", "mail") as child:
        ends = {tuple(child.hear().items()) for _ in range(2)}
    assert ends == {(("run", "long"), ("state", "SUCCEEDED")), (("run", "mail"), ("state", "WAITING"))}
    assert [line["about"] for line in case.lines("row")] == ["0", "1", "2", "3", "3", "4", "5"]
    assert len(case.lines("mail")) == 1
    assert case.log("long").one(BranchResumed).why == "recovered"


def test_c18_a_run_whose_code_is_not_here_is_reported_and_not_touched(case: Case) -> None:
    file = case.folder / "elsewhere.py"
    file.write_text("import poimen\n\n\n@poimen.workflow\nasync def far(n: int) -> int:\n    return n\n", "utf-8")
    case.dies("run", "far", f"{file}:far", "[3]", crash="admitted:far")
    case.says("looks", AGENTS, 3)
    log = case.log("far")
    assert log.names == ["RunAdmitted"]
    assert log.head.epoch == 0, "a worker without the code has claimed the run"

    async def standing() -> Standing:
        async with poimen.Client(str(case.db), read_only=True) as client:
            return await (await client.get("far")).standing()

    told = asyncio.run(standing())
    assert told.reason == "no live worker drives it"
    assert told.command == "poimen run FILE_OR_MODULE:far --id far"
    assert case.says("serve", str(file), "far")[-1] == {"run": "far", "result": 3}


def test_c24_a_live_run_is_not_adopted_and_a_dead_one_is_at_once(case: Case) -> None:
    with case.child("run", "r", "one_charge", '["ann"]', stops=["charge"]) as first:
        assert first.hear()["entered"] == "charge"
        with case.child("beside", "other", "r") as second:
            assert second.hear() == {"own": 1}
            store = open_store(str(case.db))
            assert store.claim("r", worker="a-third", lease_s=1) is None
            store.close()
            alive = case.log("r")
            assert (alive.head.epoch, alive.all(BranchResumed)) == (1, [])
            assert len(case.lines("charge")) == 1
            begun = time.monotonic()
            first.kill()
            assert second.hear() == {"result": "charged 10 to ann"}
            took_s = time.monotonic() - begun
    assert took_s < 10, "it waited for the lease of a dead process"
    log = case.log("r")
    assert (log.head.epoch, len(log.all(BranchStarted)), len(log.all(BranchResumed))) == (2, 1, 1)
    assert [line["id"] for line in case.lines("charge")] == [log.one(IntentPending).request_id] * 2


# ---- C40 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["dispatched", "called"])
def test_c40_a_clock_that_went_back_has_expired_the_key(case: Case, point: str) -> None:
    case.dies("run", "r", "one_charge", '["ann"]', crash=f"{point}:charge")
    before = case.lines("charge")
    (served,) = case.says("serve", AGENTS, "r", clock_back_s=7200)[1:]
    assert served["error"] == "RunWaiting"
    log = case.log("r")
    demoted = log.one(IntentDemoted)
    assert (demoted.frm, demoted.to, demoted.rule) == (
        EffectClass.KEYED,
        EffectClass.AT_MOST_ONCE,
        "clock-went-back",
    )
    assert log.one(IntentClassified).classification is Classification.MAY_HAVE_BEEN_SENT
    assert log.one(RuleApplied).rule == "at-most-once"
    assert log.attempt("charge#0").state is AttemptState.INDETERMINATE
    assert len(log.all(IntentDispatched)) == 1 and case.lines("charge") == before
    later = case.says("serve", AGENTS, "r")
    assert later[-1]["error"] == "RunWaiting", "a demotion stays when the clock has caught up"


def test_c40_a_pending_that_was_never_sent_binds_nothing(case: Case) -> None:
    case.dies("run", "r", "one_charge", '["ann"]', crash="pending:charge")
    assert case.says("serve", AGENTS, "r", clock_back_s=7200)[-1]["result"] == "charged 10 to ann"
    assert len(case.lines("charge")) == 1


def test_c40_control_with_a_steady_clock_it_is_sent_again(case: Case) -> None:
    case.dies("run", "r", "one_charge", '["ann"]', crash="called:charge")
    assert case.says("serve", AGENTS, "r", clock_back_s=0)[-1]["result"] == "charged 10 to ann"
    assert len(case.lines("charge")) == 2
