"""A program that lets made-up secrets slip into every way that leads to the log; run as a process, killed on its way.

`python leaky.py KIND...` runs one workflow for each kind of canary. The environment says where: LEAKY_DB, LEAKY_N.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import poimen
from poimen import effects, ledger
from poimen.testing import CANARY_KINDS, Canary, made_up_secrets

SEED = 12 + int(os.environ.get("LEAKY_SEED", "0"))


@cache
def of(kind: str) -> list[Canary]:
    return [one for one in made_up_secrets(int(os.environ["LEAKY_N"]), seed=SEED) if one.kind == kind]


@dataclass(frozen=True)
class Account:
    user: str
    credentials: list[Any]


@dataclass(frozen=True)
class Plan:
    name: str
    accounts: dict[str, Account]


class Broken(Exception):
    """An error with fields of its own."""

    def __init__(self, text: str, hidden: str) -> None:
        super().__init__(text, {"detail": [text]})
        self.password = hidden
        self.request = {"headers": {"Authorization": hidden}, "url": text}
        self.add_note(f"note: {text}")


def _body(one: Canary) -> str:
    """A text that is secret by itself: what is so by its name only is given under the name."""
    return one.text if one.value == one.text else ""


def _text(kind: str, n: int) -> str:
    return of(kind)[n].text


@poimen.tool(effect=effects.AT_MOST_ONCE)
def takes(given: Any) -> None:
    """An argument."""


@poimen.tool(effect=effects.AT_MOST_ONCE)
def login(user: str, password: str) -> None:
    """An argument under a name that says so."""


@poimen.tool(effect=effects.READ)
def gives(kind: str, n: int, way: str) -> Any:
    """A result: as it is, in bytes, in a large one."""
    one = of(kind)[n]
    if way == "bytes":
        return {"data": _body(one).encode()}
    return {"page": ["lorem ipsum " * 8_000, one.value, "dolor " * 9_000]} if way == "large" else [one.value]


@poimen.tool(effect=effects.AT_MOST_ONCE)
def refused(kind: str, n: int) -> None:
    """An error that says no."""
    said = of(kind)[n]
    try:
        raise Broken(f"because of {said.text}", said.hidden)
    except Broken as cause:
        raise poimen.Rejected(f"no: {said.text}", why=said.text, hint=f"not {said.text}") from cause


@poimen.tool(effect=effects.READ)
def fails(kind: str, n: int) -> None:
    """An error of a read."""
    said = of(kind)[n]
    raise Broken(f"the far side says: {said.text}\n{'x' * 5000}", said.hidden)


def seen(kind: str, n: int) -> effects.Landed[None]:
    return effects.Landed(None, evidence=f"found with {_text(kind, n)}")


@poimen.tool(effect=effects.PROBE(seen, lag=timedelta(0)), summary=lambda kind, n: f"asks for {_text(kind, n)}")
def probed(kind: str, n: int) -> None:
    """A summary, an error that leaves the call open, and the evidence of a probe."""
    raise TimeoutError(f"no answer for {_text(kind, n)}")


@poimen.tool(effect=effects.AT_MOST_ONCE, on_indeterminate="raise", summary=_text)
def lost(kind: str, n: int) -> None:
    """A call that may have happened: for people to decide."""
    raise TimeoutError(f"lost with {_text(kind, n)}")


def _again(error: BaseException) -> bool:
    raise ValueError(f"cannot tell: {error}")


@poimen.step(attempts=2, retry_on=_again)
def stumbles(kind: str, n: int) -> None:
    """A step's error, and one of its predicate, which is logged with its traceback."""
    raise RuntimeError(f"stumbled over {_text(kind, n)}")


def ways(one: Canary, kind: str, n: int) -> None:
    """All ways in, one after the other; each may be refused."""
    body = _body(one)
    attempts = (
        lambda: takes(one.value),
        lambda: takes({"deep": [{"er": (one.value, 1)}]}),
        lambda: takes({body: 1}),
        lambda: takes(body.encode()),
        lambda: takes(f"before\n{body}\nbehind"),
        lambda: login("ann", one.hidden),
        lambda: poimen.decide(f"{kind}-{n}", one.value),
        lambda: poimen.decide(f"{kind}-{n}-plan", Plan("p", {"a": Account("ann", [one.value])})),
        lambda: poimen.decide(body.replace("\n", " ") or "none", 1),
        lambda: gives(kind, n, "plain"),
        lambda: gives(kind, n, "bytes"),
        lambda: gives(kind, n, "large"),
        lambda: refused(kind, n),
        lambda: fails(kind, n),
        lambda: probed(kind, n),
        lambda: lost(kind, n),
        lambda: stumbles(kind, n),
    )
    for attempt in attempts:
        with suppress(poimen.PoimenError, TimeoutError, RuntimeError):
            attempt()


@poimen.workflow
def leaks(kind: str) -> Any:
    """All canaries of one kind through all ways; ends with one as its result, or in an error."""
    all_of = of(kind)
    for n, one in enumerate(all_of):
        ways(one, kind, n)
    if len(kind) % 2:
        return all_of[0].value
    raise RuntimeError(f"ended over {all_of[0].text}")


@poimen.workflow
def waits(n: int) -> None:
    """For an operator, who says more than he should."""
    stuck(n)


@poimen.tool(effect=effects.AT_MOST_ONCE)
def stuck(n: int) -> None:
    """A call that is left unknown."""
    raise TimeoutError(of(CANARY_KINDS[n])[0].text)


async def people(rt: poimen.Runtime) -> None:
    """What people and programs say from outside."""
    for n, kind in enumerate(CANARY_KINDS):
        for one in of(kind):
            with suppress(poimen.PoimenError):
                await rt.start(takes_all(one.value))
            with suppress(poimen.PoimenError):
                await rt.start(waits(n), run_id=f"run-{one.text}"[:200])
    runs = [await rt.start(waits(n), run_id=f"waits-{n}", tags=_tags(kind)) for n, kind in enumerate(CANARY_KINDS)]
    await asyncio.gather(*(run.result(waiting="raise") for run in runs), return_exceptions=True)
    said = {run.id: of(kind)[0].text for run, kind in zip(runs, CANARY_KINDS, strict=True)}
    for item in [item async for item in rt.inbox() if item.run_id in said]:
        await rt.claim(item.id, by=f"ann {said[item.run_id]}")
    for item in [item async for item in rt.inbox() if item.run_id in said]:
        text = said[item.run_id]
        told = {"by": "ann", "why": f"asked with {text}", "evidence": f"curl -H '{text}'"}
        await rt.resolve(item.id, "abandoned", **told, expect_lsn=item.lsn)
    for run in runs:
        with suppress(poimen.PoimenError):
            await run.cancel(f"no longer: {said[run.id]}", by=said[run.id])


def _tags(kind: str) -> dict[str, str]:
    return {"why": of(kind)[0].text, "password": of(kind)[0].hidden}


@poimen.workflow
def takes_all(given: Any) -> Any:
    """An argument of a workflow."""
    return given


async def main(kinds: list[str]) -> None:
    db = os.environ["LEAKY_DB"]
    async with poimen.Runtime(db) as rt:
        for kind in kinds:
            run = await rt.start(leaks(kind), run_id=f"leaks-{kind}", tags={"kind": kind})
            with suppress(poimen.PoimenError):
                await run.result(waiting="raise")
        await people(rt)
    with ledger.DecisionLedger(Path(db).with_name("ledger.jsonl")) as book:
        for n, one in enumerate(made_up_secrets(int(os.environ["LEAKY_N"]), seed=SEED)):
            for decision in (one.value, {"deep": [one.value]}):
                with suppress(poimen.PoimenError):
                    book.record_intent(f"d{n}", decision)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or list(CANARY_KINDS)))
