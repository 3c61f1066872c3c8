"""The log, the database, the doctor, the long form of errors, and the two demonstrations."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import apsw
import pytest

from poimen import later
from poimen.cli.main import COMMANDS, LATER
from poimen.engine import reading
from poimen.log.memory import MemoryStore
from poimen.log.opening import open_store
from tests.cli.conftest import AGENT, MAIL, Cli, child, environment
from tests.tidy.tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path

REPRODUCED: Final = """\
{
  "safe_after_timeout": [
    {
      "decision": "retry-with-smaller-batch",
      "decision_id": "contact-3",
      "event": "intent"
    }
  ],
  "unsafe_after_timeout": []
}
"""
"""As the requirement prints it."""

# ---- log and database ------------------------------------------------------------------------------------------


def test_the_log_of_a_run_is_a_line_a_record(cli: Cli, waiting: Path) -> None:
    lines = cli("log", "show", "tea", "--db", waiting).out.splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(1, 18))
    kinds = [line[33:].split()[0] for line in lines]
    assert kinds[:3] == ["RunAdmitted", "BranchStarted", "DecisionRecorded"]
    assert lines[0].endswith("shop by tester")
    assert "rule at-most-once: indeterminate" in lines[14]
    records = cli("log", "show", "tea", "--json", "--content", "--db", waiting).data
    assert {"lsn", "at", "kind", "tag", "run_id", "branch", "subject", "epoch", "record_id", "hash", "body"} == set(
        records[0]
    )
    assert records[0]["body"]["args"] == {"cents": 4200, "order": "tea"}
    assert records[0]["body"]["deadline_at"] is None, "what was left out as a default is there"
    assert cli("log", "show", "tea", "--after", "x", "--db", waiting).code == 2


def test_a_record_of_a_newer_version_is_shown_as_it_is(cli: Cli, waiting: Path) -> None:
    from poimen import clock
    from poimen.log.api import Batch, NewRecord

    store = open_store(str(waiting))
    record = NewRecord(
        raw_id=clock.record_id(), branch="main", kind="moon.phase.v7", subject="moon", body=b'{"full":true}', at=0
    )
    store.commit([Batch(run="tea-1", records=(record,))])
    store.close()
    shown = cli("log", "show", "tea", "--json", "--db", waiting).data[-1]
    assert (shown["kind"], shown["body"]) == ("moon.phase.v7", {"full": True})
    assert "moon.phase.v7" in cli("log", "show", "tea", "--db", waiting).out
    assert cli("log", "check", "--db", waiting).code == 7, "it cannot be folded here"


def test_the_tail_of_all_runs(cli: Cli, waiting: Path) -> None:
    assert cli("run", f"{AGENT}:nothing", "--id", "t", "--db", waiting).code == 0
    newest = cli("log", "tail", "--limit", "2", "--json", "--db", waiting).envelope
    assert [(one["pos"], one["run_id"], one["kind"]) for one in newest["data"]] == [
        (20, "t", "BranchVerifying"),
        (21, "t", "BranchEnded"),
    ]
    assert newest["truncated"] is False
    after = cli("log", "tail", "--after", "17", "--limit", "2", "--json", "--db", waiting).envelope
    assert ([one["pos"] for one in after["data"]], after["truncated"], after["next"]) == ([18, 19], True, 19)
    assert cli("log", "--db", waiting).out.count("\n") == 20


def test_the_end_of_the_feed_is_found(cli: Cli, tmp_path: Path) -> None:
    assert reading.feed_end(MemoryStore()) == 0

    class Far(MemoryStore):
        def __init__(self, end: int) -> None:
            super().__init__()
            self.end = end

        def feed(self, after: int = 0, *, limit: int = 1000) -> list[Any]:
            return [object()] if after < self.end else []

    for end in (1, 2, 1023, 1024, 1025, 4097, 5_000_000):
        assert reading.feed_end(Far(end)) == end


def test_a_whole_log_is_said_to_be_whole(cli: Cli, killed: Path) -> None:
    done = cli("log", "check", "--db", killed)
    assert (done.code, done.out) == (0, "whole: 1 runs, 11 records\n")
    assert cli("db", "check", "--json", "--db", killed).data == {"ok": True, "runs": 1, "records": 11, "damages": []}


def test_the_database_says_what_it_is(cli: Cli, killed: Path) -> None:
    data = cli("db", "--json", "--db", killed).data
    assert (data["path"], data["source"], data["exists"]) == (str(killed), "--db", True)
    assert data["sqlite"] == apsw.sqlite_lib_version()
    assert (data["bytes"], data["wal_bytes"]) == (killed.stat().st_size, killed.with_name("db-wal").stat().st_size)
    assert (data["runs"], data["records"]) == ({"RUNNING": 1}, 11)


def test_a_backup_is_a_whole_copy(cli: Cli, waiting: Path, tmp_path: Path) -> None:
    done = cli("db", "backup", "copies/copy.db", "--json", "--db", waiting)
    copy = tmp_path / "copies" / "copy.db"
    assert (done.code, done.data["bytes"]) == (0, copy.stat().st_size), done
    assert cli("log", "check", "--db", copy).code == 0
    assert cli("runs", "show", "tea", "--json", "--db", copy).data["lsn"] == 17
    again = cli("db", "backup", "copies/copy.db", "--db", waiting)
    assert (again.code, "exists" in again.err) == (6, True)


# ---- the doctor ------------------------------------------------------------------------------------------------


def test_the_doctor_lists_what_does_not_move_and_what_moves_it(cli: Cli, killed: Path) -> None:
    done = cli("doctor", "--db", killed)
    assert done.code == 0
    for said in (
        f"database  {killed} (--db)",
        "run tea-1  RUNNING  shop",
        "no live worker drives it",
        f"poimen --db {killed} run FILE_OR_MODULE:shop --id tea-1",
        "owed decisions\n          tea-1/order, LSN 3",
        f"{MAIL}  AT_MOST_ONCE, 1 sent",
        "1 run(s) do not move",
        "1 decision(s) are owed: poimen",
    ):
        assert said in done.out, said
    data = cli("doctor", "--json", "--db", killed).data
    assert {
        "database",
        "versions",
        "by",
        "clock",
        "runs",
        "owed",
        "open_intents",
        "asking",
        "contradicted",
        "inbox",
        "not_built",
        "findings",
    } == set(data)
    assert (data["clock"]["ahead_s"], data["clock"]["went_back_s"], data["inbox"]) == (0.0, 0.0, 0)


def test_the_doctor_has_nothing_to_say_of_runs_that_ended(cli: Cli) -> None:
    assert cli("run", f"{AGENT}:shop", "tea", "--db", "db").code == 0
    assert "nothing is wrong, nothing waits" in cli("doctor", "--db", "db").out


def test_a_clock_that_is_wrong_is_told(cli: Cli, killed: Path) -> None:
    from poimen import clock

    class Behind(clock.Source):
        def wall_us(self) -> int:
            return super().wall_us() - 7200 * clock.US

    old = clock.use(Behind())
    try:
        ahead = cli("doctor", "--json", "--db", killed).data
        assert cli("runs", "cancel", "tea", "--why", "x", "--db", killed).code == 0
    finally:
        clock.use(old)
    assert 6000 < ahead["clock"]["ahead_s"] < 7300
    assert any("ahead of the clock" in said for said in ahead["findings"])
    back = cli("doctor", "--json", "--db", killed).data
    assert 6000 < back["clock"]["went_back_s"] < 7300
    assert any("the clock went back by" in said for said in back["findings"])


@pytest.mark.parametrize(
    ("given", "env", "project", "source"),
    [
        (("--db", "given"), "env", "", "--db"),
        ((), "env", "[tool.poimen]\ndb = 'project'\n", "POIMEN_DB in the environment"),
        ((), "", "[tool.poimen]\ndb = 'project'\n", "[tool.poimen] db in "),
        ((), "", "[project]\n", "new, beside "),
        ((), "", "", "new, in "),
    ],
)
def test_the_doctor_says_which_setting_won(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, given: Any, env: str, project: str, source: str
) -> None:
    if env:
        monkeypatch.setenv("POIMEN_DB", env)
    if project:
        (tmp_path / "pyproject.toml").write_text(project, encoding="utf-8")
    found = cli("doctor", "--json", *given).data["database"]
    assert found["source"].startswith(source)


def test_the_doctor_lists_what_is_not_built_by_part(cli: Cli) -> None:
    listed = cli("doctor", "--json").data["not_built"]
    for name, part in {**later.PARTS, **LATER}.items():
        assert {f"poimen.{name}", f"`poimen {name}`"} & set(listed[str(part)]), name
    assert "`poimen runs retry`" in listed["4"]
    assert "`poimen inbox answer`" in listed["3"]


# ---- words and demonstrations ----------------------------------------------------------------------------------


def test_every_documented_error_can_be_explained(cli: Cli) -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    codes = re.findall(r"(?m)^### (PO\d{3}) (\w+)", page)
    assert len(codes) > 30
    for code, name in codes:
        said = cli("explain", code, "--json").data
        assert (said["code"], said["name"]) == (code, name)
        assert said["text"].splitlines()[0] in page
    assert cli("explain", "108").out == cli("explain", "conflict").out == cli("explain", "po108").out
    assert "the command line ends with 5" in cli("explain", "PO108").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete(cli: Cli, shell: str) -> None:
    done = cli("completion", shell)
    assert (done.code, "_POIMEN_COMPLETE" in done.out) == (0, True)


def test_reproduce_prints_the_requirement_byte_for_byte(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "poimen", "reproduce"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, REPRODUCED.encode(), b"")
    assert list(tmp_path.iterdir()) == []


def test_demo_crash_shows_both_windows(tmp_path: Path) -> None:
    done = child("demo", "crash", "--json", cwd=tmp_path)
    assert done.code == 0, done
    data = json.loads(done.out)["data"]
    assert (data["ok"], data["wrong"]) == (True, [])
    assert [(one["tool"], one["state"], one["classification"], one["witness"]) for one in data["seen"]] == [
        ("charge", "pending", None, 0),
        ("charge", "committed", "never_sent", 1),
        ("mail", "dispatched", None, 1),
        ("mail", "dispatched", "may_have_been_sent", 1),
        ("mail", "committed", "may_have_been_sent", 1),
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_demonstration_that_shows_something_else_ends_badly(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from poimen.cli import demo

    class Stage(demo.Stage):
        def act(self, title: str, *words: str, ends: int, crash: str = "") -> str:
            return ""

        def look(self, tool: str, *, witness: int, says: str | None) -> dict[str, Any]:
            self.wrong.append(f"{tool}: something else")
            return {"id": "x"}

    monkeypatch.setattr(demo, "Stage", Stage)
    done = cli("demo", "crash")
    assert (done.code, "UNEXPECTED charge: something else" in done.out) == (1, True)


def test_bench_without_the_repository_says_where_it_is(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import poimen

    monkeypatch.setattr(poimen, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    done = cli("bench", "--quick")
    assert (done.code, "make bench" in done.err) == (3, True)
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "run.py").write_text("import sys\nsys.exit(len(sys.argv))\n", encoding="utf-8")
    assert cli("bench", "--quick", "--json", "x").code == 4, "it gets all its words"


def test_every_name_in_the_help_leads_somewhere(cli: Cli) -> None:
    for name in (name for section in COMMANDS.values() for name in section):
        assert cli(name, "--help").code == 0, name
