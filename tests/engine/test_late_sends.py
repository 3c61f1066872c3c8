"""A send whose record has waited for a locked log: what was judged before the wait is judged again after it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import poimen
from poimen import clock, effects
from poimen.declare.registry import Registry
from poimen.declare.specs import spec_of
from poimen.kernel.errors import StorageFailed
from poimen.kernel.intent import IntentDemoted, IntentDispatched, NotSentOutcome, SendAnswered
from poimen.log import codec
from tests.engine.simulated import CutStore, Driven, admit, drive, events_of, simulated

if TYPE_CHECKING:
    from collections.abc import Sequence

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


async def looked() -> effects.Landed[str] | effects.Absent | effects.Unknown:
    return effects.Absent()


@poimen.tool(effect=effects.PROBE(looked, lag=timedelta(seconds=10)), timeout=60, grace=5)
async def probed() -> str:
    return answer()


@poimen.workflow
async def by_key() -> str:
    return await keyed()


@poimen.workflow
async def by_probe() -> str:
    return await probed()


def driven(workflow: Any, tool: Any, *, send: int, held_s: float) -> Driven:
    calls.clear()
    with simulated(0) as loop:
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
