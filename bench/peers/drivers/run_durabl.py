"""durabl: a generator workflow; a tool has one of two modes; `resume_all` after a death; its defaults."""

from __future__ import annotations

import inside
from durabl import ModelCall, Runtime, Tool, ToolCall, ToolMode, instrument, workflow

SAFE = inside.OFFERS != "nothing"


@workflow
def order(ctx):
    """The one run of a trial."""
    words = yield ModelCall("word it")
    key = f"charge-{ctx.run_id}"
    done = yield ToolCall("charge", {"words": words["text"], "key": key}, idempotency_key=key)
    return done


@workflow
def many(ctx, times):
    """Effects that do nothing, one after another."""
    for n in range(times):
        yield ToolCall("nothing", {"n": n})
    return times


def charge(words: str, key: str) -> str:
    """Act."""
    return inside.act_as_offered(words, key)


ASKED = []


def ask(*_, **__):
    """The model."""
    ASKED.append(inside.say())
    return {"text": ASKED[-1]}


def between(name: str, context: dict) -> None:
    """Its own named moment between the first record of a tool's call and the second; the step before is the model's."""
    if name == instrument.AFTER_STEP_STARTED and ASKED:
        inside.point("A")


def main() -> None:
    """One mode."""
    mode = ToolMode.IDEMPOTENT if SAFE else ToolMode.AT_MOST_ONCE
    tools = {"charge": Tool("charge", charge, mode), "nothing": Tool("nothing", lambda n: n, ToolMode.AT_MOST_ONCE)}
    instrument.install(between)
    runtime = Runtime(
        db=str(inside.STATE / "durabl.db"),
        llm=ask,
        tools=tools,
        workflows=[order, many],
    )
    if inside.MODE == "time":
        inside.timed(lambda n: runtime.run(many, {"times": n}))
    elif inside.MODE == "count":
        runtime.run(many, {"times": inside.COUNT})
    else:
        inside.watch()
        runtime.resume_all()
        if runtime.store.get_run(inside.RUN) is None:
            runtime.start(order, {}, run_id=inside.RUN)
        state = runtime.state(inside.RUN)
        ended = {"COMPLETED": "done", "DEAD_LETTERED": "asks", "FAILED": "failed"}.get(state.status, "stuck")
        inside.told(ended, state.result or state.error)


if __name__ == "__main__":
    main()
