"""A decision gives back a value of the class that was decided, live and replayed, with a kill between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from poimen.kernel.events import DecisionRecorded
from tests.promises import apart

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

AGENT = """
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from enum import Enum
from typing import TypedDict
from uuid import UUID
import pydantic
import poimen
from poimen import effects

class Colour(Enum):
    RED = 1

class Person(TypedDict):
    name: str

class Offer(pydantic.BaseModel):
    price: Decimal

@dataclass
class Plan:
    goal: str
    colour: Colour = Colour.RED

@poimen.tool(effect=effects.IDEMPOTENT)
async def act() -> None:
    pass

NOON = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)

@poimen.workflow
async def flow() -> None:
    ann: Person = {{"name": "ann"}}
    decided = [
        poimen.decide("plan", {plan}),
        poimen.decide("colour", Colour.RED),
        poimen.decide("person", ann),
        poimen.decide("offer", Offer(price=Decimal("1.50"))),
        poimen.decide("noon", NOON),
        poimen.decide("price", Decimal("1.10")),
        poimen.decide("id", UUID(int=7)),
        poimen.decide("bytes", b"\\x00"),
        poimen.decide("pair", (1, Colour.RED)),
        poimen.decide("many", {{"plans": [Plan("a"), Plan("b")], "by": {{Colour.RED: NOON}}}}),
    ]
    with open("witness", "a") as witness:
        print(decided, file=witness)
    await act()

try:
    poimen.run(flow(), db="p.db", run_id="r")
except poimen.PoimenError as error:
    print(error)
"""


def start(folder: Path, *, plan: str = 'Plan("tea")', crash: str = "") -> subprocess.CompletedProcess[str]:
    return apart.play(folder, AGENT.format(plan=plan), crash=crash)


def recorded(folder: Path) -> list[str]:
    return [event.id for event in apart.events(folder / "p.db") if isinstance(event, DecisionRecorded)]


@pytest.mark.parametrize("crash", ["decided:plan", "decided:many", "dispatched:act"])
def test_what_was_decided_comes_back_as_it_was(tmp_path: Path, crash: str) -> None:
    assert start(tmp_path, crash=crash).returncode == -9
    done = start(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    lines = (tmp_path / "witness").read_text().splitlines()
    assert len(lines) == (2 if crash == "dispatched:act" else 1)
    assert len(set(lines)) == 1
    assert lines[0].startswith("[Plan(goal='tea', colour=<Colour.RED: 1>), <Colour.RED: 1>, {'name': 'ann'}, Offer(")
    assert "'plans': [Plan(goal='a', colour=<Colour.RED: 1>)" in lines[0]
    assert len(recorded(tmp_path)) == 10


@pytest.mark.parametrize("plan", ['Plan("coffee")', '{"goal": "tea", "colour": "RED"}'])
def test_another_value_or_another_class_is_seen(tmp_path: Path, plan: str) -> None:
    assert start(tmp_path, crash="dispatched:act").returncode == -9
    again = start(tmp_path, plan=plan)
    assert "waits for the code" in again.stdout
    assert len((tmp_path / "witness").read_text().splitlines()) == 1


def test_what_cannot_come_back_is_refused_before_it_is_recorded(tmp_path: Path) -> None:
    done = start(tmp_path, plan="object()")
    assert "decide('plan'): object cannot be stored" in done.stdout
    assert recorded(tmp_path) == []
