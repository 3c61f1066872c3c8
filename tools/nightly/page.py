"""The report as a page for people, and both on disk.

This module must never judge; it keeps the invariant that a report is there whole or not at all, and names no host and
no folder of the machine.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from tools.nightly.report import FAULTS, Report

if TYPE_CHECKING:
    from pathlib import Path

    from tools.nightly.report import Row

_HEAD = ("harness", "verdict", "asked", "reached", "lost", "misclassified", "against class", "controls seen to fail")


def load(folder: Path) -> Report | None:
    """The report in a folder; None where there is none that can be read.

    Arguments:
        folder: where `save` has written.
    """
    try:
        return Report.of(json.loads((folder / "report.json").read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def save(report: Report, folder: Path) -> None:
    """Write `report.json` and `report.md`.

    Arguments:
        report: what to write.
        folder: created when it is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"report.json": json.dumps(report.plain(), indent=1) + "\n", "report.md": page(report)}
    for name, text in texts.items():
        new = folder / f".{name}.{os.getpid()}"
        new.write_text(text, encoding="utf-8")
        new.replace(folder / name)


def page(report: Report) -> str:
    """The report in Markdown.

    Arguments:
        report: what to show.
    """
    state = "clean" if not report.tree else f"changed ({report.tree[:12]})"
    tests = sum(portion["tests"] for portion in report.portions)
    seconds = sum(portion["seconds"] for portion in report.portions)
    rows = report.rows()
    lines = [
        f"# The numbers of a {report.numbers}: {report.verdict}",
        "",
        f"Commit `{report.commit or 'unknown'}`, tree {state}.",
        f"{tests:,} tests in {len(report.portions)} portions, {seconds:,.0f} s.",
        ", ".join(f"{name} {value}" for name, value in report.machine.items()) + ".",
        "",
        _line((*_HEAD, "seconds", "seeds")),
        _line(["---"] * (len(_HEAD) + 2)),
        *(_line(_cells(row)) for row in rows),
        "",
        "## Findings",
        "",
        *(
            f"- `{one['test']}`, seed {one['seed']}: {_escaped(one['why'])}\n\n  ```\n  {one['command']}\n  ```"
            for one in report.findings()
        ),
        *([] if report.findings() else ["None."]),
        "",
        "## Figures",
        "",
        *(f"- {_escaped(text)}" for row in rows for text in row.lines),
        "",
    ]
    return "\n".join(lines)


def _cells(row: Row) -> list[str]:
    numbers = [row.asked, row.reached, *(getattr(row, what) for what in FAULTS)]
    shown = [f"{number:,}" if number is not None else "-" for number in numbers]
    if row.reached is not None and row.unit:
        shown[1] += f" {row.unit}"
    controls = ", ".join(f"{name} ({caught:,})" for name, caught in sorted(row.controls.items())) or "-"
    seeds = [str(seed) for seed in row.seeds]
    first = f"{row.harness} {row.title}".strip() if row.harness != row.title else row.title
    many = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 3 else ", ".join(seeds)  # noqa: PLR2004 (what a cell holds)
    return [first, row.verdict, *shown, controls, f"{row.seconds:,.0f}", many]


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(_escaped(cell) for cell in cells)} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
