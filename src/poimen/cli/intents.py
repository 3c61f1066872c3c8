"""`poimen intents`: each external effect with its records, its frozen terms, and what became of it.

The shapes that other commands show of an intent are made here. This module must never decide anything; it keeps the
invariants that bodies are shown only with --content, and that a record is shown with its LSN and time.

Source: design api.md, "Command line"; protocol.md, section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from poimen.cli.frame.bodies import WORDS, args_text, body_of, body_shape, name_of, told
from poimen.cli.frame.declaring import command, noun
from poimen.cli.frame.output import Json, rfc3339, us_of
from poimen.cli.frame.session import part_of
from poimen.engine import reading, standing
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.intent import short, written
from poimen.log import codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from poimen.cli.frame.session import Log, Session
    from poimen.kernel.effect_class import Terms
    from poimen.kernel.intent import IntentResolved
    from poimen.kernel.views import IntentView, RunView
    from poimen.log.api import Head, Record

MEANING: Final = {
    EffectClass.PURE: "no effect on the outside: run again",
    EffectClass.READ: "only observes: sent again, the spend counts twice",
    EffectClass.IDEMPOTENT: "repeating it converges: sent again with the same arguments",
    EffectClass.KEYED: "the far side dedupes on the request id while it remembers it: sent again until then",
    EffectClass.PROBE: "the far side can be asked whether it landed",
    EffectClass.AT_MOST_ONCE: "never sent again by a machine: only a look at the far side can tell",
}
"""What a class means for an effect that may have happened."""

_A_PAGE: Final = 100

# ---- shapes ----------------------------------------------------------------------------------------------------


def records_by_intent(log: Log, run: str) -> dict[str, list[Record]]:
    """The records about each intent of a run, in LSN order, by `BRANCH/STEP/ATTEMPT/ORDINAL`."""
    found: dict[str, list[Record]] = {}
    for record in log.store.read(run):
        if record.subject.startswith("intent:"):
            found.setdefault(f"{record.branch}/{record.subject.removeprefix('intent:')}", []).append(record)
    return found


def intent_shape(view: RunView, intent: IntentView, records: Iterable[Record], log: Log, *, content: bool) -> Any:
    """An intent as JSON: its frozen terms, its sends, what a crash left, what was decided.

    Arguments:
        view: the run.
        intent: one of its intents.
        records: those about it.
        log: to fetch bodies from.
        content: whether bodies were asked for.
    """
    pending = intent.pending
    step = view.branches[intent.id.branch].steps[intent.id.step]
    request = view.requests.get(pending.request_id)
    shown = [_about(record, log, content=content) for record in records]
    return {
        "id": str(intent.id),
        "run_id": view.run,
        "branch": intent.id.branch,
        "step": intent.id.step,
        "attempt": intent.id.attempt,
        "ordinal": intent.id.ordinal,
        "tool": pending.tool,
        "version": pending.version,
        "summary": intent.says,
        "effect_class": intent.effect_class.name,
        "class_source": pending.class_source,
        "judged_as": (intent.demoted_to or intent.effect_class).name,
        "state": intent.state.value,
        "open": intent.open,
        "outcome": _outcome(intent),
        "request_id": pending.request_id,
        "generation": pending.generation,
        "first_sent_at": rfc3339(request.first_dispatched_at) if request and request.first_dispatched_at else None,
        "terms": _terms(pending.terms),
        "args": body_of(pending.args if pending.args is not None else step.args, log, content=content),
        "args_digest": pending.args_digest,
        "decision": pending.decision or None,
        "sends": len(intent.sends),
        "classification": intent.classification.value if intent.classification is not None else None,
        "claimed_by": intent.claimed_by or None,
        "probes": [one for one in shown if one["kind"] == "IntentProbed"],
        "rules": [one for one in shown if one["kind"] in {"RuleApplied", "IntentDemoted"}],
        "resolution": _resolution(intent.resolution, log, content=content),
        "contradiction": standing.contradiction(intent) or None,
        "lsn": intent.last_lsn,
        "records": shown,
    }


def _outcome(intent: IntentView) -> str | None:
    """What the world answered, None where it has not: then there is no record of it, or a resolution in its place."""
    said = intent.outcome or intent.late_no
    return next((name for name, kind in codec.OUTCOMES.items() if isinstance(said, kind)), None)


def may_have_acted(one: dict[str, Any]) -> bool:
    """Whether an effect has changed the world, or nobody knows that it has not; a READ changes nothing.

    Arguments:
        one: as `intent_shape` gives it.
    """
    closed = one["resolution"]
    acted = one["open"] or one["outcome"] == "returned" or (closed is not None and closed["to"] != "not_landed")
    return bool(acted) and one["effect_class"] != EffectClass.READ.name


def outcome_text(one: dict[str, Any]) -> str:
    """What the world answered, for people; empty where it has not.

    Arguments:
        one: as `intent_shape` gives it.
    """
    return str(one["outcome"] or "").replace("_", " ")


def _terms(terms: Terms) -> dict[str, Json]:
    return {
        "ttl_s": _seconds(terms.ttl_us),
        "lag_s": _seconds(terms.lag_us),
        "timeout_s": _seconds(terms.timeout_us),
        "grace_s": _seconds(terms.grace_us),
        "probe": terms.probe,
        "probe_version": terms.probe_version,
        "max_sends": terms.max_sends,
    }


def _resolution(closed: IntentResolved | None, log: Log, *, content: bool) -> dict[str, Json] | None:
    if closed is None:
        return None
    return {
        "to": closed.to.value,
        "rule": closed.rule,
        "by": closed.by,
        "why": closed.why,
        "evidence": closed.evidence,
        "value": body_of(closed.value, log, content=content),
    }


def _about(record: Record, log: Log, *, content: bool) -> dict[str, Any]:
    body = body_shape(record, log, content=content)
    rest = {k: v for k, v in body.items() if k not in {"step", "attempt", "ordinal", "terms", "args"}}
    return {"lsn": record.lsn, "at": rfc3339(record.at), "kind": name_of(record.kind), "body": rest}


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1_000_000


# ---- intents ---------------------------------------------------------------------------------------------------


def heads_from(log: Log, run: str = "", *, live: bool = False) -> Iterator[Head]:
    """All runs by id, from this one on.

    Arguments:
        log: the log.
        run: the first id that is wanted, if it exists.
        live: only those that have not ended.
    """
    first = log.store.head(run) if run else None
    if first is not None:
        yield first
    after = run
    with log.passing_damage():
        while page := log.store.heads(after=after, live=live):
            yield from page
            after = page[-1].run


@noun("intents")
def intents() -> None:
    """Every external effect: the intent, its sends, its outcome."""


@command(intents, "ls", lists=True)
@click.option("--run", "run", help="of this run only")
@click.option("--open", "only_open", is_flag=True, help="only those dispatched without an outcome")
def ls(session: Session, run: str | None, only_open: bool) -> None:
    """List intents in the order in which they were begun."""
    found: list[Any] = []
    most = None if run else _A_PAGE
    limit = session.limit or most
    with session.reading() as log:
        if session.after:
            reading.find_intent(log.store, session.after)
        begin = session.after.partition("/")[0]
        names = [reading.find_run(log.store, run)] if run else (head.run for head in heads_from(log, begin))
        past = not session.after
        for name in names:
            past = past or name > begin
            with log.passing_damage():
                view, _ = reading.read_run(log.store, name)
                records = records_by_intent(log, name)
                every = [i for line in view.branches.values() for i in line.intents()]
                for intent in sorted(every, key=lambda i: i.pending_lsn):
                    if past and (intent.open or not only_open):
                        about = records.get(str(intent.id).removeprefix(f"{name}/"), [])
                        found.append(intent_shape(view, intent, about, log, content=session.content))
                    past = past or str(intent.id) == session.after
            if limit is not None and len(found) > limit:
                break
    shown, more = part_of(session, found, most=most)
    columns = ("id", "class", "state", "outcome", "sends", "began", "after a crash", "resolution", "summary")
    session.out.show(
        list(shown),
        lambda: session.out.table(columns, (_row(session, one) for one in shown)),
        truncated=more,
        after=shown[-1]["id"] if more else None,
    )


def heading(session: Session, one: dict[str, Any]) -> str:
    """What an effect is, for people: its author's words; where there are none, the call, written out with --content.

    Arguments:
        session: says whether arguments were asked for.
        one: as `intent_shape` gives it.
    """
    bare = one["summary"] == short(one["tool"])
    return written(one["tool"], one["args"]) if bare and session.content else str(one["summary"])


def _row(session: Session, one: dict[str, Any]) -> tuple[str, ...]:
    closed = one["resolution"]
    began = session.out.when(us_of(one["records"][0]["at"])) if one["records"] else ""
    return (
        one["id"],
        one["effect_class"],
        one["state"],
        outcome_text(one),
        str(one["sends"]),
        began,
        WORDS.get(one["classification"] or "", ""),
        (f"{closed['to']} by {closed['by']}" + (": CONTRADICTED" if one["contradiction"] else "")) if closed else "",
        heading(session, one),
    )


@command(intents, "show")
@click.argument("intent")
def show(session: Session, intent: str) -> None:
    """Show one intent: records, frozen terms, sends, classification, rules, probes, resolution."""
    with session.reading() as log:
        view, found = reading.intent_by_prefix(log.store, intent)
        about = records_by_intent(log, view.run).get(str(found.id).removeprefix(f"{view.run}/"), [])
        shape = intent_shape(view, found, about, log, content=session.content)
    session.out.show(shape, lambda: print_intent(session, shape))


def print_intent(session: Session, one: dict[str, Any]) -> None:
    """Print an intent for people."""
    out, terms = session.out, one["terms"]
    out.line(heading(session, one), bold=True)
    judged = "" if one["judged_as"] == one["effect_class"] else f", judged as {one['judged_as']}"
    rows = [
        ("intent", one["id"]),
        ("state", f"{one['state']}, {one['sends']} send(s)" + (", open" if one["open"] else "")),
        ("outcome", outcome_text(one)),
        ("tool", f"{one['tool']} {one['version']}"),
        ("class", f"{one['effect_class']}{judged} ({one['class_source']}): {MEANING[EffectClass[one['judged_as']]]}"),
        ("request id", f"{one['request_id']}, generation {one['generation']}"),
        ("terms", ", ".join(f"{name} {value}" for name, value in terms.items() if value is not None)),
        ("args", args_text(one["args"])),
        ("decision", one["decision"] or ""),
        ("claimed by", one["claimed_by"] or ""),
        *_resolution_rows(one["resolution"]),
        ("ALARM", one["contradiction"] or ""),
    ]
    for name, value in rows:
        if value:
            out.line(f"{name:<12}{value}")
    print_records(session, one)


def _resolution_rows(closed: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Who closed it, why, from what; the value with --content, else its size."""
    if closed is None:
        return []
    value = args_text(closed["value"]) if closed["value"] is not None else ""
    return [
        ("resolved", f"{closed['to'].replace('_', ' ')} by {closed['by']} ({closed['rule']})"),
        ("why", closed["why"]),
        ("evidence", closed["evidence"]),
        ("value", value),
    ]


def print_records(session: Session, one: dict[str, Any]) -> None:
    """Print what the log has about an intent, a line a record."""
    rows = [
        (str(each["lsn"]), session.out.when(us_of(each["at"])), each["kind"], told(each)) for each in one["records"]
    ]
    session.out.line()
    session.out.table(("LSN", "time", "record", "says"), rows)
