"""The agent that the command line is tried on; its far side is a file in the folder where it runs."""

from __future__ import annotations

import sys
import threading
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic.dataclasses import dataclass

import poimen
from poimen import Absent, Landed, effects

WITNESS = "witness.txt"


def witness(line: str) -> None:
    with Path(WITNESS).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


@poimen.tool(effect=effects.KEYED(ttl=timedelta(hours=24)), summary="charge {cents} for {order}")
async def charge(order: str, cents: int) -> str:
    witness(f"charge {order}")
    return f"charged {cents}"


@poimen.tool(effect=effects.AT_MOST_ONCE, summary="mail the receipt for {order}")
async def mail(order: str) -> str:
    witness(f"mail {order}")
    return f"mailed {order}"


@poimen.workflow
async def shop(order: str, cents: int = 4200) -> str:
    poimen.decide("order", {"order": order})
    done = await charge(order, cents)
    return f"{done}, {await mail(order)}"


def find(what: str) -> Landed[str] | Absent:
    there = Path(WITNESS).exists() and f"push {what}" in Path(WITNESS).read_text(encoding="utf-8").splitlines()
    return Landed(f"pushed {what}", evidence=f"{WITNESS} has it") if there else Absent(evidence=f"{WITNESS} has it not")


@poimen.tool(effect=effects.PROBE(find, lag=timedelta(hours=1)), summary="push {what}")
async def push(what: str) -> str:
    witness(f"push {what}")
    return f"pushed {what}"


@poimen.workflow
async def pushes(what: str) -> str:
    return await push(what)


@poimen.tool(effect=effects.AT_MOST_ONCE)
def stuck() -> None:
    sys.stdout.write("entered\n")
    sys.stdout.flush()
    threading.Event().wait()


@poimen.workflow
async def hangs() -> None:
    await stuck.aio()


@poimen.workflow
async def fails(message: str) -> None:
    raise ValueError(message)


@poimen.tool(effect=effects.AT_MOST_ONCE, summary="say {text}")
async def say(text: str) -> str:
    return text


@poimen.workflow
async def nasty(text: str, fail: bool = False) -> str:
    poimen.decide("said", text)
    said = await say(text)
    if fail:
        raise ValueError(text)
    return said


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True)
class Item:
    name: str
    price: Decimal = Decimal(1)


@poimen.workflow
async def typed(
    text: str,
    number: int = 0,
    *,
    share: float = 0.5,
    loud: bool = False,
    calm: bool = True,
    day: date | None = None,
    size: Size = Size.SMALL,
    word: Literal["a", "b"] = "a",
    maybe: str | None = None,
    marked: Annotated[str, "a mark"] = "",
    items: list[Item] | None = None,
    anything: Any = None,
) -> dict[str, Any]:
    return {
        "text": text,
        "number": number,
        "share": share,
        "loud": loud,
        "calm": calm,
        "day": day.isoformat() if day else None,
        "size": size.value,
        "word": word,
        "maybe": maybe,
        "marked": marked,
        "items": [[item.name, str(item.price)] for item in items or ()],
        "anything": anything,
    }


@poimen.workflow
async def many(*names: str, **rest: int) -> list[Any]:
    return [list(names), rest]


@poimen.workflow
async def nothing() -> None:
    return None


@poimen.tool(effect=effects.READ, summary="look")
async def look() -> int:
    return 1


@poimen.tool(effect=effects.READ, summary="look and fail")
async def look_and_fail() -> int:
    raise ValueError("nothing to see")


@poimen.tool(effect=effects.AT_MOST_ONCE, summary="refused before it left")
async def unsent() -> None:
    raise poimen.NotSent("no route")


@poimen.tool(effect=effects.IDEMPOTENT, summary="refused by the far side")
async def refused() -> None:
    raise poimen.Rejected("no")


@poimen.tool(effect=effects.AT_MOST_ONCE, summary="note it")
async def note() -> None:
    witness("note")


@poimen.workflow
async def answers() -> None:
    """Gets each answer that there is, and fails."""
    await look()
    for tool in (look_and_fail, unsent, refused):
        try:
            await tool()
        except (ValueError, poimen.NotSent, poimen.Rejected):
            continue
    await note()
    raise ValueError("enough")
