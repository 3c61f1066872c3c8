"""`poimen inbox`: what waits for a person, with all that is known of it, and the commands that decide it.

A person on call has two minutes to understand and five to decide. This module must never decide; it keeps the
invariants that a resolution hits one intent, whose id the person has said, and that what is not known is said.

Source: design api.md, "Command line"; mission.md, "Users"; protocol.md, section 5 ("After Indeterminate").
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from poimen.cli.intents import MEANING, WORDS, args_text, heads_from, intent_shape, print_records, records_by_intent
from poimen.cli.output import Json, rfc3339, us_of
from poimen.cli.runs import row_shape
from poimen.cli.session import changing, command, noun, part_of
from poimen.declare import values
from poimen.engine import desk, reading
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.errors import Conflict, NotFound

if TYPE_CHECKING:
    from poimen.cli.session import Log, Session
    from poimen.engine.surface.results import InboxItem
    from poimen.kernel.views import IntentView, RunView

_KINDS: Final = ["effect", "question", "budget", "code"]
_INLINE: Final = 16 * 1024
"""Bytes of a value that still lies in its record; a larger one is kept beside."""


@noun("inbox", later={"answer": 3, "budget": 3, "choose": 4})
def inbox() -> None:
    """What waits for a person: effects that may have happened, code that differs."""


@command(inbox, "ls", lists=True)
@click.option("--check", is_flag=True, help="exit 4 when anything waits, for monitors")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(_KINDS), help="of this kind only; repeatable")
def ls(session: Session, check: bool, kinds: tuple[str, ...]) -> int:
    """List what waits for a person."""
    with session.reading() as log:
        found: list[Any] = []
        idle = 0
        for head in heads_from(log):
            view, _ = reading.read_run(log.store, head.run)
            found += [_row_shape(view, i) for i in reading.inbox_of(view) if not kinds or i.kind in kinds]
            idle += head.state in {"PENDING", "RUNNING"} and not desk.driven(head, getattr(log.store, "path", None))
    ids = [one["id"] for one in found]
    rest = found[ids.index(session.after) + 1 :] if session.after in ids else found
    shown, more = part_of(session, rest, most=None)
    rows = [
        (i["id"], i["kind"], session.out.when(us_of(i["since"])), i["effect_class"] or "", i["summary"], i["claimed_by"])
        for i in shown
    ]
    session.out.show(
        list(shown),
        lambda: session.out.table(("id", "kind", "since", "class", "what", "claimed by"), rows) if rows else None,
        truncated=more,
        after=shown[-1]["id"] if more else None,
    )
    if found and not more:
        session.out.say(f"look at one: {session.command(f'poimen inbox show {shlex.quote(ids[0])}')}")
    elif not found:
        session.out.say("nothing waits for a person")
    if idle:
        session.out.say(f"{idle} run(s) are not driven by anybody: {session.command('poimen doctor')}")
    return 4 if check and found else 0


def _row_shape(view: RunView, item: InboxItem) -> dict[str, Json]:
    intent = _intent_of(view, item)
    last = intent.sends[-1] if intent is not None else None
    return {
        "id": item.id,
        "kind": item.kind,
        "run_id": item.run_id,
        "summary": item.summary,
        "lsn": item.lsn,
        "since": rfc3339(last.at if last is not None else view.latest_at),
        "tool": intent.pending.tool if intent is not None else None,
        "effect_class": intent.effect_class.name if intent is not None else None,
        "sends": len(intent.sends) if intent is not None else None,
        "claimed_by": intent.claimed_by if intent is not None else "",
    }


def _intent_of(view: RunView, item: InboxItem) -> IntentView | None:
    every = (i for line in view.branches.values() for i in line.intents())
    return next((i for i in every if str(i.id) == item.id), None) if item.kind == "effect" else None


# ---- one item --------------------------------------------------------------------------------------------------


@command(inbox, "show")
@click.argument("item")
def show(session: Session, item: str) -> None:
    """Show one item: what, when, with what, what was done, what is not known, and the commands that decide it."""
    with session.reading() as log:
        view, intent, found = _find(log, item)
        head = log.store.head(view.run)
        if head is None:
            raise NotFound(f"no run is called {view.run!r}", hint="poimen runs ls")
        run = row_shape(session, log, head)
        shape: dict[str, Any] = {
            "id": found.id if found is not None else str(intent.id) if intent is not None else view.run,
            "kind": found.kind if found is not None else "effect",
            "waits": found is not None,
            "lsn": found.lsn if found is not None else view.lsn,
            "summary": found.summary if found is not None else "",
            "run": run,
        }
        if intent is not None:
            about = records_by_intent(log, view.run).get(str(intent.id).removeprefix(f"{view.run}/"), [])
            shape["intent"] = intent_shape(view, intent, about, log, content=session.content)
            shape["lsn"] = intent.last_lsn
            shape["meaning"] = MEANING[intent.demoted_to or intent.effect_class]
            shape["unknown"] = [
                f"whether send {send.send} (LSN {send.lsn}) has landed"
                for send in intent.sends
                if intent.open and send.outcome is None
            ]
            shape["commands"] = _commands(session, intent) if intent.open else []
        else:
            shape["commands"] = [run["command"]] if run["command"] else []
    session.out.show(shape, lambda: _print_effect(session, shape) if "intent" in shape else _print_other(session, shape))


def _find(log: Log, text: str) -> tuple[RunView, IntentView | None, InboxItem | None]:
    """What is meant: an intent, in the inbox or not, or a run that waits for something else."""
    run, _, rest = text.partition("/")
    view, _ = reading.read_run(log.store, reading.find_run(log.store, run))
    items = reading.inbox_of(view)
    if not rest and not any(item.kind == "effect" for item in items):
        if not items:
            raise NotFound(f"nothing of run {view.run} waits for a person", hint=f"poimen runs show {view.run}")
        return view, None, items[0]
    view, intent = reading.intent_by_prefix(log.store, text, unresolved=True)
    return view, intent, next((item for item in items if item.id == str(intent.id)), None)


def _commands(session: Session, intent: IntentView) -> list[str]:
    said = "--why WHY --evidence EVIDENCE"
    one = shlex.quote(str(intent.id))
    sure = f"{said} --expect-lsn {intent.last_lsn} --confirm {one}"
    probe = [f"poimen inbox probe {one} --module MODULE"] if intent.pending.terms.probe else []
    found = [
        *probe,
        f"poimen inbox resolve {one} --landed --value JSON {sure}",
        f"poimen inbox resolve {one} --not-landed {sure}",
        f"poimen inbox resolve {one} --abandon {sure}",
    ]
    return [session.command(text) for text in found]


def _print_effect(session: Session, item: dict[str, Any]) -> None:
    out, one = session.out, item["intent"]
    head = "may have happened, verify first" if item["waits"] else f"nothing is to be decided: {_closed(one)}"
    out.line(f"{head}: {one['summary']}", bold=True)
    sent = [us_of(r["at"]) for r in one["records"] if r["kind"] == "IntentDispatched"]
    judged = "" if one["judged_as"] == one["effect_class"] else f" ({one['effect_class']} when it was begun)"
    rows = [
        ("intent", one["id"]),
        ("run", f"{item['run']['id']}, {item['run']['workflow']}, {item['run']['state']}"),
        ("tool", f"{one['tool']} {one['version']}"),
        ("class", f"{one['judged_as']}{judged}: {item['meaning']}"),
        ("request id", f"{one['request_id']} (the name that the far side was given)"),
        ("sent", f"{one['sends']} time(s), last {out.when(sent[-1])}" if sent else "never"),
        ("args", args_text(one["args"])),
        ("claimed by", one["claimed_by"] or ""),
    ]
    for name, value in rows:
        if value:
            out.line(f"{name:<12}{value}")
    print_records(session, one)
    out.line()
    if item["unknown"]:
        out.line("not known", bold=True)
        for text in item["unknown"]:
            out.line(f"  {text}")
        out.line()
        out.line(f"look at the far side for request id {one['request_id']}, then (last record about it: LSN {item['lsn']})")
        for text in item["commands"]:
            out.line(f"  {text}")
        out.line("landed: the run goes on with the value (what the call would have returned; null without --value)")
        out.line("not landed: it is sent anew. abandon: the step fails with EffectAbandoned")
    if item["run"]["reason"] and not item["unknown"]:
        out.line(f"the run: {item['run']['reason']}")
        out.line(f"  {item['run']['command']}")


def _closed(one: dict[str, Any]) -> str:
    closed = one["resolution"]
    if closed is not None:
        return f"{closed['to'].replace('_', ' ')}, said {closed['by']} ({closed['rule']})"
    return WORDS["never_sent"] if one["state"] == "pending" else one["state"] if not one["open"] else "it is at work"


def _print_other(session: Session, item: dict[str, Any]) -> None:
    out = session.out
    out.line(f"run {item['run']['id']} waits: {item['summary']}", bold=True)
    out.line(f"why         {item['run']['reason']}")
    out.line("nothing was executed, nothing was lost")
    for text in item["commands"]:
        out.line(f"go on       {text}")


# ---- asking, claiming ------------------------------------------------------------------------------------------


@command(inbox, "claim")
@click.argument("intent")
@changing
def claim(session: Session, intent: str, by: str | None, why: str | None) -> None:
    """Say that you are looking at an effect, so that nobody else begins."""
    del why  # a claim says who; what was found out is said by the resolution
    by = session.by(by)
    with session.reading() as log:
        _, known = reading.intent_by_prefix(log.store, intent, unresolved=True)
    before = known.claimed_by
    if before != by and not session.dry_run:
        with session.writing() as log:
            desk.claim(log.store, log.door, str(known.id), by=by)
    data = {"id": str(known.id), "claimed_by": by, "before": before or None, "dry_run": session.dry_run}
    data["changed"] = before != by and not session.dry_run
    said = "is yours already" if before == by else "would be yours" if session.dry_run else "is yours"
    took = f"; {before} had claimed it" if before not in {"", by} else ""
    session.out.show(data, lambda: session.out.line(f"{known.id} {said}{took}"))


@command(inbox, "probe")
@click.argument("intent")
@click.option("--module", help="the code: an importable name, or a file")
@changing
def probe(session: Session, intent: str, module: str | None, by: str | None, why: str | None) -> None:
    """Ask the far side whether an effect has landed. What it says is a record, and decides nothing."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from poimen import effects
    from poimen.cli.running import load
    from poimen.declare.registry import Registry

    del why  # a question needs no reason
    by = session.by(by)
    with session.reading() as log:
        _, known = reading.intent_by_prefix(log.store, intent, unresolved=True)
    if not known.open:
        raise Conflict(f"{known.id} is not open: nothing is to be asked", hint=f"poimen intents show {known.id}")
    if module is None:
        raise click.UsageError(f"--module is missing: the probe of {known.pending.tool} is code, name where it is")
    registry = Registry()
    registry.add_module(load(module))
    if session.dry_run:
        data: dict[str, Any] = {"id": str(known.id), "dry_run": True}
        session.out.show(data, lambda: session.out.line(f"would ask the probe of {known.pending.tool}"))
        return
    with session.writing() as log, ThreadPoolExecutor(1) as threads:
        asking = desk.ask_probe(log.store, log.door, log.bodies, registry, str(known.id), by=by, threads=threads)
        answer = asyncio.run(asking)
        _, known = reading.find_intent(log.store, str(known.id))
    said = known.probes[-1][1]
    value = values.dump(answer.value, path="value") if isinstance(answer, effects.Landed) else None
    data = {"id": str(known.id), "answer": said.answer, "evidence": said.evidence, "lsn": known.last_lsn, "by": by}
    data["value"] = json.loads(value) if value is not None else None
    session.out.show(data, lambda: session.out.line(f"{said.answer}" + (f": {said.evidence}" if said.evidence else "")))
    which = {"landed": f"--landed --value {shlex.quote((value or b'null').decode())}", "absent": "--not-landed"}
    if said.answer in which:
        sure = f"--why WHY --expect-lsn {known.last_lsn} --confirm {shlex.quote(str(known.id))}"
        text = f"poimen inbox resolve {shlex.quote(str(known.id))} {which[said.answer]} {sure}"
        session.out.say(f"recorded, nothing is decided; if it convinces you:\n  {session.command(text)}")


# ---- resolving -------------------------------------------------------------------------------------------------

To = Literal["landed", "not_landed", "abandoned"]


@command(inbox, "resolve")
@click.argument("intent")
@click.option("--landed", "to", flag_value="landed", help="it happened")
@click.option("--not-landed", "to", flag_value="not_landed", help="it did not happen: it is sent anew")
@click.option("--abandon", "to", flag_value="abandoned", help="nobody will know: the step fails")
@click.option("--value", help="with --landed: what the call would have returned, as JSON or @FILE")
@click.option("--module", help="with --value: check it against the tool's result type")
@click.option("--evidence", default="", help="what was seen, and where")
@click.option("--expect-lsn", type=int, help="of the last record about it that you saw; a later one is a conflict")
@click.option("--confirm", metavar="ID", help="the intent's whole id, where nobody can be asked")
@changing
def resolve(
    session: Session,
    intent: str,
    to: To | None,
    value: str | None,
    module: str | None,
    evidence: str,
    expect_lsn: int | None,
    confirm: str | None,
    by: str | None,
    why: str | None,
) -> None:
    """Close one effect that may have happened: say what you have found out."""
    if to is None:
        raise click.UsageError("say what you have found out: --landed, --not-landed or --abandon")
    if value is not None and to != "landed":
        raise click.UsageError("--value belongs to --landed: what did not land has returned nothing")
    body = _value(value) if value is not None else None
    with session.reading() as log:
        _, known = reading.intent_by_prefix(log.store, intent, unresolved=True)
        before = _same_before(log, known, to, body)
    if module is not None and to == "landed":
        _check_type(known, body or b"null", module)
    if not before:
        why = _sure(session, known, to, confirm, why)
    lsn = known.last_lsn
    if not before and not session.dry_run:
        with session.writing() as log:
            payload = body if body is None or len(body) <= _INLINE else log.bodies.put(body)
            lsn = desk.resolve(
                log.store,
                log.door,
                str(known.id),
                to,
                by=session.by(by),
                why=why or "",
                evidence=evidence,
                value=payload,
                expect_lsn=expect_lsn if expect_lsn is not None else known.last_lsn,
            ).first
    elif not before and expect_lsn not in {None, known.last_lsn}:
        raise Conflict(f"something about {known.id} has changed since LSN {expect_lsn}", where=f"LSN {known.last_lsn}")
    _resolved(session, known, to, lsn, before=before)


def _value(text: str) -> bytes:
    """A value given as JSON or as a file of JSON, in its stored form."""
    said = text
    if text.startswith("@"):
        try:
            said = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"--value {text} cannot be read: {error}") from error
    try:
        return values.dump(json.loads(said), path="value")
    except ValueError as error:
        raise click.UsageError(f"--value is not JSON: {error}; a text needs quotes: --value '\"text\"'") from error


def _same_before(log: Log, intent: IntentView, to: To, value: bytes | None) -> bool:
    """Whether the intent was resolved in this way before.

    Raises:
        Conflict: it was closed otherwise.
    """
    closed = intent.resolution
    if intent.open:
        return False
    if closed is not None and closed.to.value == to:
        recorded = closed.value if closed.value is not None else b"null"
        body = recorded if isinstance(recorded, bytes) else log.bodies.get(recorded.digest)
        if value is None or value == body:
            return True
    how = f"resolved as {closed.to.value} by {closed.by}" if closed is not None else intent.state.value
    what = " with another value" if closed is not None and closed.to.value == to else ""
    raise Conflict(
        f"{intent.id} is not open: {how}{what}",
        where=f"LSN {intent.last_lsn}",
        why="the first resolution stands" if closed is not None else "only what may have been sent can be resolved",
        hint=f"poimen intents show {intent.id}",
        lsn=intent.last_lsn,
    )


def _check_type(intent: IntentView, value: bytes, module: str) -> None:
    """Refuse a value that the tool's code could not read."""
    from poimen.cli.running import load
    from poimen.declare.registry import Registry

    registry = Registry()
    registry.add_module(load(module))
    spec = registry.tool("tool", intent.pending.tool) or registry.tool("model", intent.pending.tool)
    if spec is None:
        raise NotFound(f"{module} has no tool called {intent.pending.tool}", hint="name the module that declares it")
    values.load(value, spec.parameters.result, path=f"--value as the result of {spec.name}")


def _sure(session: Session, intent: IntentView, to: To, confirm: str | None, why: str | None) -> str:
    """Make sure that a person means this intent; returns why.

    Raises:
        click.UsageError: nobody can be asked, and the line does not say it.
    """
    word = to.replace("_", "-")
    if confirm is not None and confirm != str(intent.id):
        raise click.UsageError(f"--confirm names {confirm}, the intent is {intent.id}: nothing was recorded")
    if session.dry_run:
        return why or ""
    if confirm is None and not session.asks:
        missing = "" if why else " and --why"
        raise click.UsageError(f"nobody can be asked here: give --confirm {shlex.quote(str(intent.id))}{missing}")
    why = session.why(why, what=f"say {word}")
    if confirm is None:
        session.out.say(f"{intent.pending.summary or intent.pending.tool}\n{intent.id}, LSN {intent.last_lsn}")
        said = click.prompt(f"type {word} to record that, anything else to stop", err=True)
        if said.strip() not in {word, to}:
            raise click.Abort
    return why


def _resolved(session: Session, intent: IntentView, to: To, lsn: int, *, before: bool) -> None:
    word = to.replace("_", " ")
    changed = not before and not session.dry_run
    said = "was resolved so before" if before else "would be resolved" if session.dry_run else "resolved"
    data = {"id": str(intent.id), "to": to, "changed": changed, "dry_run": session.dry_run, "lsn": lsn}
    session.out.show(data, lambda: session.out.line(f"{intent.id}: {word}, {said}"))
    if not changed:
        return
    with session.reading() as log:
        row = row_shape(session, log, next(heads_from(log, intent.id.run)))
    if row["command"]:
        session.out.say(f"run {row['id']} is {row['state']}, {row['reason']}\n      go on: {row['command']}")
