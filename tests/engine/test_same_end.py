"""A crash anywhere leads to the same end: random concurrent programs in a world that answers at moments of its own.

What a concurrent program comes to depends on the order in which answers arrive, so the world here is one in which
that order is fixed whatever a crash does: see `FarSide`. The recovered run begins at the moment of the cut, no time
passes between what follows from one event, and so it must see what the first run saw, to the last value, and end as
that did.

All programs are compared as a whole. Cuts are drawn from all ends of commits but those in the middle of two kinds of
effects, whose end is another one by design (protocol.md, sections 4 and 5); what must hold there too is asserted in
`test_replay_programs`, for every cut:

- one that the code calls off later on: after a crash nobody knows how far it had come, and nothing more is sent;
- a READ that later on has taken longer than its `timeout=`: the time counts anew from the send after the crash.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from poimen.engine import worker
from poimen.kernel.attempt import AttemptState
from poimen.kernel.intent import IntentCommitted, IntentDispatched, IntentPending, ReadDropped, RuleApplied
from tests.engine.playing import Play, difference
from tests.engine.programs import SLOT_S, FarSide
from tests.engine.simulated import EPOCH_S, events_of, few_collections, in_simulated_time
from tests.engine.test_replay_programs import REGRESSIONS, well_kept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from poimen.kernel.views import IntentView
    from tests.conftest import Scale, Seeds
    from tests.engine.playing import Played
    from tests.engine.programs import Node

CHUNKS = 10


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody else writes into these logs: they need not be looked at each 50 ms of simulated time."""
    monkeypatch.setattr(worker, "WATCH_S", 60.0)
    with few_collections():
        yield


# ---- the run, and the run after the crash ----------------------------------------------------------------------------


def lived(play: Play) -> Played:
    played: Played = in_simulated_time(play.seed, lambda: play.go(play.begin()), now_s=SLOT_S, turn_s=0.0)
    play.lived_through = len(play.cell.entered)
    well_kept(play, played)
    return played


def recovered(play: Play, first: Played, at: int) -> Played:
    """The run as a fresh worker ends it, which finds the first `at` records at the moment of the last of them."""
    now_s = round(first.records[at - 1].at / 1e6 - EPOCH_S, 5)
    cut = first.store.cut(play.run, at)
    again: Played = in_simulated_time((play.seed, "again"), lambda: play.go(cut), now_s=now_s, turn_s=0.0)
    return again


def in_flight(played: Played) -> Iterator[set[str]]:
    """After each record: the effects whose bodies were at work."""
    found: set[str] = set()
    for event in events_of(played.records):
        match event:
            case IntentDispatched():
                found.add(f"{event.step}/{event.attempt}/{event.ordinal}")
            case IntentCommitted() | ReadDropped() | RuleApplied():  # a ruling: its answer was lost
                found.discard(f"{event.step}/{event.attempt}/{event.ordinal}")
            case _:
                pass
        yield set(found)


def comparable(play: Play, first: Played) -> list[int]:
    """The cuts that lead to the same end by design: see above."""
    assert play.cell.far is not None
    off = play.cell.far.called_off
    other = {i.id.local for i in first.line.intents() if i.pending.request_id in off or i.timed_out}
    # called off before its body had begun: the far side has not heard of it
    ended = (attempt for step in first.line.steps.values() for attempt in step.attempts)
    other |= {i.id.local for a in ended if a.state is AttemptState.CANCELLED for i in a.intents.values()}
    ends = set(first.cuts())
    return [at for at, under_way in enumerate(in_flight(first), 1) if at in ends and not under_way & other]


# ---- what is compared ------------------------------------------------------------------------------------------------


def _outcome(intent: IntentView) -> tuple[Any, ...]:
    known = type(intent.outcome).__name__ if intent.outcome is not None else ""
    return (intent.pending.tool, intent.pending.args_digest, known, intent.value if intent.landed else None)


def outcomes(played: Played) -> dict[str, Any]:
    """How each step has ended, and what became of each effect of its last attempt."""
    return {
        step.key: (step.last.state, {n: _outcome(intent) for n, intent in sorted(step.last.intents.items())})
        for step in played.line.steps.values()
    }


def lines(play: Play, since: int, upto: int | None = None) -> Counter[str]:
    """How often the witness was asked for each effect."""
    return Counter(request_id.partition(".")[0] for _, _, request_id in play.cell.entered[since:upto])


def to_come(play: Play, first: Played, at: int) -> Counter[str]:
    """How often it must be asked for each effect after a crash: as often as was left, once more what was in flight."""
    left = lines(play, 0, play.lived_through)
    under_way = next(islice(in_flight(first), at - 1, None))
    names: dict[str, str] = {}
    for event in events_of(first.records[:at]):
        if isinstance(event, IntentPending):
            names[f"{event.step}/{event.attempt}/{event.ordinal}"] = event.request_id
        elif isinstance(event, IntentDispatched):
            left[names[f"{event.step}/{event.attempt}/{event.ordinal}"]] -= 1
    left.update(names[one] for one in under_way)
    return +left


def differs(play: Play, first: Played, again: Played, at: int, since: int) -> str:
    """In what the end after a crash is another one; empty when it is the same."""
    if (again.how, again.state, again.value) != (first.how, first.state, first.value):
        return f"cut at {at}: {again.how} {again.state} {again.details}\n{difference(first.seen, again.seen)}"
    if again.seen != first.seen:
        return f"cut at {at}: {difference(first.seen, again.seen)}"
    if outcomes(again) != outcomes(first):
        return f"cut at {at}: other outcomes"
    sent, must = lines(play, since), to_come(play, first, at)
    return "" if sent == must else f"cut at {at}: sent {sent - must} too often, {must - sent} too seldom"


def crashed(play: Play, first: Played, at: int) -> str:
    """Cut, recover, compare: in what the end differs."""
    since = len(play.cell.entered)
    again = recovered(play, first, at)
    well_kept(play, again, since=since)
    return differs(play, first, again, at, since)


# ---- it holds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_crash_anywhere_leads_to_the_same_end(chunk: int, scale: Scale, seeds: Seeds) -> None:
    drawn, possible = 0, 0
    for seed in seeds(scale(1_000, 20_000), start=chunk, step=CHUNKS):
        play = Play(seed, far=FarSide(seed))
        first = lived(play)
        cuts = comparable(play, first)
        drawn, possible = drawn + len(cuts), possible + len(first.cuts())
        assert crashed(play, first, play.cell.chance.choice(cuts)) == "", seed
    assert drawn > 0.75 * possible  # few are left out


CANCELLED_STEP: list[Node] = [
    ("seq", [("timeout", 0.0, [("gatherx", [("step", "unit", 1), ("call", "pay")])]), ("call", "put")]),
    ("finally", [("finally", [("call", "chat")])]),
]


@pytest.mark.parametrize("name", ["a cancelled step", "generators abandoned", "a decision asked for twice"])
def test_every_cut_leads_to_the_same_end(name: str) -> None:
    """A step that was cancelled makes its last effects on the way out: a recovery must not cancel it once more."""
    for seed in range(3):
        play = Play(seed, {**REGRESSIONS, "a cancelled step": CANCELLED_STEP}[name], fails="", far=FarSide(seed))
        first = lived(play)
        cuts = comparable(play, first)
        assert len(cuts) > 8
        for at in cuts:
            assert crashed(play, first, at) == ""


# ---- and would be seen not to hold -----------------------------------------------------------------------------------


def test_another_order_of_arrivals_after_the_cut_is_another_end() -> None:
    """The control: a world that answers at other moments after the crash is found out."""
    found = 0
    for seed in range(20):
        play = Play(seed, fails="", far=FarSide(seed))
        first = lived(play)
        play.cell.far = FarSide(seed + 1)
        at = first.cuts()[len(first.cuts()) // 4]
        found += bool(differs(play, first, recovered(play, first, at), at, play.lived_through))
    assert found > 10


def test_an_effect_that_is_made_again_is_seen() -> None:
    """The control: a log that has lost an outcome makes its effect once more, and ends as ever."""
    calls: list[Node] = [("gather", [("call", name) for name in ("put", "pay", "put", "chat")])]
    play = Play(3, calls, fails="", far=FarSide(3))
    first = lived(play)
    found = 0
    for at in first.cuts():
        if not first.records[at - 1].kind.startswith(("attempt.succeeded", "intent.committed")):
            continue
        since = len(play.cell.entered)
        lost = max(cut for cut in first.cuts() if cut < at)
        again = recovered(play, first, lost)
        assert (again.value, again.seen) == (first.value, first.seen)
        assert "too often" in differs(play, first, again, at, since)
        found += 1
    assert found == len(calls[0][1])
