"""Drivers that have let go of a run which stays this worker's for a while: bodies go on, or the log was locked.

Such a run is not given back before its last body has ended; one that was let go of because another process had the
log locked is taken up again by the same worker. This module must never know what a run does; it keeps the invariant
that a lease is given back by its last holder here, once.

Source: design protocol.md, section 3 (grace) and 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from poimen.kernel.errors import Fenced, PoimenError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from poimen.engine.driving.driver import Driver
    from poimen.engine.worker import Worker


class Lingering:
    """What a worker has let go of and still answers for.

    Arguments:
        worker: whose leases they are.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._drivers: list[Driver] = []

    def __iter__(self) -> Iterator[Driver]:
        """Each of them, as they are now."""
        return iter(list(self._drivers))

    def add(self, driver: Driver) -> None:
        """Keep the lease of a driver that has let go of its run."""
        self._drivers.append(driver)

    def of(self, run: str) -> list[Driver]:
        """Those of one run, but the ones that have lost it."""
        return [d for d in self._drivers if d.run == run and not isinstance(d.error, Fenced)]

    def answering(self, run: str) -> bool:
        """Whether effects of a run that was let go of are at work: what they answer is to be on record first."""
        return any(driver.effects.at_work for driver in self.of(run))

    def at_work(self) -> bool:
        """Whether anything of any of them goes on."""
        return any(driver.effects.going_on() for driver in self._drivers)

    def left(self) -> str:
        """The effects whose bodies go on, by their ids; those of runs that are driven too."""
        drivers = [*self._worker.drivers.values(), *self._drivers]
        return ", ".join(sorted({f"{d.run}/{'/'.join(map(str, key))}" for d in drivers for key in d.effects.bodies()}))

    def gone(self, driver: Driver) -> bool:
        """Forget one of which nothing goes on; whether it is forgotten now."""
        gone = driver in self._drivers and not driver.effects.going_on()
        if gone:
            self._drivers.remove(driver)
        return gone

    def release(self, driver: Driver) -> None:
        """Give its lease back, unless the run is still somebody's here; in a locked log that has to wait."""
        if driver.run in self._worker.drivers or isinstance(driver.error, Fenced) or self.of(driver.run):
            return
        if self._worker.door.lately:
            self.add(driver)
            return
        try:
            self._worker.store.release([driver.lease])
        except PoimenError as error:
            if self._worker.door.passes(error):
                self.add(driver)

    def body_ended(self, driver: Driver) -> None:
        """A body that was given up has ended: a run that rests, or has ended, is let go of after its last one."""
        if self.gone(driver):
            self.release(driver)
            self._worker.nudge(driver.run)

    def give_back(self) -> None:
        """Give back what could not be given back while the log was locked."""
        for driver in self:
            if self.gone(driver):
                self.release(driver)
