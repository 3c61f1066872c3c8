"""What surrounds a command fails: streams, folders, words that are no text. One line, the right exit, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import AGENT, MAIL, TIMEOUT_S, Cli, Said, child, environment
from tests.log.stores import edited

DEEP = "[" * 100_000
SURE = ("--why", "looked", "--confirm", MAIL)


def in_shell(line: str, *words: str | Path, cwd: Path, **env: str) -> Said:
    """Run `poimen WORDS` in a line of the shell, where it is `"$@"`."""
    done = subprocess.run(
        ["/bin/sh", "-c", line, "sh", sys.executable, "-m", "poimen", *map(str, words)],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Said(code=done.returncode, out=done.stdout, err=done.stderr)


# ---- streams ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_nothing_to_fail_over(waiting: Path, closed: str) -> None:
    before = waiting.read_bytes()
    for words, code in (
        (("inbox",), 0),
        (("runs", "show", "nobody"), 3),
        (("run", f"{AGENT}:nothing", "--id", "n"), 0),
    ):
        done = in_shell(f'"$@" {closed}', *words, "--db", waiting, cwd=waiting.parent)
        assert (done.code, "Traceback" in done.err) == (code, False), done
    assert waiting.read_bytes()[:16] == before[:16], "nothing was printed into the database"
    assert child("log", "check", "--db", waiting, cwd=waiting.parent).code == 0


def test_a_full_disk_under_the_output_is_not_the_end_of_the_run(tmp_path: Path) -> None:
    done = in_shell('"$@" >/dev/full', "run", f"{AGENT}:nothing", "--id", "n", "--db", "db", cwd=tmp_path)
    assert (done.code, done.err.count("\n")) == (6, 1), done
    assert "PO403 the output cannot be written: No space left on device · what was done is done" in done.err
    assert "SUCCEEDED" in child("runs", "show", "n", "--db", "db", cwd=tmp_path).out
    asked = in_shell('"$@" >/dev/full', "runs", "--json", "--db", "db", cwd=tmp_path)
    assert (asked.code, asked.error["code"]) == (6, "PO403"), asked
    help_text = in_shell('"$@" >/dev/full', "--help", cwd=tmp_path)
    assert (help_text.code, help_text.err.count("\n")) == (6, 1), help_text
    silent = in_shell('"$@" 2>/dev/full', "runs", "show", "nobody", "--db", "db", cwd=tmp_path)
    assert silent.code == 3


def test_a_reader_that_has_seen_enough_ends_it_without_a_word(waiting: Path) -> None:
    done = in_shell('"$@" | head -n 1', "log", "show", "tea-1", "--content", "--db", waiting, cwd=waiting.parent)
    assert (done.code, done.err) == (0, ""), done


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("runs", "ls"), 7),
        (("runs", "ls", "--jsonl"), 7),
        (("log", "check"), 7),
        (("db", "check", "--json"), 7),
        (("inbox", "--check"), 7),
    ],
)
def test_a_reader_that_is_gone_takes_nothing_from_the_exit_code(
    waiting: Path, words: tuple[str, ...], code: int
) -> None:
    edited(waiting, "UPDATE record SET body = CAST('{}' AS BLOB) WHERE lsn = 3")
    done = unread(*words, "--db", waiting)
    assert (done.returncode, b"Traceback" in done.stderr) == (code, False), done


def test_nor_from_that_of_a_monitor(waiting: Path) -> None:
    assert unread("inbox", "--check", "--db", waiting).returncode == 4
    assert unread("inbox", "--db", waiting).returncode == 0


def unread(*words: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command whose output is a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "poimen", *map(str, words)]
    try:
        return subprocess.run(
            command, stdout=writer, stderr=subprocess.PIPE, env=environment(), timeout=TIMEOUT_S, check=False
        )
    finally:
        os.close(writer)


# ---- folders and files -----------------------------------------------------------------------------------------


LOOKS = [("doctor",), ("db", "info"), ("runs",)]


@pytest.mark.parametrize("place", ["loop", "x" * 300, "y/" * 3000 + "db", "file/db"])
@pytest.mark.parametrize("words", [*LOOKS, ("run", f"{AGENT}:nothing", "-q"), ("runs", "cancel", "x", "--why", "y")])
def test_a_place_that_cannot_be_looked_at_is_told(cli: Cli, tmp_path: Path, place: str, words: tuple[str, ...]) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    done = cli(*words, "--db", tmp_path / place)
    assert (done.code, done.err.count("\n")) == (6, 1), done


NOBODY = """
import encodings.unicode_escape, importlib.metadata, os, sys
importlib.metadata.version("msgspec")
import poimen.cli.doctor, poimen.cli.log, poimen.cli.runs, poimen.log.sqlite
from poimen.cli.main import main
poimen.cli.doctor.not_built()  # imports what the interpreter may hide from nobody
if os.getuid() == 0:  # to whom nothing is locked
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
main()
"""


@pytest.mark.parametrize("words", LOOKS)
def test_a_folder_that_may_not_be_looked_into_is_told(tmp_path: Path, words: tuple[str, ...]) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0)
    command = [sys.executable, "-c", NOBODY, *words, "--db", str(locked / "db")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    locked.chmod(0o700)
    assert (done.returncode, done.stderr.count("\n")) == (6, 1), done.stderr
    assert "PO403" in done.stderr


def test_a_folder_that_was_removed(waiting: Path) -> None:
    gone = waiting.parent / "gone"
    gone.mkdir()
    line = f"rmdir '{gone}'; exec \"$@\""
    named = in_shell(line, "runs", "--db", waiting, cwd=gone)
    assert (named.code, "tea-1" in named.out) == (0, True), named
    gone.mkdir()
    assert in_shell(line, "doctor", "--db", waiting, cwd=gone).code == 0
    gone.mkdir()
    done = in_shell(line, "runs", cwd=gone)
    assert (done.code, done.err.count("\n")) == (6, 1), done
    assert "the folder here was removed" in done.err


def test_a_name_that_no_file_can_have(cli: Cli, waiting: Path) -> None:
    done = cli("db", "backup", "x" * 100_000, "--db", waiting)
    assert (done.code, done.err.count("\n")) == (6, 1), done
    assert "File name too long" in done.err
    assert len(done.err) < 1000


# ---- words -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "show", "\udcff\udcfe"),
        ("inbox", "show", "\udcff"),
        ("intents", "show", "\udcff/main/a#0/1/0"),
        ("decisions", "settle", "\udcff", "--why", "x"),
        ("log", "show", "\udcff"),
        ("runs", "--after", "\udcff"),
        ("run", f"{AGENT}:shop", "tea", "--id", "\udcff"),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_word_that_is_no_text_is_told(cli: Cli, waiting: Path, words: tuple[str, ...], form: tuple[str, ...]) -> None:
    before = waiting.read_bytes()
    done = cli(*words, *form, "--db", waiting)
    assert (done.code in {2, 3}, done.out) == (True, ""), done
    assert not form or done.error["title"]
    assert waiting.read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [
        ("log", "tail", "--limit", "9" * 20),
        ("log", "tail", "--after", "9" * 20),
        ("log", "show", "tea-1", "--after", "9" * 20),
        ("runs", "--limit", "9" * 20),
        ("inbox", "resolve", MAIL, "--abandon", "--expect-lsn", "-5", *SURE),
        ("inbox", "resolve", MAIL, "--landed", "--value", DEEP, *SURE),
        ("run", f"{AGENT}:shop", "--input", DEEP),
    ],
)
def test_a_number_or_a_nest_that_is_too_much_is_told(cli: Cli, waiting: Path, words: tuple[str, ...]) -> None:
    done = cli(*words, "--db", waiting)
    assert (done.code, done.out) == (2, ""), done
    assert len(done.err) < 1000


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (DEEP, "--each, line 1 is not JSON: it is nested too deep"),
        ('{"id": "a", "input": {"order": "x"}, "tags": [1]}', "line 1: tags are an object of texts"),
        ('{"id": "a", "input": {"order": "x"}, "tags": "ab"}', "line 1: tags are an object of texts"),
    ],
)
def test_a_line_of_many_that_is_wrong_is_told(cli: Cli, tmp_path: Path, line: str, says: str) -> None:
    done = cli("run", f"{AGENT}:shop", "--each", "-", "--db", "db", stdin=line)
    assert (done.code, says in done.err) == (2, True), done
    assert list(tmp_path.iterdir()) == []


# ---- settings of a file ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "db"),
    [
        ("POIMEN_DB=runs.db", "runs.db"),
        ("POIMEN_DB=runs.db  # where the runs are", "runs.db"),
        ("POIMEN_DB = runs.db\t# here", "runs.db"),
        ("POIMEN_DB='a # b.db' # here", "a # b.db"),
        ('export POIMEN_DB="runs.db"', "runs.db"),
        ("POIMEN_DB=a#b.db", "a#b.db"),
        ("\ufeffPOIMEN_DB=runs.db", "runs.db"),
        ("POIMEN_DB=    # none", ".poimen/poimen.db"),
    ],
)
def test_a_line_of_settings(tmp_path: Path, line: str, db: str) -> None:
    (tmp_path / ".env").write_text(f"{line}\n# a comment\n", encoding="utf-8")
    done = child("doctor", "--env-file", ".env", "--json", cwd=tmp_path)
    assert Path(json.loads(done.out)["data"]["database"]["path"]) == tmp_path / db, done


def test_a_line_of_settings_that_no_environment_holds(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1\nB=a\0b\n", encoding="utf-8")
    done = cli("runs", "--env-file", ".env")
    assert (done.code, "--env-file .env, line 2 is not NAME=value" in done.err) == (2, True)


def test_the_command_to_go_on_with_reads_the_same_settings(killed: Path) -> None:
    folder = killed.parent
    (folder / "my settings").write_text("POIMEN_DB=db\n", encoding="utf-8")
    done = child("run", f"{AGENT}:shop", "--id", "tea-1", "--env-file", "my settings", cwd=folder)
    assert done.code == 4, done
    assert "poimen --env-file 'my settings' inbox " in done.err
    shown = child("inbox", "show", "tea-1", "--env-file", "my settings", cwd=folder)
    assert f"poimen --env-file 'my settings' inbox resolve {MAIL} --abandon" in shown.out


def test_a_crash_point_that_does_not_exist_is_refused(waiting: Path) -> None:
    for point in ("nonsense", "nonsense:x", "called:mail:0", "called:mail:x"):
        done = child("runs", "--db", waiting, cwd=waiting.parent, POIMEN_CRASH=point)
        assert (done.code, done.out, done.err.count("\n")) == (6, "", 1), done
        assert "crash" in done.err


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('dbb = "x"', "[tool.poimen] has no key 'dbb' · there are db and secrets"),
        ('db = "a\\u0000b"', "cannot be a path"),
    ],
)
def test_a_setting_of_the_project_that_cannot_be_used_is_refused(
    cli: Cli, tmp_path: Path, table: str, says: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.poimen]\n{table}\n", encoding="utf-8")
    done = cli("runs")
    assert (done.code, done.err.count("\n"), says in done.err) == (6, 1, True), done


def test_a_backup_goes_where_a_database_of_that_name_would_be(cli: Cli, waiting: Path, tmp_path: Path) -> None:
    for form in ((), ("--dry-run",)):
        done = cli("db", "backup", "memory:", *form, "--db", waiting)
        assert (done.code, "a backup is a file" in done.err) == (2, True), done
        taken = cli("db", "backup", waiting, *form, "--db", waiting)
        assert (taken.code, f"{waiting} exists" in taken.err) == (6, True), taken
        nowhere = cli("db", "backup", "copy", *form, "--db", "nowhere")
        assert (nowhere.code, "no database at" in nowhere.err) == (6, True), nowhere
    assert cli("db", "backup", "sqlite:///copy.db", "--db", waiting).code == 0
    assert cli("log", "check", "--db", tmp_path / "copy.db").code == 0
    assert not {"sqlite:", "memory:"} & {path.name for path in tmp_path.iterdir()}


# ---- what is said ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "show", "x" * 100_000),
        ("inbox", "claim", "x" * 100_000),
        ("decisions", "settle", "x" * 100_000, "--why", "y"),
        ("run", f"{AGENT}:typed", "a", "x" * 100_000),
        ("run", f"{AGENT}:typed", f"--{'x' * 100_000}"),
        ("run", f"{AGENT}:{'x' * 100_000}"),
        ("frobnicate" * 10_000,),
    ],
)
def test_what_was_given_is_not_said_again_at_length(cli: Cli, waiting: Path, words: tuple[str, ...]) -> None:
    for form in ((), ("--json",)):
        done = cli(*words, *form, "--db", waiting)
        assert done.code in {2, 3}, done.code
        assert len(done.err) < 2500, done.err[:2500]


def test_a_number_that_is_too_large_is_said_to_be_no_int(cli: Cli) -> None:
    done = cli("run", f"{AGENT}:typed", "a", "1e999")
    assert (done.code, "usage: number: a str does not fit int\n" in done.err) == (2, True), done


HALF = """
import poimen


@poimen.workflow
def half() -> str:
    return chr(0xD800)
"""


def test_a_result_that_utf8_cannot_say_is_printed_as_the_text_that_it_is(cli: Cli) -> None:
    Path("half.py").write_text(HALF, encoding="utf-8")
    shown = cli("run", "half.py", "--id", "a", "--db", "db")
    assert (shown.code, shown.out) == (0, "<U+D800>\n"), shown
    assert cli("run", "half.py", "--id", "a", "--json", "--db", "db").data["result"] == "\ud800"


def test_beside_json_nothing_is_said(cli: Cli, waiting: Path) -> None:
    for words in (("inbox",), ("inbox", "--check"), ("runs", "cancel", "tea", "--why", "x"), ("doctor",)):
        done = cli(*words, "--json", "-v", "--db", waiting)
        assert (done.code in {0, 4}, done.err) == (True, ""), done
    assert cli("run", f"{AGENT}:nothing", "--json", "--db", "db").err == ""


def test_of_a_damaged_database_json_says_one_line(waiting: Path) -> None:
    content = bytearray(waiting.read_bytes())
    content[4096:] = bytes(byte ^ 0xFF for byte in content[4096:])
    waiting.write_bytes(content)
    for form in ("--json", "--jsonl"):
        done = child("runs", form, "--db", waiting, cwd=waiting.parent)
        assert (done.code in {6, 7}, done.err.count("\n")) == (True, 1), done
        assert done.error["title"]


def test_a_line_end_in_a_path_does_not_end_the_line(cli: Cli) -> None:
    done = cli("runs", "--db", "a\nb  c.db")
    assert (done.code, done.err.count("\n"), "a b  c.db" in done.err) == (6, 1, True), done
