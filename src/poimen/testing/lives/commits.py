"""In a child: notes what the log is asked to keep and what it has kept, and dies at the N-th transaction.

The notes go to a file outside the database, line by line, as a witness's do: `asked ID ...` before a transaction,
`told RUN:LSN:HASH ...` when it has returned, `point POINT TOOL` for each crash point passed. This module must
never change what is written or when; it keeps the invariant that what is noted as told had been told.

Source: design proof.md, P2 (the n-th commit for every n; acknowledgements).
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from poimen.gate import points
from poimen.log.api import Committed
from poimen.log.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WRITERS: Final = ("commit", "claim", "release")
"""What of a store writes a transaction when a run asks for it; the renewal of leases comes by the clock."""


def watch(notes: str, at: str) -> None:
    """Watch this process, for good.

    Arguments:
        notes: the file that takes the notes; empty: none are taken.
        at: `before_commit[::N]` or `after_commit[::N]`, where it dies; empty: it does not.
    """
    watcher = _Watcher(notes, at)
    for name in WRITERS:
        setattr(SqliteStore, name, watcher.around(getattr(SqliteStore, name)))
    if notes:
        reach, armed = points.reach, points.armed

        def noted(point: str, tool: str = "") -> None:
            watcher.note(f"point {point} {tool}")
            reach(point, tool)

        vars(points)["reach"] = noted
        vars(points)["armed"] = lambda point: point == "in_call" or armed(point)  # so that it is passed, and noted


class _Watcher:
    def __init__(self, notes: str, at: str) -> None:
        self._fd = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600) if notes else -1
        self._point, _, rest = at.partition(":")
        self._nth = int(rest.rpartition(":")[2] or "1") if at else 0
        self._n = 0

    def note(self, line: str) -> None:
        if self._fd >= 0:
            os.write(self._fd, f"{line}\n".encode())

    def around(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def watched(store: SqliteStore, *args: Any, **kwargs: Any) -> Any:
            self._n += 1
            batches = args[0] if write.__name__ == "commit" else ()
            self.note(" ".join(["asked", *(record.record_id for batch in batches for record in batch.records)]))
            self._strike("before_commit")
            answer = write(store, *args, **kwargs)
            self._strike("after_commit")
            if batches:
                pairs = zip(batches, answer, strict=True)
                landed = [f"{b.run}:{one.last}:{one.hash.hex()}" for b, one in pairs if isinstance(one, Committed)]
                self.note(" ".join(["told", *landed]))
            return answer

        watched.__name__ = write.__name__
        return watched

    def _strike(self, point: str) -> None:
        if self._point == point and self._n == self._nth:
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What one process has noted.

    Arguments:
        asked: the ids of the records of each transaction that it began, none where it only took or gave a lease.
        told: run, LSN and hash, as hex digits, of the last record of each batch that it knew to be durable.
        points: each crash point that it passed, with its tool.
    """

    asked: tuple[tuple[str, ...], ...] = ()
    told: tuple[tuple[str, int, str], ...] = ()
    points: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, path: Path) -> Notes:
        """Read a file of notes; its last line counts only if it is whole."""
        if not path.exists():
            return cls()
        asked: list[tuple[str, ...]] = []
        told: list[tuple[str, int, str]] = []
        passed: list[tuple[str, str]] = []
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            what, _, rest = line.partition(" ")
            match what:
                case "asked":
                    asked.append(tuple(rest.split()))
                case "told":
                    for one in rest.split():
                        run, lsn, digest = one.rsplit(":", 2)
                        told.append((run, int(lsn), digest))
                case _:
                    point, _, tool = rest.partition(" ")
                    passed.append((point, tool))
        return cls(asked=tuple(asked), told=tuple(told), points=tuple(passed))
