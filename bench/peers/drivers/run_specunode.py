"""SpecuNode: a graph of one node; writes are claimed, then sent; `resume` after a death."""

from __future__ import annotations

import asyncio
import logging

import inside
import specunode
from specunode.core.model import ModelResponse, RequestEnvelope, TextBlock, TurnComplete
from specunode.journal.journal import RunBusy

DB = inside.STATE / "specunode.db"


async def landed(key, args):
    """Ask the far side for our key."""
    return await asyncio.to_thread(inside.look, key)


HOW = {
    "nothing": {},
    "keys": {"idempotent": True},
    "look": {"reconcile": landed},
    "keys+look": {"reconcile": landed},  # a repeat is harmless for a while only: so ask
}


@specunode.tool(effect="write", **HOW[inside.OFFERS])
async def charge(words: str) -> str:
    """Act."""
    key = specunode.current_idempotency_key()
    return await asyncio.to_thread(inside.act, words, ref=key, key=key if "keys" in inside.OFFERS else "")


@specunode.tool(effect="write")
async def nothing(n: int) -> int:
    """An effect that does nothing."""
    return n


class Model:
    """Asks the far side's model."""

    async def complete(self, envelope):
        """One answer."""
        return ModelResponse(model="m", content=(TextBlock(text=inside.say()),))

    async def stream(self, envelope):
        """One answer, at one time."""
        yield TurnComplete(response=await self.complete(envelope))


@specunode.node()
async def order(session: specunode.RunSession) -> specunode.Decision:
    """The one node of a trial."""
    answer = await session.model.complete(RequestEnvelope(model="m"))
    inside.point("A")
    session.state["done"] = await session.call_tool("charge", {"words": answer.text})
    return specunode.FreeText.of("done")


@specunode.node()
async def many(session: specunode.RunSession) -> specunode.Decision:
    """Effects one after another."""
    for n in range(session.state["times"]):
        await session.call_tool("nothing", {"n": n})
    session.state["done"] = True
    return specunode.FreeText.of("done")


def runtime(node, name: str) -> specunode.Runtime:
    """A runtime of one node."""
    graph = specunode.graph([node], lambda state: None if state.get("done") else name)
    return specunode.Runtime(graph, tools=[charge, nothing], model=Model(), journal=DB)


def timed_run(times: int) -> None:
    """A run of effects that do nothing."""
    result = asyncio.run(runtime(many, "many").run({"times": times}))
    if not result.ok:
        raise SystemExit(result.error)


async def trial() -> None:
    """Begin, or go on."""
    here = runtime(order, "order")
    try:
        if inside.MODE == "start":
            result = await here.run({}, run_id=inside.RUN)
        else:
            try:
                result = await here.resume(inside.RUN)
            except Exception as error:
                if isinstance(error, RunBusy) or "no such" not in str(error).lower():
                    raise
                result = await here.run({}, run_id=inside.RUN)
    except RunBusy as busy:
        inside.told("busy", busy)
        return
    if result.ok:
        inside.told("done", result.state.get("done"))
    else:
        inside.told(
            "asks" if "dead" in str(result.error) or "dispatch" in str(result.error) else "failed", result.error
        )


def main() -> None:
    """One mode."""
    logging.disable(logging.CRITICAL)
    if inside.MODE == "time":
        inside.timed(timed_run)
    elif inside.MODE == "count":
        timed_run(inside.COUNT)
    else:
        inside.watch()
        asyncio.run(trial())


if __name__ == "__main__":
    main()
