"""Timers of a run: armed once its record is used up, fired by a record.

A timer's time is the run's own, which stands still between hand-overs; so plain `asyncio.timeout`, `wait_for` and
`sleep` repeat themselves. This module must never run a timer's callback; it keeps the invariant that each firing
has a place in the order of the log.

Source: design protocol.md, section 5 ("its timers' firings are records").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from poimen import clock
from poimen.declare.calling import CALLER
from poimen.engine.driving.scopes import scope_of
from poimen.engine.eventloop.loop import empty
from poimen.kernel.events import TimerFired

if TYPE_CHECKING:
    from poimen.engine.driving.driver import Driver
    from poimen.engine.driving.scopes import Scope
    from poimen.engine.eventloop.futures import RunTimer


class Timers:
    """The timers of one driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def set(self, timer: RunTimer) -> None:
        """A timer of the workflow or of an attempt; armed once the record is used up."""
        caller = timer.context.get(CALLER)
        scope = scope_of(caller) or self._driver.workflow
        timer.scope, timer.n = scope, scope.timers_made
        scope.timers_made += 1
        scope.timers[timer.n] = timer
        length_s = timer.when() - self._driver.time_s()
        self._driver.when_live(lambda: self._arm(timer, length_s))

    def _arm(self, timer: RunTimer, length_s: float) -> None:
        if timer.cancelled() or timer.fired or self._driver.dropped or ("timer", timer.n) in timer.scope.handed:
            return
        # never more than the whole: a clock that is behind the log would have it wait for the difference too
        delay = max(0.0, min(timer.when() - clock.wall_us() / 1e6, length_s))
        timer.real = self._driver.main.call_later(delay, self._fire, timer, context=empty())

    def _fire(self, timer: RunTimer) -> None:
        if timer.cancelled() or self._driver.dropped:
            return
        timer.real = None
        self._driver.submit((TimerFired(step=timer.scope.step, attempt=timer.scope.attempt, n=timer.n),))

    def armed(self) -> bool:
        """Whether a timer will fire by itself."""
        scopes: list[Scope] = [
            self._driver.workflow,
            *(s for s in self._driver.attempts.scopes.values() if not s.dropped),
        ]
        return any(t.real is not None for s in scopes for t in s.timers.values())
