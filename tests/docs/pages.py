"""Reads the documentation: its pages, their blocks of code, the commands of a console, headings and links.

How a page is written:

- A ```python block whose first line is a comment with a file's name (`# shop.py`) is that file. The others of a page
  are one program, in the order of the page.
- In a ```console block a line that begins with `$ ` is a command; what follows is what it prints, `...` standing for
  anything, on a line of its own for any lines. `Killed` says that it dies by SIGKILL. A comment that says `exit 4`
  names the exit code; without one it is 0.
- A word in capitals (`INTENT`) is for the reader to fill in: such a command is not run, and its options are looked up.
- `no-run` behind the language (```python no-run) keeps a block from being run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SRC: Final = ROOT / "src" / "poimen"

_FENCE: Final = re.compile(r"(```+)([^`]*)")
_NAMED: Final = re.compile(r"# ([\w/]+\.py)")
_HEADING: Final = re.compile(r"#{1,6} (.*)")
_LINK: Final = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_CODE: Final = re.compile(r"`([^`]+)`")
_COMMENT: Final = re.compile(r"\s+# .*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block. `line` is that of its first line of code, from 1."""

    info: str
    line: int
    lines: tuple[str, ...]

    @property
    def language(self) -> str:
        """The first word after the fence."""
        return self.info.partition(" ")[0]

    @property
    def runs(self) -> bool:
        """Whether it is to be run."""
        return "no-run" not in self.info.split()

    @property
    def file(self) -> str:
        """The file that it is, by its first line; empty when it is none."""
        named = _NAMED.fullmatch(self.lines[0]) if self.lines else None
        return named[1] if named else ""

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.lines) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of a console, and what the page says that it prints."""

    line: int
    said: str
    shown: tuple[str, ...]

    @property
    def text(self) -> str:
        """The command without the comment behind it."""
        return _COMMENT.sub("", self.said)

    @property
    def killed(self) -> bool:
        """Whether the page says that it dies."""
        return "Killed" in self.shown

    @property
    def exit(self) -> int:
        """The exit code that the page names."""
        named = re.search(r"\s# .*\bexit (\d+)", self.said)
        return int(named[1]) if named else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page."""

    path: Path
    blocks: tuple[Block, ...]
    prose: tuple[tuple[int, str], ...]

    @property
    def name(self) -> str:
        """Its path from the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def links(self) -> list[tuple[int, str]]:
        """The targets of its links, each with its line."""
        bare = [(number, _CODE.sub("", line)) for number, line in self.prose]
        return [(number, target) for number, line in bare for target in _LINK.findall(line)]

    @property
    def codes(self) -> list[tuple[int, str]]:
        """What stands in backticks in its text, each with its line."""
        return [(number, code.replace(r"\|", "|")) for number, line in self.prose for code in _CODE.findall(line)]

    @property
    def anchors(self) -> set[str]:
        """What `#…` may name: its headings, as GitHub spells them."""
        found: list[str] = []
        for _, line in self.prose:
            heading = _HEADING.fullmatch(line)
            if heading is not None:
                slug = re.sub(r"[^\w\- ]", "", heading[1].lower()).strip().replace(" ", "-")
                found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
        return set(found)

    def of(self, language: str) -> list[Block]:
        """Its blocks in a language."""
        return [block for block in self.blocks if block.language == language]


@cache
def page(path: Path) -> Page:
    """Read one page."""
    blocks: list[Block] = []
    prose: list[tuple[int, str]] = []
    fence, info, begun, inside = "", "", 0, list[str]()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        opened = _FENCE.fullmatch(line)
        if fence and line == fence:
            blocks.append(Block(info=info, line=begun, lines=tuple(inside)))
            fence, inside = "", []
        elif fence:
            inside.append(line)
        elif opened:
            fence, info, begun = opened[1], opened[2].strip(), number + 1
        else:
            prose.append((number, line))
    assert not fence, f"{path}: the fence before line {begun} is not closed"
    return Page(path=path, blocks=tuple(blocks), prose=tuple(prose))


@cache
def pages() -> tuple[Page, ...]:
    """Every page of the repository."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/README.md")]
    return tuple(page(path) for path in sorted(found))


def commands(block: Block) -> list[Command]:
    """The commands of a console."""
    found: list[Command] = []
    said, shown, begun = "", list[str](), 0
    for number, line in enumerate([*block.lines, "$ "], block.line):
        if said.endswith("\\") and not shown:
            said = said[:-1] + line.strip()
        elif line.startswith("$ "):
            if said:
                found.append(Command(line=begun, said=said, shown=tuple(shown)))
            said, shown, begun = line[2:], [], number
        else:
            shown.append(line)
    return found
