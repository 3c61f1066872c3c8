"""Declared names as an author writes them, for the tests beside this file."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any

import poimen
from poimen import Absent, Landed, effects

if TYPE_CHECKING:
    from collections.abc import Callable

ENTERED: list[str] = []
"""Bodies that were run; nothing but the gate may run one."""


@dataclass(frozen=True)
class Order:
    id: str
    cents: int


def landed(order: Order, note: str = "none") -> Landed[str] | Absent:
    ENTERED.append("landed")
    return Landed(order.id, evidence=note)


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def refund(order: Order, note: str = "none") -> str:
    """Give the money back."""
    ENTERED.append("refund")
    return f"{order.id} {note}"


@poimen.tool(effect=effects.KEYED(timedelta(hours=1), probe=landed), summary="charge {order.cents}", undo=refund)
async def charge(order: Order, note: str = "none") -> str:
    """Take the money."""
    ENTERED.append("charge")
    return f"{order.id} {note}"


@poimen.tool(effect=effects.READ, name="look-up")
def look(path: str, *more: str, deep: bool = False, **rest: int) -> list[str]:
    ENTERED.append("look")
    return [path, *more, str(deep), *rest]


@poimen.model
async def chat(messages: list[dict[str, Any]]) -> str:
    ENTERED.append("chat")
    return str(messages)


@poimen.step(attempts=5)
def tidy(order: Order) -> Order:
    ENTERED.append("tidy")
    return order


@poimen.workflow
async def shop(order: Order) -> str:
    ENTERED.append("shop")
    return await charge(order)


@poimen.workflow
def shop_sync(order: Order) -> str:
    ENTERED.append("shop_sync")
    return charge.sync(order)


@poimen.verifier(gate=True)
def cheap(ctx: poimen.VerifierCtx) -> bool:
    ENTERED.append("cheap")
    return ctx.snapshot_lsn > 0


def _twice(fn: Callable[[str], str]) -> Callable[[str], str]:
    @wraps(fn)
    def inner(text: str) -> str:
        return fn(fn(text))

    return inner


@poimen.step
@_twice
def wrapped(text: str) -> str:
    ENTERED.append("wrapped")
    return text + text


@poimen.tool(effect=effects.READ)
def early(later: Later) -> Later:
    ENTERED.append("early")
    return later


@dataclass(frozen=True)
class Later:
    """Defined below the tool that speaks of it."""

    n: int


TOOLS = (charge, refund, look, chat, tidy, wrapped, early)
WORKFLOWS = (shop, shop_sync)
