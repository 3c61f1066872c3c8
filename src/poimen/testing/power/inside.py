"""In a child: runs its target over recorded, perhaps failing storage, and leaves the recording behind.

What a log does once in minutes or thousands of pages (its WAL into the database, heads into the anchor) it does here
every few commits, so that a short run has all of it.

This module must never be loaded where nothing is recorded; it keeps the invariant that an acknowledgement is noted
before anybody can act on it, and so is in every state in which somebody could have.

Source: design proof.md, P3 and P7.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from poimen.log import sqlite
from poimen.log.api import Committed
from poimen.log.disk import handle
from poimen.log.sqlite import SqliteStore
from poimen.testing.power.recording import ACKS, RESULTS, WITNESS, Op
from poimen.testing.storage.faults import Fault
from poimen.testing.storage.layer import Layer
from poimen.testing.witness import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from poimen.log.api import Batch

RESULTS_VARIABLE: Final = "POIMEN_RESULTS"
"""The environment variable that names the file of the channel of results, where code notes what it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What a child runs over.

    Arguments:
        root: the folder of its database.
        recording: the file that takes the recording.
        fault: what fails; None: nothing.
        wal_pages: after so many pages in the WAL they are moved into the database.
        anchor_each_s: how long heads wait to be anchored, seconds.
    """

    root: str
    recording: str
    fault: Fault | None = None
    wal_pages: int = 40
    anchor_each_s: float = 0.01

    def text(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Storage:
        """What `text` says."""
        found: dict[str, Any] = json.loads(text)
        fault = found.pop("fault")
        return cls(**found, fault=None if fault is None else Fault(**fault))


@contextmanager
def recorded(storage: Storage) -> Iterator[Layer]:
    """Record what this process does to its storage while the block lasts; the file is written at its end.

    Arguments:
        storage: where, and what fails.
    """
    named = {WITNESS: os.environ.get(VARIABLE), RESULTS: os.environ.get(RESULTS_VARIABLE)}
    layer = Layer(storage.root, channels={k: v for k, v in named.items() if v}, fault=storage.fault)
    recorder, commit = layer.recorder, SqliteStore.commit
    for channel, path in named.items():
        if path and Path(path).exists():
            recorder.recording.before.append(Op("told", path=channel, data=Path(path).read_bytes()))

    def acknowledged(self: SqliteStore, batches: Sequence[Batch]) -> Any:
        answers = commit(self, batches)
        with layer.lock:
            for batch, answer in zip(batches, answers, strict=True):
                if isinstance(answer, Committed):
                    ids = [record.record_id for record in batch.records]
                    line = {"run": batch.run, "first": answer.first, "ids": ids}
                    recorder.told(ACKS, json.dumps(line).encode())
        return answers

    often = (handle.CHECKPOINT_PAGES, sqlite.ANCHOR_EACH_S)
    handle.CHECKPOINT_PAGES, sqlite.ANCHOR_EACH_S = storage.wal_pages, storage.anchor_each_s  # type: ignore[misc]
    SqliteStore.commit = acknowledged  # type: ignore[method-assign]
    try:
        with layer.installed():
            yield layer
    finally:
        SqliteStore.commit = commit  # type: ignore[method-assign]
        handle.CHECKPOINT_PAGES, sqlite.ANCHOR_EACH_S = often  # type: ignore[misc]
        recorder.recording.calls = dict(layer.calls)
        recorder.recording.struck = layer.struck
        recorder.recording.save(storage.recording)
