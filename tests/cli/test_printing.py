"""What is printed: the envelope and its data, times, talk beside data, and text that cannot steer a terminal."""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poimen.cli.frame.output import Output, as_json, clean, one_line, rfc3339, us_of
from tests.cli.conftest import AGENT, MAIL, Cli

if TYPE_CHECKING:
    from pathlib import Path

TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
# Colours, a title, a clipboard write, a device query, C1 forms of CSI and OSC, a carriage return, a bell, direction
# overrides, an invisible character, a tag character, a lone escape.
NASTY: Final = (
    "a\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b]52;c;AAAA\x1b\\\x1b[6n\x1bPq\x1b\\\x9b2J\x9d0;t\x9c\r\x07\x08\x7f"
    "\u202egnp.exe\u2066\u200b\U000e0041end\x1b"
)
STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")

# ---- the envelope ----------------------------------------------------------------------------------------------


def fields(row: Any, *names: str) -> None:
    assert set(names) <= set(row), sorted(set(names) - set(row))


@pytest.mark.parametrize(
    "words",
    [
        ("runs",),
        ("runs", "show", "tea"),
        ("intents",),
        ("intents", "show", MAIL),
        ("decisions",),
        ("inbox",),
        ("inbox", "show", "tea"),
        ("log", "show", "tea"),
        ("log", "tail"),
        ("log", "check"),
        ("db",),
        ("db", "check"),
        ("doctor",),
        ("explain", "PO108"),
        ("reproduce",),
    ],
)
def test_the_envelope(cli: Cli, waiting: Path, words: tuple[str, ...]) -> None:
    done = cli(*words, "--json", "--db", waiting)
    assert done.code == 0, done
    assert done.out.count("\n") == 1
    assert list(done.envelope) == ["v", "as_of", "data", "truncated", "next"]
    assert (done.envelope["v"], done.envelope["truncated"], done.envelope["next"]) == (1, False, None)
    assert list(done.envelope["as_of"]) == ["feed", "time"]
    assert TIME.fullmatch(done.envelope["as_of"]["time"])
    if words[0] not in {"explain", "reproduce"}:
        assert done.envelope["as_of"]["feed"] == 17


def test_a_run(cli: Cli, waiting: Path) -> None:
    (row,) = cli("runs", "--json", "--db", waiting).data
    assert set(row) == {
        *("id", "workflow", "state", "lsn", "admitted_at", "by", "tags", "driven", "reason", "command"),
    }
    assert (row["id"], row["state"], row["lsn"], row["by"]) == ("tea-1", "WAITING", 17, "tester")
    assert row["reason"].startswith("operator: mail the receipt for tea")
    assert row["command"] == f"poimen --db {waiting} inbox show {MAIL}"
    run = cli("runs", "show", "tea", "--json", "--db", waiting).data
    fields(
        run, "input", "waiting", "steps", "intents", "decisions", "unresolved", "worker", "epoch", "cancel", "result"
    )
    assert [(s["key"], [a["state"] for a in s["attempts"]]) for s in run["steps"]] == [
        ("charge#0", ["SUCCEEDED"]),
        ("mail#0", ["INDETERMINATE"]),
    ]
    assert run["waiting"][0]["moves_by_itself"] == "a probe or a late outcome settles the intent"


def test_an_intent(cli: Cli, waiting: Path) -> None:
    charge, mail = cli("intents", "ls", "--run", "tea", "--json", "--db", waiting).data
    assert (charge["state"], charge["sends"], charge["classification"], charge["resolution"]) == (
        "committed",
        1,
        None,
        None,
    )
    assert [r["kind"] for r in charge["records"]] == ["IntentPending", "IntentDispatched", "IntentCommitted"]
    lsns = [r["lsn"] for r in charge["records"]]
    assert all(type(lsn) is int for lsn in lsns) and lsns == sorted(lsns)
    assert all(TIME.fullmatch(r["at"]) for r in charge["records"])
    assert charge["terms"]["ttl_s"] == 86_400
    assert re.fullmatch(r"[0-9a-f]{32}", charge["request_id"])
    assert (mail["open"], mail["classification"], mail["sends"]) == (True, "may_have_been_sent", 1)
    assert [r["body"]["rule"] for r in mail["rules"]] == ["at-most-once"]
    assert cli("intents", "show", MAIL, "--json", "--db", waiting).data == mail
    (only,) = cli("intents", "ls", "--open", "--json", "--db", waiting).data
    assert only["id"] == MAIL


def test_errors_as_json(cli: Cli, waiting: Path) -> None:
    done = cli("runs", "show", "nobody", "--json", "--db", waiting)
    assert (done.code, done.out) == (3, "")
    assert json.loads(done.err) == {
        "error": {"code": "PO110", "title": "no run is called 'nobody'", "hint": f"poimen --db {waiting} runs ls"}
    }
    wrong = cli("runs", "show", "--json")
    assert (wrong.code, wrong.error["code"], wrong.error["hint"]) == (2, "usage", "poimen runs show --help")


def test_lines_of_json(cli: Cli, waiting: Path) -> None:
    done = cli("log", "show", "tea", "--jsonl", "--db", waiting)
    assert [json.loads(line)["lsn"] for line in done.out.splitlines()] == list(range(1, 18))


def test_a_list_can_be_read_in_parts(cli: Cli, waiting: Path) -> None:
    seen: list[int] = []
    after: tuple[str, ...] = ()
    while True:
        envelope = cli("log", "show", "tea", "--json", "--limit", "5", *after, "--db", waiting).envelope
        seen += [one["lsn"] for one in envelope["data"]]
        if not envelope["truncated"]:
            break
        after = ("--after", str(envelope["next"]))
    assert seen == list(range(1, 18))
    for words in (("intents",), ("decisions",), ("inbox",)):
        every = [one["id"] for one in cli(*words, "--json", "--db", waiting).data]
        first = cli(*words, "--json", "--limit", "1", "--db", waiting).envelope
        rest = [one["id"] for one in cli(*words, "--json", "--after", every[0], "--db", waiting).data]
        assert (first["truncated"], first["next"]) == ((True, every[0]) if len(every) > 1 else (False, None))
        assert [first["data"][0]["id"], *rest] == every


def test_runs_are_listed_in_parts_by_state_and_by_tag(cli: Cli) -> None:
    for n in range(5):
        assert (
            cli("run", f"{AGENT}:nothing", "--id", f"r{n}", "--tag", f"n={n}", "--tag", "all=1", "--db", "db").code == 0
        )
    assert cli("run", f"{AGENT}:fails", "x", "--id", "r9", "--db", "db").code == 1
    ids = [one["id"] for one in cli("runs", "--json", "--limit", "2", "--after", "r1", "--db", "db").data]
    assert ids == ["r2", "r3"]
    assert [one["id"] for one in cli("runs", "ls", "--state", "failed", "--json", "--db", "db").data] == ["r9"]
    assert [one["id"] for one in cli("runs", "ls", "--tag", "n=3", "--json", "--db", "db").data] == ["r3"]
    assert len(cli("runs", "ls", "--tag", "all", "--json", "--db", "db").data) == 5
    assert cli("runs", "ls", "--live", "--json", "--db", "db").data == []


def test_global_options_may_stand_anywhere(cli: Cli, waiting: Path) -> None:
    db = str(waiting)
    said = [
        cli(*words).data
        for words in (
            ("--db", db, "--json", "runs", "ls"),
            ("runs", "--json", "--db", db, "ls"),
            ("runs", "ls", "--json", "--db", db),
            ("runs", "--json", "--db", db),
            ("--db", "overruled", "runs", "--json", "--db", db),
        )
    ]
    assert said == said[:1] * 5


def test_times_for_people(cli: Cli, waiting: Path) -> None:
    assert re.search(r" \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z ", cli("runs", "--db", waiting).out)
    assert re.search(r" \d+ (?:s|min|h) ago ", cli("runs", "--time", "ago", "--db", waiting).out)
    assert re.search(r"\.\d{3}[+-]\d{4} ", cli("runs", "--time", "local", "--db", waiting).out)


@given(us=st.integers(min_value=0, max_value=4_000_000_000_000_000))
def test_times_are_exact(us: int) -> None:
    assert TIME.fullmatch(rfc3339(us))
    assert us_of(rfc3339(us)) == us


def test_quiet_and_colours(cli: Cli, waiting: Path) -> None:
    assert "look at one" in cli("inbox", "--db", waiting).err
    assert cli("inbox", "-q", "--db", waiting).err == ""
    assert "\x1b[" in cli("runs", "--color", "always", "--db", waiting).out
    assert "\x1b[" not in cli("runs", "--db", waiting).out, "this is no terminal"


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert Output().colored(Terminal()) is True
    assert Output().colored(io.StringIO()) is False
    assert Output(color="never").colored(Terminal()) is False
    monkeypatch.setenv("TERM", "dumb")
    assert Output().colored(Terminal()) is False
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert Output().colored(Terminal()) is False
    assert Output(color="always").colored(io.StringIO()) is True


# ---- text that others wrote ------------------------------------------------------------------------------------


def nothing_steers(text: str) -> bool:
    return STEERING.search(text.replace("\n", "").replace("\t", "")) is None


def test_terminal_escapes_are_stripped_everywhere(cli: Cli) -> None:
    said = [cli("run", f"{AGENT}:nasty", NASTY, "--id", "n1", "--db", "db")]
    assert said[0].code == 0
    assert "<U+202E>gnp.exe" in said[0].out
    said.append(cli("run", f"{AGENT}:nasty", NASTY, "--fail", "--id", "n2", "--tag", f"t={NASTY}", "--db", "db"))
    assert said[1].code == 1
    commands = [
        *(("runs",), ("runs", "show", "n1"), ("runs", "show", "n2"), ("intents",), ("intents", "show", "n1")),
        *(("decisions",), ("inbox",), ("log", "show", "n1"), ("log", "show", "n2"), ("log", "tail"), ("doctor",)),
        *(("decisions", "settle", "n2/said", "--why", NASTY), ("runs", "show", NASTY), ("explain", NASTY)),
    ]
    for words in commands:
        for form in ((), ("--content",), ("--json", "--content"), ("--jsonl", "--content"), ("--color", "always")):
            said.append(cli(*words, *form, "--db", "db"))
            text = said[-1].out + said[-1].err
            if form[:1] == ("--color",):
                text = re.sub(r"\x1b\[[0-9;]*m", "", text)
            assert nothing_steers(text), (words, form, text)
    shown = cli("runs", "show", "n2", "--json", "--content", "--db", "db").data
    assert shown["error"]["message"] == NASTY, "as JSON it is all there, escaped"


@given(st.text())
def test_nothing_that_is_printed_steers_a_terminal(text: str) -> None:
    assert nothing_steers(clean(text))
    assert nothing_steers(one_line(text))
    assert nothing_steers(as_json({"text": text}))
    assert json.loads(as_json([text])) == [text]


@given(st.text(st.characters(exclude_categories=["C", "Z"])))
def test_plain_text_is_left_alone(text: str) -> None:
    assert clean(text) == text


def test_agent_text_is_shown_on_demand_only(cli: Cli) -> None:
    secret = "the canary sings"
    assert cli("run", f"{AGENT}:typed", secret, "--id", "s", "--db", "db").code == 0
    assert cli("run", f"{AGENT}:shop", "tea", "--id", "t", "--db", "db").code == 0
    hidden = [
        ("runs", "show", "s"),
        ("log", "show", "s"),
        ("log", "tail"),
        ("decisions",),
        ("intents", "show", "t/main/mail"),
    ]
    for words in hidden:
        for form in ((), ("--json",)):
            said = cli(*words, *form, "--db", "db")
            assert said.code == 0
            assert secret not in said.out
            assert '{"order": "tea"}' not in said.out
    assert secret in cli("runs", "show", "s", "--content", "--db", "db").out
    body = cli("log", "show", "s", "--json", "--db", "db").data[0]["body"]
    assert set(body["args"]) == {"hidden", "bytes"}
    assert cli("decisions", "--json", "--content", "--db", "db").data[0]["value"] == {"order": "tea"}
    mail = cli("intents", "show", "t/main/mail", "--json", "--content", "--db", "db").data
    assert mail["args"] == {"order": "tea"}
    assert mail["records"][-1]["body"]["outcome"]["value"] == "mailed tea"
