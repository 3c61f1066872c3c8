"""The model of a disk itself: what is synced is in every state, what is not may be missing, and what failed is gone."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from poimen.testing import Layer
from poimen.testing.power.disk import Disk
from poimen.testing.power.recording import Recording

if TYPE_CHECKING:
    from poimen.testing.power.recording import Recorder

STATES = 2000
A, B = b"a" * 2000, b"b" * 2000


def states(layer: Layer, done: int | None = None) -> list[dict[str, bytes]]:
    """Many states at the end of what was done, or after so many operations."""
    disk = Disk(layer.recorder.recording)
    while disk.done != done and disk.step():
        pass
    return [disk.cut(random.Random(n)) for n in range(STATES)]


def seen(layer: Layer, name: str, done: int | None = None) -> set[bytes | None]:
    return {state.get(name) for state in states(layer, done)}


@pytest.fixture
def layer(tmp_path: Path) -> Layer:
    return Layer(tmp_path / "disk")


@pytest.fixture
def recorder(layer: Layer) -> Recorder:
    return layer.recorder


def named(recorder: Recorder, name: str) -> None:
    """A file whose name is durable."""
    recorder.opened(name)
    recorder.names_synced("", recorder.made)


def test_what_is_synced_is_in_every_state(layer: Layer, recorder: Recorder) -> None:
    named(recorder, "f")
    recorder.wrote("f", 0, A)
    recorder.synced("f", recorder.made)
    assert seen(layer, "f") == {A}


def test_what_is_not_synced_may_be_there_in_any_part(layer: Layer, recorder: Recorder) -> None:
    named(recorder, "f")
    recorder.wrote("f", 0, A)
    recorder.synced("f", recorder.made)
    recorder.wrote("f", 0, B)
    found = seen(layer, "f")
    assert {A, B} < found
    assert {content[at : at + 512] for content in found if content for at in range(0, 1536, 512)} == {A[:512], B[:512]}
    assert len(found) == 16, "any subset of its four sectors"


def test_a_later_write_of_a_sector_holds_the_earlier_one_too(layer: Layer, recorder: Recorder) -> None:
    named(recorder, "f")
    recorder.wrote("f", 0, b"12")
    recorder.wrote("f", 1, b"34")
    assert seen(layer, "f") == {b"", b"12", b"134", b"\0\0\0", b"12\0"}


def test_a_sync_covers_what_was_written_when_it_began(layer: Layer, recorder: Recorder) -> None:
    named(recorder, "f")
    recorder.wrote("f", 0, b"1")
    covers = recorder.made
    recorder.wrote("f", 1, b"2")
    recorder.synced("f", covers)
    assert seen(layer, "f") == {b"1", b"12", b"1\0"}


def test_a_name_is_durable_when_its_folder_is_synced(layer: Layer, recorder: Recorder) -> None:
    recorder.opened("f")
    recorder.wrote("f", 0, A)
    recorder.synced("f", recorder.made)
    assert seen(layer, "f") == {None, A}
    recorder.names_synced("", recorder.made)
    assert seen(layer, "f") == {A}
    recorder.renamed("f", "g")
    assert {tuple(state) for state in states(layer)} == {("f",), ("g",)}
    recorder.unlinked("g")
    assert {tuple(state) for state in states(layer)} == {("f",), ("g",), ()}


def test_a_folder_that_is_lost_takes_what_is_in_it(layer: Layer, recorder: Recorder) -> None:
    recorder.made_folder("d")
    recorder.opened("d/f")
    recorder.names_synced("d", recorder.made)
    assert seen(layer, "d/f") == {None, b""}
    recorder.names_synced("", recorder.made)
    assert seen(layer, "d/f") == {b""}


def test_a_truncation_keeps_its_place_among_the_writes(layer: Layer, recorder: Recorder) -> None:
    named(recorder, "f")
    recorder.wrote("f", 0, A)
    recorder.synced("f", recorder.made)
    recorder.truncated("f", 0)
    recorder.wrote("f", 0, b"new")
    assert seen(layer, "f") == {A, b"", b"new", b"\0\0\0"}


def test_a_sync_that_failed_has_dropped_its_bytes(layer: Layer, recorder: Recorder) -> None:
    named(recorder, "f")
    recorder.wrote("f", 0, A)
    recorder.failed("f", recorder.made)
    recorder.wrote("f", 8192, b"later")
    recorder.synced("f", recorder.made)
    assert seen(layer, "f") == {bytes(8192) + b"later"}
    recorder.wrote("f", 4000, b"beside it")
    recorder.synced("f", recorder.made)
    assert {content[:2000] for content in seen(layer, "f") if content} == {A}, "its page was written again"


@pytest.mark.parametrize("how", ["replace", "rename"])
def test_the_layer_sees_what_is_done_through_the_system(layer: Layer, recorder: Recorder, how: str) -> None:
    root = Path(recorder.root)
    with layer.installed():
        fd = os.open(root / "new", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.write(fd, b"one")
        os.write(fd, b"two")
        os.fsync(fd)
        os.ftruncate(fd, 4)
        os.close(fd)
        (root / "new").replace(root / "old") if how == "replace" else (root / "new").rename(root / "old")
        (root / "folder").mkdir()
        fd = os.open(root, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        (root / "old").unlink()
    whats = [op.what for op in recorder.recording.ops]
    assert whats == ["create", "write", "write", "sync", "truncate", "rename", "mkdir", "names", "unlink"]
    assert [op.at for op in recorder.recording.ops if op.what == "write"] == [0, 3]
    assert seen(layer, "old") == {None, b"onetwo", b"onet"}
    assert seen(layer, "new", whats.index("sync")) > {None, b"", b"one", b"onetwo"}
    assert os.open.__module__ in {"posix", "nt"}, "the layer has gone"


def test_a_recording_is_read_back_as_it_was_written(layer: Layer, recorder: Recorder, tmp_path: Path) -> None:
    named(recorder, "f")
    recorder.wrote("f", 3, b"\0\xff")
    recorder.told("witness", b"line\n")
    recorder.recording.save(tmp_path / "recording")
    assert Recording.load(tmp_path / "recording") == recorder.recording
    assert list(recorder.recording.told("witness")) == [b"line\n"]
