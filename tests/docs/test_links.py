"""Pages lead somewhere: links and anchors exist, every page can be reached, every name is that of something."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections import deque
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import poimen
from tests.docs.pages import ROOT, SRC, Block, Page, page, pages

ARCHITECTURE: Final = page(ROOT / "ARCHITECTURE.md")
ONE_EFFECT: Final = page(ROOT / "docs" / "explanation" / "one-effect.md")
REPLAY: Final = page(ROOT / "docs" / "explanation" / "replay.md")
MOST_LINES: Final = 800

# ---- links -----------------------------------------------------------------------------------------------------


def _target(of: Page, link: str) -> tuple[Path, str]:
    """Where a link leads: a path, and an anchor in it."""
    path, _, anchor = link.partition("#")
    return ((of.path.parent / path).resolve() if path else of.path), anchor


def _dead(of: Page, link: str) -> str:
    target, anchor = _target(of, link)
    if not target.exists() or not target.is_relative_to(ROOT):
        return f"{of.name}: there is no {link}"
    if anchor and (target.suffix != ".md" or anchor not in page(target).anchors):
        return f"{of.name}: {target.name} has no heading #{anchor}"
    return ""


def _relative(of: Page) -> list[str]:
    return [link for _, link in of.links if not re.match(r"[a-z]+:", link)]


def test_links_lead_somewhere() -> None:
    links = [(of, link) for of in pages() for link in _relative(of)]
    assert len(links) > len(pages())
    assert [found for of, link in links if (found := _dead(of, link))] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    waiting, seen = deque([ROOT / "README.md"]), set[Path]()
    while waiting:
        path = waiting.popleft()
        if path in seen:
            continue
        seen.add(path)
        if path.is_dir():
            waiting += path.glob("*.md")
        elif path.suffix == ".md":
            waiting += [_target(page(path), link)[0] for link in _relative(page(path))]
    assert [of.name for of in pages() if of.path not in seen] == []


@pytest.mark.parametrize(
    ("link", "dead"),
    [
        ("README.md#five-minutes", False),
        ("README.md#ten-minutes", True),
        ("docs/glossary.md", False),
        ("docs/nothing.md", True),
        ("docs/decisions/", False),
        ("../outside.md", True),
        ("#one-page", True),
    ],
)
def test_dead_links_are_seen(link: str, *, dead: bool) -> None:
    assert bool(_dead(ARCHITECTURE, link)) is dead


# ---- names -----------------------------------------------------------------------------------------------------


@cache
def names(path: Path) -> frozenset[str]:
    """What a module defines: functions, classes, their members, and values."""
    found: set[str] = set()

    def look(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                look(node.body, f"{prefix}{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            found.update(prefix + each.id for each in targets if isinstance(each, ast.Name))

    look(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return frozenset(found)


@cache
def every_name() -> frozenset[str]:
    """All of them, and the last part of each."""
    found = {name for path in SRC.rglob("*.py") for name in names(path)}
    return frozenset(found | {name.rpartition(".")[2] for name in found})


def _exists(code: str, of: Page) -> bool:
    """Whether what stands in backticks is a path, or a name of the source."""
    if code.startswith("poimen.") and "/" not in code:
        return hasattr(poimen, code.split(".")[1].partition("(")[0])
    if "/" in code or code.endswith((".py", ".md", ".toml")):
        return any((base / code).exists() for base in (SRC, ROOT, of.path.parent))
    return code.removesuffix("()") in every_name()


TOOLS: Final = frozenset({"lint-imports"})
"""Programs that these pages name."""


@pytest.mark.parametrize("of", [ARCHITECTURE, ONE_EFFECT], ids=["architecture", "one effect"])
def test_names_in_backticks_exist(of: Page) -> None:
    codes = [(line, code) for line, code in of.codes if code not in TOOLS and not code.startswith("poimen ")]
    assert codes
    assert [f"{of.name}:{line}: {code}" for line, code in codes if not _exists(code, of)] == []


@pytest.mark.parametrize("of", [ONE_EFFECT, REPLAY], ids=["one effect", "replay"])
def test_paths_in_backticks_exist(of: Page) -> None:
    paths = [(line, code) for line, code in of.codes if re.fullmatch(r"[\w/.]+\.py", code)]
    assert paths
    assert [f"{of.name}:{line}: {code}" for line, code in paths if not (SRC / code).is_file()] == []


def test_names_are_where_the_text_says() -> None:
    text = "\n".join(line for _, line in ONE_EFFECT.prose)
    said = [(name, path) for name, path in re.findall(r"`([\w.]+)`\s+in\s+`([\w/]+\.py)`", text)]
    said += [(name, path) for path, name in re.findall(r"`([\w/]+\.py)` \| `(\w+)`:", text)]
    assert len(said) > 3
    assert [(name, path) for name, path in said if name not in names(SRC / path)] == []


def test_names_in_the_drawing_are_where_it_says() -> None:
    drawing = ONE_EFFECT.blocks[0]
    column = [found for line in drawing.lines for found in re.findall(r"([\w/]+\.py)\s+([\w.]+)$", line)]
    assert len(column) > 10
    assert [f"{path} {name}" for path, name in column if name not in names(SRC / path)] == []
    camel = {name for block in ONE_EFFECT.blocks for name in re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", block.text)}
    orders = {
        name
        for line in drawing.lines
        for name in re.findall(r", then ([A-Z]+)|, (\w+)\) says", line)
        for name in name
        if name
    }
    assert {"IntentPending", "AttemptSucceeded"} <= camel
    assert {"CALL", "CLOSE", "Claim", "Send", "Answer"} == orders
    assert (camel | orders) - every_name() == set()


# ---- the rooms -------------------------------------------------------------------------------------------------

_ROW: Final = re.compile(r"( +)([\w.]+/?(?:, [\w.]+/?)*)(?: {2,}.*)?")


def _rooms(drawing: Block) -> dict[Path, set[str]]:
    """What a drawing of folders names, by folder: a row belongs to the last folder that stands further to the left."""
    above: list[tuple[int, Path]] = [(0, SRC)]
    found: dict[Path, set[str]] = {SRC: set(re.findall(r"\w+\.py", drawing.lines[0]))}
    for line in drawing.lines[1:]:
        row = _ROW.fullmatch(line)
        if row is None:
            continue
        depth = len(row[1])
        above = [each for each in above if each[0] < depth]
        folder = above[-1][1]
        for name in row[2].split(", "):
            found.setdefault(folder, set()).add(name)
            if name.endswith("/"):
                above.append((depth, folder / name))
    return found


def _is_there(folder: Path, name: str) -> bool:
    if name.endswith("/"):
        return (folder / name / "__init__.py").is_file()
    return (folder / name).is_file() or (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()


def _contents(folder: Path) -> set[str]:
    inside = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    return {path.stem for path in inside if path.name != "__init__.py" or folder == SRC}


def test_rooms_of_the_architecture_are_those_of_the_source() -> None:
    rooms = _rooms(ARCHITECTURE.blocks[0])
    assert {SRC, SRC / "gate", SRC / "kernel", SRC / "engine" / "driving"} <= set(rooms)
    assert [
        f"{folder.name}/{name}" for folder, inside in rooms.items() for name in inside if not _is_there(folder, name)
    ] == []
    left_out = {
        folder.name: missing
        for folder, inside in rooms.items()
        if (missing := _contents(folder) - {name.removesuffix("/").removesuffix(".py") for name in inside})
    }
    assert left_out == {}


def test_rooms_are_read() -> None:
    drawing = Block(
        info="",
        line=1,
        lines=(" you   effects.py", " gate/   the door", "    guard, port   four steps", "    │ obeys", " log/"),
    )
    assert _rooms(drawing) == {SRC: {"effects.py", "gate/", "log/"}, SRC / "gate": {"guard", "port"}}
    assert not _is_there(SRC, "gates/")
    assert not _is_there(SRC / "gate", "guards")


# ---- the path of one effect --------------------------------------------------------------------------------------

PROFILED: Final = """
import json, sys, threading
from datetime import timedelta
from pathlib import Path
import poimen
from poimen import effects

@poimen.tool(effect=effects.KEYED(ttl=timedelta(hours=24)))
async def charge(order: str, cents: int) -> str:
    return poimen.request_id()

@poimen.workflow
async def shop(order: str) -> str:
    return await charge(order, 4200)

home = Path(poimen.__file__).parent.as_posix() + "/"
ran, on = set(), False

def watch(frame, event, _arg):
    global on
    code = frame.f_code
    if not code.co_filename.startswith(home):
        return
    name = code.co_qualname
    if event == "call":
        on = on or name == "Guard.perform"
        if on and "<" not in name:
            ran.add((code.co_filename.removeprefix(home), name))
    elif event == "return" and on and name == "Hands._tell":
        sys.setprofile(None)

threading.setprofile(watch)
sys.setprofile(watch)
assert poimen.run(shop("tea"), db="log/poimen.db")
threading.setprofile(None)
sys.setprofile(None)
print(json.dumps(sorted(ran)))
"""


@cache
def on_the_path() -> dict[str, list[str]]:
    """The table of the page: by file, the functions and records that lie on the path."""
    rows = [re.fullmatch(r"\| `([\w/]+\.py)` \| ((?:`[\w.]+` ?)+) \|", line) for _, line in ONE_EFFECT.prose]
    return {row[1]: re.findall(r"`([\w.]+)`", row[2]) for row in rows if row}


def beside_the_path() -> list[str]:
    """The files and folders that the page says can be taken on trust."""
    rows = [
        line for _, line in ONE_EFFECT.prose if re.match(r"\| `[\w/]+(?:\.py|/)`(?:, `|\s\| [^`]|\s\| `\w+`:)", line)
    ]
    return [path for line in rows for path in re.findall(r"`([\w/]+(?:\.py|/))`", line.split("|")[1])]


def lengths(path: Path) -> dict[str, int]:
    """The lines of each function and class of a module, from its first decorator to its end."""
    found: dict[str, int] = {}

    def look(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                found[prefix + node.name] = (node.end_lineno or 0) - first + 1
            if isinstance(node, ast.ClassDef):
                look(node.body, f"{prefix}{node.name}.")

    look(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return found


def test_the_path_of_one_effect_fits_in_a_sitting() -> None:
    table = on_the_path()
    assert {"gate/guard.py", "kernel/plan.py", "log/writer.py", "log/sqlite.py"} <= set(table)
    assert [
        f"{path} {name}" for path, inside in table.items() for name in inside if name not in lengths(SRC / path)
    ] == []
    total = sum(lengths(SRC / path)[name] for path, inside in table.items() for name in inside)
    text = "\n".join(line for _, line in ONE_EFFECT.prose)
    (said,) = re.findall(r"(\d+) lines of functions", text)
    assert int(said) == total, f"{ONE_EFFECT.name}: it is {total} lines"
    assert total <= MOST_LINES


def ran_each_time(folder: Path, times: int = 3) -> dict[str, set[str]]:
    """By module: the functions that run for one effect each time; a slow machine may add what looks after time."""
    script = folder / "one_effect.py"
    script.write_text(PROFILED, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POIMEN_")}
    found: list[set[tuple[str, str]]] = []
    for _ in range(times):
        done = subprocess.run(
            [sys.executable, script], check=False, capture_output=True, text=True, cwd=folder, env=kept, timeout=60
        )
        assert done.returncode == 0, done.stderr
        found.append({(path, name) for path, name in json.loads(done.stdout)})
    ran: dict[str, set[str]] = {}
    for path, name in set.intersection(*found):
        ran.setdefault(path, set()).add(name)
    return ran


def test_the_path_leaves_nothing_out(tmp_path: Path) -> None:
    ran = ran_each_time(tmp_path)
    table, beside = on_the_path(), beside_the_path()
    assert len(beside) > len(table)
    assert {path: gone for path in table if (gone := ran.get(path, set()) - set(table[path]))} == {}, (
        "it ran, and is not named"
    )
    idle = {
        path: left
        for path, inside in table.items()
        if (left := {name for name in inside if "." in name or name[0].islower()} - ran.get(path, set()))
    }
    assert idle == {}, "it is named, and did not run"
    assert [
        path for path in ran if path not in table and path != "__init__.py" and not path.startswith(tuple(beside))
    ] == []
