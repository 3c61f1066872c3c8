"""The same recording from outside: a child that nobody has changed, under strace.

Every system call that changes a file below the folder is read from the trace, with its bytes, and put in the order in
which the kernel answered; a sync covers what had been answered when it was asked for. This module must never guess: a
call that it does not know and that changes a file is an error. It keeps the invariant that what the child did through
any library is recorded, which no layer inside it can promise.

Source: design proof.md, P4; reliability.md section 2a.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from poimen.kernel.errors import StorageFailed
from poimen.testing.power.recording import Recorder
from poimen.testing.storage.tracing import strace_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from poimen.testing.power.recording import Recording

CALLS: Final = (
    "open", "openat", "creat", "write", "pwrite64", "writev", "pwritev", "pwritev2", "ftruncate", "truncate",
    "fallocate", "fsync", "fdatasync", "sync_file_range", "rename", "renameat", "renameat2", "unlink", "unlinkat",
    "link", "linkat", "mkdir", "mkdirat", "rmdir", "close", "lseek", "copy_file_range", "sendfile", "syncfs",
)  # fmt: skip
"""What can change a file or a name, and what says where the next write goes."""

_LINE: Final = re.compile(rb"^(\d+) +(.*)$")
_RESUMED: Final = re.compile(rb"^<\.\.\. (\w+) resumed>(.*)$")
_CALL: Final = re.compile(rb"^(\w+)\((.*)\)\s+= (-?\d+)")
_FD: Final = re.compile(rb"^(?:(-?\d+)|AT_FDCWD)<((?:[^>\\]|\\x[0-9a-f]{2})*)>")
_TEXT: Final = re.compile(rb'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_LONGEST: Final = 1 << 26
_UNFINISHED: Final = b" <unfinished ...>"


@dataclass(slots=True, kw_only=True)
class _Asked:
    """A system call on its way: how much had been recorded when it was asked for, and its text so far."""

    covers: int
    text: bytes


@dataclass(slots=True)
class _Reader:
    recorder: Recorder
    positions: dict[int, int] = field(default_factory=dict)
    appending: set[int] = field(default_factory=set)
    asked: dict[bytes, _Asked] = field(default_factory=dict)

    def take(self, line: bytes) -> None:
        """One line of the trace."""
        found = _LINE.match(line)
        if found is None:
            return
        thread, text = found[1], found[2]
        if text.endswith(_UNFINISHED):
            self.asked[thread] = _Asked(covers=self.recorder.made, text=text.removesuffix(_UNFINISHED))
            return
        covers = self.recorder.made
        if (resumed := _RESUMED.match(text)) is not None:
            asked = self.asked.pop(thread)
            covers, text = asked.covers, asked.text + resumed[2]
        call = _CALL.match(text)
        if call is not None and int(call[3]) >= 0:
            self._answered(call[1].decode(), call[2], int(call[3]), covers)

    def _answered(self, call: str, arguments: bytes, result: int, covers: int) -> None:
        match call:
            case "open" | "openat" | "creat":
                self._opened(arguments, result)
            case "close":
                self.positions.pop(int(arguments.split(b"<")[0]), None)
            case "lseek":
                self.positions[int(arguments.split(b"<")[0])] = result
            case "write" | "pwrite64":
                self._wrote(call, arguments, result)
            case "ftruncate":
                name = self._name(_FD.match(arguments))
                if name:
                    self.recorder.truncated(name, int(arguments.rpartition(b", ")[2]))
            case "fsync" | "fdatasync":
                self._synced(arguments, covers)
            case "mkdir" | "mkdirat" | "unlink" | "unlinkat" | "rename" | "renameat" | "renameat2":
                self._named(call, arguments)
            case _:
                if self.recorder.root.encode().hex() in arguments.replace(b"\\x", b"").decode(errors="replace"):
                    raise StorageFailed(
                        f"the child has made the call {call} on a file of its folder, which is not known"
                    )

    def _opened(self, arguments: bytes, fd: int) -> None:
        name = self._paths(arguments)[0]
        flags = arguments.split(b", ")
        appends = any(b"O_APPEND" in flag for flag in flags)
        self.positions[fd] = 0
        self.appending.discard(fd)
        if appends:
            self.appending.add(fd)
        if not name or not any(b"O_CREAT" in flag for flag in flags):
            return
        self.recorder.opened(name)
        if any(b"O_TRUNC" in flag for flag in flags):
            self.recorder.truncated(name, 0)

    def _wrote(self, call: str, arguments: bytes, n: int) -> None:
        found = _FD.match(arguments)
        if found is None:
            return
        path = _plain(found[2])
        channel = self.recorder.channels.get(path)
        name = self.recorder.name(path)
        if channel is None and not name:
            return
        text = _TEXT.search(arguments)
        if text is None or text[2]:
            raise StorageFailed(f"the trace does not hold all bytes of a write to {path}")
        data = bytes.fromhex(text[1].replace(b"\\x", b"").decode())[:n]
        if channel is not None:
            self.recorder.told(channel, data)
            return
        fd = int(found[1])
        if call == "pwrite64":
            at = int(arguments.rpartition(b", ")[2])
        else:
            at = self.recorder.size(name or "") if fd in self.appending else self.positions.get(fd, 0)
            self.positions[fd] = at + n
        self.recorder.wrote(name or "", at, data)

    def _synced(self, arguments: bytes, covers: int) -> None:
        name = self._name(_FD.match(arguments))
        if name is None:
            return
        if self.recorder.is_known(name):
            self.recorder.synced(name, covers)
        else:
            self.recorder.names_synced(name, covers)

    def _named(self, call: str, arguments: bytes) -> None:
        names = self._paths(arguments)
        if names[0] is None:
            return
        if call.startswith("mkdir"):
            self.recorder.made_folder(names[0])
        elif call.startswith("unlink"):
            self.recorder.unlinked(names[0])
        elif names[1] is not None:
            self.recorder.renamed(names[0], names[1])

    def _paths(self, arguments: bytes) -> list[str | None]:
        """The paths that a call names, each from its folder's descriptor if it has one."""
        found: list[str | None] = []
        rest = arguments
        while (text := _TEXT.search(rest)) is not None:
            before = rest[: text.start()].rstrip(b", ").rpartition(b", ")[2]
            folder = _FD.match(before)
            path = os.path.join(_plain(folder[2]) if folder else "/", _plain(text[1]))  # noqa: PTH118 (a text here)
            found.append(self.recorder.name(os.path.normpath(path)))
            rest = rest[text.end() :]
        return found or [None]

    def _name(self, fd: re.Match[bytes] | None) -> str | None:
        return None if fd is None else self.recorder.name(_plain(fd[2]))


def _plain(text: bytes) -> str:
    return re.sub(rb"\\x([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), text).decode(errors="replace")


def traced_recording(
    command: Sequence[str],
    *,
    root: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    channels: Mapping[str, str | os.PathLike[str]],
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> tuple[Recording, subprocess.CompletedProcess[str]]:
    """Run a command under strace, and read from the trace what it did to the files of a folder.

    Arguments:
        command: such as `child_command(...)` gives.
        root: the folder of the database; created when it is missing.
        folder: takes the trace.
        channels: files outside of `root`, by channel: what is written there has left for the outside.
        env: variables to set.
        timeout_s: how long it may take, seconds.

    Raises:
        ConfigurationError: strace is not installed.
        StorageFailed: the child has changed its files by a call that is not known here.
        subprocess.TimeoutExpired: the child took too long; it is gone.
    """
    Path(root).mkdir(mode=0o700, parents=True, exist_ok=True)
    recorder = Recorder(os.path.realpath(root), {os.path.realpath(path): name for name, path in channels.items()})
    trace = Path(folder) / "trace"
    under = strace_command(output=trace, calls=CALLS)
    under[1:1] = ["-xx", "-s", str(_LONGEST)]
    done = subprocess.run(  # noqa: S603 (the caller's own program)
        [*under, *command],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        timeout=timeout_s,
    )
    reader = _Reader(recorder)
    for line in _lines(trace):
        reader.take(line)
    trace.unlink(missing_ok=True)
    return recorder.recording, done


def _lines(trace: Path) -> Iterator[bytes]:
    if trace.exists():
        with trace.open("rb") as file:
            for line in file:
                yield line.rstrip(b"\n")
