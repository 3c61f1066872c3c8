"""The outside world of a simulation: what tools did to it, and chance for how they behave.

A program has no other memory across its lives: what a tool puts here is what a far side would hold. This module must
never ask the runtime whether something happened; the only thing that it takes from there is the request id that a far
side would be sent. It keeps the invariant that a line is held against the log at the moment when it is written.

Source: design proof.md, P11; protocol.md, I1.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from poimen.declare.calling import request_id
from poimen.kernel.errors import ConfigurationError

if TYPE_CHECKING:
    import random  # noqa: TID251 (seeded: one seed is one schedule)

    from poimen.log.memory import Contents
    from poimen.testing.schedules.loop import SimulatedLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One thing that a tool did to the world.

    Arguments:
        request_id: as a far side was sent it.
        what: it was.
        result: what the call gives back, for a probe or an operator who finds it.
        at_s: when, in seconds since the simulation began.
        step: the callback of the loop, by number.
        dispatched: how many sends of this request id were durable when it happened.
    """

    request_id: str
    what: str
    result: Any
    at_s: float
    step: int
    dispatched: int


@dataclass(kw_only=True)
class World:
    """What lies outside the runtime; tools find theirs with `World.here()`.

    Arguments:
        chance: for how tools behave: how long they take, whether they fail. It is the schedule's own.
        memory: for whatever a far side remembers.
        marks: what was done to it, in order.
    """

    chance: random.Random
    memory: dict[str, Any] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    loop: SimulatedLoop | None = field(default=None, repr=False)
    contents: Contents | None = field(default=None, repr=False)

    @classmethod
    def here(cls) -> World:
        """The world of the simulation that runs.

        Raises:
            ConfigurationError: none runs.
        """
        if not _HERE:
            raise ConfigurationError(
                "no simulation runs here, so there is no world",
                why="the tool asks for the world of a simulated program; nothing was done",
                hint="run the program by poimen.testing.simulate, or replace the tool",
            )
        return _HERE[-1]

    def note(self, what: str, result: Any = None) -> None:
        """Say that a tool has done something that cannot be undone. Call it where a real one would take effect.

        Arguments:
            what: it was, a short text.
            result: what the call gives back, of JSON types.
        """
        sent = request_id()
        self.marks.append(
            Mark(
                request_id=sent,
                what=what,
                result=result,
                at_s=self.now_s(),
                step=self.loop.steps if self.loop is not None else 0,
                dispatched=self._dispatched(sent.partition(".")[0]),
            )
        )

    async def wait(self, seconds: float) -> None:
        """Let simulated time pass.

        Arguments:
            seconds: how long; 0: one turn of the loop.
        """
        await asyncio.sleep(seconds)

    def now_s(self) -> float:
        """Seconds since the simulation began."""
        return self.loop.now if self.loop is not None else 0.0

    def of(self, request_id: str) -> list[Mark]:
        """What was done under a request id, the later sends of a READ included.

        Arguments:
            request_id: as `poimen.request_id()` gives it in the tool or its probe.
        """
        return [mark for mark in self.marks if mark.request_id.partition(".")[0] == request_id]

    def _dispatched(self, sent: str) -> int:
        """Sends of a request id that are in the log now; read from the stored bytes."""
        records = self.contents.all if self.contents is not None else []
        mine, sends = set(), 0
        for record in records:
            if record.kind == "intent.pending.v1" and json.loads(record.body)["request_id"] == sent:
                mine.add((record.run, record.subject))
            sends += record.kind == "intent.dispatched.v1" and (record.run, record.subject) in mine
        return sends


_HERE: Final[list[World]] = []


def enter(world: World) -> None:
    """Tools find this world from now on, until `leave`."""
    _HERE.append(world)


def leave() -> None:
    """Tools find the world of before."""
    _HERE.pop()
