"""A witness of what really happened: a file outside every database, and tools whose whole effect is a line in it.

What a log claims about an effect is worth what an independent witness says of it. This module must never
read a log; it keeps the invariant that a line is there, whole, when `note` returns, whatever happens to the
process afterwards.

Source: requirement write-ahead-intent, "Harness"; design proof.md, P1.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from poimen import effects
from poimen._typing import override
from poimen.declare.calling import request_id
from poimen.declare.decorators import tool
from poimen.kernel.errors import BadDeclaration, ConfigurationError, NotStorable, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from poimen.declare.shapes import AsyncTool
    from poimen.effects import AnyEffect, ClassName

VARIABLE: Final = "POIMEN_WITNESS"
"""The environment variable that tells a child which file its witness is."""

CLASSES: Final[tuple[ClassName, ...]] = ("READ", "IDEMPOTENT", "KEYED", "PROBE", "AT_MOST_ONCE")
"""The effect classes whose calls leave records."""

_KEY_LIVES: Final = timedelta(hours=24)


class Witness:
    """An append-only file of lines.

    Arguments:
        path: the file; created by the first line. Keep it outside the database's folder of trust: nothing but the
            effect itself may write there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def here(cls) -> Witness:
        """The witness of this process: the file that the harness (or the fixture `witness`) has named.

        Raises:
            ConfigurationError: nothing has named one.
        """
        path = os.environ.get(VARIABLE)
        if not path:
            raise ConfigurationError(
                f"this process has no witness: {VARIABLE} is not set",
                why="recording tools write there; nothing was done",
                hint="run it by poimen.testing.kill_sweep, or take the pytest fixture `witness`",
            )
        return cls(path)

    def note(self, text: str) -> None:
        """Append one line by one write, and read it back.

        Arguments:
            text: without line breaks.

        Raises:
            NotStorable: the text has more than one line.
            StorageFailed: the line is not there as it was written.
        """
        if len(text.splitlines()) > 1 or text.endswith(("\n", "\r")):
            raise NotStorable("a witness takes one line at a time", where=repr(text)[:80])
        line = text.encode() + b"\n"
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            written = os.write(fd, line)
            end = os.lseek(fd, 0, os.SEEK_CUR)
            if written != len(line) or os.pread(fd, len(line), end - len(line)) != line:
                raise StorageFailed(f"a line of the witness {self.path} is not there as written", where=str(self.path))
        finally:
            os.close(fd)

    def lines(self) -> list[str]:
        """All lines, oldest first; none when there is no file."""
        try:
            return self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def __len__(self) -> int:
        return len(self.lines())

    def __bool__(self) -> bool:
        return True

    @override
    def __repr__(self) -> str:
        return f"<Witness {self.path}: {len(self)} lines>"


def recording_tool(
    effect_class: ClassName, *, name: str | None = None, timeout_s: float = 60.0
) -> AsyncTool[[str], str]:
    """A tool whose whole effect is one line, `REQUEST_ID WHAT`, at the witness of its process; it returns `WHAT`.

    Arguments:
        effect_class: one of `READ IDEMPOTENT KEYED PROBE AT_MOST_ONCE`. A KEYED one has a key that lives a day; the
            PROBE one looks for its request id in the witness, which shows a line at once.
        name: of the tool; `recorded_` and the class in small letters when left out.
        timeout_s: of the tool, seconds.

    Raises:
        BadDeclaration: the class leaves no records, or there is none of this name.

    Source: design proof.md, P1 (the recording tool).
    """

    async def record(what: str) -> str:
        Witness.here().note(f"{request_id()} {what}")
        return what

    chosen: Mapping[ClassName, AnyEffect] = {
        "READ": effects.READ,
        "IDEMPOTENT": effects.IDEMPOTENT,
        "KEYED": effects.KEYED(ttl=_KEY_LIVES),
        "PROBE": effects.PROBE(_look, lag=timedelta(0)),
        "AT_MOST_ONCE": effects.AT_MOST_ONCE,
    }
    if effect_class not in chosen:
        raise BadDeclaration(
            f"a recording tool of class {effect_class!r} cannot be", hint=f"one of {', '.join(CLASSES)}"
        )
    called = name or f"recorded_{effect_class.lower()}"
    record.__name__ = called
    declare: Any = tool(effect=chosen[effect_class], name=called, timeout=timeout_s, summary=f"{called} {{what}}")
    made: AsyncTool[[str], str] = declare(record)
    return made


async def _look(what: str) -> effects.Landed[str] | effects.Absent | effects.Unknown:
    mine = f"{request_id()} "
    witness = Witness.here()
    if any(line.startswith(mine) for line in witness.lines()):
        return effects.Landed(what, evidence=f"a line in {witness.path.name}")
    return effects.Absent(evidence=f"no line in {witness.path.name}")
