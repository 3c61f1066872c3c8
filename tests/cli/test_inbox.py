"""What an operator sees and does: an item whole, a claim, a probe, a resolution that hits one intent and no other."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from poimen.engine import desk, standing
from poimen.kernel.branch import OperatorMatter
from poimen.kernel.events import Waiting
from poimen.kernel.intent import LateOutcome, Returned
from poimen.log import codec
from poimen.log.api import Batch
from poimen.log.opening import open_store
from poimen.log.sqlite import SqliteStore
from tests.cli.conftest import AGENT, MAIL, Cli, child

if TYPE_CHECKING:
    from pathlib import Path

SURE = ("--why", "looked", "--confirm", MAIL)


def test_an_item_can_be_understood_and_decided(cli: Cli, waiting: Path) -> None:
    done = cli("inbox", "show", "tea", "--db", waiting)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "may have happened, verify first: mail the receipt for tea"
    text = done.out
    request = cli("intents", "show", MAIL, "--json", "--db", waiting).data["request_id"]
    for said in (
        f"intent      {MAIL}",
        "run         tea-1, shop, WAITING",
        "class       AT_MOST_ONCE: never sent again by a machine",
        f"request id  {request}",
        "sent        1 time(s), last 20",
        "args        15 bytes (--content shows them)",
        "IntentDispatched  send 1: from here on it may have been sent",
        "IntentClassified  after a crash: may have been sent",
        "RuleApplied       rule at-most-once: indeterminate",
        "whether send 1 (LSN 11) has landed",
        f"poimen --db {waiting} inbox resolve {MAIL} --landed --value JSON --why WHY --evidence EVIDENCE",
        f"--evidence EVIDENCE --expect-lsn 15 --confirm {MAIL}",
        f"inbox resolve {MAIL} --not-landed --why WHY",
        f"inbox resolve {MAIL} --abandon --why WHY",
    ):
        assert said in text, said
    assert '{"order": "tea"}' in cli("inbox", "show", "tea", "--content", "--db", waiting).out
    data = cli("inbox", "show", "tea", "--json", "--db", waiting).data
    assert {"id", "kind", "waits", "lsn", "run", "intent", "meaning", "unknown", "commands"} <= set(data)
    assert (data["waits"], data["lsn"]) == (True, 15)


def test_what_follows_is_worded_by_the_state_of_the_run(cli: Cli, waiting: Path) -> None:
    goes_on = "landed: the run goes on with the value"
    assert goes_on in cli("inbox", "show", "tea", "--db", waiting).out
    assert cli("runs", "cancel", "tea", "--why", "x", "--by", "ann", "--db", waiting).code == 0
    shown = cli("inbox", "show", "tea", "--db", waiting).out
    assert "the run is being cancelled by ann: what you find out is recorded, nothing is sent" in shown
    assert cli("run", f"{AGENT}:shop", "--id", "tea-1", "--db", waiting).code == 1
    shown = cli("inbox", "show", "tea", "--db", waiting).out
    said = "the run has ended (CANCELLED): what you find out is recorded, nothing is sent and nothing goes on"
    assert said in shown
    assert goes_on not in shown and "sent anew" not in shown
    resolved = cli("inbox", "resolve", MAIL, "--not-landed", *SURE, "--db", waiting)
    assert (resolved.code, said in resolved.err) == (0, True)


def test_what_goes_on_names_the_module_that_was_given(cli: Cli, waiting: Path) -> None:
    words = ("inbox", "resolve", MAIL, "--landed", "--value", '"mailed tea"', "--module", AGENT, *SURE)
    done = cli(*words, "--db", waiting)
    assert f"go on: poimen --db {waiting} run {AGENT}:shop --id tea-1\n" in done.err
    command = shlex.split(done.err.partition("go on: poimen ")[2])
    assert cli(*command).out == "charged 4200, mailed tea\n"


def test_a_resolution_is_shown_whole(cli: Cli, waiting: Path) -> None:
    said = ("--value", '"mailed tea"', "--evidence", "spool, line 1", "--by", "ann")
    assert cli("inbox", "resolve", MAIL, "--landed", *said, *SURE, "--db", waiting).code == 0
    lines = cli("intents", "show", MAIL, "--db", waiting).out.splitlines()
    for line in (
        "resolved    landed by ann (operator)",
        "why         looked",
        "evidence    spool, line 1",
        "value       12 bytes (--content shows them)",
    ):
        assert line in lines, line
    assert 'value       "mailed tea"' in cli("intents", "show", MAIL, "--content", "--db", waiting).out.splitlines()


def test_the_row_of_an_item(cli: Cli, waiting: Path) -> None:
    (item,) = cli("inbox", "--json", "--db", waiting).data
    assert set(item) == {
        "id",
        "kind",
        "run_id",
        "summary",
        "lsn",
        "since",
        "tool",
        "effect_class",
        "sends",
        "claimed_by",
    }
    assert cli("inbox", "--kind", "code", "--json", "--db", waiting).data == []


def test_a_run_that_nobody_drives_is_told(cli: Cli, killed: Path) -> None:
    done = cli("inbox", "--db", killed)
    assert (done.code, done.out) == (0, "")
    assert "1 run(s) are not driven by anybody: poimen" in done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "say one thing that you have found out: --landed, --not-landed or --abandon"),
        (("--landed",), f"nobody can be asked here: give --confirm {MAIL} and --why"),
        (("--landed", "--why", "x"), f"give --confirm {MAIL}"),
        (("--landed", "--yes", "--why", "x"), f"give --confirm {MAIL}"),
        (("--landed", "--confirm", MAIL), "--why is missing"),
        (("--landed", "--why", " ", "--confirm", MAIL), "--why is missing"),
        (("--landed", "--why", "x", "--confirm", "tea-1"), "--confirm names tea-1, the intent is"),
        (("--not-landed", "--value", "1", *SURE), "--value belongs to --landed"),
        (("--landed", "--value", "mailed", *SURE), "--value is not JSON"),
        (("--landed", "--value", "@nowhere", *SURE), "--value @nowhere cannot be read"),
        (("--landed", "--value", "5", "--module", str(AGENT), *SURE), "mail could not have returned that"),
        (("--landed", "--module", str(AGENT), *SURE), "mail could not have returned that"),
        (("--landed", "--value", "NaN", *SURE), "--value is not JSON"),
        (("--landed", "--not-landed", *SURE), "say one thing that you have found out"),
    ],
)
def test_a_resolution_that_is_not_sure_records_nothing(
    cli: Cli, waiting: Path, words: tuple[str, ...], says: str
) -> None:
    before = waiting.read_bytes()
    done = cli("inbox", "resolve", MAIL, *words, "--db", waiting)
    assert (done.code, done.out) == (2, ""), done
    assert says in done.err
    assert waiting.read_bytes() == before


def test_the_same_resolution_again_is_no_error(cli: Cli, waiting: Path) -> None:
    value = ("--value", '"mailed tea"')
    first = cli("inbox", "resolve", MAIL, "--landed", *value, *SURE, "--by", "ann", "--json", "--db", waiting).data
    assert (first["changed"], first["to"]) == (True, "landed")
    for again in ((*value, *SURE), SURE, (*value,), (*SURE, "--expect-lsn", "1"), ("--by", "bob")):
        done = cli("inbox", "resolve", MAIL, "--landed", *again, "--json", "--db", waiting)
        assert (done.code, done.data["changed"]) == (0, False), done
    assert "was resolved so before" in cli("inbox", "resolve", "tea", "--landed", "--db", waiting).out
    for other in (("--abandon",), ("--not-landed",), ("--landed", "--value", '"else"')):
        assert cli("inbox", "resolve", MAIL, *other, *SURE, "--db", waiting).code == 5
    closed = cli("intents", "show", MAIL, "--json", "--content", "--db", waiting).data["resolution"]
    assert (closed["by"], closed["why"], closed["value"]) == ("ann", "looked", "mailed tea")
    assert cli("inbox", "--json", "--db", waiting).data == []
    run = cli("runs", "show", "tea", "--json", "--db", waiting).data
    assert (run["waiting"], run["reason"]) == ([], "no live worker drives it")


@pytest.mark.parametrize(
    ("to", "code", "says", "mails"),
    [
        (("--landed", "--value", '"mailed by hand"', "--module", str(AGENT)), 0, "charged 4200, mailed by hand", 1),
        (("--not-landed",), 0, "charged 4200, mailed tea", 2),
        (("--abandon",), 1, "EffectAbandoned", 1),
    ],
)
def test_what_a_resolution_leads_to(
    cli: Cli, waiting: Path, *, to: tuple[str, ...], code: int, says: str, mails: int
) -> None:
    assert cli("inbox", "resolve", MAIL, *to, *SURE, "--evidence", "spool", "--db", waiting).code == 0
    done = cli("run", f"{AGENT}:shop", "--id", "tea-1", "--db", waiting)
    assert (done.code, says in done.out + done.err) == (code, True), done
    lines = waiting.with_name("witness.txt").read_text(encoding="utf-8").splitlines()
    assert lines.count("mail tea") == mails


def test_a_dead_worker_does_not_stand_in_the_way(cli: Cli, killed: Path) -> None:
    done = cli("inbox", "resolve", MAIL, "--not-landed", *SURE, "--db", killed)
    assert done.code == 0, "its lease has not run out, but its process is gone"


def test_what_was_never_unknown_cannot_be_resolved(cli: Cli, waiting: Path) -> None:
    charge = "tea-1/main/charge#0/1/0"
    done = cli("inbox", "resolve", charge, "--landed", "--why", "x", "--confirm", charge, "--db", waiting)
    assert (done.code, "is not open: committed" in done.err) == (5, True)
    assert "nothing is to be decided, returned" in cli("inbox", "show", charge, "--db", waiting).out


def test_a_claim_is_shown_and_may_be_taken_over(cli: Cli, waiting: Path) -> None:
    assert cli("inbox", "claim", "tea", "--by", "ann", "--json", "--db", waiting).data["changed"] is True
    assert cli("inbox", "claim", "tea", "--by", "ann", "--json", "--db", waiting).data["changed"] is False
    assert "; ann had claimed it" in cli("inbox", "claim", "tea", "--by", "bob", "--db", waiting).out
    assert cli("inbox", "--json", "--db", waiting).data[0]["claimed_by"] == "bob"


@pytest.fixture
def pushed(tmp_path: Path) -> Path:
    """A push killed in window B, whose probe may not be believed for an hour."""
    child("run", f"{AGENT}:pushes", "x", "--id", "p", "--db", "db", cwd=tmp_path, POIMEN_CRASH="called:push")
    return tmp_path / "db"


def test_a_probe_is_a_record_and_decides_nothing(cli: Cli, pushed: Path, tmp_path: Path) -> None:
    missing = cli("inbox", "probe", "p", "--db", pushed)
    assert (missing.code, "--module is missing" in missing.err) == (2, True)
    done = cli("inbox", "probe", "p", "--module", AGENT, "--by", "ann", "--json", "--db", pushed)
    assert done.code == 0, done
    assert (done.data["answer"], done.data["value"], done.data["evidence"]) == (
        "landed",
        "pushed x",
        "witness.txt has it",
    )
    assert done.data["command"].endswith(
        f"--landed --value '\"pushed x\"' --why WHY --expect-lsn {done.data['lsn']} --confirm p/main/push#0/1/0"
    )
    (tmp_path / "witness.txt").unlink()
    absent = cli("inbox", "probe", "p", "--module", AGENT, "--db", pushed)
    assert absent.out == "absent: witness.txt has it not\n"
    assert "if it convinces you:\n  poimen --db" in absent.err
    intent = cli("intents", "show", "p", "--json", "--db", pushed).data
    assert [p["body"]["answer"] for p in intent["probes"]] == ["landed", "absent"]
    assert intent["probes"][0]["body"]["by"] == "ann"
    assert (intent["open"], intent["resolution"]) == (True, None)
    shown = cli("inbox", "show", "p", "--db", pushed).out
    assert "inbox probe p/main/push#0/1/0 --module MODULE" in shown
    assert "asked by ann: landed, witness.txt has it" in shown
    assert shown.startswith("may have happened, and nobody drives the run: start it again first")


TYPED = """
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
import poimen
from poimen import effects

@dataclass
class Receipt:
    total: Decimal

def find() -> effects.Landed[Receipt]:
    return effects.Landed(Receipt(Decimal("1.50")))

@poimen.tool(effect=effects.PROBE(find, lag=timedelta(hours=1)))
async def pay() -> Receipt:
    raise TimeoutError

@poimen.workflow
async def pays() -> Receipt:
    return await pay()
"""


def test_what_a_probe_found_is_shown_as_it_was_recorded(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED, encoding="utf-8")
    child("run", "typed.py:pays", "--id", "p", "--db", "db", cwd=tmp_path, POIMEN_CRASH="called:pay")
    done = cli("inbox", "probe", "p", "--module", tmp_path / "typed.py", "--json", "--db", tmp_path / "db")
    assert (done.code, done.data["answer"], done.data["value"]) == (0, "landed", {"total": "1.50"}), done
    assert """--landed --value '{"total":"1.50"}' --why""" in done.data["command"]


def test_a_probe_where_there_is_none(cli: Cli, waiting: Path, tmp_path: Path) -> None:
    done = cli("inbox", "probe", "tea", "--module", AGENT, "--db", waiting)
    assert (done.code, "mail has no probe" in done.err) == (3, True)
    assert (
        f"look at the far side yourself; what to look for, and how to decide: poimen --db {waiting} inbox show {MAIL}\n"
        in (done.err)
    )
    without = cli("inbox", "probe", "tea", "--db", waiting)  # there is no module to name
    assert (without.code, without.err) == (done.code, done.err)
    (tmp_path / "empty.py").write_text("", encoding="utf-8")
    other = cli("inbox", "probe", "tea", "--module", "empty.py", "--db", waiting)
    assert (other.code, "the code of mail is not loaded here" in other.err) == (3, True)


# ---- runs and decisions ----------------------------------------------------------------------------------------


def test_cancelling_is_a_record_and_leaves_the_unknown_in_the_inbox(cli: Cli, waiting: Path) -> None:
    done = cli("runs", "cancel", "tea", "--why", "enough", "--by", "ann", "--json", "--db", waiting)
    assert (done.code, done.data["changed"]) == (0, True)
    again = cli("runs", "cancel", "tea", "--why", "enough", "--json", "--db", waiting)
    assert (again.code, again.data["changed"]) == (0, False)
    run = cli("runs", "show", "tea", "--json", "--db", waiting).data
    assert (run["cancel"]["by"], run["cancel"]["why"], run["state"]) == ("ann", "enough", "WAITING")
    assert run["reason"] == "no live worker drives it; cancelled by ann"
    ended = cli("run", f"{AGENT}:shop", "--id", "tea-1", "--db", waiting)
    assert (ended.code, "PO322 run tea-1 was cancelled: enough" in ended.err) == (1, True), ended
    assert [one["id"] for one in cli("inbox", "--json", "--db", waiting).data] == [MAIL]
    assert cli("runs", "cancel", "tea", "--why", "x", "--db", waiting).code == 0


def test_cancelling_what_has_ended_is_a_conflict(cli: Cli) -> None:
    assert cli("run", f"{AGENT}:nothing", "--id", "t", "--db", "db").code == 0
    done = cli("runs", "cancel", "t", "--why", "x", "--db", "db")
    assert (done.code, "has ended: SUCCEEDED" in done.err) == (5, True)


def test_resuming_once_is_enough(cli: Cli, waiting: Path) -> None:
    assert cli("runs", "resume", "tea", "--db", waiting).code == 2, "without a word why nothing is changed"
    assert cli("runs", "resume", "tea", "--why", "mended", "--json", "--db", waiting).data["changed"] is True
    again = cli("runs", "resume", "tea", "--why", "mended", "--json", "--db", waiting)
    assert (again.code, again.data["changed"]) == (0, False)


def test_an_owed_decision_comes_first_and_is_closed_by_hand(cli: Cli, waiting: Path) -> None:
    assert cli("run", f"{AGENT}:shop", "milk", "--id", "a", "--db", waiting).code == 0
    rows = cli("decisions", "--json", "--db", waiting).data
    assert [(one["id"], one["owed"]) for one in rows] == [("tea-1/order", True), ("a/order", False)]
    assert [one["id"] for one in cli("decisions", "ls", "--owed", "--json", "--db", waiting).data] == ["tea-1/order"]
    assert [one["id"] for one in cli("decisions", "ls", "--run", "a", "--json", "--db", waiting).data] == ["a/order"]
    assert cli("decisions", "settle", "tea-1/order", "--db", waiting).code == 2
    ambiguous = cli("decisions", "settle", "nope", "--why", "x", "--db", waiting)
    assert ambiguous.code == 3
    done = cli("decisions", "reject", "order", "--why", "not wanted", "--json", "--db", waiting)
    assert (done.code, done.data["id"], done.data["changed"]) == (0, "tea-1/order", True), "the owed one is meant"
    again = cli("decisions", "reject", "tea-1/order", "--why", "x", "--json", "--db", waiting)
    assert (again.code, again.data["changed"]) == (0, False)
    other = cli("decisions", "settle", "tea-1/order", "--why", "x", "--db", waiting)
    assert (other.code, "is closed otherwise: rejected" in other.err) == (5, True)


@pytest.mark.parametrize("value", ["5", "null", "true", "[]", '["mailed tea"]', '{"a": 1}'])
def test_a_value_that_the_tool_could_not_have_returned_is_refused_without_its_code(
    cli: Cli, waiting: Path, value: str
) -> None:
    before = waiting.read_bytes()
    for dry in ((), ("--dry-run",)):
        done = cli("inbox", "resolve", MAIL, "--landed", "--value", value, *SURE, *dry, "--db", waiting)
        assert (done.code, done.out) == (2, ""), done
        kind = type(json.loads(value)).__name__
        assert f"{MAIL} returns str, and the value given is a {kind}\n" in done.err, "its type, not the value"
    assert waiting.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--landed",), 5),
        (("--landed", "--value", "5"), 2),
        (("--landed", "--value", '"m"', "--expect-lsn", "13"), 5),
        (("--landed", "--value", '"m"', "--expect-lsn", "999"), 0),
        (("--abandon",), 0),
    ],
)
def test_trying_a_resolution_ends_as_the_resolution_would(
    cli: Cli, waiting: Path, words: tuple[str, ...], code: int
) -> None:
    tried = cli("inbox", "resolve", MAIL, *words, *SURE, "--dry-run", "--db", waiting)
    assert cli("intents", "show", MAIL, "--json", "--db", waiting).data["resolution"] is None
    done = cli("inbox", "resolve", MAIL, *words, *SURE, "--db", waiting)
    assert (tried.code, done.code) == (code, code), (tried, done)


def test_trying_to_claim_or_ask_about_what_is_closed_is_refused_as_doing_it(cli: Cli, waiting: Path) -> None:
    charge = "tea-1/main/charge#0/1/0"
    for dry in ((), ("--dry-run",)):
        done = cli("inbox", "claim", charge, *dry, "--db", waiting)
        assert (done.code, f"{charge} is not open: committed" in done.err) == (5, True), done
        asked = cli("inbox", "probe", MAIL, "--module", AGENT, *dry, "--db", waiting)
        assert (asked.code, "mail has no probe" in asked.err) == (3, True), asked


def test_what_landed_needs_the_value_that_the_run_goes_on_with(cli: Cli, waiting: Path) -> None:
    done = cli("inbox", "resolve", MAIL, "--landed", *SURE, "--db", waiting)
    assert (done.code, done.out) == (5, "")
    assert "returns str, and no value was given" in done.err
    assert [item["id"] for item in cli("inbox", "--kind", "effect", "--json", "--db", waiting).data] == [MAIL]


def test_a_decision_of_a_run_that_succeeded_is_not_owed(cli: Cli) -> None:
    assert cli("run", f"{AGENT}:nasty", "x", "--id", "a", "--db", "db").code == 0
    done = cli("decisions", "settle", "a/said", "--why", "x", "--db", "db")
    assert (done.code, done.out) == (0, "decision a/said: is not owed: run succeeded\n"), done


@pytest.mark.parametrize("words", [("claim", MAIL), ("resolve", MAIL, "--abandon", *SURE)])
@pytest.mark.parametrize("by", ["", "  "])
def test_nobody_does_not_act(cli: Cli, waiting: Path, words: tuple[str, ...], by: str) -> None:
    before = waiting.read_bytes()
    for dry in ((), ("--dry-run",)):
        done = cli("inbox", *words, *dry, "--by", by, "--db", waiting)
        assert (done.code, "--by is empty" in done.err) == (2, True), done
    assert waiting.read_bytes() == before


def test_a_blank_setting_names_nobody(cli: Cli, waiting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POIMEN_BY", "  ")
    assert "@" in cli("inbox", "claim", MAIL, "--json", "--db", waiting).data["claimed_by"]


# ---- page by page ----------------------------------------------------------------------------------------------


@pytest.fixture
def several(cli: Cli, tmp_path: Path) -> Path:
    """Four runs that wait, each for one effect, each with an owed decision."""
    for name in "abcd":
        db = ("--db", "db")
        child("run", f"{AGENT}:shop", name, "--id", name, *db, cwd=tmp_path, POIMEN_CRASH="called:mail")
        assert child("run", f"{AGENT}:shop", "--id", name, *db, cwd=tmp_path).code == 4
    assert len(cli("inbox", "--json", "--db", "db").data) == 4
    return tmp_path / "db"


def test_a_page_goes_on_where_its_item_stood_although_it_was_decided(cli: Cli, several: Path) -> None:
    first = cli("inbox", "--limit", "2", "--json", "--db", several).envelope
    last = first["next"]
    assert (first["truncated"], last) == (True, "b/main/mail#0/1/0")
    assert cli("inbox", "resolve", last, "--abandon", "--why", "x", "--confirm", last, "--db", several).code == 0
    rest = cli("inbox", "--after", last, "--json", "--db", several).data
    assert [one["run_id"] for one in rest] == ["c", "d"]
    assert [one["run_id"] for one in cli("inbox", "--after", "c", "--json", "--db", several).data] == ["d"]


@pytest.mark.parametrize("listed", [(), ("ls", "--owed")])
def test_a_page_of_decisions_goes_on_where_its_item_stood(cli: Cli, several: Path, listed: tuple[str, ...]) -> None:
    first = cli("decisions", *listed, "--limit", "2", "--json", "--db", several).envelope
    assert [one["run_id"] for one in first["data"]] == ["a", "b"]
    assert cli("decisions", "settle", "b/order", "--why", "x", "--db", several).code == 0
    rest = cli("decisions", *listed, "--limit", "2", "--after", first["next"], "--json", "--db", several)
    assert [one["run_id"] for one in rest.data] == ["c", "d"]
    if not listed:
        closed = cli("decisions", "--after", rest.envelope["next"], "--json", "--db", several).data
        assert [(one["run_id"], one["settled"]) for one in closed] == [("b", "settled")]


@pytest.mark.parametrize("noun", ["inbox", "decisions", "intents", "runs"])
@pytest.mark.parametrize("after", ["nobody/main/mail#0/1/0", "tea-1/nothing", "!"])
def test_going_on_after_what_is_no_id_is_an_error(cli: Cli, waiting: Path, noun: str, after: str) -> None:
    done = cli(noun, "--after", after, "--db", waiting)
    assert (done.code in {2, 3}, done.out) == (True, ""), done


@pytest.mark.parametrize("seen", ["before", "after"])
@pytest.mark.parametrize(("mine", "theirs"), [("settle", "reject"), ("reject", "settle"), ("settle", "settle")])
def test_of_two_who_close_a_decision_one_is_told_that_it_lost(
    cli: Cli, waiting: Path, monkeypatch: pytest.MonkeyPatch, mine: str, theirs: str, *, seen: str
) -> None:
    """The other one comes before or after this one has read the run, and in any case before it writes."""
    name, first = ("append", desk.append) if seen == "after" else ("close_decision", desk.close_decision)

    def overtaken(*arguments: Any, **more: Any) -> Any:
        monkeypatch.setattr(desk, name, first)
        assert cli("decisions", theirs, "tea-1/order", "--why", "y", "--db", waiting).code == 0
        return first(*arguments, **more)

    monkeypatch.setattr(desk, name, overtaken)
    lost = cli("decisions", mine, "tea-1/order", "--why", "x", "--db", waiting)
    assert lost.code == 5
    assert "Conflict" in lost.err or "PO108" in lost.err
    store = SqliteStore(waiting, read_only=True)
    closed = [json.loads(each.body)["why"] for each in store.read("tea-1") if each.kind == "decision.settled.v1"]
    store.close()
    assert closed == ["y"]


def test_a_late_end_against_what_was_said_is_an_alarm(cli: Cli, waiting: Path) -> None:
    said = ("--why", "I looked", "--evidence", "none", "--confirm", MAIL, "--by", "op")
    assert cli("inbox", "resolve", MAIL, "--not-landed", *said, "--db", waiting).code == 0
    quiet = cli("doctor", "--json", "--db", waiting).data
    assert (quiet["contradicted"], cli("intents", "show", MAIL, "--json", "--db", waiting).data["contradiction"]) == (
        [],
        None,
    )
    late = LateOutcome(step="mail#0", attempt=1, ordinal=0, send=1, epoch=1, outcome=Returned(value=b'"sent"'))
    store = open_store(str(waiting))
    store.commit([Batch(run="tea-1", records=(codec.record(late, branch="main"),))])
    store.close()
    alarm = "resolved as not landed by op, and then came a call that had returned: look at the far side"
    found = cli("doctor", "--json", "--db", waiting).data
    assert [(one["id"], one["says"]) for one in found["contradicted"]] == [(MAIL, alarm)]
    assert f"{MAIL}: {alarm} (poimen " in cli("doctor", "--db", waiting).out
    for command in ("inbox", "intents"):
        assert f"ALARM       {alarm}" in cli(command, "show", MAIL, "--db", waiting).out
    assert "not_landed by op: CONTRADICTED" in cli("intents", "ls", "--run", "tea-1", "--db", waiting).out


@pytest.mark.parametrize(
    ("waiting", "matter"),
    [
        (Waiting(reason="operator", about="a#0", detail="stuck", matter="crash-loop"), OperatorMatter.CRASH_LOOP),
        (Waiting(reason="operator", about="a#0", detail="crash loop: of old"), OperatorMatter.CRASH_LOOP),
        (Waiting(reason="operator", about="r/main/a#0/1/0", detail="mail the receipt"), OperatorMatter.UNKNOWN_EFFECT),
        (
            Waiting(reason="operator", about="r/main/a#0/1/0", detail="crash loop drill", matter="unknown-effect"),
            OperatorMatter.UNKNOWN_EFFECT,
        ),
    ],
)
def test_what_an_effect_is_called_does_not_choose_the_command(waiting: Waiting, matter: OperatorMatter) -> None:
    assert standing.matter_of(waiting) is matter
