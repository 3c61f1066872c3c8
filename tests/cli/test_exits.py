"""Every exit code of the table that this version can reach, each by what leads to it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw
import pytest

from poimen import (
    BudgetReached,
    CodeChanged,
    CommitUnknown,
    Fenced,
    IndeterminateOutcome,
    InvariantViolated,
    PoimenError,
    RunWaiting,
    StorageFailed,
)
from poimen.cli.main import exit_code
from tests.cli.conftest import AGENT, MAIL, Cli

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
SURE = ("--why", "looked", "--confirm", MAIL)


def test_0_ok(cli: Cli) -> None:
    done = cli("run", f"{AGENT}:nothing", "--db", "db", "-q")
    assert (done.code, done.out, done.err) == (0, "null\n", "")


def test_1_the_run_ended_badly(cli: Cli) -> None:
    done = cli("run", f"{AGENT}:fails", "no luck", "--id", "f", "--db", "db")
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith("PO321 run f has failed: ValueError: no luck\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run",), "Missing argument 'TARGET'"),
        (("run", f"{AGENT}:shop"), "missing a required argument: 'order'"),
        (("run", f"{AGENT}:shop", "tea", "x"), "cents: a str does not fit int"),
        (("run", f"{AGENT}:shop", "tea", "1", "2"), "one word too many"),
        (("run", f"{AGENT}:shop", "tea", "--nope", "1"), "no parameter 'nope'"),
        (("run", f"{AGENT}:charge"), "is a tool, not a workflow"),
        (("run", str(AGENT)), f"say which workflow of {AGENT}"),
        (("run", f"{AGENT}:shop", "tea", "--id", "a/b"), "cannot be a run id"),
        (("run", f"{AGENT}:shop", "tea", "--budget", "2"), "is not in this version"),
        (("run", f"{AGENT}:shop", "--input", "{"), "--input is not JSON"),
        (("run", f"{AGENT}:shop", "--input", "@nowhere.json"), "cannot be read"),
        (("run", f"{AGENT}:shop", "tea", "--tag", "x"), "is not NAME=VALUE"),
        (("frobnicate",), "No such command"),
        (("runs", "frobnicate"), "No such command"),
        (("runs", "show"), "Missing argument"),
        (("runs", "ls", "--limit", "0"), "--limit"),
        (("runs", "show", "x", "--limit", "1"), "No such option"),
        (("worker", "m", "--queue", "q"), "is not in this version"),
        (("branches", "rewind", "tea", "--before", "x"), "comes with part 4"),
        (("runs", "retry", "tea"), "comes with part 4"),
        (("inbox", "answer", "x", "y"), "comes with part 3"),
        (("log", "tail", "-f", "--json"), "use --jsonl"),
    ],
)
def test_2_usage(cli: Cli, tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    done = cli(*words)
    assert done.code == 2, done
    assert says in done.err
    assert done.out == ""
    assert list(tmp_path.iterdir()) == [], "a line that is wrong leaves nothing behind"


def test_2_a_module_that_breaks_when_it_is_imported(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nowhere_at_all\n", encoding="utf-8")
    done = cli("run", "broken.py:go")
    assert done.code == 2
    assert "broken.py cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'" in done.err
    assert f"{tmp_path / 'broken.py'}:1" in done.err


def test_2_a_module_that_leaves_when_it_is_imported(cli: Cli, waiting: Path, tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text("import sys\n\nsys.exit(0)\n", encoding="utf-8")
    for words in (
        ("run", "leaves.py:go"),
        ("inbox", "resolve", MAIL, "--landed", "--value", '"m"', "--module", "leaves.py", *SURE),
    ):
        done = cli(*words, "--db", waiting)
        assert (done.code, done.out) == (2, ""), done
        assert f"leaves.py cannot be imported: SystemExit: 0 ({tmp_path / 'leaves.py'}:3)" in done.err
    assert cli("intents", "show", MAIL, "--json", "--db", waiting).data["resolution"] is None


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "show", "nobody"),
        ("runs", "cancel", "nobody", "--why", "x"),
        ("intents", "show", "tea-1/main/nothing#0/1/0"),
        ("inbox", "show", "nobody"),
        ("inbox", "resolve", "nobody", "--landed", "--why", "x", "--confirm", "nobody"),
        ("decisions", "settle", "nobody", "--why", "x"),
        ("log", "show", "nobody"),
        ("run", "nowhere.py:go"),
        ("run", "no_such_module_anywhere:go"),
        ("run", f"{AGENT}:nowhere"),
        ("explain", "PO999"),
    ],
)
def test_3_not_found(cli: Cli, waiting: Path, words: tuple[str, ...]) -> None:
    done = cli(*words, "--db", waiting)
    assert (done.code, done.out) == (3, ""), done
    assert done.err.startswith("PO110 ")


def test_the_page_says_which_of_both_a_target_ends_with(cli: Cli, tmp_path: Path) -> None:
    usage, not_found = (
        next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {code} | "))
        for code in (2, 3)
    )
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    for target in ("broken.py:go", f"{AGENT}:charge"):
        assert cli("run", target).code == 2
    assert "the code that was named cannot be imported or is no workflow" in usage
    for target in (f"{AGENT}:nope", "nowhere.py:go", "no_such_module_anywhere:go"):
        assert cli("run", target).code == 3
    assert "the module, the file, or the name in it that was to be run" in not_found


def test_4_an_operator_must_decide(cli: Cli, killed: Path) -> None:
    done = cli("run", f"{AGENT}:shop", "--id", "tea-1", "--db", killed)
    assert (done.code, done.out) == (4, "")
    assert f"go on: poimen --db {killed} inbox show {MAIL}\n" in done.err


@pytest.mark.parametrize(("check", "code"), [((), 0), (("--check",), 4), (("--check", "--kind", "code"), 0)])
def test_4_a_monitor_asks_whether_anything_waits(cli: Cli, waiting: Path, check: tuple[str, ...], code: int) -> None:
    assert cli("inbox", *check, "--db", waiting).code == code


def test_5_stale_lsn(cli: Cli, waiting: Path) -> None:
    done = cli("inbox", "resolve", MAIL, "--landed", "--value", '"m"', *SURE, "--expect-lsn", "13", "--db", waiting)
    assert (done.code, done.out) == (5, "")
    assert "PO108 run tea-1: intent:mail#0/1/0 has changed at LSN" in done.err
    again = f"look again, and pass the LSN that is shown now: poimen --db {waiting} inbox show {MAIL}\n"
    assert f"go on: {again}" in done.err
    tried = cli("inbox", "resolve", MAIL, "--abandon", *SURE, "--expect-lsn", "13", "--dry-run", "--db", waiting)
    assert (tried.code, again in tried.err) == (5, True)
    assert cli("intents", "show", MAIL, "--json", "--db", waiting).data["resolution"] is None


def test_5_another_resolution(cli: Cli, waiting: Path) -> None:
    assert cli("inbox", "resolve", MAIL, "--landed", "--value", '"m"', *SURE, "--db", waiting).code == 0
    done = cli("inbox", "resolve", MAIL, "--not-landed", *SURE, "--db", waiting)
    assert done.code == 5
    assert "resolved as landed by" in done.err


def test_5_the_same_id_with_other_input(cli: Cli, waiting: Path) -> None:
    done = cli("run", f"{AGENT}:shop", "coffee", "--id", "tea-1", "--db", waiting)
    assert done.code == 5
    assert "PO106 run tea-1 exists with other input" in done.err


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (("run", f"{AGENT}:shop", "coffee", "--id", "tea-1"), None),
        (("run", f"{AGENT}:pushes", "tea", "--id", "tea-1"), None),
        (("run", f"{AGENT}:shop", "--each", "-"), '{"id": "tea-1", "input": {"order": "coffee"}}'),
    ],
)
def test_5_trying_other_input_is_refused_as_doing_it(
    cli: Cli, waiting: Path, words: tuple[str, ...], stdin: str | None
) -> None:
    for dry in (("--dry-run",), ()):
        done = cli(*words, *dry, "--db", waiting, stdin=stdin)
        assert done.code == 5, done
        assert "run tea-1 exists with other input" in done.err + done.out
    assert cli("run", f"{AGENT}:shop", "tea", "--id", "tea-1", "--dry-run", "--db", waiting).code == 0


def test_5_the_same_id_with_another_workflow(cli: Cli, waiting: Path) -> None:
    done = cli("run", f"{AGENT}:pushes", "--id", "tea-1", "--db", waiting)
    assert done.code == 5, done


def test_5_resuming_what_does_not_wait(cli: Cli, killed: Path) -> None:
    done = cli("runs", "resume", "tea-1", "--why", "x", "--db", killed)
    assert done.code == 5
    assert done.err.startswith("PO114 run tea-1 does not wait: it is RUNNING\n")


def test_6_a_wrong_path_is_one_line(cli: Cli, tmp_path: Path) -> None:
    for words in (
        ("runs",),
        ("inbox",),
        ("log", "check"),
        ("db",),
        ("runs", "cancel", "x", "--why", "y"),
        ("inbox", "resolve", "x", "--landed", "--why", "y", "--confirm", "x"),
        ("db", "check", "--rebuild"),
        ("db", "backup", "copy"),
        ("decisions",),
    ):
        done = cli(*words, "--db", "nowhere/db")
        assert (done.code, done.out, done.err.count("\n")) == (6, "", 1), done
        assert "no database at" in done.err
    assert list(tmp_path.iterdir()) == []


def test_6_says_who_named_the_path(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POIMEN_DB", "nowhere/db")
    done = cli("runs")
    assert (done.code, "(POIMEN_DB in the environment)" in done.err) == (6, True)


@pytest.mark.parametrize("content", [b"", b"hello", b"SQLite format 3\0"])
def test_6_what_is_no_log(cli: Cli, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "db").write_bytes(content)
    done = cli("runs", "--db", "db")
    assert (done.code, done.err.count("\n")) == (6, 1), done
    assert (tmp_path / "db").read_bytes() == content


def test_6_closed_until_a_failed_commit_is_settled(cli: Cli, waiting: Path) -> None:
    marker = waiting.with_name("db.doubt")
    marker.write_text("{}\n", encoding="utf-8")
    done = cli("inbox", "--db", waiting)
    assert (done.code, done.err.count("\n")) == (6, 1), done
    assert "closed until a failed commit is settled" in done.err
    looked = cli("doctor", "--db", waiting)
    assert looked.code == 6
    assert "a failed commit is not settled: the next opening for writing settles it" in looked.out
    assert marker.exists()


def damage(db: Path, sql: str) -> None:
    connection = apsw.Connection(str(db))
    connection.execute(sql).fetchall()
    connection.close()


def test_7_damage_is_named_by_run_and_lsn(cli: Cli, waiting: Path) -> None:
    damage(waiting, "UPDATE record SET body = CAST(replace(CAST(body AS TEXT), 'tea', 'tee') AS BLOB) WHERE lsn = 3")
    done = cli("log", "check", "--db", waiting, "--json")
    assert done.code == 7
    assert done.data["ok"] is False
    assert ("tea-1", 3) in {(one["run_id"], one["lsn"]) for one in done.data["damages"]}
    shown = cli("log", "check", "--db", waiting)
    assert "run tea-1 LSN 3: " in shown.out
    for words in (("runs", "show", "tea-1"), ("log", "show", "tea-1"), ("inbox",)):
        reading = cli(*words, "--db", waiting)
        assert (reading.code, "PO501 record 3 of run tea-1" in reading.err) == (7, True), reading


def test_7_a_head_that_contradicts_its_records(cli: Cli, waiting: Path) -> None:
    assert cli("db", "check", "--db", waiting).code == 0
    damage(waiting, "UPDATE run SET state = 'SUCCEEDED'")
    done = cli("db", "check", "--db", waiting)
    assert (done.code, "the head says SUCCEEDED, the records WAITING" in done.out) == (7, True)
    mended = cli("db", "check", "--rebuild", "--db", waiting)
    assert (mended.code, "1 head(s) had to change" in mended.err) == (0, True), mended


def test_8_code_differs(cli: Cli, killed: Path, tmp_path: Path) -> None:
    text = AGENT.read_text(encoding="utf-8").replace("await charge(order, cents)", "await charge(order, cents + 1)")
    (tmp_path / "deployed.py").write_text(text, encoding="utf-8")
    done = cli("run", "deployed.py:shop", "--id", "tea-1", "--db", killed)
    assert done.code == 8, done
    assert "waits for the code: recorded: " in done.err
    assert (tmp_path / "witness.txt").read_text(encoding="utf-8").splitlines() == ["charge tea", "mail tea"]
    kinds = [one["kind"] for one in cli("inbox", "--json", "--db", killed).data]
    assert "code" in kinds
    shown = cli("runs", "show", "tea-1", "--json", "--db", killed).data
    assert [w["reason"] for w in shown["waiting"]] == ["code"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RunWaiting("", reason="budget"), 9),
        (BudgetReached(""), 9),
        (RunWaiting("", reason="code"), 8),
        (CodeChanged(""), 8),
        (RunWaiting("", reason="human"), 4),
        (IndeterminateOutcome(""), 4),
        (InvariantViolated(""), 1),
        (StorageFailed("the database is locked"), 6),
        (CommitUnknown(""), 6),
        (Fenced(""), 6),
    ],
)
def test_what_cannot_be_reached_here_has_its_code_too(error: PoimenError, code: int) -> None:
    assert exit_code(error) == code


def test_explain_says_by_what_a_wait_ends(cli: Cli) -> None:
    said = cli("explain", "PO330")
    assert "the command line ends with 4, with 8 where it waits for code, with 9 where it waits for budget" in said.out
    assert cli("explain", "PO330", "--json").data["exit_by_reason"] == {"code": 8, "budget": 9}
    assert cli("explain", "PO321").out.endswith("\nthe command line ends with 1\n")


def test_a_database_that_is_not_there_is_what_the_errors_say(cli: Cli) -> None:
    done = cli("runs", "--db", "nowhere")
    assert (done.code, done.err.partition(" ")[0]) == (6, "PO403")
    assert "not there" in cli("explain", "PO403").out
    assert "No run, intent or decision of this name" in cli("explain", "PO110").out


def test_1_a_run_that_has_failed_says_how_it_is_done_again(cli: Cli) -> None:
    done = cli("run", f"{AGENT}:fails", "no", "--id", "f", "--db", "db")
    assert (done.code, "to do it again, start it under a new id" in done.err) == (1, True), done
    shown = cli("runs", "show", "f", "--db", "db").out
    assert "again       poimen --db db run FILE_OR_MODULE:fails ARGS --id NEW_ID\n" in shown
    cli("run", f"{AGENT}:nasty", "x", "true", "--id", "n", "--db", "db")
    assert (
        "NEW_ID; it makes its effects anew, and 1 below may have changed the world\n"
        in cli("runs", "show", "n", "--db", "db").out
    )
