"""What is recorded is judged by the stricter declaration, and what was closed stays closed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from poimen.engine.reading import read_run
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.intent import IntentDemoted, RuleApplied
from poimen.kernel.plan import Send, Then, plan
from poimen.kernel.views import newest_branch
from poimen.log.opening import open_store
from tests.kernel.test_plan import RETURNED, intent
from tests.promises import apart

if TYPE_CHECKING:
    from pathlib import Path


AGENT = """
import os, sys
import poimen
from poimen import effects

def note(line):
    with open("witness", "a") as far_side:
        far_side.write(line + "\\n")

@poimen.tool(effect=effects.{effect}, max_sends=3)
async def pay(n: int) -> str:
    note(poimen.request_id())
    if {lose}:
        raise RuntimeError("the answer was lost")
    return "paid"

@poimen.workflow
async def flow(n: int) -> str:
    return await pay(n)

try:
    print(poimen.run(flow(1), db="p.db", run_id="r"))
except poimen.RunWaiting as waiting:
    print("waits", waiting.reason)
"""


def start(folder: Path, effect: str, *, lose: bool = False, crash: str = "") -> subprocess.CompletedProcess[str]:
    """Run the agent with this declaration in a process of its own."""
    return apart.play(folder, AGENT.format(effect=effect, lose=lose), crash=crash)


def test_an_intent_of_before_is_sent_by_the_stricter_declaration_of_now(tmp_path: Path) -> None:
    assert start(tmp_path, "IDEMPOTENT", crash="pending:pay").returncode == -9
    assert not (tmp_path / "witness").exists()
    ended = start(tmp_path, "AT_MOST_ONCE", lose=True)
    assert ended.stdout.split() == ["waits", "operator"], ended
    assert len((tmp_path / "witness").read_text().splitlines()) == 1, "it was sent against the class of now"
    demoted = [event for event in apart.events(tmp_path / "p.db") if isinstance(event, IntentDemoted)]
    assert [(d.frm, d.to, d.rule) for d in demoted] == [
        (EffectClass.IDEMPOTENT, EffectClass.AT_MOST_ONCE, "stricter-now")
    ]


def test_a_laxer_declaration_of_now_changes_nothing(tmp_path: Path) -> None:
    assert start(tmp_path, "AT_MOST_ONCE", crash="called:pay").returncode == -9
    ended = start(tmp_path, "IDEMPOTENT")
    assert ended.stdout.split() == ["waits", "operator"], ended
    assert len((tmp_path / "witness").read_text().splitlines()) == 1
    rules = [event.rule for event in apart.events(tmp_path / "p.db") if isinstance(event, RuleApplied)]
    assert rules == ["at-most-once"]


@pytest.mark.parametrize("called_off", ["", "cancelled"])
def test_nothing_is_sent_after_an_intent_was_closed(called_off: str) -> None:
    closed = intent(None)
    closed.outcome = RETURNED
    planned = plan(closed, Send(called_off=called_off))
    assert planned.commit == ()
    assert planned.then is Then.CLIMB


def test_handing_a_run_over_is_no_crash(tmp_path: Path) -> None:
    script = """
import asyncio, sys
import poimen

@poimen.workflow
async def patient(n: int) -> str:
    await asyncio.sleep(3600)
    return "done"

async def main():
    async with poimen.Runtime("p.db", modules=["__main__"], drain=0) as runtime:
        run = await runtime.start(patient(1), run_id="r")
        while (await run.standing()).lsn < int(sys.argv[1]):
            await asyncio.sleep(0)

asyncio.run(main())
"""
    (tmp_path / "deploy.py").write_text(script)
    for deploy in range(6):
        subprocess.run([sys.executable, "deploy.py", str(2 + deploy)], cwd=tmp_path, check=True)
    store = open_store(str(tmp_path / "p.db"), read_only=True)
    line = newest_branch(read_run(store, "r")[0])
    store.close()
    assert line.state.name == "RUNNING", line.waiting
