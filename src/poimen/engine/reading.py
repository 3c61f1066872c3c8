"""What a run's records say to a reader: where it stands, what waits for a person, how it ended.

Pure reading, used by clients and the command line alike. This module must never append; it keeps the
invariant that a run which is not terminal always says why it does not move and which command moves it.

Source: design protocol.md, section 2; mission.md, promise 8.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from poimen.declare import values
from poimen.engine.surface.results import InboxItem, RunState, Standing
from poimen.kernel.branch import OperatorMatter, WaitReason, command, moves_by_itself, shown
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.errors import (
    NotFound,
    RunCancelled,
    RunFailed,
    RunTimedOut,
    RunWaiting,
    StepError,
)
from poimen.kernel.fold import apply
from poimen.kernel.ids import IntentId
from poimen.kernel.intent import BlobRef
from poimen.kernel.views import RunView, trunk
from poimen.log import codec
from poimen.log.api import TERMINAL_STATES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from poimen.blobs.tables import TieredBlobs
    from poimen.kernel.events import Event, Waiting
    from poimen.kernel.views import BranchView, IntentView
    from poimen.log.api import Head, Record, Store

_NAMED = 6
"""How many ids a message names."""

BY_PEOPLE = frozenset({WaitReason.OPERATOR, WaitReason.HUMAN, WaitReason.CODE, WaitReason.BUDGET})
"""Reasons that only somebody else can remove."""


def read_run(store: Store, run: str, *, upto: int | None = None) -> tuple[RunView, list[tuple[int, Event, int]]]:
    """Fold a run from its records.

    Arguments:
        store: the log.
        run: the run's id.
        upto: the last LSN to look at; None: all.

    Returns:
        The view, and the records as `(at, event, epoch)` in LSN order.

    Raises:
        NotFound: no run has this id.
        Corrupt: a record cannot be read.
    """
    view = RunView(run=run)
    events: list[tuple[int, Event, int]] = []
    for record in store.read(run, upto=upto):
        event = codec.event_of(record)
        apply(view, lsn=record.lsn, at=record.at, branch=record.branch, event=event, epoch=record.epoch)
        view.hash = record.hash
        events.append((record.at, event, record.epoch))
    if not events:
        raise NotFound(f"no run is called {run!r}", hint="poimen runs ls", run_id=run)
    return view, events


def state_of(run: str, records: Sequence[Record]) -> str:
    """The state of a run as its records say it, whatever its row says.

    Raises:
        Corrupt, InvariantViolated, IllegalTransition: they cannot be folded.
    """
    view = RunView(run=run)
    for record in records:
        event = codec.event_of(record)
        apply(view, lsn=record.lsn, at=record.at, branch=record.branch, event=event, epoch=record.epoch)
    return trunk(view).state.value


def bodies_named(records: Sequence[Record]) -> Iterator[tuple[int, BlobRef]]:
    """The bodies that records name instead of holding them, each with the LSN of its record.

    Raises:
        Corrupt: a record cannot be decoded.
    """
    for record in records:
        if b'"$blob"' in record.body:
            yield from ((record.lsn, ref) for ref in _refs(codec.event_of(record)))


def _refs(value: object) -> Iterator[BlobRef]:
    if isinstance(value, BlobRef):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _refs(getattr(value, field.name))
    elif isinstance(value, tuple):
        for each in value:
            yield from _refs(each)


def find_run(store: Store, prefix: str) -> str:
    """The id of the one run that has this id, or this unique prefix.

    Raises:
        NotFound: none has it, or several do; the message names them.
    """
    if store.head(prefix) is not None:
        return prefix
    found = [head.run for head in store.heads(prefix=prefix, limit=6)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(f"no run is called {prefix!r}", hint="poimen runs ls", run_id=prefix)
    raise NotFound(f"{prefix!r} is the beginning of several ids: {', '.join(found)}", hint="give one of them")


def find_intent(store: Store, text: str) -> tuple[RunView, IntentView]:
    """The intent of this id.

    Raises:
        NotFound: the text is no intent's id, or there is no such intent.
    """
    wanted = IntentId.parse(text)
    view, _ = read_run(store, find_run(store, wanted.run))
    line = view.branches.get(wanted.branch)
    step = line.steps.get(wanted.step) if line is not None else None
    if step is not None and 1 <= wanted.attempt <= len(step.attempts):
        intent = step.attempts[wanted.attempt - 1].intents.get(wanted.ordinal)
        if intent is not None:
            return view, intent
    raise NotFound(f"there is no intent {text!r}", hint=f"poimen intents ls --run {wanted.run}", intent_id=text)


def intent_by_prefix(store: Store, text: str, *, unresolved: bool = False) -> tuple[RunView, IntentView]:
    """The one intent that has this id, or this unique prefix; the run's id may itself be cut short.

    Arguments:
        store: the log.
        text: the beginning of `RUN/BRANCH/STEP/ATTEMPT/ORDINAL`, such as a run's id alone.
        unresolved: of several, the one that may have happened and that nobody has answered, else the one that
            somebody has.

    Raises:
        NotFound: none has it, or several do; the message names them.
    """
    run, _, rest = text.partition("/")
    view, _ = read_run(store, find_run(store, run))
    begins = f"{view.run}/{rest}"
    found = [i for line in view.branches.values() for i in line.intents() if f"{i.id}/".startswith(begins)]
    exact = [i for i in found if str(i.id) == begins]
    still_open = [i for i in found if i.open and i.effect_class is not EffectClass.READ] if unresolved else []
    closed_once = [i for i in found if i.resolution is not None] if unresolved else []
    for chosen in (exact, still_open, closed_once, found):
        if len(chosen) == 1:
            return view, chosen[0]
    if not found:
        raise NotFound(f"there is no intent {text!r}", hint=f"poimen intents ls --run {view.run}", intent_id=text)
    named = ", ".join(str(i.id) for i in (still_open or found)[:_NAMED])
    raise NotFound(f"{text!r} is the beginning of several intents: {named}", hint="give one of them")


def feed_end(store: Store) -> int:
    """The position of the newest record of all runs; 0 when there is none.

    The port gives no such number, so the end is closed in upon: a read of one record on each step.
    """
    low, high = 0, 1 << 10
    while store.feed(high, limit=1):
        low, high = high, high << 2
    while low < high:
        middle = (low + high) // 2
        if store.feed(middle, limit=1):
            low = middle + 1
        else:
            high = middle
    return low


# ---- where a run stands ----------------------------------------------------------------------------------------


def matter_of(waiting: Waiting) -> OperatorMatter:
    """What an operator is asked for."""
    return OperatorMatter.CRASH_LOOP if waiting.detail.startswith("crash loop") else OperatorMatter.UNKNOWN_EFFECT


def about_of(waiting: Waiting) -> str:
    """The id that the command names; nothing where the wait is about the workflow as a whole."""
    return "" if waiting.about == "workflow" else waiting.about


def order(line: BranchView) -> list[Waiting]:
    """The reasons of a wait, in the order in which they are shown."""
    ranks = {reason: n for n, reason in enumerate(shown(WaitReason(w.reason) for w in line.waiting))}
    return sorted(line.waiting, key=lambda w: ranks[WaitReason(w.reason)])


def holding(view: RunView) -> list[Waiting]:
    """The reasons of a wait that still hold, first the one to look at; empty when whoever drives it next goes on."""
    line = trunk(view)
    if line.state.name != "WAITING" or line.cancel_lsn or line.resume_lsn == view.lsn:
        return []
    answered = {str(i.id) for branch in view.branches.values() for i in branch.intents() if not i.open}
    return [w for w in order(line) if w.about not in answered]


def standing(view: RunView, head: Head | None, *, driven: bool) -> Standing:
    """Where a run stands.

    Arguments:
        view: the run as folded.
        head: its row, for the lease.
        driven: somebody alive holds its lease.
    """
    line = trunk(view)
    state = RunState(line.state.value)
    reason: str | None = None
    what: str | None = None
    holds = holding(view)
    if holds:
        first = holds[0]
        kind = WaitReason(first.reason)
        itself = moves_by_itself(kind, matter_of(first))
        reason = f"{first.reason}: {first.detail or first.about}" + (f" (or {itself})" if itself else "")
        what = command(kind, run=view.run, about=about_of(first), matter=matter_of(first)) or None
    elif not has_ended(view) and not driven:
        reason = "no live worker drives it" + (f"; cancelled by {line.cancel_by}" if line.cancel_lsn else "")
        workflow = view.admitted.workflow if view.admitted is not None else "WORKFLOW"
        what = f"poimen run MODULE:{workflow} --id {view.run}"
    return Standing(state=state, reason=reason, command=what, lsn=head.lsn if head is not None else view.lsn)


def waits_for(view: RunView) -> RunWaiting | None:
    """The error for a run that only somebody else can move; None when it moves, or has ended."""
    line = trunk(view)
    if view.outsider_lsn == view.lsn:
        return None  # somebody has just acted on it: whoever drives it next goes on
    reasons = [w for w in order(line) if WaitReason(w.reason) in BY_PEOPLE] if line.state.name == "WAITING" else []
    if not reasons:
        return None
    first = reasons[0]
    what = command(WaitReason(first.reason), run=view.run, about=about_of(first), matter=matter_of(first))
    return RunWaiting(
        f"run {view.run} waits for the {first.reason}: {first.detail or first.about}",
        where=first.about,
        why="nothing was lost; it goes on where it stands",
        hint=what,
        reason=first.reason,
        command=what,
        run_id=view.run,
    )


# ---- how it ended ----------------------------------------------------------------------------------------------


def has_ended(view: RunView) -> bool:
    """Whether nothing will move the run any more."""
    return trunk(view).state.value in TERMINAL_STATES


def outcome(view: RunView, bodies: TieredBlobs, annotation: Any) -> Any:
    """The result of a run that has ended.

    Arguments:
        view: the run, in a terminal state.
        bodies: where large bodies lie.
        annotation: of the result; `Any` gives plain JSON values.

    Raises:
        RunFailed, RunCancelled, RunTimedOut: it has ended otherwise.
        NotStorable: the recorded result does not match the annotation.
    """
    line = trunk(view)
    unresolved = len(line.unresolved())
    state = line.state.name
    if state == "SUCCEEDED" and line.body is not None:
        value = line.body.value if line.body.value is not None else b"null"
        body = bodies.read(value, f"the end of run {view.run}")
        return values.load(body, annotation, path=f"the result of {view.run}")
    if state == "CANCELLED":
        raise RunCancelled(
            f"run {view.run} was cancelled: {line.cancel_why}",
            why=_unresolved(unresolved),
            hint="poimen inbox ls" if unresolved else "",
            run_id=view.run,
            unresolved=unresolved,
        )
    if state == "TIMED_OUT":
        raise RunTimedOut(
            f"the deadline of run {view.run} passed",
            why=_unresolved(unresolved),
            run_id=view.run,
            unresolved=unresolved,
        )
    record = line.body.error if line.body is not None else None
    error = (
        StepError(record.type, record.message, dict(record.fields)) if record is not None else StepError("Unknown", "")
    )
    raise RunFailed(
        f"run {view.run} has failed: {error}",
        where=view.run,
        hint=f"poimen runs show {view.run}",
        run_id=view.run,
        error=error,
    ) from error


def _unresolved(count: int) -> str:
    return f"{count} effect(s) may have happened: they stay in the inbox" if count else ""


# ---- what waits for a person -----------------------------------------------------------------------------------


def inbox_of(view: RunView) -> list[InboxItem]:
    """What of this run waits for a person."""
    found: list[InboxItem] = []
    for branch in view.branches.values():
        for intent in branch.unresolved():
            attempt = branch.steps[intent.id.step].attempts[intent.id.attempt - 1]
            if attempt.live and branch.state.name not in TERMINAL_STATES and not branch.waiting:
                continue  # its ladder is at work, or the call is
            found.append(
                InboxItem(
                    id=str(intent.id),
                    kind="effect",
                    run_id=view.run,
                    summary=f"may have happened, verify first: {intent.pending.summary}",
                    lsn=intent.last_lsn,
                )
            )
    found.extend(
        InboxItem(id=view.run, kind="code", run_id=view.run, summary=waiting.detail or waiting.about, lsn=view.lsn)
        for waiting in holding(view)
        if waiting.reason == "code" or matter_of(waiting) is OperatorMatter.CRASH_LOOP
    )
    return found
