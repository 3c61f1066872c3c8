"""Code as demanding users write it: it shares contexts, threads and arguments, and changes before a restart."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import signal
import subprocess
import sys
import threading
import tracemalloc
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import effects
from tests.promises import apart

if TYPE_CHECKING:
    from pathlib import Path

# ---- a class that becomes PURE ---------------------------------------------------------------------------------------

CHANGES = """
import sys
import poimen
from poimen import effects

def put(n: int) -> int:
    with open("witness", "a") as far_side:
        far_side.write(f"put {{n}}\\n")
    return n

put = poimen.tool(effect=effects.{effect})(put)

@poimen.step
def unit(n: int) -> int:
    return put(n) + put(n + 1)

@poimen.workflow
def in_step() -> int:
    return unit(10)

@poimen.workflow
def alone() -> int:
    return put(10) + put(11)

try:
    print(poimen.run({workflow}(), db="p.db", run_id="r"))
except poimen.RunWaiting as waiting:
    print("waits", waiting.reason)
"""


def play(folder: Path, effect: str, workflow: str, crash: str = "") -> subprocess.CompletedProcess[str]:
    """Run the workflow with this declaration in a process of its own."""
    return apart.play(folder, CHANGES.format(effect=effect, workflow=workflow), crash=crash)


def lines(folder: Path) -> list[str]:
    return (folder / "witness").read_text().splitlines()


@pytest.mark.parametrize("workflow", ["alone", "in_step"])
def test_an_unknown_stays_unknown_when_its_tool_becomes_pure(tmp_path: Path, workflow: str) -> None:
    assert play(tmp_path, "AT_MOST_ONCE", workflow, "called:put").returncode == -signal.SIGKILL
    for _ in range(2):
        done = play(tmp_path, "PURE", workflow)
        assert done.stdout == "waits operator\n", done.stderr
    assert lines(tmp_path) == ["put 10"]


@pytest.mark.parametrize("workflow", ["alone", "in_step"])
def test_a_known_effect_is_not_done_again_when_its_tool_becomes_pure(tmp_path: Path, workflow: str) -> None:
    assert play(tmp_path, "IDEMPOTENT", workflow, "called:put:2").returncode == -signal.SIGKILL
    assert lines(tmp_path) == ["put 10", "put 11"]
    done = play(tmp_path, "PURE", workflow)
    assert done.stdout == "21\n", done.stderr
    assert lines(tmp_path) == ["put 10", "put 11", "put 11"]  # the second was unknown, and its class lets it be sent
    assert play(tmp_path, "IDEMPOTENT", workflow).stdout == "21\n"
    assert len(lines(tmp_path)) == 3


KINDS = """
import poimen
from poimen import effects

def unit(n: int) -> int:
    with open("witness", "a") as far_side:
        far_side.write("unit\\n")
    return n

unit = {declared}(unit)

@poimen.workflow
def flow() -> int:
    return unit(1)

try:
    print(poimen.run(flow(), db="p.db", run_id="r"))
except poimen.RunWaiting as waiting:
    print("waits", waiting.reason)
"""


def test_a_tool_that_becomes_a_step_is_a_change_of_code(tmp_path: Path) -> None:
    def start(declared: str, crash: str = "") -> subprocess.CompletedProcess[str]:
        return apart.play(tmp_path, KINDS.format(declared=declared), crash=crash)

    assert start("poimen.tool(effect=effects.IDEMPOTENT)", "pending:unit").returncode == -signal.SIGKILL
    assert start("poimen.step").stdout == "waits code\n"
    assert not (tmp_path / "witness").exists()
    assert start("poimen.tool(effect=effects.IDEMPOTENT)").stdout == "1\n"


# ---- arguments that a body changes -----------------------------------------------------------------------------------


@dataclass
class Order:
    items: list[str]
    cents: int


SENT: list[tuple[str, int]] = []
ASKED: list[list[str]] = []


@poimen.tool(effect=effects.KEYED(ttl=timedelta(hours=1)))
async def pay(order: Order) -> int:
    order.cents += 100
    order.items.clear()
    SENT.append((poimen.request_id(), order.cents))
    if len(SENT) == 1:
        raise ConnectionError("the answer was lost")
    return order.cents


async def pushed(command: list[str]) -> effects.Landed[int] | effects.Absent | effects.Unknown:
    ASKED.append(list(command))
    command.append("asked")
    return effects.Landed(1)


@poimen.tool(effect=effects.PROBE(pushed, lag=timedelta(0)), timeout=1)
async def push(command: list[str]) -> int:
    command.insert(0, "git")
    raise ConnectionError("the answer was lost")


@poimen.workflow
async def changes_its_arguments() -> list[int]:
    return [await pay(Order(["tea"], 4200)), await push(["push"])]


def test_each_send_and_each_question_gets_the_arguments_as_they_were_frozen(tmp_path: Path) -> None:
    SENT.clear()
    ASKED.clear()
    assert poimen.run(changes_its_arguments(), db=str(tmp_path / "p.db")) == [4300, 1]
    assert [cents for _, cents in SENT] == [4300, 4300]
    assert len({name for name, _ in SENT}) == 1
    assert ASKED == [["push"]]


# ---- threads, loops, exits, contexts ---------------------------------------------------------------------------------

MAILED: list[int] = []


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def mail(n: int) -> int:
    MAILED.append(n)
    return n


@poimen.tool(effect=effects.READ)
async def look(n: int) -> int:
    return n


@poimen.step
async def decides_elsewhere(what: str) -> str:
    return await _elsewhere(what)


async def _elsewhere(what: str) -> str:
    acts: dict[str, Any] = {
        "decide": lambda: poimen.decide("d", 1),
        "settle": lambda: poimen.settle("d"),
        "tool": lambda: asyncio.run(mail.aio(7)),
        "step": lambda: asyncio.run(decides_elsewhere.aio("decide")),
    }
    try:
        await asyncio.to_thread(acts[what])
    except poimen.UnguardedEffect as refused:
        return refused.message
    return "not refused"


@poimen.workflow
async def from_a_thread(what: str, inside: bool) -> str:
    await asyncio.gather(*(look(n) for n in range(8)))
    return await (decides_elsewhere(what) if inside else _elsewhere(what))


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("what", ["decide", "settle", "tool", "step"])
def test_a_coroutine_s_own_thread_or_loop_makes_no_call(tmp_path: Path, what: str, inside: bool) -> None:
    MAILED.clear()
    said = poimen.run(from_a_thread(what, inside), db=str(tmp_path / "p.db"))
    assert "outside the run's own loop" in said
    assert MAILED == []


@poimen.workflow
async def exits(how: str) -> int:
    async def bad() -> None:
        await look(1)
        sys.exit(3)

    if how == "gathered":
        await asyncio.gather(bad(), look(2))
    elif how == "task":
        await asyncio.create_task(bad())
    elif how == "group":
        async with asyncio.TaskGroup() as group:
            group.create_task(bad())
    return 1


@poimen.workflow
async def innocent(n: int) -> int:
    for m in range(5):
        n = await look(n + m)
    return n


@pytest.mark.parametrize("how", ["gathered", "task", "group"])
def test_an_exit_in_a_task_ends_its_run_and_nothing_else(tmp_path: Path, how: str) -> None:
    async def main() -> tuple[int, str]:
        async with poimen.Runtime(str(tmp_path / "p.db")) as runtime:
            bad, good = await runtime.start(exits(how)), await runtime.start(innocent(1))
            with pytest.raises(poimen.RunFailed) as failed:
                await bad.result(timeout=30)
            return await good.result(timeout=30), str(failed.value)

    assert asyncio.run(main())[0] == 11


TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


@poimen.step(attempts=2, backoff=0.0)
async def tells_tenant(fail_first: list[int]) -> str:
    TRIES.append(TENANT.get())
    if len(TRIES) <= len(fail_first):
        raise RuntimeError("again")
    return TENANT.get()


TRIES: list[str] = []


@poimen.workflow
async def tenant(own: str) -> list[str]:
    before = TENANT.get()
    if own:
        TENANT.set(own)
    return [before, await tells_tenant([0])]


@pytest.mark.parametrize("own", ["", "mine"])
def test_a_run_has_a_context_of_its_own_and_each_attempt_that_of_its_call(tmp_path: Path, own: str) -> None:
    TRIES.clear()
    TENANT.set("acme")
    try:
        assert poimen.run(tenant(own), db=str(tmp_path / "p.db")) == ["nobody", own or "nobody"]
        assert [own or "nobody"] * 2 == TRIES
    finally:
        TENANT.set("nobody")


# ---- threads of poimen's own -----------------------------------------------------------------------------------------


@poimen.step
def small(n: int) -> int:
    return n + 1


@poimen.workflow
def waits_for_a_step(n: int) -> int:
    MEETING.wait(timeout=30)
    return small(n)


MEETING = threading.Barrier(40)


def test_synchronous_workflows_do_not_use_up_their_steps_threads(tmp_path: Path) -> None:
    async def main() -> list[int]:
        async with poimen.Runtime(str(tmp_path / "p.db"), concurrency=40) as runtime:
            runs = [await runtime.start(waits_for_a_step(n)) for n in range(40)]
            return list(await asyncio.gather(*(run.result(timeout=30) for run in runs)))

    assert asyncio.run(main()) == list(range(1, 41))


HELD = threading.Event()
BEGUN: list[int] = []


@poimen.tool(effect=effects.READ)
def holds(n: int) -> int:
    HELD.wait(timeout=30)
    return n


@poimen.tool(effect=effects.AT_MOST_ONCE, timeout=0.5, grace=0.01)
def telegram(n: int) -> int:
    BEGUN.append(n)
    return n


@poimen.workflow
async def crowded(threads: int) -> int:
    holding = [asyncio.ensure_future(holds.aio(n)) for n in range(threads)]
    sending = asyncio.ensure_future(telegram.aio(1))
    await tick()
    HELD.set()
    await asyncio.gather(*holding)
    return await sending


@poimen.tool(effect=effects.READ)
async def tick() -> None:
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(1.0, passed.set)  # longer than the telegram may take
    await passed.wait()


@poimen.workflow
async def crowded_and_cancelled(threads: int) -> str:
    holding = [asyncio.ensure_future(holds.aio(n)) for n in range(threads)]
    sending = asyncio.ensure_future(telegram.aio(1))
    await tick()
    sending.cancel()
    end = (await asyncio.gather(sending, return_exceptions=True))[0]
    HELD.set()
    await asyncio.gather(*holding)
    return type(end).__name__


def test_the_time_of_a_body_counts_from_its_first_line(tmp_path: Path) -> None:
    HELD.clear()
    BEGUN.clear()
    assert poimen.run(crowded(32), db=str(tmp_path / "p.db")) == 1
    assert BEGUN == [1]


def test_a_body_that_has_no_thread_yet_is_known_not_to_be_sent(tmp_path: Path) -> None:
    HELD.clear()
    BEGUN.clear()
    assert poimen.run(crowded_and_cancelled(32), db=str(tmp_path / "p.db"), run_id="r") == "CancelledError"
    assert BEGUN == []
    log = subprocess.run(
        [sys.executable, "-m", "poimen", "--db", str(tmp_path / "p.db"), "inbox", "ls"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "telegram" not in log.stdout


# ---- what a long run keeps -------------------------------------------------------------------------------------------


@poimen.tool(effect=effects.PURE)
async def large(n: int) -> str:
    return str(n) * 100_000


@poimen.workflow
async def throws_results_away(times: int) -> int:
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for n in range(times):
        async with asyncio.timeout(60):
            await large(n % 10)
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


def test_a_run_does_not_keep_what_its_code_was_given(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        kept = poimen.run(throws_results_away(100), db=str(tmp_path / "p.db"))
    finally:
        tracemalloc.stop()
    assert kept < 2_000_000  # all results: 10 MB


# ---- what an operator says a call returned ---------------------------------------------------------------------------


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def order(n: int) -> Order:
    raise ConnectionError("the answer was lost")


@poimen.workflow
async def orders(n: int) -> int:
    return (await order(n)).cents


@pytest.mark.parametrize("result", [Order(["tea"], 7), {"items": ["tea"], "cents": 7}], ids=["its own", "plain"])
def test_a_runtime_checks_what_a_call_is_said_to_have_returned(tmp_path: Path, result: object) -> None:
    async def main() -> int:
        async with poimen.Runtime(str(tmp_path / "p.db"), modules=[__name__]) as runtime:
            run = await runtime.start(orders(1), run_id="r")
            with pytest.raises(poimen.RunWaiting):
                await run.result(waiting="raise", timeout=30)
            (item,) = [item async for item in runtime.inbox()]
            say = {"by": "op", "why": "asked", "expect_lsn": item.lsn}
            with pytest.raises(poimen.NotStorable):
                await runtime.resolve(item.id, "landed", result="wrong", **say)  # type: ignore[arg-type]
            await runtime.resolve(item.id, "landed", result=result, **say)  # type: ignore[arg-type]
            return await run.result(timeout=30)

    assert asyncio.run(main()) == 7
