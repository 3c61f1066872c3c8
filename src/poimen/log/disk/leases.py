"""Leases on one machine: who may drive a run, until when, under which epoch.

A lease counts the boot clock, which goes on while the machine sleeps; of another boot it is void. A worker
whose lock file is free is dead, and its leases with it, at once; while it is held only the time counts.
This module must never know how a run is driven. It keeps I4: each grant raises the epoch, durably, before
the lease is given out.

Source: design storage.md, "SQLite" (liveness); protocol.md section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from poimen import clock
from poimen.kernel.errors import NotFound
from poimen.log.api import Lease
from poimen.log.disk.connect import SQL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poimen.log.disk.handle import Handle


def claim(handle: Handle, run: str, *, worker: str, lease_s: float, own: Lease | None = None) -> Lease | None:
    """Take the lease of a run: epoch + 1, synced.

    The worker is declared live first, when it was not. A run in a terminal state can be claimed too: its
    intents may still have to be resolved.

    Arguments:
        handle: the writing end.
        run: the run's id.
        worker: who takes it.
        lease_s: seconds from now.
        own: a lease of this worker that it gives up for the new one.

    Returns:
        None while a live worker holds it, this one included, but by the lease that is `own`.

    Raises:
        NotFound: when there is no such run.
    """
    with handle.lock:
        handle.workers.declare(worker)
    with handle.lock, handle.transaction() as transaction:
        rows = handle.execute(SQL["lease"], (run,)).fetchall()
        if not rows:
            raise NotFound(f"no run {run!r}", where=str(handle.db), hint="poimen runs ls", run_id=run)
        epoch, holder, until, boot_id = rows[0]
        mine = own is not None and (own.worker, own.epoch) == (holder, epoch)
        held = holder and boot_id == clock.boot_id() and until >= clock.boot_us()
        if held and not mine and handle.workers.alive(holder):
            transaction.wanted = False
            return None
        lease = Lease(run=run, worker=worker, epoch=epoch + 1, until=_until(lease_s))
        handle.execute(SQL["claim"], (run, lease.epoch, worker, lease.until, clock.boot_id()))
    return lease


def renew(handle: Handle, leases: Sequence[Lease], *, lease_s: float) -> list[Lease]:
    """Prolong those that still hold, in one synced transaction.

    Returns:
        The prolonged ones; the others were lost, or given back.
    """
    kept: list[Lease] = []
    with handle.lock, handle.transaction() as transaction:
        until = _until(lease_s)
        for lease in leases:
            before = handle.changes()
            handle.execute(SQL["renew"], (lease.run, lease.worker, lease.epoch, until))
            if handle.changes() > before:
                kept.append(Lease(run=lease.run, worker=lease.worker, epoch=lease.epoch, until=until))
        transaction.wanted = bool(kept)
    return kept


def release(handle: Handle, leases: Sequence[Lease]) -> None:
    """Give leases back; those that no longer hold are passed over."""
    with handle.lock, handle.transaction() as transaction:
        before = handle.changes()
        for lease in leases:
            handle.execute(SQL["release"], (lease.run, lease.worker, lease.epoch))
        transaction.wanted = handle.changes() > before


def _until(lease_s: float) -> int:
    return clock.boot_us() + int(lease_s * clock.US)
