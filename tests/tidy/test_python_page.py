"""The page about the Python interface: current, with each public name one time, and each setting in a table."""

from __future__ import annotations

import importlib
import inspect
from collections import Counter
from typing import Any

import pytest

import poimen
from poimen.later import PARTS
from tools import python_page
from tools.docstrings import cell, read_doc, value_of
from tools.python_sections import INTERNAL, SECTIONS

TEXT = python_page.PAGE.read_text(encoding="utf-8") if python_page.PAGE.exists() else ""
MODULES = ("effects", "ledger", "testing")
ELSEWHERE = {"effects", "testing", "Absent", "Landed", "Unknown"}
"""Names of `poimen` that the page has under that of their module."""


def public() -> set[str]:
    names = set(poimen.__all__) - ELSEWHERE
    for module in MODULES:
        names |= {f"{module}.{name}" for name in importlib.import_module(f"poimen.{module}").__all__}
    return names


def test_the_page_is_current() -> None:
    assert python_page.render() == TEXT, "run: make docs"


def test_every_public_name_is_described_one_time() -> None:
    named = Counter(python_page.named())
    assert [name for name, n in named.items() if n > 1] == []
    assert sorted(public() - set(named)) == []
    assert sorted(set(named) - public()) == []


def test_what_is_kept_from_the_page_exists() -> None:
    for name in INTERNAL:
        owner, _, own = name.rpartition(".")
        assert hasattr(python_page.found(owner), own), name


def described() -> list[tuple[str, Any]]:
    """Every function and method that the page has a heading for."""
    found: list[tuple[str, Any]] = []
    for name in [name for section in SECTIONS for name in section.names]:
        thing = python_page.found(name)
        if inspect.isroutine(thing):
            found.append((name, thing))
        if isinstance(thing, type):
            own = [key for key in vars(thing) if not key.startswith("_") and inspect.isroutine(getattr(thing, key))]
            methods = [f"{name}.{key}" for key in own if f"{name}.{key}" not in INTERNAL | set(PARTS)]
            found += [(path, python_page.found(path)) for path in methods]
    return found


@pytest.mark.parametrize(("name", "thing"), described(), ids=[name for name, _ in described()])
def test_what_must_be_given_is_described(name: str, thing: Any) -> None:
    doc = read_doc(thing)
    method = name.count(".") > ("." in name and name.partition(".")[0] in MODULES) and not inspect.ismethod(thing)
    rows = python_page.arguments(thing, method=method)
    plain = [row for row in rows if row.kind not in python_page.STARS]
    needed = [row.name for row in plain if not row.default]
    assert [row for row in needed if row not in doc.arguments] == []
    if doc.arguments:
        assert [row.name for row in plain if row.name not in doc.arguments] == [], "some are described, these are not"


@pytest.mark.parametrize("name", ["tool", "model", "step", "workflow", "AsyncTool.options", "Client.start", "Runtime"])
def test_every_setting_stands_in_a_table_with_its_default(name: str) -> None:
    part = TEXT.partition(f" {name}\n\n")[2].partition("\n##")[0]
    own = inspect.signature(python_page.found(name)).parameters.values()
    settings = [parameter for parameter in own if parameter.kind is parameter.KEYWORD_ONLY]
    assert settings
    for setting in settings:
        (row,) = [line for line in part.splitlines() if line.startswith(f"| `{setting.name}` |")]
        default = row.replace(r"\|", "/").split(" | ")[2]
        wanted = {"needed"} if setting.default is setting.empty else {f"`{setting.default!r}`"}
        wanted |= {"left out"} if setting.default is ... else set()
        assert default in wanted


def test_what_comes_later_stands_apart() -> None:
    now, _, later = TEXT.partition("## Comes in a later version")
    for name in PARTS:
        assert f"\n| `{name}` |" in later
        assert f"# {name}\n" not in now
    for decorator, setting in (("workflow", "budget"), ("step", "timeout"), ("Client.start", "queue")):
        part = now.partition(f" {decorator}\n\n")[2].partition("\n##")[0]
        (row,) = [line for line in part.splitlines() if line.startswith(f"| `{setting}` |")]
        assert "in a later version" in row


def sample(first: int, *rest: str, second: str = "a|b") -> None:
    """Do it.

    More of it.

    Arguments:
        first, rest: numbers
            of two lines.
        second: a text.

    Raises:
        ValueError, TypeError: it is odd.

    Source: nowhere.
    """


def test_docstrings_are_read() -> None:
    doc = read_doc(sample)
    assert doc.text == "Do it.\n\nMore of it."
    assert doc.arguments == {"first": "numbers of two lines.", "rest": "numbers of two lines.", "second": "a text."}
    assert doc.raises == [("ValueError, TypeError", "it is odd.")]
    rows = python_page.arguments(sample)
    assert [row.name for row in rows] == ["first", "rest", "second"]
    assert python_page.signature("sample", rows) == "```text\nsample(first, *rest, second='a|b')\n```\n"
    table = python_page.table(rows, doc, "sample").splitlines()
    assert table[2] == "| `first` | `int` | needed | numbers of two lines. |"
    assert table[4] == r"| `second` | `str` | `'a\|b'` | a text. |"
    assert cell("a\n  b") == "a b"


def test_values_are_found_where_they_are_defined() -> None:
    assert value_of("poimen", "Seconds") == ("float | timedelta", "A length of time: seconds, or a timedelta.")
    with pytest.raises(LookupError):
        value_of("poimen.effects", "NOTHING")
