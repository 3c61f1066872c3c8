"""An agent whose arguments are secret and whose author wrote no summary."""

from __future__ import annotations

import poimen
from poimen import effects

SECRET = "sk_live_123"


@poimen.tool(effect=effects.AT_MOST_ONCE)
def pay(token: str) -> str:
    return "paid"


@poimen.tool(effect=effects.AT_MOST_ONCE, on_indeterminate="raise")
def ask(token: str) -> str:
    raise TimeoutError("no answer")


@poimen.step
def unit(token: str) -> str:
    return pay(token)


@poimen.workflow
def shop(token: str) -> str:
    return pay(token)


@poimen.workflow
def stepped(token: str) -> str:
    return unit(token)


@poimen.workflow
def told(token: str) -> str:
    return ask(token)
