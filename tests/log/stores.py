"""What the tests of the log share: batches, worlds in which several stores share one log, a movable clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import apsw

from poimen import clock
from poimen.log.api import Batch, Blob, Committed, Lease, NewRecord
from poimen.log.memory import Contents, MemoryStore
from poimen.log.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from poimen.log.api import Store

ROOT = Path(__file__).parents[2]
CHILDREN = Path(__file__).with_name("children.py")


def record(
    subject: str = "step:a#0", *, raw_id: bytes | None = None, body: bytes = b'{"n":1}', **other: Any
) -> NewRecord:
    """A record that nobody has appended yet."""
    given: dict[str, Any] = {"branch": "main", "kind": "step.noted.v1", "at": clock.wall_us()} | other
    return NewRecord(raw_id=raw_id or clock.record_id(), subject=subject, body=body, **given)


def batch(run: str, *records: NewRecord, n: int = 1, **other: Any) -> Batch:
    """A batch of the given records, or of `n` new ones."""
    return Batch(run=run, records=records or tuple(record() for _ in range(n)), **other)


def blob(body: bytes, media_type: str = "application/json") -> Blob:
    """A body under its digest."""
    return Blob(digest=sha256(body).hexdigest(), media_type=media_type, body=body)


def landed(store: Store, *batches: Batch) -> list[Committed]:
    """Commit batches of which none may be refused."""
    answers = store.commit(batches)
    for answer in answers:
        assert isinstance(answer, Committed), answer
    return [answer for answer in answers if isinstance(answer, Committed)]


def admitted(store: Store, run: str = "r1", **other: Any) -> Committed:
    """Admit a run with one record."""
    return landed(store, batch(run, admits=True, **other))[0]


def claimed(store: Store, run: str = "r1", worker: str = "w1", lease_s: float = 10) -> Lease:
    lease = store.claim(run, worker=worker, lease_s=lease_s)
    assert lease is not None
    return lease


def lsns(store: Store, run: str = "r1") -> list[int]:
    return [each.lsn for each in store.read(run)]


def filled(db: Path) -> None:
    """Two runs of five records, one with a driver."""
    store = SqliteStore(db)
    admitted(store, blobs=(blob(b"body"),))
    lease = store.claim("r1", worker="w1", lease_s=10)
    assert lease is not None
    landed(store, batch("r1", epoch=lease.epoch, n=3), batch("r2", admits=True, n=5), batch("r1", record("cancel")))
    store.close()


def edited(db: Path, *statements: str, values: tuple[Any, ...] = ()) -> None:
    """Change a closed database behind its back."""
    connection = apsw.Connection(str(db))
    for statement in statements:
        connection.execute(statement, values if "?" in statement else ()).fetchall()
    connection.close()


def damages(db: Path) -> list[tuple[str, int]]:
    store = SqliteStore(db, read_only=True)
    found = [(damage.run, damage.lsn) for damage in store.check()]
    store.close()
    return found


class World:
    """One log; each `open` is another way into it."""

    kind = ""

    def open(self, *, read_only: bool = False) -> Any:
        """Another store on the same log."""
        raise AssertionError


class MemoryWorld(World):
    kind = "memory"

    def __init__(self) -> None:
        self.contents = Contents()

    def open(self, *, read_only: bool = False) -> MemoryStore:
        return MemoryStore(self.contents, read_only=read_only)


class SqliteWorld(World):
    kind = "sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, *, read_only: bool = False) -> SqliteStore:
        return SqliteStore(self.path, read_only=read_only)


class MovableClock(clock.Source):
    """The real clock, moved on by hand."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def wall_us(self) -> int:
        return super().wall_us() + int(self.ahead_s * clock.US)

    def boot_us(self) -> int:
        return super().boot_us() + int(self.ahead_s * clock.US)

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


@contextmanager
def moved_clock() -> Iterator[MovableClock]:
    source = MovableClock()
    before = clock.use(source)
    try:
        yield source
    finally:
        clock.use(before)


class Child:
    """A child process that runs one program of `children.py` and talks in JSON lines."""

    def __init__(self, program: str, *arguments: object, under: tuple[str, ...] = (), **popen: Any) -> None:
        self.process = subprocess.Popen(
            [*under, sys.executable, str(CHILDREN), program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            **popen,
        )

    def says(self) -> Any:
        """The next thing it says; None when it is gone."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else None

    def go_on(self) -> None:
        """Let it come out of `wait()`."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.end()

    def end(self) -> int:
        """Close its stdin and wait until it is gone; its exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.end()
