"""What must hold in every state of the model and in every move: the promises, in words and as checks.

They look at what happened to the effect at the far side, not at whether a rule was kept. This module must never import
what it judges. It keeps the invariant that each promise has a sentence that says what was broken.

Source: design protocol.md, section 8; mission.md (promises).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from poimen.testing.model.state import Move, Setup, State


def broken_in(state: State, setup: Setup) -> Iterator[str]:
    """What a state breaks."""
    here = [flight for flight in state.flights if flight.attempt == state.attempt_no]
    if state.done > 1 and setup.effect_class not in {"READ", "IDEMPOTENT"}:
        yield f"the effect has happened {state.done} times, which {setup.effect_class} forbids"
    if here and not state.sends:
        yield "the log says that it was never sent, and it was called (window A)"
    if len(here) > len(state.sends):
        yield f"{len(here)} calls and {len(state.sends)} Dispatched records (I1)"
    read = setup.effect_class == "READ"  # it leaves nothing behind, whatever was read and when
    if state.closed == "not_landed" and not read and any(flight.way != "gone" for flight in here):
        yield "the log says that it did nothing, and a send of it has landed or can land yet"
    if state.closed == "landed" and all(flight.way != "landed" for flight in state.flights):
        yield "the log says that it landed, and it did not"
    if state.attempt in {"CANCELLED", "TIMED_OUT"} and state.open:
        yield f"a {state.attempt} attempt has an open Dispatched intent (I6)"
    if state.attempt == "INDETERMINATE" and not (state.open or state.by in {"person", "late"}):
        yield "an INDETERMINATE attempt has no unknown effect, and none that was resolved later (I7)"
    if state.attempt == "SUCCEEDED" and state.closed != "landed":
        yield "an attempt has SUCCEEDED whose effect is not known to have landed"


def broken_by(before: State, move: Move, after: State, setup: Setup) -> Iterator[str]:
    """What a move breaks."""
    same = before.attempt_no == after.attempt_no
    if same and before.attempt not in {"RUNNING", after.attempt}:
        yield f"an attempt left its terminal state {before.attempt} (I5)"
    if same and before.closed not in {"", after.closed} and setup.effect_class != "READ":
        yield f"an intent that was closed as {before.closed} was closed again as {after.closed}: two outcomes"
    if move.what == "dispatch":
        if before.closed:
            yield f"sent after it was closed as {before.closed}"
        if before.cancelled:
            yield "dispatched after a cancel was on record"
        if move.who != before.epoch and setup.control != "no_fence":
            yield "a driver appended under a stale epoch (I4)"
    if move.what == "call" and setup.effect_class in {"AT_MOST_ONCE", "PROBE"}:
        ways = {flight.way for flight in before.flights}
        if ways - {"gone"}:
            yield f"called again while an earlier call {'has landed' if 'landed' in ways else 'can still land'}"
