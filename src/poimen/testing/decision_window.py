"""The decision window: who owns a decision's durable write when a timeout falls between deciding and acting.

Both paths make the same decision and prove with an event that it exists before the timeout is applied;
they differ only in which side of the first await the append stands on. `unsafe_path` is the control: it
must lose the decision, and a check that it passes checks nothing. This module must never sleep to reach
a state. Invariant: what it reports was read back from the file, never from memory.

Source: requirement decision-ledger.md; design proof.md, P18.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from poimen.kernel.errors import WouldBlock
from poimen.ledger import DecisionLedger

DECISION_ID: Final = "contact-3"
DECISION: Final = "retry-with-smaller-batch"

DecisionPath: TypeAlias = Callable[[DecisionLedger, asyncio.Event, asyncio.Event], Awaitable[None]]
"""Code that decides: `(ledger, ready, release)`. It sets `ready` once it has decided and waits for `release`."""


async def unsafe_path(ledger: DecisionLedger, ready: asyncio.Event, release: asyncio.Event) -> None:
    """Decide, wait, then write: a timeout in the wait takes the decision with it."""
    decision = DECISION
    ready.set()
    await release.wait()
    ledger.record_intent(DECISION_ID, decision)


async def safe_path(ledger: DecisionLedger, ready: asyncio.Event, release: asyncio.Event) -> None:
    """Decide, write, then wait: a timeout in the wait leaves an intent without a commit."""
    decision = DECISION
    ledger.record_intent(DECISION_ID, decision)
    ready.set()
    await release.wait()
    ledger.record_commit(DECISION_ID)


async def after_timeout(path: DecisionPath, file: Path) -> list[dict[str, Any]]:
    """Run a path until its decision exists, time it out there, and read the file.

    Arguments:
        path: the code under examination; the window is open once it has set its `ready`.
        file: where the ledger is made.

    Raises:
        AssertionError: the path ended although it was never released, so no timeout hit its window.
    """
    with DecisionLedger(file) as ledger:
        ready, release = asyncio.Event(), asyncio.Event()
        running = asyncio.ensure_future(path(ledger, ready, release))
        await _opened(ready, running)
        try:
            await asyncio.wait_for(running, timeout=0)
        except TimeoutError:
            pass
        else:
            raise AssertionError("the path ended without being released: no timeout hit its window")
    return DecisionLedger.read(file).events()


async def after_success(path: DecisionPath, file: Path) -> list[dict[str, Any]]:
    """Run a path until its decision exists, release it, let it end, and read the file."""
    with DecisionLedger(file) as ledger:
        ready, release = asyncio.Event(), asyncio.Event()
        running = asyncio.ensure_future(path(ledger, ready, release))
        await _opened(ready, running)
        release.set()
        await running
    return DecisionLedger.read(file).events()


def reproduce() -> dict[str, list[dict[str, Any]]]:
    """What each path's ledger holds after the timeout; the result that `poimen reproduce` prints.

    Raises:
        WouldBlock: an event loop runs in this thread; use `await asyncio.to_thread(reproduce)`.

    Source: requirement decision-ledger.md, "Running the fixture gives the whole result".
    """
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        raise WouldBlock(
            "reproduce() runs an event loop of its own, and one runs in this thread",
            hint="await asyncio.to_thread(reproduce)",
        )
    with tempfile.TemporaryDirectory(prefix="poimen-") as folder:
        return asyncio.run(_both(Path(folder)))


async def _both(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        "safe_after_timeout": await after_timeout(safe_path, folder / "safe.jsonl"),
        "unsafe_after_timeout": await after_timeout(unsafe_path, folder / "unsafe.jsonl"),
    }


async def _opened(ready: asyncio.Event, running: asyncio.Future[None]) -> None:
    """Wait until the decision exists; a path that breaks off before that says so here."""
    waiting = asyncio.ensure_future(ready.wait())
    both: set[asyncio.Future[Any]] = {waiting, running}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if not ready.is_set():
        waiting.cancel()
        running.result()
        raise AssertionError("the path ended without setting `ready`: it never said that it had decided")
    await waiting
