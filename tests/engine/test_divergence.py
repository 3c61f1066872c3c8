"""Code that differs from its record is always found, and nothing is executed.

A call is removed, given other arguments, swapped with its neighbour, or inserted, at every place of fifty programs
that make calls at once, or one after another and then at once; the same inside a step that a crash left half done.
Of each kind, 500 changes are among calls that are made at once. That nothing is executed is said by the witness that
the tools leave outside the log, and by the log.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from poimen.kernel.attempt import AttemptState
from poimen.kernel.events import AttemptStarted, BranchWaiting, StepComputed
from poimen.kernel.intent import IntentCommitted, IntentDispatched, IntentPending
from poimen.kernel.views import newest_branch
from tests.engine.playing import Play
from tests.engine.simulated import events_of, folded, in_simulated_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Scale, Seeds
    from tests.engine.playing import Played
    from tests.engine.programs import Node

    Change = Callable[[list[Any], int], list[Any]]

LENGTH = 8
PLACES = range(LENGTH - 1)


def _removed(calls: list[Any], at: int) -> list[Any]:
    return calls[:at] + calls[at + 1 :]


def _other_arguments(calls: list[Any], at: int) -> list[Any]:
    return [*calls[:at], (calls[at][0], calls[at][1] + 50), *calls[at + 1 :]]


def _swapped(calls: list[Any], at: int) -> list[Any]:
    return [*calls[:at], calls[at + 1], calls[at], *calls[at + 2 :]]


def _inserted(calls: list[Any], at: int) -> list[Any]:
    return [*calls[:at], ("pay", 99), *calls[at:]]


def _another_tool(calls: list[Any], at: int) -> list[Any]:
    other = "pay" if calls[at][0] != "pay" else "put"
    return [*calls[:at], (other, calls[at][1]), *calls[at + 1 :]]


CHANGES: dict[str, Change] = {
    "removed": _removed,
    "other arguments": _other_arguments,
    "swapped": _swapped,
    "inserted": _inserted,
    "another tool": _another_tool,
}


def _change(kind: str, at: int) -> Callable[[list[Any]], list[Any]]:
    return lambda calls: CHANGES[kind](calls, at)


def _calls(seed: int, *, steps: bool) -> list[tuple[str, int]]:
    chance = random.Random(seed)
    names = ["look", "put", "pay", "chat", *(["calc", "stubborn", "decide"] if steps else [])]
    return [(chance.choice(names), i + 1) for i in range(LENGTH)]


def _alone(seed: int) -> int:
    """How many calls come one after another: none of every second program, which makes all of them at once."""
    return 4 * (seed % 2)


def _nodes(calls: list[Any], *, inside: bool, alone: int = 4) -> list[Node]:
    """The calls as a workflow, or as the body of its one step; nodes 1 to 8 are the bodies of `stubborn`."""
    bodies: list[Node] = [("seq", [("call", "look"), ("call", "put")])] * LENGTH
    if inside:
        return [("step", "unit", 1), ("line", calls, alone)]
    return [("line", calls, alone), *bodies]


def _executed(events: list[Any]) -> list[Any]:
    kinds = (AttemptStarted, StepComputed, IntentPending, IntentDispatched, IntentCommitted)
    return [event for event in events if isinstance(event, kinds)]


async def _found(
    play: Play, played: Played, at: int, change: Callable[[list[Any]], list[Any]], *, and_back: bool = True
) -> str:
    """Run other code over the first `at` records: what the branch waits for; nothing may have been executed.

    With `and_back` the code of before goes on where it stood: nothing was lost.
    """
    before = len(play.cell.entered)
    play.cell.patch = change
    other = await play.go(played.store.cut(play.run, at))
    assert other.how == "waiting", f"{other.how} {other.state}"
    assert play.cell.entered[before:] == []
    new = events_of(other.records[at:])
    assert _executed(new) == []
    waiting = new[-1]
    assert isinstance(waiting, BranchWaiting)
    assert [reason.reason for reason in waiting.reasons] == ["code"]
    detail = waiting.reasons[0].detail
    assert "recorded: " in detail
    assert "the code asked for: " in detail
    play.cell.patch = list
    if and_back:
        back = await play.go(other.store)
        assert (back.how, back.state, back.value) == ("ended", played.state, played.value), back.details
    return detail


@pytest.mark.parametrize("kind", CHANGES)
def test_a_changed_workflow_waits_and_executes_nothing(kind: str, scale: Scale, seeds: Seeds) -> None:
    found, at_once = 0, 0

    async def one(seed: int) -> None:
        nonlocal found, at_once
        play = Play(seed, _nodes(_calls(seed, steps=True), inside=False, alone=_alone(seed)))
        played = await play.go(play.begin())
        for place in PLACES:
            await _found(play, played, played.end, _change(kind, place), and_back=place == seed % LENGTH)
            found += 1
            at_once += place >= _alone(seed)

    programs = scale(50, 500)
    for seed in seeds(programs):
        in_simulated_time(seed, partial(one, seed))
    assert found == programs * len(PLACES)
    assert at_once >= 250


@pytest.mark.parametrize("kind", CHANGES)
def test_a_changed_step_waits_and_executes_nothing(kind: str, scale: Scale, seeds: Seeds) -> None:
    found, at_once = 0, 0

    async def one(seed: int) -> None:
        nonlocal found, at_once
        play = Play(seed, _nodes(_calls(seed, steps=False), inside=True, alone=_alone(seed)), fails="always")
        played = await play.go(play.begin())
        at = next(i for i, r in enumerate(played.records) if r.kind.startswith("attempt.succeeded"))
        for place in PLACES:
            await _found(play, played, at, _change(kind, place), and_back=place == seed % LENGTH)
            found += 1
            at_once += place >= _alone(seed)

    programs = scale(50, 500)
    for seed in seeds(programs):
        in_simulated_time(seed, partial(one, seed))
    assert found == programs * len(PLACES)
    assert at_once >= 250


@pytest.mark.parametrize("place", [0, 2, 3, 5])
def test_keys_are_claimed_in_their_order(place: int) -> None:
    async def one() -> None:
        play = Play(1, _nodes([("keyed", n) for n in range(LENGTH)], inside=False), fails="")
        played = await play.go(play.begin())
        detail = await _found(play, played, played.end, _change("swapped", place))
        assert f" as k{place}, " in detail.partition(";")[0]

    in_simulated_time(0, one)


def test_what_was_held_beside_the_difference_stays_held() -> None:
    """The last recorded effect of a step has other arguments; a call beside the step waits for the record's end."""
    held = 0

    async def one(seed: int) -> None:
        nonlocal held
        beside: Node = ("seq", [("call", name) for name in ("look", "put", "pay", "put")])
        nodes: list[Node] = [("gather", [("step", "unit", 1), beside]), ("line", _calls(seed, steps=False))]
        play = Play(seed, nodes, fails="")
        played = await play.go(play.begin())
        for at in played.cuts(2):
            line = newest_branch(folded(play.run, played.records[:at]))
            step = line.steps.get("unit#0")
            if step is None or step.last.state is not AttemptState.RUNNING or not step.last.intents:
                continue
            if any(intent.open for intent in line.intents()):
                continue  # recovery sends it again, whatever the code has become
            await _found(play, played, at, _change("other arguments", max(step.last.intents)), and_back=False)
            held += 1

    for seed in range(12):
        in_simulated_time(seed, partial(one, seed))
    assert held > 10


def test_the_last_call_removed_is_found_too() -> None:
    async def one(inside: bool) -> None:
        play = Play(1, _nodes(_calls(1, steps=False), inside=inside), fails="")
        played = await play.go(play.begin())
        kind = "attempt.succeeded" if inside else "branch.verifying"
        at = next(i for i, r in enumerate(played.records) if r.kind.startswith(kind)) if inside else played.end
        detail = await _found(play, played, at, _change("removed", LENGTH - 1))
        name = _calls(1, steps=False)[-1][0]
        assert name in detail
        assert "the code asked for: " in detail

    in_simulated_time(0, partial(one, True))
    in_simulated_time(0, partial(one, False))


def test_an_effect_that_was_only_claimed_is_missed() -> None:
    """Its Pending is the last record: nothing was sent, but the code must come to it."""

    async def one() -> None:
        play = Play(5, _nodes([("put", 1), ("put", 2), ("put", 3), ("look", 4)], inside=True), fails="")
        played = await play.go(play.begin())
        last = [i for i, r in enumerate(played.records, 1) if r.kind.startswith("intent.pending")][-1]
        detail = await _found(play, played, last, _change("removed", 3))
        assert "look as effect 3 of unit#0" in detail

    in_simulated_time(0, one)


def test_code_that_only_goes_further_is_no_difference() -> None:
    """The control: what comes after the record is live, and executed."""

    async def one() -> None:
        play = Play(2, _nodes([("put", 1), ("look", 2), ("put", 3), ("look", 4)], inside=False), fails="")
        played = await play.go(play.begin())
        play.cell.patch = lambda calls: [*calls, ("pay", 9)]
        before = len(play.cell.entered)
        other = await play.go(played.store.cut(play.run, played.end))
        assert other.how == "ended"
        assert [name for name, _, _ in play.cell.entered[before:]] == ["pay"]

    in_simulated_time(0, one)


def test_both_sides_are_shown() -> None:
    async def one() -> str:
        play = Play(3, _nodes([("put", 1), ("look", 2), ("put", 3), ("look", 4)], inside=False), fails="")
        played = await play.go(play.begin())
        return await _found(play, played, played.end, lambda calls: [calls[0], ("pay", 7), *calls[2:]])

    detail = in_simulated_time(0, one)
    recorded, _, asked = detail.partition("the code asked for: ")
    assert "look" in recorded
    assert "look#0" in recorded
    assert "pay(…) as pay#0, arguments " in asked


def test_what_recovery_sends_is_on_record_before_the_branch_waits() -> None:
    """A crash left an effect in flight and the code has changed meanwhile: its outcome is known when all rests."""

    async def one() -> None:
        play = Play(4, _nodes([("put", 1), ("put", 2), ("put", 3), ("put", 4)], inside=False), fails="")
        played = await play.go(play.begin())
        dispatched = [i for i, r in enumerate(played.records, 1) if r.kind.startswith("intent.dispatched")]
        play.cell.patch = _change("removed", 0)
        other = await play.go(played.store.cut(play.run, dispatched[-1]))
        assert other.how == "waiting"
        assert "code" in other.details
        line = newest_branch(folded(play.run, other.records))
        assert not line.unresolved()
        assert line.steps["put#3"].last.state is AttemptState.SUCCEEDED
        play.cell.patch = list
        back = await play.go(other.store)
        assert (back.how, back.value) == ("ended", played.value)

    in_simulated_time(0, one)


def test_a_step_that_changes_between_its_attempts_lets_the_others_finish() -> None:
    """Live: the attempt that takes over a sent effect asks for another one. What else is under way ends first."""

    async def one() -> None:
        nodes: list[Node] = [
            ("gather", [("step", "stubborn", 1), ("seq", [("call", name) for name in ("pay", "put", "pay", "look")])]),
            ("line", [("put", 5)]),
        ]
        play = Play(1, nodes, fails="")
        asked = 0

        def change(calls: list[Any]) -> list[Any]:
            nonlocal asked
            asked += 1
            return [("put", 5)] if asked == 1 else [("put", 6)]

        play.cell.patch = change
        played = await play.go(play.begin())
        while asked == 1:  # `stubborn` gives up its first attempt for some of its values
            play.cell.seed, asked = play.cell.seed + 1, 0
            played = await play.go(play.begin())
        assert played.how == "waiting"
        assert "recorded: put" in played.details
        line = newest_branch(folded(play.run, played.records))
        assert [line.steps[key].last.state.name for key in ("pay#0", "put#0", "pay#1", "look#0")] == ["SUCCEEDED"] * 4
        assert not line.unresolved()

    in_simulated_time(0, one)
