"""What a figure is: a median with its spread, and beside it the machine's floor or the cost to compare it with."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured number.

    Arguments:
        name: such as `S1 one effect`.
        value: the median.
        unit: of `value`, `low`, `high` and `floor`.
        low: the smallest repetition.
        high: the largest one.
        goal: in words, as the design states it.
        floor: what the machine needs for the same by itself, in the same run; None: nothing comparable.
        ratio: the median of the repetitions' own ratios to the floor, where they were taken turn by turn.
        growth: how many times the first of its kind it is, where nothing should grow.
    """

    name: str
    value: float
    unit: str
    low: float
    high: float
    goal: str
    floor: float | None = None
    ratio: float | None = None
    growth: float | None = None

    @classmethod
    def of(cls, name: str, repetitions: Sequence[float], unit: str, goal: str, **more: Any) -> Figure:
        """The figure of some repetitions."""
        middle, low, high = statistics.median(repetitions), min(repetitions), max(repetitions)
        return cls(name=name, value=middle, unit=unit, low=low, high=high, goal=goal, **more)

    def as_json(self) -> dict[str, Any]:
        """Its fields, without those that hold nothing."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def shown(self) -> str:
        """A line for people."""
        spread = f"{number(self.low)} to {number(self.high)}"
        beside = [f"{self.growth:.2f} x the first"] if self.growth is not None else []
        if self.floor is not None:
            times = f"{self.ratio:.2f} x " if self.ratio is not None else ""
            beside.append(f"{times}floor {number(self.floor)}")
        return (
            f"{self.name:<30}{number(self.value):>9} {self.unit:<10}{spread:<19}{', '.join(beside):<32}goal {self.goal}"
        )


def number(value: float) -> str:
    """With three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def median_around(laps: Sequence[float], n: int, width: int = 50) -> float:
    """The median of the laps around the n-th, `width` of them (fewer at the ends)."""
    first = max(0, min(n - 1 - width // 2, len(laps) - width))
    return statistics.median(laps[first : first + width])
