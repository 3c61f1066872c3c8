"""The anchor: head hashes in a file of its own, so that a tail that was cut off is seen.

A chain cannot see its own end. The anchor names, for each run, a record that was durable when the line was
written; it lags behind the log and never leads. It also keeps the log's id and generation, so that an old
copy put back in the place of a newer log is refused. Each line carries a digest of itself. This module
must never know how the log is stored. It keeps I2 against cuts.

Source: design storage.md, "The log" (anchors), "SQLite" (restored backups).
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from poimen import clock
from poimen.kernel.errors import Corrupt, StorageFailed
from poimen.log.disk import files
from poimen.log.disk.locks import LockFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_HEADS_A_LINE: Final = 100
_TAIL_BYTES: Final = 1 << 17
_COMPACT_ABOVE_BYTES: Final = 1 << 20
_DIGITS: Final = 16
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The log as a whole.

    Arguments:
        log_id: of this log, for ever.
        generation: grows with each opening for writing and each backup.
        feed: its last feed position.
        base: the generation before the last opening alone, which stands in the database itself, not only in its WAL;
            -1: it was never opened alone where it lies, as a backup was not.
    """

    log_id: str
    generation: int
    feed: int
    base: int = -1


@dataclass(slots=True, kw_only=True)
class Anchored:
    """All that an anchor file says: its last mark, the newest (LSN, hash) of each run, the lines that are damaged."""

    mark: Mark | None = None
    heads: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    damaged: list[int] = field(default_factory=list)

    def gone_beside(self, mark: Mark) -> str:
        """Say that there must be an anchor beside a database that says `mark` of itself; empty when all is well."""
        if self.mark is not None or mark.base < 0:
            return ""
        return "the anchor is gone or says nothing: a tail that was cut off, or an old copy, is no longer noticed"

    def newer_than(self, mark: Mark | None) -> str:
        """Say in which way a database that says `mark` of itself (None: it is new) is older; empty when it is not."""
        if self.mark is None:
            return ""
        if mark is None:
            return "there is no database, or an empty one, beside an anchor that knows records of it"
        if mark.log_id != self.mark.log_id:
            return f"the anchor beside it belongs to another log ({self.mark.log_id}, this one is {mark.log_id})"
        if mark.generation < self.mark.generation:
            return f"generation {mark.generation} is older than the anchored {self.mark.generation}: a restored backup?"
        if mark.feed < self.mark.feed:
            return f"it ends at feed position {mark.feed}, {self.mark.feed} was anchored: its tail is cut off"
        return ""


class Anchor:
    """The anchor file of one database.

    Arguments:
        path: where it is, or will be.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def exists(self) -> bool:
        """Whether anything was ever anchored."""
        return self._path.exists()

    def mark(self) -> Mark | None:
        """The last mark, read from the end of the file; damaged lines are passed over.

        Raises:
            StorageFailed: something stands there that cannot be read.
        """
        return next((_mark(entry) for entry in self._newest()), None)

    def newest(self) -> dict[str, tuple[int, bytes]]:
        """The heads, (LSN, hash) by run, of the last line that names any."""
        entry = next((entry for entry in self._newest() if entry["heads"]), None)
        return {run: (lsn, bytes.fromhex(digest)) for run, lsn, digest in entry["heads"]} if entry else {}

    def _newest(self) -> Iterator[dict[str, list[tuple[str, int, str]]]]:
        """What the last lines say, from the end."""
        lines = self._text(last=_TAIL_BYTES).split(b"\n")
        yield from (entry for line in reversed(lines) if (entry := _entry(line)) is not None)

    def read(self) -> Anchored:
        """The whole file. A last line without its end is torn, not damaged: it named nothing yet.

        So is a line with zeros in it: of a line that was being written when the power went, the disk may have kept the
        end and not the beginning.

        Raises:
            StorageFailed: as `mark`.
        """
        found = Anchored()
        lines = self._text().split(b"\n")
        if _entry(lines[-1][:-1]) is not None:  # whole but for its last byte, which was written in the same call
            found.damaged.append(len(lines))
        for number, line in enumerate(lines[:-1], start=1):
            entry = _entry(line)
            if entry is None:
                if line and not _torn(line):
                    found.damaged.append(number)
                continue
            found.mark = _mark(entry)
            for run, lsn, digest in entry["heads"]:
                if lsn >= found.heads.get(run, (0, b""))[0]:
                    found.heads[run] = (lsn, bytes.fromhex(digest))
        return found

    def _text(self, *, last: int | None = None) -> bytes:
        """The file, or its `last` bytes; nothing where there is none."""
        try:
            with open(files.open_regular(self._path), "rb") as file:  # noqa: PTH123 (a descriptor, no path)
                if last is not None:
                    file.seek(max(0, file.seek(0, os.SEEK_END) - last))
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            raise StorageFailed(
                f"the anchor {self._path} cannot be read: {error.strerror}",
                where=str(self._path),
                why="without it a tail that was cut off, or an old copy in the place of the log, is not noticed",
                hint="let this user read it, or put the file back that belongs there; where it is lost, move what "
                "stands there away: the next opening for writing makes a new one, and knows no older heads",
            ) from error

    def note(self, mark: Mark, heads: Mapping[str, tuple[int, bytes]]) -> None:
        """Append heads that are durable, and sync; a torn line at the end, which named nothing yet, is cut off first.

        One at a time: what another process is just writing is no torn line.

        Arguments:
            mark: the log as a whole, now.
            heads: (LSN, hash) by run.

        Raises:
            OSError: when the file cannot be written, or another process holds it for `_PATIENCE_S`.
        """
        new = not self._path.exists()
        lock = LockFile(self._path)
        try:
            if not lock.wait(patience_s=_PATIENCE_S):
                raise OSError(errno.EAGAIN, "another process holds the anchor", str(self._path))
            self._append(_lines(mark, heads))
        finally:
            lock.close()
        if new:
            files.sync_directory(self._path.parent)

    def _append(self, lines: bytes) -> None:
        fd = files.open_private(self._path, os.O_RDWR | os.O_APPEND)
        try:
            tail = _unended(fd)
            whole = _entry(tail) is not None
            if tail and not whole:
                os.ftruncate(fd, os.fstat(fd).st_size - len(tail))
            files.write_all(fd, (b"\n" if whole else b"") + lines)
            os.fsync(fd)
        finally:
            os.close(fd)

    def compact(self) -> None:
        """Write a long file anew without what later lines supersede; only while nobody else has the database open.

        Raises:
            OSError: when the new file cannot be written; the old one stays.
        """
        if not self._path.exists() or self._path.stat().st_size <= _COMPACT_ABOVE_BYTES:
            return
        found = self.read()
        if found.mark is None or found.damaged:
            return
        anew = _lines(found.mark, found.heads)
        if 2 * len(anew) > self._path.stat().st_size:
            return
        beside = self._path.with_name(f"{self._path.name}.{clock.random_hex(8)}")
        fd = files.open_private(beside, os.O_RDWR)
        try:
            files.write_all(fd, anew)
            os.fsync(fd)
            beside.rename(self._path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        files.sync_directory(self._path.parent)

    def refuse_old(self, anchored: Mark | None, mark: Mark | None, db: Path) -> None:
        """Refuse a database that is older than what was anchored of it.

        Arguments:
            anchored: what `mark()` told before the database was asked: another process moves the database first.
            mark: what the database says; None: it is new.
            db: its path, for the message.

        Raises:
            Corrupt: when records that were acknowledged are missing from it.
        """
        what = Anchored(mark=anchored).newer_than(mark)
        if not what:
            return
        raise Corrupt(
            f"{db} is an old log: {what}",
            where=str(db),
            why="going on would repeat effects whose records are missing, and use their LSNs again",
            hint=f"poimen db check; put the newest database back, or accept the loss by removing {self._path.name}",
        )


def _lines(mark: Mark, heads: Mapping[str, tuple[int, bytes]]) -> bytes:
    listed = [[run, lsn, digest.hex()] for run, (lsn, digest) in heads.items()]
    lines: list[bytes] = []
    for start in range(0, max(len(listed), 1), _HEADS_A_LINE):
        entry = {
            "log": mark.log_id,
            "generation": mark.generation,
            "base": mark.base,
            "feed": mark.feed,
            "heads": listed[start : start + _HEADS_A_LINE],
        }
        text = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()
        lines.append(b"%s %s\n" % (sha256(text).hexdigest()[:_DIGITS].encode(), text))
    return b"".join(lines)


def _unended(fd: int) -> bytes:
    """What stands behind the last line that was ended."""
    tail, at = b"", os.fstat(fd).st_size
    while at > 0 and b"\n" not in tail:
        start = max(0, at - _TAIL_BYTES)
        tail = os.pread(fd, at - start, start) + tail
        at = start
    return tail.rpartition(b"\n")[2]


def _torn(line: bytes) -> bool:
    """Whether a part of the line was never written: it holds zeros, and not one that a single flipped bit has made."""
    if line.count(0) == 1:
        return all(_entry(line.replace(b"\0", bytes((1 << bit,)))) is None for bit in range(8))
    return 0 in line


def _entry(line: bytes) -> dict[str, list[tuple[str, int, str]]] | None:
    digest, _, text = line.partition(b" ")
    if sha256(text).hexdigest()[:_DIGITS].encode() != digest:
        return None
    try:
        entry: dict[str, list[tuple[str, int, str]]] = json.loads(text)
        _mark(entry)
        for run, lsn, head in entry["heads"]:
            if type(run) is not str or type(lsn) is not int or not bytes.fromhex(head):
                return None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None  # it was written, and not by us
    return entry


def _mark(entry: Mapping[str, object]) -> Mark:
    generation, feed, base = (int(str(entry.get(name, -1))) for name in ("generation", "feed", "base"))
    return Mark(log_id=str(entry["log"]), generation=generation, feed=feed, base=base)
