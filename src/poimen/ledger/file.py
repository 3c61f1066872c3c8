"""The file under a decision ledger: one writer, whole lines, synced before control returns, fail-stop.

This module must never know what a line says: it sees bytes. Invariants:

- Bytes that were acknowledged are in every later state of the file until it is replaced as a whole.
- One writer: the lock is an flock on the file itself, so nothing lies beside it. A replacement is locked
  before its rename, and whoever locks compares inodes afterwards, so holding the lock of a file that was
  replaced meanwhile is noticed. Descriptors are close-on-exec (`os.open` makes them so) and closed after a
  fork: a child that outlives its parent does not hold the lock.
- After an error in a write or a sync nothing is acknowledged and no sync is tried again: the kernel may
  have dropped the bytes and still report success next time. The next opening writes the last line over
  itself, so that its pages are dirty again, and syncs, before anything is acknowledged.
- The directory is synced at every opening: whoever made or replaced the file may have died before that.

Source: design storage.md, "Fail-stop" and "SQLite" (flock, fork, modes); requirement decision-ledger.md.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Final

from poimen.kernel.errors import CommitUnknown, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path
    from typing import NoReturn

_TRIES: Final = 100
_CHUNK: Final = 1 << 20


class LedgerFile:
    """A locked file that lines are appended to.

    Arguments:
        path: the file, links resolved; made with mode 0600 where there is none.

    Raises:
        StorageFailed: another writer has it, or it cannot be opened, read or synced.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = self._dir = self._fresh = -1
        self._pid = os.getpid()
        self._turn = threading.RLock()
        self._stopped = "it was not opened"
        _LIVE.add(self)
        try:
            self._open()
            self._stopped = ""
        except OSError as error:
            self._failed("cannot be opened", error)
        finally:
            if self._stopped:
                self.release()

    @property
    def is_open(self) -> bool:
        """Whether descriptors are held."""
        return self._fd >= 0

    @contextlib.contextmanager
    def working(self) -> Generator[None]:
        """Hold the file for one call.

        Raises:
            StorageFailed: it is closed, has failed before, or was opened by another process.
        """
        if os.getpid() != self._pid:
            raise StorageFailed(
                f"this handle on {self.path} belongs to process {self._pid}; a fork does not inherit it",
                hint="open the ledger in the process that writes it",
                path=str(self.path),
            )
        with self._turn:
            if self._stopped:
                raise StorageFailed(
                    f"{self.path} cannot be used: {self._stopped}",
                    hint="open it again: DecisionLedger(path)",
                    path=str(self.path),
                )
            yield

    @contextlib.contextmanager
    def doubt(self, what: str) -> Generator[None]:
        """A stretch in which something is being made durable: whatever leaves it by an error leaves the file closed.

        That holds for an interrupt raised in the middle too, after which nobody knows what was written.

        Raises:
            CommitUnknown: an `OSError` left the stretch.
        """
        self._stopped = f"whether {what} is on disk is unknown"
        try:
            yield
            self._stopped = ""
        except OSError as error:
            raise CommitUnknown(
                f"whether {what} is on disk in {self.path} is unknown: {error}",
                where=str(self.path),
                why="the ledger is closed; a failed sync is not tried again, it could report what is not so",
                hint="mend the storage and open the ledger again: it then has it whole or not at all",
                path=str(self.path),
            ) from error
        finally:
            if self._stopped:
                self.release()

    def read(self) -> bytes:
        """All bytes of the file."""
        try:
            return _read_all(self._fd)
        except OSError as error:
            self._failed("cannot be read", error)

    def settle(self, data: bytes, *, last: int, size: int) -> None:
        """Make durable what was found at opening: `data` up to `size`, whose last line begins at `last`.

        Raises:
            StorageFailed: it could not be; the file is not open.
        """
        try:
            self._unlink_beside()
            if size < len(data):
                os.ftruncate(self._fd, size)
            elif data:
                _write_over(self._fd, data[last:], last)
            if data:
                _sync(self._fd)
            # only now: on Linux a positioned write to an appending file would append
            fcntl.fcntl(self._fd, fcntl.F_SETFL, fcntl.fcntl(self._fd, fcntl.F_GETFL) | os.O_APPEND)
            _sync(self._dir)
        except OSError as error:
            self._failed("cannot be made durable", error)

    def refuse_if_moved(self) -> None:
        """Check that the path still leads here, before a write that nobody could find.

        Raises:
            StorageFailed: it does not; the file is closed, nothing was written.
        """
        if not self._in_place():
            self._stopped = "somebody moved, replaced or removed it"
            self.release()
            raise StorageFailed(
                f"{self.path} is no longer the file that was opened: somebody moved, replaced or removed it",
                why="a line written now would be found by nobody; nothing was written",
                hint="find out who did it, then open the ledger again",
                path=str(self.path),
            )

    def append(self, line: bytes) -> None:
        """Write a line at the end and sync; only inside `doubt`."""
        written = os.write(self._fd, line)
        if written != len(line):
            # the rest is not tried: should it fail, a later line could end up behind half of this one
            raise OSError(errno.EIO, f"only {written} of {len(line)} bytes were written")
        _sync(self._fd)

    def write_beside(self, data: bytes) -> None:
        """Write a whole, locked, synced file beside this one, with its mode and owner.

        Raises:
            StorageFailed: it could not be; this file is untouched and works on.
        """
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            self._unlink_beside()
            self._fresh = os.open(self._beside, flags, 0o600, dir_fd=self._dir)
            old, new = os.fstat(self._fd), os.fstat(self._fresh)
            if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                os.fchown(self._fresh, old.st_uid, old.st_gid)
            os.fchmod(self._fresh, stat.S_IMODE(old.st_mode))
            self._lock(self._fresh)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fresh, rest) :]
            _sync(self._fresh)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._unlink_beside()
            self._failed("cannot be compacted", error, hint="nothing was changed; make room and compact again")

    def replace(self) -> None:
        """Put the file beside in place of this one; only inside `doubt`."""
        os.rename(self._beside, self.path.name, src_dir_fd=self._dir, dst_dir_fd=self._dir)
        _sync(self._dir)
        self._fd, self._fresh = self._fresh, self._fd
        self._close_fresh()

    def close(self) -> None:
        """Close the file and give up the lock; again, or in a forked child: nothing further."""
        if os.getpid() != self._pid:
            self.release()
            return
        with self._turn:
            self._stopped = self._stopped or "it was closed"
            self.release()

    def release(self) -> None:
        """Close all descriptors. An flock ends with its last descriptor: a forked child frees nobody's lock here."""
        self._close_fresh()
        fds, self._fd, self._dir = (self._fd, self._dir), -1, -1
        for fd in fds:
            _close(fd)

    # ---- inside --------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._dir = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        for _ in range(_TRIES):
            self._fd = self._open_file()
            self._lock(self._fd)
            if self._in_place():
                return
            fd, self._fd = self._fd, -1
            _close(fd)
        raise OSError(errno.EBUSY, "somebody replaces the file again and again")

    def _open_file(self) -> int:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NOCTTY | os.O_NONBLOCK
        for _ in range(_TRIES):
            with contextlib.suppress(FileExistsError):
                fd = os.open(self.path.name, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._dir)
                os.fchmod(fd, 0o600)
                return fd
            with contextlib.suppress(FileNotFoundError):
                fd = os.open(self.path.name, flags, dir_fd=self._dir)
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    return fd
                _close(fd)
                raise OSError(errno.EINVAL, "it is not a regular file")
        raise OSError(errno.EBUSY, "the file appears and vanishes")

    def _lock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageFailed(
                f"{self.path} is open for writing elsewhere, in this process or another",
                where=str(self.path),
                why="two writers could record two decisions under one id",
                hint=f"close the other one (fuser {self.path} names it); DecisionLedger.read(path) looks without it",
                path=str(self.path),
            ) from error

    @property
    def _beside(self) -> str:
        return f".{self.path.name}.poimen-compact"

    def _unlink_beside(self) -> None:
        """Remove what a compaction left that was killed; the lock says that none is at work."""
        self._close_fresh()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._beside, dir_fd=self._dir)

    def _in_place(self) -> bool:
        try:
            there = os.stat(self.path.name, dir_fd=self._dir, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(self._fd), there)

    def _close_fresh(self) -> None:
        fd, self._fresh = self._fresh, -1
        _close(fd)

    def _failed(self, what: str, error: OSError, *, hint: str = "") -> NoReturn:
        raise StorageFailed(
            f"{self.path} {what}: {error.strerror or error}",
            where=str(self.path),
            hint=hint or "mend the cause (the directory must exist and be writable) and open the ledger again",
            path=str(self.path),
            errno=error.errno,
        ) from error


def refuse_unnamable(path: str | os.PathLike[str]) -> None:
    """Refuse what no file can be called.

    Raises:
        StorageFailed: the path is empty, or the system has no bytes for it.
    """
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        name = b"\0"
    if not name or b"\0" in name:
        said = f"{os.fspath(path)!r} cannot be one" if name else "the one given is empty"
        raise StorageFailed(f"a decision ledger needs the path of a file; {said}")


def read_whole(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a regular file; opening a pipe or a device would wait for its other end.

    Raises:
        OSError: it cannot be read, or is something else.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return _read_all(fd)
    finally:
        _close(fd)


def _close(fd: int) -> None:
    if fd >= 0:
        with contextlib.suppress(OSError):
            os.close(fd)


def _read_all(fd: int) -> bytes:
    parts: list[bytes] = []
    at = 0
    while part := os.pread(fd, _CHUNK, at):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _write_over(fd: int, data: bytes, at: int) -> None:
    if os.pwrite(fd, data, at) != len(data):
        raise OSError(errno.EIO, "the last line could not be written whole over itself")


def _sync(fd: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


_LIVE: Final[weakref.WeakSet[LedgerFile]] = weakref.WeakSet()


def _forget_after_fork() -> None:
    for file in list(_LIVE):
        file.release()


os.register_at_fork(after_in_child=_forget_after_fork)
