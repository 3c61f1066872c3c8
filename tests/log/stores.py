"""What the tests of the log share: batches, worlds in which several stores share one log, a movable clock."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import apsw

from poimen import clock
from poimen.log.api import Batch, Blob, Committed, Lease, NewRecord
from poimen.log.memory import Contents, MemoryStore
from poimen.log.sqlite import SqliteStore
from poimen.testing.false_stores import falsified
from poimen.testing.storage.layer import Layer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from poimen.log.api import Store
    from poimen.testing.storage.faults import Fault

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
    """One log; each `open` is another way into it. A new backend is one of these, and one line in `WORLDS`.

    Arguments:
        folder: where it may keep files; nobody else does.
        layered: its storage can be made to fail, see `fail`.

    Attributes:
        kind: the backend's name.
        fails: whether a commit of it can fail, as that of a disk can.
        copies: whether it can be backed up.
        written: the files that a commit writes, as a pattern.
    """

    kind = ""
    fails = False
    copies = False
    written = ""

    def __init__(self, folder: Path, *, layered: bool = False) -> None:
        self.folder, self.layered = folder, layered

    def open(self, *, read_only: bool = False) -> Any:
        """Another store on the same log."""
        raise AssertionError

    def die(self, *stores: Any) -> None:
        """The processes of all stores of this log end, without a word."""
        raise AssertionError

    def layers(self) -> World:
        """A new log of the same kind, whose storage can be made to fail."""
        return type(self)(self.folder / "layered", layered=True)

    def fail(self, fault: Fault | None) -> None:
        """Let storage fail, when the world is layered; None: no more."""
        raise AssertionError

    def struck(self) -> bool:
        """Whether the fault has struck."""
        return False

    def elsewhere(self, path: Path) -> World:
        """The log in a backup."""
        raise AssertionError

    def end(self) -> None:
        """Take away what stands around the log."""


class MemoryWorld(World):
    kind = "memory"

    def __init__(self, folder: Path, *, layered: bool = False) -> None:
        super().__init__(folder, layered=layered)
        self.contents = Contents()

    def open(self, *, read_only: bool = False) -> MemoryStore:
        return MemoryStore(self.contents, read_only=read_only)

    def die(self, *stores: Any) -> None:
        for each in stores:
            each.close()
        self.contents.workers.clear()  # it has no processes: what of a worker is left ends with them


class SqliteWorld(World):
    kind = "sqlite"
    fails = True
    copies = True
    written = "*-wal"

    def __init__(self, folder: Path, *, layered: bool = False, name: str = "poimen.db") -> None:
        super().__init__(folder, layered=layered)
        self.path = folder / "log-0" / name
        self.lives = 0
        self.around = ExitStack()
        self.layer = self.around.enter_context(Layer(folder).installed()) if layered else None

    def open(self, *, read_only: bool = False) -> SqliteStore:
        return SqliteStore(self.path, read_only=read_only)

    def die(self, *stores: Any) -> None:
        """What lies on the disk goes on elsewhere, with all locks free: what a SIGKILL of all leaves behind."""
        self.lives += 1
        there = self.folder / f"log-{self.lives}"
        shutil.copytree(self.path.parent, there, ignore=shutil.ignore_patterns("*-shm"))
        self.path = there / self.path.name
        for each in stores:
            each.close()

    def fail(self, fault: Fault | None) -> None:
        assert self.layer is not None
        self.layer.arm(fault)

    def struck(self) -> bool:
        return self.layer is not None and self.layer.struck > 0

    def elsewhere(self, path: Path) -> World:
        world = SqliteWorld(path.parent, name=path.name)
        world.path = path
        return world

    def end(self) -> None:
        self.around.close()


WORLDS: Final[dict[str, type[World]]] = {
    "memory": MemoryWorld,
    "sqlite": SqliteWorld,
}
"""Every backend of the log, for the suite, the machine and their controls."""


class FalseWorld(World):
    """The log of another world, with one promise broken at each way into it."""

    def __init__(self, world: World, control: str) -> None:
        super().__init__(world.folder, layered=world.layered)
        self.world, self.control = world, control
        self.kind, self.fails, self.copies, self.written = world.kind, world.fails, world.copies, world.written

    def open(self, *, read_only: bool = False) -> Any:
        return falsified(self.world.open(read_only=read_only), self.control)

    def die(self, *stores: Any) -> None:
        self.world.die(*(each.real for each in stores))

    def layers(self) -> World:
        return FalseWorld(self.world.layers(), self.control)

    def fail(self, fault: Fault | None) -> None:
        self.world.fail(fault)

    def struck(self) -> bool:
        return self.world.struck()

    def elsewhere(self, path: Path) -> World:
        return self.world.elsewhere(path)

    def end(self) -> None:
        self.world.end()


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
