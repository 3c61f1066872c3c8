"""What a person does to a run: cancel, resume, claim, resolve, probe, close a decision.

Each is one outsider's record. What closes or claims something is appended against the last LSN of its subject that the
person has seen: the second of two loses with a conflict. What asks for something (a resumption, a probe) is appended
always. This module must never drive a run; it keeps the invariant that a resolution names one intent, who, why, how.

Source: design protocol.md, sections 3 ("Decisions") and 5 ("After Indeterminate").
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, get_args

from poimen import clock
from poimen.declare import values
from poimen.declare.calling import Current
from poimen.engine.driving.scopes import BodyScope
from poimen.engine.reading import find_intent, has_ended, read_run
from poimen.engine.standing import look_again
from poimen.gate.guard import ask_once
from poimen.kernel.errors import Conflict, NotFound, NotStorable, PoimenError
from poimen.kernel.events import CancelRequested, DecisionSettled, ResumeRequested, subject
from poimen.kernel.ids import check_lsn, said
from poimen.kernel.intent import IntentClaimed, IntentProbed, IntentResolved, Resolution
from poimen.kernel.views import newest_branch
from poimen.log import codec
from poimen.log.api import TERMINAL_STATES, Batch, Expect
from poimen.log.writer import IN_PLACE_S
from poimen.secrecy.speaking import logger

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from poimen import effects
    from poimen.blobs.tables import TieredBlobs
    from poimen.declare.registry import Registry
    from poimen.declare.specs import ToolSpec
    from poimen.kernel.events import Event
    from poimen.kernel.intent import Payload
    from poimen.kernel.views import IntentView, RunView
    from poimen.log.api import Committed, Head, Store
    from poimen.log.writer import Door

_told = logger("poimen.told")
To = Literal["landed", "not_landed", "abandoned"]

WITHOUT_VALUE = frozenset({"", "None", "Any", "typing.Any", "object"})
"""Result annotations, in words, of tools that an operator may declare landed without a value."""


class Refused(PoimenError):
    """What was asked cannot be done to the run as it stands. Nothing was written."""

    code = "PO114"


def append(door: Door, run: str, branch: str, event: Event, *, expect_lsn: int | None = None) -> Committed:
    """Append one outsider's record.

    Arguments:
        door: the log's.
        run: the run's id.
        branch: its branch.
        event: what is said.
        expect_lsn: of the last record about the subject that its author saw; None: do not ask.

    Raises:
        Conflict: a later record about the subject is there.
    """
    expect = Expect(subject=subject(event), lsn=expect_lsn) if expect_lsn is not None else None
    batch = Batch(run=run, records=(codec.record(event, branch=branch),), expect=expect)
    try:
        return door.append(batch, patience_s=IN_PLACE_S)
    except Conflict as lost:
        if (about := subject(event)).startswith("intent:"):
            lost.hint = look_again(f"{run}/{branch}/{about.removeprefix('intent:')}")
        raise


def cancel(store: Store, door: Door, run: str, *, by: str, why: str) -> bool:
    """Ask for a run to be stopped; False when it had ended or was asked before.

    Raises:
        NotFound: no such run.
        NotStorable: who or why is missing, or is no text.
    """
    said(by=by, why=why)
    while True:
        view, _ = read_run(store, run)
        line = newest_branch(view)
        if line.cancel_lsn or line.state.name in TERMINAL_STATES:
            return False
        try:
            append(door, run, line.id, CancelRequested(by=by, why=why), expect_lsn=view.lsn)
        except Conflict:
            continue  # something about the branch has happened since it was read: perhaps its end
        return True


def resume(store: Store, door: Door, run: str, *, by: str, why: str) -> None:
    """Let a run that waits be tried again as it is; one that does not wait takes no notice.

    Raises:
        NotFound: no such run.
        Refused: it has ended.
        NotStorable: as `cancel`.
    """
    said(by=by, why=why)
    view, _ = read_run(store, run)
    line = newest_branch(view)
    if line.state.name in TERMINAL_STATES:
        raise Refused(f"run {run} has ended: {line.state.name}", hint=f"poimen runs show {run}")
    append(door, run, line.id, ResumeRequested(by=by, why=why))


def claim(store: Store, door: Door, intent_id: str, *, by: str) -> None:
    """Say that somebody is looking at an unknown effect.

    Raises:
        NotFound: no such intent.
        Conflict: it is closed already, or another person has claimed it meanwhile.
        NotStorable: as `cancel`.
    """
    said(by=by)
    view, intent = find_intent(store, intent_id)
    must_be_open(intent)
    event = IntentClaimed(step=intent.id.step, attempt=intent.id.attempt, ordinal=intent.id.ordinal, by=by)
    append(door, view.run, intent.id.branch, event, expect_lsn=intent.last_lsn)


def resolve(
    store: Store,
    door: Door,
    intent_id: str,
    to: To,
    *,
    by: str,
    why: str,
    evidence: str = "",
    value: Payload | None = None,
    expect_lsn: int | None = None,
) -> Committed:
    """Close an unknown effect.

    Arguments:
        store: the log.
        door: the log's.
        intent_id: exactly one intent.
        to: what is known now.
        by: who says so.
        why: for the record.
        evidence: from what.
        value: for `landed`: what the call would have returned, as canonical JSON.
        expect_lsn: the LSN of the last record about the intent that its author saw; None: as it is now.

    Raises:
        NotFound: no such intent.
        Conflict: it is closed already, or something about it has changed since.
        Refused: a live worker reports that the call is running, or a value is needed and was not given.
        NotStorable: the value is none that the tool could have returned, or as `must_be_said`.
    """
    must_be_said(to, by=by, why=why, evidence=evidence, has_value=False)  # what does not belong to it is left out
    view, intent = may_resolve(store, intent_id, to, value=value)
    event = IntentResolved(
        step=intent.id.step,
        attempt=intent.id.attempt,
        ordinal=intent.id.ordinal,
        to=Resolution(to),
        rule="operator",
        by=by,
        why=why,
        evidence=evidence,
        value=value if to == "landed" else None,
    )
    seen = intent.last_lsn if expect_lsn is None else expect_lsn
    return append(door, view.run, intent.id.branch, event, expect_lsn=seen)


def must_be_said(
    to: object, *, by: object, why: object, evidence: object, has_value: bool, expect_lsn: object = 0
) -> None:
    """Refuse a resolution that says nothing, or two things.

    Arguments:
        to: what is known now.
        by: who says so.
        why: for the record.
        evidence: from what.
        has_value: whether it has what the call would have returned.
        expect_lsn: the LSN that its author saw.

    Raises:
        NotStorable: `to` is none of the three, a value does not belong to it, a text is missing or is none, or the
            LSN is none.
    """
    said(by=by, why=why, evidence=evidence)
    check_lsn(expect_lsn, name="expect_lsn")
    if to not in get_args(To):
        raise NotStorable(
            "to is none of landed, not_landed and abandoned",
            why="nothing was recorded",
            hint='say what you have found out, such as to="not_landed"',
            path="to",
        )
    if has_value and to != "landed":
        raise NotStorable(
            f"a result was given with {to}",
            why="what did not land, or what nobody knows of, has returned nothing",
            hint='leave out result=, or say to="landed"',
            path="result",
        )


def may_resolve(store: Store, intent_id: str, to: To, *, value: Payload | None) -> tuple[RunView, IntentView]:
    """Refuse what `resolve` would refuse, but for what happens meanwhile; returns the run and the intent.

    Arguments:
        store: the log.
        intent_id: exactly one intent.
        to: what is known now.
        value: as for `resolve`; one that lies beside the log is not looked at.

    Raises:
        NotFound, Conflict, Refused, NotStorable: as `resolve`.
    """
    view, intent = find_intent(store, intent_id)
    must_be_open(intent)
    _must_fit(store, view, intent, to, given=value is not None)
    returns = intent.pending.returns
    if to == "landed" and isinstance(value, bytes) and not values.may_be(returns, value):
        given = type(json.loads(value)).__name__  # the value itself may be a secret
        raise NotStorable(
            f"{intent.id} returns {returns}, and the value given is a {given}",
            why="the run goes on with the value, and its code could not read this one",
            hint=f"give a {returns} as JSON; a text has quotes: '\"text\"'",
            path="value",
        )
    return view, intent


async def ask_probe(
    store: Store,
    door: Door,
    bodies: TieredBlobs,
    registry: Registry,
    intent_id: str,
    *,
    by: str,
    threads: ThreadPoolExecutor,
) -> effects.Landed[Any] | effects.Absent | effects.Unknown:
    """Ask the far side whether an effect has landed; what it says is a record, and decides nothing.

    Arguments:
        store: the log.
        door: its door.
        bodies: where large bodies lie.
        registry: the code that is loaded.
        intent_id: exactly one intent.
        by: who asks.
        threads: where a probe that is a plain function runs.

    Raises:
        NotFound: no such intent, or its tool is not loaded here, or has no probe.
        NotStorable: as `claim`.
    """
    said(by=by)
    view, intent = find_intent(store, intent_id)
    spec = with_probe(registry, intent)
    one = intent.id
    step = view.branches[one.branch].steps[one.step]
    body = bodies.read(step.args if intent.pending.args is None else intent.pending.args, f"intent {one}")
    where = Current(run_id=view.run, branch_id=one.branch, step=step.key, attempt=one.attempt, cancelling=None)
    asked_at = clock.wall_us()
    scope = BodyScope(where, intent.pending.request_id, probing=True)
    answer, kind, evidence, value = await ask_once(spec, body, intent, scope, threads)
    event = IntentProbed(
        step=one.step,
        attempt=one.attempt,
        ordinal=one.ordinal,
        answer=kind,
        evidence=evidence,
        by=by,
        asked_at=asked_at,
        value=value,
    )
    append(door, one.run, one.branch, event)
    return answer


def with_probe(registry: Registry, intent: IntentView) -> ToolSpec:
    """The declaration of an intent's tool, which can be asked.

    Raises:
        NotFound: it is not loaded here, or has no probe.
    """
    tool = intent.pending.tool
    spec = registry.tool("tool", tool) or registry.tool("model", tool)
    if spec is None:
        raise NotFound(
            f"the code of {tool} is not loaded here",
            why="a probe is code, declared with its tool",
            hint="Runtime(modules=[...]), or poimen inbox probe INTENT --module MODULE",
        )
    if spec.probe is None:
        raise without_probe(intent)
    return spec


def without_probe(intent: IntentView) -> NotFound:
    """What is said where there is nobody to ask: look yourself."""
    return NotFound(
        f"{intent.pending.tool} has no probe",
        hint=f"look at the far side yourself; what to look for, and how to decide: poimen inbox show {intent.id}",
    )


def close_decision(store: Store, door: Door, run: str, decision_id: str, *, by: str, why: str, rejected: bool) -> bool:
    """Close an owed decision by hand; False when it was not owed any more.

    Raises:
        NotFound: no such run or decision.
        Conflict: somebody else has closed it meanwhile.
        NotStorable: as `cancel`.
    """
    said(by=by, why=why)
    view, _ = read_run(store, run)
    line = newest_branch(view)
    known = line.decisions.get(decision_id)
    if known is None:
        raise NotFound(f"run {run} has no decision {decision_id!r}", hint=f"poimen decisions ls --run {run}")
    if not known.owed:
        return False
    append(
        door,
        run,
        line.id,
        DecisionSettled(id=decision_id, by=by, why=why, rejected=rejected),
        expect_lsn=known.lsn,  # owed: its own record is the last one about it
    )
    return True


def driven(head: Head, store: Store) -> bool:
    """Whether somebody alive drives the run.

    Arguments:
        head: the run's row; its lease may still hold as far as the row tells.
        store: the log: it knows which workers live, whatever their leases say.
    """
    if not head.worker or head.boot_id != clock.boot_id() or head.lease_until <= clock.boot_us():
        return False
    return store.alive(head.worker)


def tell_waiting(head: Head) -> bool:
    """Tell whoever watches that another process drives the run; whether somebody does."""
    if head.worker:
        where = "this machine" if head.boot_id == clock.boot_id() else "another machine"
        _told.info("run %s is driven by worker %s on %s, waiting", head.run, head.worker, where)
    return bool(head.worker)


def _must_fit(store: Store, view: RunView, intent: IntentView, to: To, *, given: bool) -> None:
    """Refuse what nobody can know yet, and what the run could not go on with."""
    head = store.head(view.run)
    attempt = view.branches[intent.id.branch].steps[intent.id.step].attempts[intent.id.attempt - 1]
    running = attempt.live or intent.running
    if to == "not_landed" and running and head is not None and driven(head, store):
        raise Refused(
            f"{intent.id} is running: a live worker holds the run",
            why="while the call runs, nobody can say that it did not land",
            hint="wait for it" + ("" if has_ended(view) else f", or poimen runs cancel {view.run} --why ..."),
        )
    if to == "landed" and not given and intent.pending.returns not in WITHOUT_VALUE:
        raise Refused(
            f"{intent.id} returns {intent.pending.returns}, and no value was given",
            why="the value that the call would have returned is kept, and a run that goes on goes on with it",
            hint="give it: --value JSON, or --value @file (in Python: result=...)",
        )


def must_be_open(intent: IntentView) -> None:
    """Refuse to claim or close what is settled.

    Raises:
        Conflict: it was closed, or was never unknown.
    """
    if intent.open:
        return
    closed = intent.resolution
    how = f"resolved as {closed.to.value} by {closed.by}" if closed is not None else intent.state.value
    raise Conflict(
        f"{intent.id} is not open: {how}",
        where=f"LSN {intent.last_lsn}",
        why="only an effect that was dispatched and has no outcome can be resolved",
        hint=f"poimen intents show {intent.id}",
        lsn=intent.last_lsn,
    )
