"""One child that dies at a named point, and the fork server that makes a thousand of them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from poimen.kernel.errors import NotFound, NotStorable, StorageFailed
from poimen.log.sqlite import SqliteStore
from poimen.testing import ForkServer, Notes, Witness, child_command, crash, kill_sweep
from tests.crash import programs

PROGRAMS = "tests.crash.programs"

# ---- crash ---------------------------------------------------------------------------------------------------------


def test_crash_gives_what_the_system_says_of_the_child(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    db, witness = tmp_path / "poimen.db", Witness(tmp_path / "witness")
    order: dict[str, Any] = {"args": ("tea",), "db": db, "run_id": "r", "env": {"POIMEN_WITNESS": str(witness.path)}}
    at_most_once = "recorded_at_most_once"
    assert crash(f"{PROGRAMS}:mails", at="called", tool=at_most_once, **order) == -signal.SIGKILL
    assert len(witness) == 1
    assert crash(f"{PROGRAMS}:mails", at="called", tool=at_most_once, **order) == 4
    assert "poimen inbox show r/main/" in capfd.readouterr().err
    order["run_id"] = "r2"
    assert crash(f"{PROGRAMS}:mails", at="called", tool="another", **order) == 0
    assert len(witness) == 2


def test_a_file_can_be_the_target_and_its_errors_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(
        "import poimen\nfrom poimen import effects\n"
        "@poimen.tool(effect=effects.READ)\ndef look(x: int) -> int:\n    return 1 // x\n"
        "@poimen.workflow\nasync def shop(x: int) -> int:\n    return await look.aio(x)\n"
    )
    order: dict[str, Any] = {"tool": "look", "db": tmp_path / "poimen.db"}
    assert crash(f"{agent}:shop", at="dispatched", nth=2, args=(1,), **order) == 0
    assert crash(f"{agent}:shop", at="dispatched", nth=1, args=(1,), **order) == -signal.SIGKILL
    assert crash(f"{agent}:shop", at="committed", nth=3, args=(0,), **order) == 1
    assert "ZeroDivisionError" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("target", "at", "args", "error", "says"),
    [
        (f"{PROGRAMS}:mails", "nowhere", (), NotFound, "'nowhere' is not a crash point"),
        ("mails", "pending", (), NotFound, "names no function"),
        (f"{PROGRAMS}:", "pending", (), NotFound, "names no function"),
        (f"{PROGRAMS}:mails", "pending", (object(),), NotStorable, "args"),
    ],
)
def test_what_cannot_be_crashed_is_refused_before_a_process_is_made(
    target: str, at: str, args: tuple[object, ...], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        crash(target, at=at, tool="x", args=args)


def test_a_command_line_does_the_same(tmp_path: Path) -> None:
    witness = Witness(tmp_path / "witness")
    command = child_command(
        f"{PROGRAMS}:mails",
        args=("tea",),
        db=tmp_path / "poimen.db",
        at="dispatched:recorded_at_most_once",
        env={"POIMEN_WITNESS": str(witness.path)},
    )
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert len(witness) == 0


# ---- the fork server -----------------------------------------------------------------------------------------------


def test_a_fork_is_told_as_it_ended(server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOST", raising=False)
    output = tmp_path / "output"
    told = server.run(f"{PROGRAMS}:tell", args=("LOST",), env={"LOST": "here"}, output=output)
    assert (told.how, told.code, told.signal, told.was_killed) == ("returned", 0, 0, False)
    assert told.value == {"pid": told.value["pid"], "cwd": str(Path.cwd()), "env": "here", "now": 1}
    assert told.value["pid"] not in {os.getpid(), server.pid}
    assert output.read_text() == "hello from LOST\n"
    assert server.run(f"{PROGRAMS}:tell", args=("LOST",)).value["env"] is None, "a fork leaves nothing in the server"

    failed = server.run(f"{PROGRAMS}:fail", args=("no tea",), output=output)
    assert (failed.how, failed.code, failed.why) == ("raised", 1, "ValueError: no tea")
    assert "Traceback" in output.read_text()
    left = server.run(f"{PROGRAMS}:leave", args=(7,))
    assert (left.how, left.code, left.value) == ("gone", 7, None)
    late = server.run(f"{PROGRAMS}:never_end", patience_s=0.2)
    assert (late.how, late.signal, late.was_killed) == ("overdue", signal.SIGKILL, False)
    assert server.run(f"{PROGRAMS}:add", args=(2, 3)).value == 5


def test_forks_are_answered_in_any_order(server: ForkServer) -> None:
    forks = [server.begin(f"{PROGRAMS}:add", args=(n, n)) for n in range(20)]
    assert [fork.ended().value for fork in reversed(forks)] == [2 * n for n in reversed(range(20))]
    assert forks[3].ended().value == 6


@pytest.mark.parametrize(
    ("target", "order", "says"),
    [
        (f"{PROGRAMS}:nothing", {}, "has no 'nothing'"),
        ("tests.crash.nowhere:f", {}, "there is no module"),
        (f"{PROGRAMS}:WORD", {}, "has no 'WORD'"),
        (f"{PROGRAMS}:DISPATCHED", {}, "neither a workflow nor a function"),
        (f"{PROGRAMS}:add", {"run_id": "r"}, "db= and run_id= are for workflows"),
        (f"{PROGRAMS}:add", {"sabotage": "nothing"}, "there is no control 'nothing'"),
    ],
)
def test_a_fork_says_what_was_wrong_with_its_order(
    server: ForkServer, tmp_path: Path, target: str, order: dict[str, str], says: str
) -> None:
    ended = server.run(target, args=(1, 2), output=tmp_path / "output", **order)
    assert ended.how == "raised"
    assert says in ended.why


def test_a_server_says_that_it_cannot_load_its_targets(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('out of order')\n")
    with pytest.raises(StorageFailed, match="RuntimeError: out of order"):
        ForkServer(f"{tmp_path / 'broken.py'}:f")


def test_code_that_starts_threads_is_refused_by_name(tmp_path: Path) -> None:
    threaded = tmp_path / "threaded.py"
    threaded.write_text(
        "import threading\n"
        "threading.Thread(target=threading.Event().wait, name='heartbeat', daemon=True).start()\n"
        "def f(): return 1\n"
    )
    with ForkServer(f"{threaded}:f") as made:
        ended = made.run(f"{threaded}:f")
    assert ended.how == "gone"
    assert "threads in the fork server: heartbeat" in ended.why


def test_a_server_that_is_gone_is_told_and_leaves_no_child(tmp_path: Path) -> None:
    fifo = tmp_path / "held by the child"
    os.mkfifo(fifo)
    with ForkServer(f"{PROGRAMS}:add") as made:
        child = made.begin(f"{PROGRAMS}:never_end_holding", args=(str(fifo),))
        with fifo.open("rb", buffering=0) as witness:
            assert witness.read(4) == b"here"
            assert made.run(f"{PROGRAMS}:add", args=(1, 1)).value == 2
            os.kill(made.pid, signal.SIGKILL)
            assert select.select([witness], [], [], 20)[0], "the child outlives its server"
            assert witness.read() == b""
        with pytest.raises(StorageFailed, match="does not answer"):
            child.ended()


def test_a_sweep_takes_only_points_of_an_effect(server: ForkServer, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="'admitted' is not a crash point of an effect"):
        kill_sweep(f"{PROGRAMS}:mails", tool="x", folder=tmp_path, points=["admitted"], server=server)


def test_a_sweep_makes_its_own_server_and_counts_as_it_is_told(tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(
        "import poimen\nfrom poimen import effects\n"
        "@poimen.tool(effect=effects.AT_MOST_ONCE)\n"
        "def mail(path: str) -> str:\n"
        "    with open(path, 'ab') as far_side:\n"
        "        far_side.write(b'.')\n"
        "    return path\n"
        "@poimen.workflow\nasync def shop(path: str) -> str:\n    return await mail.aio(path)\n"
    )
    spool = "spool"
    trials = kill_sweep(
        f"{agent}:shop",
        tool="mail",
        folder=tmp_path / "trials",
        args=lambda folder: (str(folder / spool),),
        count=lambda folder: (folder / spool).stat().st_size if (folder / spool).exists() else 0,
        points=["pending", "called"],
        kills=1,
    )
    assert [(t.point, t.killed, t.before, t.after) for t in trials] == [
        ("pending", True, 0, 1),
        ("called", True, 1, 1),
    ]


def test_the_child_finds_what_its_parent_finds(tmp_path: Path) -> None:
    (tmp_path / "only_here.py").write_text("def f(): return 3\n")
    sys.path.append(str(tmp_path))
    try:
        with ForkServer("only_here:f") as made:
            assert made.run("only_here:f").value == 3
    finally:
        sys.path.remove(str(tmp_path))


# ---- at a transaction, at a time -----------------------------------------------------------------------------------


def test_a_fork_dies_around_a_transaction_and_notes_what_it_was_told(server: ForkServer, tmp_path: Path) -> None:
    order: dict[str, Any] = {"args": ("tea",), "run_id": "r", "env": {"POIMEN_WITNESS": str(tmp_path / "witness")}}
    durable = []
    for side in ("before_commit", "after_commit"):
        db, notes = tmp_path / f"{side}.db", tmp_path / f"{side}.notes"
        ended = server.run(f"{PROGRAMS}:mails", at=f"{side}::1", db=db, notes=notes, **order)
        assert ended.was_killed
        noted = Notes.of(notes)
        assert ([len(ids) for ids in noted.asked], noted.told) == ([1], ())
        durable.append(SqliteStore(db, read_only=True).head("r"))
    assert durable[0] is None
    assert durable[1] is not None
    notes = tmp_path / "whole"
    assert server.run(f"{PROGRAMS}:mails", db=tmp_path / "w.db", notes=notes, **order).value == "tea"
    head = SqliteStore(tmp_path / "w.db", read_only=True).head("r")
    assert head is not None
    assert Notes.of(notes).told[-1] == ("r", head.lsn, head.hash.hex())
    assert ("in_call", "recorded_at_most_once") in Notes.of(notes).points


def test_a_fork_is_killed_from_outside_at_a_time(server: ForkServer) -> None:
    ended = server.run(f"{PROGRAMS}:never_end", after_s=0.01)
    assert ended.was_killed
    assert server.run(f"{PROGRAMS}:add", args=(2, 3), after_s=30.0).value == 5


def test_a_called_workflow_brings_its_arguments(server: ForkServer, tmp_path: Path) -> None:
    ended = server.run(
        programs.mails(what="tea"), db=tmp_path / "db", run_id="r", env={"POIMEN_WITNESS": str(tmp_path / "witness")}
    )
    assert ended.value == "tea"
