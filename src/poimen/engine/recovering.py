"""A run that was interrupted is taken up: what the crash left is classified, each unknown effect goes up its ladder.

This module must never decide what an interrupted effect means, the kernel does; it keeps the invariant that nothing
is done about an effect before its classification is durable.

Source: design protocol.md, sections 4 and 5; requirement write-ahead-intent, "Restart classification".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from poimen import clock
from poimen.gate import points
from poimen.kernel.errors import NotStorable
from poimen.kernel.events import Waiting
from poimen.recovery.scan import left_behind
from poimen.secrecy.speaking import logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poimen.engine.driving.driver import Driver
    from poimen.engine.worker import Worker

_told: Final = logger("poimen.told")


def recover(driver: Driver) -> tuple[Waiting, ...]:
    """Classify what a crash left, then send each unknown effect up its ladder.

    Returns:
        Why the branch must wait instead of going on; empty when it may go on.
    """
    line = driver.line
    _tell_behind(driver)
    left = left_behind(driver.view, line, epoch=driver.epoch, now_us=clock.wall_us())
    missing = _missing(driver, left.climb)
    stays = bool(left.stopped or missing)
    records = left.records if stays else (*left.records, *left.resumed)
    if records:
        driver.outbox.send_now(records)
    points.reach("classified")
    if stays:
        return (*left.stopped, *missing)
    for intent in left.climb:
        step = line.steps[intent.id.step]
        spec = driver.worker.tool(intent.pending.tool)
        if spec is None:
            continue
        scope = driver.attempts.scope(step.key, intent.id.attempt) if step.kind == "step" else None
        try:
            driver.effects.recover(intent, spec, scope, driver.packed(intent, driver.fetch(step.args)))
        except NotStorable as error:
            detail = f"the stored arguments of {intent.id} do not fit the tool that is loaded: {error.message}"
            return (Waiting(reason="code", about=str(intent.id), detail=detail),)
    return ()


_told_behind: Final[WeakSet[Worker]] = WeakSet()


def _tell_behind(driver: Driver) -> None:
    """Tell once, for each worker, that the clock shows less than the log."""
    behind_us = driver.view.latest_at - clock.wall_us()
    if behind_us > clock.US and driver.worker not in _told_behind:
        _told_behind.add(driver.worker)
        said = (
            "the clock is %.0f s behind the newest record of run %s: until it has caught up keys count as expired, and"
        )
        said += " what is left of a wait is its whole; set the clock if it is wrong (poimen doctor)"
        _told.warning(said, behind_us / clock.US, driver.run)


def _missing(driver: Driver, climb: Sequence[Any]) -> tuple[Waiting, ...]:
    return tuple(
        Waiting(reason="code", about=str(i.id), detail=f"the tool {i.pending.tool} is not loaded here")
        for i in climb
        if driver.worker.tool(i.pending.tool) is None and not driver.line.cancel_lsn
    )
