"""What the runs of one process share: the log's door, leases, threads, and the watch over other processes.

A worker claims runs, drives each by a driver of its own, renews its leases, and looks out for what
outsiders append. This module must never know what a run does; it keeps the invariants that a run is
driven under a lease of this worker alone, and that a lease that was lost stops its driver.

Source: design protocol.md, section 5 and 9; storage.md, "Group commit".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from poimen import clock
from poimen.engine.desk import driven, tell_waiting
from poimen.engine.driving.driver import Driver
from poimen.engine.eventloop.door import LoopDoor
from poimen.engine.eventloop.locked import RETRY_S
from poimen.engine.eventloop.waiters import WATCH_S, Waiters
from poimen.engine.lingering import Lingering
from poimen.engine.reading import has_ended, read_run
from poimen.gate.guard import thread_pool
from poimen.kernel.errors import CommitUnknown, Corrupt, Fenced, PoimenError, StorageFailed, Suspended
from poimen.kernel.views import newest_branch
from poimen.log import codec
from poimen.log.api import TERMINAL_STATES, Batch
from poimen.secrecy.speaking import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from poimen.blobs.tables import TieredBlobs
    from poimen.declare.registry import Registry
    from poimen.declare.specs import ToolSpec
    from poimen.kernel.events import Event
    from poimen.kernel.views import RunView
    from poimen.log.api import Head, Store

LEASE_S: Final = 15.0
RENEW_S: Final = 5.0
DISPATCH_MARGIN_S: Final = 2.0
SCAN_S: Final = 1.0
"""How often all runs are looked through although nothing was committed: a worker may have died, in seconds."""
FEWEST_THREADS: Final = 32
"""Bodies that may run at once as plain functions, however few runs may move."""
STEPS_AT_ONCE: Final = 1 << 20
"""No step's body may wait for another's thread: a run hands nothing over while one of its bodies has yet to begin."""
SCANNED: Final = 1000
"""Rows of live runs that are read at a time."""

_log: Final = logger("poimen.worker")
_told: Final = logger("poimen.told")


class Worker:
    """Drives runs in this process.

    Arguments:
        store: the log.
        bodies: where large bodies lie.
        registry: the code that is loaded.
        concurrency: how many runs may move at once.
    """

    def __init__(self, store: Store, bodies: TieredBlobs, registry: Registry, *, concurrency: int) -> None:
        self.id = clock.random_hex(8)
        self.store = store
        self.bodies = bodies
        self.registry = registry
        self.door = LoopDoor(store, self)
        most = max(concurrency, FEWEST_THREADS)
        self.threads, self.workflow_threads = thread_pool(most), thread_pool(most)
        self.step_threads = thread_pool(STEPS_AT_ONCE)
        self.open_guards = 0
        self.dispatch_margin_s = DISPATCH_MARGIN_S
        self.drivers: dict[str, Driver] = {}
        self.leftovers: list[asyncio.Task[Any]] = []
        self.code = registry.digest
        self.error: BaseException | None = None
        self.broken: dict[str, BaseException] = {}
        self._slots = asyncio.Semaphore(concurrency)
        self._seen: dict[str, int] = {}
        self._strange: dict[str, str] = {}
        self._changed = -1
        self._everything = False
        self._next_scan = clock.monotonic() + SCAN_S
        self._chores: list[asyncio.Task[None]] = []
        self._driving: dict[str, asyncio.Task[None]] = {}
        self.lingering = Lingering(self)
        self.waiters = Waiters()
        store.worker(self.id)

    # ---- for drivers -------------------------------------------------------------------------------------------

    def append_outside(self, run: str, branch: str, event: Event, told: Callable[[PoimenError | None], None]) -> None:
        """Append an outsider's record, committed with whatever waits; `told` when it is, or why it cannot be."""

        def landed(error: PoimenError | None) -> None:
            driver = self.drivers.get(run)
            if error is None and driver is not None:
                driver.outbox.catch_up()
            told(error)

        self.door.append(Batch(run=run, records=(codec.record(event, branch=branch),)), landed)

    def tool(self, name: str) -> ToolSpec | None:
        """The tool or model of this name, if its code is loaded."""
        return self.registry.tool("tool", name) or self.registry.tool("model", name)

    # ---- driving -----------------------------------------------------------------------------------------------

    def claim(self, run: str) -> Driver | None:
        """Take a run, if nobody alive holds it, and start to drive it."""
        if run in self.drivers:
            return self.drivers[run]
        admitted = read_run(self.store, run, upto=1)[0].admitted
        spec = self.registry.workflow(admitted.workflow) if admitted is not None else None
        if spec is None:
            self._strange[run] = self.code
            return None
        self.door.settle()
        head = self.store.head(run)
        lingering = self.lingering.of(run)
        own = lingering[0].lease if lingering else None
        lease = self.store.claim(run, worker=self.id, lease_s=LEASE_S, own=own)
        if lease is None:
            return None
        for before in lingering:
            before.lease = lease
            self.lingering.gone(before)
        try:
            view, records = read_run(self.store, run)
        except Corrupt:
            self.store.release([lease])
            raise
        if has_ended(view):
            if not self.lingering.of(run):
                self.store.release([lease])
            return None
        crashed = head is not None and bool(head.worker) and not lingering
        driver = Driver(self, spec, view, records, lease, crashed=crashed)
        self.drivers[run] = driver
        self.broken.pop(run, None)
        driver.done.add_done_callback(lambda _done: self._ended(driver))
        try:
            driver.start()
        except Suspended:  # let go of already: the log was locked
            return driver
        except Exception as error:  # noqa: BLE001 (this run stops, the cause is told to whoever waits for it)
            driver.ending.stop(error)
        return driver

    def _ended(self, driver: Driver) -> None:
        self.drivers.pop(driver.run, None)
        self._seen[driver.run] = driver.view.lsn
        locked = driver.error is not None and self.door.passes(driver.error)
        if locked:
            self._seen.pop(driver.run)  # taken up again once the log is free
        elif isinstance(driver.error, (CommitUnknown, StorageFailed)):
            self._fail(driver.error)
        elif driver.error is not None and not isinstance(driver.error, Fenced):
            _log.error("run %s is left alone here: %s", driver.run, driver.error)
            self.broken[driver.run] = driver.error
        if driver.effects.bodies() or locked:
            self.lingering.add(driver)
        else:
            self.lingering.release(driver)
        self.waiters.tell(driver.run, driver.view)
        self.nudge(driver.run)  # somebody may have acted on it while it was let go of

    def _fail(self, error: BaseException) -> None:
        """Nothing more is driven here: the first cause is kept, and all who wait are told to look at it."""
        if self.error is None:
            _log.error("this worker stops: %s", error)
        self.error = self.error or error
        self.waiters.tell_all()

    async def drive(self, run: str) -> Driver | None:
        """Drive one run until it ends or rests; waits for the one who holds it, and takes over when he is gone.

        Returns:
            Its driver, which is done; None when the run ended or rested elsewhere.
        """
        told = False
        while True:
            answering = self.lingering.answering(run)
            driver = None if answering else await self.door.patiently(lambda: self.claim(run))
            if driver is not None:
                await asyncio.shield(driver.done)
                return driver
            head = self.store.head(run)
            if head is None or head.state in TERMINAL_STATES or (head.state == "WAITING" and not head.worker):
                return None
            told = told or (not answering and tell_waiting(head))
            await asyncio.sleep(WATCH_S)

    async def rest(self, run: str) -> RunView | None:
        """Wait for a run that is driven here, or is about to be, to come to rest; for any other, a little while.

        Returns:
            The run as its driver left it; None when the log is to be asked.
        """
        here = run in self.drivers or run in self._driving
        return await self.waiters.rest(run, None if here else WATCH_S)

    # ---- the worker's own chores -------------------------------------------------------------------------------

    def watch(self, *, everything: bool) -> None:
        """Start to renew leases and to look for other processes' records; `everything`: claim what can move."""
        self._everything = everything
        loop = asyncio.get_running_loop()
        self._chores = [loop.create_task(self._renew()), loop.create_task(self._look())]

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                self._renew_now()
            except PoimenError as error:
                if not self._passed(error):
                    return

    def _renew_now(self) -> None:
        held = [*self.drivers.values(), *self.lingering]
        kept = {lease.run: lease for lease in self.store.renew([d.lease for d in held], lease_s=LEASE_S)}
        for driver in held:
            if driver.run in kept:
                driver.lease = kept[driver.run]
            elif not driver.done.done():
                driver.ending.stop(Fenced(f"the lease of {driver.run} was lost", run_id=driver.run))
        self.lingering.give_back()

    async def ask_for(self, driver: Driver) -> None:
        """Prolong a lease that may have run out, if nobody took the run: the machine slept, or the log was locked."""
        while not driver.done.done():
            try:
                if not self.door.lately:
                    for lease in self.store.renew([driver.lease], lease_s=LEASE_S):
                        driver.lease = lease
                    return
            except PoimenError as error:
                if not self.door.passes(error):
                    raise
            await asyncio.wait({driver.done}, timeout=RETRY_S)

    async def _look(self) -> None:
        while self.error is None:
            try:
                self._look_once()
            except PoimenError as error:
                self._passed(error)
            await asyncio.sleep(WATCH_S)

    def _passed(self, error: PoimenError) -> bool:
        """Whether the log was only locked: what met it is done again. Otherwise nothing more is driven here."""
        locked = self.door.passes(error)
        if not locked:
            self._fail(error)
        return locked

    def _look_once(self) -> None:
        changed = self.store.changed()
        new = changed != self._changed
        self._changed = changed
        if new:
            for driver in list(self.drivers.values()):
                driver.outbox.catch_up()
        now = clock.monotonic()
        due = now >= self._next_scan
        if not (new or due):
            return
        self._next_scan = now + SCAN_S
        if due and not self.open_guards:
            self.store.idle()
        if self._everything:
            self._scan()

    def _scan(self) -> None:
        live: set[str] = set()
        after: str | None = ""
        while after is not None:
            heads = self.store.heads(live=True, after=after, limit=SCANNED)
            for head in heads:
                live.add(head.run)
                self._look_at(head)
            after = heads[-1].run if len(heads) == SCANNED else None
        self._seen = {run: lsn for run, lsn in self._seen.items() if run in live}
        self._strange = {run: code for run, code in self._strange.items() if run in live}

    def _look_at(self, head: Head) -> None:
        if head.run in self.drivers or head.run in self._driving:
            return
        try:
            if self._may_move(head):
                self._take(head.run)
        except Corrupt as error:
            self._leave(head.run, error)

    def _leave(self, run: str, error: BaseException) -> None:
        """Leave a run alone until something is recorded of it, or another process takes it; the others go on."""
        _log.error("run %s cannot be driven, and is left alone: %s", run, error)
        head = self.store.head(run)
        self.broken[run], self._seen[run] = error, head.lsn if head is not None else 0
        self.waiters.tell(run)

    def _may_move(self, head: Head) -> bool:
        """Whether a run that nobody here drives could go on, as far as its row tells."""
        if self._strange.get(head.run) == self.code or self._held(head):
            return False
        if head.run in self.broken:
            return self._seen.get(head.run) != head.lsn
        if head.state != "WAITING":
            return True
        if head.outsider_lsn == head.lsn:
            return self._seen.get(head.run) != head.lsn
        if head.run in self._seen:
            return False
        self._seen[head.run] = head.lsn
        view, _ = read_run(self.store, head.run)
        line = newest_branch(view)
        return any(w.reason == "code" for w in line.waiting) and line.waiting_code != self.code

    def _held(self, head: Head) -> bool:
        """Whether somebody alive holds the run. Only a claim tells for sure; this spares one that would be refused."""
        if head.worker == self.id and self.lingering.of(head.run):
            return self.lingering.answering(head.run)
        renewing = clock.monotonic() < self.door.locked_at + RENEW_S  # nobody could, while the log was locked
        return driven(head, self.store) or (bool(head.worker) and renewing and self.store.alive(head.worker))

    def _take(self, run: str) -> None:
        self._seen[run] = -1
        driving = asyncio.get_running_loop().create_task(self._drive_in_turn(run))
        self._driving[run] = driving
        driving.add_done_callback(lambda _done: self._driven(run))

    def _driven(self, run: str) -> None:
        self._driving.pop(run, None)
        self.waiters.tell(run)

    async def _drive_in_turn(self, run: str) -> None:
        async with self._slots:
            try:
                driver = await self.door.patiently(lambda: self.claim(run))
            except Exception as error:  # noqa: BLE001 (told to whoever waits for this run; the others go on)
                if isinstance(error, (CommitUnknown, StorageFailed)):
                    self._fail(error)
                else:
                    self._leave(run, error)
                return
            if driver is not None:
                await asyncio.shield(driver.done)

    def nudge(self, run: str) -> None:
        """Look at a run that somebody in this process has acted on."""
        if self._chores:
            asyncio.get_running_loop().call_soon(self._nudged, run)

    def _nudged(self, run: str) -> None:
        try:
            driver = self.drivers.get(run)
            if driver is not None:
                driver.outbox.catch_up()
            elif self._everything and (head := self.store.head(run)) is not None:
                if head.state not in TERMINAL_STATES:
                    self._look_at(head)
                else:
                    self._seen.pop(run, None)
        except PoimenError as error:
            self._passed(error)

    async def close(self, *, drain_s: float) -> None:
        """Let calls end for a while, then let go of every run without cancelling it."""
        renewing, running = self._chores[:1], [*self._chores[1:], *self._driving.values()]
        self._everything = False
        for chore in running:
            chore.cancel()
        deadline = clock.monotonic() + drain_s
        for driver in [*self.drivers.values(), *self.lingering]:
            driver.draining = True
        if drain_s and self.lingering.left():
            _told.info("waiting for what still runs, %.0f s at most: %s", drain_s, self.lingering.left())
        while (self.open_guards or self.lingering.at_work()) and clock.monotonic() < deadline:  # noqa: ASYNC110 (many places)
            await asyncio.sleep(WATCH_S / 5)
        if left := self.lingering.left():
            _log.warning("the end of what still runs will not be on record: %s", left)
            self.store.linger()
        for driver in list(self.drivers.values()):
            driver.ending.let_go()
        for chore in renewing:  # until now: the calls under way are to end under their leases
            chore.cancel()
        await asyncio.gather(*renewing, *running, return_exceptions=True)
        await asyncio.sleep(0)
        await self.door.close()
        for threads in (self.threads, self.step_threads, self.workflow_threads):
            threads.shutdown(wait=False, cancel_futures=True)
