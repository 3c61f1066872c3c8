"""`poimen inbox`: what waits for a person, with all that is known of it, and the commands that decide it.

A person on call has two minutes to understand and five to decide. This module must never decide; it keeps the
invariants that a resolution hits one intent, whose id the person has said, and that what is not known is said.

Source: design api.md, "Command line"; mission.md, "Users"; protocol.md, section 5 ("After Indeterminate").
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from poimen.cli.frame.bodies import WORDS, args_text, body_of
from poimen.cli.frame.declaring import changing, clipped, command, noun, word
from poimen.cli.frame.output import Json, rfc3339, us_of
from poimen.cli.frame.session import part_of
from poimen.cli.intents import (
    MEANING,
    heading,
    heads_from,
    intent_shape,
    outcome_text,
    print_records,
    records_by_intent,
)
from poimen.cli.resolving import consequences, resolve
from poimen.cli.runs import row_shape
from poimen.engine import desk, reading, standing
from poimen.kernel.errors import Conflict, NotFound
from poimen.kernel.intent import written

if TYPE_CHECKING:
    from poimen.cli.frame.session import Log, Session
    from poimen.engine.surface.results import InboxItem
    from poimen.kernel.views import IntentView, RunView

_LAST: Final = sys.maxsize
_KINDS: Final = ["effect", "question", "budget", "code"]


@noun("inbox", later={"answer": 3, "budget": 3, "choose": 4})
def inbox() -> None:
    """What waits for a person: effects that may have happened, code that differs."""


inbox.add_command(resolve)


@command(inbox, "ls", lists=True)
@click.option("--check", is_flag=True, help="exit 4 when anything waits, for monitors")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(_KINDS), help="of this kind only; repeatable")
def ls(session: Session, check: bool, kinds: tuple[str, ...]) -> int:
    """List what waits for a person."""
    with session.reading() as log:
        found: list[Any] = []
        places: list[tuple[str, int]] = []
        says: dict[str, str] = {}
        idle = 0
        behind = _place(log, session.after) if session.after else ("", 0)
        for head in heads_from(log):
            with log.passing_damage():
                view, _ = reading.read_run(log.store, head.run)
                items = [i for i in standing.inbox_of(view) if not kinds or i.kind in kinds]
                found += [_row_shape(view, i) for i in items]
                says |= {i.id: _says(log, view, i, content=session.content) for i in items}
                places += [(view.run, _order(view).get(i.id, _LAST)) for i in items]
            idle += head.state in {"PENDING", "RUNNING"} and not desk.driven(head, log.store)
    ids = [one["id"] for one in found]
    rest = [one for one, place in zip(found, places, strict=True) if place > behind]
    shown, more = part_of(session, rest, most=None)
    rows = [
        (
            i["id"],
            i["kind"],
            session.out.when(us_of(i["since"])),
            i["effect_class"] or "",
            says[i["id"]],
            i["claimed_by"],
        )
        for i in shown
    ]
    code = session.ends(4 if check and found else 0)
    session.out.show(
        list(shown),
        lambda: session.out.table(("id", "kind", "since", "class", "what", "claimed by"), rows) if rows else None,
        truncated=more,
        after=shown[-1]["id"] if more else None,
    )
    if found and not more:
        session.out.say(f"look at one: {session.command(f'poimen inbox show {word(ids[0])}')}")
    elif not found:
        session.out.say("nothing else waits for a person" if log.damaged else "nothing waits for a person")
    if idle:
        session.out.say(f"{idle} run(s) are not driven by anybody: {session.command('poimen doctor')}")
    return code


def _order(view: RunView) -> dict[str, int]:
    """Where each intent of a run stands in its list; what is said of the run itself comes last."""
    return {str(i.id): n for n, i in enumerate(i for line in view.branches.values() for i in line.intents())}


def _place(log: Log, item: str) -> tuple[str, int]:
    """Where an item stands, or stood: one that somebody has decided meanwhile keeps its place.

    Raises:
        NotFound: no item can have this id.
    """
    run, sep, _ = item.partition("/")
    if log.store.head(run) is not None:
        place = _order(reading.read_run(log.store, run)[0]).get(item, None if sep else _LAST)
        if place is not None:
            return run, place
    raise NotFound(f"--after {clipped(item)!r} is the id of no item", hint="poimen inbox ls")


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


def _says(log: Log, view: RunView, item: InboxItem, *, content: bool) -> str:
    """What an item is, for people: with `content`, a call whose author has no words for it is written out."""
    intent = _intent_of(view, item)
    if not content or intent is None or intent.pending.summary:
        return item.summary
    args = intent.pending.args or view.branches[intent.id.branch].steps[intent.id.step].args
    return item.summary.replace(intent.says, written(intent.pending.tool, body_of(args, log, content=True)))


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
            shape["follows"] = consequences(standing.follows(view, intent)) if intent.open else []
        else:
            shape["commands"] = [run["command"]] if run["command"] else []
    session.out.show(
        shape, lambda: _print_effect(session, shape) if "intent" in shape else _print_other(session, shape)
    )


def _find(log: Log, text: str) -> tuple[RunView, IntentView | None, InboxItem | None]:
    """What is meant: an intent, in the inbox or not, or a run that waits for something else."""
    run, _, rest = text.partition("/")
    view, _ = reading.read_run(log.store, reading.find_run(log.store, run))
    items = standing.inbox_of(view)
    unknown = any(line.unresolved() for line in view.branches.values())
    if not rest and not unknown:
        if not items:
            raise NotFound(f"nothing of run {view.run} waits for a person", hint=f"poimen runs show {view.run}")
        return view, None, items[0]
    view, intent = reading.intent_by_prefix(log.store, text, unresolved=True)
    return view, intent, next((item for item in items if item.id == str(intent.id)), None)


def _commands(session: Session, intent: IntentView) -> list[str]:
    said = "--why WHY --evidence EVIDENCE"
    one = word(str(intent.id))
    sure = f"{said} --expect-lsn {intent.last_lsn} --confirm {one}"
    value = "" if _returns_nothing(intent) else " --value JSON"
    probe = [f"poimen inbox probe {one} --module MODULE"] if intent.pending.terms.probe else []
    found = [
        *probe,
        f"poimen inbox resolve {one} --landed{value} {sure}",
        f"poimen inbox resolve {one} --not-landed {sure}",
        f"poimen inbox resolve {one} --abandon {sure}",
    ]
    return [session.command(text) for text in found]


def _returns_nothing(intent: IntentView) -> bool:
    """Whether there is no value to give."""
    return intent.pending.returns == "None"


def _print_effect(session: Session, item: dict[str, Any]) -> None:
    out, one = session.out, item["intent"]
    out.line(f"{_headline(item, one)}: {heading(session, one)}", bold=True)
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
        ("ALARM", one["contradiction"] or ""),
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
        out.line(
            f"look at the far side for request id {one['request_id']}, then (last record about it: LSN {item['lsn']})"
        )
        for text in item["commands"]:
            out.line(f"  {text}")
        for text in item["follows"]:
            out.line(text)
    if item["run"]["reason"] and not item["waits"]:
        out.line(f"the run: {item['run']['reason']}")
        out.line(f"  {item['run']['command']}")


def _headline(item: dict[str, Any], one: dict[str, Any]) -> str:
    closed = one["resolution"]
    if item["waits"]:
        return "may have happened, verify first"
    if closed is not None:
        return f"nothing is to be decided, {closed['to'].replace('_', ' ')}, said {closed['by']} ({closed['rule']})"
    if not one["open"]:
        return f"nothing is to be decided, {_end(one)}"
    if item["run"]["driven"]:
        return "at work: a live worker holds the run"
    return "may have happened, and nobody drives the run: start it again first, the class may settle it"


def _end(one: dict[str, Any]) -> str:
    return WORDS["never_sent"] if one["state"] == "pending" else outcome_text(one) or str(one["state"])


def _print_other(session: Session, item: dict[str, Any]) -> None:
    out = session.out
    out.line(f"run {item['run']['id']} waits: {item['summary']}", bold=True)
    out.line(f"why         {item['run']['reason']}")
    out.line("nothing was lost, what is recorded stands")
    recorded = f"poimen runs show {item['run']['id']} --content"
    out.line(f"recorded    {session.command(recorded)}")
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
    if before != by:
        desk.must_be_open(known)
    if session.writes(when=before != by):
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
    from concurrent.futures import ThreadPoolExecutor

    from poimen.cli.running import load
    from poimen.declare.registry import Registry
    from poimen.engine.eventloop.whole import run_whole

    del why  # a question needs no reason
    by = session.by(by)
    with session.reading() as log:
        _, known = reading.intent_by_prefix(log.store, intent, unresolved=True)
    if not known.open:
        raise Conflict(f"{known.id} is not open: nothing is to be asked", hint=f"poimen intents show {known.id}")
    if module is None:
        if not known.pending.terms.probe:
            raise desk.without_probe(known)
        raise click.UsageError(f"--module is missing: the probe of {known.pending.tool} is code, name where it is")
    registry = Registry()
    registry.add_module(load(module))
    desk.with_probe(registry, known)
    if not session.writes(when=True):
        data: dict[str, Any] = {"id": str(known.id), "dry_run": True}
        session.out.show(data, lambda: session.out.line(f"would ask the probe of {known.pending.tool}"))
        return
    threads = ThreadPoolExecutor(1)
    with session.writing() as log:
        asking = desk.ask_probe(log.store, log.door, log.bodies, registry, str(known.id), by=by, threads=threads)
        run_whole(asking)
        threads.shutdown(wait=False)  # a probe that was given up may be at work in it
        _, known = reading.find_intent(log.store, str(known.id))
        said = known.probes[-1][1]
        value = log.bodies.read(said.value, f"what the probe of {known.id} found") if said.value is not None else None
    data = {"id": str(known.id), "answer": said.answer, "evidence": said.evidence, "lsn": known.last_lsn, "by": by}
    data["value"] = json.loads(value) if value is not None else None
    given = "" if _returns_nothing(known) else f" --value {word((value or b'null').decode())}"
    which = {"landed": f"--landed{given}", "absent": "--not-landed"}
    command = ""
    if said.answer in which:
        sure = f"--why WHY --expect-lsn {known.last_lsn} --confirm {word(str(known.id))}"
        command = session.command(f"poimen inbox resolve {word(str(known.id))} {which[said.answer]} {sure}")
    data["command"] = command or None
    session.out.show(data, lambda: session.out.line(f"{said.answer}" + (f": {said.evidence}" if said.evidence else "")))
    if command:
        session.out.say("recorded, nothing is decided; if it convinces you:", f"  {command}")
