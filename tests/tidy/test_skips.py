"""A missing tool is a failure: only what CONTRIBUTING.md names may skip."""

from __future__ import annotations

import re
from typing import Final

from tests.tidy.tree import texts

SKIPS: Final = re.compile(r"(?:pytest|mark)\.(?:skip|skipif|importorskip|xfail)\b|\bSkipTest\b|\bunittest\.skip")
MAY: Final = {
    "tests/log/test_sqlite_files.py": 1,  # a bind mount, where the system does not let us make one
    "tests/declare/test_values_calls.py": 1,  # the syntax of Python 3.12
}


def test_nothing_skips_but_what_may() -> None:
    ours = {name: text for name, text in texts().items() if name.startswith("tests/") and name.endswith(".py")}
    found = {name: len(SKIPS.findall(text)) for name, text in ours.items() if name != "tests/tidy/test_skips.py"}
    assert {name: times for name, times in found.items() if times} == MAY
