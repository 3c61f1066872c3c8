"""`poimen doctor`: which database it is and why, what does not move and which command moves it, what is owed.

It looks and changes nothing. It keeps promise 8: every run that has not ended is listed with the reason why it does
not move; and it says of itself what it could not look at.

Source: design api.md, "Configuration"; mission.md, promise 8; cases C01 and C18.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any, Final

import click

from poimen import clock, later
from poimen.cli.decisions import decision_shape
from poimen.cli.frame.declaring import Noun, command, own_version
from poimen.cli.frame.output import rfc3339
from poimen.cli.intents import heads_from
from poimen.cli.log import database
from poimen.cli.main import COMMANDS, LATER, root
from poimen.cli.runs import asked, asking_shape, is_driven, row_shape
from poimen.engine import reading, standing
from poimen.engine.handle import actor
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.errors import PoimenError, StorageFailed
from poimen.kernel.views import newest_branch
from poimen.log.api import TERMINAL_STATES

if TYPE_CHECKING:
    from poimen.cli.frame.session import Log, Session
    from poimen.kernel.views import RunView

_SKEW_US: Final = clock.US
"""A record may be this far ahead of the clock before it is told."""
_LARGE_WAL: Final = 64 << 20
"""Bytes of a WAL that somebody keeps from being emptied."""


@command(None, "doctor")
def doctor(session: Session) -> None:
    """Say which database it is, why each run does not move and what moves it, what is owed, what is not built yet."""
    data: dict[str, Any] = {
        "database": database(session),
        "versions": {"poimen": own_version(), "python": platform.python_version()},
        "by": actor(),
        "clock": {"now": rfc3339(clock.wall_us()), "ahead_s": 0.0, "went_back_s": 0.0},
        "runs": [],
        "owed": [],
        "open_intents": [],
        "contradicted": [],
        "asking": [],
        "inbox": 0,
        "not_built": not_built(),
        "findings": [],
    }
    failure: PoimenError | None = None
    try:
        with session.reading() as log:
            for head in heads_from(log):
                with log.passing_damage():
                    _look_at(session, log, head, data)
            damaged = {error.message for error in log.damaged}
            data["findings"] += [f"{message}: poimen log check" for message in sorted(damaged)]
    except StorageFailed as error:
        new = session.location.source.startswith("new") and not data["database"]["exists"]
        failure = None if new else error
    refused = _refused(session, data)
    failure = failure or refused
    _find(data)
    session.out.show(data, lambda: _print(session, data))
    if failure is not None:
        raise failure


def _refused(session: Session, data: dict[str, Any]) -> PoimenError | None:
    """Find out whether whatever writes to this log is refused; what only this user may not do is no failure of it."""
    try:
        session.try_writing()
    except PoimenError as error:
        data["findings"].append(f"whatever writes to it is refused: {error.message}")
        return None if error.ids.get("unwritable") else error
    return None


def _look_at(session: Session, log: Log, head: Any, data: dict[str, Any]) -> None:
    if head.state not in TERMINAL_STATES:
        data["runs"].append(row_shape(session, log, head))
    view, records = reading.read_run(log.store, head.run)
    data["owed"] += [
        decision_shape(view, d, log, content=False) for d in newest_branch(view).decisions.values() if d.owed
    ]
    if is_driven(log, head):
        data["asking"] += [asking_shape(one) for one in standing.asking(view, records)]
    data["open_intents"] += [_open(i) for line in view.branches.values() for i in line.intents() if i.open]
    data["contradicted"] += [
        {"id": str(i.id), "says": standing.contradiction(i), "lsn": i.last_lsn}
        for line in view.branches.values()
        for i in line.intents()
        if i.contradicted
    ]
    data["inbox"] += len(standing.inbox_of(view))
    times = data["clock"]
    times["ahead_s"] = max(times["ahead_s"], _ahead_s(view))
    latest = 0
    for at, _, _ in records:
        times["went_back_s"] = max(times["went_back_s"], (latest - at) / clock.US)
        latest = max(latest, at)


def _open(intent: Any) -> dict[str, Any]:
    return {
        "id": str(intent.id),
        "tool": intent.pending.tool,
        "effect_class": (intent.demoted_to or intent.effect_class).name,
        "sends": len(intent.sends),
        "sent_at": rfc3339(intent.sends[-1].at),
        "is_read": intent.effect_class is EffectClass.READ,
        "lsn": intent.last_lsn,
    }


def _ahead_s(view: RunView) -> float:
    ahead = view.latest_at - clock.wall_us()
    return ahead / clock.US if ahead > _SKEW_US else 0.0


def not_built() -> dict[str, list[str]]:
    """What the interface names and this version does not have, by the part that brings it."""
    found: dict[str, list[str]] = {}
    names = {f"poimen.{name}": part for name, part in later.PARTS.items()}
    names |= {f"`poimen {name}`": part for name, part in LATER.items()}
    for name in (name for section in COMMANDS.values() for name in section if name != "doctor"):
        group = root.get_command(click.Context(root), name)
        if isinstance(group, Noun):
            names |= {f"`poimen {name} {verb}`": part for verb, part in group.later.items()}
    for name, part in sorted(names.items(), key=lambda pair: (pair[1], pair[0])):
        found.setdefault(str(part), []).append(name)
    return found


def _find(data: dict[str, Any]) -> None:
    """What somebody should look at, in words."""
    found: list[str] = data["findings"]
    db, times = data["database"], data["clock"]
    if db["doubt_open"]:
        how = "the next opening for writing settles it (poimen db check --rebuild)"
        found.append(f"a failed commit is not settled: {how}")
    if db["wal_bytes"] > _LARGE_WAL:
        found.append(f"the WAL has {db['wal_bytes'] >> 20} MiB: does a reader hold it?")
    if times["ahead_s"]:
        found.append(
            f"a record is {times['ahead_s']:.0f} s ahead of the clock: keys count as expired while it is behind, and"
            " what is left of a wait is its whole: set the clock if it is wrong"
        )
    if times["went_back_s"] > 1:
        found.append(f"the clock went back by {times['went_back_s']:.0f} s within a run: keys counted as expired then")
    found += [f"{one['id']}: {one['says']} (poimen intents show {one['id']})" for one in data["contradicted"]]
    stuck = [run for run in data["runs"] if not run["driven"]]
    if stuck:
        found.append(f"{len(stuck)} run(s) do not move")
    if data["inbox"]:
        found.append(f"{data['inbox']} item(s) wait for a person: poimen inbox")
    if data["owed"]:
        found.append(f"{len(data['owed'])} decision(s) are owed: poimen decisions")


def _print(session: Session, data: dict[str, Any]) -> None:
    out, db = session.out, data["database"]
    size = f"{db['bytes']} bytes, WAL {db['wal_bytes']}" if db["exists"] else "not there yet: the first run makes it"
    rows = [
        ("database", f"{db['url']} ({db['source']})"),
        ("", size),
        (
            "versions",
            f"poimen {data['versions']['poimen']}, Python {data['versions']['python']}, SQLite {db['sqlite']}",
        ),
        ("you are", data["by"]),
        ("doubts", f"{'one is open' if db['doubt_open'] else 'none open'}, {db['doubts_settled']} settled"),
    ]
    for name, value in rows:
        out.line(f"{name:<10}{value}")
    for run in data["runs"]:
        out.line()
        out.line(f"run {run['id']}  {run['state']}  {run['workflow']}", bold=True)
        out.line(f"          {run['reason'] or 'a worker drives it'}")
        if run["command"]:
            out.line(f"          {run['command']}")
    owed = [f"{one['id']}, LSN {one['lsn']}" for one in data["owed"]]
    still_open = [f"{one['id']}  {one['effect_class']}, {one['sends']} sent" for one in data["open_intents"]]
    probes = [f"{one['id']}  {asked(session, one)}" for one in data["asking"]]
    for title, lines in (("owed decisions", owed), ("open intents", still_open), ("probes", probes)):
        if lines:
            out.line()
            out.line(title, bold=True)
        for line in lines:
            out.line(f"          {line}")
    out.line()
    for text in data["findings"] or ["nothing is wrong, nothing waits"]:
        out.line(session.command(text))
    for part, names in data["not_built"].items():
        out.line(
            f"not built yet, comes with part {part}: {len(names)} names" + ("" if out.verbose else " (-v lists them)")
        )
        if out.verbose:
            out.line(f"          {', '.join(names)}")
