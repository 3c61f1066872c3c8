"""A commit that fails is unknown: the handle stops, the log is closed, the next opening settles it (C03, C16)."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from poimen.kernel.errors import ConfigurationError, Corrupt, NotFound, StorageFailed
from poimen.log.disk import doubt, files
from poimen.log.sqlite import SqliteStore
from poimen.testing.storage.tracing import strace_command
from tests.log.stores import Child, admitted, batch, damages, landed

if TYPE_CHECKING:
    from pathlib import Path

    from poimen.kernel.errors import PoimenError


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "poimen.db"
    store = SqliteStore(path)
    admitted(store)
    store.close()
    return path


def strace(db: Path, *what: str) -> tuple[str, ...]:
    """Run a child under strace, which breaks its calls on the WAL."""
    assert shutil.which("strace"), "these tests need strace: a missing tool is a failure, not a skip"
    return ("strace", "-f", "-qq", "-o", str(db.parent / "trace"), "-P", f"{db}-wal", *what)


def failing(db: Path, inject: str, n: int = 50) -> Child:
    calls = inject.partition(":")[0]
    return Child(
        "append_until_it_fails", db, "r1", n, under=strace(db, "-e", f"trace={calls}", "-e", f"inject={inject}")
    )


def ids(store: SqliteStore, run: str = "r1") -> list[str]:
    return [each.record_id for each in store.read(run)]


# ---- the real thing: EIO and ENOSPC in a child ---------------------------------------------------------------------


def assert_dead(told: dict[str, Any]) -> None:
    """The handle said unknown for what it tried, and nothing more afterwards."""
    assert told["failed"]["error"] == "CommitUnknown"
    assert told["failed"]["ids"] == told["failed"]["tried"]
    assert len(told["then"]) == 4
    assert all(each.startswith("StorageFailed: this handle") for each in told["then"])


def test_after_eio_on_the_sync_a_tail_that_is_found_is_made_durable_and_logged(db: Path) -> None:
    before = SqliteStore(db, read_only=True)
    assert len(before.read("r1")) == 1
    with failing(db, "fdatasync:error=EIO:when=9") as child:
        told = child.says()
        assert_dead(told)
        assert files.Sides.of(db).doubt.exists()
        with pytest.raises(StorageFailed, match="closed until"):
            SqliteStore(db, read_only=True)
        with pytest.raises(StorageFailed, match="closed until"):
            before.read("r1")
        before.close()
        child.kill()
    store = SqliteStore(db)
    tried = told["failed"]["tried"]
    assert [(each.record_id, each.found) for each in store.settled] == [(each, True) for each in tried]
    *rest, verdict = store.read("r1")
    assert [each.record_id for each in rest[1:]] == told["acknowledged"] + tried
    assert (verdict.kind, verdict.subject, verdict.epoch, verdict.branch) == ("append.settled.v1", "branch", 0, "main")
    assert json.loads(verdict.body) == {"found": True, "record_ids": tried}
    assert not files.Sides.of(db).doubt.exists()
    assert json.loads(files.Sides.of(db).doubt_log.read_text())["verdicts"][0]["found"] is True
    assert list(store.check()) == []
    store.close()
    again = SqliteStore(db)
    assert again.settled == ()
    assert ids(again)[-1] == verdict.record_id
    again.close()


def test_while_others_have_it_open_the_marker_closes_it_for_them_and_the_tail_is_gone(db: Path) -> None:
    other = SqliteStore(db)
    with failing(db, "fdatasync:error=EIO:when=4") as child:
        told = child.says()
        assert_dead(told)
        for _ in range(2):
            with pytest.raises(StorageFailed, match="closed until a failed commit is settled"):
                other.commit([batch("r1")])
        with pytest.raises(StorageFailed, match="closed until"):
            other.claim("r1", worker="w9", lease_s=1)
        assert ids(other)[1:] == told["acknowledged"]
        second = SqliteStore(db)
        assert {each.found for each in second.settled} == {False}
        assert [each.record_id for each in second.settled] == told["failed"]["tried"]
        place = landed(other, batch("r1"))[0]
        *rest, verdict, last = second.read("r1")
        assert [each.record_id for each in rest[1:]] == told["acknowledged"]
        assert json.loads(verdict.body) == {"found": False, "record_ids": told["failed"]["tried"]}
        assert last.lsn == place.last
        second.close()
    assert list(other.check()) == []
    other.close()


def test_a_full_disk_in_the_middle_of_an_append_c03(db: Path) -> None:
    with failing(db, "pwrite64:error=ENOSPC:when=20+") as child:
        told = child.says()
        assert_dead(told)
        child.kill()
    store = SqliteStore(db)
    assert {each.found for each in store.settled} == {False}
    *rest, verdict = store.read("r1")
    assert [each.record_id for each in rest[1:]] == told["acknowledged"]
    assert json.loads(verdict.body)["found"] is False
    assert list(store.check()) == []
    landed(store, batch("r1"))
    store.close()


def test_a_kill_at_every_write_of_a_commit_leaves_record_and_head_agreed_c16(db: Path, tmp_path: Path) -> None:
    seen: set[int] = set()
    for n in range(1, 60):
        copy = tmp_path / f"{n}" / "poimen.db"
        copy.parent.mkdir()
        shutil.copy(db, copy)
        inject = f"inject=pwrite64,fdatasync:signal=SIGKILL:when={n}"
        with Child(
            "one_commit", copy, "r1", under=strace(copy, "-e", "trace=pwrite64,fdatasync", "-e", inject)
        ) as child:
            opened, done = child.says() == "ready", child.says() == "done"
            child.end()
        store = SqliteStore(copy)
        head, records = store.head("r1"), store.read("r1")
        assert head is not None
        assert (head.lsn, head.hash) == (len(records), records[-1].hash)
        assert (head.state == "RUNNING") == (len(records) == 3)
        assert len(records) in ({3} if done else {1, 3} if opened else {1})
        assert list(store.check()) == []
        store.close()
        seen.add(len(records) if opened else 0)
        if done:
            break
    else:
        pytest.fail("the child never came to its end")
    assert seen == {0, 1, 3}


def test_a_kill_at_every_sync_of_the_first_opening_leaves_nothing_to_complain_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = 0
    for n in range(1, 60):
        db = tmp_path / f"{n}" / "poimen.db"
        command = strace_command(output=tmp_path / "trace", inject=f"signal=SIGKILL:when={n}")
        with Child("open_and_close", db, under=tuple(command)) as child:
            opened, done = opened + (child.says() == "ready"), child.says() == "done"
            child.end()
        with suppress(ConfigurationError, StorageFailed):  # not there yet, or still empty
            assert damages(db) == []
        store = SqliteStore(db)
        assert damages(db) == []
        store.close()
        if done:
            break
    else:
        pytest.fail("the child never came to its end")
    assert n > opened > 0
    assert "gone" not in caplog.text


# ---- a verdict that is refused ---------------------------------------------------------------------------------------


def settled_with(db: Path, refusal: PoimenError) -> files.Sides:
    """Settle a marker about one record, whose verdict the log refuses."""
    sides = files.Sides.of(db)
    line = {"run": "r1", "branch": "main", "record_ids": ["0" * 32]}
    sides.doubt.write_text(json.dumps(line) + "\n", encoding="utf-8")
    doubt.settle(sides, truncate=lambda _why: None, find=lambda _run, _record: False, append=lambda _batches: [refusal])
    return sides


def test_a_run_that_is_not_there_is_told_no_verdict(db: Path) -> None:
    sides = settled_with(db, NotFound("no run r1"))
    assert not sides.doubt.exists()
    assert "0" * 32 in sides.doubt_log.read_text(encoding="utf-8")


def test_a_verdict_that_cannot_be_logged_settles_nothing(db: Path) -> None:
    with pytest.raises(Corrupt, match="r1 is damaged"):
        settled_with(db, Corrupt("r1 is damaged"))
    assert files.Sides.of(db).doubt.exists(), "the next opening settles it anew"
