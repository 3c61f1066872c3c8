"""The decision ledger: intents and commits, each durable when the call that records it returns.

This module must never know about runs, effects or event loops: it blocks until the sync has returned,
and that is its point. Invariant: memory never says more than the file, and the file is never behind an
acknowledgement; whatever breaks off between the two closes the ledger.

Source: requirement decision-ledger.md; design protocol.md, section 3, "Decisions".
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from poimen.kernel.errors import DecisionConflict, NotFound, StorageFailed
from poimen.ledger import lines
from poimen.ledger.file import LedgerFile, read_whole, refuse_unnamable
from poimen.secrecy.setting import in_force

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from poimen.ledger.lines import Json, LedgerView


class DecisionLedger:
    """A file of decisions that one process at a time may write; several threads of it may.

    Arguments:
        path: the file; it is made, with mode 0600, where there is none. Its directory must exist and lie
            on a local filesystem. A symbolic link is followed here, once.

    Attributes:
        path: the file, links resolved.
        recovered: bytes of a torn last line, never acknowledged, that were cut at opening; else 0.

    Raises:
        StorageFailed: another writer has the file, or it cannot be opened, read or synced.
        Corrupt: a line is JSON and no event, a line before the last is neither, or the file is no decision
            ledger. Nothing is changed.

    Source: requirement decision-ledger.md.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        refuse_unnamable(path)
        in_force()  # what counts as secret is looked up before anything is owed
        self.path: Final = Path(os.path.realpath(path))
        self._file = LedgerFile(self.path)
        try:
            data = self._file.read()
            self._fold = lines.load(data, str(self.path))
            whole = data if self._fold.ended else data + b"\n"
            self._file.settle(whole, last=self._fold.last, size=self._fold.size + len(whole) - len(data))
        except BaseException:
            self._file.close()
            raise
        self.recovered: Final = self._fold.torn

    @staticmethod
    def read(path: str | os.PathLike[str]) -> LedgerView:
        """Read a ledger without opening it for writing; a writer may be at work meanwhile.

        Arguments:
            path: the file. It is not created, cut or locked. While a writer lives, its newest line may be
                seen before it is synced.

        Raises:
            NotFound: there is no such file.
            Corrupt: see `DecisionLedger`.
            StorageFailed: it cannot be read, or is no regular file.
        """
        refuse_unnamable(path)
        try:
            data = read_whole(path)
        except FileNotFoundError as error:
            raise NotFound(
                f"there is no decision ledger at {path}",
                where=str(path),
                hint="check the path; DecisionLedger(path) makes one, reading does not",
                path=str(path),
            ) from error
        except OSError as error:
            raise StorageFailed(f"{path} cannot be read: {error.strerror}", where=str(path), path=str(path)) from error
        return lines.load(data, str(path))

    def record_intent(self, decision_id: str, decision: Json) -> None:
        """Record a decision; it is durable when this returns. The same id and value again: nothing is written.

        Arguments:
            decision_id: 1 to 500 characters; names this one choice, for every later retry too.
            decision: None, bool, int, float, str, list or dict with str keys, nested at most 100 deep.
                Compared as JSON text: 1, 1.0 and true are three values.

        Raises:
            DecisionConflict: another value is recorded under this id; that one stands.
            NotStorable: the value or the id cannot be written; nothing happened.
            CommitUnknown: the write or the sync failed. The ledger is closed; opening it again tells.
            StorageFailed: the ledger is closed, has failed before, or belongs to another process.

        Source: requirement decision-ledger.md, "Open the decision window before timing out".
        """
        lines.check_id(decision_id)
        text = lines.canonical(decision)
        with self._file.working():
            recorded = self._fold.text_of(decision_id)
            if recorded is None:
                self._append("intent", decision_id, text)
            elif recorded != text:
                was, now = lines.digest(recorded), lines.digest(text)
                raise DecisionConflict(
                    f"decision {decision_id!r} is recorded as value {was}, not as {now}",
                    where=str(self.path),
                    why="an id names one choice for ever; the recorded one stands and nothing was written",
                    hint="use the recorded decision (attribute `recorded`), or give another choice another id",
                    decision_id=decision_id,
                    recorded=json.loads(recorded),
                    offered=json.loads(text),
                )

    def record_commit(self, decision_id: str) -> None:
        """Record that what a decision asked for is done; durable when this returns. Again: nothing is written.

        Arguments:
            decision_id: as given to `record_intent`.

        Raises:
            NotFound: no intent of this id is recorded, or `compact` has dropped it.
            NotStorable, CommitUnknown, StorageFailed: see `record_intent`.

        Source: requirement decision-ledger.md, "An intent is not a successful action".
        """
        lines.check_id(decision_id)
        with self._file.working():
            if decision_id not in self._fold:
                raise NotFound(
                    f"no decision {lines.short(repr(decision_id))} is recorded",
                    where=str(self.path),
                    why="a commit closes an intent that was recorded before it; compact() drops committed ones",
                    hint="record_intent(id, decision) before the work; pending() lists what is owed",
                    decision_id=decision_id,
                )
            if self._fold.owes(decision_id):
                self._append("commit", decision_id)

    def pending(self) -> dict[str, Json]:
        """The owed decisions by id, oldest first: intents that have no commit.

        Raises:
            StorageFailed: see `record_intent`.
        """
        with self._file.working():
            return self._fold.pending()

    def events(self) -> list[dict[str, Any]]:
        """All events in the order of their lines; keys `decision` (intents only), `decision_id`, `event`.

        Raises:
            StorageFailed: see `record_intent`.
        """
        with self._file.working():
            return self._fold.events()

    def __contains__(self, decision_id: object) -> bool:
        """Whether a decision of this id is recorded, owed or not."""
        with self._file.working():
            return decision_id in self._fold

    def compact(self, *, keep: Callable[[str], bool] | None = None) -> int:
        """Drop committed decisions from the file, keep the owed ones; returns how many were dropped.

        A dropped id is forgotten: recorded again it is a new decision, and is acted on again. So compact when
        no retry of those ids can come any more, or name with `keep` those that still may come. A crash at any
        point leaves the old file or the new one, whole.

        Arguments:
            keep: told the id of a committed decision, says whether it stays. None: none does. It may use the
                ledger: what it records stays.

        Raises:
            StorageFailed: the new file could not be written; nothing was changed and the ledger works on.
                Also as in `record_intent`.
            CommitUnknown: which of the two files is in place is unknown; either holds every owed decision.
                The ledger is closed.
        """
        with self._file.working():
            going = {name for name in self._fold.committed() if keep is None or not keep(name)}
            with self._file.working():  # again: `keep` may have closed the ledger, or recorded in it
                left = self._fold.without(going)
                dropped = self._fold.count() - left.count()
                if dropped:
                    self._file.refuse_if_moved()
                    self._file.write_beside(left.to_bytes())
                    with self._file.doubt("the compaction"):
                        self._file.replace()
                        self._fold = left
            return dropped

    def close(self) -> None:
        """Close the file and let the next writer in. May be called again."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        file: LedgerFile | None = getattr(self, "_file", None)
        if file is not None and file.is_open:
            warnings.warn(f"decision ledger {self.path} was not closed", ResourceWarning, stacklevel=2, source=self)
            file.release()

    def _append(self, kind: str, decision_id: str, text: str = "") -> None:
        line = lines.encode(kind, decision_id, text)
        self._file.refuse_if_moved()
        with self._file.doubt(f"the {kind} of decision {lines.short(repr(decision_id))}"):
            self._file.append(line)
            self._fold.apply(kind, decision_id, text)
