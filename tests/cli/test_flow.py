"""The operator's flow through real processes: a run dies, is started again, waits, is resolved, goes on."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import AGENT, MAIL, TIMEOUT_S, child, environment

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("cli_flow")


def witness(folder: Path) -> list[str]:
    return (folder / "witness.txt").read_text(encoding="utf-8").splitlines()


def test_run_crash_inbox_resolve_run_again(tmp_path: Path) -> None:
    run = ("run", f"{AGENT}:shop", "tea", "--id", "tea-1")
    killed = child(*run, cwd=tmp_path, POIMEN_CRASH="called:mail")
    assert killed.code == -signal.SIGKILL
    assert (tmp_path / ".poimen" / "poimen.db").exists()

    parked = child(*run, cwd=tmp_path)
    assert parked.code == 4
    assert parked.out == ""
    assert "waits for the operator" in parked.err
    assert f"go on: poimen inbox show {MAIL}\n" in parked.err
    assert witness(tmp_path) == ["charge tea", "mail tea"]

    (item,) = child("inbox", "--json", cwd=tmp_path).data
    assert (item["id"], item["kind"], item["effect_class"]) == (MAIL, "effect", "AT_MOST_ONCE")
    sure = ("--why", "the spool has it", "--expect-lsn", str(item["lsn"]), "--confirm", MAIL)
    done = child("inbox", "resolve", MAIL, "--landed", "--value", '"mailed tea"', *sure, cwd=tmp_path)
    assert (done.code, "FILE_OR_MODULE:shop --id tea-1" in done.err) == (0, True)

    ended = child("run", f"{AGENT}:shop", "--id", "tea-1", cwd=tmp_path)
    assert (ended.code, ended.out) == (0, "charged 4200, mailed tea\n")
    assert witness(tmp_path) == ["charge tea", "mail tea"]


def test_an_interrupt_ends_with_130_and_cancels_nothing(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "poimen", "run", f"{AGENT}:hangs", "--id", "h", "--db", "db"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "entered\n"
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=TIMEOUT_S)
    told, _, last = said.strip().rpartition("\n")
    assert (running.returncode, last) == (130, "interrupted")
    assert told.strip() == "the end of what still runs will not be on record: h/stuck#0/1/0"

    run = child("runs", "show", "h", "--db", "db", "--json", cwd=tmp_path).data
    assert (run["state"], run["cancel"], run["driven"]) == ("RUNNING", None, False)
    assert run["reason"] == "no live worker drives it"
    assert [intent["state"] for intent in run["intents"]] == ["dispatched"]


def test_a_person_at_a_terminal_is_asked_and_yes_does_not_answer(waiting: Path, tmp_path: Path) -> None:
    master, slave = pty.openpty()
    asking = subprocess.Popen(
        [sys.executable, "-m", "poimen", "inbox", "resolve", "tea", "--abandon", "--yes", "--db", str(waiting)],
        cwd=tmp_path,
        env=environment(),
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(slave)
    os.write(master, b"nobody knows\nabandon\n")
    out, said = asking.communicate(timeout=TIMEOUT_S)
    os.close(master)
    assert asking.returncode == 0, said
    assert "why say abandon" in said
    assert "type abandon to record that" in said
    assert f"{MAIL}: abandoned, resolved" in out
    (closed,) = [
        i["resolution"] for i in child("intents", "ls", "--db", "db", "--json", cwd=tmp_path).data if i["resolution"]
    ]
    assert (closed["to"], closed["why"], closed["by"]) == ("abandoned", "nobody knows", "tester")


def test_another_word_at_the_terminal_records_nothing(waiting: Path, tmp_path: Path) -> None:
    before = waiting.read_bytes()
    master, slave = pty.openpty()
    asking = subprocess.Popen(
        [sys.executable, "-m", "poimen", "inbox", "resolve", "tea", "--landed", "--why", "x", "--db", str(waiting)],
        cwd=tmp_path,
        env=environment(),
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(slave)
    os.write(master, b"yes\n")
    out, said = asking.communicate(timeout=TIMEOUT_S)
    os.close(master)
    assert (asking.returncode, out) == (2, "")
    assert said.endswith("stopped: nothing was recorded\n")
    assert waiting.read_bytes() == before


def test_following_shows_what_is_appended(waiting: Path, tmp_path: Path) -> None:
    following = subprocess.Popen(
        [sys.executable, "-m", "poimen", "log", "tail", "-f", "--jsonl", "--limit", "1", "--db", str(waiting)],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    assert '"BranchWaiting"' in following.stdout.readline()
    assert child("runs", "cancel", "tea", "--why", "enough", "--db", "db", cwd=tmp_path).code == 0
    assert '"CancelRequested"' in following.stdout.readline()
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=TIMEOUT_S)
    assert following.returncode == 130


def test_a_reader_that_has_seen_enough_is_no_error(waiting: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "poimen", "log", "show", "tea", "--json", "--db", str(waiting)],
            cwd=tmp_path,
            env=environment(),
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
