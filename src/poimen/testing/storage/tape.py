"""A tape of one process: which records went into which commit, when its sync returned, when a tool was entered.

Everything is numbered by one counter, so "before" and "after" are numbers and not times. This module must
never delay or reorder anything; it keeps the invariant that `committed` is noted only after the store has
returned, and so after the sync.

Source: design proof.md, P5 and P6.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from poimen.declare.calling import request_id
from poimen.kernel.errors import ConfigurationError
from poimen.log.api import Committed
from poimen.log.sqlite import SqliteStore
from poimen.testing.storage.counting import sync_counter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from poimen.log.api import Batch, NewRecord

PROTOCOL: Final = ("intent.pending.v1", "intent.dispatched.v1", "intent.committed.v1")
"""The three records around an effect, no two of which may share a sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that happened.

    Arguments:
        at: its number; of two entries the smaller came first.
        what: a commit has `begun`, a -wal file was `synced`, the commit has returned (`committed`), a tool was
            `entered`.
        records: of a commit: `(run, record)` of every batch that was not refused.
        request_id: of a tool that was entered.
    """

    at: int
    what: Literal["begun", "synced", "committed", "entered"]
    records: tuple[tuple[str, NewRecord], ...] = ()
    request_id: str = ""


class Tape:
    """What has happened, in order. Get one with `taped`."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._numbers = itertools.count()

    @classmethod
    def here(cls) -> Tape:
        """The tape that runs in this process.

        Raises:
            ConfigurationError: none runs.
        """
        if not _running:
            raise ConfigurationError("no tape runs in this process", hint="with poimen.testing.taped() as tape: ...")
        return _running[-1]

    def note(self, what: Literal["begun", "synced", "committed", "entered"], **more: Any) -> None:
        """Take one thing down."""
        self.entries.append(Entry(at=next(self._numbers), what=what, **more))

    def enter(self) -> None:
        """For the first line of a tool's body: it was entered, under its request id."""
        self.note("entered", request_id=request_id())

    @property
    def commits(self) -> list[Entry]:
        """The commits that have returned."""
        return [entry for entry in self.entries if entry.what == "committed"]


_running: Final[list[Tape]] = []


@contextmanager
def taped() -> Iterator[Tape]:
    """Take down every commit, every sync of a -wal file, and every tool that says so, while the block lasts.

    Only databases that are opened inside the block are on the tape.
    """
    tape = Tape()
    commit = SqliteStore.commit

    def noted(self: SqliteStore, batches: Sequence[Batch]) -> Any:
        tape.note("begun")
        answers = commit(self, batches)
        landed = zip(batches, answers, strict=True)
        records = [(b.run, r) for b, answer in landed if isinstance(answer, Committed) for r in b.records]
        tape.note("committed", records=tuple(records))
        return answers

    def synced(path: str) -> None:
        if path.endswith("-wal"):
            tape.note("synced")

    with sync_counter(on_sync=synced):
        _running.append(tape)
        SqliteStore.commit = noted  # type: ignore[method-assign]
        try:
            yield tape
        finally:
            SqliteStore.commit = commit  # type: ignore[method-assign]
            _running.remove(tape)


def shared_syncs(tape: Tape) -> list[str]:
    """Effects of which two records share a commit, as sentences; none when each record had a sync of its own.

    Arguments:
        tape: what `taped` gave.

    Source: design protocol.md, section 3 ("No two records of one effect ever share a sync").
    """
    found: list[str] = []
    effects = 0
    for n, entry in enumerate(tape.commits, 1):
        protocol = [(run, record) for run, record in entry.records if record.kind in PROTOCOL]
        effects += len(protocol)
        for (run, subject), several in Counter((run, record.subject) for run, record in protocol).items():
            if several > 1:
                kinds = ", ".join(r.kind for of, r in protocol if (of, r.subject) == (run, subject))
                found.append(f"commit {n} holds {several} records of {subject} in run {run}: {kinds}")
    return found if effects else ["no effect is on the tape, so nothing was shown"]


def entered_early(tape: Tape) -> list[str]:
    """Tools that were entered before the sync of their Dispatched had returned, as sentences; none when none was.

    The tools say by `Tape.here().enter()` that they were entered.

    Arguments:
        tape: what `taped` gave.

    Source: design protocol.md, section 8 (I1).
    """
    found: list[str] = []
    named: dict[tuple[str, str], str] = {}
    sent: Counter[str] = Counter()
    entered: Counter[str] = Counter()
    synced = False
    for entry in tape.entries:
        match entry.what:
            case "begun":
                synced = False
            case "synced":
                synced = True
            case "committed":
                if entry.records and not synced:
                    found.append(f"the commit noted at {entry.at} returned without a sync")
                for run, record in entry.records:
                    _count(run, record, named, sent)
            case "entered":
                entered[entry.request_id] += 1
                if sent[entry.request_id] < entered[entry.request_id]:
                    found.append(
                        f"the tool was entered at {entry.at} for request id {entry.request_id}, "
                        f"whose Dispatched was not durable"
                    )
    return found if entered else ["no tool was entered, so nothing was shown"]


def _count(run: str, record: NewRecord, named: dict[tuple[str, str], str], sent: Counter[str]) -> None:
    if record.kind == "intent.pending.v1":
        named[run, record.subject] = json.loads(record.body)["request_id"]
    elif record.kind == "intent.dispatched.v1" and (run, record.subject) in named:
        sent[named[run, record.subject]] += 1
