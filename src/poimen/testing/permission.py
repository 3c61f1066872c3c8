"""Whether tests may go past the gate in this process. On its own, so that saying yes loads nothing else.

This module must never be asked by product code; it keeps the invariant that the answer is no until somebody
has said yes.

Source: design api.md, "Testing" (`allow_raw`).
"""

from __future__ import annotations

from typing import Final

_given: Final[list[bool]] = []


def allow_raw() -> None:
    """Let `raw` open tools in this process. The pytest plugin calls it; a program has no reason to."""
    _given[:] = [True]


def is_given() -> bool:
    """Whether somebody has allowed it."""
    return bool(_given)
