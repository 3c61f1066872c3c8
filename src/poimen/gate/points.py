"""Named points at which a process can be made to die, for proofs of what a crash leaves.

They do nothing unless the environment variable `POIMEN_CRASH` is set when the process starts:
`POINT`, `POINT:TOOL` or `POINT:TOOL:N` (the N-th time the point is reached, from 1). The death is a
real SIGKILL of the own process: no destructor runs, no buffer is flushed. A process that ends although a
point was armed says so on stderr: a proof that kills nothing proves nothing. This module must never
catch; it keeps the invariant that a point that is off costs one test of a flag.

Source: requirement write-ahead-intent, "Harness"; design proof.md, P1.
"""

from __future__ import annotations

import atexit
import os
import signal
from typing import Final

from poimen.kernel.errors import ConfigurationError

VARIABLE: Final = "POIMEN_CRASH"

POINTS: Final = {
    "admitted": "the run's admission is durable, nothing has run",
    "pending": "the intent is Pending and durable (window A opens)",
    "dispatched": "the intent is Dispatched and durable, the call has not begun (window B opens)",
    "in_call": "the tool's body has been entered",
    "called": "the call has come back, its outcome is not recorded",
    "committed": "the outcome is durable",
    "classified": "recovery has recorded what the crash left, nothing is done about it yet",
    "decided": "a decision is durable",
}
"""Every point by its name, and what is so when it is reached."""

_armed: list[str] = []
_seen: dict[str, int] = {}
_passed: dict[str, int] = {}


def arm(spec: str) -> None:
    """Switch a point on for this process, or all off with an empty text.

    Arguments:
        spec: `POINT[:TOOL[:N]]`.

    Raises:
        ConfigurationError: no such point, or N is no number from 1.
    """
    _armed.clear()
    _seen.clear()
    _passed.clear()
    atexit.unregister(_tell)
    if not spec:
        return
    point, _, rest = spec.partition(":")
    tool, _, nth = rest.partition(":")
    if point not in POINTS:
        known = ", ".join(POINTS)
        raise ConfigurationError(
            f"{point!r} is not a crash point; there are: {known}",
            where=f"{VARIABLE}={spec}",
            why="a proof that kills nothing proves nothing",
            hint=f"POINT, POINT:TOOL or POINT:TOOL:N; unset {VARIABLE} to run without",
        )
    if nth and not (nth.isascii() and nth.isdecimal() and int(nth)):
        raise ConfigurationError(
            f"{nth!r} does not say at which time to crash", where=f"{VARIABLE}={spec}", hint="a number from 1"
        )
    _armed.extend((point, tool, nth or "1"))
    atexit.register(_tell)


def reach(point: str, tool: str = "") -> None:
    """Die here if this point is armed."""
    if not _armed or _armed[0] != point:
        return
    _passed[tool] = _passed.get(tool, 0) + 1
    if _armed[1] and _armed[1] != tool:
        return
    _seen[point] = _seen.get(point, 0) + 1
    if _seen[point] == int(_armed[2]):
        os.kill(os.getpid(), signal.SIGKILL)


def _tell() -> None:
    """Say, at the end of a process that was to be killed, that it was not, and what came to the point instead."""
    point, tool, nth = _armed
    came = ", ".join(f"{name or 'no tool'} {times} time(s)" for name, times in sorted(_passed.items()))
    text = f"{VARIABLE}={point}:{tool}:{nth} has killed nothing in this process; to {point} came: {came or 'nothing'}\n"
    os.write(2, text.encode(errors="replace"))


def armed(point: str) -> bool:
    """Whether this point is switched on."""
    return bool(_armed) and _armed[0] == point


arm(os.environ.get(VARIABLE, ""))
