"""What is wrong with a schedule: its records held against the invariants, against the world, against a replay.

The rules are written down once more by hand, over the stored bodies. This module must never import the kernel's
tables, the guard or the ladder, or a mistake there would be a mistake here. It keeps the invariant that a schedule
which has not come to its end is a fault.

Source: design protocol.md, section 8; proof.md, P11. I11 has nothing to look at as long as no branch is forked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from poimen.log import codec
from poimen.testing.lives.audits import against_class
from poimen.testing.lives.stories import EffectFacts, Fact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from poimen.log.api import Record
    from poimen.testing.schedules.traces import Simulation

_CLOSING: Final = frozenset({"intent.committed.v1", "intent.resolved.v1", "intent.read_dropped.v2"})
_ATTEMPT_ENDS: Final = frozenset(
    f"attempt.{how}.v1" for how in ("succeeded", "failed", "timed_out", "indeterminate", "cancelled")
)
_OUTSIDERS: Final = frozenset(
    {"intent.late_outcome.v1", "intent.resolved.v1", "intent.claimed.v1", "intent.rule_applied.v1"}
)


def faults_of(simulation: Simulation) -> list[str]:
    """Everything that is wrong, a sentence each.

    Arguments:
        simulation: that has ended, or is stuck.
    """
    found = [f"stuck: {simulation.stuck}"] if simulation.stuck else []
    found += [f"left over: {one}" for one in simulation.left]
    found += [f"I9: {one}" for one in simulation.held]
    found += _unkept(simulation)
    for run, records in simulation.runs.items():
        found += [f"{run}: {what}" for what in _broken(run, records, simulation)]
    return found


def facts_of(records: list[Record]) -> list[Fact]:
    """Records as they were read."""
    return [Fact(lsn=r.lsn, kind=r.kind, subject=r.subject, body=codec.plain(r), at=r.at, life=0) for r in records]


def _unkept(simulation: Simulation) -> Iterator[str]:
    """I2, and I1 as the world saw it."""
    for run, lsn, digest in simulation.acknowledged.batches:
        kept = simulation.runs[run][lsn - 1 : lsn]
        if not kept or kept[0].hash != digest:
            yield f"I2: LSN {lsn} of {run} was acknowledged, and the log has something else there"
    done: dict[str, int] = {}
    for mark in simulation.marks:
        one = mark.request_id.partition(".")[0]
        done[one] = done.get(one, 0) + 1
        if mark.dispatched < 1:
            yield f"I1: the world has seen {mark.what!r} with no Dispatched in the log"
        if done[one] > mark.dispatched:
            yield f"I1: the world has seen {mark.what!r} {done[one]} times, of {mark.dispatched} sends"


def _broken(run: str, records: list[Record], simulation: Simulation) -> Iterator[str]:
    facts = facts_of(records)
    yield from _numbered(run, records, simulation)
    yield from _attempts(facts)
    yield from _cancelled(facts, records)
    yield from _one_name(facts)
    for effect in effects_of(facts, simulation):
        for what in against_class(effect):
            yield f"against class: {effect.label} ({effect.effect_class}): {what}"
        yield from _witnessed(effect)


def _numbered(run: str, records: list[Record], simulation: Simulation) -> Iterator[str]:
    """I3 and I4."""
    if [record.lsn for record in records] != list(range(1, len(records) + 1)):
        yield "I3: the LSNs have a gap"
    ids = {record.record_id for record in records}
    if len(ids) != len(records):
        yield "I3: two records have one id"
    claims = [(lsn, epoch) for of, lsn, epoch in simulation.acknowledged.claims if of == run]
    for record in records:
        now = max((epoch for lsn, epoch in claims if lsn < record.lsn), default=0)
        if record.epoch and record.epoch < now:
            yield f"I4: LSN {record.lsn} was appended under epoch {record.epoch}, {now} had been given before"


def _attempts(facts: list[Fact]) -> Iterator[str]:
    """I5 to I8."""
    live: dict[str, int] = {}
    ended: set[tuple[str, int]] = set()
    open_: dict[str, set[str]] = {}
    over = ""
    for fact in facts:
        body, kind = fact.body, fact.kind
        mine = f"{body.get('step')}/{body.get('attempt')}"
        if over and kind not in _OUTSIDERS and not kind.startswith(("cancel.", "decision.", "append.")):
            yield f"I5: LSN {fact.lsn}: {kind} behind the end of the branch ({over})"
        if kind == "branch.ended.v1":
            over = body["state"]
        if kind == "attempt.started.v1":
            if body["step"] in live:
                yield f"I8: LSN {fact.lsn}: attempt {mine} beside a live one"
            live[body["step"]] = body["attempt"]
        elif kind in _ATTEMPT_ENDS:
            if (body["step"], body["attempt"]) in ended:
                yield f"I5: LSN {fact.lsn}: attempt {mine} ends a second time"
            ended.add((body["step"], body["attempt"]))
            live.pop(body["step"], None)
            still = open_.get(mine, set())
            if kind in {"attempt.cancelled.v1", "attempt.timed_out.v1"} and still:
                yield f"I6: LSN {fact.lsn}: {mine} is {kind} with {sorted(still)} unknown"
            if kind == "attempt.indeterminate.v1" and not still:
                yield f"I7: LSN {fact.lsn}: {mine} is Indeterminate, and nothing of it is unknown"
        elif kind == "intent.dispatched.v1":
            if (body["step"], body["attempt"]) in ended:
                yield f"I5: LSN {fact.lsn}: an effect of {mine}, which has ended"
            open_.setdefault(mine, set()).add(fact.subject)
        elif kind in _CLOSING:
            open_.get(mine, set()).discard(fact.subject)


def _cancelled(facts: list[Fact], records: list[Record]) -> Iterator[str]:
    """Nothing is dispatched behind a cancel (protocol.md, section 3, step 2)."""
    since = next((f.lsn for f in facts if f.kind == "cancel.requested.v1"), 0)
    for record in records:
        if since and record.lsn > since and record.kind == "intent.dispatched.v1":
            yield f"LSN {record.lsn}: dispatched, and a cancel stands below it at LSN {since}"


def _one_name(facts: list[Fact]) -> Iterator[str]:
    """I10."""
    named: dict[str, dict[str, Any]] = {}
    meant: dict[str, tuple[str, str]] = {}
    for fact in facts:
        if fact.kind == "intent.pending.v1":
            named[fact.subject] = fact.body
        elif fact.kind == "intent.dispatched.v1":
            pending = named.get(fact.subject)
            if pending is None:
                yield f"LSN {fact.lsn}: dispatched, and no Pending stands before it"
                continue
            means = pending["tool"], pending["args_digest"]
            if meant.setdefault(pending["request_id"], means) != means:
                yield f"I10: LSN {fact.lsn}: {pending['request_id']} means two things"


def effects_of(facts: list[Fact], simulation: Simulation) -> list[EffectFacts]:
    """The effects of a run, each with what the world saw of it."""
    found: dict[str, EffectFacts] = {}
    named: dict[str, str] = {}
    for fact in facts:
        if fact.kind == "intent.pending.v1":
            one = named[fact.subject] = fact.body["request_id"]
            found.setdefault(one, EffectFacts(request_id=one, pending=fact.body))
        if fact.subject in named:
            found[named[fact.subject]].facts.append(fact)
    for mark in simulation.marks:
        effect = found.get(mark.request_id.partition(".")[0])
        if effect is not None:
            effect.lines.append((0, mark.what))
    return list(found.values())


def _witnessed(effect: EffectFacts) -> Iterator[str]:
    """Log and world say the same of what is settled."""
    noes = yes = 0
    for fact in effect.facts:
        outcome = fact.body.get("outcome", {})
        noes += outcome.get("kind") in {"rejected", "not_sent"} and fact.kind != "intent.late_outcome.v1"
        yes += fact.kind == "intent.committed.v1" and outcome.get("kind") == "returned"
        yes += fact.kind == "intent.resolved.v1" and fact.body["to"] == "landed"
    lines = len(effect.lines)
    if yes and not lines and effect.effect_class != "READ":
        yield f"lost: {effect.label} is recorded as done, and the world has not seen it"
    if lines > effect.sends - noes:
        yield f"I1: {effect.label}: the world has seen it {lines} times, of {effect.sends} sends {noes} did nothing"
