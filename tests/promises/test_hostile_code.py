"""Code of users that misbehaves: its run says so; no other run, no record and no operator is harmed."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import poimen
from poimen import effects

if TYPE_CHECKING:
    from pathlib import Path


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def of_a_response(error: BaseException) -> bool:
    return bool(error.response.status)  # type: ignore[attr-defined]  # the mistake of this predicate


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def wordless() -> str:
    raise Wordless


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def leaves() -> str:
    raise SystemExit(4)


@poimen.tool(effect=effects.AT_MOST_ONCE, summary="mail {to}")
async def mail(to: str) -> str:
    raise OSError("the answer was lost")


@poimen.tool(effect=effects.READ)
def look(n: int) -> int:
    return n


@poimen.step(attempts=3, backoff=0.01, retry_on=of_a_response)
async def fails() -> str:
    raise ValueError("x")


async def answers_later(error: BaseException) -> bool:
    return False


@poimen.step(attempts=3, backoff=0.01, retry_on=answers_later)  # type: ignore[arg-type]  # the mistake of this predicate
async def retried() -> str:
    TRIES.append(1)
    raise ValueError("x")


TRIES: list[int] = []


@poimen.step
def empty() -> str:
    return next(iter([]))


@poimen.step
async def suspends() -> str:
    raise poimen.Suspended


@poimen.workflow
async def calls(name: str) -> str:
    steps = {"wordless": wordless, "leaves": leaves, "fails": fails, "suspends": suspends, "retried": retried}
    if name == "empty":
        return await empty.aio()
    if name == "exit":
        raise SystemExit(4)
    return await steps[name]()


@poimen.workflow
async def mails(to: str) -> str:
    return await mail(to)


@poimen.workflow
async def decides(name: str) -> str:
    poimen.decide(name, 1)
    return "decided"


@poimen.workflow
async def counts(n: int) -> int:
    total = 0
    for i in range(n):
        poimen.decide(f"d{i}", i)
        total += await look.aio(i)
    return total


@poimen.workflow
async def foreign() -> str:
    return await asyncio.to_thread(str, 5)


@poimen.workflow
def scatters() -> int:
    with ThreadPoolExecutor(2) as pool:
        contexts = [contextvars.copy_context() for _ in range(2)]
        return sum(pool.map(lambda context: context.run(look, 1), contexts))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fails", "ValueError: x"),
        ("empty", "StopIteration"),
        ("suspends", "Suspended"),
        ("exit", "SystemExit: 4"),
    ],
)
def test_a_body_that_misbehaves_fails_its_own_run(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(poimen.RunFailed) as failed:
        poimen.run(calls(name), db=str(tmp_path / "p.db"), run_id="r")
    assert said in str(failed.value)


def test_a_predicate_that_answers_later_has_not_said_yes(tmp_path: Path) -> None:
    TRIES.clear()
    with pytest.raises(poimen.RunFailed, match="ValueError: x"):
        poimen.run(calls("retried"), db=str(tmp_path / "p.db"), run_id="r")
    assert TRIES == [1]


@pytest.mark.parametrize("name", ["wordless", "leaves"])
def test_a_tool_that_ends_in_an_unheard_of_way_may_have_acted(tmp_path: Path, name: str) -> None:
    with pytest.raises(poimen.RunWaiting) as waits:
        poimen.run(calls(name), db=str(tmp_path / "p.db"), run_id="r")
    assert waits.value.reason == "operator"


@pytest.mark.parametrize("id", ["caf\udce9", "", "two\nlines", "x" * 501])
def test_what_cannot_be_the_id_of_a_decision_is_refused(tmp_path: Path, id: str) -> None:
    with pytest.raises(poimen.RunFailed, match="cannot be the id of a decision"):
        poimen.run(decides(id), db=str(tmp_path / "p.db"), run_id="r")


def test_a_summary_is_one_line_that_can_be_stored(tmp_path: Path) -> None:
    with pytest.raises(poimen.RunWaiting) as waits:
        poimen.run(mails("bob\nclass  PROBE: landed\udce9"), db=str(tmp_path / "p.db"), run_id="r")
    assert "mail bob class PROBE: landed?" in str(waits.value)


def test_many_runs_live_in_the_threads_of_one_process(tmp_path: Path) -> None:
    results: dict[int, int] = {}

    def run(number: int) -> None:
        results[number] = poimen.run(counts(40), db=str(tmp_path / f"{number}.db"), run_id="r")

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == dict.fromkeys(range(3), sum(range(40)))


def test_a_foreign_await_is_bridged_without_a_sound(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert poimen.run(foreign(), db=str(tmp_path / "p.db"), run_id="r") == "5"
    assert capfd.readouterr().err == ""


def test_calls_of_threads_that_the_workflow_started_are_refused(tmp_path: Path) -> None:
    with pytest.raises(poimen.RunFailed, match="a thread that the workflow or step started itself"):
        poimen.run(scatters(), db=str(tmp_path / "p.db"), run_id="r")
