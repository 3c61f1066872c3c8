"""What must be true after a power cut: acknowledgements are there, nothing is damaged, no effect is unknown to the log.

A state is laid out as files and opened as a restart opens it. What the records say is read from their bodies here and
not asked of the kernel; the kernel's fold is run beside it and must accept them. Equal contents are read one time: a
state whose rows all equal those of one that was read in full is compared and not read again. This module must never
repair or explain away; it keeps the invariant that a state in which something is missing has a sentence about it.

Source: design proof.md, P3; protocol.md, section 8 (I1 to I11).
"""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from poimen._typing import override
from poimen.blobs.files import FileBlobs, beside
from poimen.engine.reading import bodies_named
from poimen.kernel.attempt import AttemptState
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.errors import ConfigurationError, PoimenError, StorageFailed
from poimen.kernel.fold import apply
from poimen.kernel.intent import Classification, classify
from poimen.kernel.views import RunView
from poimen.log import codec
from poimen.log.disk import files as disk_files
from poimen.log.disk.anchor import Anchor
from poimen.log.disk.files import Sides
from poimen.log.disk.rows import record_of
from poimen.log.sqlite import SqliteStore
from poimen.testing.power.recording import ACKS, RESULTS, WITNESS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from poimen.log.api import Record
    from poimen.testing.power.recording import Op

_ROWS: Final = """
SELECT run.run_id, r.lsn, r.pos, r.branch, r.record_id, r.kind, r.subject, r.body, r.at, r.epoch, r.hash
FROM record AS r LEFT JOIN run ON run.run = r.run ORDER BY r.pos"""
_HEADS: Final = "SELECT run_id, lsn, hash, epoch, outsider_lsn, state FROM run ORDER BY run"
_BODIES: Final = "SELECT digest, body FROM blob ORDER BY digest"
_CLOSING: Final = frozenset({"intent.committed.v1", "intent.resolved.v1", "intent.late_outcome.v1"})
_OF_AN_EFFECT: Final = frozenset({"intent.dispatched.v1", *_CLOSING})
_SENT_ONE_TIME: Final = frozenset({"PROBE", "AT_MOST_ONCE"})
_OTHERS_EACH: Final = 32
"""One state in so many is also checked before anything has opened it, closed in full and opened a second time."""


class Told:
    """What had left for the outside by a moment."""

    def __init__(self, earlier: Sequence[Op] = ()) -> None:
        self.acked: dict[tuple[str, int], str] = {}
        self.entered: Counter[str] = Counter()
        self.answered: set[str] = set()
        self.lines = 0
        for op in earlier:
            self.take(op)

    def take(self, op: Op) -> None:
        """One more line has left."""
        self.lines += 1
        if op.path == ACKS:
            found = json.loads(op.data)
            for lsn, record_id in enumerate(found["ids"], start=found["first"]):
                self.acked[found["run"], lsn] = record_id
            return
        for line in op.data.decode(errors="replace").splitlines():
            request = line.partition(" ")[0]
            if op.path == WITNESS:
                self.entered[request] += 1
            elif op.path == RESULTS:
                self.answered.add(request)


@dataclass(slots=True, kw_only=True)
class _Content:
    """What one content of the tables says."""

    ids: dict[tuple[str, int], str] = field(default_factory=dict)
    hashes: set[tuple[str, int, bytes]] = field(default_factory=set)
    sends: Counter[str] = field(default_factory=Counter)
    closed: set[str] = field(default_factory=set)
    classes: dict[str, str] = field(default_factory=dict)
    never_sent: set[str] = field(default_factory=set)
    bodies: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class Judge:
    """Opens states and says what is wrong with them.

    Arguments:
        folder: takes one state after another; a folder in memory makes it fast.
        db: the database's name in it.

    Attributes:
        opened: how many states it has opened.
        read: how many different contents it has read in full.
    """

    def __init__(self, folder: Path, *, db: str) -> None:
        self.opened = self.read = 0
        self._folder = folder
        self._db = db
        self._contents: dict[tuple[Any, ...], _Content] = {}
        self._views: dict[tuple[str, int, bytes], str] = {}

    def faults(self, files: Mapping[str, bytes], told: Told) -> list[str]:
        """What is wrong with a state, as sentences; none when all is well.

        Arguments:
            files: contents by path from the folder.
            told: what had left for the outside before the cut.
        """
        lay_out(files, self._folder)
        self.opened += 1
        with_others = self.opened % _OTHERS_EACH == 0
        found: list[str] = []
        with _warnings() as warned, _without_mounts():
            try:
                if with_others and files.get(self._db):
                    found += self._before_opening(told)
                found += self._opened(told, closing=with_others)
                if with_others:
                    found += [f"opened a second time: {what}" for what in self._opened(told, closing=True)]
            except PoimenError as error:
                found.append(f"it is refused: {type(error).__name__}: {error.message} ({error.where})")
        return found + [f"opening it, poimen warns: {line}" for line in warned]

    def _before_opening(self, told: Told) -> list[str]:
        """What a check says that is made before any process has opened the database again."""
        try:
            store = SqliteStore(self._folder / self._db, read_only=True)
        except ConfigurationError as error:
            # Its first opening was cut off: nothing is in it yet, and a reader creates nothing.
            return [] if not told.acked else [f"it cannot be read before it is opened: {error.message}"]
        except StorageFailed as error:
            closed = Sides.of(self._folder / self._db).doubt.exists()
            return [] if closed else [f"it cannot be read before it is opened: {error.message}"]
        try:
            return [f"checked before it is opened: {each.what} ({each.run} LSN {each.lsn})" for each in store.check()]
        finally:
            store.close()

    def _opened(self, told: Told, *, closing: bool) -> list[str]:
        store = SqliteStore(self._folder / self._db)
        try:
            before, content, verdict = self.read, self._content(store), [("ok",)]
            if closing or self.read > before:
                verdict = _rows(store, "PRAGMA quick_check")
            found = [] if verdict == [("ok",)] else [f"SQLite: {verdict}"]
            return [*found, *content.wrong, *self._anchor_faults(content), *self._missing(content, told)]
        finally:
            if closing:
                store.close()
            else:
                let_go(store)

    def _content(self, store: SqliteStore) -> _Content:
        rows, heads, bodies = (tuple(_rows(store, sql)) for sql in (_ROWS, _HEADS, _BODIES))
        key = (rows, heads, bodies)
        if key not in self._contents:
            self.read += 1
            self._contents[key] = self._read(store, rows)
        return self._contents[key]

    def _read(self, store: SqliteStore, rows: tuple[Any, ...]) -> _Content:
        content = _Content()
        content.wrong += [f"log check: {each.what} ({each.run} LSN {each.lsn})" for each in store.check()]
        runs: dict[str, list[Record]] = {}
        for run, *row in rows:
            runs.setdefault(run, []).append(record_of(run, row))
        for run, records in runs.items():
            _take_records(content, records)
            try:
                content.wrong += self._folded(content, run, records)
            except (PoimenError, LookupError) as error:
                content.wrong.append(f"the records of {run} do not fold: {type(error).__name__}: {error}")
            in_tables = store.blob
            for lsn, ref in bodies_named(records):
                if in_tables(ref.digest) is None:
                    content.bodies[ref.digest] = lsn
        return content

    def _folded(self, content: _Content, run: str, records: Sequence[Record]) -> Iterator[str]:
        """Fold a run record by record (I3, I5, I10 are refused there), and look at I4 and I6 to I9."""
        view, epoch = RunView(run=run), 0
        for record in records:
            if record.epoch and record.epoch < epoch:
                yield f"I4: record {record.lsn} of {run} has epoch {record.epoch} after {epoch}"
            epoch = max(epoch, record.epoch)
            event = codec.event_of(record)
            apply(view, lsn=record.lsn, at=record.at, branch=record.branch, event=event, epoch=record.epoch)
        yield from _attempt_faults(view)
        for line in view.branches.values():
            content.never_sent |= {
                intent.pending.request_id
                for intent in line.intents()
                if classify(intent.state) is Classification.NEVER_SENT
            }
        place = (run, records[-1].lsn, records[-1].hash)
        digest = sha256(repr(view).encode()).hexdigest()
        if self._views.setdefault(place, digest) != digest:
            yield f"I9: the view of {run} at LSN {records[-1].lsn} is another one than before"

    def _anchor_faults(self, content: _Content) -> Iterator[str]:
        """The anchor lags and never leads, and no line of it is damaged."""
        anchored = Anchor(Sides.of(self._folder / self._db).anchor).read()
        yield from (f"line {number} of the anchor is damaged" for number in anchored.damaged)
        for run, (lsn, digest) in anchored.heads.items():
            if (run, lsn, digest) not in content.hashes:
                yield f"the anchor names record {lsn} of {run}, which is not there"

    def _missing(self, content: _Content, told: Told) -> Iterator[str]:
        """I1 and I2: what the outside knows must be in the log."""
        if not told.acked.items() <= content.ids.items():
            lost = sorted(place for place, record_id in told.acked.items() if content.ids.get(place) != record_id)
            run, lsn = lost[0]
            yield f"I2: {len(lost)} acknowledged records are gone, the first is {lsn} of {run}"
        for request, n in told.entered.items():
            if content.sends[request] < n:
                yield f"I1: the witness saw {request} {n} times, {content.sends[request]} Dispatched are in the log"
            if n > 1 and content.classes.get(request) in _SENT_ONE_TIME:
                yield f"{request} is {content.classes[request]}, and the witness saw it {n} times"
            if request in content.never_sent:
                yield f"I1: {request} is classified as never sent, and the witness has seen it"
        for request in sorted(told.answered - content.closed):
            yield f"I2: code was given the outcome of {request}, which is not in the log"
        bodies = FileBlobs(beside(self._folder / self._db))
        for digest, lsn in content.bodies.items():
            try:
                bodies.get(digest)
            except PoimenError as error:
                yield f"record {lsn} names a body that is not there: {error.message}"


def lay_out(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files of a state into a folder, in the place of what was there.

    Arguments:
        files: contents by path from the folder.
        folder: created when it is missing, emptied when it is not.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    for name, content in files.items():
        path = folder / name
        if "/" in name:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(content)


def let_go(store: SqliteStore) -> None:
    """Close a store as its process's death would: nothing is written."""
    handle = store._handle  # noqa: SLF001 (its own close empties the WAL, which takes most of the time)
    store._reader.close()  # noqa: SLF001 (as above)
    if handle is not None:
        handle.release()
    store._closed = True  # noqa: SLF001 (as above)


def _rows(store: SqliteStore, sql: str) -> list[Any]:
    return store._rows(sql)  # noqa: SLF001 (all of the tables at once, as they are stored)


def _take_records(content: _Content, records: Sequence[Record]) -> None:
    requests: dict[str, str] = {}
    for record in records:
        content.ids[record.run, record.lsn] = record.record_id
        content.hashes.add((record.run, record.lsn, record.hash))
        if record.kind in _OF_AN_EFFECT and record.subject not in requests:
            content.wrong.append(f"record {record.lsn} of {record.run} is about an effect that has no Pending")
        elif record.kind == "intent.pending.v1":
            requests[record.subject] = json.loads(record.body)["request_id"]
            content.classes[requests[record.subject]] = json.loads(record.body)["terms"]["effect_class"]
        elif record.kind == "intent.dispatched.v1":
            _take_send(content, requests[record.subject], json.loads(record.body)["send"])
        elif record.kind in _CLOSING:
            content.closed.add(requests[record.subject])


def _take_send(content: _Content, request: str, send: int) -> None:
    """A READ asks under an id of its own each time that it is sent again."""
    again = content.classes[request] == "READ" and send > 1
    sent = f"{request}.{send}" if again else request
    content.classes[sent] = content.classes[request]
    content.sends[sent] += 1


def _attempt_faults(view: RunView) -> Iterator[str]:
    for line in view.branches.values():
        for step in line.steps.values():
            live = [attempt.no for attempt in step.attempts if attempt.live]
            if len(live) > 1:
                yield f"I8: attempts {live} of {step.key} are live at once"
            for attempt in step.attempts:
                sent = [intent for intent in attempt.intents.values() if intent.open]
                if attempt.state in {AttemptState.CANCELLED, AttemptState.TIMED_OUT} and sent:
                    yield f"I6: attempt {attempt.no} of {step.key} is {attempt.state.value} over an open intent"
                effects = [i for i in attempt.intents.values() if i.effect_class is not EffectClass.READ and i.sends]
                if attempt.state is AttemptState.INDETERMINATE and not effects:
                    yield f"I7: attempt {attempt.no} of {step.key} is Indeterminate and has sent nothing"


class _Warned(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def _without_mounts() -> Iterator[None]:
    """Leave out the look at the mounted filesystems, which takes a fifth of an opening and sees the same each time."""
    mounts: Any = vars(disk_files)["_MOUNTS"]
    disk_files._MOUNTS = Path("/proc/self/no-mounts")  # type: ignore[misc]  # noqa: SLF001 (as above)
    try:
        yield
    finally:
        disk_files._MOUNTS = mounts  # type: ignore[misc]  # noqa: SLF001 (as above)


@contextmanager
def _warnings() -> Iterator[list[str]]:
    logger, handler = logging.getLogger("poimen.log"), _Warned()
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
