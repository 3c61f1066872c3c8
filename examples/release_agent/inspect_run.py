"""Reads a run's intents and the inbox, and resolves, through the command line that everybody uses.

Nothing here opens the database: each answer is the JSON that `python -m poimen … --json` prints. It keeps one
invariant: what is missing in an answer is an error that names it, never a default.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_S = 60


class CommandFailed(Exception):
    """The command line gave no usable answer: the message has the command and what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of an intent: its LSN, its time, and the name of its event."""

    lsn: int
    at: datetime
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """How an unknown was closed: `landed`, `not_landed` or `abandoned`, by which rule, by whom."""

    to: str
    rule: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One intent as the command line shows it.

    Arguments:
        id: `RUN/BRANCH/STEP/ATTEMPT/ORDINAL`.
        tool: the tool's name.
        effect_class: such as `KEYED`.
        state: `pending`, `dispatched` or `committed`.
        request_id: the name that the far side was given.
        sends: how often it was dispatched.
        records: its records, in the order of their LSNs.
        classification: `never_sent` or `may_have_been_sent`; None where no crash interrupted it.
        resolution: None unless an unknown was closed.
    """

    id: str
    tool: str
    effect_class: str
    state: str
    request_id: str
    sends: int
    records: tuple[Record, ...]
    classification: str | None
    resolution: Resolution | None

    def of(self, *kinds: str) -> tuple[Record, ...]:
        """Its records of these kinds."""
        return tuple(record for record in self.records if record.kind in kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing in the inbox; `lsn` is that of the last record about it."""

    id: str
    kind: str
    run_id: str
    summary: str
    lsn: int


def intents(db: Path, run_id: str) -> tuple[Intent, ...]:
    """The intents of a run, in the order in which they were begun.

    Raises:
        CommandFailed: when the command fails or its answer has another form.
    """
    rows = [_intent(row) for row in _ask("intents", "ls", "--run", run_id, "--db", str(db))]
    return tuple(sorted(rows, key=lambda row: row.records[0].lsn))


def inbox(db: Path) -> tuple[Item, ...]:
    """What waits for a person.

    Raises:
        CommandFailed: when the command fails or its answer has another form.
    """
    rows = _ask("inbox", "ls", "--db", str(db))
    return tuple(
        Item(id=row["id"], kind=row["kind"], run_id=row["run_id"], summary=row["summary"], lsn=row["lsn"])
        for row in rows
    )


def resolving(
    item: Item, to: Literal["landed", "not-landed"], *, by: str, why: str, evidence: str, db: Path
) -> list[str]:
    """The command, without `python -m`, by which a person says what became of an effect.

    Arguments:
        item: the effect as the inbox shows it; its LSN makes a resolution lose against a newer record.
        to: what became of it.
        by: who says so.
        why: why.
        evidence: what was looked at.
        db: the database.
    """
    said = ["--by", by, "--why", why, "--evidence", evidence]
    sure = ["--expect-lsn", str(item.lsn), "--confirm", item.id]
    return ["poimen", "inbox", "resolve", item.id, f"--{to}", *said, *sure, "--db", str(db)]


def carry_out(command: list[str]) -> str:
    """Run a command of poimen and give what it printed.

    Raises:
        CommandFailed: when it does not end 0.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", *command], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"{' '.join(command)} did not end within {_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(command)} ended {done.returncode}: {done.stderr.strip() or done.stdout}")
    return done.stdout


def _ask(*args: str) -> list[Any]:
    """The `data` of a command's JSON, a list."""
    said = carry_out(["poimen", *args, "--json"])
    try:
        data: Any = json.loads(said)["data"]
    except (ValueError, KeyError, TypeError) as error:
        raise CommandFailed(f"poimen {' '.join(args)} --json printed no data: {said[:200]!r}") from error
    if isinstance(data, list):
        return data
    raise CommandFailed(f"poimen {' '.join(args)} --json printed data that is no list")


def _intent(row: dict[str, Any]) -> Intent:
    try:
        closed = row["resolution"]
        records = [
            Record(lsn=one["lsn"], at=datetime.fromisoformat(one["at"]), kind=one["kind"]) for one in row["records"]
        ]
        return Intent(
            id=row["id"],
            tool=row["tool"],
            effect_class=row["effect_class"],
            state=row["state"],
            request_id=row["request_id"],
            sends=row["sends"],
            records=tuple(sorted(records, key=lambda record: record.lsn)),
            classification=row["classification"],
            resolution=None if closed is None else Resolution(to=closed["to"], rule=closed["rule"], by=closed["by"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CommandFailed(f"an intent is shown in another form ({type(error).__name__}: {error}): {row}") from error
