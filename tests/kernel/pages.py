"""Reads the tables of a documentation page, so that a test can compare them with the code."""

from __future__ import annotations

import re
from pathlib import Path

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def tables(page: str) -> dict[tuple[str, ...], list[list[tuple[str, ...]]]]:
    """All tables of a reference page: by their column heads, each as its rows of cells, in order."""
    found: dict[tuple[str, ...], list[list[tuple[str, ...]]]] = {}
    block: list[tuple[str, ...]] = []
    for line in [*(REFERENCE / page).read_text(encoding="utf-8").splitlines(), ""]:
        if line.startswith("|"):
            block.append(tuple(_plain(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]))
        elif block:
            head, rule, *rows = block
            assert all(re.fullmatch(r"-+", cell) for cell in rule), f"{page}: no table: {head}"
            assert all(len(row) == len(head) for row in rows), f"{page}: a row of another length: {head}"
            found.setdefault(head, []).append(rows)
            block = []
    return found


def _plain(cell: str) -> str:
    return cell.replace(r"\|", "|").strip().strip("`")
