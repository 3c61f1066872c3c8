"""No tool is reached but through the guard: not by an import, not by a call, not by `raw` in a program (I1).

What a declared name holds is walked in tests/declare; the contracts that a stray import breaks are in
tests/tidy. Here: a bypass as somebody would write it, and each way in that a user has.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from tests.crash import programs
from tests.tidy.test_imports import lint
from tests.tidy.tree import SRC

if TYPE_CHECKING:
    from pathlib import Path

BYPASS = """
from poimen.gate._call import body


def call_it(tool, *args):
    return body(tool.__poimen_spec__.token)(*args)
"""


@pytest.mark.parametrize("room", ["engine/shortcut.py", "cli/shortcut.py", "gate/shortcut.py", "testing_tools.py"])
def test_a_module_that_opens_tools_breaks_the_contract(tmp_path: Path, room: str) -> None:
    shutil.copytree(SRC, tmp_path / "poimen", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "poimen" / room).write_text(BYPASS, encoding="utf-8")
    done = lint(tmp_path, ["one-door"])
    assert done.returncode == 1, done.stdout
    assert "poimen.gate._call" in done.stdout


@pytest.mark.parametrize(
    "call",
    [
        lambda: programs.at_most_once("tea"),
        lambda: programs.at_most_once.aio("tea"),
        lambda: programs.at_most_once.sync("tea"),
        lambda: programs.at_most_once.options(key="k")("tea"),
    ],
)
def test_a_tool_called_outside_a_run_is_refused_and_does_nothing(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POIMEN_WITNESS", str(tmp_path / "witness"))
    with pytest.raises(poimen.UnguardedEffect):
        call()
    assert not (tmp_path / "witness").exists()


def test_raw_is_refused_in_a_program() -> None:
    program = """
import poimen
from poimen import effects, testing

@poimen.tool(effect=effects.AT_MOST_ONCE)
def mail(to: str) -> str:
    return "sent to " + to

try:
    testing.raw(mail)
except poimen.UnguardedEffect as refused:
    print(refused)
testing.allow_raw()
print(testing.raw(mail)("ann"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "raw(mail) was asked for in a process that is no test" in done.stdout
    assert "allow_raw()" in done.stdout
    assert done.stdout.splitlines()[-1] == "sent to ann"
