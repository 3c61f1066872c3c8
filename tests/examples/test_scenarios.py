"""The release agent's run ends badly when anything is not as it must be: each spoiled sight is a complaint."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import UTC, datetime

import pytest

import inspect_run
import report
from inspect_run import Intent, Item, Record, Resolution
from scenarios import EFFECTS, SCENARIOS, Scenario, Seen, complaints, expected_codes
from world import Mail, Registration, Said

REFS = {"refs/heads/main": "c" * 40, "refs/tags/v1.0.0": "t" * 40, "refs/tags/v1.0.0^{}": "c" * 40}
NOTHING = Said(made={}, refs={}, registrations=(), mails=())
ALL = Said(
    made=REFS,
    refs=REFS,
    registrations=(Registration(version="v1.0.0", sha="c" * 40, key="id of register"),),
    mails=(Mail(to="team", subject="Released", message_id="<id of announce@poimen>"),),
)
AT = datetime(2001, 2, 3, 4, 5, 6, 7890, tzinfo=UTC)


def intent(tool: str, *kinds: str, first: int = 1, said: str | None = None) -> Intent:
    return Intent(
        id=f"run/main/{tool}#0/1/0",
        tool=tool,
        effect_class="KEYED",
        state="committed",
        request_id=f"id of {tool}",
        sends=kinds.count("IntentDispatched"),
        records=tuple(Record(lsn=lsn, at=AT, kind=kind) for lsn, kind in enumerate(kinds, first)),
        classification=said,
        resolution=None,
    )


P, D, C, X = "IntentPending", "IntentDispatched", "IntentCommitted", "IntentClassified"
KILLED = Scenario(tool="register", point="called", sends=2)
GOOD = Seen(
    codes=(-9, 0),
    after_kill=ALL,
    at_end=ALL,
    intents=tuple(
        intent(tool, P, D, X, D, C, said="may_have_been_sent") if tool == "register" else intent(tool, P, D, C)
        for tool in EFFECTS
    ),
    branch="main",
    tag="v1.0.0",
)


def with_intent(new: Intent) -> Seen:
    return replace(GOOD, intents=tuple(new if old.tool == new.tool else old for old in GOOD.intents))


SPOILED = {
    "the agent's processes ended": replace(GOOD, codes=(0, 0)),
    "is classified": with_intent(intent("register", P, D, X, D, C, said="never_sent")),
    "was sent 3 times": with_intent(intent("register", P, D, X, D, D, C, said="may_have_been_sent")),
    "lacks one of its three records": with_intent(intent("push", P, D)),
    "out of order": with_intent(intent("push", D, P, C)),
    "has no intent": replace(GOOD, intents=GOOD.intents[1:]),
    "after the kill the world had 0 marks": replace(GOOD, after_kill=NOTHING),
    "expected one of each": replace(GOOD, at_end=replace(ALL, mails=ALL.mails * 2)),
    "do not name one commit": replace(GOOD, at_end=replace(ALL, made=REFS | {"refs/heads/main": "d" * 40})),
    "the registry knows": replace(
        GOOD, at_end=replace(ALL, registrations=(replace(ALL.registrations[0], key="of another run"),))
    ),
    "the mailbox has": replace(GOOD, at_end=replace(ALL, mails=(replace(ALL.mails[0], message_id="<x>"),))),
}


def test_what_is_as_it_must_be_gives_no_complaint():
    assert list(complaints(KILLED, GOOD)) == []


@pytest.mark.parametrize("why", SPOILED)
def test_what_is_not_gives_a_complaint(why):
    assert any(why in complaint for complaint in complaints(KILLED, SPOILED[why]))


def test_the_scenarios_hit_every_effect_in_both_windows():
    hit = {(one.tool, "A" if one.point == "pending" else "B") for one in SCENARIOS if one.tool}
    assert hit == {(tool, window) for tool in EFFECTS for window in "AB"}
    assert expected_codes(SCENARIOS[0]) == (0,)
    assert [expected_codes(one) for one in SCENARIOS if one.operator] == [(-9, 4, 0), (-9, 4, 0)]


# ---- the report ----------------------------------------------------------------------------------------------------


def test_each_effect_is_shown_with_its_records_and_what_was_done():
    assert report.records(GOOD.intents[2:3]) == [
        "   effect           class        Pending           Dispatched        outcome",
        "   register         KEYED          1 04:05:06.007    2 04:05:06.007",
        "     send 2                                          4 04:05:06.007    5 04:05:06.007",
    ]
    assert list(report.told(GOOD.intents)) == [
        "   after restart   register: may have been sent (LSN 3), so it was sent again, under the same request id"
    ]
    assert report.world("at the end", ALL, "v1.0.0") == (
        "   at the end      clone: v1.0.0 ccccccc · remote: v1.0.0 ccccccc · registry: 1 entry · mailbox: 1 mail"
    )
    assert report.world("after the kill", NOTHING, "v1.0.0").endswith(
        "clone: no v1.0.0 · remote: no v1.0.0 · registry: 0 entries · mailbox: 0 mails"
    )


@pytest.mark.parametrize(
    ("kinds", "said", "to", "done"),
    [
        ((P, X, D, C), "never_sent", "", "it was sent"),
        ((P, D, X, "IntentProbed", "IntentResolved"), "may_have_been_sent", "landed", "found there: not sent again"),
        ((P, D, X, "IntentProbed", "IntentProbed", D, C), "may_have_been_sent", "", "not found, then sent again"),
        ((P, D, X, "IntentResolved"), "may_have_been_sent", "not_landed", "an operator, who said: not landed"),
    ],
)
def test_what_was_done_is_read_from_the_records(kinds, said, to, done):
    closed = Resolution(to=to, rule="r", by="b") if to else None
    (line,) = report.told((replace(intent("push", *kinds, said=said), resolution=closed),))
    assert done in line


def test_the_operators_command_can_be_pasted_into_a_shell(tmp_path):
    item = Item(id="run/main/announce#0/1/0", kind="effect", run_id="run", summary="mail", lsn=21)
    command = inspect_run.resolving(item, "landed", by="me", why="it's there", evidence="<x>", db=tmp_path / "a b.db")
    lines = report.operator(item, "found", command)[2:]
    assert shlex.split(" ".join(line.removesuffix("\\") for line in lines)) == [
        *("they", "decide", "python", "-m", "poimen", "inbox", "resolve", item.id, "--landed", "--by", "me"),
        *("--why", "it's there", "--evidence", "<x>", "--expect-lsn", "21", "--confirm", item.id),
        *("--db", str(tmp_path / "a b.db")),
    ]


def test_an_answer_of_another_form_is_an_error_that_names_what_is_missing(monkeypatch, tmp_path):
    rows: list[dict[str, object]] = [{"id": "x", "resolution": None, "records": []}]
    monkeypatch.setattr(inspect_run, "_ask", lambda *_: rows)
    with pytest.raises(inspect_run.CommandFailed, match="KeyError: 'tool'"):
        inspect_run.intents(tmp_path, "run")
