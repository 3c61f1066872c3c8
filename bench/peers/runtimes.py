"""Which runtimes there are: their drivers, what they need, how each is used, and what is not asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Server = Literal["", "postgres", "restate"]

_SERVER_CUT: Final = (
    "its data lie with a server, whose own durability settings are at their safe defaults; this harness cuts the power "
    "of one process's files only"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A row.

    Arguments:
        name: in commands and in results.json.
        title: on the page.
        driver: a script of `drivers/`.
        venv: a key of pins.json; empty: it runs in poimen's own.
        packages: whose versions are told.
        server: what has to run beside it.
        without: situations that are not measured, and why.
        says: what the page says about how it is used here.
    """

    name: str
    title: str
    driver: str
    venv: str = ""
    packages: tuple[str, ...] = ()
    server: Server = ""
    without: Mapping[str, str] = field(default_factory=dict)
    says: str = ""


_DBOS = (
    "two steps in a workflow; started again under its workflow id; the key is workflow id and step id; a step is "
    "tried again (`retries_allowed`) only where the far side makes that safe"
)
_GRAPH = (
    'one node for the model and one for the effect, `durability="sync"`; the thread is invoked again; the key is thread '
    "and node; a `RetryPolicy` only where that is safe"
)

RUNTIMES: Final = (
    Runtime(
        name="poimen",
        title="poimen",
        driver="run_poimen.py",
        says="the class that fits the far side: `AT_MOST_ONCE`, `KEYED(ttl)`, `PROBE(fn, lag)`, `KEYED(ttl, probe)`; "
        "`timeout=1, grace=0.5`; the same run id again",
    ),
    Runtime(
        name="naive",
        title="naive loop (control)",
        driver="run_naive.py",
        says="a loop that writes down what it has done after it has done it; the harness has to see it duplicate",
    ),
    Runtime(
        name="dbos-sqlite",
        title="DBOS (SQLite)",
        driver="run_dbos.py",
        venv="dbos",
        packages=("dbos",),
        says=f"{_DBOS}; SQLite as it ships; a second process has the same executor id, so it recovers when it is launched",
    ),
    Runtime(
        name="dbos-postgres",
        title="DBOS (PostgreSQL)",
        driver="run_dbos.py",
        venv="dbos",
        packages=("dbos",),
        server="postgres",
        without={"power loss": _SERVER_CUT},
        says=_DBOS,
    ),
    Runtime(
        name="restate",
        title="Restate",
        driver="run_restate.py",
        venv="restate",
        packages=("restate-sdk", "@restatedev/restate-server"),
        server="restate",
        without={
            "power loss": _SERVER_CUT,
            "zombie": "needs a second replica behind the same address and its timeouts (one and ten minutes by default); "
            "not built here",
        },
        says="two `ctx.run` in a handler; the invocation's idempotency key joins it again; the key comes from `ctx.uuid()`; "
        "where the far side offers nothing, `max_attempts=1`",
    ),
    Runtime(
        name="absurd",
        title="Absurd (PostgreSQL)",
        driver="run_absurd.py",
        venv="absurd",
        packages=("absurd-sdk", "absurdctl"),
        server="postgres",
        without={"power loss": _SERVER_CUT},
        says="two steps; a claim of 2 s instead of its 120 s; a fixed wait of 1 s between attempts; the key comes from "
        "the id of what was spawned, as its documentation says; attempts at their default",
    ),
    Runtime(
        name="langgraph-sqlite",
        title="LangGraph (SQLite saver)",
        driver="run_langgraph.py",
        venv="langgraph",
        packages=("langgraph", "langgraph-checkpoint-sqlite"),
        says=_GRAPH,
    ),
    Runtime(
        name="langgraph-postgres",
        title="LangGraph (PostgreSQL saver)",
        driver="run_langgraph.py",
        venv="langgraph",
        packages=("langgraph", "langgraph-checkpoint-postgres"),
        server="postgres",
        without={"power loss": _SERVER_CUT},
        says=_GRAPH,
    ),
    Runtime(
        name="durabl",
        title="durabl",
        driver="run_durabl.py",
        venv="durabl",
        packages=("durabl",),
        without={"zombie": "one node by its own documentation: two processes on one run are not supported"},
        says="`AT_MOST_ONCE` where the far side offers nothing, else `IDEMPOTENT`; `resume_all()`; its default "
        '`synchronous="NORMAL"` (it can be set to FULL: more syncs, and less lost to a power cut)',
    ),
    Runtime(
        name="call4agents",
        title="call4agents",
        driver="run_call4agents.py",
        venv="call4agents",
        packages=("call4agents",),
        says="`@effect`, `idempotent_for=` and its key, or `reconcile=`; plain Python, run again under the same run id. It keeps no "
        "model answers for a resume: that is left to the framework around it, and a `c4a_key=` can name the call "
        "instead of its words",
    ),
    Runtime(
        name="specunode",
        title="SpecuNode",
        driver="run_specunode.py",
        venv="specunode",
        packages=("specunode",),
        says="a graph of one node; `write`, `idempotent=True` with its key, or `reconcile=`; `resume`",
    ),
)

BY_NAME: Final = {each.name: each for each in RUNTIMES}
