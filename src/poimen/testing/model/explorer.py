"""Breadth first over the states of the model, so that what is found broken has a shortest way to it.

This module must never know what a state means. It keeps the invariant that each state is looked at one time, and
that the way to it can be told.

Source: design proof.md, P10.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from poimen import clock
from poimen.testing.model.invariants import broken_by, broken_in
from poimen.testing.model.moves import successors
from poimen.testing.model.state import first_state

if TYPE_CHECKING:
    from poimen.testing.model.state import Move, Setup, State

    Step: TypeAlias = tuple[Move, State]
    Ways: TypeAlias = dict[State, tuple[State, Move] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """What was found in the states of one setup.

    Arguments:
        setup: what was explored.
        ways: by state, the state before it and the move between; None for the first.
        broken: the sentence that says which promise was broken first; empty when none was.
        counterexample: a shortest way to that: the moves, each with the state after it.
        whole: every state of the setup was looked at; False: the limit was reached, or something was broken.
        seconds: of wall time.
    """

    setup: Setup
    ways: Ways
    broken: str
    counterexample: tuple[Step, ...]
    whole: bool
    seconds: float

    @property
    def states(self) -> int:
        """How many different states were looked at."""
        return len(self.ways)

    def way_to(self, state: State) -> list[Step]:
        """A shortest way to a state: the moves, each with the state after it."""
        return _way(self.ways, state)

    def told(self) -> str:
        """The counterexample for people: who did what at which tick, a line each, and what it broke."""
        lines = [f"{self.setup.effect_class}, control {self.setup.control or 'none'}:"]
        for move, after in self.counterexample:
            who = f"worker {move.who}" if move.who else "(outside)"
            lines.append(f"  tick {after.now}  {who:<10} {move.what} {' '.join(map(str, move.words))}".rstrip())
        return "\n".join([*lines, f"  BROKEN: {self.broken}" if self.broken else "  nothing is broken"])


def explore(setup: Setup, *, limit: int = 1_000_000) -> Exploration:
    """Look at the states of a setup, the nearest first, until something is broken.

    Arguments:
        setup: what is explored.
        limit: how many states at most.

    Source: design proof.md, P10.
    """
    begun = clock.monotonic()
    first = first_state(setup)
    ways: Ways = {first: None}
    ahead = deque([first])
    broken = ""
    counterexample: tuple[Step, ...] = ()
    while ahead and not broken and len(ways) < limit:
        state = ahead.popleft()
        for move, after in successors(state, setup):
            broken = next(broken_by(state, move, after, setup), "")
            if not broken and after not in ways:
                ways[after] = (state, move)
                ahead.append(after)
                broken = next(broken_in(after, setup), "")
            if broken:
                counterexample = (*_way(ways, state), (move, after))
                break
    return Exploration(
        setup=setup,
        ways=ways,
        broken=broken,
        counterexample=counterexample,
        whole=not ahead and not broken,
        seconds=clock.monotonic() - begun,
    )


def _way(ways: Ways, state: State) -> list[Step]:
    steps: list[Step] = []
    while (before := ways[state]) is not None:
        steps.append((before[1], state))
        state = before[0]
    return steps[::-1]
