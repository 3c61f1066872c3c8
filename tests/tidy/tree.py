"""The files of this repository as the rules see them: text, without what targets and tools have made."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
SRC: Final = ROOT / "src" / "poimen"

_MADE: Final = frozenset({"build", "dist", "node_modules", "__pycache__"})
_NOT_OURS: Final = frozenset({"LICENSE"})


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_symlink():
            continue
        if path.is_dir():
            hidden = path.name.startswith(".") and path.name != ".ci"
            if not hidden and path.name not in _MADE and not path.name.endswith(".egg-info"):
                yield from _walk(path)
        elif path.name not in _NOT_OURS:
            yield path


@cache
def texts() -> dict[str, str]:
    """Every text file of the repository: its path from the root, and what it says."""
    found: dict[str, str] = {}
    for path in _walk(ROOT):
        raw = path.read_bytes()
        if b"\0" not in raw:
            found[path.relative_to(ROOT).as_posix()] = raw.decode("utf-8")
    return found


def texts_under(*tops: str) -> dict[str, str]:
    """The text files below these folders (`src/`), or with exactly these names."""
    return {name: text for name, text in texts().items() if name.startswith(tops)}


@cache
def modules(top: str = "src/") -> dict[str, ast.Module]:
    """Every Python file below a folder, parsed."""
    return {
        name: ast.parse(text, filename=name)
        for name, text in texts_under(top).items()
        if name.endswith((".py", ".pyi"))
    }


def line_of(text: str, position: int) -> int:
    """The number of the line that holds this position."""
    return text.count("\n", 0, position) + 1
