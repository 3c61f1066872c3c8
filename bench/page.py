"""The page of figures, `docs/explanation/speed.md`, made from `bench/figures.json` alone.

python -m bench.page
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.figures import Figure, number

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "bench" / "figures.json"
PAGE = ROOT / "docs" / "explanation" / "speed.md"
PICTURES = ROOT / "docs" / "explanation" / "speed"

HEAD = """\
# What it costs

Measured by `make bench ARGS="--size {size} --publish"` at commit {commit} on {machine} (load {load before} when it
began), Python {python}, SQLite {sqlite}. Each figure is a median of one run, with the smallest and the largest
repetition beside it, and with what the machine needs for the same bytes by itself, its *floor*: bare commits by SQLite
with `synchronous=FULL`, on the same disk and in the same run. Disks and machines drift: compare ratios, and measure on
yours. What becomes of effects in other runtimes is in [compared with other runtimes](comparison.md).

![effects a second against how many are under way at once](speed/throughput.svg)

![what a step and an append cost against what is there already](speed/growth.svg)

| what | median | smallest to largest | floor | goal |
|---|---|---|---|---|
"""

TAIL = """
## What the rows are

- **S1** one guarded effect after another: claim, dispatch, outcome, three commits and three syncs; its floor is three
  bare commits of as many bytes.
- **S2** guarded effects of one run with so many under way at once, in one process. They share commits; what is left is
  Python.
- **S3** steps without effects, durable before anything outside can depend on them.
- **S4** a process with runs in the middle of an effect is killed; from opening to the last run known again.
- **S5** `import poimen`; and from the start of the interpreter to the first committed effect.
- **S6** bytes in the database for an effect: arguments, class, key, outcome, hash chain.
- **S7** records read, decoded and folded from a file; what is held in memory when results are 1,000 times as large.
- **S8** the n-th step of one run; one append with n runs in the database.

A goal that is missed stays where it stands.
"""


def written(figures: Mapping[str, Any]) -> str:
    """The page.

    Arguments:
        figures: as `bench.run` writes them.
    """
    rows = (_row(Figure(**row)) for row in figures["figures"])
    return HEAD.format_map(figures) + "".join(rows) + TAIL


def _row(figure: Figure) -> str:
    floor = "" if figure.floor is None else f"{number(figure.floor)} {figure.unit}"
    if figure.ratio is not None:
        floor = f"{figure.ratio:.2f} x {floor}"
    median = f"{number(figure.value)} {figure.unit}".strip()
    if figure.growth is not None:
        median += f" ({figure.growth:.2f} x the first)"
    return f"| {figure.name} | {median} | {number(figure.low)} to {number(figure.high)} | {floor} | {figure.goal} |\n"


def main() -> None:
    """Write the page from the figures that are kept."""
    PAGE.write_text(written(json.loads(FIGURES.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
