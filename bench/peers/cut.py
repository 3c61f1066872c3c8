"""What a power cut leaves when it takes every byte that was not synced: one state among many, and a possible one.

Names are kept as they were (the merciful reading: an unsynced name may be missing as well). This module must never
know whose files they are; it keeps the invariant that synced bytes are there.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from poimen.testing.power.recording import Op, Recording


def what_was_synced(recording: Recording) -> dict[str, bytes]:
    """The files by name, each with what its last sync had covered.

    Arguments:
        recording: of one process; see `poimen.testing.power.syscalls`.
    """
    names = recording.numbered()
    durable = {number: bytearray(recording.initial[name]) for name, number in names.items()}
    waiting: dict[int, list[tuple[int, Op]]] = {number: [] for number in durable}
    for at, op in enumerate(recording.ops):
        match op.what:
            case "create":
                names[op.path] = op.file
                durable.setdefault(op.file, bytearray())
                waiting.setdefault(op.file, [])
            case "unlink":
                names.pop(op.path, None)
            case "rename":
                names[op.to] = names.pop(op.path)
            case "write" | "truncate":
                waiting[op.file].append((at, op))
            case "sync":
                for _, done in [each for each in waiting[op.file] if each[0] < op.covers]:
                    _apply(durable[op.file], done)
                waiting[op.file] = [each for each in waiting[op.file] if each[0] >= op.covers]
            case _:
                pass
    return {name: bytes(durable[number]) for name, number in names.items()}


def lay_out(files: dict[str, bytes], folder: Path) -> None:
    """Put these files into a folder in place of all that is there.

    Arguments:
        files: by path from the folder.
        folder: theirs.
    """
    shutil.rmtree(folder)
    folder.mkdir()
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _apply(content: bytearray, op: Op) -> None:
    if op.what == "truncate":
        del content[op.at :]
        content.extend(b"\0" * (op.at - len(content)))
        return
    content.extend(b"\0" * (op.at + len(op.data) - len(content)))
    content[op.at : op.at + len(op.data)] = op.data
