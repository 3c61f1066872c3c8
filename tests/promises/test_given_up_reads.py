"""A read that was given up because of something else is no read that timed out: whoever goes on asks anew."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from poimen.kernel.events import AttemptFailed
from poimen.kernel.intent import ReadDropped
from tests.promises.apart import events, play

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import asyncio, os, poimen
from poimen import effects

def note(line):
    with open("witness", "a") as far_side:
        far_side.write(line + "\\n")
    return open("witness").read().count(line)

looking = asyncio.Event()

@poimen.tool(effect=effects.READ)
async def look() -> str:
    n = note("look")
    looking.set()
    if os.environ.get("SILENT"):
        await asyncio.Event().wait()
    return f"seen at look {n}"

@poimen.tool(effect=effects.AT_MOST_ONCE)
async def pay() -> str:
    await looking.wait()
    note("pay")
    return "paid"

@poimen.step(attempts=3, backoff=0.0)
async def both() -> str:
    return ", ".join(await asyncio.gather(look.aio(), pay.aio()))

@poimen.workflow
async def flow() -> str:
    return await both()

async def main():
    async with poimen.Runtime("p.db") as runtime:
        run = await runtime.start(flow(), run_id="r")
        while True:
            try:
                print(await run.result(timeout=30, waiting="raise"))
                return
            except poimen.RunWaiting as waits:
                items = [item async for item in runtime.inbox() if item.kind == "effect"]
                if not items:
                    print(waits.message)
                    return
                (item,) = items
                said = {"by": "op", "why": "I looked", "expect_lsn": item.lsn, "result": "paid, says op"}
                await runtime.resolve(item.id, "landed", **said)

asyncio.run(main())
"""


def test_one_that_was_given_up_for_an_unknown_effect_is_asked_anew(tmp_path: Path) -> None:
    assert play(tmp_path, PROGRAM, crash="called:pay", SILENT="1").returncode == -signal.SIGKILL
    done = play(tmp_path, PROGRAM)
    assert (done.stdout, done.stderr) == ("seen at look 2, paid, says op\n", "")
    assert (tmp_path / "witness").read_text() == "look\npay\nlook\n"
    assert [event.why for event in events(tmp_path / "p.db") if isinstance(event, ReadDropped)] == ["held-back"]


def crash_loop(folder: Path, crash: str) -> None:
    """Kill it at the crash point, and each recovery until there is one too many."""
    assert play(folder, PROGRAM, crash=crash, SILENT="1").returncode == -signal.SIGKILL
    for _ in range(3):
        assert play(folder, PROGRAM, crash="classified").returncode == -signal.SIGKILL


def go_on(folder: Path) -> None:
    resume = ("runs", "resume", "r", "--why", "mended", "--db", str(folder / "p.db"))
    subprocess.run([sys.executable, "-m", "poimen", *resume], check=True, capture_output=True)


def test_one_that_was_given_up_in_a_crash_loop_is_asked_anew(tmp_path: Path) -> None:
    crash_loop(tmp_path, "committed:pay")
    done = play(tmp_path, PROGRAM)
    assert done.stdout == "run r waits for the operator: crash loop: see its attempts\n", done.stderr
    found = events(tmp_path / "p.db")
    assert [event.error.type for event in found if isinstance(event, AttemptFailed)] == ["CrashLoop"]
    assert [event.why for event in found if isinstance(event, ReadDropped)] == ["crash-loop"]
    go_on(tmp_path)
    done = play(tmp_path, PROGRAM)
    assert (done.stdout, done.stderr) == ("seen at look 2, paid\n", "")
    assert (tmp_path / "witness").read_text() == "look\npay\nlook\n"


def test_one_beside_an_unknown_effect_in_a_crash_loop_is_asked_anew(tmp_path: Path) -> None:
    crash_loop(tmp_path, "called:pay")
    done = play(tmp_path, PROGRAM)
    assert (done.stdout, done.stderr) == ("seen at look 2, paid, says op\n", "")
    assert (tmp_path / "witness").read_text() == "look\npay\nlook\n"
    assert [event.why for event in events(tmp_path / "p.db") if isinstance(event, ReadDropped)] == ["crash-loop"]
