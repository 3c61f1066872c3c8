"""Pieces of programs with anyio's cancel scopes and groups beside asyncio's, and random programs full of them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import anyio

from tests.engine import programs
from tests.engine.programs import FAILURES, State, execute

if TYPE_CHECKING:
    from tests.engine.programs import Node

LEAVES: Final = ("look", "put", "pay", "calc", "chat")
HOLDERS: Final = (
    *("after", "after", "within", "group", "group", "stopped", "shielded", "cleaned"),
    *("gather", "tg", "seq", "finally", "timeout", "wait", "step"),
)


async def _after(node: Node, state: State, see: Any) -> int:
    with anyio.move_on_after(node[1]) as scope:
        await execute(node[2][0], state)
    see("moved on", scope.cancelled_caught)
    return 21


async def _within(node: Node, state: State, see: Any) -> int:
    try:
        with anyio.fail_after(node[1]):
            return await execute(node[2][0], state)
    except TimeoutError:
        see("too late")
        return 22


async def _group(node: Node, state: State, see: Any) -> int:
    """Children with scopes of their own, which anyio keeps by their addresses."""

    async def child(one: Node) -> None:
        with anyio.CancelScope():
            try:
                await execute(one, state)
            finally:
                see("child ended")

    try:
        async with anyio.create_task_group() as group:
            for one in node[1]:
                group.start_soon(child, one)
            if node[0] == "stopped":
                await execute(node[1][0], state)
                group.cancel_scope.cancel()
    except* FAILURES as errors:
        see("group", len(errors.exceptions))
    return 23


async def _shielded(node: Node, state: State, see: Any) -> int:
    with anyio.CancelScope(shield=True):
        await execute(node[1][0], state)
    see("was shielded")
    return 24


async def _cleaned(node: Node, state: State, see: Any) -> int:
    try:
        return await execute(node[1][0], state)
    finally:
        await _shielded(("shielded", node[1][1:]), state, see)


programs._KINDS.update(
    {
        "after": _after,
        "within": _within,
        "group": _group,
        "stopped": _group,
        "shielded": _shielded,
        "cleaned": _cleaned,
    }
)


class ScopeMaker:
    """Makes one program from a seed, as `programs.Maker` does: `nodes[0]` is its root, others are bodies of steps."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.nodes: list[Node] = [()]
        self.nodes[0] = ("seq", [self.node() for _ in range(3)])

    def node(self, depth: int = 0, *, steps: bool = True) -> Node:
        chance = self.chance
        if depth >= 4 or chance.random() < 0.2:
            if chance.random() < 0.25:
                return ("sleep", chance.random() * 0.002)
            return ("call", chance.choice(LEAVES))
        kind = chance.choice(HOLDERS)
        if kind == "step" and not steps:
            kind = "after"

        def inner(count: int) -> list[Node]:
            return [self.node(depth + 1, steps=steps) for _ in range(count)]

        match kind:
            case "step":
                self.nodes.append(("seq", [self.node(2, steps=False) for _ in range(2)]))
                return ("step", "unit", len(self.nodes) - 1)
            case "after" | "within" | "timeout":
                return (kind, chance.random() * 0.003, inner(1))
            case "wait":
                return (kind, 1, inner(3))
            case "shielded" | "finally":
                return (kind, inner(1))
            case "cleaned":
                return (kind, inner(2))
            case _:
                return (kind, inner(chance.randrange(2, 4)))
