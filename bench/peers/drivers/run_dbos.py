"""DBOS: a workflow of two steps; recovered at launch; the key is made of its ids."""

from __future__ import annotations

import inside
from dbos import DBOS, SetWorkflowID

KEYED = "keys" in inside.OFFERS or "look" in inside.OFFERS


@DBOS.step()
def say() -> str:
    """Ask the model."""
    return inside.say()


# Tried again only where that is safe: the default of a step is one attempt.
@DBOS.step(retries_allowed=KEYED, interval_seconds=0.1, max_attempts=3)
def charge(words: str) -> str:
    """Act."""
    return inside.act_as_offered(words, f"{DBOS.workflow_id}-{DBOS.step_id}")


@DBOS.workflow()
def order() -> str:
    """The one run of a trial."""
    words = say()
    inside.point("A")
    return charge(words)


@DBOS.step()
def nothing(n: int) -> int:
    """An effect that does nothing."""
    return n


@DBOS.workflow()
def many(times: int) -> int:
    """Effects one after another."""
    for n in range(times):
        nothing(n)
    return times


def main() -> None:
    """One mode."""
    url = inside.DSN or f"sqlite:///{inside.STATE}/dbos.sqlite"
    DBOS(
        config={
            "name": "peer",
            "system_database_url": url,
            "log_level": "CRITICAL",
            "application_version": "v1",
            "executor_id": "local",
        }
    )
    DBOS.launch()
    if inside.MODE == "time":
        inside.timed(many)
    elif inside.MODE == "count":
        many(inside.COUNT)
    else:
        inside.watch()
        with SetWorkflowID(inside.RUN):  # the same id is the same workflow: begun, or joined
            handle = DBOS.start_workflow(order)
        try:
            inside.told("done", handle.get_result())
        except Exception as error:
            inside.told("failed", f"{type(error).__name__}: {error}")
    DBOS.destroy()


if __name__ == "__main__":
    main()
