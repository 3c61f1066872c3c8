"""Runs as their records tell them: found by what people call them, folded, and how they ended.

Pure reading, used by drivers, clients and the command line alike. This module must never append; it keeps the
invariant that a record which cannot follow those before it is damage of that one run.

Source: design protocol.md, section 2; mission.md, promise 8.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from poimen.declare import values
from poimen.kernel.branch import BRANCH_TERMINAL
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.errors import (
    Corrupt,
    IllegalTransition,
    InvariantViolated,
    NotFound,
    RunCancelled,
    RunFailed,
    RunTimedOut,
    StepError,
)
from poimen.kernel.fold import apply
from poimen.kernel.ids import IntentId
from poimen.kernel.intent import BlobRef
from poimen.kernel.views import RunView, newest_branch
from poimen.log import codec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from poimen.blobs.tables import TieredBlobs
    from poimen.declare.values import Parameters
    from poimen.kernel.events import Event
    from poimen.kernel.views import IntentView
    from poimen.log.api import Record, Store

_NAMED = 6
"""How many ids a message names."""


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
        Corrupt: a record cannot be read, or cannot follow those before it.
    """
    view = RunView(run=run)
    events = [(record.at, fold_in(view, record), record.epoch) for record in store.read(run, upto=upto)]
    if not events:
        raise NotFound(f"no run is called {run!r}", hint="poimen runs ls", run_id=run)
    return view, events


def fold_in(view: RunView, record: Record) -> Event:
    """Fold one stored record into what is known below it.

    Returns:
        What it says.

    Raises:
        Corrupt: it cannot be read, or cannot follow what is known; the error names run and LSN.
    """
    event = codec.event_of(record)
    try:
        apply(view, lsn=record.lsn, at=record.at, branch=record.branch, event=event, epoch=record.epoch)
    except (InvariantViolated, IllegalTransition, LookupError) as error:
        raise Corrupt(
            f"record {record.lsn} of run {record.run} ({record.kind}) cannot follow those before it: {error}",
            where=f"{record.run} LSN {record.lsn}",
            why="poimen never writes such a record: the run is left alone, the others go on",
            hint=f"poimen log show {record.run}",
            run_id=record.run,
            lsn=record.lsn,
        ) from error
    return event


def state_of(run: str, records: Sequence[Record]) -> str:
    """The state of a run as its records say it, whatever its row says.

    Raises:
        Corrupt: they cannot be folded.
    """
    view = RunView(run=run)
    for record in records:
        fold_in(view, record)
    return newest_branch(view).state.value


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


# ---- how it ended ----------------------------------------------------------------------------------------------


def has_ended(view: RunView) -> bool:
    """Whether nothing will move the run any more."""
    return newest_branch(view).state in BRANCH_TERMINAL


def outcome(view: RunView, bodies: TieredBlobs, parameters: Parameters | None) -> Any:
    """The result of a run that has ended.

    Arguments:
        view: the run, in a terminal state.
        bodies: where large bodies lie.
        parameters: of the workflow; None gives plain JSON values.

    Raises:
        RunFailed, RunCancelled, RunTimedOut: it has ended otherwise.
        NotStorable: the recorded result does not match the annotation.
    """
    line = newest_branch(view)
    unresolved = len(line.unresolved())
    state = line.state.name
    if state == "SUCCEEDED" and line.body is not None:
        value = line.body.value if line.body.value is not None else b"null"
        body = bodies.read(value, f"the end of run {view.run}")
        path = f"the result of {view.run}"
        return values.load(body, path=path) if parameters is None else parameters.load_result(body, path=path)
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
        why="nothing leaves FAILED: to do it again, start it under a new id",
        hint=f"poimen runs show {view.run}",
        run_id=view.run,
        error=error,
    ) from error


def _unresolved(count: int) -> str:
    return f"{count} effect(s) may have happened: they stay in the inbox" if count else ""
