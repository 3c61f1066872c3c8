"""The ladder of the model: what section 4 says about a Dispatched without an outcome, written from its words.

This module must never import the kernel's table, of which it is the second opinion. It keeps the invariant that a
send again is asked for only by a rule that the section names.

Source: design protocol.md, section 4 and 9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from poimen.testing.model.state import Setup, State

Do: TypeAlias = Literal["send", "ask", "wait", "land", "give_up"]


class Ruling(NamedTuple):
    """What to do next, and the class to which the intent is demoted before that (empty: none)."""

    do: Do
    demote: str = ""


def ruled(state: State, setup: Setup) -> Ruling:
    """What to do about the open intent of a state."""
    if any(answer == "landed" for _, answer in state.readings):
        return Ruling("land")
    effect_class = state.demoted or setup.effect_class
    if effect_class == "AT_MOST_ONCE":
        return Ruling("give_up")
    if effect_class in {"READ", "IDEMPOTENT"}:
        return Ruling(_again(state, setup))
    if effect_class == "PROBE":
        return Ruling(_probed(state, setup))
    used_up = len(state.sends) >= setup.max_sends
    if effect_class == "KEYED":
        if key_dead(state, setup):
            return Ruling("give_up", "AT_MOST_ONCE")
        return Ruling(_again(state, setup))
    if used_up or key_dead(state, setup):
        return Ruling(_probed(state, setup), "PROBE")
    return Ruling("send")


def key_dead(state: State, setup: Setup) -> bool:
    """The far side may have forgotten the key before a send begun now has ended, its grace included."""
    return state.keyed_at >= 0 and state.now >= state.keyed_at + setup.ttl - setup.timeout - setup.grace


def _again(state: State, setup: Setup) -> Do:
    return "send" if len(state.sends) < setup.max_sends else "give_up"


def _probed(state: State, setup: Setup) -> Do:
    """Two complete reads apart, after the lag; an unclear answer is asked again for a while."""
    settled = settled_at(state, setup)
    late = [reading for reading in state.readings if reading[0] >= settled]
    if not late:
        # Before the lag is over only `landed` counts; asking early is allowed, and no absence is lost by it.
        early = any(at >= max(state.sends[-1].at, state.taken) for at, _ in state.readings)
        return "wait" if early and state.now < settled else "ask"
    at, answer = late[-1]
    if answer == "absent":
        first = at
        for earlier, said in reversed(late[:-1]):
            if said != "absent":
                break
            first = earlier
        if at > first:
            return _again(state, setup)
        return "ask" if state.now > at else "wait"
    if at >= max(state.asked, settled) + setup.probing:
        return "give_up"
    return "ask" if state.now > at else "wait"


def settled_at(state: State, setup: Setup) -> int:
    """From when on an absence counts."""
    return max(state.sends[-1].at + setup.timeout + setup.grace, state.taken) + setup.lag
