"""The page for users of other runtimes promises nothing that is not there, and takes nothing for missing that is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import poimen
from poimen.later import PARTS
from tests.docs.pages import ROOT, page

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = page(ROOT / "docs" / "explanation" / "coming-from.md")


def rows() -> Iterator[tuple[int, str]]:
    """The right column of each table."""
    for number, line in PAGE.prose:
        cells = line.split(" | ")
        if line.startswith("| ") and len(cells) == 2 and "there" not in cells[0][:8]:
            yield number, cells[1].removesuffix(" |")


def codes(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def later(text: str) -> list[str]:
    """What a cell says comes later: the names behind the mark, up to the end of that thought."""
    return [name for part in re.findall(r"\*later:\*([^;.]*(?:\.\w[^;.]*)*)", text) for name in codes(part)]


def wrong(text: str) -> list[str]:
    """What a cell says of this version that is not so."""
    promised = later(text)
    found = [f"{name} is there already, or is no name" for name in promised if name not in PARTS]
    if "*later:*" in text and not promised:
        found.append("nothing is named")
    for code in codes(text):
        name = code.removeprefix("poimen.").removeprefix("@poimen.").partition("(")[0]
        if name in PARTS and code not in promised:
            found.append(f"{code} is not in this version")
        if code.startswith(("poimen.", "@poimen.")) and not hasattr(poimen, name):
            found.append(f"there is no {code}")
    return found


def test_each_row_is_so() -> None:
    found = list(rows())
    assert len(found) > 50
    assert sum(bool(later(text)) for _, text in found) > 20
    assert [f"{PAGE.name}:{number}: {what}" for number, text in found for what in wrong(text)] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("*later:* `sleep`", []),
        ("*later:* `Run.signal`, `receive`; now a tool", []),
        ("`poimen.run`, *later:* `child`", []),
        ("`poimen.sleep`", ["poimen.sleep is not in this version"]),
        ("*later:* `decide`", ["decide is there already, or is no name"]),
        ("*later:* soon", ["nothing is named"]),
        ("`poimen.nothing(...)`", ["there is no poimen.nothing(...)"]),
    ],
)
def test_what_is_not_so_is_seen(text: str, says: list[str]) -> None:
    assert wrong(text) == says
