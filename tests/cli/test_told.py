"""What a run tells whoever watches while it is silent: a probe that is asked again, another process that drives."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import pytest

from poimen.cli.frame.declaring import GIVEN
from poimen.cli.frame.session import Session
from tests.cli.conftest import AGENT, TIMEOUT_S, Cli, child, environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OF_DAY = r"\d\d:\d\d:\d\dZ"


@contextmanager
def running(*words: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of its own that is killed in the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "poimen", "run", *words, "--db", "db"],
        cwd=cwd,
        env=environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def test_a_probe_that_is_asked_again_later_is_told(cli: Cli, tmp_path: Path) -> None:
    run = (f"{AGENT}:pushes", "--id", "p")
    killed = child("run", run[0], "tea", *run[1:], "--db", "db", cwd=tmp_path, POIMEN_CRASH="dispatched:push")
    assert killed.code == -signal.SIGKILL
    assert cli("runs", "show", "p", "--json", "--db", "db").data["asking"] == [], "nobody asks"
    with running(*run, cwd=tmp_path) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        told = re.fullmatch(
            rf"push: asked, absent; asked again at ({OF_DAY}) \(absence counts from ({OF_DAY})\)\n", said
        )
        assert told is not None, said
        assert told[1] == told[2]
        (one,) = cli("runs", "show", "p", "--json", "--db", "db").data["asking"]
        assert (one["tool"], one["answer"], one["again_at"]) == ("push", "absent", one["counts_from"])
        assert one["again_at"][11:19] == told[1][:8], "derived from the records as the ladder derives it"
        at = one["again_at"].replace("T", " ")[:19]
        for look in (("runs", "show", "p"), ("doctor",)):
            out = cli(*look, "--db", "db").out
            assert re.search(rf"push: asked, absent; asked again at {at}.* \(absence counts from {at}", out), out


def test_a_run_that_another_process_drives_is_waited_for_in_words(tmp_path: Path) -> None:
    run = (f"{AGENT}:hangs", "--id", "h")
    with running(*run, cwd=tmp_path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "entered\n"
        with running(*run, cwd=tmp_path) as second:
            assert second.stderr is not None
            said = second.stderr.readline()
            assert re.fullmatch(r"run h is driven by worker [0-9a-f]{16} on this machine, waiting\n", said), said


@pytest.mark.parametrize("quiet", [False, True])
def test_quiet_says_nothing_of_it(capsys: pytest.CaptureFixture[str], quiet: bool) -> None:
    context = click.Context(click.Command("run"))
    context.meta[GIVEN] = {"quiet": quiet}
    told = logging.getLogger("poimen.told")
    with Session(context).telling():
        told.info("run %s is driven", "r")
    told.info("nobody listens any more")
    assert capsys.readouterr().err == ("" if quiet else "run r is driven\n")
