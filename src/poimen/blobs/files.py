"""Large bodies as files: ROOT/ab/DIGEST, where `ab` are the first two digits.

Written beside its place, synced, renamed, and the folder synced, so that a name that exists is whole and
stays. Nothing outside ROOT can be reached: a name is hex digits only, and no link is followed. This module must
never know which record names a body.

Source: design storage.md, "The log" (blobs); reliability.md section 5, no. 4.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from poimen import clock
from poimen.blobs.api import is_digest, ref_of, unknown, verified
from poimen.kernel.errors import ConfigurationError, Corrupt, PoimenError, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from poimen.kernel.intent import BlobRef

_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
_UNFINISHED: Final = ".new-"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN: Final = os.O_NOFOLLOW | os.O_CLOEXEC


class FileBlobs:
    """A `BlobStore` of files.

    Arguments:
        root: the folder; created when the first body is put.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._named: set[Path] = set()

    def put(self, body: bytes, media_type: str = "application/json") -> BlobRef:
        """Keep a body; durable when this returns.

        Raises:
            StorageFailed: when it cannot be written. Nothing is left of it.
        """
        ref = ref_of(body, media_type)
        try:
            if self._make_folder(ref.digest[:2]):
                _sweep(self._root / ref.digest[:2])
            with self._folder(ref.digest[:2]) as folder:
                if not _holds(folder, ref.digest, body):
                    _write(folder, ref.digest, body)
                os.fsync(folder)
        except OSError as error:
            raise StorageFailed(
                f"a body of {len(body)} bytes cannot be kept: {error.strerror}",
                where=str(self._root),
                why="a record may only name what is durable",
            ) from error
        return ref

    def get(self, digest: str) -> bytes:
        """The body of this name, read now.

        Raises:
            NotFound: when there is none, or the name is no digest.
            Corrupt: when it does not match its name, or a link stands in its place.
            StorageFailed: when it cannot be read.
        """
        if not is_digest(digest):
            raise unknown(digest, str(self._root))
        where = str(self._root / digest[:2] / digest)
        try:
            with self._folder(digest[:2]) as folder:
                return verified(digest, _read(folder, digest), where)
        except FileNotFoundError:
            raise unknown(digest, str(self._root)) from None
        except OSError as error:
            if os.path.islink(where) or os.path.islink(os.path.dirname(where)):  # noqa: PTH114, PTH120 (a text here)
                raise Corrupt(f"blob {digest} is a link to somewhere else", where=where, digest=digest) from error
            raise StorageFailed(f"blob {digest} cannot be read: {error.strerror}", where=where) from error

    def has(self, digest: str) -> bool:
        """Whether something stands in the place of this name."""
        return is_digest(digest) and (self._root / digest[:2] / digest).exists()

    def place(self, digest: str) -> str:
        """Where a body of this name would lie, for people."""
        return str(self._root / digest[:2] / digest)

    def check(self) -> Iterator[tuple[str, str]]:
        """Read every body; yield for each damaged one its digest and a sentence."""
        for digest in self._digests():
            try:
                self.get(digest)
            except PoimenError as error:
                yield digest, error.message

    def copy(self, to: Path) -> int:
        """Put every body into another folder too, as a backup needs it before its database has a name.

        Arguments:
            to: the other root.

        Returns:
            The number of bodies.
        """
        other, n = FileBlobs(to), 0
        for digest in self._digests():
            other.put(self.get(digest))
            n += 1
        return n

    def _digests(self) -> Iterator[str]:
        for path in sorted(self._root.glob("??/*")):
            if is_digest(path.name):
                yield path.name

    def _make_folder(self, name: str) -> bool:
        """See that a folder is there and its name durable; True the first time."""
        first = self._root / name not in self._named
        for path in (self._root, self._root / name):
            if path in self._named:
                continue
            with suppress(FileExistsError):
                path.mkdir(mode=_DIRECTORY_MODE)
                path.chmod(_DIRECTORY_MODE)
            # Also where somebody else has just made it: its name must not be lost with our body in it.
            _sync(path.parent)
            self._named.add(path)
        return first

    @contextmanager
    def _folder(self, name: str) -> Iterator[int]:
        root = os.open(self._root, _FOLDER)
        try:
            folder = os.open(name, _FOLDER, dir_fd=root)
        finally:
            os.close(root)
        try:
            yield folder
        finally:
            os.close(folder)


def beside(db: Path) -> Path:
    """The folder of the large bodies of a database file.

    Raises:
        ConfigurationError: when a file stands there.
    """
    root = db.with_name(f"{db.name}.blobs")
    if root.exists() and not root.is_dir():
        raise ConfigurationError(f"{root} is not a folder", where=str(root), hint="move it away")
    return root


def _sync(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _sweep(folder: Path) -> None:
    """Remove what killed processes have left half written in a folder; what is locked is being written."""
    for path in sorted(folder.glob(f"{_UNFINISHED}*")):
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY | _PLAIN)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(fd)


def _begun(folder: int) -> tuple[int, str]:
    """A new file, locked until it is closed, so that a sweep leaves it alone; its name."""
    while True:
        name = f"{_UNFINISHED}{clock.random_hex(8)}"
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN, _FILE_MODE, dir_fd=folder)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:
                return fd, name
        except BaseException:
            os.close(fd)
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise
        # A sweep came between the file and its lock.
        os.close(fd)


def _read(folder: int, digest: str) -> bytes:
    fd = os.open(digest, os.O_RDONLY | _PLAIN, dir_fd=folder)
    with os.fdopen(fd, "rb") as file:
        return file.read()


def _holds(folder: int, digest: str, body: bytes) -> bool:
    """Whether the body is there already, whole; one that is damaged is written anew."""
    try:
        return _read(folder, digest) == body
    except OSError:
        return False


def _write(folder: int, digest: str, body: bytes) -> None:
    fd, name = _begun(folder)
    try:
        os.fchmod(fd, _FILE_MODE)
        view = memoryview(body)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
        os.rename(name, digest, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(fd)
