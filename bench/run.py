"""S1 to S8 of the design's proof, in one run, each beside the machine's floor.

    python -m bench.run [--size smoke|short|full] [--only S1 ...] [--to FOLDER] [--json FILE] [--publish]

The floor of a guarded effect is three bare commits of the same bytes by apsw with synchronous=FULL, taken turn by turn
with the effects themselves, because disks drift. Medians; the spread is min to max. FOLDER gets `figures.json`,
`throughput.svg` and `growth.svg`; `--publish` keeps them in the repository and writes the page from them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import effects, page, plot, processes, records
from bench.figures import Figure

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured: repetitions, and how far growth is followed."""

    rounds: int
    each: int
    effects: int
    steps: int
    repeat: int
    recovered: int
    places: tuple[int, ...]
    runs: tuple[int, ...]


SIZES = {
    "smoke": Size(
        rounds=2, each=5, effects=64, steps=100, repeat=2, recovered=5, places=(10, 100), runs=(200, 400)
    ),
    "short": Size(
        rounds=5, each=60, effects=1280, steps=1500, repeat=3, recovered=200, places=(10, 100, 1000, 10_000),
        runs=(200, 1000, 10_000),
    ),
    "full": Size(
        rounds=20, each=60, effects=5120, steps=6000, repeat=5, recovered=200, places=(10, 100, 1000, 10_000, 100_000),
        runs=(200, 1000, 10_000, 100_000, 1_000_000),
    ),
}  # fmt: skip

Measure = Callable[[Path, Size], list[Figure]]

MEASURES: dict[str, Measure] = {
    "S1": lambda folder, size: [asyncio.run(effects.lone(folder, rounds=size.rounds, each=size.each))],
    "S2": lambda folder, size: asyncio.run(effects.crowds(folder, effects=size.effects, repeat=size.repeat)),
    "S3": lambda folder, size: [asyncio.run(effects.steps(folder, count=size.steps, repeat=size.repeat))],
    "S4": lambda folder, size: processes.recovery(folder, runs=size.recovered, repeat=size.repeat),
    "S5": lambda folder, size: processes.start_up(folder, repeat=2 * size.repeat + 1),
    "S6": lambda folder, size: [effects.bytes_per_effect(folder, effects=size.each * 5)],
    "S7": lambda folder, size: records.fold(folder, steps=size.steps * 2, repeat=size.repeat),
    "S8": lambda folder, size: [
        *records.nth_step(folder, places=size.places),
        *records.nth_run(folder, places=size.runs),
    ],
}
"""By the design's own numbers."""


def measure(names: Sequence[str], size: Size, told: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure, in one run on one disk.

    Arguments:
        names: of `MEASURES`.
        size: how much.
        told: gets each figure as a line, when it is there.
    """
    rows: list[dict[str, Any]] = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="poimen-bench-") as folder:
            for figure in MEASURES[name](Path(folder), size):
                told(figure.shown())
                rows.append(figure.as_json())
    return rows


def _machine() -> dict[str, Any]:
    git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)  # noqa: PLW1510
    return {
        "commit": git.stdout.strip(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "load before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="short", help="how much is measured (short: some minutes)")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES), help="some of them")
    parser.add_argument("--to", type=Path, help="write figures.json and the pictures to this folder")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--publish", action="store_true", help="keep the figures and the page in the repository")
    given = parser.parse_args()
    head = _machine()
    sys.stdout.write(
        f"{head['machine']}, Python {head['python']}, SQLite {head['sqlite']}, load {head['load before']}\n"
    )
    figures = {**head, "size": given.size, "figures": measure(given.only, SIZES[given.size], _told)}
    if given.json:
        write(figures, given.json)
    if given.to:
        write(figures, given.to / "figures.json")
        plot.draw(figures, given.to)
    if given.publish:
        write(figures, page.FIGURES)
        plot.draw(figures, page.PICTURES)
        page.PAGE.write_text(page.written(figures), encoding="utf-8")


def write(figures: dict[str, Any], file: Path) -> None:
    """Write the figures to a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def _told(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
