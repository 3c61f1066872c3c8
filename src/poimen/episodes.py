"""What a verifier sees and says: the frozen episode of a branch, and the verdict on it.

Owned, deeply immutable values; none is a handle that reads the store, but for `BlobStore`, which
reads bodies only when asked. This module must never know how an episode is built; it keeps the
invariant that an unknown amount is None and never 0.

Source: design verification.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Literal, Protocol, Self

from poimen.kernel.errors import NotStorable
from poimen.kernel.intent import BlobRef

__all__ = [
    "AttemptView",
    "BlobRef",
    "BlobStore",
    "EpisodeView",
    "OpenIntent",
    "StepView",
    "Totals",
    "UsageTotals",
    "Verdict",
    "VerifierCtx",
]

# ---- the episode -------------------------------------------------------------------------------------------------


class BlobStore(Protocol):
    """Where bodies lie that an episode names. A verifier that asks for none reads none."""

    def open(self, ref: BlobRef, /) -> bytes:
        """The body, read now; for synchronous verifiers."""
        ...

    async def read(self, ref: BlobRef, /) -> bytes:
        """The body."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """What models have used. None: unknown, never 0. `cost_usd` is in US dollars."""

    input_tokens: int | None
    output_tokens: int | None
    cost_usd: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over all attempts, failed ones included; `attempts` counts them by state."""

    usage: UsageTotals
    attempts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One numbered try at a step, from 1. `output` names what came back, None when nothing did."""

    no: int
    state: str
    output: BlobRef | None
    usage: UsageTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step with all its attempts, failed and unknown ones too."""

    key: str
    kind: str
    attempts: tuple[AttemptView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIntent:
    """An effect that was unknown at the snapshot: neither done nor not done."""

    id: str
    tool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeView:
    """All that happened in a branch, frozen at one LSN."""

    steps: tuple[StepView, ...]
    totals: Totals
    open: tuple[OpenIntent, ...]
    snapshot_lsn: int


# ---- the verifier's side -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierCtx:
    """What a verifier is given.

    Arguments:
        run, branch: what is judged.
        step, attempt: the verifier's own durable step and attempt.
        episode: frozen at `snapshot_lsn`.
        snapshot_lsn: the position in the run's log that the verdict will name.
        blobs: bodies, read when asked.
        deadline: aware; after it the verdict is `timed_out`.
    """

    run: str
    step: str
    attempt: int
    branch: str
    episode: EpisodeView
    snapshot_lsn: int
    blobs: BlobStore
    deadline: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a verifier says; made by `passing`, `failing`, `score` and `abstain`.

    Arguments:
        kind: `scored`, `abstained`, `errored` or `timed_out`; a timeout is never a score of 0.
        passed: what a gate goes by; None: it says neither.
        value: the score.
        label: a short name for the outcome.
        explanation: for people.
    """

    kind: Literal["scored", "abstained", "errored", "timed_out"]
    passed: bool | None
    value: float | None
    label: str | None
    explanation: str | None

    def __post_init__(self) -> None:
        if self.value is not None and not isfinite(self.value):
            raise NotStorable(
                f"a verdict's value is {self.value!r}",
                hint="give a finite number, or Verdict.abstain(why)",
                path="value",
            )

    @classmethod
    def passing(cls, explanation: str = "", *, value: float | None = None) -> Self:
        """The episode is as it should be."""
        return cls(kind="scored", passed=True, value=value, label=None, explanation=explanation or None)

    @classmethod
    def failing(cls, explanation: str = "", *, value: float | None = None) -> Self:
        """The episode is not as it should be; from a gate this rejects the run."""
        return cls(kind="scored", passed=False, value=value, label=None, explanation=explanation or None)

    @classmethod
    def score(
        cls, value: float, *, passed: bool | None = None, label: str | None = None, explanation: str | None = None
    ) -> Self:
        """A number, which alone rejects nothing.

        Raises:
            NotStorable: the number is not finite.
        """
        return cls(kind="scored", passed=passed, value=value, label=label, explanation=explanation)

    @classmethod
    def abstain(cls, why: str) -> Self:
        """The verifier cannot tell; an abstaining gate only informs."""
        return cls(kind="abstained", passed=None, value=None, label=None, explanation=why)
