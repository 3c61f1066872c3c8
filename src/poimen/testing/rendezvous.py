"""A place where two parties meet: one arrives and stands still, the other sees it there and lets it go.

Threads, coroutines and processes meet in the same way, through two named pipes in a folder, so that no test
sleeps to wait for a state. This module must never carry anything but the meeting; it keeps the invariant
that `met` returns only after `arrive` was reached, and `arrive` only after `let_go`.

Source: design verification.md, "The barrier" (parked by rendezvous, never a sleep).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from poimen import clock

if TYPE_CHECKING:
    from types import TracebackType

PATIENCE_S: Final = 30.0
"""How long a party waits for the other, in seconds, unless it says otherwise."""


class Rendezvous:
    """One end of a meeting place; both parties make their own from the same folder.

    Arguments:
        folder: where the pipes lie; created by whoever comes first. Keep one end open for as long as the
            meeting goes on: it holds what the other has said.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._here = _pipe(self.folder / "here")
        self._go = _pipe(self.folder / "go")

    # ---- the party that stands still ---------------------------------------------------------------------------

    def arrive(self, *, timeout_s: float = PATIENCE_S) -> None:
        """Say "here" and block this thread until the other lets go.

        Raises:
            TimeoutError: nobody let go in time.
        """
        self._say(self._here)
        self._hear(self._go, timeout_s, "was not let go")

    async def arrive_async(self, *, timeout_s: float = PATIENCE_S) -> None:
        """The same for a coroutine: the loop goes on meanwhile."""
        self._say(self._here)
        await self._hear_async(self._go, timeout_s, "was not let go")

    # ---- the party that lets go --------------------------------------------------------------------------------

    def met(self, *, timeout_s: float = PATIENCE_S) -> None:
        """Block this thread until the other stands here.

        Raises:
            TimeoutError: nobody came in time.
        """
        self._hear(self._here, timeout_s, "saw nobody")

    async def met_async(self, *, timeout_s: float = PATIENCE_S) -> None:
        """The same for a coroutine: the loop goes on meanwhile."""
        await self._hear_async(self._here, timeout_s, "saw nobody")

    def let_go(self) -> None:
        """Let the other go on; said before it arrives, it will not stand still."""
        self._say(self._go)

    # ---- both --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close this end; the folder stays."""
        for fd in (self._here, self._go):
            if fd >= 0:
                os.close(fd)
        self._here = self._go = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @staticmethod
    def _say(fd: int) -> None:
        os.write(fd, b".")

    def _hear(self, fd: int, timeout_s: float, what: str) -> None:
        deadline = clock.monotonic() + timeout_s
        while True:
            left = deadline - clock.monotonic()
            if left <= 0:
                raise TimeoutError(f"the rendezvous in {self.folder} {what} for {timeout_s:g} s")
            if select.select([fd], [], [], left)[0] and _taken(fd):
                return

    async def _hear_async(self, fd: int, timeout_s: float, what: str) -> None:
        loop = asyncio.get_running_loop()
        heard: asyncio.Future[None] = loop.create_future()

        def readable() -> None:
            if not heard.done() and _taken(fd):
                heard.set_result(None)

        loop.add_reader(fd, readable)
        try:
            await asyncio.wait_for(heard, timeout_s)
        except TimeoutError:
            raise TimeoutError(f"the rendezvous in {self.folder} {what} for {timeout_s:g} s") from None
        finally:
            loop.remove_reader(fd)


def _pipe(path: Path) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    # Opened both ways: no opening waits for the other party, and what was said stays while one end is open.
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _taken(fd: int) -> bool:
    try:
        return bool(os.read(fd, 1))
    except BlockingIOError:
        return False  # another party of this side was quicker
