"""A wall clock that is set while a call is out: what counts time counts it by the clock that nobody sets as well."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import clock, effects
from poimen.declare.registry import Registry
from poimen.declare.specs import spec_of
from poimen.kernel.events import AttemptFailed, BranchStarted
from poimen.kernel.intent import IntentDemoted, IntentDispatched, IntentProbed, waited
from poimen.log import codec
from tests.engine.simulated import CutStore, Driven, admit, drive, events_of, simulated

if TYPE_CHECKING:
    from tests.engine.simulated import SimulatedLoop

sends: list[float] = []
"""When the far side was called, in seconds of simulated time."""
asked: list[float] = []
"""When the probe was asked, likewise."""
clock_set_s: list[float] = []
"""By how much the wall clock is set during the first call."""


def now() -> float:
    loop: Any = asyncio.get_running_loop()
    return float(loop.now)


async def answer_lost() -> str:
    sends.append(now())
    loop: Any = asyncio.get_running_loop()
    loop.now += 5.5
    if len(sends) == 1:
        loop.clock_set_s += clock_set_s[0]
        raise ConnectionResetError("the answer was lost")
    return "done"


async def looked() -> effects.Landed[str] | effects.Absent | effects.Unknown:
    asked.append(now())
    return effects.Absent()


@poimen.tool(effect=effects.KEYED(ttl=timedelta(seconds=12)), timeout=6, grace=1)
async def keyed() -> str:
    return await answer_lost()


@poimen.tool(effect=effects.PROBE(looked, lag=timedelta(seconds=30)), timeout=6, grace=1)
async def probed() -> str:
    return await answer_lost()


@poimen.tool(effect=effects.AT_MOST_ONCE, timeout=6, grace=1)
async def opaque() -> str:
    return await answer_lost()


@poimen.workflow
async def by_key() -> str:
    return await keyed()


@poimen.workflow
async def by_probe() -> str:
    return await probed()


@poimen.workflow
async def by_hand() -> str:
    return await opaque()


def driven(workflow: Any, tool: Any, *, set_s: float) -> Driven:
    sends.clear()
    asked.clear()
    clock_set_s[:] = [set_s]
    with simulated(0) as loop:
        return on(loop, CutStore(), workflow, tool)


def on(loop: SimulatedLoop, store: CutStore, workflow: Any, tool: Any) -> Driven:
    admit(store, workflow, "r")
    registry = Registry()
    for code in (workflow, tool):
        spec = spec_of(code)
        assert spec is not None
        registry.add(spec)
    return loop.run_until_complete(drive(store, "r", registry, limit_s=1e5))


@pytest.mark.parametrize("set_s", [-5, -5.4, -3600, 0, 3600])
def test_a_key_is_dead_by_either_clock(set_s: float) -> None:
    done = driven(by_key, keyed, set_s=set_s)
    assert len(sends) == 1
    [demoted] = [event for event in events_of(done.records) if isinstance(event, IntentDemoted)]
    assert demoted.rule in {"key-expired", "clock-went-back"}
    assert demoted.inputs["boot_age_us"] >= 5 * clock.US  # type: ignore[operator]


@pytest.mark.parametrize("set_s", [0, 10, 3600])
def test_an_absence_counts_when_both_clocks_say_so(set_s: float) -> None:
    assert driven(by_probe, probed, set_s=set_s).how == "ended"
    first, second = sends
    counted = [at for at in asked if at >= first + 6 + 1 + 30]
    assert len(counted) >= 2
    assert counted[1] - counted[0] >= 1
    assert second >= counted[1]


async def looked_while_set() -> effects.Landed[str] | effects.Absent | effects.Unknown:
    loop: Any = asyncio.get_running_loop()
    asked.append(now())
    if now() > 36:
        loop.clock_set_s += 0.99
    return effects.Absent()


@poimen.tool(effect=effects.PROBE(looked_while_set, lag=timedelta(seconds=30)), timeout=6, grace=1)
async def moving() -> str:
    return await answer_lost()


@poimen.workflow
async def by_moving_probe() -> str:
    return await moving()


def test_two_absences_are_a_second_apart_by_both_clocks() -> None:
    """The clock is set forward between the first absence that counts and the second."""
    assert driven(by_moving_probe, moving, set_s=0).how == "ended"
    counted = [at for at in asked if at >= sends[0] + 37]
    assert counted[-1] - counted[0] >= 1


def test_over_another_boot_wall_time_counts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poimen.clock.boot_id", lambda: "")
    done = driven(by_key, keyed, set_s=0)
    [demoted] = [event for event in events_of(done.records) if isinstance(event, IntentDemoted)]
    assert demoted.rule == "key-expired"
    assert "boot_age_us" not in demoted.inputs
    assert clock.boot_age_us(1, "a boot") is None
    assert clock.boot_age_us(1, "") is None


def test_only_classes_whose_rules_count_time_carry_boot_time() -> None:
    def carried(done: Driven) -> list[bool]:
        return [b'"boot_us"' in r.body for r in done.records if r.kind == codec.KINDS[IntentDispatched]]

    assert carried(driven(by_hand, opaque, set_s=0)) == [False]
    assert carried(driven(by_probe, probed, set_s=0)) == [True, True]
    marks = {event.boot for event in events_of(driven(by_key, keyed, set_s=0).records) if hasattr(event, "boot")}
    (mark,) = marks - {""}
    assert len(mark) == 12
    assert mark not in clock.boot_id()


def test_records_without_boot_time_read_as_before() -> None:
    body = b'{"attempt":1,"ordinal":0,"send":1,"step":"pay#0"}'
    old = codec.decode("intent.dispatched.v1", body)
    assert isinstance(old, IntentDispatched)
    assert old.boot_us == 0
    assert codec.encode(old) == body
    probed_before = (
        b'{"answer":"absent","asked_at":5,"attempt":1,"by":"ladder","evidence":"","ordinal":0,"step":"pay#0"}'
    )
    reading = codec.decode("intent.probed.v1", probed_before)
    assert isinstance(reading, IntentProbed)
    assert (reading.boot_us, codec.encode(reading)) == (0, probed_before)


def test_what_has_stood_in_line_has_the_boot_time_of_its_commit() -> None:
    event = IntentDispatched(step="pay#0", attempt=1, ordinal=0, send=1, boot_us=7)
    made = codec.record(event, branch="b1", at=1)
    moved = codec.waited(made, at=9, boot_us=8)
    assert moved.at == 9
    assert codec.decode(moved.kind, moved.body) == waited(event, 8)
    opaque_send = codec.record(IntentDispatched(step="pay#0", attempt=1, ordinal=0, send=1), branch="b1", at=1)
    assert codec.waited(opaque_send, at=9, boot_us=8).body == opaque_send.body


tries: list[float] = []


@poimen.tool(effect=effects.AT_MOST_ONCE, timeout=6, grace=1, attempts=2, backoff=4)
async def refused_once() -> str:
    tries.append(now())
    if len(tries) == 1:
        raise poimen.NotSent("refused")
    return "done"


@poimen.workflow
async def with_back_off() -> str:
    return await refused_once()


@poimen.workflow
async def with_timer() -> str:
    try:
        await asyncio.wait_for(asyncio.Event().wait(), 30)
    except TimeoutError:
        return await refused_once()
    return "never"


@pytest.mark.parametrize(
    ("workflow", "kind", "whole_s"), [(with_back_off, AttemptFailed, 5), (with_timer, BranchStarted, 31)]
)
def test_what_is_left_of_a_wait_is_never_more_than_the_whole(
    workflow: Any, kind: type, whole_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    """The process dies while it waits, and the clock is an hour behind at the restart."""
    store = CutStore()
    tries[:] = [-1.0] if kind is BranchStarted else []
    with simulated(0) as loop:
        done = on(loop, store, workflow, refused_once)
    at = next(n for n, event in enumerate(events_of(done.records), 1) if isinstance(event, kind))
    tries[:] = [0.0]
    registry = Registry()
    for code in (workflow, refused_once):
        spec = spec_of(code)
        assert spec is not None
        registry.add(spec)
    with simulated(1) as loop:
        loop.clock_set_s = -3600
        loop.run_until_complete(drive(store.cut("r", at), "r", registry, limit_s=1e5))
    assert tries[1] <= whole_s
    assert "s behind the newest record of run r" in caplog.text
