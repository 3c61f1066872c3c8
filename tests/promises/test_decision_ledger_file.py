"""The file of a decision ledger: what it holds, what is cut, what is refused, what compaction leaves."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import sys
from typing import TYPE_CHECKING, Any

import pytest

from poimen.kernel.errors import CommitUnknown, Corrupt, NotFound, StorageFailed
from poimen.ledger import DecisionLedger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LATE = (
    b'{"decision": {"to": "\xc3\xa4"}, "decision_id": "late", "event": "intent"}\n',
    b'{"decision_id": "owed-0", "event": "commit"}\n',
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


def beside(file: Path) -> list[str]:
    """The names in the folder of a ledger."""
    return sorted(path.name for path in file.parent.iterdir())


def ledger_with(file: Path, owed: int = 2, done: int = 2) -> bytes:
    """A closed ledger of a few decisions; returns its bytes."""
    with DecisionLedger(file) as ledger:
        for n in range(done):
            ledger.record_intent(f"done-{n}", {"n": n})
            ledger.record_commit(f"done-{n}")
        for n in range(owed):
            ledger.record_intent(f"owed-{n}", ["ä", n])
    return file.read_bytes()


# ---- the file ----------------------------------------------------------------------------------------------


def test_each_event_is_one_line_of_exactly_its_keys(file: Path) -> None:
    with DecisionLedger(file) as ledger:
        ledger.record_intent("contact-3", "two\nlines")
        ledger.record_commit("contact-3")
    assert file.read_text("utf-8") == (
        '{"decision": "two\\nlines", "decision_id": "contact-3", "event": "intent"}\n'
        '{"decision_id": "contact-3", "event": "commit"}\n'
    )


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_the_file_is_private_whatever_the_umask(file: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with DecisionLedger(file) as ledger:
            modes = [stat.S_IMODE(file.stat().st_mode)]
            ledger.record_intent("a", 1)
            ledger.record_commit("a")
            assert ledger.compact() == 1
            modes.append(stat.S_IMODE(file.stat().st_mode))
    finally:
        os.umask(before)
    assert modes == [0o600, 0o600]
    assert beside(file) == [file.name]


def test_a_mode_that_somebody_chose_survives_compaction(file: Path) -> None:
    ledger_with(file)
    file.chmod(0o640)
    with DecisionLedger(file) as ledger:
        ledger.compact()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_torn_tail_of_any_length_is_cut_and_nothing_before_it(file: Path) -> None:
    for whole in (ledger_with(file), b""):
        for line in LATE:
            for length in range(1, len(line) - 1):
                file.write_bytes(whole + line[:length])
                before = DecisionLedger.read(file)
                assert before.torn == length
                with DecisionLedger(file) as ledger:
                    assert ledger.recovered == length
                    assert ledger.events() == before.events()
                    assert file.read_bytes() == whole
                    ledger.record_intent("late", 2)
                assert file.read_bytes().startswith(whole)
                with DecisionLedger(file) as again:
                    assert again.recovered == 0
                    assert again.pending()["late"] == 2


@pytest.mark.parametrize(
    "tail", [b"\0" * 80, b"\0" * 80 + b'"intent"}\n', b'{"decision": "' + b"\0" * 80 + b"\n", b'{"decision": "\xc3']
)
def test_a_last_line_whose_pages_did_not_all_arrive_is_torn_too(file: Path, tail: bytes) -> None:
    whole = ledger_with(file)
    file.write_bytes(whole + tail)
    with DecisionLedger(file) as ledger:
        assert ledger.recovered == len(tail)
    assert file.read_bytes() == whole


def test_no_flipped_bit_in_the_last_line_drops_a_decision(file: Path) -> None:
    """It was acknowledged: its opening is refused, or it is there (its text may differ: no hash protects it)."""
    whole = ledger_with(file)
    last = whole[: whole[:-1].rindex(b"\n") + 1]
    silent = []
    for at in range(len(last), len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            if damaged[at] == 0:
                continue  # a NUL may be a page that never arrived
            file.write_bytes(damaged)
            with contextlib.suppress(Corrupt), DecisionLedger(file) as ledger:
                if ledger.recovered or len(ledger.pending()) != 2:
                    silent.append((at - len(last), bit))
    assert silent == []


def test_a_whole_last_line_that_lacks_its_newline_is_kept_and_ended(file: Path) -> None:
    whole = ledger_with(file)
    for line in LATE:
        file.write_bytes(whole + line[:-1])
        view = DecisionLedger.read(file)
        assert (view.torn, view.events()[-1]["decision_id"]) == (0, json.loads(line)["decision_id"])
        with DecisionLedger(file) as ledger:
            assert (ledger.recovered, ledger.events()) == (0, view.events())
            assert file.read_bytes() == whole + line
            ledger.record_intent("later", 1)
        assert file.read_bytes().startswith(whole + line)


@pytest.mark.parametrize(
    "tail",
    [
        b"[1]",
        b"7\n",
        b'{"decision_id": "nobody", "event": "commit"}',
        b'{"decision": 2, "decision_id": "owed-0", "event": "intent"}',
        b'{"decision": 1e999, "decision_id": "n", "event": "intent"}\n',
        b'{"decision": 1, "decision": 2, "decision_id": "n", "event": "intent"}\n',
        b'{"decision": ' + b"[" * 100_000,
        b'{"decision": ' + b"[" * 100_000 + b"\n",
    ],
)
def test_a_last_line_that_no_torn_write_of_ours_can_be_is_left_alone(file: Path, tail: bytes) -> None:
    damaged = ledger_with(file) + tail
    file.write_bytes(damaged)
    for look in (DecisionLedger, DecisionLedger.read):
        with pytest.raises(Corrupt, match="line 7 of"):
            look(file)
    assert file.read_bytes() == damaged


def test_a_stack_that_is_short_for_a_line_says_nothing_about_the_line(file: Path) -> None:
    value: list[Any] = []
    for _ in range(99):
        value = [value]
    with DecisionLedger(file) as ledger:
        ledger.record_intent("refund-7", value)
    whole = file.read_bytes()

    def opened_below(depth: int) -> tuple[int, dict[str, Any]]:
        if depth:
            return opened_below(depth - 1)
        with DecisionLedger(file) as ledger:
            return ledger.recovered, ledger.pending()

    refused = 0
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit(), 3):
        try:
            assert opened_below(depth) == (0, {"refund-7": value})
        except RecursionError:
            refused += 1
        assert file.read_bytes() == whole, depth
    assert refused, "no depth was too deep: this test looked at nothing"
    with DecisionLedger(file) as again:
        assert again.pending() == {"refund-7": value}


def test_a_memory_that_is_short_for_a_line_says_nothing_about_the_line(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ledger_with(file)
    with monkeypatch.context() as patch:
        patch.setattr(json, "loads", lambda *_, **__: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            DecisionLedger(file)
    assert file.read_bytes() == whole


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"garbage", "no JSON"),
        (b"", "no JSON"),
        (b"\0\0\0", "no JSON"),
        (b"[1]", "no object"),
        (b'{"event": ["intent"]}', "neither"),
        (b'{"decision": NaN, "decision_id": "n", "event": "intent"}', "NaN"),
        (b'{"decision": 1e999, "decision_id": "n", "event": "intent"}', "too large"),
        (b'{"decision": 1, "decision_id": "", "event": "intent"}', "1 to 500"),
        (b'{"decision": 1, "decision_id": "n", "event": "intent", "at": 3}', "keys"),
        (b'{"decision": 1, "decision": 2, "decision_id": "n", "event": "intent"}', "twice"),
        (b'{"decision": 2, "decision_id": "owed-0", "event": "intent"}', "another value"),
        (b'{"decision_id": "nobody", "event": "commit"}', "no line before"),
        (b'{"decision_id": "owed-0", "event": "settled"}', "neither"),
    ],
)
def test_damage_before_the_last_line_is_named_and_left_alone(file: Path, line: bytes, why: str) -> None:
    with DecisionLedger(file) as ledger:
        ledger.record_intent("owed-0", 1)
    damaged = file.read_bytes() + line + b'\n{"decision": 1, "decision_id": "z", "event": "intent"}\n{"torn'
    file.write_bytes(damaged)
    for look in (DecisionLedger, DecisionLedger.read):
        with pytest.raises(Corrupt, match=why) as caught:
            look(file)
        assert caught.value.ids["line"] == 2
        assert f"{file}:2" in str(caught.value)
    assert file.read_bytes() == damaged
    assert beside(file) == [file.name]


@pytest.mark.parametrize(
    "other", [b"a note", b'{"name": "poem"}', b"[1, 2]\n", b"\xff\xd8\xff", b"a: 1\nb: 2\n", b'{"decision_id": "a"}\n']
)
def test_a_file_of_somebody_else_is_refused_and_kept(file: Path, other: bytes) -> None:
    file.write_bytes(other)
    with pytest.raises(Corrupt):
        DecisionLedger(file)
    assert file.read_bytes() == other


def test_repeated_lines_and_other_spellings_are_read(file: Path) -> None:
    intent = b'{"event":"intent","decision_id":"a","decision":{"y":1,"x":"\\u00e4"}}\r\n'
    file.write_bytes(intent + intent + b'{"event":"commit","decision_id":"a"}\n' * 2)
    with DecisionLedger(file) as ledger:
        ledger.record_intent("a", {"x": "ä", "y": 1})
        assert len(ledger.events()) == 4
        assert ledger.pending() == {}


def test_reading_creates_cuts_and_locks_nothing(file: Path) -> None:
    with pytest.raises(NotFound, match="no decision ledger at"):
        DecisionLedger.read(file)
    assert beside(file) == []
    with DecisionLedger(file) as ledger:
        ledger.record_intent("a", 1)
        view = DecisionLedger.read(file)
        ledger.record_intent("b", 2)
        assert (list(view.pending()), "a" in view, "b" in view) == (["a"], True, False)
    with file.open("ab") as torn:
        torn.write(b'{"torn')
    before = file.read_bytes()
    assert DecisionLedger.read(file).torn == 6
    assert file.read_bytes() == before
    with pytest.raises(StorageFailed):
        DecisionLedger.read(file.parent)


@pytest.mark.parametrize("name", ["missing/decisions.jsonl", ".", ""])
def test_a_path_that_cannot_be_a_ledger_is_one_clear_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageFailed):
        DecisionLedger(tmp_path / name if name else "")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageFailed, match="regular file"):
        DecisionLedger(tmp_path / "pipe")
    with pytest.raises(StorageFailed, match="regular file"):
        DecisionLedger.read(tmp_path / "pipe")
    assert beside(tmp_path / "pipe") == ["pipe"]


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", ""])
@pytest.mark.parametrize("opened", [DecisionLedger, DecisionLedger.read])
def test_a_name_that_no_file_can_have_is_one_clear_error(opened: Callable[[str], object], name: str) -> None:
    with pytest.raises(StorageFailed, match="needs the path of a file"):
        opened(name)


def test_a_link_is_followed_and_stays(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    with DecisionLedger(link) as ledger:
        ledger.record_intent("a", 1)
        ledger.record_commit("a")
        with pytest.raises(StorageFailed):
            DecisionLedger(file)
        ledger.compact()
    assert link.is_symlink()
    assert file.read_bytes() == b""


def test_nothing_is_written_where_nobody_would_find_it(file: Path) -> None:
    with DecisionLedger(file) as ledger:
        ledger.record_intent("a", 1)
        moved = file.rename(file.with_name("moved"))
        with pytest.raises(StorageFailed, match="no longer"):
            ledger.record_intent("b", 2)
        with pytest.raises(StorageFailed, match="moved"):
            ledger.record_intent("a", 1)
    assert DecisionLedger.read(moved).events() == [{"decision": 1, "decision_id": "a", "event": "intent"}]


# ---- compaction --------------------------------------------------------------------------------------------


def test_compaction_keeps_what_is_owed_and_what_is_asked_for(file: Path) -> None:
    ledger_with(file, owed=2, done=3)
    with DecisionLedger(file) as ledger:
        assert ledger.compact(keep=lambda name: name == "done-1") == 2
        names = [(event["event"], event["decision_id"]) for event in ledger.events()]
        assert names == [("intent", "done-1"), ("commit", "done-1"), ("intent", "owed-0"), ("intent", "owed-1")]
        before = file.stat().st_ino
        assert ledger.compact(keep=lambda _: True) == 0
        assert file.stat().st_ino == before
        with pytest.raises(StorageFailed, match="open for writing"):
            DecisionLedger(file)
        ledger.record_commit("owed-0")
        assert ledger.compact() == 2
        assert (
            ledger.events()
            == DecisionLedger.read(file).events()
            == [{"decision": ["ä", 1], "decision_id": "owed-1", "event": "intent"}]
        )


@pytest.mark.parametrize("stays", [True, False])
def test_a_lock_on_a_file_that_was_just_replaced_is_not_taken_for_the_ledgers(
    file: Path, monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    ledger_with(file)
    holder = DecisionLedger(file)
    real = fcntl.flock

    def compacts_first(fd: int, operation: int) -> None:
        monkeypatch.undo()
        holder.compact()
        if not stays:
            holder.close()
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", compacts_first)
    if stays:
        with pytest.raises(StorageFailed, match="open for writing"):
            DecisionLedger(file)
        holder.close()
    else:
        with DecisionLedger(file) as second:
            second.record_intent("late", 1)
    assert ("late" in DecisionLedger.read(file)) == (not stays)


def test_what_is_asked_what_to_keep_may_record(file: Path) -> None:
    ledger_with(file, owed=0, done=2)
    with DecisionLedger(file) as ledger:

        def keep(name: str) -> bool:
            ledger.record_intent(f"audit-{name}", "dropped")
            ledger.record_intent("both", "again")
            ledger.record_commit("both")
            return False

        assert ledger.compact(keep=keep) == 2
        assert list(ledger.pending()) == ["audit-done-0", "audit-done-1"]
        assert "both" in ledger, "what was recorded meanwhile was not asked about"
        assert DecisionLedger.read(file).events() == ledger.events()


def test_what_is_asked_what_to_keep_may_close(file: Path) -> None:
    whole = ledger_with(file)
    ledger = DecisionLedger(file)

    def keep(_: str) -> bool:
        ledger.close()
        return False

    with pytest.raises(StorageFailed, match="it was closed"):
        ledger.compact(keep=keep)
    assert file.read_bytes() == whole
    assert beside(file) == [file.name]


def test_an_id_that_was_dropped_is_forgotten(file: Path) -> None:
    ledger_with(file)
    with DecisionLedger(file) as ledger:
        ledger.compact()
        with pytest.raises(NotFound, match="compact"):
            ledger.record_commit("done-0")
        ledger.record_intent("done-0", "another choice")
        assert ledger.pending()["done-0"] == "another choice"


def test_a_compaction_that_finds_no_room_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ledger_with(file)
    with DecisionLedger(file) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(StorageFailed, match="No space left"):
                ledger.compact()
        assert file.read_bytes() == whole
        assert beside(file) == [file.name]
        ledger.record_commit("owed-0")
        assert ledger.compact() == 3
    assert list(DecisionLedger.read(file).pending()) == ["owed-1"]


def test_a_compaction_whose_directory_is_not_synced_closes_the_ledger(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger_with(file)
    real = os.fsync

    def fails_for_folders(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(5, "Input/output error")
        real(fd)

    ledger = DecisionLedger(file)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails_for_folders)
        with pytest.raises(CommitUnknown, match="compaction"):
            ledger.compact()
        with pytest.raises(StorageFailed, match="unknown"):
            ledger.pending()
    with DecisionLedger(file) as again:
        assert list(again.pending()) == ["owed-0", "owed-1"]
