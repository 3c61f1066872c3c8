"""What a page shows is what happens: its programs run, its commands print what it says, its kills kill."""

from __future__ import annotations

import ast
import builtins
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.consoles import Shell, can_run, complaint, every_option, first_missing, parts, unknown_words
from tests.docs.pages import ROOT, commands, pages

if TYPE_CHECKING:
    from tests.docs.pages import Block, Command, Page

TIMEOUT_S = 60
MOST_NO_RUN = 4

LANGUAGES = frozenset({"", "python", "console", "json", "toml", "sql", "text"})
TARGETS = frozenset(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))


def _names(of: list[Page]) -> list[str]:
    return [page.name for page in of]


def _shown(page: Page) -> list[Command]:
    return [command for block in page.of("console") for command in commands(block)]


def _run_by_console(page: Page, block: Block) -> bool:
    """Whether a command of the page runs this file, so that it need not be run a second time."""
    words = [words for command in _shown(page) for words in parts(command.text)]
    return any(each[:2] == ["python", block.file] for each in words)


# ---- programs --------------------------------------------------------------------------------------------------

WITH_PYTHON = [page for page in pages() if page.of("python")]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=_names(WITH_PYTHON))
def test_programs_compile(page: Page) -> None:
    for block in page.of("python"):
        compile("\n" * (block.line - 1) + block.text, page.name, "exec", dont_inherit=True)


@pytest.mark.parametrize("page", WITH_PYTHON, ids=_names(WITH_PYTHON))
def test_programs_run(page: Page, tmp_path: Path) -> None:
    script = [""] * page.blocks[-1].line
    for block in page.of("python"):
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
            if block.runs and not _run_by_console(page, block):
                _run(block.file, tmp_path, page)
        elif block.runs:
            # Each line stands where it stands on the page, so that a traceback names the page's own lines.
            script[block.line - 1 :] = [*block.lines, *[""] * page.blocks[-1].line]
    if any(script):
        (tmp_path / "of_the_page.py").write_text("\n".join(script), encoding="utf-8")
        _run("of_the_page.py", tmp_path, page)


def test_a_page_can_be_followed_from_its_top_to_its_end(tmp_path: Path) -> None:
    (page,) = (page for page in pages() if page.name == "docs/guides/long-lived-agent.md")
    (tmp_path / "page").mkdir()
    shell = Shell(tmp_path / "page")
    for block in page.blocks:
        if block.file:
            (shell.folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python" and block.runs:
            (shell.folder / "other.py").write_text(block.text, encoding="utf-8")
            code, printed = shell.run("python other.py")
            assert code == 0, f"{page.name}:{block.line} ended with exit {code}\n{printed}"
        for command in commands(block) if block.language == "console" and block.runs else []:
            wrong = complaint(command, *shell.run(command.text))
            assert not wrong, f"{page.name}:{command.line}: $ {command.text}\n{wrong}"


def unbound(text: str) -> list[str]:
    """Names that a program uses and nowhere gives a meaning to."""
    bound, used = set(dir(builtins)) | {"__name__"}, set[str]()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias(name=name, asname=other):
                bound.add(other or name.partition(".")[0])
            case _:
                pass
    return sorted(used - bound)


@pytest.mark.parametrize("page", WITH_PYTHON, ids=_names(WITH_PYTHON))
def test_each_program_is_whole(page: Page) -> None:
    assert [f"{page.name}:{block.line}: {name}" for block in page.of("python") for name in unbound(block.text)] == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import os.path as p, sys.path\nprint(p, sys, [x for x in y])", ["y"]),
        ("@poimen.step\ndef f(a, *b, **c):\n    return a, b, c, g", ["g", "poimen"]),
        ("try:\n    pass\nexcept E as e:\n    print(e)", ["E"]),
        ("with open('x') as f:\n    (a, b), c = f\nprint(a, b, c, d)", ["d"]),
    ],
)
def test_a_name_without_a_meaning_is_seen(text: str, names: list[str]) -> None:
    assert unbound(text) == names


def _run(file: str, folder: Path, page: Page) -> None:
    code, printed = Shell(folder).run(f"python {file}")
    assert code == 0, f"{page.name}: {file} ended with exit {code}\n{printed}"


# ---- commands --------------------------------------------------------------------------------------------------

WITH_CONSOLE = [page for page in pages() if page.of("console")]


@pytest.mark.parametrize("page", WITH_CONSOLE, ids=_names(WITH_CONSOLE))
def test_consoles_print_what_they_show(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    shell = Shell(folder)
    for block in page.blocks:
        if block.file:
            (shell.folder / block.file).write_text(block.text, encoding="utf-8")
        for command in commands(block) if block.language == "console" and block.runs else []:
            if can_run(command.text):
                wrong = complaint(command, *shell.run(command.text))
                assert not wrong, f"{page.name}:{command.line}: $ {command.text}\n{wrong}"


def test_every_command_of_poimen_is_known() -> None:
    said = [(page, command.line, command.text) for page in pages() for command in _shown(page)]
    said += [(page, line, _spoken(code)) for page in pages() for line, code in page.codes if code.startswith("poimen ")]
    assert len(said) > len(WITH_CONSOLE)
    wrong = [
        f"{page.name}:{line}: {word} of {text}"
        for page, line, text in said
        for each in text.split(" · ")
        for words in parts(each)
        if words[0] == "poimen"
        for word in unknown_words(words)
    ]
    assert wrong == []


def _spoken(code: str) -> str:
    """A command in running text: bars stand between alternatives there, not between programs."""
    return code.replace("|", " ")


def test_every_option_in_the_text_is_known() -> None:
    of_docs = [page for page in pages() if page.name.startswith(("README", "docs/"))]
    codes = [(page, line, re.split("[ =]", code)[0]) for page in of_docs for line, code in page.codes]
    options = [each for each in codes if each[2].startswith("--")]
    assert len(options) > 10
    known = every_option() | {"--name", "--no-name"}  # stand for an argument of a workflow
    assert [f"{page.name}:{line}: {option}" for page, line, option in options if option not in known] == []


def test_every_target_of_make_exists() -> None:
    lines = [(page, line) for page in pages() for block in page.blocks for line in block.lines]
    lines += [(page, code) for page in pages() for _, code in page.codes]
    named = [(page.name, text) for page, line in lines for text in re.findall(r"^(?:\$ )?make ([a-z-]+)", line)]
    assert ("README.md", "run") in named
    assert [where for where in named if where[1] not in TARGETS] == []


# ---- how pages are written ---------------------------------------------------------------------------------------


def test_every_block_says_its_language() -> None:
    odd = [f"{p.name}:{b.line}: {b.info}" for p in pages() for b in p.blocks if b.language not in LANGUAGES]
    assert odd == []


def test_few_blocks_are_not_run() -> None:
    marked = [f"{p.name}:{b.line}" for p in pages() for b in p.blocks if not b.runs]
    assert len(marked) <= MOST_NO_RUN, marked


def test_the_readme_is_two_screens() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110


# ---- the harness sees ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "printed", "missing"),
    [
        (["charged 4200"], ["charged 4200"], None),
        (["charged 4200"], ["charged 420"], "charged 4200"),
        (["charged 4200"], ["it charged 4200"], "charged 4200"),
        (["a", "b"], ["b", "a"], "b"),
        (["a", "...", "c"], ["a", "b", "c"], None),
        (["5  ...  Pending"], ["    5  2024-06-01 10:00Z  Pending"], None),
        (["5  ...  Pending"], ["    5  2024-06-01 10:00Z  Dispatched"], "5  ...  Pending"),
        (["a (b)"], ["a b"], "a (b)"),
        ([], ["whatever"], None),
    ],
)
def test_what_is_shown_is_compared(shown: list[str], printed: list[str], missing: str | None) -> None:
    assert first_missing(shown, printed) == missing


@pytest.mark.parametrize(
    ("console", "wrong"),
    [
        ("$ python -c 'import os; os.kill(os.getpid(), 9)'\nKilled", ""),
        ("$ python -c 'import os; os.kill(os.getpid(), 9)'", "it was killed"),
        ("$ python -c 1\nKilled", "it was not killed"),
        ("$ python -c 'raise SystemExit(4)'", "exit 4, the page says 0"),
        ("$ python -c 'raise SystemExit(4)'    # exit 4: as it should", ""),
        ("$ echo one \\\n    two\none two", ""),
    ],
)
def test_how_a_command_ends_is_compared(console: str, wrong: str, tmp_path: Path) -> None:
    from tests.docs.pages import Block

    block = Block(info="console", line=1, lines=tuple(console.splitlines()))
    (command,) = commands(block)
    said = complaint(command, *Shell(tmp_path).run(command.text))
    assert said.startswith(wrong) if wrong else said == ""


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("poimen inbox resolve ID --landed --why x --by y", []),
        ("poimen inbox resolve ID --hope", ["--hope"]),
        ("poimen imbox ls", ["imbox"]),
        ("poimen --json runs --limit 3", []),
        ("poimen branches rewind RUN --before ID", []),
    ],
)
def test_unknown_words_are_seen(text: str, unknown: list[str]) -> None:
    assert list(unknown_words(shlex.split(text))) == unknown


def test_a_fresh_process_has_this_poimen() -> None:
    said = subprocess.run(
        [Path(sys.executable).parent / "poimen", "--version"], check=True, capture_output=True, text=True
    )
    assert said.stdout.startswith("poimen ")
