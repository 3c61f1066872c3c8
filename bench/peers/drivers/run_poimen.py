"""poimen: the class says what the far side offers."""

from __future__ import annotations

import os
from datetime import timedelta

import inside

if inside.MODE == "start" and inside.armed_at("A"):
    os.environ["POIMEN_CRASH"] = (
        "pending"  # window A: between the first record and the second (docs/guides/crash-testing.md)
    )

import poimen
from poimen import Absent, Landed, effects

DB = str(inside.STATE / "poimen.db")


def find(words: str) -> Landed[str] | Absent:
    """Ask the far side for our reference."""
    found = inside.look(poimen.request_id())
    return Absent() if found is None else Landed(found)


TTL, LAG = timedelta(seconds=inside.TTL_S), timedelta(seconds=inside.LAG_S)
CLASSES: dict[str, effects.AnyEffect] = {
    "nothing": effects.AT_MOST_ONCE,
    "keys": effects.KEYED(ttl=TTL),
    "look": effects.PROBE(find, lag=LAG),
    "keys+look": effects.KEYED(ttl=TTL, probe=find, lag=LAG),
}


@poimen.tool(effect=effects.READ)
def say() -> str:
    """Ask the model."""
    return inside.say()


@poimen.tool(effect=CLASSES[inside.OFFERS], timeout=1, grace=0.5)
def charge(words: str) -> str:
    """Act."""
    ident = poimen.request_id()
    return inside.act(words, ref=ident, key=ident if "keys" in inside.OFFERS else "")


@poimen.workflow
def order() -> str:
    """The one run of a trial."""
    return charge(say())


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def nothing(n: int) -> int:
    """An effect that does nothing."""
    return n


@poimen.workflow
async def many(times: int) -> int:
    """Effects one after another."""
    for n in range(times):
        await nothing(n)
    return times


def main() -> None:
    """One mode."""
    if inside.MODE == "time":
        inside.timed(lambda n: poimen.run(many(n), db=DB))
    elif inside.MODE == "count":
        poimen.run(many(inside.COUNT), db=DB)
    else:
        inside.watch()
        try:
            inside.told("done", poimen.run(order(), db=DB, run_id=inside.RUN))
        except poimen.RunWaiting as waiting:
            inside.told("asks", waiting.reason)
        except poimen.RunFailed as failed:
            inside.told("failed", failed)


if __name__ == "__main__":
    main()
