"""The serving end of a fork server: a process that has loaded the code and opened nothing, and forks for each order.

A fork starts in a millisecond where a new interpreter takes a third of a second. This module must never open a
database or start a thread: both would come out of a fork broken. It keeps the invariant that every order is
answered once, with what the operating system says of its child.

Source: design proof.md, P2 (fork server).
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

from poimen import clock
from poimen.testing.crashes.orders import EXIT_CODES, Order, perform, resolve, search_here, serve

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOK_S = 0.05
"""How often children are looked for that died without closing their pipe, in seconds."""

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


@dataclass(slots=True, kw_only=True)
class _Child:
    """A child at work: which order, and what it has told so far."""

    number: int
    pid: int
    pipe: int
    deadline: float
    strike_at: float | None
    told: bytearray = field(default_factory=bytearray)
    overdue: bool = False


class _Server:
    """Orders come in as lines of JSON, answers go out in the same way.

    Arguments:
        line: the connection to the one who gives orders.
    """

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._in = bytearray()
        self._children: dict[int, _Child] = {}

    def answer(self, **what: Any) -> None:
        """Tell the other end."""
        self._line.sendall(json.dumps(what).encode() + b"\n")

    def serve(self) -> None:
        """Until the other end is gone; its children go with it."""
        try:
            while self._turn():
                pass
        finally:
            for child in self._children.values():
                os.kill(child.pid, signal.SIGKILL)

    def _turn(self) -> bool:
        pipes = {child.pipe: child for child in self._children.values()}
        line = self._line.fileno()
        strikes = [child.strike_at - clock.monotonic() for child in pipes.values() if child.strike_at is not None]
        wait_s = max(0.0, min([LOOK_S, *strikes]))
        ready, _, _ = select.select([line, *pipes], [], [], wait_s if pipes else None)
        for fd in ready:
            if fd in pipes:
                pipes[fd].told += os.read(fd, 1 << 16)
            elif not self._orders():
                return False
        for child in list(self._children.values()):
            self._look_after(child)
        return True

    def _orders(self) -> bool:
        got = self._line.recv(1 << 16)
        self._in += got
        *lines, rest = bytes(self._in).split(b"\n")
        self._in = bytearray(rest)
        for text in lines:
            number, _, order = text.decode().partition(" ")
            self._fork(int(number), Order.of(order))
        return bool(got)

    def _fork(self, number: int, order: Order) -> None:
        if (threads := threading.enumerate())[1:]:
            names = ", ".join(thread.name for thread in threads[1:])
            self.answer(number=number, how="gone", why=f"the code has started threads in the fork server: {names}")
            return
        mine, its = os.pipe()
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._line.close()
            _end_with(server)
            for fd in (mine, *(child.pipe for child in self._children.values())):
                os.close(fd)
            _obey(order, its)
        os.close(its)
        deadline = clock.monotonic() + order.patience_s
        strike_at = clock.monotonic() + order.after_s if order.after_s else None
        self._children[number] = _Child(number=number, pid=pid, pipe=mine, deadline=deadline, strike_at=strike_at)

    def _look_after(self, child: _Child) -> None:
        if child.strike_at is not None and clock.monotonic() >= child.strike_at:
            child.strike_at = None
            os.kill(child.pid, signal.SIGKILL)  # ours until it is waited for, so its number names no other process
        if not child.overdue and clock.monotonic() > child.deadline:
            child.overdue = True
            os.kill(child.pid, signal.SIGKILL)
        pid, end = os.waitpid(child.pid, os.WNOHANG)
        if not pid:
            return
        del self._children[child.number]
        while select.select([child.pipe], [], [], 0)[0] and (rest := os.read(child.pipe, 1 << 16)):
            child.told += rest
        os.close(child.pipe)
        told = json.loads(child.told) if child.told else {}
        died = os.WTERMSIG(end) if os.WIFSIGNALED(end) else 0
        how = "overdue" if child.overdue else "killed" if died == signal.SIGKILL else told.get("how", "gone")
        code = os.waitstatus_to_exitcode(end)
        self.answer(number=child.number, **told | {"how": how, "signal": died, "code": code})


def _end_with(server: int) -> None:
    """In the fork: ask Linux to kill it when the server dies of SIGKILL; elsewhere it goes on until its own end."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(1)


def _obey(order: Order, pipe: int) -> NoReturn:
    """In the fork: do it, tell how it ended, and leave without running anything that the server has registered."""
    code = 1
    try:
        if order.output:
            fd = os.open(order.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.dup2(fd, 1)
            os.dup2(fd, 2)
        said = perform(order)
        text = json.dumps(asdict(said)).encode()
        while text:
            text = text[os.write(pipe, text) :]
        code = EXIT_CODES[said.how]
    except BaseException:  # noqa: BLE001 (nothing may go on in a fork of the server)
        traceback.print_exc()
    finally:
        os._exit(code)


def _warm_up() -> None:
    """Make once, here, what each child would make for itself when it writes and reads its first record of a kind."""
    from poimen.log import codec  # noqa: PLC0415 (as in `main`)

    for event in codec.TAGS.values():
        codec._FORMS[event], codec._reader(event)  # noqa: SLF001 (caches that nothing else fills ahead)


def main(arguments: Sequence[str]) -> None:
    """The server's program.

    Arguments:
        arguments: the number of the connection's descriptor, then the targets whose modules to load.
    """
    serve()
    server = _Server(socket.socket(fileno=int(arguments[0])))
    search_here()
    try:
        import poimen.engine.runtime  # noqa: PLC0415 (loaded once, here, for all children)
        import poimen.log.sqlite  # noqa: F401, PLC0415 (as above)

        for target in arguments[1:]:
            resolve(target)
        _warm_up()
    except BaseException as error:  # noqa: BLE001 (told to the one who asked)
        server.answer(how="raised", why=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
        return
    gc.collect()
    gc.freeze()
    server.answer(how="returned", pid=os.getpid())
    server.serve()
