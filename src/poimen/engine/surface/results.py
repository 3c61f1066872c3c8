"""What clients are given about runs: where they stand, what they emitted, branches, plans, differences.

This module must never know where it is read from; it keeps the invariant that what a client holds
does not change under it.

Source: design api.md, "Client and Runtime".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from poimen.kernel.branch import BranchState as RunState
from poimen.later import not_built

__all__ = [
    "Branch",
    "BranchDiff",
    "DiffRow",
    "EarlierEffect",
    "Emitted",
    "InboxItem",
    "RewindPlan",
    "RunState",
    "Standing",
]

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a run stands.

    Arguments:
        state: of its newest branch.
        reason: why it does not move; None when it moves or has ended.
        command: what moves it; None when nothing is needed.
        lsn: of the last record that was looked at.
    """

    state: RunState
    reason: str | None
    command: str | None
    lsn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxItem:
    """Something that waits for a person.

    Arguments:
        id: for `claim`, `resolve`, `answer`.
        kind: what is asked.
        run_id: whose it is.
        summary: for people.
        lsn: of the last record about it; an answer names it, so that a later change is noticed.
    """

    id: str
    kind: Literal["effect", "question", "budget", "code", "verifier"]
    run_id: str
    summary: str
    lsn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted(Generic[T_co]):
    """A value that a run handed out, with the step and attempt that did; `lsn` resumes after it."""

    lsn: int
    step: str
    attempt: int
    value: T_co


# ---- branches ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One line of history of a run. The trunk is `main` and has no parent."""

    id: str
    parent: str | None
    fork_lsn: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierEffect:
    """An effect past the point of a rewind: it was made in the world, and no rewind unmakes it."""

    intent_id: str
    tool: str
    summary: str
    effect_class: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindPlan:
    """What a rewind would do. `effects`: what was made in the world past the point."""

    effects: tuple[EarlierEffect, ...]

    async def apply(self, *, by: str, why: str, accept_unknown: bool = False) -> Branch:
        """Make the branch.

        Arguments:
            by: who wants it.
            why: for the record.
            accept_unknown: go on although an effect past the point is unknown.

        Raises:
            NotBuiltYet: always, in this version.
        """
        not_built("RewindPlan.apply")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRow:
    """One step on both sides; None where a side has no such step."""

    step: str
    left: str | None
    right: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchDiff:
    """Two branches, step by step."""

    rows: tuple[DiffRow, ...]

    def _repr_html_(self) -> str:
        """The same as a table in a notebook.

        Raises:
            NotBuiltYet: always, in this version.
        """
        not_built("BranchDiff._repr_html_")
