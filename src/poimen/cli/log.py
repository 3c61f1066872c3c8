"""`poimen log` and `poimen db`: the records as written, the chain over them, the file that they lie in.

Records are shown without being understood, so those of a newer version can be read too. This module must never
repair a record; it keeps the invariant that damage is told with its run and LSN, and ends with exit 7.

Source: design api.md, "Command line"; storage.md, "The log".
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from poimen.blobs.api import gone
from poimen.cli.frame.bodies import record_shape, told
from poimen.cli.frame.declaring import clipped, command, noun
from poimen.cli.frame.output import as_json, one_line, us_of
from poimen.cli.frame.session import is_there, part_of
from poimen.cli.intents import heads_from
from poimen.engine import reading
from poimen.engine.checking import damages
from poimen.kernel.errors import ConfigurationError, Corrupt
from poimen.log.opening import file_of, redacted, sides_of, sqlite_version

if TYPE_CHECKING:
    from pathlib import Path

    from poimen.cli.frame.session import Log, Session
    from poimen.log.api import Record

DAMAGED: Final = 7
_TAIL: Final = 20
_DIGITS: Final = 18
"""Of a number that SQLite can hold."""
_LOOK_S: Final = 0.2
"""How often `--follow` looks, in seconds."""

# ---- records ---------------------------------------------------------------------------------------------------


@noun("log", default="tail", later={"grep": 3, "at": 4})
def log() -> None:
    """The records as written."""


def _number(session: Session, what: str) -> int:
    """--after as a number."""
    if session.after and not (session.after.isdecimal() and len(session.after) <= _DIGITS):
        raise click.UsageError(f"--after {clipped(session.after)!r} is no {what}")
    return int(session.after or 0)


@command(log, "show", lists=True)
@click.argument("run")
def show(session: Session, run: str) -> None:
    """Show the records of a run in LSN order; --after LSN goes on after one."""
    after = _number(session, "LSN")
    with session.reading() as opened:
        found = opened.store.read(reading.find_run(opened.store, run), after=after)
        kept, more = part_of(session, found, most=None)
        shown = [record_shape(one, opened, content=session.content) for one in kept]
    session.out.show(
        shown,
        lambda: _print(session, shown, of_run=True),
        truncated=more,
        after=kept[-1].lsn if more else None,
    )


@command(log, "tail", lists=True)
@click.option("-f", "--follow", is_flag=True, help="go on with what is appended, until interrupted")
def tail(session: Session, follow: bool) -> None:
    """Show the newest records of all runs; --after POSITION shows those behind a feed position."""
    if follow and session.out.form == "json":
        raise click.UsageError("--follow never ends, so it has no envelope: use --jsonl")
    limit = session.limit or _TAIL
    with session.reading() as opened:
        end = reading.feed_end(opened.store)
        after = _number(session, "feed position") if session.after else max(0, end - limit)
        found = opened.store.feed(after, limit=limit + 1)
        more = len(found) > limit
        shown = [_with_position(one, opened, session) for one in found[:limit]]
        last = found[:limit][-1].pos if shown else after
        session.out.show(
            shown,
            lambda: _print(session, shown, of_run=False),
            truncated=more and not follow,
            after=last if more and not follow else None,
        )
        while follow:
            fresh = opened.store.feed(last, limit=limit)
            last = fresh[-1].pos if fresh else last
            for one in fresh:
                shape = _with_position(one, opened, session)
                session.out.show([shape], partial(_print, session, [shape], of_run=False))
            if not fresh:
                threading.Event().wait(_LOOK_S)


def _with_position(record: Record, opened: Log, session: Session) -> dict[str, Any]:
    return {"pos": record.pos, **record_shape(record, opened, content=session.content)}


def _print(session: Session, shown: list[dict[str, Any]], *, of_run: bool) -> None:
    """One line a record; with --content its body too."""
    for one in shown:
        place = f"{one['lsn']:>5}" if of_run else f"{one['pos']:>7}  {one['run_id']} {one['lsn']}"
        when, said = session.out.when(us_of(one["at"])), one_line(says(one), most=400)
        session.out.line(f"{place}  {when}  {one['kind']:<20} {one['subject']:<24} {said}".rstrip())
        if session.content:
            session.out.line(f"       {as_json(one['body'])}")


def says(one: dict[str, Any]) -> str:
    """What a record says, in a few words and without the bodies that users brought.

    Arguments:
        one: as `record_shape` gives it.
    """
    kind, body = one["kind"], one["body"]
    with suppress(KeyError, TypeError):
        if kind == "AppendSettled":
            return f"{len(body['record_ids'])} doubtful record(s): {'found' if body['found'] else 'not there'}"
        if kind == "BranchWaiting":
            return ", ".join(f"{w['reason']}: {w['detail'] or w['about']}" for w in body["reasons"])
        if kind == "DecisionSettled":
            return f"{body['id']} {'rejected' if body['rejected'] else 'settled'} by {body['by']}: {body['why']}"
        if kind in _WORDS:
            return _WORDS[kind].format_map(body)
    return told(one)


_WORDS: Final = {
    "RunAdmitted": "{workflow} by {by}",
    "BranchResumed": "{why}",
    "BranchEnded": "{state} {cause}",
    "CancelRequested": "by {by}: {why}",
    "ResumeRequested": "by {by}: {why}",
    "AttemptStarted": "attempt {attempt}",
    "AttemptResumed": "attempt {attempt}",
    "AttemptSucceeded": "attempt {attempt}",
    "AttemptCancelled": "attempt {attempt}: {why}",
    "AttemptFailed": "attempt {attempt}: {error[type]}: {error[message]}",
    "AttemptTimedOut": "attempt {attempt}: {error[type]}: {error[message]}",
    "AttemptIndeterminate": "attempt {attempt}: {cause}",
    "DecisionRecorded": "{id}",
}


# ---- checking --------------------------------------------------------------------------------------------------


def _counted(opened: Log) -> dict[str, int | None]:
    """How many runs and records there are; None where damage forbids to tell."""
    with suppress(Corrupt):
        counted = {"runs": sum(1 for _ in heads_from(opened)), "records": reading.feed_end(opened.store)}
        if not opened.damaged:
            return dict(counted)
    return {"runs": None, "records": None}


def _check(session: Session) -> int:
    with session.reading() as opened:
        found = list(damages(opened.store, opened.bodies))
        data = {"ok": not found, **_counted(opened), "damages": found}

    def text() -> None:
        for one in found:
            place = f"run {one['run_id']} LSN {one['lsn'] or '?'}: " if one["run_id"] else ""
            session.out.line(f"{place}{one['what']}")
        if not found:
            session.out.line(f"whole: {data['runs']} runs, {data['records']} records")

    code = session.ends(DAMAGED if found else 0)
    session.out.show(data, text)
    if found:
        session.out.say(
            "nothing is repaired: restore a verified backup, or, for heads alone: poimen db check --rebuild"
        )
    return code


@command(log, "check")
def check(session: Session) -> int:
    """Read everything: the chain over the records, heads, blobs, the anchor. Exit 7 on damage."""
    return _check(session)


# ---- the database ----------------------------------------------------------------------------------------------


@noun("db", default="info", later={"migrate": 4, "gc": 4})
def db() -> None:
    """The database: what it is, whether it is whole, a copy of it."""


def database(session: Session) -> dict[str, Any]:
    """What can be said of the database without opening it, and why it is this one."""
    where = session.location
    file = file_of(where.url)
    found: dict[str, Any] = {
        "url": redacted(where.url),
        "source": "--db" if session.db is not None else where.source,
        "path": _absolute(file),
        "exists": file is None or is_there(file),
        "sqlite": sqlite_version(),
        "bytes": 0,
        "wal_bytes": 0,
        "doubt_open": False,
        "doubts_settled": 0,
    }
    if file is not None:
        sides = sides_of(file)
        found["bytes"], found["wal_bytes"] = _size(sides.db), _size(sides.wal)
        found["doubt_open"] = is_there(sides.doubt)
        with suppress(OSError):
            found["doubts_settled"] = sides.doubt_log.read_bytes().count(b"\n")
    return found


def _absolute(file: Path | None) -> str | None:
    """The path from the root; as it was named where the folder here is gone."""
    try:
        return str(file.absolute()) if file is not None else None
    except FileNotFoundError:
        return str(file)


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


@command(db, "info")
def info(session: Session) -> None:
    """Show which database it is, why, its size, and what is in it."""
    data = database(session)
    with session.reading() as opened:
        states: dict[str, int] = {}
        for head in heads_from(opened):
            states[head.state] = states.get(head.state, 0) + 1
        data |= {"runs": states, "records": reading.feed_end(opened.store)}

    def text() -> None:
        counts = ", ".join(f"{n} {state}" for state, n in sorted(states.items()))
        for name, value in {**data, "runs": counts or "none"}.items():
            session.out.line(f"{name:<16}{value}")

    session.out.show(data, text)


@command(db, "check")
@click.option("--rebuild", is_flag=True, help="derive the heads of all runs anew from their records, then check")
def db_check(session: Session, rebuild: bool) -> int:
    """As `log check`; with --rebuild the heads are derived anew first. Records are never repaired."""
    if session.writes(when=rebuild):
        session.confirm("derive the heads of all runs anew?")
        with session.writing() as opened:
            changed = opened.store.rebuild(reading.state_of)
        session.out.say(f"{changed} head(s) had to change")
    return _check(session)


@command(db, "backup")
@click.argument("to")
def backup(session: Session, to: str) -> None:
    """Write a checked copy, large bodies included, to a new file; it appears when it is whole."""
    _backup(session, file_of(to))


def _copied(opened: Log, to: Path) -> int:
    """Copy the bodies in files, and see that all that records name are there; how many were copied.

    Raises:
        Corrupt: one that a record names is gone.
    """
    copied = opened.bodies.copy(to.absolute())
    _refuse_gone(opened)
    return copied


def _refuse_gone(opened: Log) -> None:
    """See that all bodies that records name are there.

    Raises:
        Corrupt: one is gone.
    """
    for head in heads_from(opened):
        for lsn, ref in reading.bodies_named(opened.store.read(head.run)):
            if not opened.bodies.has(ref.digest):
                raise gone(ref.digest, f"run {head.run} LSN {lsn}", opened.bodies.place(ref.digest))


def _backup(session: Session, to: Path | None) -> None:
    if to is None:
        raise click.UsageError("a backup is a file: name one, memory is gone with the process")
    if session.dry_run:
        session.try_writing()
        with session.reading() as opened:
            if is_there(to):
                raise ConfigurationError(f"{to} exists", where=str(to), hint="name a new file; nothing is overwritten")
            for damage in opened.store.check():
                where = f"{damage.run or to} LSN {damage.lsn}"
                raise Corrupt(f"the copy would not stand the check: {damage.what}", where=where)
            _refuse_gone(opened)
        session.out.show({"to": str(to), "dry_run": True}, lambda: session.out.line(f"would write {to}"))
        return
    with session.writing() as opened:
        copied: list[int] = []
        opened.store.backup(to, bodies=lambda: copied.append(_copied(opened, to)))
        bodies = sum(copied)
    data = {"to": str(to.absolute()), "bytes": _size(to), "bodies": bodies, "dry_run": False}
    session.out.show(data, lambda: session.out.line(f"{to}: {data['bytes']} bytes, {bodies} bodies beside it"))
