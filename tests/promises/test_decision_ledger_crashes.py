"""Promise 1 under real crashes: SIGKILL, two processes, forks, and a disk that fails.

Each crash is a child process. What the child has reached is told through its pipe, what it asked of the
kernel is told by strace, and `sched_yield` marks the stretch of a trace that a test is about.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, NamedTuple

import pytest

import poimen.ledger
from poimen.kernel.errors import StorageFailed
from poimen.ledger import DecisionLedger

if TYPE_CHECKING:
    from collections.abc import Iterator

PRELUDE = """
import os, sys
from poimen.kernel.errors import CommitUnknown, StorageFailed
from poimen.ledger import DecisionLedger

path, mark = sys.argv[1], os.sched_yield

def reached(word="ready"):
    os.write(1, word.encode() + b"\\n")

def until_killed():
    os.read(0, 1)

def refused(call, *args):
    try:
        call(*args)
    except StorageFailed:
        return True
    return False

def ends(kind, call, *args):
    try:
        call(*args)
    except kind as error:
        return error
    sys.exit(f"{call} did not raise {kind}")
"""
FILL = """
ledger = DecisionLedger(path)
for n in range(3):
    ledger.record_intent(f"done-{n}", "x" * 40)
    ledger.record_commit(f"done-{n}")
    ledger.record_intent(f"owed-{n}", n)
"""
OWED = {"owed-0": 0, "owed-1": 1, "owed-2": 2}
TRACED = (
    "openat,unlinkat,renameat,renameat2,write,pwrite64,ftruncate,fsync,fdatasync,flock,fchmod,fchown,close,sched_yield"
)


class Call(NamedTuple):
    """One system call of a trace: its name, its arguments with paths, its result."""

    name: str
    args: str
    result: str


def command(code: str, file: Path) -> list[str]:
    return [sys.executable, "-c", PRELUDE + dedent(code), str(file)]


def environment() -> dict[str, str]:
    source = Path(poimen.ledger.__file__).parents[2]
    return {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def child(code: str, file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child that has reached its word; gone when the block ends."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command(code, file), stdin=pipe, stdout=pipe, env=environment()) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def killed(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def traced(code: str, file: Path, *options: str) -> tuple[int, list[Call]]:
    """Run a child under strace to its end; its exit code and its system calls."""
    trace = file.with_name("trace")
    strace = ["strace", "-f", "-qq", "-y", "-s", "200", "-o", str(trace), "-e", f"trace={TRACED}", *options]
    done = subprocess.run(
        [*strace, *command(code, file)], env=environment(), capture_output=True, check=False, timeout=60
    )
    assert done.returncode in (0, 128 + signal.SIGKILL, -signal.SIGKILL), done.stderr.decode()
    calls = re.findall(r"^\d+\s+(\w+)\((.*?)\)?\s+= (.*)$", trace.read_text("utf-8", "replace"), re.MULTILINE)
    return done.returncode, [Call(*parts) for parts in calls]


def stretches(calls: list[Call]) -> list[list[Call]]:
    """What lies between one mark and the next."""
    found: list[list[Call]] = [[]]
    for call in calls:
        if call.name == "sched_yield":
            found.append([])
        else:
            found[-1].append(call)
    return found[1:-1]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


# ---- kills -------------------------------------------------------------------------------------------------


def test_a_process_killed_right_after_record_intent_keeps_its_line(file: Path) -> None:
    code = """
        ledger = DecisionLedger(path)
        ledger.record_intent("contact-3", "retry-with-smaller-batch")
        reached()
        until_killed()
        ledger.record_commit("contact-3")
    """
    with child(code, file) as process:
        killed(process)
    with DecisionLedger(file) as ledger:
        assert ledger.recovered == 0
        assert ledger.pending() == {"contact-3": "retry-with-smaller-batch"}


def test_control_a_process_that_writes_after_it_waited_loses_its_line(file: Path) -> None:
    code = """
        ledger = DecisionLedger(path)
        reached()
        until_killed()
        ledger.record_intent("contact-3", "retry-with-smaller-batch")
    """
    with child(code, file) as process:
        killed(process)
    assert DecisionLedger.read(file).events() == []


def kill_at_each_call(code: str, file: Path) -> Iterator[Call]:
    """Kill a child on entering each system call between its two marks; yields the call, the file as it was left."""
    file.unlink(missing_ok=True)
    plain, calls = traced(code, file)
    assert plain == 0
    first, last = (index for index, call in enumerate(calls) if call.name == "sched_yield")
    assert last - first > 1
    for index in range(first + 1, last):
        name = calls[index].name
        nth = sum(1 for call in calls[: index + 1] if call.name == name)
        file.unlink()
        ended, seen = traced(code, file, "-e", f"inject={name}:signal=SIGKILL:when={nth}")
        assert ended != 0
        assert [call.name for call in seen[: index + 1]] == [call.name for call in calls[: index + 1]]
        yield calls[index]


def test_killed_at_any_system_call_of_an_append_the_line_is_whole_or_absent(file: Path) -> None:
    code = FILL + "mark(); ledger.record_intent('last', 1); mark()"
    kept = {call.name: "last" in DecisionLedger.read(file) for call in kill_at_each_call(code, file)}
    assert kept == {"write": False, "fsync": True}


def test_killed_at_any_system_call_of_a_compaction_one_of_the_two_files_is_whole(file: Path) -> None:
    code = FILL + "mark(); ledger.compact(); mark()"
    assert traced(FILL, file)[0] == 0
    old = file.read_bytes()
    file.unlink()
    assert traced(code, file)[0] == 0
    new = file.read_bytes()
    assert old != new
    left = []
    for call in kill_at_each_call(code, file):
        left.append((call.name, "old" if file.read_bytes() == old else "new"))
        assert file.read_bytes() in (old, new)
        with DecisionLedger(file) as ledger:
            assert ledger.recovered == 0
            assert ledger.pending() == OWED
            ledger.record_commit("owed-0")
        assert sorted(path.name for path in file.parent.iterdir()) == [file.name, "trace"]
        assert list(DecisionLedger.read(file).pending()) == ["owed-1", "owed-2"]
    renames = [index for index, (name, _) in enumerate(left) if name.startswith("rename")]
    assert len(renames) == 1
    assert [state for _, state in left] == ["old"] * (renames[0] + 1) + ["new"] * (len(left) - renames[0] - 1)


# ---- who may write -----------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_at_once_and_let_in_when_the_first_is_killed(file: Path) -> None:
    holds = "ledger = DecisionLedger(path); ledger.record_intent('a', 1); reached(); until_killed()"
    with child(holds, file) as process:
        before = file.read_bytes()
        with pytest.raises(StorageFailed, match=re.escape(str(file))):
            DecisionLedger(file)
        with child("assert refused(DecisionLedger, path); reached()", file):
            pass
        assert DecisionLedger.read(file).pending() == {"a": 1}
        assert file.read_bytes() == before
        killed(process)
        with DecisionLedger(file) as ledger:
            ledger.record_commit("a")


def test_compaction_keeps_the_second_writer_out(file: Path) -> None:
    with child(FILL + "ledger.compact(); reached(); until_killed()", file) as process:
        with pytest.raises(StorageFailed, match="open for writing"):
            DecisionLedger(file)
        killed(process)
        with DecisionLedger(file) as ledger:
            assert ledger.pending() == OWED


def test_children_that_outlive_the_writer_do_not_hold_its_lock(file: Path) -> None:
    code = """
        import subprocess
        ledger = DecisionLedger(path)
        told, tell = os.pipe()
        if os.fork() == 0:
            os.write(tell, b"f")
            os.read(0, 1)
            os._exit(0)
        subprocess.Popen(["cat"], close_fds=False, stdout=subprocess.DEVNULL)
        os.read(told, 1)
        reached()
        until_killed()
    """
    with child(code, file) as process:
        killed(process)
        with DecisionLedger(file) as ledger:
            ledger.record_intent("a", 1)


def test_a_forked_child_can_neither_write_nor_free_the_lock(file: Path) -> None:
    code = """
        import gc
        ledger = DecisionLedger(path)
        ledger.record_intent("a", 1)
        pid = os.fork()
        if pid == 0:
            calls = (ledger.pending, ledger.events, ledger.compact, lambda: ledger.record_intent("b", 2))
            well = all(refused(call) for call in calls)
            ledger.close()
            del ledger
            gc.collect()
            os._exit(0 if well and refused(DecisionLedger, path) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        ledger.record_intent("c", 3)
        reached()
        until_killed()
    """
    with child(code, file):
        with pytest.raises(StorageFailed, match="open for writing"):
            DecisionLedger(file)
        assert DecisionLedger.read(file).pending() == {"a": 1, "c": 3}


# ---- syncs -------------------------------------------------------------------------------------------------


def test_each_event_is_one_write_then_one_sync_and_a_repeat_is_neither(file: Path) -> None:
    code = """
        mark()
        ledger = DecisionLedger(path)
        mark()
        ledger.record_intent("a", 1)
        mark()
        ledger.record_commit("a")
        mark()
        ledger.record_intent("a", 1)
        ledger.record_commit("a")
        mark()
    """
    opening, intent, commit, repeat = stretches(traced(code, file)[1])
    assert [call.name for call in intent] == [call.name for call in commit] == ["write", "fsync"]
    assert all(str(file) in call.args for call in intent + commit)
    assert repeat == []
    syncs = [call for call in opening if call.name in ("fsync", "fdatasync")]
    assert [call.args.endswith(f"<{file.parent}>") for call in syncs] == [True]


def test_n_events_cost_n_syncs_and_one_for_the_directory(file: Path) -> None:
    calls = traced(FILL, file)[1]
    syncs = [call.args for call in calls if call.name in ("fsync", "fdatasync")]
    assert len(syncs) == 1 + 9
    assert sum(1 for args in syncs if args.endswith(f"<{file}>")) == 9


def test_what_is_found_at_opening_is_synced_anew_before_anything_is_acknowledged(file: Path) -> None:
    with DecisionLedger(file) as ledger:
        ledger.record_intent("a", 1)
        ledger.record_intent("b", 2)
    whole = file.read_bytes()
    (opening,) = stretches(traced("mark(); ledger = DecisionLedger(path); mark()", file)[1])
    steps = [call for call in opening if call.name in ("pwrite64", "fsync")]
    assert [call.name for call in steps] == ["pwrite64", "fsync", "fsync"]
    assert steps[0].args.endswith(f"{len(whole) // 2}, {len(whole) // 2}")
    assert [call.args.rpartition("<")[2] for call in steps[1:]] == [f"{file}>", f"{file.parent}>"]
    assert file.read_bytes() == whole
    file.write_bytes(whole + b'{"torn')
    (opening,) = stretches(traced("mark(); ledger = DecisionLedger(path); mark()", file)[1])
    assert [call.name for call in opening if call.name in ("pwrite64", "ftruncate", "fsync")] == [
        "ftruncate",
        "fsync",
        "fsync",
    ]
    assert file.read_bytes() == whole


def test_a_compaction_syncs_the_new_file_before_and_the_directory_after_its_rename(file: Path) -> None:
    (steps,) = stretches(traced(FILL + "mark(); ledger.compact(); mark()", file)[1])
    order = [call.name for call in steps if call.name.startswith(("write", "fsync", "rename", "flock"))]
    assert [name.rstrip("2").removesuffix("at") for name in order] == ["flock", "write", "fsync", "rename", "fsync"]
    syncs = [call.args for call in steps if call.name == "fsync"]
    assert ".poimen-compact>" in syncs[0]
    assert syncs[1].endswith(f"<{file.parent}>")


# ---- a disk that fails -------------------------------------------------------------------------------------

DIES = """
ledger = DecisionLedger(path)
ledger.record_intent("a", 1)
error = ends(CommitUnknown, ledger.record_intent, "b", 2)
assert path in str(error) and "'b'" in str(error), error
mark()
calls = (ledger.pending, ledger.events, ledger.compact, lambda: ledger.record_intent("a", 1))
assert all(refused(call) for call in calls)
assert refused(ledger.record_intent, "b", 2) and refused(ledger.record_commit, "a")
mark()
with DecisionLedger(path) as again:
    again.record_intent("b", 2)
    assert again.pending() == {"a": 1, "b": 2}
"""


def test_a_failed_sync_is_unknown_is_never_tried_again_and_is_settled_by_opening(file: Path) -> None:
    ended, calls = traced(DIES, file, "-e", "inject=fsync:error=EIO:when=3")
    assert ended == 0
    assert stretches(calls) == [[]]
    failed = next(index for index, call in enumerate(calls) if "EIO" in call.result)
    later = [call for call in calls[failed + 1 :] if call.name in ("write", "pwrite64", "fsync")]
    assert [call.name for call in later] == ["pwrite64", "fsync", "fsync"]
    assert r"\"b\"" in later[0].args
    assert len(DecisionLedger.read(file).events()) == 2


@pytest.mark.parametrize("fault", ["error=EIO", "error=ENOSPC"])
def test_a_failed_write_is_unknown_too(file: Path, fault: str) -> None:
    ended, calls = traced(DIES, file, "-e", f"inject=write:{fault}:when=2")
    assert ended == 0
    assert stretches(calls) == [[]]
    assert [call.name for call in calls if call.name == "write"] == ["write"] * 3
    assert len(DecisionLedger.read(file).events()) == 2


def test_c03_a_write_that_the_disk_cuts_short_never_fuses_with_a_later_one(file: Path) -> None:
    code = """
        import resource
        ledger = DecisionLedger(path)
        ledger.record_intent("a", 1)
        size = os.path.getsize(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
        assert "10 of" in str(ends(CommitUnknown, ledger.record_intent, "b", 2))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert refused(ledger.record_intent, "c", 3)
        assert os.path.getsize(path) == size + 10
        with DecisionLedger(path) as again:
            assert (again.recovered, again.pending()) == (10, {"a": 1})
            again.record_intent("c", 3)
        reached()
    """
    with child(code, file):
        pass
    assert DecisionLedger.read(file).pending() == {"a": 1, "c": 3}
