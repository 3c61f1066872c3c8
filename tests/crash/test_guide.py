"""The guide's programs, as a reader runs them: saved under their names in one folder, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.tidy.tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = ROOT / "docs" / "guides" / "crash-testing.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"# (\w+\.py)\n")


def in_folder(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{folder}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"


def test_every_program_of_the_guide_runs(tmp_path: Path) -> None:
    blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    names = []
    for number, block in enumerate(blocks):
        named = NAME.match(block)
        name = named[1] if named else f"block_{number}.py"
        names.append(name)
        (tmp_path / name).write_text(block, encoding="utf-8")
        if name.startswith("test_"):
            in_folder(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "poimen.testing.plugin", name)
        else:
            in_folder(tmp_path, name)
    assert {"crashing.py", "wrong.py", "test_crashing.py"} <= set(names)
    assert len(names) >= 8
    in_folder(
        tmp_path,
        "-c",
        "from poimen.testing import crash; import sys;"
        "sys.exit(crash('crashing_mail.py:announce', at='called', tool='mail', args=('ann',), db='mail.db',"
        "env={'POIMEN_WITNESS': 'mails'}) != -9 or open('mails').read().count('ann') != 1)",
    )
