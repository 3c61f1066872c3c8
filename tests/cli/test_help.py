"""Help costs next to nothing, and the reference page has every command and every option."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import click
import pytest

from poimen.cli.frame.declaring import GlobalOption, Noun
from poimen.cli.main import _EXITS, COMMANDS, LATER, root
from tests.cli.conftest import Cli, child, environment
from tests.tidy.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE: Final = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
MOST_S: Final = 0.150
HEAVY: Final = frozenset(
    {"apsw", "asyncio", "msgspec", "rich", "sqlite3", "poimen.engine", "poimen.log", "poimen.declare"}
)


def imported(*words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if "|" in line}


@pytest.mark.parametrize("words", [("-m", "poimen", "--help"), ("-m", "poimen", "--version"), ("-c", "import poimen")])
def test_nothing_heavy_is_imported(words: tuple[str, ...]) -> None:
    names = imported(*words)
    assert "poimen" in names
    assert sorted(name for name in names if name in HEAVY or name.startswith(("poimen.engine.", "rich."))) == []


def test_help_costs_little() -> None:
    spent = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "poimen", "--help"], env=environment(), stdout=subprocess.DEVNULL, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < MOST_S, spent


def test_help_lists_sections_later_names_and_exits(cli: Cli) -> None:
    text = cli("--help").out
    assert [name for section in COMMANDS.values() for name in section if f"\n  {name} " not in text] == []
    assert "with part 3: lint metrics queues" in text
    assert "130 interrupted" in text
    assert (cli().code, cli().out) == (0, text)
    assert cli("demo").out == cli("demo", "--help").out


# ---- the reference page ----------------------------------------------------------------------------------------


def commands(group: click.Group, path: str = "poimen") -> Iterator[tuple[str, click.Command]]:
    ctx = click.Context(group)
    names = group.list_commands(ctx)
    for name in names:
        found = group.get_command(ctx, name)
        assert found is not None
        yield f"{path} {name}", found
        if isinstance(found, click.Group):
            yield from commands(found, f"{path} {name}")


EVERY: Final = list(commands(root))


def section(path: str) -> str:
    """What the page says of a command: from its heading to the next one."""
    found = re.search(rf"(?ms)^###? `{re.escape(path)}(?: [^`]*)?`$(.*?)(?=^##|\Z)", PAGE)
    return found[1] if found else ""


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[path for path, _ in EVERY])
def test_every_command_and_option_is_on_the_page(path: str, command: click.Command) -> None:
    text = section(path)
    assert text, f"docs/reference/cli.md has no heading for {path}"
    for param in command.params:
        if isinstance(param, click.Option) and not isinstance(param, GlobalOption):
            for name in param.opts:
                assert f"`{name}" in text, f"{path} {name}"
        elif isinstance(param, click.Argument):
            heading = re.search(rf"(?m)^###? `({re.escape(path)} [^`]*)`$", PAGE)
            assert heading is not None and (param.name or "").upper() in heading[1], f"{path}: {param.name}"


def test_the_page_has_no_command_that_is_not_there() -> None:
    headings = re.findall(r"(?m)^###? `(poimen[^`]*)`$", PAGE)
    known = {path for path, _ in EVERY}
    assert [h for h in headings if not any(h == path or h.startswith(f"{path} ") for path in known)] == []


def test_global_options_later_names_and_exits_are_on_the_page() -> None:
    for param in root.params:
        for name in param.opts:
            assert f"`{name}" in PAGE, name
    nouns = [(path, command) for path, command in EVERY if isinstance(command, Noun)]
    for name in [*LATER, *(verb for _, noun in nouns for verb in noun.later)]:
        assert re.search(rf"`(?:[a-z]+ )?{name}`", PAGE), name
    for code in {0, 1, 2, 130, *_EXITS.values()}:
        assert re.search(rf"(?m)^\| {code} \|", PAGE), code


def test_a_process_of_its_own_prints_help(tmp_path: Path) -> None:
    done = child("--help", cwd=tmp_path)
    assert (done.code, done.err, done.out.startswith("Usage: poimen ")) == (0, "", True)
