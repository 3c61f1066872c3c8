"""A decision page has a number of its own, a title, and says context, decision and cost."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

import pytest

from tests.tidy.tree import ROOT

PAGES: Final = sorted((ROOT / "docs" / "decisions").glob("*.md"))
HEADINGS: Final = ["Context", "Decision", "Cost"]


def test_numbers_are_unique() -> None:
    assert len(PAGES) > 1
    numbers = Counter(page.name[:4] for page in PAGES)
    assert [number for number, n in numbers.items() if n > 1] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_says_context_decision_and_cost(page) -> None:
    text = page.read_text(encoding="utf-8")
    number, _, slug = page.stem.partition("-")
    assert re.fullmatch(r"\d{4}", number)
    assert re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", slug)
    assert re.match(rf"# 0*{int(number)}[.:]? \S", text)
    headings = re.findall(r"(?m)^## (.+)$", text)
    assert [heading for heading in headings if heading in HEADINGS] == HEADINGS
