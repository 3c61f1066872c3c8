"""A replay agrees with the live run: random concurrent programs, cut anywhere, recovered, cut again.

Whole traces are compared: every call in its order with its arguments, every value and error, every branch taken,
every cancellation. A log is cut at the end of a commit, as a crash leaves it; what a tool was asked for is kept by a
witness outside the log.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from poimen.engine.eventloop import loop
from poimen.kernel import attempt as a
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptIndeterminate,
    AttemptStarted,
    AttemptSucceeded,
    AttemptTimedOut,
    StepComputed,
)
from poimen.kernel.intent import IntentCommitted, Returned
from poimen.kernel.views import newest_branch
from tests.engine.playing import Play, Played, difference
from tests.engine.simulated import events_of, few_collections, folded, in_simulated_time

if TYPE_CHECKING:
    from tests.conftest import Scale, Seeds
    from tests.engine.programs import Node
    from tests.engine.simulated import CutStore

CHUNKS = 10


# ---- what must hold --------------------------------------------------------------------------------------------------


def causes(played: Played) -> dict[tuple[str, int], list[a.Cause]]:
    """What the records say has happened to each attempt, in their order."""
    found: dict[tuple[str, int], list[a.Cause]] = {}
    for event in events_of(played.records):
        match event:
            case AttemptStarted():
                found.setdefault((event.step, event.attempt), []).append(a.Admitted())
            case StepComputed():
                found.setdefault((event.step, 1), []).extend([a.Admitted(), a.Completed()])
            case AttemptSucceeded():
                found[event.step, event.attempt].append(a.Completed())
            case AttemptFailed():
                found[event.step, event.attempt].append(a.Errored())
            case AttemptTimedOut():
                found[event.step, event.attempt].append(a.StepDeadlinePassed(intent_dispatched=False))
            case AttemptCancelled():
                cause = a.CancelRequested(intent_dispatched=False)
                found.setdefault((event.step, event.attempt), []).append(cause)
            case AttemptIndeterminate():
                found[event.step, event.attempt].append(a.LeftUnresolved())
            case _:
                pass
    return found


def well_kept(play: Play, played: Played, *, since: int = 0) -> None:
    """The records are legal moves, every attempt has ended, and one request id is one tool and one set of arguments.

    `since`: how often tools had been asked before this log went its own way.
    """
    assert played.how == "ended", f"{played.how}: {played.details}"
    for (step, number), happened in causes(played).items():
        state = a.AttemptState.PENDING
        for cause in happened:
            state = a.transition(state, cause)
        assert state in a.TERMINAL, (step, number, state)
    asked: dict[str, tuple[str, int]] = {}
    for name, arg, request_id in play.cell.entered[since:]:
        assert asked.setdefault(request_id, (name, arg)) == (name, arg), request_id


def answered(played: Played, at: int) -> set[str]:
    """Request ids of effects that are on record, in the first `at` records, as having returned; READs excepted."""
    line = newest_branch(folded(played.records[0].run, played.records[:at]))
    events = events_of(played.records[:at])
    told = [e for e in events if isinstance(e, IntentCommitted) and isinstance(e.outcome, Returned)]
    pending = [line.steps[e.step].attempts[e.attempt - 1].intents[e.ordinal].pending for e in told]
    return {p.request_id for p in pending if p.terms.effect_class is not EffectClass.READ}


async def replayed(play: Play, played: Played) -> None:
    """The finished run, once more from its record: the code sees the same and no tool is asked for anything."""
    before = len(play.cell.entered)
    again = await play.go(played.store.cut(play.run, played.end))
    assert (again.how, again.state) == ("ended", played.state), again.details
    if played.state == "CANCELLED":  # its end came with results that its code did not live to see
        seen = again.seen[: min(again.replayed, len(played.seen))]
        assert seen == played.seen[: len(seen)], difference(played.seen, seen)
        return
    assert again.seen == played.seen, difference(played.seen, again.seen)
    assert again.replayed == len(again.seen)
    assert play.cell.entered[before:] == []


async def crashed(play: Play, played: Played, after: int = 1) -> tuple[Played, int]:
    """The run as it goes on from a crash at the end of some commit."""
    at = play.cell.chance.choice(played.cuts(after))
    before, known = len(play.cell.entered), answered(played, at)
    again = await play.go(played.store.cut(play.run, at))
    well_kept(play, again, since=before)
    both = again.seen[: again.replayed]
    if played.state == "CANCELLED":  # as in `replayed`
        both = both[: len(played.seen)]
    assert both == played.seen[: len(both)], f"cut at {at}: {difference(played.seen, both)}"
    sent = {request_id for _, _, request_id in play.cell.entered[before:]}
    assert not sent & known, f"cut at {at}: an effect whose outcome is on record was made again"
    return again, at


async def lived(play: Play) -> Played:
    played = await play.go(play.begin())
    well_kept(play, played)
    return played


# ---- random programs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_crash_anywhere_changes_nothing_that_was_seen(chunk: int, scale: Scale, seeds: Seeds) -> None:
    async def one(seed: int) -> None:
        play = Play(seed)
        first = await lived(play)
        await replayed(play, first)
        again, _ = await crashed(play, first)
        await replayed(play, again)

    with few_collections():  # the tests below do without: where garbage is collected must not matter
        for seed in seeds(scale(1_000, 20_000), start=chunk, step=CHUNKS):
            in_simulated_time(seed, partial(one, seed))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_three_crashes_in_a_row(chunk: int, scale: Scale, seeds: Seeds) -> None:
    async def one(seed: int) -> None:
        play, at = Play(seed), 1
        played = await lived(play)
        for _ in range(3):
            played, at = await crashed(play, played, at)
        await replayed(play, played)

    for n in seeds(scale(100, 3_000), start=chunk, step=CHUNKS):
        in_simulated_time(10_000 + n, partial(one, 10_000 + n))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_outsiders_change_nothing_that_was_seen(chunk: int, scale: Scale, seeds: Seeds) -> None:
    meddled: list[str] = []

    async def one(seed: int) -> None:
        play = Play(seed)
        play.meddling = 0.04
        first = await lived(play)
        again, _ = await crashed(play, first)
        play.meddling = 0.0
        await replayed(play, again)
        meddled.extend(play.meddled)

    for n in seeds(scale(100, 3_000), start=chunk, step=CHUNKS):
        in_simulated_time(20_000 + n, partial(one, 20_000 + n))
    assert len(set(meddled)) > 1


# ---- the same end, wherever it was cut -------------------------------------------------------------------------------

SEQUENTIAL: dict[str, list[Node]] = {
    "tools": [("seq", [("call", name) for name in ("look", "put", "pay", "calc", "chat", "pay", "put")])],
    "decisions": [("seq", [("decide", "d1", 0), ("call", "pay"), ("decide", "d2", 1), ("call", "put")])],
    "steps": [
        ("seq", [("step", "unit", 1), ("call", "put"), ("step", "stubborn", 2)]),
        ("seq", [("call", "look"), ("call", "pay"), ("call", "calc"), ("call", "put")]),
        ("seq", [("call", "put"), ("try", [("call", "pay")]), ("call", "look")]),
    ],
    "waits": [("seq", [("sleep", 0.001), ("call", "pay"), ("timeout", 0.002, [("sleep", 1.0)]), ("call", "put")])],
}


@pytest.mark.parametrize("name", SEQUENTIAL)
@pytest.mark.parametrize("fails", [False, True])
def test_one_after_another_every_cut_has_the_same_end(name: str, fails: bool) -> None:
    async def one() -> None:
        play = Play(7, SEQUENTIAL[name], fails="always" if fails else "")
        first = await lived(play)
        assert len(first.cuts()) > 8
        for at in first.cuts():
            again = await play.go(first.store.cut(play.run, at))
            assert (again.how, again.state, again.value) == ("ended", first.state, first.value), (at, again.details)
            assert again.seen == first.seen, f"cut at {at}: {difference(first.seen, again.seen)}"

    in_simulated_time(name, one)


# ---- programs that once went wrong -----------------------------------------------------------------------------------


def _calls(*names: str) -> list[Node]:
    return [("call", name) for name in names]


REGRESSIONS: dict[str, list[Node]] = {
    # A decision is recorded at once, calls made before it wait until the record is used up: the calls came first.
    "a decision beside calls that are held": [
        ("gather", [("step", "unit", 1), ("call", "pay"), ("decide", "d1", 2), ("call", "put")]),
        ("seq", _calls("put")),
    ],
    # The second time a decision is asked for, and the second settlement, are in no record.
    "a decision asked for twice": [
        ("seq", [("decide", "d1", 1), ("call", "pay"), ("decide", "d2", 1), ("call", "put")])
    ],
    "a decision settled": [("seq", [("decide", "d1", 0), ("call", "pay"), ("decide", "d2", 0), ("call", "put")])],
    # A step that is cancelled before its first line has no code that could end it.
    "a step cancelled before it began": [
        ("wait", 1, [("sleep0", 1), ("step", "unit", 1), ("step", "stubborn", 1), ("call", "pay")]),
        ("seq", _calls("put", "pay")),
    ],
    # Sets of asyncio tasks are ordered by number: those of steps, which a replay does not run again, must not count.
    "sets beside the tasks of steps": [
        ("gather", [("step", "unit", 1), ("seq", [("wait", 1, _calls("look", "chat", "put", "pay"))] * 3)]),
        ("gather", [("wait", 1, _calls("look", "look", "chat")), ("wait", 2, _calls("chat", "look", "look"))]),
    ],
    # A body that ends while its effects are under way waits for them, also when it is cancelled once more.
    "a body that leaves effects behind": [
        ("wait", 1, [("call", "calc"), ("step", "unit", 1), ("step", "unit", 2)]),
        ("seq", [("stray", _calls("put")), ("stray", _calls("look")), ("sleep0", 1)]),
        ("gather", [*_calls("put", "pay", "look"), ("stray", _calls("put"))]),
    ],
    # A timer that led an attempt to its effects leads the next attempt to them too.
    "a step tried again after a time-out": [
        ("seq", [("step", "stubborn", 1), ("step", "stubborn", 2), ("call", "look")]),
        ("seq", [("timeout", 0.001, [("seq", _calls("look", "chat", "look"))]), *_calls("put", "pay", "chat", "put")]),
        ("seq", [("wait_for", 0.0015, [("call", "chat")]), ("wait", 1, _calls("look", "chat")), *_calls("pay", "put")]),
    ],
    # Generators that are left before their end are closed at a place of the order.
    "generators abandoned": [
        ("gather", [("agen", _calls(*names)) for names in (("look", "put", "pay"), ("chat", "look"), ("put", "put"))])
    ],
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_programs_that_once_went_wrong(name: str, scale: Scale, seeds: Seeds) -> None:
    async def one(seed: int) -> None:
        play = Play(seed, REGRESSIONS[name])
        first = await lived(play)
        await replayed(play, first)
        again, at = await crashed(play, first)
        again, _ = await crashed(play, again, at)
        await replayed(play, again)

    for seed in seeds(scale(15, 500)):
        in_simulated_time((name, seed), partial(one, seed))


@pytest.mark.parametrize("turns", [1, 3, 10])
def test_turns_of_the_main_loop_change_nothing(
    turns: int, monkeypatch: pytest.MonkeyPatch, scale: Scale, seeds: Seeds
) -> None:
    """A run that has much to do lets the main loop have a turn in between, wherever that falls."""

    async def one(seed: int) -> None:
        play = Play(seed)
        with monkeypatch.context() as patched:
            patched.setattr(loop, "SPIN", turns)
            first = await lived(play)
        await replayed(play, first)
        with monkeypatch.context() as patched:
            patched.setattr(loop, "SPIN", turns)
            await replayed(play, first)

    for seed in seeds(scale(20, 500)):
        in_simulated_time(seed, partial(one, seed))


def test_the_witness_sees_what_is_made_again() -> None:
    """The control: a log that lost an outcome makes the effect again, and the check above says so."""

    async def one() -> None:
        play = Play(3, [("seq", _calls("put", "pay", "put"))], fails="")
        first = await lived(play)
        at = next(at for at, r in enumerate(first.records, 1) if r.kind.startswith("intent.committed"))
        lost = first.store.cut(play.run, at - 1)
        before = len(play.cell.entered)
        again = await play.go(lost)
        sent = {request_id for _, _, request_id in play.cell.entered[before:]}
        assert again.how == "ended"
        assert sent & answered(first, at)

    in_simulated_time(0, one)


def test_the_trace_sees_another_order() -> None:
    """The control: results recorded in another order are another trace."""

    async def one() -> tuple[Any, ...]:
        play = Play(11, [("gather", _calls("look", "put", "chat", "pay"))], fails="")
        return tuple((await lived(play)).seen)

    assert len({in_simulated_time(seed, one) for seed in range(3)}) == 1  # one seed of the program, one trace
    store: list[CutStore] = []

    async def other(seed: int) -> tuple[Any, ...]:
        play = Play(seed, [("gather", _calls("look", "put", "chat", "pay"))], fails="")
        played = await lived(play)
        store.append(played.store)
        return tuple(what[0] for what in played.seen), tuple(what[-1] for what in played.seen)

    assert len({in_simulated_time(seed, partial(other, seed)) for seed in range(12)}) > 3
