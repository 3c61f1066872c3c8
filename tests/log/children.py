"""Programs that run in a process of their own, to be killed, starved or refused there."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from poimen.kernel.errors import PoimenError, RunExists
from poimen.log.api import Batch, Committed
from poimen.log.sqlite import SqliteStore
from tests.log.stores import batch, blob, record


def say(what: Any) -> None:
    """One JSON line, in one write: a line that was begun is whole."""
    os.write(1, json.dumps(what).encode() + b"\n")


def wait() -> None:
    """Until the parent says go on, or is gone."""
    sys.stdin.readline()


def attempted(act: Any) -> str:
    """The name of the error that an act raises, or nothing."""
    try:
        act()
    except PoimenError as error:
        return f"{type(error).__name__}: {error.message}"
    return ""


def ensure_run(store: SqliteStore, run: str) -> None:
    answer = store.commit([batch(run, admits=True)])[0]
    if not isinstance(answer, Committed | RunExists):
        raise answer


def hammer(db: str, own: str) -> None:
    """Append to a run of its own under a lease, and to a shared one, telling each record that is durable."""
    store = SqliteStore(db)
    worker = f"w-{os.getpid()}"
    ensure_run(store, own)
    ensure_run(store, "shared")
    lease = store.claim(own, worker=worker, lease_s=60)
    if lease is None:
        raise SystemExit("the lease of a dead worker was not free")
    say("ready")
    n = 0
    while True:
        n += 1
        wanted = [batch(own, n=1 + n % 3, epoch=lease.epoch, state="RUNNING"), batch("shared")]
        for one, answer in zip(wanted, store.commit(wanted), strict=True):
            if not isinstance(answer, Committed):
                raise SystemExit(f"refused: {answer}")
            say([one.run, answer.first, [each.record_id for each in one.records]])


def race(db: str, own: str, n: int) -> None:
    """Commit as often as possible, telling each time, until the parent closes the pipe."""
    store = SqliteStore(db)
    ensure_run(store, own)
    say("ready")
    wait()
    try:
        for _ in range(n):
            store.commit([batch(own)])
            say("done")
    except BrokenPipeError:
        os._exit(0)


def hold(db: str, run: str) -> None:
    """Claim a run and keep it, alive in the middle of a step."""
    store = SqliteStore(db)
    lease = store.claim(run, worker=f"w-{os.getpid()}", lease_s=60)
    say(lease is not None and lease.epoch)
    wait()
    say(lease is not None and attempted(lambda: accept(store.commit([batch(run, epoch=lease.epoch)]))))
    wait()


def accept(answers: list[Any]) -> None:
    for answer in answers:
        if not isinstance(answer, Committed):
            raise answer


def append_until_it_fails(db: str, run: str, n: int) -> None:
    """Append one batch after another; tell what was acknowledged, what failed, and what the handle does then."""
    store = SqliteStore(db)
    ensure_run(store, run)
    acknowledged: list[str] = []
    failed: dict[str, Any] = {}
    for _ in range(n):
        one = batch(run, n=2)
        try:
            accept(store.commit([one]))
        except PoimenError as error:
            failed = {
                "error": type(error).__name__,
                "why": error.why,
                "ids": list(error.ids.get("record_ids", ())),
                "tried": [each.record_id for each in one.records],
            }
            break
        acknowledged += [each.record_id for each in one.records]
    then = [
        attempted(lambda: accept(store.commit([batch(run)]))),
        attempted(lambda: store.read(run)),
        attempted(lambda: store.head(run)),
        attempted(lambda: store.claim(run, worker="late", lease_s=1)),
    ]
    say({"acknowledged": acknowledged, "failed": failed, "then": then})
    wait()
    store.close()


def one_commit(db: str, run: str) -> None:
    """One commit of two records that also changes the state."""
    store = SqliteStore(db)
    say("ready")
    accept(store.commit([batch(run, n=2, state="RUNNING")]))
    say("done")
    os._exit(0)


def open_and_close(db: str) -> None:
    """Open a log and close it."""
    store = SqliteStore(db)
    say("ready")
    store.close()
    say("done")
    os._exit(0)


def fork(db: str) -> None:
    """Open, fork, and let both say what the store does for them; the child ends the ordinary way."""
    store = SqliteStore(db)
    ensure_run(store, "r1")
    store.worker("forker")
    calls = {
        "commit": lambda: store.commit([batch("r1")]),
        "read": lambda: store.read("r1"),
        "feed": store.feed,
        "head": lambda: store.head("r1"),
        "heads": store.heads,
        "claim": lambda: store.claim("r1", worker="x", lease_s=1),
        "renew": lambda: store.renew([], lease_s=1),
        "release": lambda: store.release([]),
        "blob": lambda: store.blob("00" * 32),
        "changed": store.changed,
        "worker": lambda: store.worker("x"),
        "check": lambda: list(store.check()),
        "rebuild": store.rebuild,
        "backup": lambda: store.backup(Path(f"{db}.copy")),
        "anchor": store.anchor,
        "idle": store.idle,
    }
    pid = os.fork()
    if pid == 0:
        say({name: attempted(call) for name, call in calls.items()})
        store.close()
        sys.exit(0)
    os.waitpid(pid, 0)
    say(attempted(lambda: accept(store.commit([batch("r1")]))))
    say([damage.what for damage in store.check()])
    store.close()


def orphan(db: str, run: str) -> None:
    """Claim a run, leave a forked child behind, and die."""
    store = SqliteStore(db)
    lease = store.claim(run, worker="parent", lease_s=60)
    pid = os.fork()
    if pid == 0:
        say([os.getpid(), lease is not None])
        wait()
        os._exit(0)
    signal.pause()


def masked(db: str, mask: str) -> None:
    """Make everything that a log makes, under a umask."""
    os.umask(int(mask, 8))
    from poimen.blobs.tables import TieredBlobs
    from poimen.log.disk import doubt, files

    store = SqliteStore(db)
    store.commit([batch("r1", admits=True, blobs=(blob(b"x"),))])
    store.claim("r1", worker="w", lease_s=1)
    store.anchor()
    TieredBlobs(store, store.path).put(b"large" * 100_000)
    store.backup(Path(db).with_name("copy.db"))
    doubt.mark(files.Sides.of(store.path), [Batch(run="r1", records=(record(),))], worker="w", error="none")
    SqliteStore(db)
    say("ready")
    wait()


def claim_at_once(db: str, run: str) -> None:
    store = SqliteStore(db)
    lease = store.claim(run, worker=f"w-{os.getpid()}", lease_s=1)
    say(lease.epoch if lease else None)


def create(db: str) -> None:
    """Open a database that may not exist yet, when the parent says so, and append."""
    say("ready")
    wait()
    store = SqliteStore(db)
    ensure_run(store, f"r{os.getpid()}")
    store.close()
    say("done")


def hold_blob(root: str) -> None:
    """Stand still in the middle of writing a body."""
    from poimen.blobs.files import FileBlobs

    write = os.write

    def stopped(fd: int, data: Any) -> int:
        if fd == 1:
            return write(fd, data)
        name = next(path for path in Path(root).rglob(".new-*") if path.stat().st_ino == os.fstat(fd).st_ino)
        say(str(name.relative_to(root)))
        wait()
        return write(fd, data)

    os.write = stopped
    FileBlobs(Path(root)).put(b"stopped" * 20_000)


if __name__ == "__main__":
    program = globals()[sys.argv[1]]
    program(*(int(each) if each.isdecimal() and i > 1 else each for i, each in enumerate(sys.argv[2:])))
