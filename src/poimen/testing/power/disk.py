"""Every disk that a power cut could leave: what was synced, and any torn part of the rest.

A disk takes the operations of a recording one after another. At each of them it can be cut: what had been synced is
there, of the rest each sector of 512 bytes holds what some moment since its last sync had put there, each file for
itself; the names in a folder are those of some moment since the folder's last sync. A failed sync drops its bytes: no
later sync brings them, unless their page is written again.

This module must never open a file; it keeps the invariant that synced bytes are in every state.

Not modelled: faults of the kernel or the drive; a sector that is itself torn.

Source: design proof.md, P3, P7; reliability.md section 2a.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from poimen.testing.power.recording import Op

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random  # noqa: TID251 (a seed names each state)

    from poimen.testing.power.recording import Recording

SECTOR: Final = 512
PAGE: Final = 4096

HOW: Final = ("none", "all", "prefix", "torn", "sectors", "missing", "last")
"""What is kept of a file's unsynced writes: nothing; all; those up to a moment; the same with a part of the next; of
each sector any version; all but the sectors of one write; those alone."""

_PER_FILE: Final = 0.5
_JUNK_SHM: Final = 0.1
_ZEROS: Final = 0.25
_FOLDER: Final = -1


class _File:
    __slots__ = ("clean", "durable", "pending")

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = bytearray(durable)
        self.pending: list[tuple[int, Op]] = []
        self.clean: list[Op] = []

    def take(self, number: int, op: Op) -> None:
        """A write makes the whole of its pages dirty, with what a failed sync had left in memory there."""
        if self.clean and op.what == "write":
            touched = _pages(op)
            self.pending += [(number, each) for each in self.clean if _pages(each) & touched]
            self.clean = [each for each in self.clean if not _pages(each) & touched]
        self.pending.append((number, op))

    def settle(self, covers: int) -> None:
        """A sync has returned."""
        for number, op in self.pending:
            if number < covers:
                _apply(self.durable, op)
        self.pending = [(number, op) for number, op in self.pending if number >= covers]

    def drop(self, covers: int) -> None:
        """A sync has failed: the pages are marked clean, and stay in memory alone."""
        for number, op in self.pending:
            if number < covers and op.what == "write":
                self.clean += _by_page(op)
        self.pending = [(number, op) for number, op in self.pending if number >= covers or op.what == "truncate"]


class _Names:
    __slots__ = ("durable", "pending")

    def __init__(self) -> None:
        self.durable: dict[str, int] = {}
        self.pending: list[tuple[int, Op]] = []

    def settle(self, covers: int) -> None:
        for number, op in self.pending:
            if number < covers:
                _move(self.durable, op)
        self.pending = [(number, op) for number, op in self.pending if number >= covers]


class Disk:
    """A disk under a recording.

    Arguments:
        recording: what was done.

    Attributes:
        done: how many of its operations the disk has taken.
    """

    def __init__(self, recording: Recording) -> None:
        self._ops = recording.ops
        self.done = 0
        self._files: dict[int, _File] = {}
        self._folders: dict[str, _Names] = {"": _Names()}
        for name in recording.folders:
            self._folders[name] = _Names()
        for name in recording.folders:
            self._folders[_parent(name)].durable[name] = _FOLDER
        for name, number in recording.numbered().items():
            self._folders[_parent(name)].durable[name] = number
            self._files[number] = _File(recording.initial[name])

    def step(self) -> bool:
        """Take the next operation; False when there is none."""
        if self.done >= len(self._ops):
            return False
        op, number = self._ops[self.done], self.done
        self.done += 1
        match op.what:
            case "write" | "truncate":
                self._files[op.file].take(number, op)
            case "sync":
                self._files[op.file].settle(op.covers)
            case "failed":
                self._files[op.file].drop(op.covers)
            case "names":
                self._folders[op.path].settle(op.covers)
            case "create" | "mkdir" | "unlink" | "rename":
                if op.what == "create":
                    self._files[op.file] = _File()
                elif op.what == "mkdir":
                    self._folders[op.path] = _Names()
                self._folders[_parent(op.path)].pending.append((number, op))
            case "told":
                pass
        return True

    @property
    def open_writes(self) -> int:
        """How many operations no sync has made durable yet."""
        files = sum(len(file.pending) for file in self._files.values())
        return files + sum(len(folder.pending) for folder in self._folders.values())

    def cut(self, rng: Random) -> dict[str, bytes]:
        """The files of one state, chosen at random among those that a cut can leave now.

        Arguments:
            rng: decides everything, so that its seed names the state.

        Returns:
            Contents by path from the folder.
        """
        common = rng.choice(HOW)
        found: dict[str, bytes] = {}
        for name, number in self._kept_names(rng):
            file = self._files[number]
            how = common if rng.random() < _PER_FILE else rng.choice(HOW)
            found[name] = _kept(file, how, rng)
        for name in [name for name in found if f"{name}-wal" in found]:
            if rng.random() < _JUNK_SHM:
                found[f"{name}-shm"] = rng.randbytes(1 << 15)
        return found

    def _kept_names(self, rng: Random) -> Iterator[tuple[str, int]]:
        waiting = [""]
        while waiting:
            folder = self._folders[waiting.pop()]
            names = dict(folder.durable)
            pending = folder.pending
            for _, op in pending[: rng.randint(0, len(pending))]:
                _move(names, op)
            for name, number in names.items():
                if number == _FOLDER:
                    waiting.append(name)
                else:
                    yield name, number


def _kept(file: _File, how: str, rng: Random) -> bytes:
    if not file.pending:
        return bytes(file.durable)
    ops = [op for _, op in file.pending]
    # A truncation frees blocks, so the filesystem keeps its order with the writes on both sides of it.
    cuts = [n for n, op in enumerate(ops) if op.what == "truncate"]
    if cuts and how not in {"all", "prefix"}:
        ops = ops[: rng.choice([*cuts, len(ops)])]
        start = max((n + 1 for n in cuts if n < len(ops)), default=0)
    else:
        start = 0
    kept = bytearray(file.durable)
    for op in ops[:start]:
        _apply(kept, op)
    ops = ops[start:]
    if not ops:
        return bytes(kept)
    size = max([len(kept), *(op.at + len(op.data) for op in ops if op.what == "write")])
    wanted = _chosen(ops, how, rng)
    nth: Counter[int] = Counter()
    for number, op in enumerate(ops):
        if op.what != "write":
            if number < wanted.upto:
                _apply(kept, op)
            continue
        for at, data in _sectors(op):
            sector = at // SECTOR
            nth[sector] += 1
            if wanted.keeps(number, sector, nth[sector]):
                _put(kept, at, data)
    if len(kept) < size and how not in {"none", "all", "prefix"} and rng.random() < _ZEROS:
        kept.extend(bytes(size - len(kept)))
    return bytes(kept)


@dataclass(slots=True, kw_only=True)
class _Choice:
    """Which pieces of a file's unsynced writes are kept.

    Arguments:
        upto: every piece of the operations before this one.
        edge: of operation `upto` what lies in sectors before this one.
        versions: how many writes of each sector, counted since the sync.
    """

    upto: int = 0
    edge: int = 0
    versions: dict[int, int] = field(default_factory=dict)

    def keeps(self, number: int, sector: int, nth: int) -> bool:
        """Whether a piece is kept: of an operation, in a sector, the `nth` write there."""
        if number < self.upto or (number == self.upto and sector < self.edge):
            return True
        return nth <= self.versions.get(sector, 0)


def _chosen(ops: list[Op], how: str, rng: Random) -> _Choice:
    last = len(ops) - 1
    if how == "none":
        return _Choice()
    if how == "all":
        return _Choice(upto=last + 1)
    if how == "prefix":
        return _Choice(upto=rng.randint(0, last + 1))
    if how == "torn":
        torn = rng.randint(0, last)
        return _Choice(upto=torn, edge=ops[torn].at // SECTOR + rng.randint(0, max(1, len(ops[torn].data) // SECTOR)))
    # From here on each sector holds one of the versions that it has had: it is written back when it pleases the system.
    versions = Counter(at // SECTOR for op in ops if op.what == "write" for at, _ in _sectors(op))
    if how == "sectors":
        share = rng.choice((0.1, 0.5, 0.9))
        kept = {s: n if rng.random() < share else rng.randint(0, n - 1) for s, n in versions.items()}
    else:
        chosen = ops[rng.randint(0, last)]
        mine = {at // SECTOR for at, _ in _sectors(chosen)} if chosen.what == "write" else set()
        kept = {s: n for s, n in versions.items() if (s in mine) is (how == "last")}
    return _Choice(versions=kept)


def _sectors(op: Op) -> Iterator[tuple[int, bytes]]:
    return _pieces(op, SECTOR)


def _pieces(op: Op, size: int) -> Iterator[tuple[int, bytes]]:
    at, data = op.at, op.data
    while data:
        room = size - at % size
        yield at, data[:room]
        at, data = at + room, data[room:]


def _pages(op: Op) -> set[int]:
    return set(range(op.at // PAGE, (op.at + len(op.data) - 1) // PAGE + 1))


def _by_page(op: Op) -> list[Op]:
    return [Op("write", file=op.file, at=at, data=data) for at, data in _pieces(op, PAGE)]


def _put(content: bytearray, at: int, data: bytes) -> None:
    if at > len(content):
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


def _apply(content: bytearray, op: Op) -> None:
    if op.what == "write":
        _put(content, op.at, op.data)
    elif op.at < len(content):
        del content[op.at :]
    else:
        content.extend(bytes(op.at - len(content)))


def _move(names: dict[str, int], op: Op) -> None:
    if op.what == "mkdir":
        names[op.path] = _FOLDER
    elif op.what == "create":
        names[op.path] = op.file
    else:
        names.pop(op.path, None)
        if op.what == "rename":
            names[op.to] = op.file


def _parent(name: str) -> str:
    return name.rpartition("/")[0]
