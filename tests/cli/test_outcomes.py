"""What the world answered is shown with each effect, and what may have changed it is counted apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import AGENT, Cli, child

if TYPE_CHECKING:
    from pathlib import Path

ANSWERS = {
    "look#0": "returned",
    "look_and_fail#0": "failed",
    "unsent#0": "not_sent",
    "refused#0": "rejected",
    "note#0": "returned",
}
NOTE = "a/main/note#0/1/0"


@pytest.fixture
def answered(cli: Cli, tmp_path: Path) -> Path:
    """A run that got each answer there is, and failed."""
    assert cli("run", f"{AGENT}:answers", "--id", "a", "--db", "db").code == 1
    return tmp_path / "db"


def test_each_effect_says_what_was_answered(cli: Cli, answered: Path) -> None:
    for command in (("intents", "ls"), ("runs", "show", "a")):
        data = cli(*command, "--json", "--db", answered).data
        intents = data if isinstance(data, list) else data["intents"]
        assert {one["step"]: (one["state"], one["outcome"]) for one in intents} == {
            step: ("committed", said) for step, said in ANSWERS.items()
        }
        rows = [line.split("  ") for line in cli(*command, "--db", answered).out.splitlines() if line.startswith("a/")]
        shown = [[cell.strip() for cell in row if cell] for row in rows]
        assert [row[3] for row in shown] == [said.replace("_", " ") for said in ANSWERS.values()]


def test_one_effect_says_what_was_answered(cli: Cli, answered: Path) -> None:
    shown = cli("intents", "show", "a/main/unsent", "--db", answered).out
    assert "state       committed, 1 send(s)\noutcome     not sent\n" in shown
    shown = cli("inbox", "show", "a/main/unsent", "--db", answered).out
    assert shown.startswith("nothing is to be decided, not sent: refused before it left\n")


def test_only_what_may_have_changed_the_world_is_counted(cli: Cli, answered: Path) -> None:
    shown = cli("runs", "show", "a", "--db", answered).out
    assert "; it makes its effects anew, and 1 below may have changed the world\n" in shown  # the note


def test_what_has_no_answer_has_no_outcome(cli: Cli, waiting: Path) -> None:
    data = cli("intents", "ls", "--json", "--db", waiting).data
    assert {one["step"]: one["outcome"] for one in data} == {"charge#0": "returned", "mail#0": None}
    assert "outcome  " not in cli("intents", "show", "tea-1/main/mail", "--db", waiting).out
    done = cli(
        "inbox",
        "resolve",
        "tea-1/main/mail#0/1/0",
        "--landed",
        "--value",
        '"m"',
        "--why",
        "w",
        "--confirm",
        "tea-1/main/mail#0/1/0",
        "--db",
        waiting,
    )
    assert done.code == 0, done
    one = cli("intents", "show", "tea-1/main/mail", "--json", "--db", waiting).data
    assert (one["outcome"], one["resolution"]["to"]) == (None, "landed")


def test_what_returns_nothing_is_landed_without_a_value(cli: Cli, tmp_path: Path) -> None:
    child("run", f"{AGENT}:answers", "--id", "a", "--db", "db", cwd=tmp_path, POIMEN_CRASH="called:note")
    assert child("run", f"{AGENT}:answers", "--id", "a", "--db", "db", cwd=tmp_path).code == 4
    commands = cli("inbox", "show", "a", "--json", "--db", "db").data["commands"]
    assert f"poimen --db db inbox resolve {NOTE} --landed --why WHY" in commands[0]
    pasted = ["resolve", NOTE, "--landed", "--why", "w", "--confirm", NOTE, "--db", "db"]
    assert cli("inbox", *pasted).code == 0
