"""All of P10 at once: every class explored and walked, each walk put to the real kernel, the controls.

This module must never decide what is right. It keeps the invariant that a search which found nothing says how much
it has looked at.

Source: design proof.md, P10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from poimen import clock
from poimen.testing.model.explorer import explore
from poimen.testing.model.replaying import differences
from poimen.testing.model.state import Class, Setup, State
from poimen.testing.model.walking import walk

if TYPE_CHECKING:
    from poimen.testing.model.explorer import Exploration
    from poimen.testing.model.state import Control

CLASSES: Final[tuple[Class, ...]] = get_args(Class)
CONTROLS: Final[tuple[Control, ...]] = ("no_fence", "two_records")


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What a search has looked at and found.

    Arguments:
        states: different states looked at, over all classes.
        traces, steps: walks that were put to the real kernel, and their moves.
        kinds: the moves that occurred in them.
        broken: promises that the model broke, each as a readable trace.
        differing: what model and kernel said differently.
        seconds: of wall time.
    """

    states: int
    traces: int
    steps: int
    kinds: frozenset[str]
    broken: tuple[str, ...]
    differing: tuple[str, ...]
    seconds: float

    @property
    def whole(self) -> bool:
        """Nothing was broken, and model and kernel agree."""
        return not self.broken and not self.differing

    def told(self) -> str:
        """The figures in a line, and what was found below it."""
        agree = f"{len(self.differing)} differ" if self.differing else "all agree"
        line = (
            f"P10: {self.states} states, {len(self.broken)} promises broken; {self.traces} traces of {self.steps} moves"
            f" on the real kernel, {agree}; {self.seconds:.0f} s"
        )
        return "\n".join([line, *self.broken, *self.differing])


def search(*, limit: int, walks: int, seed: int = 0) -> Search:
    """Explore each class, nearest states first; walk deeper; put each walk to the real kernel.

    Arguments:
        limit: states of each class at most.
        walks: of each class.
        seed: of the first walk; the next ones count on from it.
    """
    begun = clock.monotonic()
    states = steps = traces = 0
    kinds, broken, differing = set[str](), list[str](), list[str]()
    for effect_class in CLASSES:
        setup = Setup(effect_class=effect_class)
        found = explore(setup, limit=limit)
        broken += [found.told()] if found.broken else []
        beyond = set[State]()
        for number in range(seed, seed + walks):
            trace, fault = walk(setup, number)
            where = f"{effect_class}, walk {number}"
            broken += [f"{where}: {fault}"] if fault else []
            differing += [f"{where}: {what}" for what in differences(setup, trace)]
            beyond.update(state for _, state in trace if state not in found.ways)
            kinds.update(move.what for move, _ in trace)
            traces, steps = traces + 1, steps + len(trace)
        states += found.states + len(beyond)
    return Search(
        states=states,
        traces=traces,
        steps=steps,
        kinds=frozenset(kinds),
        broken=tuple(broken),
        differing=tuple(differing),
        seconds=clock.monotonic() - begun,
    )


def sought(control: Control) -> Exploration:
    """Look for what a sabotaged protocol breaks, on the effect that forgives least.

    Arguments:
        control: what is broken on purpose.
    """
    return explore(Setup(effect_class="AT_MOST_ONCE", control=control))
