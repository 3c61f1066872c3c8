"""Locks between processes: flock on files beside the database.

An flock ends with the process that holds it, whatever ends it, so a free lock proves that its holder is
gone. Descriptors are closed on exec, and closed in a forked child, where they would keep a dead parent's
lock alive. This module must never know about runs or SQL. Turn-taking is advisory: SQLite's own lock
decides, the turn only makes it fair.

Source: design storage.md, "SQLite" (liveness, turns); reliability.md section 3 (fairness).
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import weakref
from typing import TYPE_CHECKING, Final

from poimen import clock
from poimen.kernel.errors import InvariantViolated, StorageFailed
from poimen.log.disk import files

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TURN_PATIENCE_S: Final = 1.0
"""After so long without the turn a writer goes on without it."""

_LOOK_S: Final = 0.2
"""Longer than anybody holds a worker's lock who only looks whether it is free."""

_SHORTEST_PAUSE_S: Final = 0.0001
_LONGEST_PAUSE_S: Final = 0.002
_WORKER_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_KERNEL_LOCK: Final = re.compile(r"\b(?:FLOCK|POSIX)\b.*?(\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ")

# Bound once: taking turns lies in the path of every commit.
_flock: Final = fcntl.flock
_ALONE_NOW: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
_SHARED_NOW: Final = fcntl.LOCK_SH | fcntl.LOCK_NB
_FREE: Final = fcntl.LOCK_UN

_open_here: weakref.WeakSet[LockFile] = weakref.WeakSet()
_pause: Final = threading.Event()


def _close_in_child() -> None:
    for lock in list(_open_here):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)


class LockFile:
    """A file whose flock this process may hold. A second one on the same path is a stranger to the first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = files.open_private(path, os.O_RDWR)
        _open_here.add(self)

    def try_exclusive(self) -> bool:
        """Take it alone, now or not at all. A shared hold of ours is lost when this fails."""
        try:
            _flock(self._fd, _ALONE_NOW)
        except BlockingIOError:
            return False
        return True

    def try_shared(self) -> bool:
        """Take it beside others, now or not at all."""
        try:
            _flock(self._fd, _SHARED_NOW)
        except BlockingIOError:
            return False
        return True

    def wait(self, *, shared: bool = False, patience_s: float) -> bool:
        """Take it within a time.

        Returns:
            False when it was held by others for so long.
        """
        patience = Patience(patience_s)
        while not (self.try_shared() if shared else self.try_exclusive()):
            if not patience.pause():
                return False
        return True

    def unlock(self) -> None:
        """Let go of it."""
        if self._fd >= 0:
            _flock(self._fd, _FREE)

    def is_named(self) -> bool:
        """Whether the path still names the file that is held, and not a successor."""
        try:
            return os.path.samestat(os.fstat(self._fd), self.path.stat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the file, and so let go of it; a second time does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Patience:
    """Pauses that grow, up to a time limit.

    Arguments:
        seconds: how long in all.
    """

    def __init__(self, seconds: float) -> None:
        self._until = clock.monotonic() + seconds
        self._next_s = _SHORTEST_PAUSE_S

    def pause(self) -> bool:
        """Wait a little; False when the time is up."""
        if clock.monotonic() >= self._until:
            return False
        _pause.wait(self._next_s * clock.jitter(0.3))
        self._next_s = min(self._next_s * 1.3, _LONGEST_PAUSE_S)
        return True


class Turn:
    """Fair turns among the processes that write to one database.

    Two locks: who has the *turn* writes, who has *next* waits for it. A writer must pass through *next*
    to come again, so it cannot overtake the one that waits there. Alone, that is four system calls.
    """

    def __init__(self, sides: files.Sides) -> None:
        self._turn = LockFile(sides.turn)
        self._next = LockFile(sides.next)
        self._mine = False

    def take(self, patience_s: float) -> bool:
        """Wait for the turn, at most so long, in seconds; False means: go on without it."""
        queued = self._next.try_exclusive()
        self._mine = queued and self._turn.try_exclusive()
        if not self._mine:
            queued = self._wait(patience_s, queued=queued)
        if queued:
            self._next.unlock()
        return self._mine

    def _wait(self, patience_s: float, *, queued: bool) -> bool:
        patience = Patience(patience_s)
        while not self._mine and patience.pause():
            queued = queued or self._next.try_exclusive()
            self._mine = queued and self._turn.try_exclusive()
        return queued

    def give(self) -> None:
        """Let the next one have it."""
        if self._mine:
            self._mine = False
            self._turn.unlock()

    def close(self) -> None:
        """Close both files."""
        self._turn.close()
        self._next.close()


_LINGERING: Final[list[LockFile]] = []
"""Locks that this process holds to its end."""


class Workers:
    """The live workers of a database: a directory with one locked file for each.

    Arguments:
        directory: created when the first worker is declared.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._own: dict[str, LockFile] = {}

    @property
    def own(self) -> tuple[str, ...]:
        """The workers declared here."""
        return tuple(self._own)

    def declare(self, worker_id: str) -> None:
        """Hold the lock of a worker until `close` or the death of this process.

        Raises:
            InvariantViolated: when another live process is this worker.
            StorageFailed: when the file cannot be created or locked.
        """
        if worker_id in self._own:
            return
        path = self._path(worker_id)
        if path is None:
            raise InvariantViolated("a worker id is letters, digits and . _ -", where=repr(worker_id))
        try:
            self._own[worker_id] = self._locked(path, worker_id)
        except OSError as error:
            raise StorageFailed(
                f"worker {worker_id} cannot be declared: {error}",
                where=str(path),
                why="others know by its lock that a worker lives, and would take its runs",
                hint="poimen doctor",
            ) from error

    def _locked(self, path: Path, worker_id: str) -> LockFile:
        files.make_directory(self._directory)
        while True:
            lock = LockFile(path)
            if not lock.try_exclusive() and not lock.wait(patience_s=_LOOK_S):
                lock.close()
                raise InvariantViolated("a worker id belongs to one process", where=worker_id, worker=worker_id)
            if lock.is_named():
                return lock
            lock.close()

    def alive(self, worker_id: str) -> bool:
        """Whether somebody holds the worker's lock, as far as it can be asked; a worker without a file is dead."""
        if worker_id in self._own:
            return True
        path = self._path(worker_id)
        return path is not None and not _free(path)

    def sweep(self) -> None:
        """Remove the files of dead workers."""
        for path in self._directory.glob("*.lock"):
            try:
                lock = LockFile(path)
                if lock.try_exclusive() and lock.is_named():
                    path.unlink()
                lock.close()
            except OSError:
                continue

    def linger(self) -> None:
        """Let the workers declared here live until this process ends: bodies of theirs go on."""
        _LINGERING.extend(self._own.values())
        self._own.clear()

    def close(self) -> None:
        """Give up the workers declared here."""
        for lock in self._own.values():
            if lock.is_named():
                lock.path.unlink(missing_ok=True)
            lock.close()
        self._own.clear()

    def _path(self, worker_id: str) -> Path | None:
        if not _WORKER_ID.fullmatch(worker_id):
            return None
        return self._directory / f"{worker_id}.lock"


def _free(path: Path) -> bool:
    """Whether nobody holds the lock. What cannot be asked (no descriptor left, no right) says nothing of the holder."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        _flock(fd, _SHARED_NOW)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def holders(paths: Iterable[Path]) -> list[int]:
    """The ids of the processes that hold a lock on one of the files; empty where the system does not tell."""
    wanted: set[int] = set()
    for path in paths:
        try:
            wanted.add(path.stat().st_ino)
        except OSError:
            continue
    try:
        with open("/proc/locks", encoding="ascii") as listing:  # noqa: PTH123 (no database file)
            found = [match for line in listing if (match := _KERNEL_LOCK.search(line))]
    except OSError:
        return []
    return sorted({int(match[1]) for match in found if int(match[4]) in wanted and int(match[1]) > 0})
