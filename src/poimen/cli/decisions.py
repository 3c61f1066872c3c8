"""`poimen decisions`: what agents decided, and what of it is still owed.

This module must never carry a decision out; it keeps the invariant that an owed decision is listed until a record
says that it was carried out, rejected, or that its run succeeded.

Source: design protocol.md, section 3 ("Decisions"); case C01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from poimen.cli.frame.bodies import body_of
from poimen.cli.frame.declaring import changing, clipped, command, noun
from poimen.cli.frame.output import rfc3339, us_of
from poimen.cli.frame.session import part_of
from poimen.cli.intents import heads_from
from poimen.engine import desk, reading
from poimen.kernel.errors import Conflict, NotFound
from poimen.kernel.views import newest_branch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from poimen.cli.frame.session import Log, Session
    from poimen.kernel.views import DecisionView, RunView


_OWED: Final = "+"
"""Before an id in `next`: it was owed when the page was made. No id of a run begins so."""


def decision_shape(view: RunView, decision: DecisionView, log: Log, *, content: bool) -> Any:
    """A decision as JSON; `settled` says how it was closed."""
    return {
        "id": f"{view.run}/{decision.id}",
        "run_id": view.run,
        "decision": decision.id,
        "owed": decision.owed,
        "settled": decision.settled or None,
        "value": body_of(decision.value, log, content=content),
        "step": decision.step or None,
        "lsn": decision.lsn,
        "at": rfc3339(decision.at),
    }


@noun("decisions")
def decisions() -> None:
    """What agents decided; those still owed come first."""


@command(decisions, "ls", lists=True)
@click.option("--run", "run", help="of this run only")
@click.option("--owed", is_flag=True, help="only those not carried out and not closed")
def ls(session: Session, run: str | None, owed: bool) -> None:
    """List decisions, owed ones first, then by run."""
    with session.reading() as log:
        found = [decision_shape(view, d, log, content=session.content) for view, d in every_decision(log, run)]
    behind = _place(found, session.after) if session.after else None
    found = [d for d in found if (d["owed"] or not owed) and (behind is None or _order(d) > behind)]
    found.sort(key=_order)
    shown, more = part_of(session, found, most=None)
    session.out.show(
        list(shown),
        lambda: session.out.table(("decision", "", "LSN", "decided"), (decision_row(session, d) for d in shown)),
        truncated=more,
        after=f"{_OWED if shown[-1]['owed'] else ''}{shown[-1]['id']}" if more else None,
    )


def _order(one: dict[str, Any]) -> tuple[bool, str, int]:
    """The order of the list: owed ones first, then by run."""
    return not one["owed"], one["run_id"], one["lsn"]


def _place(every: list[dict[str, Any]], after: str) -> tuple[bool, str, int]:
    """Where a decision stands, or stood: one that was owed when it was listed keeps its place when it is closed.

    Raises:
        NotFound: there is none of this id.
    """
    for one in every:
        if one["id"] == after.removeprefix(_OWED):
            return _order(one | {"owed": one["owed"] or after.startswith(_OWED)})
    raise NotFound(f"--after {clipped(after)!r} is no decision of the list", hint="poimen decisions ls")


def decision_row(session: Session, one: dict[str, Any]) -> tuple[str, str, str, str]:
    """A decision as a row for people."""
    return one["id"], "owed" if one["owed"] else one["settled"], str(one["lsn"]), session.out.when(us_of(one["at"]))


def every_decision(log: Log, run: str | None = None) -> Iterator[tuple[RunView, DecisionView]]:
    """All decisions, of all runs or of one (its id, or a unique prefix)."""
    names = [reading.find_run(log.store, run)] if run else (head.run for head in heads_from(log))
    for name in names:
        with log.passing_damage():
            view, _ = reading.read_run(log.store, name)
            yield from [(view, decision) for decision in newest_branch(view).decisions.values()]


@command(decisions, "settle")
@click.argument("decision")
@changing
def settle(session: Session, decision: str, by: str | None, why: str | None) -> None:
    """Say that an owed decision was carried out. DECISION is RUN/ID, or the id where it is unique."""
    _close(session, decision, by, why, rejected=False)


@command(decisions, "reject")
@click.argument("decision")
@changing
def reject(session: Session, decision: str, by: str | None, why: str | None) -> None:
    """Say that an owed decision will not be carried out. DECISION is RUN/ID, or the id where it is unique."""
    _close(session, decision, by, why, rejected=True)


def _close(session: Session, text: str, by: str | None, why: str | None, *, rejected: bool) -> None:
    why = session.why(why, what="close it")
    with session.reading() as log:
        view, known = _decision(log, text)
    if not known.owed and rejected is not (known.settled == "rejected"):
        raise _conflict(view, known, f"is closed otherwise: {known.settled}")
    if session.writes(when=known.owed):
        session.confirm(f"{'reject' if rejected else 'settle'} {view.run}/{known.id}?")
        with session.writing() as log:
            closed = desk.close_decision(
                log.store, log.door, view.run, known.id, by=session.by(by), why=why, rejected=rejected
            )
        if not closed:
            raise _conflict(view, known, "was closed by somebody else meanwhile")
    word = "rejected" if rejected else "settled"
    so = f"was {known.settled} before" if known.settled == word else f"is not owed: {known.settled}"
    said = so if not known.owed else f"would be {word}" if session.dry_run else word
    data = {
        "id": f"{view.run}/{known.id}",
        "changed": known.owed and not session.dry_run,
        "dry_run": session.dry_run,
        "settled": known.settled or word,
    }
    session.out.show(data, lambda: session.out.line(f"decision {view.run}/{known.id}: {said}"))


def _conflict(view: RunView, known: DecisionView, what: str) -> Conflict:
    return Conflict(
        f"decision {view.run}/{known.id} {what}",
        where=f"{view.run} LSN {known.lsn}",
        hint=f"poimen decisions ls --run {view.run}",
    )


def _decision(log: Log, text: str) -> tuple[RunView, DecisionView]:
    """The one decision that is meant: `RUN/ID`, or an id or its beginning."""
    run, sep, rest = text.partition("/")
    of = run if sep and any(True for _ in log.store.heads(prefix=run, limit=1)) else None
    wanted = rest if of else text
    every = list(every_decision(log, of))
    for found in (
        [pair for pair in every if pair[1].id == wanted],
        [pair for pair in every if pair[1].id == wanted and pair[1].owed],
        [pair for pair in every if pair[1].id.startswith(wanted)],
    ):
        if len(found) == 1:
            return found[0]
    several = [f"{view.run}/{d.id}" for view, d in every if d.id.startswith(wanted)]
    if several:
        raise NotFound(f"{text!r} may be several decisions: {', '.join(several[:6])}", hint="give one of them")
    raise NotFound(f"there is no decision {text!r}", hint="poimen decisions ls")
