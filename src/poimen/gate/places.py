"""Where in a user's code something happened, for people: `b.py:7`.

This module must never decide anything by a place: source text is no part of a call's identity. It keeps the invariant
that a place is one of the user's own code, or none.

Source: design api.md, "Errors" (a message says where).
"""

from __future__ import annotations

import sys
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from poimen.gate.error_record import message_of

if TYPE_CHECKING:
    from types import FrameType

_OURS: Final = str(Path(__file__).parents[1]) + "/"
_LIBRARIES: Final = tuple(
    {f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {"<frozen"}
)
_LOOP: Final = f"{_OURS}engine/eventloop/loop.py"
"""Below it on the stack is whoever started the run, not the code that runs in it."""
_LONGEST: Final = 200


def told(error: BaseException) -> str:
    """An error and where it was raised: `KeyError: 'nope' at b.py:7`."""
    said = " ".join(message_of(error).split())[:_LONGEST]
    place = _raised_at(error)
    return f"{type(error).__name__}{f': {said}' if said else ''}{f' at {place}' if place else ''}"


def asked_at() -> str:
    """As `here`, behind what was asked for: ` at agent.py:41`."""
    place = here()
    return f" at {place}" if place else ""


def here() -> str:
    """Where the user's code is that is running now: `agent.py:41`; "" where the stack does not show it."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (the documented way to the stack)
    while frame is not None and frame.f_code.co_filename != _LOOP:
        if _is_users(frame.f_code.co_filename):
            return _place(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return ""


def _raised_at(error: BaseException) -> str:
    """The innermost place of the user's own code that the error came through."""
    found, step = "", error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if _is_users(file):
            found = _place(file, step.tb_lineno)
        step = step.tb_next
    return found


def _is_users(file: str) -> bool:
    return not file.startswith((_OURS, *_LIBRARIES))


def _place(file: str, line: int) -> str:
    with suppress(OSError):  # the folder here may be gone
        file = file.removeprefix(f"{Path.cwd()}/")
    return f"{file}:{line}"
