"""`poimen inbox resolve`: a person closes one effect that may have happened.

The id must be said twice, or typed by somebody who can be asked; no option says yes to it. The same resolution again
is no error, another one is a conflict. This module must never guess; it keeps the invariant that a resolution hits
exactly one intent, against the LSN that its author saw.

Source: design api.md, "Command line"; protocol.md, section 5 ("After Indeterminate").
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from poimen.cli.frame.arguments import from_json
from poimen.cli.frame.declaring import changing, command, word
from poimen.cli.intents import heads_from
from poimen.cli.runs import row_shape
from poimen.declare import values
from poimen.declare.registry import Registry
from poimen.engine import desk, reading, standing
from poimen.kernel.errors import Conflict, NotFound, NotStorable
from poimen.kernel.ids import said as must_be_text

if TYPE_CHECKING:
    from poimen.cli.frame.session import Log, Session
    from poimen.kernel.views import IntentView

To = Literal["landed", "not_landed", "abandoned"]
_OPTIONS: Final[dict[To, str]] = {"landed": "landed", "not_landed": "not-landed", "abandoned": "abandon"}


@command(None, "resolve")
@click.argument("intent")
@click.option("--landed", is_flag=True, help="it happened")
@click.option("--not-landed", is_flag=True, help="it did not happen: a run that goes on sends it anew")
@click.option("--abandon", is_flag=True, help="nobody will know: in a run that goes on the step fails")
@click.option("--value", help="with --landed: what the call would have returned, as JSON or @FILE")
@click.option("--module", help="with --value: check it against the tool's result type")
@click.option("--evidence", default="", help="what was seen, and where")
@click.option(
    "--expect-lsn",
    type=click.IntRange(0, 2**63 - 1),
    help="of the last record about it that you saw; a later one is a conflict",
)
@click.option("--confirm", metavar="ID", help="the intent's whole id, where nobody can be asked")
@changing
def resolve(
    session: Session,
    *,
    intent: str,
    landed: bool,
    not_landed: bool,
    abandon: bool,
    value: str | None,
    module: str | None,
    evidence: str,
    expect_lsn: int | None,
    confirm: str | None,
    by: str | None,
    why: str | None,
) -> None:
    """Close one effect that may have happened: say what you have found out."""
    said: dict[To, bool] = {"landed": landed, "not_landed": not_landed, "abandoned": abandon}
    chosen = [name for name, given in said.items() if given]
    if len(chosen) != 1:
        raise click.UsageError("say one thing that you have found out: --landed, --not-landed or --abandon")
    to = chosen[0]
    must_be_text(evidence=evidence)
    if value is not None and to != "landed":
        raise click.UsageError("--value belongs to --landed: what did not land has returned nothing")
    body = _value(value) if value is not None else None
    with session.reading() as log:
        view, known = reading.intent_by_prefix(log.store, intent, unresolved=True)
        ended = standing.follows(view, known)
        before = _same_before(log, known, to, body)
    if module is not None and to == "landed":
        _check_type(known, body or b"null", module)
    if not before:
        why = _sure(session, known, to, confirm, why, ended=ended)
        with session.reading() as log:
            desk.may_resolve(log.store, str(known.id), to, value=body)
    lsn = known.last_lsn
    if session.writes(when=not before):
        with session.writing() as log:
            payload = log.bodies.payload(body) if body is not None else None
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
    elif not before and expect_lsn is not None and expect_lsn < known.last_lsn:
        raise Conflict(
            f"something about {known.id} has changed since LSN {expect_lsn}",
            where=f"LSN {known.last_lsn}",
            hint=standing.look_again(str(known.id)),
        )
    _resolved(session, known, to, lsn, before=before, ended=ended, module=module)


def consequences(ended: str) -> list[str]:
    """What follows from each thing that a person may find out.

    Arguments:
        ended: why the run does not go on by it, as `standing.follows` gives it.
    """
    if ended:
        return [f"{ended}: what you find out is recorded, nothing is sent and nothing goes on"]
    return [
        "landed: the run goes on with the value, what the call would have returned",
        "not landed: it is sent anew. abandon: the step fails with EffectAbandoned",
    ]


def _value(text: str) -> bytes:
    """A value given as JSON or as a file of JSON, in its stored form."""
    said = text
    if text.startswith("@"):
        try:
            said = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"--value {text} cannot be read: {error}") from error
    try:
        return values.dump(from_json(said), path="value")
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
        body = log.bodies.read(recorded, f"the resolution of {intent.id}")
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

    registry = Registry()
    registry.add_module(load(module))
    spec = registry.tool("tool", intent.pending.tool) or registry.tool("model", intent.pending.tool)
    if spec is None:
        raise NotFound(f"{module} has no tool called {intent.pending.tool}", hint="name the module that declares it")
    try:
        spec.parameters.load_result(value, path="--value")
    except NotStorable as error:
        raise click.UsageError(f"{error.message}: {spec.name} could not have returned that") from error


def _sure(session: Session, intent: IntentView, to: To, confirm: str | None, why: str | None, *, ended: str) -> str:
    """Make sure that a person means this intent; returns why.

    Raises:
        click.UsageError: nobody can be asked, and the line does not say it.
    """
    said_so = _OPTIONS[to]
    if confirm is not None and confirm != str(intent.id):
        raise click.UsageError(f"--confirm names {confirm}, the intent is {intent.id}: nothing was recorded")
    if session.dry_run:
        return why or ""
    if confirm is None and not session.asks:
        missing = "" if why else " and --why"
        raise click.UsageError(f"nobody can be asked here: give --confirm {word(str(intent.id))}{missing}")
    why = session.why(why, what=f"say {said_so}")
    if confirm is None:
        session.out.say(intent.says, f"{intent.id}, LSN {intent.last_lsn}", *consequences(ended))
        said = click.prompt(f"type {said_so} to record that, anything else to stop", err=True)
        if said.strip() != said_so:
            raise click.Abort
    return why


def _resolved(
    session: Session, intent: IntentView, to: To, lsn: int, *, before: bool, ended: str, module: str | None
) -> None:
    what = to.replace("_", " ")
    changed = not before and not session.dry_run
    said = "was resolved so before" if before else "would be resolved" if session.dry_run else "resolved"
    data = {"id": str(intent.id), "to": to, "changed": changed, "dry_run": session.dry_run, "lsn": lsn}
    session.out.show(data, lambda: session.out.line(f"{intent.id}: {what}, {said}"))
    if not changed:
        return
    with session.reading() as log:
        row = row_shape(session, log, next(heads_from(log, intent.id.run)))
    if ended:
        session.out.say(consequences(ended)[0])
    if row["command"]:
        what = row["command"].replace("FILE_OR_MODULE", word(module)) if module is not None else row["command"]
        session.out.say(f"run {row['id']} is {row['state']}, {row['reason']}", f"      go on: {what}")
