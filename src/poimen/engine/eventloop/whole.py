"""An event loop that poimen itself begins and ends: what does not stop when it is cancelled cannot hold up its end.

`asyncio.run` waits without end for whatever swallows its cancellation. This module must never know what a run does;
it keeps the invariants that its end comes within a bounded time, and that what it leaves behind is told by name.

Source: design mission.md, promise 8 (nothing is silently stranded); api.md, "Client and Runtime" (`poimen.run`).
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import tasks
from typing import TYPE_CHECKING, Any, Final, TypeVar

from poimen.engine.eventloop.loop import never_close

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

STOP_S: Final = 10.0
"""How long what is left may go on after it was cancelled, in seconds."""

_log: Final = logging.getLogger("poimen.worker")


def run_whole(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a loop of its own, as `asyncio.run` does, but for what does not stop at the end.

    That is left behind after `STOP_S`, with a warning that names it; a second interrupt leaves it behind at once.

    Arguments:
        work: run to its end.

    Returns:
        What it returns; what it raises is raised.
    """
    with asyncio.Runner() as runner:
        try:
            return runner.run(work)
        finally:
            runner.run(_stop_what_is_left())


async def _stop_what_is_left() -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + STOP_S
    told: set[asyncio.Task[Any]] = set()
    try:
        while (left := _left()) and (patience_s := deadline - loop.time()) > 0:
            for task in left - told:
                task.cancel()
            told |= left
            await asyncio.wait(left, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        closing = loop.create_task(loop.shutdown_asyncgens(), name="generators that are being closed")
        await asyncio.wait({closing}, timeout=max(0.0, deadline - loop.time()) or 1.0)
    finally:
        _leave(_left())


def _left() -> set[asyncio.Task[Any]]:
    """What has not ended in this loop, but for whoever asks."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


def _leave(left: set[asyncio.Task[Any]]) -> None:
    """Let the loop end without them: it cannot find them any more, and nothing closes their coroutines."""
    if not left:
        return
    _log.warning("left behind, since it goes on although it was cancelled: %s", ", ".join(sorted(map(_name, left))))
    for task in left:
        tasks._unregister_task(task)  # noqa: SLF001 (asyncio's reference has it, under "Extending")
    never_close(left)


def _name(task: asyncio.Task[Any]) -> str:
    """Whose it is: poimen names what it begins by the effect; what the user's code began is known by its function."""
    name = task.get_name()
    return name if not name.startswith("Task-") else getattr(task.get_coro(), "__qualname__", name)
