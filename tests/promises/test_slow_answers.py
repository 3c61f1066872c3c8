"""What comes late counts as what came in time; what still runs is neither hidden nor taken for absent."""

from __future__ import annotations

import asyncio
import signal
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import effects
from poimen.kernel.intent import IntentDispatched, IntentProbed, RuleApplied
from tests.promises import apart
from tests.promises.apart import events

if TYPE_CHECKING:
    from pathlib import Path


GO = threading.Event()
CALLS: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    GO.clear()
    CALLS.clear()


def says_no(how: str) -> str:
    CALLS.append(how)
    GO.wait(timeout=30)
    raise (poimen.Rejected if how == "rejected" else poimen.NotSent)("card declined")


charge = poimen.tool(effect=effects.AT_MOST_ONCE, timeout=0.3, grace=0.01, name="charge")(says_no)
tried = poimen.tool(effect=effects.AT_MOST_ONCE, timeout=0.3, grace=0.01, name="tried", attempts=2, backoff=0.0)(
    says_no
)


@poimen.step(attempts=1)
async def paying(how: str) -> str:
    return await charge.aio(how)


@poimen.workflow
async def alone(how: str) -> str:
    return await charge.aio(how)


@poimen.workflow
async def twice(how: str) -> str:
    return await tried.aio(how)


@poimen.workflow
async def in_step(how: str) -> str:
    return await paying(how)


async def with_late_answers(db: Path, call: Any) -> str:
    async with poimen.Runtime(str(db)) as runtime:
        run = await runtime.start(call, run_id="r")
        with pytest.raises(poimen.RunWaiting):
            await run.result(waiting="raise", timeout=30)
        GO.set()
        with pytest.raises(poimen.RunFailed) as failed:
            await run.result(timeout=30)
        return str(failed.value)


@pytest.mark.parametrize(
    ("call", "calls", "error"),
    [
        (alone("rejected"), 1, "Rejected: card declined"),
        (alone("not sent"), 1, "NotSent: card declined"),
        (twice("rejected"), 1, "Rejected: card declined"),
        (twice("not sent"), 2, "NotSent: card declined"),
        (in_step("rejected"), 1, "card declined"),
        (in_step("not sent"), 1, "card declined"),
    ],
    ids=["rejected", "not-sent", "twice-rejected", "twice-not-sent", "step-rejected", "step-not-sent"],
)
def test_a_no_that_comes_late_is_a_no(tmp_path: Path, call: Any, calls: int, error: str) -> None:
    assert error in asyncio.run(with_late_answers(tmp_path / "p.db", call))
    assert len(CALLS) == calls


@poimen.tool(effect=effects.AT_MOST_ONCE, timeout=0.3, grace=0.01)
def deaf(n: int) -> str:
    CALLS.append("deaf")
    GO.wait(timeout=30)
    return f"late {n}"


@poimen.workflow
async def waits_for_the_deaf(n: int) -> str:
    return await deaf.aio(n)


def test_a_run_waits_for_the_operator_although_the_body_goes_on(tmp_path: Path) -> None:
    async def main() -> tuple[str, str | None, str]:
        async with poimen.Runtime(str(tmp_path / "p.db")) as runtime:
            run = await runtime.start(waits_for_the_deaf(1), run_id="r")
            with pytest.raises(poimen.RunWaiting):
                await run.result(waiting="raise", timeout=30)
            stands = await run.standing()
            GO.set()
            return stands.state.value, stands.command, await run.result(timeout=30)

    state, command, result = asyncio.run(main())
    assert (state, result) == ("WAITING", "late 1")
    assert command == "poimen inbox show r/main/deaf#0/1/0"
    assert CALLS == ["deaf"]


@pytest.mark.parametrize("to", ["landed", "abandoned"])
def test_an_operator_who_knows_moves_it_at_once(tmp_path: Path, to: str) -> None:
    async def main() -> str:
        async with poimen.Runtime(str(tmp_path / "p.db"), drain=0) as runtime:
            run = await runtime.start(waits_for_the_deaf(1), run_id="r")
            with pytest.raises(poimen.RunWaiting):
                await run.result(waiting="raise", timeout=30)
            (item,) = [item async for item in runtime.inbox()]
            value = {"result": "seen"} if to == "landed" else {}
            await runtime.resolve(item.id, to, by="op", why="asked", expect_lsn=item.lsn, **value)  # type: ignore[arg-type]
            try:
                return await run.result(timeout=30)
            except poimen.RunFailed as failed:
                return str(failed)
            finally:
                GO.set()

    said = asyncio.run(main())
    assert said == "seen" if to == "landed" else "EffectAbandoned" in said


async def absent(n: int) -> effects.Landed[str] | effects.Absent | effects.Unknown:
    CALLS.append("asked")
    if CALLS.count("asked") > 2:
        GO.set()
    return effects.Absent()


@poimen.tool(effect=effects.PROBE(absent, lag=timedelta(0)), timeout=0.3, grace=0.01)
def slow_push(n: int) -> str:
    CALLS.append("pushed")
    GO.wait(timeout=30)
    return f"pushed {n}"


@poimen.workflow
async def pushes(n: int) -> str:
    return await slow_push.aio(n)


def test_an_absence_says_nothing_while_the_body_runs_here(tmp_path: Path) -> None:
    assert poimen.run(pushes(1), db=str(tmp_path / "p.db"), run_id="r") == "pushed 1"
    found = events(tmp_path / "p.db")
    assert CALLS.count("pushed") == len([event for event in found if isinstance(event, IntentDispatched)]) == 1
    assert {event.answer for event in found if isinstance(event, IntentProbed)} == {"unknown"}


# ---- many at once, and attempts that inherit -----------------------------------------------------------------------


@poimen.tool(effect=effects.READ)
async def ok(n: int) -> int:
    return n


@poimen.step
def synchronous(n: int) -> int:
    return ok.sync(n)


@poimen.workflow
async def many(n: int) -> int:
    return sum(await asyncio.gather(*(synchronous.aio(m) for m in range(n))))


@pytest.mark.parametrize("n", [33, 100])
def test_more_synchronous_steps_at_once_than_a_pool_has_threads(tmp_path: Path, n: int) -> None:
    assert poimen.run(many(n), db=str(tmp_path / "p.db")) == n * (n - 1) // 2


@poimen.tool(effect=effects.IDEMPOTENT)
async def put(n: int) -> int:
    CALLS.append(str(n))
    return n


@poimen.step(attempts=4, backoff=0.0)
async def thrice(failures: int) -> int:
    called_off = asyncio.ensure_future(put(1))
    await asyncio.sleep(0)
    called_off.cancel()
    await asyncio.wait([called_off])
    found = await put(2)
    if poimen.current().attempt <= failures:
        raise ValueError("again")
    return found


@poimen.workflow
async def inherits(failures: int) -> int:
    return await thrice(failures)


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_a_place_is_inherited_over_several_attempts(tmp_path: Path, failures: int) -> None:
    assert poimen.run(inherits(failures), db=str(tmp_path / "p.db")) == 2
    assert CALLS.count("2") == 1


# ---- declarations, before and after a kill ---------------------------------------------------------------------------

HEAD = """
import poimen
from datetime import timedelta
from poimen import effects

def note(line):
    with open("witness", "a") as far_side:
        far_side.write(line + "\\n")

async def found(n: int) -> effects.Landed[int] | effects.Absent | effects.Unknown:
    note("asked")
    return effects.Landed(n)
"""
TAIL = """
try:
    print(poimen.run(flow(), db="p.db", run_id="r"))
except poimen.RunWaiting as waiting:
    print("waits", waiting.reason)
"""


def play(folder: Path, program: str, crash: str = "") -> str:
    """What the program prints, in a process of its own."""
    done = apart.play(folder, HEAD + program + TAIL, crash=crash)
    assert done.returncode == (-signal.SIGKILL if crash else 0), done.stderr
    return done.stdout


IN_STEP = """
@{declared}
def act(n: int) -> int:
    note("act")
    return n

@poimen.step
def unit() -> int:
    return act(1)

@poimen.workflow
def flow() -> int:
    return unit()
"""


def test_an_effect_of_a_step_that_becomes_a_step_is_not_done_again(tmp_path: Path) -> None:
    tool = IN_STEP.format(declared="poimen.tool(effect=effects.AT_MOST_ONCE)")
    play(tmp_path, tool, "committed:act")
    assert play(tmp_path, IN_STEP.format(declared="poimen.step")) == "waits code\n"
    assert (tmp_path / "witness").read_text() == "act\n"
    assert play(tmp_path, tool) == "1\n"


ALONE = """
@poimen.tool(effect={effect}, timeout={timeout}, grace=0.01)
def act(n: int) -> int:
    note("act")
    return n

@poimen.workflow
def flow() -> int:
    return act{options}(1)
"""


def test_a_key_that_became_a_probe_is_asked_for(tmp_path: Path) -> None:
    keyed = ALONE.format(effect="effects.KEYED(ttl=timedelta(hours=1))", timeout=0.5, options="")
    probed = ALONE.format(effect="effects.PROBE(found, lag=timedelta(0))", timeout=0.5, options="")
    play(tmp_path, keyed, "called:act")
    assert play(tmp_path, probed) == "1\n"
    assert (tmp_path / "witness").read_text() == "act\nasked\n"


def test_a_call_s_own_time_is_no_change_of_declaration(tmp_path: Path) -> None:
    program = ALONE.format(effect="effects.KEYED(ttl=timedelta(hours=1))", timeout=15, options=".options(timeout=0.5)")
    play(tmp_path, program, "dispatched:act")
    assert play(tmp_path, program) == "1\n"
    rules = [event.rule for event in events(tmp_path / "p.db") if isinstance(event, RuleApplied)]
    assert rules == ["key-alive"]


# ---- several bodies of one effect, and calls that nobody wants any more ----------------------------------------------

ENDS: dict[int, threading.Event] = {}


@poimen.tool(effect=effects.IDEMPOTENT, timeout=0.3, grace=0.01, max_sends=2)
def twice_deaf(n: int) -> str:
    CALLS.append("deaf")
    mine = ENDS.setdefault(len(CALLS), threading.Event())
    mine.wait(timeout=30)
    raise ConnectionResetError("the answer was lost")


@poimen.workflow
async def waits_for_two(n: int) -> str:
    return await twice_deaf.aio(n)


def test_not_landed_is_refused_until_the_last_body_has_ended(tmp_path: Path) -> None:
    ENDS.clear()

    async def refused(runtime: poimen.Runtime) -> bool:
        (item,) = [item async for item in runtime.inbox()]
        try:
            await runtime.resolve(item.id, "not_landed", by="op", why="hope", expect_lsn=item.lsn)
        except poimen.PoimenError as error:
            return "is running" in str(error)
        return False

    async def main() -> list[bool]:
        async with poimen.Runtime(str(tmp_path / "p.db")) as runtime:
            run = await runtime.start(waits_for_two(1), run_id="r")
            with pytest.raises(poimen.RunWaiting):
                await run.result(waiting="raise", timeout=30)
            assert len(CALLS) == 2
            found = [await refused(runtime)]
            ENDS[1].set()
            while not [e for e in events(tmp_path / "p.db") if isinstance(e, RuleApplied) and e.rule == "call-ended"]:
                await asyncio.sleep(0)
            found.append(await refused(runtime))
            ENDS[2].set()
            while len([e for e in events(tmp_path / "p.db") if getattr(e, "rule", "") == "call-ended"]) < 2:
                await asyncio.sleep(0)
            found.append(await refused(runtime))
            return found

    try:
        assert asyncio.run(main()) == [True, True, False]
    finally:
        for end in ENDS.values():
            end.set()


@poimen.tool(effect=effects.AT_MOST_ONCE, timeout=0.3, grace=0.01, attempts=3, backoff=60.0)
def backs_off(n: int) -> str:
    GO.wait(timeout=30)
    raise poimen.NotSent("not now")


@poimen.workflow
async def gives_up(n: int) -> str:
    waiting = asyncio.ensure_future(backs_off.aio(n))
    await late_enough.aio()
    waiting.cancel()
    await asyncio.wait([waiting])
    return "gave up"


@poimen.tool(effect=effects.READ)
def late_enough() -> None:
    SAID.wait(timeout=30)


SAID = threading.Event()


def test_a_call_that_is_cancelled_in_its_back_off_holds_nothing_up(tmp_path: Path) -> None:
    SAID.clear()

    async def main() -> str:
        async with poimen.Runtime(str(tmp_path / "p.db")) as runtime:
            run = await runtime.start(gives_up(1), run_id="r")
            while not [e for e in events(tmp_path / "p.db") if type(e).__name__ == "AttemptIndeterminate"]:
                await asyncio.sleep(0)
            GO.set()
            while not [e for e in events(tmp_path / "p.db") if type(e).__name__ == "LateOutcome"]:
                await asyncio.sleep(0)
            SAID.set()
            return await run.result(timeout=30)

    assert asyncio.run(main()) == "gave up"
