"""Deploys between two lives of a run: other arguments, other comments, classes that moved, values not kept."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import effects
from poimen.declare.values import digest
from poimen.kernel.attempt import AttemptState
from poimen.kernel.branch import BranchState
from poimen.kernel.errors import BadDeclaration
from poimen.kernel.events import AttemptFailed, BranchResumed
from poimen.kernel.intent import IntentClassified, IntentCommitted, IntentDispatched, IntentPending, Returned

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cases.world import Case

SHOP = '''
import poimen
from tests.cases.agents import charge, mail


@poimen.workflow
async def shop(who: str) -> list[str]:
    """Charge, then tell."""
    # take the money first
    paid = await charge("alice", 10)
    return [paid, await mail(who)]


@poimen.workflow
async def other() -> int:
    return 7
'''
TOOL = """

from poimen import effects


@poimen.tool(effect=effects.IDEMPOTENT)
async def fee(who: str, cents: int) -> str:
    world.mark("fee")
    return f"charged {cents}"
"""


class Deploy:
    """One file of code, in the versions that are deployed one after another."""

    def __init__(self, case: Case, name: str) -> None:
        self.case = case
        self.file: Path = case.folder / name

    def __call__(self, text: str, *changes: tuple[str, str]) -> str:
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        self.file.write_text(text, encoding="utf-8")
        return text


@pytest.fixture
def deploy(case: Case) -> Deploy:
    return Deploy(case, "shop.py")


# ---- C32 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", ["pending:charge", "dispatched:charge", "called:charge", "committed:charge"])
def test_c32_other_arguments_than_recorded_stop_the_run_with_both_sides_shown(
    case: Case, deploy: Deploy, crash: str
) -> None:
    deploy(SHOP)
    case.dies("run", "r", f"{deploy.file}:shop", '["bob"]', crash=crash)
    before = case.lines()
    deploy(SHOP, ('charge("alice", 10)', 'charge("bob", 99999)'))
    said = case.says("serve", deploy.file, "r")[-1]
    assert said["error"] == "RunWaiting"
    log = case.log("r")
    assert (log.line.state, [one.reason for one in log.line.waiting]) == (BranchState.WAITING, ["code"])
    shown = log.line.waiting[0].detail
    first, second = ('{"cents":10,"who":"alice"}', '{"cents":99999,"who":"bob"}')
    recorded, asked = shown.split("; the code asked for: ")
    assert f"charge(…) as charge#0, arguments {digest(first.encode())[:8]} (code " in recorded, shown
    assert f"charge(…) as charge#0, arguments {digest(second.encode())[:8]} at shop.py:10 (code " in asked, shown
    assert "alice" not in shown and "99999" not in shown, "what agents passed is agent text"
    assert log.line.waiting[0].about == "charge#0"
    assert "poimen run FILE_OR_MODULE:shop --id r" in said["text"]
    both = 'recorded: charge(cents=10, who="alice"); asked for: charge(cents=99999, who="bob")'
    assert f"nothing was executed of what the code asks for; {both}" in said["text"], (
        "an error is for those whose code it is: it shows both sides as they were called"
    )
    assert "99999" not in str([line["about"] for line in case.lines()])
    assert [event.step for event in log.all(IntentPending)] == ["charge#0"]
    assert len(log.line.steps) == 1
    if crash in {"pending:charge", "committed:charge"}:
        assert case.lines() == before, "something was executed"

    deploy(SHOP)
    assert case.says("finish", deploy.file, "r") == [{"result": ["charged 10 to alice", "mailed bob"]}]
    assert len({line["id"] for line in case.lines("charge")}) == len(case.lines("mail")) == 1


@pytest.mark.parametrize(
    "change",
    [
        ('charge("alice", 10)', 'mail("alice")'),
        ('    paid = await charge("alice", 10)\n', '    paid = "free"\n'),
        ('paid = await charge("alice", 10)', 'await mail("first"); paid = await charge("alice", 10)'),
    ],
)
def test_c32_nor_is_a_result_handed_to_another_call(case: Case, deploy: Deploy, change: tuple[str, str]) -> None:
    deploy(SHOP)
    case.dies("run", "r", f"{deploy.file}:shop", '["bob"]', crash="committed:charge")
    deploy(SHOP, change)
    assert case.says("serve", deploy.file, "r")[-1]["error"] == "RunWaiting"
    assert [one.reason for one in case.log("r").line.waiting] == ["code"]
    assert [line["tool"] for line in case.lines()] == ["charge"]
    names = case.log("r").names
    case.says("looks", deploy.file, 3)
    assert case.log("r").names == names, "the same code was tried again"


def test_c32_nor_to_another_tool_that_has_the_same_key_and_arguments(case: Case, deploy: Deploy) -> None:
    text = SHOP.replace("import charge, mail", "import charge, mail, world").replace(
        "charge(", 'charge.options(key="pay")('
    )
    deploy(text + TOOL)
    case.dies("run", "r", f"{deploy.file}:shop", '["bob"]', crash="committed:charge")
    deploy(text.replace("await charge", "await fee") + TOOL)
    stopped = case.says("serve", deploy.file, "r")[-1]
    assert stopped["error"] == "RunWaiting"
    recorded, asked = stopped["text"].split("; the code asked for: ")
    assert "charge" in recorded and "as pay" in recorded and "fee" in asked
    assert [line["tool"] for line in case.lines()] == ["charge"]


@pytest.mark.parametrize("back", [False, True])
def test_c32_a_tool_that_became_a_model_is_told_as_one_and_not_as_if_nothing_had_been_executed(
    case: Case, deploy: Deploy, *, back: bool
) -> None:
    tool = (SHOP.replace("import charge, mail", "import mail, world").replace("charge(", "fee(")) + TOOL
    model = tool.replace("@poimen.tool(effect=effects.IDEMPOTENT)", "@poimen.model()")
    before, after = (model, tool) if back else (tool, model)
    deploy(before)
    case.dies("run", "r", f"{deploy.file}:shop", '["bob"]', crash="committed:fee")
    deploy(after)
    stopped = case.says("serve", deploy.file, "r")[-1]
    kinds = ("model", "tool") if back else ("tool", "model")
    assert f"recorded: the {kinds[0]} fee(…)" in stopped["text"], stopped
    assert f"the code asked for: the {kinds[1]} fee(…)" in stopped["text"], stopped
    assert len(case.lines("fee")) == 1, "it was executed, once, by the code that recorded it"
    told = stopped["text"].lower()
    assert told.count("nothing was executed") == told.count("nothing was executed of what the code asks for") == 1
    deploy(before)
    assert case.says("finish", deploy.file, "r")[-1]["result"] == ["charged 10", "mailed bob"]
    assert len(case.lines("fee")) == 1


def test_c32_other_parameters_of_the_workflow_stop_that_run_alone(case: Case, deploy: Deploy) -> None:
    deploy(SHOP)
    case.dies("run", "r", f"{deploy.file}:shop", '["bob"]', crash="committed:charge")
    case.dies("run", "s", f"{deploy.file}:other", crash="admitted:other")
    deploy(SHOP, ("shop(who: str)", "shop(whom: int)"), ("mail(who)", "mail(str(whom))"))
    _, stopped, other = case.says("serve", deploy.file, "r", "s")
    assert stopped["error"] == "RunWaiting"
    assert [one.reason for one in case.log("r").line.waiting] == ["code"]
    assert "whom" in stopped["text"] and "bob" not in stopped["text"]
    assert other == {"run": "s", "result": 7}


def test_c32_other_parameters_of_a_tool_that_was_interrupted_stop_that_run_alone(case: Case, deploy: Deploy) -> None:
    text = SHOP.replace("import charge, mail", "import mail, world").replace("charge(", "fee(") + TOOL
    deploy(text)
    case.dies("run", "r", f"{deploy.file}:shop", '["bob"]', crash="called:fee")
    case.dies("run", "s", f"{deploy.file}:other", crash="admitted:other")
    deploy(text, ("fee(who: str, cents: int)", "fee(who: str, cents: int, currency: str)"), ("10)", '10, "eur")'))
    _, stopped, other = case.says("serve", deploy.file, "r", "s")
    assert stopped["error"] == "RunWaiting"
    assert [one.reason for one in case.log("r").line.waiting] == ["code"]
    assert other == {"run": "s", "result": 7}
    assert len(case.lines("fee")) == 1
    deploy(text)
    assert case.says("finish", deploy.file, "r") == [{"result": ["charged 10", "mailed bob"]}]


# ---- C33 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        ("# take the money first\n", "# the money, and then the mail\n\n    # (a whole new comment)\n"),
        ('"""Charge, then tell."""', '"""Take the money, then say so."""'),
        ("paid", "money"),
    ],
)
def test_c33_source_text_is_no_part_of_identity(case: Case, deploy: Deploy, change: tuple[str, str]) -> None:
    deploy(SHOP)
    case.dies("run", "r", f"{deploy.file}:shop", '["bob"]', crash="committed:charge")
    deploy(SHOP, change)
    assert case.says("serve", deploy.file, "r")[-1]["result"] == ["charged 10 to alice", "mailed bob"]
    assert [line["tool"] for line in case.lines()] == ["charge", "mail"]
    assert case.log("r").one(BranchResumed).why == "recovered"


# ---- C34 ------------------------------------------------------------------------------------------------------------

LOCKS = """
import threading
from typing import Any

import poimen
from poimen import effects
from tests.cases.agents import world


@poimen.tool(effect=effects.AT_MOST_ONCE, attempts=3, backoff=0.001)
async def make() -> Any:
    world.mark("make")
    return threading.Lock()


@poimen.step(attempts=3, backoff=0.001)
async def made() -> str:
    return str(await make())


@poimen.workflow
async def alone() -> str:
    try:
        return str(await make())
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    await make()
    return told


@poimen.workflow
async def inside() -> str:
    return await made()


@poimen.workflow
async def caught() -> str:
    try:
        return str(await make())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""


def test_c34_what_the_annotation_tells_is_refused_before_anything_happens() -> None:
    with pytest.raises(BadDeclaration, match=r"result: .*lock.* cannot be stored"):

        @poimen.tool(effect=effects.AT_MOST_ONCE)
        async def make() -> threading.Lock:
            raise AssertionError("never called")


def test_c34_a_value_that_cannot_be_stored_takes_nothing_back(case: Case, deploy: Deploy) -> None:
    deploy(LOCKS)
    (live,) = case.says("run", "live", f"{deploy.file}:caught")
    assert "lock" in live["result"]
    assert len(case.lines("make")) == 1

    case.dies("run", "r", f"{deploy.file}:caught", crash="committed:make")
    (again,) = case.says("run", "r", f"{deploy.file}:caught")
    assert again == live, "the code was told something else in the replay"
    assert len(case.lines("make")) == 2
    log = case.log("r")
    outcome = log.one(IntentCommitted).outcome
    assert isinstance(outcome, Returned) and "lock" in outcome.unstorable
    assert log.attempt("make#0").state is AttemptState.FAILED
    assert log.one(AttemptFailed).error.type == "NotStorable"
    assert log.all(IntentClassified) == [] and len(log.all(IntentDispatched)) == 1


def test_c34_nor_is_it_made_again_by_a_further_attempt(case: Case, deploy: Deploy) -> None:
    deploy(LOCKS)
    said: list[Any] = case.says("run", "r", f"{deploy.file}:inside")
    assert said[0]["error"] == "RunFailed"
    log = case.log("r")
    assert len(case.lines("make")) == len(log.all(IntentDispatched)) == 1
    assert {attempt.state for attempt in log.line.steps["made#0"].attempts} == {AttemptState.FAILED}


# ---- C38 ------------------------------------------------------------------------------------------------------------

FAILING = """
import poimen
from poimen import effects
from tests.cases.agents import mail, world
from {module} import Declined


@poimen.tool(effect=effects.AT_MOST_ONCE, rejected=Declined)
async def pay(cents: int) -> str:
    world.mark("pay")
    raise Declined("no funds", code=51, limit=cents)


@poimen.workflow
async def paying() -> list[str]:
    try:
        await pay(7)
    except poimen.Rejected as error:
        told = [type(error).__name__, str(error.message), str(sorted(error.ids))]
    await mail("ann")
    return told


@poimen.workflow
async def failing() -> str:
    raise Declined("no funds", code=51, limit=3)
"""
DECLINED = '''
class Declined(Exception):
    """The bank said no."""

    def __init__(self, text: str, *, code: int, limit: int) -> None:
        super().__init__(text)
        self.code = code
        self.limit = limit
'''


def test_c38_an_error_whose_class_moved_is_readable_for_ever(case: Case, deploy: Deploy) -> None:
    old, new = case.folder / "bank_before.py", case.folder / "bank_after.py"
    old.write_text(DECLINED, "utf-8")
    deploy(FAILING.format(module="bank_before"))
    (untouched,) = case.says("run", "u", f"{deploy.file}:paying")
    case.dies("run", "r", f"{deploy.file}:paying", crash="pending:mail")
    (failed,) = case.says("run", "f", f"{deploy.file}:failing")
    assert failed["error"] == "RunFailed"

    old.rename(new)
    deploy(FAILING.format(module="bank_after"))
    (moved,) = case.says("run", "r", f"{deploy.file}:paying")
    assert moved == untouched
    assert len(case.lines("pay")) == 2
    new.unlink()
    deploy.file.unlink()
    for error in (case.log("r").one(AttemptFailed).error, case.log("f").line.body.error):  # type: ignore[union-attr]
        assert error is not None
        assert (error.type, error.message, error.fields["module"]) == ("Declined", "no funds", "bank_before")
        assert error.fields["code"] == 51
    assert case.says("reads", "f") == [{"type": "Declined", "message": "no funds", "limit": 3}]
