"""Seeded walks through the model: deep where breadth first is wide, and the traces that are put to the real kernel.

This module must never choose by what a state means. It keeps the invariant that one seed is one walk.

Source: design proof.md, P10.
"""

from __future__ import annotations

import random  # noqa: TID251 (seeded: one seed is one walk)
from typing import TYPE_CHECKING

from poimen.testing.model.invariants import broken_by, broken_in
from poimen.testing.model.moves import successors
from poimen.testing.model.state import first_state

if TYPE_CHECKING:
    from poimen.testing.model.state import Move, Setup, State

_RARE = {"crash": 0.15, "cancel": 0.1, "stop": 0.1, "renew": 0.3, "tick": 0.6}
"""What would end most walks early, or fill them, is taken less often."""


def walk(setup: Setup, seed: int, *, longest: int = 60) -> tuple[list[tuple[Move, State]], str]:
    """One walk from the first state until nothing can happen any more.

    Arguments:
        setup: what is walked through.
        seed: decides each choice.
        longest: moves at most.

    Returns:
        The moves, each with the state after it; and the sentence that says what was broken, empty for nothing.
    """
    chance = random.Random(f"{setup} {seed}")  # noqa: S311 (a repeatable choice)
    state, steps = first_state(setup), list["tuple[Move, State]"]()
    while len(steps) < longest and (ways := list(successors(state, setup))):
        weights = [_RARE.get(move.what, 1.0) for move, _ in ways]
        move, after = chance.choices(ways, weights)[0]
        steps.append((move, after))
        broken = next(broken_by(state, move, after, setup), "") or next(broken_in(after, setup), "")
        if broken:
            return steps, broken
        state = after
    return steps, ""
