"""A run whose code has changed says which step differs, what the code did instead, and a command that works."""

from __future__ import annotations

import shlex
import signal
from typing import TYPE_CHECKING

import pytest

from poimen.declare.values import digest
from tests.cli.conftest import Cli, child

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "card 4111"
CODE = """\
import poimen
from poimen import effects


@poimen.tool(effect=effects.IDEMPOTENT)
def one(s: str) -> str:
    return s


@poimen.tool(effect=effects.IDEMPOTENT)
def two(s: str) -> str:
    return s


@poimen.step
async def unit(s: str) -> str:
    return await one.aio(s) + await two.aio(s)


@poimen.workflow
async def flow(s: str) -> str:
    poimen.decide("what", s)
    return await one.aio(s) + await two.aio(s)


@poimen.workflow
async def stepped(s: str) -> str:
    return await unit(s)
"""
FIRST = '    poimen.decide("what", s)\n    return await one.aio(s)'
RAISES = '    {}["nope"]\n'


def changed(name: str, cwd: Path, crash: str, *changes: tuple[str, str]) -> str:
    """Kill the workflow, change its code, start it again; what it says. With the old code it must go on and end."""
    file = cwd / "b.py"
    file.write_text(CODE, encoding="utf-8")
    run = ("run", f"b.py:{name}", "--id", "r", "--db", "db")
    assert child(*run[:2], SECRET, *run[2:], cwd=cwd, POIMEN_CRASH=crash).code == -signal.SIGKILL
    text = CODE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    stopped = child(*run, cwd=cwd)
    assert (stopped.code, stopped.out) == (8, ""), stopped
    assert SECRET not in stopped.err
    plain, whole = (child("runs", "show", "r", "--db", "db", *more, cwd=cwd).out for more in ((), ("--content",)))
    assert SECRET not in plain
    if "; the code asked for: two(" in stopped.err:
        assert f'recorded: one(s="{SECRET}"); asked for: two(s="{SECRET}")' in whole
    file.write_text(CODE, encoding="utf-8")
    said = stopped.err.partition("go on: ")[2].strip()
    assert said.startswith("with the code that recorded it, or mended: poimen --db db run FILE_OR_MODULE:"), said
    command = shlex.split(said.partition("mended: poimen ")[2].replace("FILE_OR_MODULE", "b.py"))
    ended = child(*command, cwd=cwd)
    assert (ended.code, ended.out) == (0, f"{SECRET}{SECRET}\n"), ended
    return stopped.err


def test_both_sides_are_told_by_digests_with_the_step_the_codes_and_the_place(tmp_path: Path) -> None:
    first, second, *_ = changed("flow", tmp_path, "committed:one", (FIRST, FIRST.replace("one", "two"))).splitlines()
    asked = digest(f'{{"s":"{SECRET}"}}'.encode())[:8]
    recorded, _, now = first.partition("; the code asked for: ")
    assert recorded.startswith(f"PO330 run r waits for the code: recorded: one(…) as one#0, arguments {asked} (code ")
    line = CODE.splitlines().index('    poimen.decide("what", s)') + 2
    assert now.startswith(f"two(…) as two#0, arguments {asked} at b.py:{line} (code ")
    assert recorded[-9:] != now[-9:], "the digests of both codes are told"
    assert second.strip() == "at one#0"


@pytest.mark.parametrize("name", ["flow", "stepped"])
def test_an_error_of_the_code_is_the_cause_that_is_told(tmp_path: Path, name: str) -> None:
    """KeyError in a line that was inserted, in a workflow and in a step."""
    head = f"async def {'unit' if name == 'stepped' else name}(s: str) -> str:\n"
    said = changed(name, tmp_path, "committed:one", (head, head + RAISES))
    line = CODE.splitlines().index(head.rstrip()) + 2
    assert f"; the code ended with KeyError: 'nope' at b.py:{line} (code " in said, said


def test_an_annotation_that_changed_is_the_cause_that_is_told(tmp_path: Path) -> None:
    said = changed("flow", tmp_path, "committed:one", ("def one(s: str)", "def one(s: int)"))
    assert "recorded: one(…) as one#0" in said
    assert "; the code ended with NotStorable: s: " in said, said
    assert " at b.py:" in said


def test_what_is_recorded_is_seen_where_the_message_says(cli: Cli, tmp_path: Path) -> None:
    said = changed("flow", tmp_path, "committed:one", ('poimen.decide("what", s)', 'poimen.decide("what", s * 2)'))
    assert "recorded: decide 'what', value " in said
    command = said.partition("what is recorded: poimen ")[2].splitlines()[0]
    shown = cli(*shlex.split(command))
    assert shown.code == 0
    assert f'input       {{"s": "{SECRET}"}}' in shown.out
    assert shown.out.count(f'{{"s": "{SECRET}"}}') == 3, "the input of the run, and of both steps"
    assert SECRET not in cli("runs", "show", "r", "--db", "db").out


def test_another_input_is_told_by_digests(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text(CODE, encoding="utf-8")
    assert cli("run", "b.py:flow", SECRET, "--id", "r", "--db", "db").code == 0
    done = cli("run", "b.py:flow", "card 4222", "--id", "r", "--db", "db")
    assert done.code == 5
    assert "card" not in done.err
    for one in (SECRET, "card 4222"):
        input_digest = digest(f'{{"s":"{one}"}}'.encode())
        assert f"flow with input {input_digest[:8]}" in done.err
    command = done.err.partition("the recorded one: poimen ")[2]
    assert SECRET in cli(*shlex.split(command)).out


def test_another_value_of_a_decision_is_told_by_digests(cli: Cli, tmp_path: Path) -> None:
    decides = '    poimen.decide("what", s)\n'
    again = '    try:\n        poimen.decide("what", "card 4222")\n'
    again += "    except poimen.DecisionConflict as no:\n        return str(no)\n"
    (tmp_path / "b.py").write_text(CODE.replace(decides, decides + again), encoding="utf-8")
    done = cli("run", "b.py:flow", SECRET, "--id", "r", "--db", "db")
    assert (done.code, "card" in done.out) == (0, False), done
    assert "decision 'what' was recorded with another value" in done.out
    recorded = digest(b'"card 4111"')[:8]
    assert f"recorded: value {recorded}; now: value " in done.out
    command = done.out.partition("the recorded value: poimen ")[2]
    assert SECRET in cli(*shlex.split(command), "--db", "db").out
