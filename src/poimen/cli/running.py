"""`poimen run`: a workflow of a module or a file, its arguments from the line, driven to its end in this process.

The same id again goes on with the same run; without arguments it takes the recorded ones. This module must never know
what a run does; it keeps the invariant that all input is read and checked before anything is admitted.

Source: design api.md, "Command line" and "Calling".
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from poimen import clock
from poimen.cli.frame.arguments import bound, from_json
from poimen.cli.frame.declaring import clipped, command
from poimen.cli.frame.output import Json, one_line
from poimen.cli.main import exit_code
from poimen.declare import modules
from poimen.declare.registry import Registry
from poimen.declare.shapes import Call
from poimen.declare.specs import WorkflowSpec, spec_of
from poimen.engine import reading, standing
from poimen.engine.client import Client, same_input
from poimen.engine.eventloop.whole import run_whole
from poimen.engine.runtime import driven, one_by_one
from poimen.kernel.errors import NotFound, PoimenError, RunWaiting, StorageFailed
from poimen.kernel.ids import checked_tags
from poimen.kernel.ids import run_id as checked_id
from poimen.later import not_built

if TYPE_CHECKING:
    from types import ModuleType

    from poimen.cli.frame.session import Session
    from poimen.engine.handle import Run
    from poimen.engine.worker import Worker

_AT_ONCE: Final = 16
"""How many runs of one file move at once."""

_WORST_FIRST: Final = (1, 5, 2, 3, 4, 8, 9)
"""Of many runs: one that ended badly, then one that could not be begun, then one that waits."""

_GIVES_UP: Final = frozenset({6, 7})
"""Exits of errors that are not one run's own: the log itself has failed."""

# ---- the target ------------------------------------------------------------------------------------------------


def load(target: str) -> ModuleType:
    """Import a module by its name or as a file; the folder here, and `src/` in it, come first.

    Arguments:
        target: `package.module` or `file.py`; what a file lies beside can be imported by it, as in a script.

    Raises:
        NotFound: there is none.
        click.UsageError: it raises, or leaves the process, while it is imported.
    """
    here = Path.cwd()
    beside = [Path(target).resolve().parent] if target.endswith(".py") else []
    first = [path for path in (here, here / "src", *beside) if path.is_dir()]
    sys.path[:] = [str(path) for path in first] + [path for path in sys.path if path not in map(str, first)]
    try:
        return modules.load(target)
    except PoimenError:
        raise
    except (Exception, SystemExit) as error:  # a module's exit code is not that of the command
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f" ({place.tb_frame.f_code.co_filename}:{place.tb_lineno})" if place is not None else ""
        raise click.UsageError(f"{target} cannot be imported: {type(error).__name__}: {error}{where}") from error


def workflow_of(target: str) -> WorkflowSpec:
    """The workflow that `MODULE:FUNC` or `FILE.py:FUNC` names; without FUNC, the only one there.

    Raises:
        NotFound: there is no such module, file or name.
        click.UsageError: what is there is no workflow, or there are several.
    """
    place, sep, name = target.rpartition(":")
    module = load(place if sep else target)
    there = {n: s for n, v in vars(module).items() if isinstance(s := spec_of(v), WorkflowSpec)}
    if not sep:
        if len(there) == 1:
            return next(iter(there.values()))
        raise click.UsageError(f"say which workflow of {target}: {', '.join(f'{target}:{n}' for n in there) or 'none'}")
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    spec = spec_of(found)
    if found is None:
        known = ", ".join(there) or "none"
        raise NotFound(
            f"{place} has no {clipped(name)!r}", why=f"workflows there: {known}", hint=f"poimen run {place}:NAME"
        )
    if not isinstance(spec, WorkflowSpec):
        kind = f"a {spec.kind}" if spec is not None else f"a {type(found).__name__}"
        raise click.UsageError(f"{target} is {kind}, not a workflow; workflows there: {', '.join(there) or 'none'}")
    return spec


# ---- its input -------------------------------------------------------------------------------------------------


def _read(text: str, option: str) -> str:
    """The text of `@FILE`, of standard input (`-`), or what was given."""
    if text == "-":
        return sys.stdin.read()
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{option} {text} cannot be read: {error}") from error


def _call_of(spec: WorkflowSpec, tree: Any, where: str) -> Call[Any]:
    """A call from arguments by name."""
    if not isinstance(tree, dict):
        raise click.UsageError(f'{where}: an object of arguments by name is expected, such as {{"order": "tea"}}')
    args, kwargs = spec.parameters.unpack(json.dumps(tree).encode())
    return Call(workflow=spec.name, spec=spec, packed=spec.parameters.pack(args, kwargs))


def _parsed(text: str, where: str) -> Any:
    try:
        return from_json(text)
    except ValueError as error:
        raise click.UsageError(f"{where} is not JSON: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One run of a file: its line there, its id, its call."""

    number: int
    run: str
    call: Call[Any]
    tags: dict[str, str]


def _lines(spec: WorkflowSpec, text: str, prefix: str | None) -> list[_Line]:
    """The runs of a file, each checked before the first is begun.

    A line is the arguments by name, or `{"id": ..., "input": {...}, "tags": {...}}`.
    """
    found: list[_Line] = []
    long_form = {"id", "input", "tags"}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"--each, line {number}"
        tree = _parsed(line, where)
        is_long = isinstance(tree, dict) and "input" in tree and tree.keys() <= long_form
        given = tree if is_long else {"input": tree}
        run = given.get("id") or (f"{prefix}-{number}" if prefix else None)
        if not isinstance(run, str):
            raise click.UsageError(f'{where} has no id: give --id PREFIX, or the line as {{"id": ..., "input": ...}}')
        try:
            call = _call_of(spec, given["input"], where)
        except (PoimenError, TypeError) as error:
            said = error.message if isinstance(error, PoimenError) else str(error)
            raise click.UsageError(f"{where}: {said}") from error
        tags = given.get("tags") or {}
        if not isinstance(tags, dict):
            raise click.UsageError(f'{where}: tags are an object of texts, such as {{"team": "billing"}}')
        tags = checked_tags({str(name): str(value) for name, value in tags.items()})
        found.append(_Line(number=number, run=checked_id(run), call=call, tags=tags))
    twice = {line.run for line in found if sum(other.run == line.run for other in found) > 1}
    if twice:
        raise click.UsageError(f"--each: ids that stand there twice: {', '.join(sorted(twice))}")
    return found


def _recorded(session: Session, spec: WorkflowSpec, run: str) -> Call[Any] | None:
    """The call of a run that exists, from its record; None when it does not exist."""
    try:
        with session.reading_if_there() as log:
            if log is None or log.store.head(run) is None:
                return None
            view, _ = reading.read_run(log.store, run, upto=1)
            args = view.admitted.args if view.admitted is not None else b"{}"
            packed = log.bodies.read(args, f"run {run} LSN 1")
    except StorageFailed:
        return None  # opening it for writing settles what is in the way, or says what is
    return Call(workflow=spec.name, spec=spec, packed=packed)


def _try(session: Session, calls: dict[str, Call[Any]], *, drives: bool = True) -> None:
    """Refuse what the admission of these runs would refuse, without admitting them.

    Raises:
        RunExists: a run of this id exists with other input.
    """
    session.try_writing(drives=drives)
    with session.reading_if_there() as log:
        for run, call in calls.items():
            if log is not None and log.store.head(run) is not None:
                same_input(log.store, call, run)


def _call(session: Session, spec: WorkflowSpec, run: str | None, args: tuple[str, ...], given: str | None) -> Call[Any]:
    if given is not None:
        if args:
            raise click.UsageError("--input has all arguments: give none beside it")
        return _call_of(spec, _parsed(_read(given, "--input"), "--input"), "--input")
    recorded = _recorded(session, spec, run) if run is not None and not args else None
    if recorded is not None:
        return recorded
    try:
        positional, named = bound(spec.parameters.signature, args)
        return Call(workflow=spec.name, spec=spec, packed=spec.parameters.pack(tuple(positional), named))
    except TypeError as error:
        signature = str(spec.parameters.signature)
        raise click.UsageError(f"{error}; it takes {signature}") from error


# ---- the command -----------------------------------------------------------------------------------------------


@command(None, "run", context_settings={"ignore_unknown_options": True})
@click.argument("target")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--input", "given", metavar="JSON|@FILE|-", help="all arguments by name, as one JSON object")
@click.option("--each", metavar="@FILE|-", help="one run a line of JSON; ids from --id, or in the line")
@click.option("--id", "run", help="the run's id; the same id again is the same run")
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="kept with the run, to find it by; repeatable")
@click.option("--detach", is_flag=True, help="admit the run, and leave it to be driven later")
@click.option("--deadline", help="comes with part 3")
@click.option("--budget", help="comes with part 3")
def run(
    session: Session,
    *,
    target: str,
    args: tuple[str, ...],
    given: str | None,
    each: str | None,
    run: str | None,
    tags: tuple[str, ...],
    detach: bool,
    deadline: str | None,
    budget: str | None,
) -> int:
    """Run a workflow to its end and print its result.

    TARGET is MODULE:FUNC or FILE.py:FUNC. ARGS follow the annotations, by position or as --name value or name=value;
    where a name is also an option of this command, write name=value. Options of the workflow may stand after `--`.
    """
    if deadline is not None:
        not_built("start(timeout=)")
    if budget is not None:
        not_built("start(budget=)")
    named = _tags(tags)
    spec = workflow_of(target)
    if each is not None:
        if args or given is not None or tags or detach:
            raise click.UsageError(
                "--each has everything in its lines: ARGS, --input, --tag and --detach do not go with it"
            )
        lines = _lines(spec, _read(each, "--each"), run)
        with session.telling():
            return _each(session, spec, lines)
    call = _call(session, spec, checked_id(run) if run is not None else None, args, given)
    identity = checked_id(run if run is not None else clock.uuid7())
    if session.dry_run:
        _try(session, {identity: call}, drives=not detach)
        data = {"run_id": identity, "workflow": spec.name, "input": json.loads(call.packed), "dry_run": True}
        session.out.show(data, lambda: session.out.line(f"would run {call!r} as {identity}"))
        return 0
    if detach:
        return _admit(session, call, identity, named, target)
    with session.telling():
        try:
            result = run_whole(_one(session, call, identity, named, is_new=run is None))
        except RunWaiting:
            with session.reading() as log:
                view, _ = reading.read_run(log.store, identity)
            if (waits := standing.waits_for(view, content=session.content)) is not None:
                raise waits from None
            raise
    return _print(session, spec, identity, result)


async def _one(session: Session, call: Call[Any], run: str, tags: dict[str, str], *, is_new: bool) -> Any:
    async def start() -> Run[Any]:
        handle = await client.start(call, run_id=run, tags=tags)
        if is_new:  # said when there is something to go on with, and before anything is done
            session.out.say(f"run {run}; --id {run} goes on with it")
        return handle

    async with one_by_one(session.db, Registry.of_call(call), concurrency=1) as (client, worker):
        return await driven(client, worker, start)


def _tags(given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, sep, value = text.partition("=")
        if not name or not sep:
            raise click.UsageError(f"--tag {text} is not NAME=VALUE")
        if name in found:
            raise click.UsageError(f"--tag {name} is given twice: {found[name]!r} and {value!r}")
        found[name] = value
    return checked_tags(found)


def _print(session: Session, spec: WorkflowSpec, run: str, result: Any) -> int:
    data = {"run_id": run, "workflow": spec.name, "state": "SUCCEEDED", "result": _plain(result, spec)}
    session.out.show(data, lambda: session.out.whole(_as_text(data["result"])))
    session.out.detail(f"run {run} SUCCEEDED")
    return 0


def _plain(result: Any, spec: WorkflowSpec) -> Json:
    """A result as JSON; a text is itself, also one that is stored otherwise because UTF-8 cannot say it."""
    if type(result) is str:
        return result
    plain: Json = json.loads(spec.parameters.dump_result(result, path="the result"))
    return plain


def _as_text(plain: Json) -> str:
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, indent=2)


def _admit(session: Session, call: Call[Any], run: str, tags: dict[str, str], target: str) -> int:
    async def admitted() -> bool:
        async with Client(session.db) as client:
            return (await client.start(call, run_id=run, tags=tags)).is_new

    is_new = asyncio.run(admitted())
    session.mark()
    data = {"run_id": run, "workflow": call.workflow, "is_new": is_new}
    session.out.show(data, lambda: session.out.line(run))
    said = "admitted" if is_new else "there already"
    session.out.say(f"{said}; what drives it: {session.command(f'poimen run {target} --id {run}')}")
    return 0


# ---- many runs -------------------------------------------------------------------------------------------------


def _each(session: Session, spec: WorkflowSpec, lines: list[_Line]) -> int:
    """Run all lines, some at once; the worst end is the exit code."""
    if session.dry_run:
        _try(session, {line.run: line.call for line in lines})
        rows: list[Any] = [{"run_id": x.run, "line": x.number, "input": json.loads(x.call.packed)} for x in lines]
        session.out.show(rows, lambda: session.out.table(("run", "line"), ((x.run, str(x.number)) for x in lines)))
        return 0
    ends = run_whole(_drive(session, spec, lines))
    session.mark()
    bad = [one for one in ends if one["exit"]]
    code = session.ends(next((code for code in _WORST_FIRST if code in {one["exit"] for one in bad}), 0))
    session.out.show(ends, lambda: None)
    session.out.say(f"{len(ends)} runs, {len(ends) - len(bad)} succeeded")
    return code


async def _drive(session: Session, spec: WorkflowSpec, lines: list[_Line]) -> list[Any]:
    registry = Registry()
    registry.add(spec)
    slots = asyncio.Semaphore(_AT_ONCE)
    async with one_by_one(session.db, registry, concurrency=_AT_ONCE) as (client, worker):

        async def one(line: _Line) -> Any:
            async with slots:
                end = await _end_of(session, client, worker, line)
            said = end["error"]["title"] if end["error"] else _as_text(end["result"])
            if session.out.form == "text":
                session.out.line(f"{line.run}  {end['state']}  {one_line(said)}")
            return end

        return await asyncio.gather(*(one(line) for line in lines))


async def _end_of(session: Session, client: Client, worker: Worker, line: _Line) -> dict[str, Any]:
    end: dict[str, Any] = {"run_id": line.run, "line": line.number, "result": None, "error": None, "exit": 0}
    try:
        result = await driven(client, worker, lambda: client.start(line.call, run_id=line.run, tags=line.tags))
        end["result"] = _plain(result, line.call.spec)
    except PoimenError as error:
        if exit_code(error) in _GIVES_UP:
            raise
        end["error"] = {"code": error.code, "title": error.message, "hint": session.command(error.hint)}
        end["exit"] = exit_code(error)
    head = client.store.head(line.run)
    end["state"] = head.state if head is not None else "not admitted"
    return end
