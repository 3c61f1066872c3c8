"""`poimen runs` and `poimen decisions`: where each run stands and which command moves it; what is still owed.

This module must never drive a run; it keeps the invariant that a run which has not ended is shown with the reason
why it does not move and the command that moves it.

Source: design api.md, "Command line"; mission.md, promise 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from poimen.cli.decisions import decision_row, decision_shape
from poimen.cli.frame.bodies import args_text, body_of
from poimen.cli.frame.declaring import changing, command, noun
from poimen.cli.frame.output import Json, one_line, rfc3339, us_of
from poimen.cli.frame.session import part_of
from poimen.cli.intents import heading, heads_from, intent_shape, may_have_acted, outcome_text, records_by_intent
from poimen.engine import desk, reading, standing
from poimen.kernel.branch import BranchState, WaitReason, moves_by_itself
from poimen.kernel.errors import Conflict
from poimen.kernel.ids import run_id as checked_id
from poimen.kernel.views import RunView, newest_branch
from poimen.log.api import TERMINAL_STATES

if TYPE_CHECKING:
    from poimen.cli.frame.session import Log, Session
    from poimen.engine.standing import Asking
    from poimen.kernel.intent import ErrorRecord
    from poimen.kernel.views import AttemptView, StepView
    from poimen.log.api import Head

_A_PAGE: Final = 50
_STATES: Final = [state.value for state in BranchState]

# ---- shapes ----------------------------------------------------------------------------------------------------


def is_driven(log: Log, head: Head | None) -> bool:
    """Whether somebody alive drives the run."""
    return head is not None and desk.driven(head, log.store)


def row_shape(session: Session, log: Log, head: Head) -> Any:
    """A run as a row: what it is, where it stands, what moves it."""
    ended = head.state in TERMINAL_STATES
    view = RunView(run=head.run)
    reason: str | None = "its records cannot be read"
    what: str | None = "poimen log check"
    with log.passing_damage():
        view, _ = reading.read_run(log.store, head.run, upto=1 if ended else None)
        stands = None if ended else standing.standing_of(view, head, driven=is_driven(log, head))
        reason, what = (stands.reason, stands.command) if stands else (None, None)
    admitted = view.admitted
    return {
        "id": head.run,
        "workflow": admitted.workflow if admitted else "",
        "state": head.state,
        "lsn": head.lsn,
        "admitted_at": rfc3339(view.admitted_at),
        "by": admitted.by if admitted else "",
        "tags": dict(admitted.tags) if admitted else {},
        "driven": is_driven(log, head),
        "reason": reason,
        "command": session.command(what) if what else None,
    }


def run_shape(session: Session, log: Log, run: str) -> Any:
    """A run whole: steps with all attempts, intents, decisions, why it does not move."""
    content = session.content
    view, events = reading.read_run(log.store, run)
    head = log.store.head(run)
    line, admitted = newest_branch(view), view.admitted
    stands = standing.standing_of(view, head, driven=is_driven(log, head))
    records = records_by_intent(log, run)
    every = sorted((i for b in view.branches.values() for i in b.intents()), key=lambda i: i.pending_lsn)
    return {
        "id": run,
        "workflow": admitted.workflow if admitted else "",
        "version": admitted.version if admitted else "",
        "state": line.state.value,
        "lsn": view.lsn,
        "admitted_at": rfc3339(view.admitted_at),
        "latest_at": rfc3339(view.latest_at),
        "by": admitted.by if admitted else "",
        "tags": dict(admitted.tags) if admitted else {},
        "code": line.code or (admitted.code if admitted else ""),
        "input": body_of(admitted.args if admitted else None, log, content=content),
        "driven": is_driven(log, head),
        "worker": head.worker if head and is_driven(log, head) else None,
        "epoch": head.epoch if head else 0,
        "reason": stands.reason,
        "command": session.command(stands.command) if stands.command else None,
        "asking": [asking_shape(a) for a in standing.asking(view, events)] if is_driven(log, head) else [],
        "waiting": [_waiting(session, view, w) for w in standing.holding(view)],
        "cancel": {"by": line.cancel_by, "why": line.cancel_why, "lsn": line.cancel_lsn} if line.cancel_lsn else None,
        "result": body_of(line.body.value if line.body else None, log, content=content),
        "error": _error(line.body.error if line.body else None, content=content),
        "unresolved": len(line.unresolved()),
        "steps": [_step(step, log, content=content) for step in line.steps.values()],
        "intents": [
            intent_shape(view, i, records.get(str(i.id).removeprefix(f"{run}/"), []), log, content=content)
            for i in every
        ],
        "decisions": [decision_shape(view, d, log, content=content) for d in line.decisions.values()],
    }


def _waiting(session: Session, view: RunView, waiting: Any) -> dict[str, Json]:
    reason, matter = WaitReason(waiting.reason), standing.matter_of(waiting)
    return {
        "reason": waiting.reason,
        "about": waiting.about,
        "detail": waiting.detail,
        "sides": standing.both_sides(view, waiting) if session.content else None,
        "moves_by_itself": moves_by_itself(reason, matter) or None,
        "command": session.command(standing.command_of(view, waiting)) or None,
    }


def asking_shape(asking: Asking) -> dict[str, Any]:
    """A probe that is asked again as JSON, times in RFC 3339."""
    return {
        "id": str(asking.intent.id),
        "tool": asking.intent.pending.tool,
        "answer": asking.answer,
        "again_at": rfc3339(asking.at_us),
        "counts_from": rfc3339(asking.counts_us) if asking.counts_us else None,
    }


def asked(session: Session, one: dict[str, Any]) -> str:
    """The same for people: what it said last, when it is asked again, from when an absence counts."""
    counts = f" (absence counts from {session.out.when(us_of(one['counts_from']))})" if one["counts_from"] else ""
    return f"{one['tool']}: asked, {one['answer']}; asked again at {session.out.when(us_of(one['again_at']))}{counts}"


def _error(error: ErrorRecord | None, *, content: bool) -> Any:
    if error is None:
        return None
    return {"type": error.type, "message": error.message, **({"fields": dict(error.fields)} if content else {})}


def _step(step: StepView, log: Log, *, content: bool) -> dict[str, Any]:
    return {
        "key": step.key,
        "kind": step.kind,
        "name": step.name,
        "version": step.version,
        "args": body_of(step.args, log, content=content),
        "attempts": [_attempt(attempt, log, content=content) for attempt in step.attempts],
    }


def _attempt(attempt: AttemptView, log: Log, *, content: bool) -> dict[str, Any]:
    return {
        "no": attempt.no,
        "state": attempt.state.name,
        "started_lsn": attempt.started_lsn or None,
        "started_at": rfc3339(attempt.started_at) if attempt.started_at else None,
        "ended_lsn": attempt.ended_lsn or None,
        "ended_at": rfc3339(attempt.ended_at) if attempt.ended_at else None,
        "not_before": rfc3339(attempt.not_before) if attempt.not_before else None,
        "error": _error(attempt.error, content=content),
        "cause": attempt.cause or None,
        "resumes": attempt.resumes,
        "value": body_of(attempt.value, log, content=content),
        "intents": [str(intent.id) for intent in attempt.intents.values()],
    }


# ---- runs ------------------------------------------------------------------------------------------------------


@noun("runs", later={"tail": 3, "signal": 3, "undo": 3, "retry": 4, "export": 4})
def runs() -> None:
    """Runs: where they stand, and what moves them."""


@command(runs, "ls", lists=True)
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES, case_sensitive=False), help="repeatable")
@click.option("--live", is_flag=True, help="only those that have not ended")
@click.option("--tag", help="only those with this tag: NAME or NAME=VALUE")
def ls(session: Session, states: tuple[str, ...], live: bool, tag: str | None) -> None:
    """List runs by id."""
    limit, found = session.limit or _A_PAGE, list[Any]()
    wanted = {state.upper() for state in states}
    if session.after:
        checked_id(session.after)
    with session.reading() as log:
        for head in heads_from(log, session.after, live=live):
            if head.run == session.after or (wanted and head.state not in wanted):
                continue
            row = row_shape(session, log, head)
            if tag is None or _tagged(row["tags"], tag):
                found.append(row)
            if len(found) > limit:
                break
    shown, more = part_of(session, found, most=_A_PAGE)
    rows = [
        (
            r["id"],
            r["state"],
            r["workflow"],
            session.out.when(us_of(r["admitted_at"])),
            str(r["lsn"]),
            r["reason"] or "",
        )
        for r in shown
    ]
    session.out.show(
        list(shown),
        lambda: session.out.table(("run", "state", "workflow", "admitted", "LSN", "why it does not move"), rows),
        truncated=more,
        after=shown[-1]["id"] if more else None,
    )


def _tagged(tags: dict[str, str], wanted: str) -> bool:
    name, sep, value = wanted.partition("=")
    return name in tags and (not sep or tags[name] == value)


@command(runs, "show")
@click.argument("run")
def show(session: Session, run: str) -> None:
    """Show a run: steps with all attempts, intents, decisions, and the command that moves it."""
    with session.reading() as log:
        shape = run_shape(session, log, reading.find_run(log.store, run))
    session.out.show(shape, lambda: _print_run(session, shape))


def _print_run(session: Session, run: dict[str, Any]) -> None:
    out = session.out
    out.line(f"{run['id']}  {run['state']}", bold=True)
    rows = [
        ("workflow", f"{run['workflow']} {run['version']}".rstrip()),
        ("admitted", f"{out.when(us_of(run['admitted_at']))} by {run['by']}"),
        ("tags", ", ".join(f"{name}={value}" for name, value in run["tags"].items())),
        ("LSN", str(run["lsn"])),
        ("cancelled", f"by {run['cancel']['by']}: {run['cancel']['why']}" if run["cancel"] else ""),
        ("error", f"{run['error']['type']}: {run['error']['message']}" if run["error"] else ""),
        ("unresolved", str(run["unresolved"] or "")),
        ("again", _again(session, run)),
        ("driven", f"by {run['worker']}" if run["driven"] else ""),
        *(("probe", asked(session, one)) for one in run["asking"]),
        ("waits", run["reason"] or ""),
        *(("differs", one["sides"]) for one in run["waiting"] if one["sides"]),
        ("go on", run["command"] or ""),
    ]
    for name, value in rows:
        if value:
            out.line(f"{name:<12}{value}")
    if session.content:
        for name in ("input", "result"):
            out.line(f"{name:<12}{args_text(run[name])}")
    tries = [_try(session, step, attempt) for step in run["steps"] for attempt in step["attempts"]]
    if tries:
        out.line()
        with_args = ("args",) if session.content else ()
        out.table(("step", "kind", "attempt", "state", "began", "LSN", "error", *with_args), tries)
    if run["intents"]:
        out.line()
        effects = [
            (i["id"], i["effect_class"], i["state"], outcome_text(i), str(i["sends"]), heading(session, i))
            for i in run["intents"]
        ]
        out.table(("intent", "class", "state", "outcome", "sends", "summary"), effects)
    if run["decisions"]:
        out.line()
        out.table(("decision", "", "LSN", "decided"), (decision_row(session, d) for d in run["decisions"]))


def _again(session: Session, run: dict[str, Any]) -> str:
    """How a run that has failed is done again: under a new id, which knows nothing of what this one has done."""
    if run["state"] != "FAILED":
        return ""
    made = sum(may_have_acted(one) for one in run["intents"])
    anew = f"; it makes its effects anew, and {made} below may have changed the world" if made else ""
    return session.command(f"poimen run FILE_OR_MODULE:{run['workflow']} ARGS --id NEW_ID") + anew


def _try(session: Session, step: dict[str, Any], attempt: dict[str, Any]) -> tuple[str, ...]:
    began = session.out.when(us_of(attempt["started_at"])) if attempt["started_at"] else ""
    error = attempt["error"]
    said = f"{error['type']}: {error['message']}" if error else attempt["cause"] or ""
    span = "-".join(str(lsn) for lsn in (attempt["started_lsn"], attempt["ended_lsn"]) if lsn)
    args = (args_text(step["args"]),) if session.content else ()
    return (step["key"], step["kind"], str(attempt["no"]), attempt["state"], began, span, one_line(said), *args)


@command(runs, "cancel")
@click.argument("run")
@changing
def cancel(session: Session, run: str, by: str | None, why: str | None) -> None:
    """Ask a run to stop; nothing new is sent from then on. What may have happened stays in the inbox."""
    why = session.why(why, what="cancel it")
    with session.reading() as log:
        view, _ = reading.read_run(log.store, reading.find_run(log.store, run))
    line = newest_branch(view)
    before = line.state.value == "CANCELLED" or bool(line.cancel_lsn)
    if line.state.value in TERMINAL_STATES and not before:
        raise Conflict(f"run {view.run} has ended: {line.state.value}", hint=f"poimen runs show {view.run}")
    if not before:
        session.confirm(f"cancel run {view.run}?")
    if session.writes(when=not before):
        with session.writing() as log:
            before = not desk.cancel(log.store, log.door, view.run, by=session.by(by), why=why)
    _changed(
        session,
        view.run,
        before=before,
        did="asked to stop",
        would="be asked to stop",
        was="it was asked to stop before",
    )


@command(runs, "resume")
@click.argument("run")
@changing
def resume(session: Session, run: str, by: str | None, why: str | None) -> None:
    """Let a waiting run be tried again as it is; whoever drives it next does so."""
    why = session.why(why, what="resume it")
    with session.reading() as log:
        view, _ = reading.read_run(log.store, reading.find_run(log.store, run))
    line = newest_branch(view)
    if line.state.value != "WAITING":
        raise desk.Refused(
            f"run {view.run} does not wait: it is {line.state.value}", hint=f"poimen runs show {view.run}"
        )
    before = line.resume_lsn == view.lsn
    if session.writes(when=not before):
        with session.writing() as log:
            desk.resume(log.store, log.door, view.run, by=session.by(by), why=why)
    _changed(session, view.run, before=before, did="may go on", would="be let go on", was="it was resumed before")


def _changed(session: Session, run: str, *, before: bool, did: str, would: str, was: str) -> None:
    """Tell what became of a change, and what moves the run now."""
    with session.reading() as log:
        row = row_shape(session, log, next(heads_from(log, run)))
    data = {"run_id": run, "changed": not before and not session.dry_run, "dry_run": session.dry_run, **row}
    said = was if before else f"would {would}" if session.dry_run else did
    session.out.show(data, lambda: session.out.line(f"run {run}: {said}"))
    if row["command"] and not before:
        session.out.say(f"it is {row['state']}, {row['reason']}", f"      go on: {row['command']}")
