"""Figures as pictures: throughput against concurrency, cost against growth."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Points = list[tuple[float, float]]


def draw(figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write `throughput.svg` and `growth.svg`.

    Arguments:
        figures: as `bench.run` writes them.
        folder: where to.
    """
    rows = figures["figures"]
    at_once = _series(rows, r"S2 ([\d,]+) at once")
    alone = [(n, row["floor"]) for n, row in _found(rows, r"S2 ([\d,]+) at once")]
    throughput = _chart("Guarded effects a second", "effects under way at once", "effects/s")
    throughput.add("poimen", at_once)
    throughput.add("three bare commits, one effect after another", alone)
    growth = _chart("Does it grow dearer?", "what is there already", "us")
    growth.add("the n-th step of one run", _series(rows, r"S8 step ([\d,]+)"))
    growth.add("one append with n runs in the database", _series(rows, r"S8 append, ([\d,]+) runs"))
    appends = [(n, row["floor"]) for n, row in _found(rows, r"S8 append, ([\d,]+) runs")]
    growth.add("one bare commit, at the same moment", appends)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, chart in (("throughput", throughput), ("growth", growth)):
        path = folder / f"{name}.svg"
        chart.x_labels = sorted({x for points in chart.raw_series for x, _ in points[0]})
        path.write_bytes(chart.render())
        written.append(path)
    return written


def _chart(title: str, x_title: str, y_title: str) -> Any:
    # Here and not above: it puts an importer of its own in front of Python's, which is nothing for a test process.
    import pygal  # noqa: PLC0415
    from pygal.style import CleanStyle  # noqa: PLC0415

    # no script from elsewhere: the picture shall be whole where no network is
    return pygal.XY(
        title=title,
        x_title=x_title,
        y_title=y_title,
        style=CleanStyle,
        js=(),
        legend_at_bottom=True,
        legend_at_bottom_columns=1,
        x_value_formatter=lambda power: f"{10**power:,.0f}",
    )


def _series(rows: Sequence[Mapping[str, Any]], pattern: str) -> Points:
    return [(n, row["value"]) for n, row in _found(rows, pattern)]


def _found(rows: Sequence[Mapping[str, Any]], pattern: str) -> list[tuple[float, Mapping[str, Any]]]:
    return [
        (_power(int(match[1].replace(",", ""))), row) for row in rows if (match := re.fullmatch(pattern, row["name"]))
    ]


def _power(n: int) -> float:
    """Where n stands on an axis of powers of ten."""
    return math.log10(n)
