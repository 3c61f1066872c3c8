"""LangGraph: nodes for model and effect, a saver, durability="sync"; resumed by invoking the thread."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import contextmanager
from typing import TypedDict

import inside
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy

SAFE = inside.OFFERS != "nothing"


class State(TypedDict, total=False):
    """What the graph hands on."""

    words: str
    done: str
    n: int


def say(state: State) -> State:
    """Ask the model."""
    return {"words": inside.say()}


def charge(state: State, config: RunnableConfig) -> State:
    """Act."""
    inside.point("A")
    return {"done": inside.act_as_offered(state["words"], f"{config['configurable']['thread_id']}/charge")}


def nothing(state: State) -> State:
    """An effect that does nothing."""
    return {"n": state["n"] + 1}


@contextmanager
def saver():
    """The saver of this trial, set up."""
    if inside.DSN:
        with PostgresSaver.from_conn_string(inside.DSN) as found:
            found.setup()
            yield found
    else:
        found = SqliteSaver(sqlite3.connect(inside.STATE / "langgraph.sqlite", check_same_thread=False))
        found.setup()
        yield found


def order(memory):
    """The graph of the one run of a trial."""
    graph = StateGraph(State)
    graph.add_node("say", say)
    # Tried again only where that is safe: a node has no retries of its own.
    graph.add_node("charge", charge, retry_policy=RetryPolicy(initial_interval=0.1, max_attempts=3) if SAFE else None)
    graph.add_edge(START, "say")
    graph.add_edge("say", "charge")
    graph.add_edge("charge", END)
    return graph.compile(checkpointer=memory)


def chain(memory, times: int):
    """A graph of effects one after another."""
    graph = StateGraph(State)
    names = [f"n{i}" for i in range(times)]
    for name in names:
        graph.add_node(name, nothing)
    for one, other in itertools.pairwise([START, *names, END]):
        graph.add_edge(one, other)
    return graph.compile(checkpointer=memory)


def main() -> None:
    """One mode."""
    threads = itertools.count()
    graphs = {}
    with saver() as memory:

        def many(times: int) -> None:
            graphs.setdefault(times, chain(memory, times) if times not in graphs else None)
            config = {"configurable": {"thread_id": f"t{next(threads)}"}, "recursion_limit": 1000}
            graphs[times].invoke({"n": 0}, config, durability="sync")

        if inside.MODE == "time":
            inside.timed(many)
        elif inside.MODE == "count":
            many(inside.COUNT)
        else:
            inside.watch()
            config = {"configurable": {"thread_id": inside.RUN}}
            graph = order(memory)
            before = graph.get_state(config)
            try:
                found = graph.invoke(None if before.next else {"n": 0}, config, durability="sync")
                inside.told("done", found.get("done"))
            except inside.FarSideError as error:
                inside.told("failed", error)
            except sqlite3.OperationalError as locked:  # a process that was stopped may hold the file's lock
                inside.told("busy", locked)


if __name__ == "__main__":
    main()
