"""A send whose record has waited for a locked log: what was judged before the wait is judged again after it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import clock, effects
from poimen.declare.registry import Registry
from poimen.declare.specs import spec_of
from poimen.gate.ladder import sendable
from poimen.kernel.errors import StorageFailed
from poimen.kernel.intent import IntentDemoted, IntentDispatched, NotSentOutcome, RuleApplied, SendAnswered
from poimen.log import codec
from tests.engine.simulated import CutStore, Driven, admit, drive, events_of, simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from poimen.gate.guard import Guard
    from poimen.log.api import Batch
    from tests.engine.simulated import SimulatedLoop

calls: list[float] = []
"""When the far side was called, in seconds of simulated time."""


class Locked(CutStore):
    """Locked when a certain send is to be recorded, for a while."""

    def __init__(self, loop: SimulatedLoop, send: int, held_s: float) -> None:
        super().__init__()
        self._loop, self._send, self._held_s = loop, send, held_s

    def commit(self, batches: Sequence[Batch]) -> Any:
        sends = [r for b in batches for r in b.records if r.kind == codec.KINDS[IntentDispatched]]
        if self._held_s and any(f'"send":{self._send}' in r.body.decode() for r in sends):
            self._loop.now += self._held_s
            self._held_s = 0
            raise StorageFailed("p.db is locked", locked=True)
        return super().commit(batches)


def answer() -> str:
    calls.append(clock.wall_us() / clock.US)
    if len(calls) == 1:
        raise RuntimeError("the answer was lost")
    return "done"


@poimen.tool(effect=effects.KEYED(ttl=timedelta(minutes=10)), timeout=60)
async def keyed() -> str:
    return answer()


@poimen.tool(effect=effects.KEYED(ttl=timedelta(seconds=70)), timeout=60, grace=5)
async def soon_dead() -> str:
    return answer()


@poimen.tool(effect=effects.KEYED(ttl=timedelta(minutes=10)), timeout=60)
def plain() -> str:
    return answer()


async def looked() -> effects.Landed[str] | effects.Absent | effects.Unknown:
    return effects.Absent()


@poimen.tool(effect=effects.PROBE(looked, lag=timedelta(seconds=10)), timeout=60, grace=5)
async def probed() -> str:
    return answer()


@poimen.workflow
async def by_key() -> str:
    return await keyed()


@poimen.workflow
async def by_short_key() -> str:
    return await soon_dead()


@poimen.workflow
async def by_plain_key() -> str:
    return await plain.aio()


@poimen.workflow
async def by_probe() -> str:
    return await probed()


def driven(
    workflow: Any, tool: Any, *, send: int, held_s: float, prepare: Callable[[SimulatedLoop], None] = lambda _loop: None
) -> Driven:
    calls.clear()
    with simulated(0) as loop:
        prepare(loop)
        store = Locked(loop, send, held_s)
        admit(store, workflow, "r")
        registry = Registry()
        for code in (workflow, tool):
            spec = spec_of(code)
            assert spec is not None
            registry.add(spec)
        return loop.run_until_complete(drive(store, "r", registry, limit_s=1e5))


def test_a_key_that_expires_while_the_record_waits_is_not_sent() -> None:
    done = driven(by_key, keyed, send=2, held_s=700)
    assert len(calls) == 1
    [answered] = [event for event in events_of(done.records) if isinstance(event, SendAnswered)]
    assert isinstance(answered.outcome, NotSentOutcome)
    assert "key-expired before the call" in answered.outcome.error.message
    [demoted] = [event for event in events_of(done.records) if isinstance(event, IntentDemoted)]
    assert demoted.rule == "key-expired"
    assert done.how == "waiting"


def test_a_key_is_as_old_as_the_record_of_its_first_send_when_that_is_written() -> None:
    assert driven(by_key, keyed, send=1, held_s=700).how == "ended"
    assert len(calls) == 2
    assert driven(by_key, keyed, send=2, held_s=100).how == "ended"
    assert len(calls) == 2


def test_absence_counts_from_the_call_and_not_from_a_record_that_has_waited() -> None:
    assert driven(by_probe, probed, send=1, held_s=100).how == "ended"
    first, second = calls
    assert second - first >= 75


def test_a_key_that_expires_in_a_short_wait_is_not_sent() -> None:
    """It has five seconds, and the ruling took one of them: each wait counts, however short."""
    done = driven(by_short_key, soon_dead, send=2, held_s=4.5)
    assert len(calls) == 1
    assert done.how == "waiting"
    assert driven(by_short_key, soon_dead, send=2, held_s=2).how == "ended"
    assert len(calls) == 2


def stands_still(monkeypatch: pytest.MonkeyPatch, *, send: int, for_s: float) -> Callable[[SimulatedLoop], None]:
    """The process stands still when everything was looked at and the body has not begun: a queue, a stopped process."""
    left = [for_s]

    def prepare(loop: SimulatedLoop) -> None:
        async def looked_at(guard: Guard, *, begun_us: int) -> tuple[str, int]:
            said = await sendable(guard, begun_us=begun_us)
            if len(guard.port.intent(guard.key).sends) == send and left:
                loop.now += left.pop()
            return said

        monkeypatch.setattr("poimen.gate.guard.sendable", looked_at)

    return prepare


@pytest.mark.parametrize(("workflow", "tool"), [(by_key, keyed), (by_plain_key, plain)], ids=["async", "thread"])
def test_a_key_that_expires_before_the_first_line_of_the_body_is_not_sent(
    workflow: Any, tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stall = stands_still(monkeypatch, send=2, for_s=700)
    done = driven(workflow, tool, send=0, held_s=0, prepare=stall)
    assert len(calls) == 1
    [answered] = [event for event in events_of(done.records) if isinstance(event, SendAnswered)]
    assert isinstance(answered.outcome, NotSentOutcome)
    assert done.how == "waiting"


@pytest.mark.parametrize(("workflow", "tool"), [(by_probe, probed), (by_plain_key, plain)], ids=["async", "thread"])
def test_a_lease_that_ends_before_the_first_line_of_the_body_is_asked_for_anew(
    workflow: Any, tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stall = stands_still(monkeypatch, send=1, for_s=40)
    done = driven(workflow, tool, send=0, held_s=0, prepare=stall)
    assert done.how == "ended"
    assert len(calls) == 2
    events = events_of(done.records)
    dispatched, _ = [n for n, event in enumerate(events) if isinstance(event, IntentDispatched)]
    late = events[dispatched + 1]
    assert isinstance(late, RuleApplied)
    assert late.rule == "begins-late"
