"""The log in memory: the model that says in the fewest lines what a backend must do, and the log of tests.

Nothing survives the process. Several stores may share one `Contents`, as several processes share a file. This
module must never know about files or SQL; it keeps I2 to I4 by holding one lock for each call.

Source: design storage.md, "The log".
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from poimen import clock
from poimen.kernel.errors import (
    ConfigurationError,
    Conflict,
    Corrupt,
    Fenced,
    InvariantViolated,
    NotFound,
    NotStorable,
    PoimenError,
    ReadOnly,
    RunExists,
    StorageFailed,
)
from poimen.log import chain
from poimen.log.api import MAX_BODY_BYTES, TERMINAL_STATES, Committed, Damage, Head, Lease, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from poimen.log.api import Batch, Look

_NOBODY: Final = ("", 0, "")


@dataclass(slots=True, kw_only=True)
class Contents:
    """A log, without a way in: what stores of one name share."""

    log_id: str = field(default_factory=lambda: clock.random_hex(16))
    lock: threading.RLock = field(default_factory=threading.RLock)
    heads: dict[str, Head] = field(default_factory=dict)
    runs: dict[str, list[Record]] = field(default_factory=dict)
    all: list[Record] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    workers: set[str] = field(default_factory=set)
    commits: int = 0


class MemoryStore:
    """A `Store` that lives as long as its `Contents`.

    Arguments:
        contents: shared with other stores; None: its own.
        read_only: whatever would write raises `ReadOnly`.
    """

    def __init__(self, contents: Contents | None = None, *, read_only: bool = False) -> None:
        self.path: Path | None = None
        self.read_only = read_only
        self._contents = Contents() if contents is None else contents
        self._pid = os.getpid()
        self._own_commits = 0
        self._workers: set[str] = set()
        self._closed = False

    def commit(self, batches: Sequence[Batch]) -> list[Committed | PoimenError]:
        """Append the batches, each whole or not at all; see `Store.commit`."""
        contents = self._open(write=True)
        with contents.lock:
            answers: list[Committed | PoimenError] = []
            for batch in batches:
                try:
                    answers.append(self._append(contents, batch))
                except PoimenError as refusal:
                    answers.append(refusal)
            self._count(contents)
            return answers

    def _append(self, contents: Contents, batch: Batch) -> Committed:
        head = contents.heads.get(batch.run)
        if batch.admits and head is not None:
            raise RunExists(f"run {batch.run} exists", where=batch.run, run_id=batch.run)
        if head is None and not batch.admits:
            raise NotFound(f"no run {batch.run!r}", hint="poimen runs ls", run_id=batch.run)
        if head is None:
            head = _new_head(contents.log_id, batch.run)
        records = contents.runs.get(batch.run, [])
        _refuse(batch, head, records)
        fresh = _chained(batch, head, len(contents.all))
        _refuse_repeated(batch, records, fresh)
        _refuse_unstorable(batch)
        contents.runs.setdefault(batch.run, []).extend(fresh)
        contents.all.extend(fresh)
        for blob in batch.blobs:
            contents.blobs.setdefault(blob.digest, blob.body)
        last = fresh[-1]
        contents.heads[batch.run] = replace(
            head,
            lsn=last.lsn,
            hash=last.hash,
            outsider_lsn=last.lsn if batch.epoch is None else head.outsider_lsn,
            state=head.state if batch.state is None else batch.state,
        )
        return Committed(first=fresh[0].lsn, last=last.lsn, hash=last.hash)

    def read(self, run: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """The records of a run with `after < lsn <= upto`, in LSN order."""
        contents = self._open()
        with contents.lock:
            return contents.runs.get(run, [])[max(after, 0) : None if upto is None else max(upto, 0)]

    def feed(self, after: int = 0, *, limit: int = 1000) -> list[Record]:
        """Records of all runs with `pos > after`, in feed order."""
        contents = self._open()
        with contents.lock:
            return contents.all[max(after, 0) :][:limit]

    def head(self, run: str) -> Head | None:
        """The run's row, or None when no such run exists."""
        contents = self._open()
        with contents.lock:
            return contents.heads.get(run)

    def heads(self, *, live: bool = False, prefix: str = "", after: str = "", limit: int = 1000) -> list[Head]:
        """Rows of runs by id, from the one after `after`; `live`: only those not in a terminal state."""
        contents = self._open()
        with contents.lock:
            found = [contents.heads[run] for run in sorted(contents.heads) if run > after and run.startswith(prefix)]
        return [head for head in found if not (live and head.state in TERMINAL_STATES)][:limit]

    def claim(self, run: str, *, worker: str, lease_s: float, own: Lease | None = None) -> Lease | None:
        """Take the lease of a run, epoch + 1; None while a live worker holds it, but by the lease that is `own`.

        Raises:
            NotFound: when there is no such run.
        """
        contents = self._open(write=True)
        with contents.lock:
            self.worker(worker)
            head = contents.heads.get(run)
            if head is None:
                raise NotFound(f"no run {run!r}", hint="poimen runs ls", run_id=run)
            mine = own is not None and (own.worker, own.epoch) == (head.worker, head.epoch)
            if not mine and head.worker in contents.workers and head.lease_until >= clock.boot_us():
                return None
            lease = Lease(run=run, worker=worker, epoch=head.epoch + 1, until=_until(lease_s))
            self._hold(contents, head, (worker, lease.until, clock.boot_id()), epoch=lease.epoch)
            return lease

    def renew(self, leases: Sequence[Lease], *, lease_s: float) -> list[Lease]:
        """Prolong those of the leases that still hold; the others are missing from the answer."""
        contents = self._open(write=True)
        with contents.lock:
            kept = [replace(lease, until=_until(lease_s)) for lease in leases if _holds(contents, lease)]
            for lease in kept:
                self._hold(contents, contents.heads[lease.run], (lease.worker, lease.until, clock.boot_id()))
            return kept

    def release(self, leases: Sequence[Lease]) -> None:
        """Give leases back; the epochs stay."""
        contents = self._open(write=True)
        with contents.lock:
            for lease in leases:
                if _holds(contents, lease):
                    self._hold(contents, contents.heads[lease.run], _NOBODY)

    def blob(self, digest: str) -> bytes | None:
        """A body written with a batch; None when there is none."""
        contents = self._open()
        with contents.lock:
            body = contents.blobs.get(digest)
        if body is not None and sha256(body).hexdigest() != digest:
            raise Corrupt(f"blob {digest} does not match its digest", digest=digest)
        return body

    def changed(self) -> int:
        """A number that differs after another store of the same contents has committed."""
        return self._open().commits - self._own_commits

    def worker(self, worker_id: str) -> None:
        """Declare a live worker, until `close`.

        Raises:
            InvariantViolated: when another store has declared it.
        """
        contents = self._open(write=True)
        with contents.lock:
            if worker_id in contents.workers - self._workers:
                raise InvariantViolated("a worker id belongs to one process", where=worker_id, worker=worker_id)
            contents.workers.add(worker_id)
            self._workers.add(worker_id)

    def linger(self) -> None:
        """Let the workers declared here count as alive from now on."""
        self._workers.clear()

    def alive(self, worker_id: str) -> bool:
        """Whether a store that is open has declared it."""
        contents = self._open()
        with contents.lock:
            return worker_id in contents.workers

    def check(self, look: Look | None = None) -> Iterator[Damage]:
        """Compare the records with each other and with their heads; yield each damage, see `Store.check`."""
        contents = self._open()
        with contents.lock:
            runs = {run: list(records) for run, records in contents.runs.items()}
            heads = dict(contents.heads)
        for run, records in runs.items():
            found = list(chain.verify(records, chain.first_prev(contents.log_id, run)))
            if _derived(heads[run], records) != heads[run]:
                found.append(Damage(run=run, lsn=records[-1].lsn, what="the head contradicts the records"))
            yield from found or (look(heads[run], records) if look is not None else ())

    def rebuild(self, state_of: Callable[[str, list[Record]], str] | None = None) -> int:
        """Derive the heads anew; the number that had to change."""
        contents = self._open(write=True)
        changed = 0
        with contents.lock:
            for run, records in contents.runs.items():
                old = contents.heads[run]
                new = _derived(old, records)
                if state_of is not None:
                    new = replace(new, state=state_of(run, list(records)))
                contents.heads[run] = new
                changed += new != old
        return changed

    def backup(self, to: Path, *, bodies: Callable[[], object] = lambda: None) -> None:  # noqa: ARG002 (no copy is made)
        """Refuse: there is no file.

        Raises:
            ConfigurationError: always.
        """
        self._open()
        raise ConfigurationError(f"a log in memory cannot be copied to {to}", hint="use a database file")

    def idle(self) -> None:
        """Do nothing: memory needs no care."""

    def close(self) -> None:
        """Give back the workers; the contents stay for whoever shares them."""
        if not self._closed:
            self._contents.workers -= self._workers
        self._closed = True

    def _open(self, *, write: bool = False) -> Contents:
        if os.getpid() != self._pid:
            raise StorageFailed("a log in memory is not shared with a forked child", hint="use a database file")
        if self._closed:
            raise StorageFailed("this store was closed")
        if write and self.read_only:
            raise ReadOnly("this log was opened read-only", hint="open it for writing")
        return self._contents

    def _hold(self, contents: Contents, head: Head, lease: tuple[str, int, str], *, epoch: int = 0) -> None:
        worker, until, boot_id = lease
        contents.heads[head.run] = replace(
            head, epoch=epoch or head.epoch, worker=worker, lease_until=until, boot_id=boot_id
        )
        self._count(contents)

    def _count(self, contents: Contents) -> None:
        contents.commits += 1
        self._own_commits += 1


def _new_head(log_id: str, run: str) -> Head:
    return Head(
        run=run,
        lsn=0,
        hash=chain.first_prev(log_id, run),
        epoch=0,
        outsider_lsn=0,
        state="PENDING",
        worker="",
        lease_until=0,
        boot_id="",
    )


def _refuse(batch: Batch, head: Head, records: Sequence[Record]) -> None:
    run = batch.run
    if batch.epoch is not None and (batch.epoch != head.epoch or batch.epoch < 1):
        raise Fenced(f"run {run} is held under epoch {head.epoch}, this append has {batch.epoch}", epoch=head.epoch)
    if batch.epoch is not None and batch.seen is not None and head.outsider_lsn > batch.seen:
        raise Conflict(f"run {run}: an outsider has appended at LSN {head.outsider_lsn}", lsn=head.outsider_lsn)
    if batch.expect is not None:
        about = [record.lsn for record in records if record.subject == batch.expect.subject]
        if about and about[-1] > batch.expect.lsn:
            raise Conflict(f"run {run}: {batch.expect.subject} has changed at LSN {about[-1]}", lsn=about[-1])


def _chained(batch: Batch, head: Head, pos: int) -> list[Record]:
    fresh: list[Record] = []
    prev = head.hash
    for n, new in enumerate(batch.records, start=1):
        if not isinstance(new.raw_id, bytes) or len(new.raw_id) != chain.ID_BYTES:
            raise NotStorable(f"a record of run {batch.run} has no id of 16 bytes", where=batch.run, run_id=batch.run)
        record = Record(
            run=batch.run,
            lsn=head.lsn + n,
            pos=pos + n,
            branch=new.branch,
            record_id=new.record_id,
            kind=new.kind,
            subject=new.subject,
            body=new.body,
            at=new.at,
            epoch=batch.epoch or 0,
            hash=b"",
        )
        prev = chain.link_of(prev, record)
        if not prev or len(record.body) > MAX_BODY_BYTES:
            raise NotStorable(f"a record of run {batch.run} cannot be written", where=batch.run, run_id=batch.run)
        fresh.append(record._replace(hash=prev))
    if not fresh:
        raise NotStorable(f"a batch for run {batch.run} has no record", where=batch.run, run_id=batch.run)
    return fresh


def _refuse_repeated(batch: Batch, records: Sequence[Record], fresh: Sequence[Record]) -> None:
    ids = {record.record_id for record in records}
    for record in fresh:
        if record.record_id in ids:
            raise Conflict(f"run {batch.run}: record id {record.record_id} was appended before", lsn=len(records))
        ids.add(record.record_id)


def _refuse_unstorable(batch: Batch) -> None:
    for blob in batch.blobs:
        if sha256(blob.body).hexdigest() != blob.digest:
            raise NotStorable(f"a blob does not match its digest {blob.digest}", where=batch.run)
    try:
        "".join([batch.state or "", *(blob.media_type for blob in batch.blobs)]).encode()
    except (UnicodeEncodeError, TypeError) as error:
        raise NotStorable(f"a batch for run {batch.run} cannot be written: {error}", where=batch.run) from error


def _derived(head: Head, records: Sequence[Record]) -> Head:
    return replace(
        head,
        lsn=records[-1].lsn,
        hash=records[-1].hash,
        epoch=max(head.epoch, *(record.epoch for record in records)),
        outsider_lsn=max((record.lsn for record in records if not record.epoch), default=0),
    )


def _holds(contents: Contents, lease: Lease) -> bool:
    head = contents.heads.get(lease.run)
    return head is not None and (head.worker, head.epoch) == (lease.worker, lease.epoch)


def _until(lease_s: float) -> int:
    return clock.boot_us() + int(lease_s * clock.US)
