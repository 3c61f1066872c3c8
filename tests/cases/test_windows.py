"""Kills around one effect: what is classified, what is sent again, what the outside witness counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from poimen.kernel.attempt import AttemptState
from poimen.kernel.events import AttemptFailed, AttemptStarted, BranchStarted, RunAdmitted
from poimen.kernel.intent import (
    Classification,
    IntentClassified,
    IntentCommitted,
    IntentDispatched,
    IntentPending,
    IntentProbed,
    IntentResolved,
    Resolution,
    RuleApplied,
)

if TYPE_CHECKING:
    from tests.cases.world import Case

ARGS = {"charge": '["ann"]', "mail": '["bob"]', "push": '["news"]', "row": "[7]", "look": '["sky"]'}


def test_c04_a_run_exists_when_its_handle_is_given_out(case: Case) -> None:
    with case.child("start", "r", "one_charge", '["ann"]') as child:
        assert child.hear() == {"started": "r"}
        child.kill()
    assert case.log("r").names == ["RunAdmitted"]
    assert case.lines() == []
    said = case.says("serve", "tests.cases.agents", "r")
    assert said[-1] == {"run": "r", "result": "charged 10 to ann"}
    assert len(case.lines("charge")) == 1


def test_c04_a_run_that_is_killed_right_after_its_admission_is_found_and_run(case: Case) -> None:
    case.dies("run", "r", "one_charge", '["ann"]', crash="admitted:one_charge")
    log = case.log("r")
    assert log.names == ["RunAdmitted"]
    assert (log.head.state, log.head.lsn) == ("PENDING", 1)
    case.says("serve", "tests.cases.agents", "r")
    assert [event.workflow for event in case.log("r").all(RunAdmitted)] == ["one_charge"]
    assert len(case.log("r").all(BranchStarted)) == 1
    assert len(case.lines("charge")) == 1


@pytest.mark.parametrize("tool", ["charge", "mail", "push"])
@pytest.mark.parametrize("point", ["dispatched", "called"])
def test_c09_both_sides_of_the_call_may_have_been_sent_and_the_class_decides(case: Case, tool: str, point: str) -> None:
    case.dies("run", "r", f"one_{tool}", ARGS[tool], crash=f"{point}:{tool}")
    happened = int(point == "called")
    assert len(case.lines(tool)) == happened
    assert case.log("r").all(IntentClassified) == []

    said = case.says("serve", "tests.cases.agents", "r")
    log = case.log("r")
    assert log.one(IntentClassified).classification is Classification.MAY_HAVE_BEEN_SENT
    assert log.lsn(IntentClassified) < min(n for n, _, e in log.records if isinstance(e, RuleApplied | IntentProbed))
    ids = {line["id"] for line in case.lines(tool)}
    assert ids <= {log.one(IntentPending).request_id}
    match tool:
        case "charge":
            assert said[-1]["result"] == "charged 10 to ann"
            assert len(case.lines(tool)) == happened + 1
            assert [event.send for event in log.all(IntentDispatched)] == [1, 2]
        case "push":
            assert said[-1]["result"] == "pushed news"
            assert len(case.lines(tool)) == 1
            answers = [event.answer for event in log.all(IntentProbed)]
            assert answers == ["landed"] if happened else len(answers) >= 2 and set(answers) == {"absent"}
            assert len(log.all(IntentDispatched)) == (1 if happened else 2)
            assert bool(log.all(IntentResolved)) == bool(happened)
        case "mail":
            assert said[-1]["error"] == "RunWaiting"
            assert len(case.lines(tool)) == happened
            assert len(log.all(IntentDispatched)) == 1
            assert log.attempt("mail#0").state is AttemptState.INDETERMINATE
            assert [item.id for item in log.inbox] == ["r/main/mail#0/1/0"]
            assert log.inbox[0].summary == "may have happened, verify first: mail to bob"
        case _:
            raise AssertionError(tool)


def test_c09_control_before_dispatched_it_was_never_sent(case: Case) -> None:
    case.dies("run", "r", "one_mail", '["bob"]', crash="pending:mail")
    assert case.lines() == []
    said = case.says("serve", "tests.cases.agents", "r")
    assert said[-1]["result"] == "mailed bob"
    log = case.log("r")
    assert log.one(IntentClassified).classification is Classification.NEVER_SENT
    assert log.lsn(IntentPending) < log.lsn(IntentClassified) < log.lsn(IntentDispatched)
    assert len(case.lines("mail")) == 1


def test_c06_what_was_done_before_a_step_failed_is_not_done_again(case: Case) -> None:
    said = case.says("run", "r", "notifying", '["bob", 2]')
    assert said == [{"result": ["mailed bob", "1", "third"]}]
    assert [line["tool"] for line in case.lines()] == ["mail", "row", "third", "third", "third"]
    log = case.log("r")
    assert [len(log.attempt("notify#0", no).intents) for no in (1, 2, 3)] == [3, 1, 1]


@pytest.mark.parametrize("crash", ["pending:third:2", "called:third:2", "committed:third:1", "committed:row:1"])
def test_c06_nor_after_a_kill_in_a_later_attempt(case: Case, crash: str) -> None:
    case.dies("run", "r", "notifying", '["bob", 1]', crash=crash)
    said = case.says("run", "r", "notifying", '["bob", 1]')
    assert said == [{"result": ["mailed bob", "1", "third"]}]
    assert len(case.lines("mail")) == len(case.lines("row")) == 1
    assert case.log("r").attempt("notify#0", 2).state is AttemptState.SUCCEEDED


def test_c07_an_answer_is_durable_before_the_calls_that_it_asks_for(case: Case) -> None:
    case.dies("run", "r", "agent", '["tea"]', crash="in_call:push")
    assert [line["tool"] for line in case.lines()] == ["chat", "charge"]
    said = case.says("serve", "tests.cases.agents", "r")
    assert said[-1]["result"] == ["about tea", "charged 5 to ann", "pushed news", "mailed bob"]
    assert [line["tool"] for line in case.lines()] == ["chat", "charge", "push", "mail"]
    log = case.log("r")
    assert [(event.step, event.classification) for event in log.all(IntentClassified)] == [
        ("push#0", Classification.MAY_HAVE_BEEN_SENT)
    ]


def test_c07_each_of_several_interrupted_calls_is_classified_alone(case: Case) -> None:
    with case.child("run", "r", "agent_at_once", '["tea"]', stops=("push", "mail")) as child:
        entered = {child.hear()["entered"], child.hear()["entered"]}
        assert entered == {"push", "mail"}
        child.kill()
    before = case.log("r")
    assert before.attempt("chat#0").state is AttemptState.SUCCEEDED
    said = case.says("serve", "tests.cases.agents", "r")
    assert said[-1]["error"] == "RunWaiting"
    log = case.log("r")
    assert {(event.step, event.classification) for event in log.all(IntentClassified)} == {
        (step, Classification.MAY_HAVE_BEEN_SENT) for step in ("push#0", "mail#0")
    }
    assert log.one(IntentResolved).to is Resolution.LANDED
    assert [(step.key, step.last.state.name) for step in log.line.steps.values()] == [
        ("chat#0", "SUCCEEDED"),
        ("charge#0", "SUCCEEDED"),
        ("push#0", "SUCCEEDED"),
        ("mail#0", "INDETERMINATE"),
    ]
    assert sorted(line["tool"] for line in case.lines()) == ["charge", "chat", "mail", "push"]


def test_c15_the_sibling_of_an_answered_call_is_sent_after_the_restart(case: Case) -> None:
    case.dies("run", "r", "siblings", crash="pending:mail")
    assert [line["tool"] for line in case.lines()] == ["charge"]
    assert [event.step for event in case.log("r").all(IntentCommitted)] == ["charge#0", "after#0"]
    assert case.says("run", "r", "siblings") == [{"result": ["charged 10 to ann", "mailed bob"]}]
    assert [line["tool"] for line in case.lines()] == ["charge", "mail"]
    assert case.log("r").one(IntentClassified).classification is Classification.NEVER_SENT


def test_c31_every_attempt_stays_visible_with_its_cause_and_times(case: Case) -> None:
    case.says("run", "r", "notifying", '["bob", 2]')
    log = case.log("r")
    attempts = log.line.steps["notify#0"].attempts
    assert [attempt.state.name for attempt in attempts] == ["FAILED", "FAILED", "SUCCEEDED"]
    assert [attempt.error.message if attempt.error else "" for attempt in attempts] == [
        "the far side is away",
        "the far side is away",
        "",
    ]
    times = [time for attempt in attempts for time in (attempt.started_at, attempt.ended_at)]
    assert times == sorted(times) and times[0] >= log.view.admitted_at
    assert [event.attempt for event in log.all(AttemptStarted) if event.step == "notify#0"] == [1, 2, 3]
    assert [event.error.type for event in log.all(AttemptFailed)] == ["NotSent", "NotSent"]


def test_c35_twenty_steps_at_once_keep_their_keys_and_the_finished_ones_are_not_run(case: Case) -> None:
    case.dies("run", "r", "fan", "[20]", crash="called:row:8")
    before = case.log("r")
    done = {step.key for step in before.line.steps.values() if step.last.state is AttemptState.SUCCEEDED}
    keys = [f"row-{i}" for i in range(20)]
    assert list(before.line.steps) == keys
    first = case.lines("row")
    said = case.says("serve", "tests.cases.agents", "r")
    assert said[-1]["result"] == list(range(20))
    log = case.log("r")
    assert list(log.line.steps) == keys
    again = case.lines("row")[len(first) :]
    assert {line["pid"] for line in first}.isdisjoint({line["pid"] for line in again})
    assert {f"row-{line['about']}" for line in again} == set(keys) - done
    assert {event.step for event in log.all(IntentClassified)} == set(keys) - done
