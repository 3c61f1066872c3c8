"""What one process did to the files of a folder, in order: writes, syncs, names; and what it told the outside.

Two recorders write it: a layer inside the process (`storage.layer`), and strace from outside (`power.syscalls`). Files
have numbers, because a name can move from one file to another. This module must never know what the files mean; it
keeps the invariant that a sync covers only what had been written when it began.

Source: design proof.md, P3 and P4; reliability.md section 2a.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

What: TypeAlias = Literal["write", "truncate", "sync", "create", "mkdir", "unlink", "rename", "names", "told", "failed"]
"""An operation: `names` is the sync of a folder, `told` a line that left for the outside."""

WITNESS: Final = "witness"
"""The channel of the witness: one line for each effect, which begins with its request id."""

ACKS: Final = "acks"
"""The channel of commits that have returned: a line of JSON, `{"run", "first", "ids"}`, for each batch."""

RESULTS: Final = "results"
"""The channel of results: one line for each effect whose outcome code was given, which begins with its request id."""


class Op(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One operation.

    Arguments:
        what: see `What`.
        file: the file's number.
        path: of names: from the folder, `/` between; of `told`: the channel.
        to: of `rename`: the new name.
        at: the offset of a write, the length after a truncation.
        data: the bytes of a write, the line that was told.
        covers: of a sync: how many operations had been made when it began.
    """

    what: What
    file: int = 0
    path: str = ""
    to: str = ""
    at: int = 0
    data: bytes = b""
    covers: int = 0


class Recording(msgspec.Struct):
    """Everything that one process did.

    Arguments:
        initial: the files that were there before, by path from the folder; all of it durable.
        folders: the folders that were there before, by path from the folder.
        before: `told` operations of earlier processes.
        ops: in order.
        calls: how many calls of each kind there were (see `storage.faults`).
        struck: how often a fault has struck.
        struck_at: how many operations there were when it struck first.
    """

    initial: dict[str, bytes] = msgspec.field(default_factory=dict)
    folders: list[str] = msgspec.field(default_factory=list)
    before: list[Op] = msgspec.field(default_factory=list)
    ops: list[Op] = msgspec.field(default_factory=list)
    calls: dict[str, int] = msgspec.field(default_factory=dict)
    struck: int = 0
    struck_at: int = 0

    @classmethod
    def of_folder(cls, root: str | os.PathLike[str], *, without: tuple[str, ...] = ("-shm",)) -> Recording:
        """A recording that begins with what is in a folder now.

        Arguments:
            root: the folder; it need not exist.
            without: endings of the names of files that no power cut survives.
        """
        initial: dict[str, bytes] = {}
        folders: list[str] = []
        for path in sorted(Path(root).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.is_dir():
                folders.append(name)
            elif not name.endswith(without):
                initial[name] = path.read_bytes()
        return cls(initial=initial, folders=folders)

    def numbered(self) -> dict[str, int]:
        """The number of each file that was there before, from 1."""
        return {name: number for number, name in enumerate(self.initial, start=1)}

    def told(self, channel: str, upto: int | None = None) -> Iterator[bytes]:
        """The lines of a channel that had left before operation `upto`; None: all of them.

        Arguments:
            channel: such as `WITNESS`.
            upto: a number of operations.
        """
        for ops in (self.before, self.ops if upto is None else self.ops[:upto]):
            yield from (op.data for op in ops if op.what == "told" and op.path == channel)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file."""
        Path(path).write_bytes(msgspec.msgpack.encode(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recording:
        """Read what `save` has written."""
        return msgspec.msgpack.decode(Path(path).read_bytes(), type=cls)


class Recorder:
    """Builds a recording from what a tracer or a layer sees; it knows which file a name means at each moment.

    Arguments:
        root: the folder whose files are recorded, resolved.
        channels: files outside of it, by their resolved paths: what is written there has left for the outside.
    """

    def __init__(self, root: str, channels: dict[str, str] | None = None) -> None:
        self.recording = Recording.of_folder(root)
        self.root = root
        self.channels = channels or {}
        self._prefix = f"{root}/"
        self._numbers = self.recording.numbered()
        self._last = len(self._numbers)
        self._sizes = {number: len(self.recording.initial[name]) for name, number in self._numbers.items()}

    @property
    def made(self) -> int:
        """How many operations there are by now."""
        return len(self.recording.ops)

    def name(self, path: str) -> str | None:
        """The path from the folder (empty: the folder itself); None: it lies elsewhere, or no cut keeps it."""
        if path == self.root:
            return ""
        if not path.startswith(self._prefix) or path.endswith("-shm"):
            return None
        return path[len(self._prefix) :].removesuffix(" (deleted)")

    def opened(self, name: str) -> int:
        """The number of the file of this name; one that is new is created."""
        number = self._numbers.get(name)
        if number is None:
            self._last += 1
            number = self._numbers[name] = self._last
            self._sizes[number] = 0
            self.recording.ops.append(Op("create", file=number, path=name))
        return number

    def is_known(self, name: str) -> bool:
        """Whether a file has this name now."""
        return name in self._numbers

    def size(self, name: str) -> int:
        """The length of the file of this name."""
        return self._sizes[self.opened(name)]

    def wrote(self, name: str, at: int, data: bytes) -> None:
        """Bytes have been written."""
        number = self.opened(name)
        self._sizes[number] = max(self._sizes[number], at + len(data))
        self.recording.ops.append(Op("write", file=number, at=at, data=bytes(data)))

    def truncated(self, name: str, size: int) -> None:
        """A file has a new length."""
        number = self.opened(name)
        self._sizes[number] = size
        self.recording.ops.append(Op("truncate", file=number, at=size))

    def synced(self, name: str, covers: int) -> None:
        """A file's sync has returned; it had begun when there were `covers` operations."""
        self.recording.ops.append(Op("sync", file=self.opened(name), covers=covers))

    def failed(self, name: str, covers: int) -> None:
        """A file's sync has failed: what it should have made durable is marked as clean, and never written."""
        self.recording.ops.append(Op("failed", file=self.opened(name), covers=covers))

    def names_synced(self, folder: str, covers: int) -> None:
        """A folder's sync has returned."""
        self.recording.ops.append(Op("names", path=folder, covers=covers))

    def made_folder(self, name: str) -> None:
        """A folder has been made."""
        self.recording.ops.append(Op("mkdir", path=name))

    def unlinked(self, name: str) -> None:
        """A name is gone."""
        number = self._numbers.pop(name, 0)
        if number:
            self.recording.ops.append(Op("unlink", file=number, path=name))

    def renamed(self, name: str, to: str) -> None:
        """A file has another name, in the same folder."""
        number = self._numbers.pop(name, 0)
        if number:
            self._numbers[to] = number
            self.recording.ops.append(Op("rename", file=number, path=name, to=to))

    def told(self, channel: str, line: bytes) -> None:
        """Something has left for the outside."""
        self.recording.ops.append(Op("told", path=channel, data=bytes(line)))
