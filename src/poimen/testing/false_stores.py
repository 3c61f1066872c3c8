"""Backends of the log that break one promise each: the controls of the suite and the machine that all backends pass.

A false store stands before a real one, of whatever kind, and passes on what it does not break, so that one control
serves every backend. This module must never be loaded by anything but a check of poimen itself; it keeps the
invariant that each false store breaks what its name says and nothing else.

Source: design proof.md, P14 (every harness has a control); storage.md, "The log".
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from poimen import clock
from poimen.kernel.errors import CommitUnknown, Conflict, NotFound, NotStorable, PoimenError
from poimen.log.api import Batch, Committed, Lease, NewRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from poimen.log.api import Head, Record, Store


def falsified(store: Store, control: str) -> Any:
    """Break one promise of a store.

    Arguments:
        store: a backend that keeps all of them.
        control: a key of `FALSE_STORES`; empty: none is broken, every call is passed on.

    Returns:
        What takes the calls of `Store` in its place.

    Raises:
        NotFound: there is no such control.
    """
    if not control:
        return _False(store)
    if control not in FALSE_STORES:
        hint = f"one of {', '.join(FALSE_STORES)}"
        raise NotFound(f"there is no control {control!r}", hint=hint, control=control)
    return FALSE_STORES[control](store)


class _False:
    """Passes everything on."""

    def __init__(self, store: Store) -> None:
        self.real = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class _EpochUnchecked(_False):
    """A driver whose lease was taken from it still appends: its epoch is taken for the newest."""

    def commit(self, batches: Sequence[Batch]) -> Any:
        return self.real.commit([batch._replace(epoch=self._newest(batch)) for batch in batches])

    def _newest(self, batch: Batch) -> int | None:
        head = self.real.head(batch.run) if batch.epoch is not None else None
        return head.epoch if head is not None and head.epoch else batch.epoch


class _ExpectUnchecked(_False):
    """Of two outsiders who answer the same question both are taken."""

    def commit(self, batches: Sequence[Batch]) -> Any:
        return self.real.commit([batch._replace(expect=None) for batch in batches])


class _SeenUnchecked(_False):
    """A driver appends although it has not folded what an outsider said."""

    def commit(self, batches: Sequence[Batch]) -> Any:
        return self.real.commit([batch._replace(seen=None) for batch in batches])


class _LsnGap(_False):
    """One LSN of each run is never given: 1, 2, 4, 5."""

    def commit(self, batches: Sequence[Batch]) -> Any:
        return [
            answer._replace(first=_behind_gap(answer.first), last=_behind_gap(answer.last))
            if isinstance(answer, Committed)
            else answer
            for answer in self.real.commit(batches)
        ]

    def read(self, run: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        found = [each._replace(lsn=_behind_gap(each.lsn)) for each in self.real.read(run)]
        return [each for each in found if each.lsn > after and (upto is None or each.lsn <= upto)]

    def feed(self, after: int = 0, *, limit: int = 1000) -> list[Record]:
        return [each._replace(lsn=_behind_gap(each.lsn)) for each in self.real.feed(after, limit=limit)]


class _FeedSkips(_False):
    """A follower who asks again misses the first record behind its cursor."""

    def feed(self, after: int = 0, *, limit: int = 1000) -> list[Record]:
        return self.real.feed(after, limit=limit + 1)[1:] if after else self.real.feed(after, limit=limit)


class _AppendedTwice(_False):
    """A record id that is in the log is appended again, under another id."""

    def commit(self, batches: Sequence[Batch]) -> Any:
        return [
            self.real.commit([_renamed(batch)])[0] if _is_repeated(answer) else answer
            for batch, answer in zip(batches, self.real.commit(batches), strict=True)
        ]


class _RebuiltOtherwise(_False):
    """Heads that are derived anew are not those that were kept: every state begins from the start."""

    def rebuild(self, state_of: Callable[[str, list[Record]], str] | None = None) -> int:
        del state_of
        return self.real.rebuild(lambda _run, _records: "PENDING")


class _NeighboursRefused(_False):
    """One refused batch takes all that were committed with it along."""

    def commit(self, batches: Sequence[Batch]) -> Any:
        for batch in batches:
            head = self.real.head(batch.run)
            if batch.epoch is not None and head is not None and head.epoch != batch.epoch:
                return self.real.commit([each._replace(run="", admits=False) for each in batches])
        return self.real.commit(batches)


class _LeaseGivenTwice(_False):
    """Who asks for a run that somebody holds gets its lease as well."""

    def claim(self, run: str, *, worker: str, lease_s: float, own: Lease | None = None) -> Lease | None:
        lease = self.real.claim(run, worker=worker, lease_s=lease_s, own=own)
        head = self.real.head(run)
        if lease is not None or head is None:
            return lease
        return Lease(run=run, worker=worker, epoch=head.epoch, until=clock.boot_us() + int(lease_s * clock.US))


class _LostLeaseRenewed(_False):
    """A lease that is lost is said to be prolonged."""

    def renew(self, leases: Sequence[Lease], *, lease_s: float) -> list[Lease]:
        self.real.renew(leases, lease_s=lease_s)
        return [replace(lease, until=clock.boot_us() + int(lease_s * clock.US)) for lease in leases]


class _DeadStayAlive(_False):
    """The workers of a store that is closed hold their leases for ever."""

    def close(self) -> None:
        self.real.linger()
        self.real.close()


class _StateForgotten(_False):
    """The state of a run does not follow its batches."""

    def commit(self, batches: Sequence[Batch]) -> Any:
        return self.real.commit([batch._replace(state=None) for batch in batches])


class _BlobForgotten(_False):
    """Bodies that ride along are dropped."""

    def commit(self, batches: Sequence[Batch]) -> Any:
        return self.real.commit([batch._replace(blobs=()) for batch in batches])


class _BodyCleaned(_False):
    """A body is text: bytes that are none come back as something else."""

    def read(self, run: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        return [
            each._replace(body=each.body.decode(errors="replace").encode())
            for each in self.real.read(run, after=after, upto=upto)
        ]


class _Unchained(_False):
    """A record's hash covers its body and not what stands before it."""

    def read(self, run: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        return [each._replace(hash=sha256(each.body).digest()) for each in self.real.read(run, after=after, upto=upto)]


class _UnknownAcknowledged(_False):
    """A commit that failed is said to have succeeded."""

    def commit(self, batches: Sequence[Batch]) -> Any:
        heads = [self.real.head(batch.run) for batch in batches]
        try:
            return self.real.commit(batches)
        except CommitUnknown:
            return [_pretended(batch, head) for batch, head in zip(batches, heads, strict=True)]


class _BackupDiffers(_False):
    """A backup holds a record more than the log that it was made of."""

    def backup(self, to: Path, **other: Any) -> None:
        self.real.backup(to, **other)
        kind: Callable[[Path], Store] = type(self.real)
        copy = kind(to)
        record = copy.feed(limit=1)
        if record:
            copy.commit([_again(record[0])])
        copy.close()


class _ChangeUnseen(_False):
    """That another process has committed is not told."""

    def changed(self) -> int:
        self.real.changed()
        return 0


FALSE_STORES: Final[Mapping[str, Callable[[Store], _False]]] = {
    "epoch_unchecked": _EpochUnchecked,
    "expect_unchecked": _ExpectUnchecked,
    "seen_unchecked": _SeenUnchecked,
    "lsn_gap": _LsnGap,
    "feed_skips": _FeedSkips,
    "appended_twice": _AppendedTwice,
    "rebuilt_otherwise": _RebuiltOtherwise,
    "neighbours_refused": _NeighboursRefused,
    "lease_given_twice": _LeaseGivenTwice,
    "lost_lease_renewed": _LostLeaseRenewed,
    "dead_stay_alive": _DeadStayAlive,
    "state_forgotten": _StateForgotten,
    "blob_forgotten": _BlobForgotten,
    "body_cleaned": _BodyCleaned,
    "unchained": _Unchained,
    "unknown_acknowledged": _UnknownAcknowledged,
    "backup_differs": _BackupDiffers,
    "change_unseen": _ChangeUnseen,
}
"""What can be broken, and what breaks it."""


def _behind_gap(lsn: int) -> int:
    return lsn + (lsn > 2)  # noqa: PLR2004 (the third is the one that is never given)


def _is_repeated(answer: Committed | PoimenError) -> bool:
    return isinstance(answer, Conflict) and "appended before" in answer.message


def _renamed(batch: Batch) -> Batch:
    return batch._replace(records=tuple(each._replace(raw_id=clock.record_id()) for each in batch.records))


def _again(record: Record) -> Batch:
    new = NewRecord(
        raw_id=clock.record_id(),
        branch=record.branch,
        kind=record.kind,
        subject=record.subject,
        body=record.body,
        at=record.at,
    )
    return Batch(run=record.run, records=(new,))


def _pretended(batch: Batch, head: Head | None) -> Committed | PoimenError:
    if not batch.records:
        return NotStorable(f"a batch for run {batch.run} has no record")
    lsn = head.lsn if head is not None else 0
    return Committed(first=lsn + 1, last=lsn + len(batch.records), hash=b"")
