"""The database's file, its directory, and the names of the files beside it.

Files are 0600 and directories 0700 whatever the umask, because logs hold what agents said and did.
Network filesystems are refused: SQLite's WAL needs shared memory and locks of one host. This module
must never open a database file that exists (closing it would drop SQLite's locks in this process), and
must never know what is inside.

Source: design storage.md, "SQLite"; reliability.md sections 0.4, 3 and 5.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from poimen.kernel.errors import ConfigurationError, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700

_MOUNTS: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(rb"\\([0-3][0-7]{2})")
_NETWORK: Final = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs",
    "nfs", "nfs4", "ocfs2", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
})  # fmt: skip
"""Filesystems whose locks or shared mappings may not reach every process that can open the file."""

_OF_THE_SYSTEM: Final = frozenset({"cgroup", "cgroup2", "devpts", "proc", "sysfs"})
"""Filesystems in which the system makes the files, and nobody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Paths of the files beside a database called DB.

    Arguments:
        wal, shm: SQLite's own.
        turn: who may write now; `next`: who is next.
        open: held shared by each open writer.
        settle: held while a failed commit is settled.
        doubt: the marker that closes the database until then; `doubt_log`: what was found.
        anchor: head hashes, to see a cut tail.
        workers: a directory, one lock file a live worker.
    """

    db: Path
    wal: Path
    shm: Path
    turn: Path
    next: Path
    open: Path
    settle: Path
    doubt: Path
    doubt_log: Path
    anchor: Path
    workers: Path

    @classmethod
    def of(cls, db: Path) -> Self:
        """The names beside `db`."""

        def side(ending: str) -> Path:
            return db.with_name(f"{db.name}{ending}")

        return cls(
            db=db,
            wal=side("-wal"),
            shm=side("-shm"),
            turn=side(".turn"),
            next=side(".turn.next"),
            open=side(".open"),
            settle=side(".settle"),
            doubt=side(".doubt"),
            doubt_log=side(".doubt.log"),
            anchor=side(".anchor"),
            workers=side(".workers"),
        )


def real(path: str | os.PathLike[str]) -> Path:
    """The path with symbolic links resolved, so that each database has one name and one set of side files."""
    return Path(os.path.realpath(path))


def require(db: Path) -> None:
    """See that an existing file can be a database; nothing is created.

    Raises:
        StorageFailed: when it is missing or cannot be read.
        ConfigurationError: when it is no regular file, has several names (a mount too), or is on a network filesystem.
    """
    _refuse_mount(db)
    try:
        found = db.stat()
    except FileNotFoundError:
        raise StorageFailed(
            f"no database at {db}",
            where=str(db),
            hint="check the path (poimen doctor shows where it came from); a run creates a new database",
        ) from None
    except OSError as error:
        raise StorageFailed(f"cannot look at {db}: {error.strerror}", where=str(db)) from error
    _refuse_odd(db, found)
    if not os.access(db, os.R_OK):
        raise StorageFailed(f"{db} cannot be read by this user", where=str(db))


def prepare(db: Path) -> bool:
    """Make sure that a private file stands at the path, for SQLite to open.

    Returns:
        True when the file was created here.

    Raises:
        StorageFailed: when the place cannot be written.
        ConfigurationError: as for `require`.
    """
    _refuse_mount(db)
    try:
        make_directory(db.parent)
        try:
            fd = os.open(db, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        except FileExistsError:
            _refuse_odd(db, db.stat())
            _make_private(db)
        else:
            os.fchmod(fd, FILE_MODE)
            os.close(fd)
            sync_directory(db.parent)
            return True
    except OSError as error:
        raise StorageFailed(f"cannot create {db}: {error.strerror}", where=str(db)) from error
    _refuse_unwritable(db)
    return False


def would_prepare(db: Path) -> None:
    """See that `prepare` would succeed, as far as that can be told beforehand; nothing is created or changed.

    Raises:
        StorageFailed, ConfigurationError: as `prepare`.
    """
    _refuse_mount(db)
    try:
        found = db.stat()
    except FileNotFoundError:
        _refuse_uncreatable(db)
    except OSError as error:
        raise StorageFailed(f"cannot create {db}: {error.strerror}", where=str(db)) from error
    else:
        _refuse_odd(db, found)
        _refuse_unwritable(db)


def _refuse_uncreatable(db: Path) -> None:
    place = db.parent
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise StorageFailed(f"cannot create {db}: {place} is not a directory", where=str(db))
    if not os.access(place, os.W_OK | os.X_OK):
        raise StorageFailed(f"cannot create {db}: {place} cannot be written", where=str(db), unwritable=True)
    try:
        kind = filesystem_of(place, _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return
    if kind in _OF_THE_SYSTEM:
        raise StorageFailed(f"cannot create {db}: nothing can be made in {place} ({kind})", where=str(db))


def _refuse_unwritable(db: Path) -> None:
    for place in (db, db.parent):
        if not os.access(place, os.W_OK):
            raise StorageFailed(
                f"{place} cannot be written by this user",
                where=str(db),
                why="the log is written before anything is done",
                hint="mend the permissions, choose another place (--db), or open it read-only",
                unwritable=True,
            )


def _refuse_odd(db: Path, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise ConfigurationError(f"{db} is a directory", where=str(db), hint="name a file in it, such as poimen.db")
    if not stat.S_ISREG(found.st_mode):
        raise ConfigurationError(f"{db} is not a regular file", where=str(db))
    if found.st_nlink > 1:
        raise ConfigurationError(
            f"{db} has {found.st_nlink} names (hard links)",
            where=str(db),
            why="processes that open it by different names would not see each other's locks and WAL",
            hint="remove the other links",
        )


def _make_private(db: Path) -> None:
    """Give a log that begins in an empty file of ours, and what lies empty beside it, the mode of a new one.

    By name, since a database that exists is not opened here. SQLite's own files take the mode of the database.
    """
    if holds_anything(db):
        return
    sides = Sides.of(db)
    for path in (db, sides.wal, sides.shm, sides.turn, sides.next, sides.open, sides.settle, sides.anchor):
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(found.st_mode) and not found.st_size and found.st_uid == os.geteuid():
            path.chmod(FILE_MODE)


def holds_anything(db: Path) -> bool:
    """Whether there is a file with something in it."""
    try:
        return db.stat().st_size > 0
    except OSError:
        return False


class Found:
    """Files as they were found at their paths: whether those still name them. Each transaction asks.

    Arguments:
        path: of a file that exists.
    """

    __slots__ = ("_found",)

    def __init__(self, path: Path) -> None:
        self._found: tuple[tuple[str, int, int], ...] = ()
        self.add(path)

    def add(self, path: Path) -> None:
        """Look after one more file, which exists.

        Raises:
            OSError: it does not.
        """
        found = path.stat()
        self._found += ((str(path), found.st_ino, found.st_dev),)

    def moved(self) -> str:
        """The first path that names its file no longer; "" when all do: 2 µs a file."""
        for path, ino, dev in self._found:
            try:
                now = os.stat(path)  # noqa: PTH116 (a Path would double the time)
            except OSError:
                return path
            if now.st_ino != ino or now.st_dev != dev:
                return path
        return ""


def make_directory(path: Path) -> None:
    """Create a directory and those above it that are missing, each 0700 and durable.

    Raises:
        OSError: when it cannot be created.
    """
    missing: list[Path] = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        try:
            directory.mkdir(mode=DIRECTORY_MODE)
        except FileExistsError:
            continue
        directory.chmod(DIRECTORY_MODE)
        sync_directory(directory.parent)


def open_private(path: Path, flags: int) -> int:
    """Open or create a side file, 0600 whatever the umask, closed on exec, never through a symbolic link.

    Arguments:
        path: beside the database.
        flags: further `os.O_…` flags, such as the access mode.

    Raises:
        OSError: as `os.open`.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        fd = os.open(path, flags | os.O_CREAT, FILE_MODE)
        os.fchmod(fd, FILE_MODE)
        return fd


def open_regular(path: Path) -> int:
    """Open a side file to read it, closed on exec; a pipe, at which the reader would wait, is refused.

    Raises:
        OSError: as `os.open`; EISDIR or EINVAL for what is no regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


def write_all(fd: int, data: bytes) -> None:
    """Write all of the data, however often the system takes only a part of it."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def filesystem_of(path: Path, mounts: str) -> str:
    """The type of the filesystem that a path lies on.

    Arguments:
        path: absolute, resolved; it need not exist.
        mounts: the text of `/proc/self/mountinfo`.

    Returns:
        Such as `ext4`; empty when the text does not say.
    """
    best, kind = -1, ""
    for point, found in _mounted(mounts):
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), found
    return kind


def _mounted(mounts: str) -> Iterator[tuple[Path, str]]:
    """Each mount point, and the type of the filesystem there, the oldest first."""
    for line in mounts.splitlines():
        left, found, right = line.partition(" - ")
        fields = left.split(" ")
        if found and len(fields) >= 5:  # noqa: PLR2004 (the mount point is the fifth field)
            point = _OCTAL.sub(lambda digits: bytes([int(digits[1], 8)]), os.fsencode(fields[4]))
            yield Path(os.fsdecode(point)), right.split(" ", 1)[0]


def _refuse_mount(db: Path) -> None:
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    if any(point == db for point, _ in _mounted(mounts)):
        raise ConfigurationError(
            f"{db} is a mount point: the file has another name elsewhere",
            where=str(db),
            why="processes that open it by different names would not see each other's locks and WAL",
            hint="mount the directory that holds the database and the files beside it, not the file alone",
        )
    kind = filesystem_of(db, mounts)
    if kind in _NETWORK or kind.startswith("fuse."):
        raise ConfigurationError(
            f"{db} lies on a network filesystem ({kind})",
            where=str(db),
            why="its locks and shared memory cannot be trusted between machines, and a log would be damaged",
            hint="put the database on a local disk, or use a postgresql:// database",
        )
