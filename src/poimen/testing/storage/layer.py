"""Between poimen and the disk, in one process: file operations below a folder are recorded, and may be made to fail.

SQLite's files pass through an apsw VFS, all others through the functions of `os` that poimen uses. What fails has
failed as on a disk: a write is done by half, a sync drops what it should have kept (see `power.disk`). This module
must never judge; it keeps the invariant that an operation is recorded after the system has done it.

Not seen: shared memory (no power cut keeps it), and files that are opened by other means (`open()` for writing).

Source: design proof.md, P3 and P7.
"""

from __future__ import annotations

import errno
import io
import os
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import apsw

from poimen import clock
from poimen._typing import override
from poimen.kernel.errors import StorageFailed
from poimen.testing.power.recording import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from poimen.testing.storage.faults import Fault

_SYNCS_ITS_NAME: Final = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL
_SQLITE_CODES: Final = {
    ("write", "EIO"): apsw.SQLITE_IOERR_WRITE,
    ("write", "ENOSPC"): apsw.SQLITE_FULL,
    ("sync", "EIO"): apsw.SQLITE_IOERR_FSYNC,
    ("sync", "ENOSPC"): apsw.SQLITE_IOERR_FSYNC,
    ("read", "EIO"): apsw.SQLITE_IOERR_READ,
    ("truncate", "EIO"): apsw.SQLITE_IOERR_TRUNCATE,
    ("truncate", "ENOSPC"): apsw.SQLITE_IOERR_TRUNCATE,
}


class Layer:
    """What stands between this process and the files of a folder.

    Arguments:
        root: the folder; created when it is missing.
        channels: files outside of it, by channel: what is written there has left for the outside.
        fault: what fails; None: nothing.

    Attributes:
        recorder: holds the recording.
        calls: how many of each kind of call there were: `write`, `sync`, `read`, `truncate`.
        struck: how often the fault has struck.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        channels: dict[str, str | os.PathLike[str]] | None = None,
        fault: Fault | None = None,
    ) -> None:
        _refuse_unseen()
        os.makedirs(root, mode=0o700, exist_ok=True)  # noqa: PTH103 (as `real` below)
        outside = {os.path.realpath(path): channel for channel, path in (channels or {}).items()}
        self.recorder = Recorder(os.path.realpath(root), outside)
        self.calls: Counter[str] = Counter()
        self.struck = 0
        self.lock = threading.RLock()
        self._fault = fault

    def arm(self, fault: Fault | None) -> None:
        """Let another call fail from now on; its calls are counted from here.

        Arguments:
            fault: what fails; None: nothing any more.
        """
        with self.lock:
            self._fault = fault
            self.calls.clear()
            self.struck = 0

    def due(self, call: str, name: str) -> str:
        """Count a call; the error that it must end with, empty when it goes well.

        Arguments:
            call: `write`, `sync`, `read` or `truncate`.
            name: the file, by its path from the folder; a folder too, for `sync`.
        """
        fault = self._fault
        if fault is not None and not fault.concerns(name):
            return ""
        self.calls[call] += 1
        if fault is None or not fault.strikes(call, self.calls[call]):
            return ""
        if not self.struck:
            self.recorder.recording.struck_at = self.recorder.made
        self.struck += 1
        return fault.error

    def sync(self, name: str, really: Callable[[], object], failure: Callable[[str, str], Exception]) -> None:
        """Sync a file or a folder, unless the fault strikes: then its dirty bytes are dropped.

        Arguments:
            name: by its path from the folder.
            really: asks the system for it.
            failure: makes the error to raise, of the call and the error's name.
        """
        covers = self.recorder.made
        with self.lock:
            error = self.due("sync", name)
            if error:
                if self.recorder.is_known(name):
                    self.recorder.failed(name, covers)
                raise failure("sync", error)
        really()
        with self.lock:
            self.synced(name, covers)

    def synced(self, name: str, covers: int) -> None:
        """A sync has returned: note it."""
        if self.recorder.is_known(name):
            self.recorder.synced(name, covers)
        else:
            self.recorder.names_synced(name, covers)

    @contextmanager
    def installed(self) -> Iterator[Layer]:
        """Stand in the way of everything that this process opens, while the block lasts."""
        vfs = _VFS(self)
        through = _System(self)
        before = {name: getattr(os, name) for name in through.replaced}
        opening = io.open
        try:
            for name, function in through.replaced.items():
                setattr(os, name, function)
            io.open = through.open_file
            yield self
        finally:
            io.open = opening
            for name, function in before.items():
                setattr(os, name, function)
            vfs.unregister()


class _VFS(apsw.VFS):
    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.base = apsw.vfs_names()[0]
        self.registered = f"layer-{clock.random_hex(6)}"
        super().__init__(self.registered, self.base, makedefault=True)

    @override
    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802 (SQLite's name)
        return _File(self.layer, self.base, name, flags)

    @override
    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802 (as above)
        super().xDelete(filename, syncdir)
        recorder = self.layer.recorder
        with self.layer.lock:
            name = recorder.name(os.path.realpath(filename))
            if name is not None:
                recorder.unlinked(name)
                if syncdir:
                    recorder.names_synced(_parent(name), recorder.made)


class _File(apsw.VFSFile):
    def __init__(self, layer: Layer, base: str, name: Any, flags: Any) -> None:
        super().__init__(base, name, flags)
        self._layer = layer
        given = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = layer.recorder.name(os.path.realpath(given)) if given else None
        self._names_due = bool(flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & _SYNCS_ITS_NAME)
        if self._name is not None and flags[0] & apsw.SQLITE_OPEN_CREATE:
            with layer.lock:
                layer.recorder.opened(self._name)

    def _due(self, call: str) -> str:
        return self._layer.due(call, self._name) if self._name is not None else ""

    @override
    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 (as above)
        if error := self._due("read"):
            raise _sqlite("read", error)
        return super().xRead(amount, offset)

    @override
    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 (as above)
        with self._layer.lock:
            error = self._due("write")
            kept = data[: len(data) // 2] if error else data
            super().xWrite(kept, offset)
            if self._name is not None and kept:
                self._layer.recorder.wrote(self._name, offset, kept)
        if error:
            raise _sqlite("write", error)

    @override
    def xTruncate(self, newsize: int) -> None:  # noqa: N802 (as above)
        with self._layer.lock:
            if error := self._due("truncate"):
                raise _sqlite("truncate", error)
            super().xTruncate(newsize)
            if self._name is not None:
                self._layer.recorder.truncated(self._name, newsize)

    @override
    def xSync(self, flags: int) -> None:  # noqa: N802 (as above)
        if self._name is None:
            super().xSync(flags)
            return
        self._layer.sync(self._name, lambda: super(_File, self).xSync(flags), _sqlite)
        if self._names_due:
            self._names_due = False
            recorder = self._layer.recorder
            with self._layer.lock:
                recorder.names_synced(_parent(self._name), recorder.made)


class _System:
    """The functions of `os` that change files, as this process calls them now."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._recorder = layer.recorder
        names = ("open", "write", "fsync", "fdatasync", "ftruncate", "rename", "replace", "unlink", "remove", "mkdir")
        self._real: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in names}
        self._open_file = io.open
        self.replaced: dict[str, Callable[..., Any]] = {
            "open": self.open,
            "write": self.write,
            "fsync": self.fsync,
            "fdatasync": self.fsync,
            "ftruncate": self.ftruncate,
            "rename": self.rename,
            "replace": self.rename,
            "unlink": self.unlink,
            "remove": self.unlink,
            "mkdir": self.mkdir,
        }

    def _named(self, fd: int) -> str:
        try:
            return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 (for each write)
        except OSError:
            return ""

    def _placed(self, path: Any, dir_fd: int | None) -> str | None:
        given = os.fsdecode(path)
        folder = os.path.realpath(os.path.dirname(given)) if dir_fd is None else self._named(dir_fd)  # noqa: PTH120
        return self._recorder.name(f"{folder}/{os.path.basename(given)}")  # noqa: PTH119 (a text here)

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        fd: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        if flags & os.O_CREAT:
            name = self._recorder.name(self._named(fd))
            if name:
                with self._layer.lock:
                    self._recorder.opened(name)
        return fd

    def open_file(self, file: Any, *more: Any, **settings: Any) -> Any:
        path = self._named(file) if isinstance(file, int) else os.path.realpath(file)
        name = self._recorder.name(path)
        if name and (error := self._layer.due("read", name)):
            if isinstance(file, int):
                os.close(file)
            raise _system(error, path)
        return self._open_file(file, *more, **settings)

    def write(self, fd: int, data: Any) -> int:
        path = self._named(fd)
        recorder = self._recorder
        if path in recorder.channels:
            with self._layer.lock:
                recorder.told(recorder.channels[path], bytes(data))
                return int(self._real["write"](fd, data))
        name = recorder.name(path)
        if not name:
            return int(self._real["write"](fd, data))
        with self._layer.lock:
            error = self._layer.due("write", name)
            kept = data[: len(data) // 2] if error else data
            written = int(self._real["write"](fd, kept))
            if written:
                recorder.wrote(name, os.lseek(fd, 0, os.SEEK_CUR) - written, bytes(kept[:written]))
        if error:
            raise _system(error, path)
        return written

    def fsync(self, fd: int) -> None:
        path = self._named(fd)
        name = self._recorder.name(path)
        if name is None:
            self._real["fsync"](fd)
        else:
            self._layer.sync(name, lambda: self._real["fsync"](fd), lambda _, error: _system(error, path))

    def ftruncate(self, fd: int, length: int) -> None:
        path = self._named(fd)
        name = self._recorder.name(path)
        with self._layer.lock:
            if name and (error := self._layer.due("truncate", name)):
                raise _system(error, path)
            self._real["ftruncate"](fd, length)
            if name:
                self._recorder.truncated(name, length)

    def rename(self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        name, to = self._placed(src, src_dir_fd), self._placed(dst, dst_dir_fd)
        with self._layer.lock:
            self._real["rename"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            if name is not None and to is not None:
                self._recorder.renamed(name, to)

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        name = self._placed(path, dir_fd)
        with self._layer.lock:
            self._real["unlink"](path, dir_fd=dir_fd)
            if name is not None:
                self._recorder.unlinked(name)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        name = self._placed(path, dir_fd)
        with self._layer.lock:
            self._real["mkdir"](path, mode, dir_fd=dir_fd)
            if name is not None:
                self._recorder.made_folder(name)


def _sqlite(call: str, error: str) -> Exception:
    return apsw.exception_for(_SQLITE_CODES[call, error])


def _system(error: str, path: str) -> OSError:
    number = getattr(errno, error)
    return OSError(number, os.strerror(number), path)


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _refuse_unseen() -> None:
    if not os.path.isdir("/proc/self/fd"):  # noqa: PTH112 (a text here)
        raise StorageFailed("/proc/self/fd is missing", why="without it nothing says which file a descriptor is")
