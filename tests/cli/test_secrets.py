"""What agents passed and said is shown only with --content: no other way shows it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from poimen.kernel.intent import IntentPending
from poimen.log import codec
from poimen.log.opening import open_store
from tests.cli.conftest import AGENT, Cli, child
from tests.cli.secretive import SECRET

if TYPE_CHECKING:
    from tests.cli.conftest import Said

CODE = Path(__file__).with_name("secretive.py")
LOOKS = (
    ("inbox",),
    ("inbox", "show", "r"),
    ("log", "show", "r"),
    ("log", "tail"),
    ("intents", "ls"),
    ("intents", "show", "r"),
    ("runs",),
    ("runs", "show", "r"),
    ("doctor", "-v"),
)


@pytest.fixture(params=["shop", "stepped"])
def parked(request: pytest.FixtureRequest, tmp_path: Path) -> Said:
    """The run `r` was killed in window B of a payment, and waits for an operator."""
    target = f"{CODE}:{request.param}"
    done = child("run", target, SECRET, "--id", "r", "--db", "db", cwd=tmp_path, POIMEN_CRASH="called:pay")
    assert done.code == -signal.SIGKILL, done
    done = child("run", target, "--id", "r", "--db", "db", cwd=tmp_path)
    assert done.code == 4, done
    return done


def test_a_call_whose_author_wrote_no_summary_is_shown_without_its_arguments(cli: Cli, parked: Said) -> None:
    assert "PO330 run r waits for the operator: pay(…)" in parked.err
    shown = {look: cli(*look, "--db", "db") for look in LOOKS}
    for look, said in shown.items():
        told = said.out + said.err + cli(*look, "--json", "--db", "db").out
        assert said.code == 0 and SECRET not in told, look
    for look in LOOKS[:6]:
        assert "pay(…)" in shown[look].out, look
    assert cli("inbox", "--json", "--db", "db").data[0]["summary"] == "may have happened, verify first: pay(…)"
    assert cli("intents", "--json", "--db", "db").data[0]["summary"] == "pay(…)"


def test_with_content_it_is_written_out(cli: Cli, parked: Said) -> None:
    for look in (
        ("inbox",),
        ("inbox", "show", "r"),
        ("intents", "ls"),
        ("intents", "show", "r"),
        ("runs", "show", "r"),
    ):
        assert f'pay(token="{SECRET}")' in cli(*look, "--content", "--db", "db").out, look
    assert cli("intents", "--json", "--content", "--db", "db").data[0]["summary"] == "pay(…)"
    assert SECRET in cli("log", "show", "r", "--content", "--db", "db").out


def test_nothing_made_from_arguments_is_stored_beside_them(parked: Said, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "db"), read_only=True)
    events = [codec.event_of(record) for record in store.read("r")]
    store.close()
    assert [e.summary for e in events if isinstance(e, IntentPending)] == [""]


def test_nor_does_the_error_that_a_workflow_is_told(tmp_path: Path, cli: Cli) -> None:
    done = child("run", f"{CODE}:told", SECRET, "--id", "r", "--db", "db", cwd=tmp_path)
    assert done.code == 1
    assert "ask(…) may have happened: verify first" in done.err and SECRET not in done.err


@pytest.mark.parametrize("words", [("t", f'{{"token": "{SECRET}"}}'), ("t", SECRET), ("t", "1", SECRET)])
def test_nor_does_a_usage_error(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli("run", f"{AGENT}:typed", *words, "--db", "memory:")
    assert (done.code, SECRET in done.err) == (2, False), done


def test_nor_does_a_value_that_is_refused(cli: Cli, parked: Said) -> None:
    sure = ("--why", "w", "--confirm", "r/main/pay#0/1/0") if "shop" in parked.err else ("--why", "w")
    for value in (f'["{SECRET}"]', f'{{"a": "{SECRET}"}}'):
        for more in ((), ("--module", str(CODE))):
            done = cli("inbox", "resolve", "r", "--landed", "--value", value, *more, *sure, "--db", "db")
            assert (done.code, SECRET in done.err) == (2, False), done
