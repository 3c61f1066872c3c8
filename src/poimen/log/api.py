"""The port of the log: what is appended, what is read, what a backend must keep.

A batch is what one append carries: the records of one run, written together or not at all. A backend
(`Store`) commits many batches in one transaction with one sync; who may append is checked there,
inside the transaction. This module must never know about events: it sees tags and bytes. It keeps
the invariants I2, I3 and I4 of the protocol by stating them; each backend keeps them by doing so.

Source: design storage.md, "The log".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from poimen.kernel.branch import BRANCH_TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from poimen.kernel.errors import PoimenError

MAX_BODY_BYTES: Final = 64 << 20
"""A record with a longer body is refused by every backend."""


class NewRecord(NamedTuple):
    """One encoded event on its way into the log.

    Arguments:
        raw_id: 16 bytes made by the writer, unique in the run; people and files see `record_id`. A store refuses one
            that it has appended to the run before; it need not know what other stores have.
        branch: the branch that it belongs to.
        kind: tag and version, such as `intent.dispatched.v1`.
        subject: what it is about, such as `intent:charge#0/1/0`; `expect` refers to it.
        body: canonical JSON, UTF-8, at most `MAX_BODY_BYTES`; the log keeps any bytes.
        at: microseconds since the Unix epoch, UTC, by the writer's clock.
    """

    raw_id: bytes
    branch: str
    kind: str
    subject: str
    body: bytes
    at: int

    @property
    def record_id(self) -> str:
        """The id as 32 hex digits."""
        return self.raw_id.hex()


class Record(NamedTuple):
    """One event as stored. `pos` is the feed position, `epoch` is 0 for outsiders, `hash` is the chain's."""

    run: str
    lsn: int
    pos: int
    branch: str
    record_id: str
    kind: str
    subject: str
    body: bytes
    at: int
    epoch: int
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """The LSN of the last record about `subject` that an outsider has seen (0: none)."""

    subject: str
    lsn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A body that is named by its sha256 (64 hex digits)."""

    digest: str
    media_type: str
    body: bytes


class Batch(NamedTuple):
    """The records of one append.

    Arguments:
        run: the run's id.
        records: at least one.
        epoch: the driver's fencing epoch; None for an outsider.
        seen: with an epoch: the LSN of the last outsider's record that the driver has folded; the
            append is refused if a later one lies in the log. None: do not ask.
        expect: for outsiders: refused if a later record about the subject lies in the log.
        state: the state of the run's newest branch after this batch, when the batch changes it.
        admits: the batch creates the run; refused if the run exists.
        blobs: bodies that the records name, written in the same transaction.
    """

    run: str
    records: tuple[NewRecord, ...]
    epoch: int | None = None
    seen: int | None = None
    expect: Expect | None = None
    state: str | None = None
    admits: bool = False
    blobs: tuple[Blob, ...] = ()


class Committed(NamedTuple):
    """Where a batch landed: LSNs `first` to `last`, and the chain's hash after it."""

    first: int
    last: int
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The row of a run: its last LSN and hash, epoch and lease, and the state of its newest branch.

    `outsider_lsn` is the LSN of the last record that was appended without an epoch. `worker` is empty
    when nobody holds a lease. `lease_until` counts microseconds of the boot clock of `boot_id`.
    """

    run: str
    lsn: int
    hash: bytes
    epoch: int
    outsider_lsn: int
    state: str
    worker: str
    lease_until: int
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A time-limited right to drive a run. `until` is in microseconds of this machine's boot clock."""

    run: str
    worker: str
    epoch: int
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What a check found: `run` and `lsn` where it is known (0: not), and a sentence."""

    run: str
    lsn: int
    what: str


Look: TypeAlias = "Callable[[Head, list[Record]], Iterator[Damage]]"
"""What a check asks of a run besides: from its head, and its records up to there, the damage that they show."""


TERMINAL_STATES = frozenset(state.value for state in BRANCH_TERMINAL)
"""Branch states that nothing leaves; a run in one of them is not scanned for recovery."""


class Store(Protocol):
    """A backend of the log. All calls block; none is safe after a fork.

    Every method raises `StorageFailed` when the database cannot be reached or has failed before, and
    `Corrupt` when what it reads does not match its hash.
    """

    @property
    def path(self) -> Path | None:
        """The file that the log lies in, beside which large bodies lie; None: it lives in memory."""
        ...

    def commit(self, batches: Sequence[Batch]) -> list[Committed | PoimenError]:
        """Write the batches in one transaction, in order, and sync once.

        A refused batch (`Fenced`, `Conflict`, `RunExists`, `NotFound`) takes nothing from its neighbours:
        its place in the answer holds the error.

        Raises:
            CommitUnknown: the transaction may or may not be on disk; the store is dead from now on.
        """
        ...

    def read(self, run: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """The records of a run with `after < lsn <= upto`, in LSN order."""
        ...

    def feed(self, after: int = 0, *, limit: int = 1000) -> list[Record]:
        """Records of all runs with `pos > after`, in feed order."""
        ...

    def head(self, run: str) -> Head | None:
        """The run's row, or None when no such run exists."""
        ...

    def heads(self, *, live: bool = False, prefix: str = "", after: str = "", limit: int = 1000) -> list[Head]:
        """Rows of runs by id, from the one after `after`; `live`: only those not in a terminal state.

        Raises:
            Corrupt: no row is left, and one that cannot be read was passed over.
        """
        ...

    def claim(self, run: str, *, worker: str, lease_s: float, own: Lease | None = None) -> Lease | None:
        """Take the lease of a run, epoch + 1, durably; None while a live worker holds it.

        `own`: a lease of this worker that it gives up for the new one.
        """
        ...

    def renew(self, leases: Sequence[Lease], *, lease_s: float) -> list[Lease]:
        """Prolong those of the leases that still hold, in one transaction; the others are missing from the answer."""
        ...

    def release(self, leases: Sequence[Lease]) -> None:
        """Give leases back; the epochs stay."""
        ...

    def blob(self, digest: str) -> bytes | None:
        """A body written with a batch, checked against its digest; None when there is none."""
        ...

    def changed(self) -> int:
        """A number that differs after another process has committed; cheap."""
        ...

    def worker(self, worker_id: str) -> None:
        """Declare this process to be a live worker, until `close` or its death."""
        ...

    def linger(self) -> None:
        """Let the workers declared here count as alive until this process ends: bodies of theirs go on."""
        ...

    def alive(self, worker_id: str) -> bool:
        """Whether a worker lives, as far as this machine can tell."""
        ...

    def check(self, look: Look | None = None) -> Iterator[Damage]:
        """Read everything; yield each damage found. Nothing is repaired.

        Arguments:
            look: asked of each run in which no damage was found.
        """
        ...

    def rebuild(self, state_of: Callable[[str, list[Record]], str] | None = None) -> int:
        """Derive the heads anew from the records; the number of rows that had to change.

        `state_of` tells the state of a run from its id and records; without it the states stay.
        """
        ...

    def backup(self, to: Path, *, bodies: Callable[[], object] = lambda: None) -> None:
        """Write a verified copy to a new file, renamed into place when it is whole.

        Arguments:
            to: a path where nothing is.
            bodies: called when the copy is made and has no name yet, to copy the large bodies that it may name.
        """
        ...

    def idle(self) -> None:
        """Use a moment in which nobody waits for what grows or falls due: a WAL that is full, an anchor that is old."""
        ...

    def close(self) -> None:
        """Anchor the heads, give back what is held, close."""
        ...
