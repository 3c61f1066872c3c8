"""Absurd on PostgreSQL: a task of two steps; a claim that has run out is taken up; the key is the id of the task."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import inside
from absurd_sdk import Absurd

TASK = inside.STATE / "task"
CLAIM_S = max(1, round(inside.TAKEOVER_S))


def order(params, ctx):
    """The one run of a trial."""
    words = ctx.step("say", inside.say)
    inside.point("A")
    return ctx.step("charge", lambda: inside.act_as_offered(words, f"{ctx.task_id}:charge"))


def many(params, ctx):
    """Effects that do nothing, one after another."""
    for n in range(params["times"]):
        ctx.step(f"n{n}", lambda n=n: n)


def opened(*, fresh: bool) -> Absurd:
    """The application; with its schema when this is the first process."""
    if fresh:
        tool = Path(sys.executable).parent / "absurdctl"
        env = {**os.environ, "PGDATABASE": inside.DSN, "ABSURD_DATABASE_URL": inside.DSN}
        subprocess.run([tool, "init"], env=env, check=True, stdout=subprocess.DEVNULL)
    app = Absurd(inside.DSN, queue_name="q")
    if fresh:
        app.create_queue("q")
    app.register_task("order")(order)
    app.register_task("many")(many)
    return app


def main() -> None:
    """One mode."""
    app = opened(fresh=inside.MODE != "resume")

    def one(times: int) -> None:
        app.spawn("many", {"times": times})
        app.work_batch()

    if inside.MODE == "time":
        inside.timed(one)
    elif inside.MODE == "count":
        one(inside.COUNT)
    else:
        inside.watch()
        if inside.MODE == "start":
            wait = {"kind": "fixed", "base_seconds": 1}
            TASK.write_text(str(app.spawn("order", {}, retry_strategy=wait)["task_id"]), encoding="utf-8")
        while True:
            app.work_batch(claim_timeout=CLAIM_S)
            found = app.fetch_task_result(TASK.read_text(encoding="utf-8"))
            if found is not None and found.state in {"completed", "failed", "cancelled"}:
                break
            time.sleep(0.1)
        inside.told("done" if found.state == "completed" else "failed", found.result or found.failure)


if __name__ == "__main__":
    main()
