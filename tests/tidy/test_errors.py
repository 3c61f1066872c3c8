"""Every error has one code and a long form whose first line is its title, and the reference page says the same."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from poimen.cli.demo import known_errors
from tools import errors_page

if TYPE_CHECKING:
    from poimen.kernel.errors import PoimenError

errors_page.import_everything()
CLASSES = errors_page.error_classes()

LONG_FORM = 40


def test_codes_are_unique() -> None:
    codes = Counter(cls.code for cls in CLASSES)
    assert {code: n for code, n in codes.items() if n > 1} == {}
    assert list(known_errors()) == [cls.code for cls in CLASSES]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_is_documented(cls: type[PoimenError]) -> None:
    own = cls.__dict__
    assert re.fullmatch(r"PO\d{3}", own["code"])
    assert own["code"][2] in errors_page.GROUPS
    assert cls.title()
    assert len(inspect.cleandoc(own["__doc__"])) >= LONG_FORM


def test_the_page_is_current() -> None:
    assert errors_page.PAGE.read_text(encoding="utf-8") == errors_page.render(CLASSES), "run: make docs"
