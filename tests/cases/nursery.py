"""A process that has imported everything once and forks children for the cases: each lives and dies on its own.

A child is forked by an attendant, which tells its pid and, when it is gone, how it ended. Nothing of a run is ever
open in the nursery itself.

    python -m tests.cases.nursery SOCKET
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from poimen.engine import runtime
from poimen.gate import points
from poimen.log import sqlite
from tests.cases import cancelling, children
from tests.cases.agents import world


def serve(path: str) -> None:
    """Fork what is asked for, until the parent is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        os.write(1, b"open\n")
        while True:
            waited: list[Any] = [listener, 0]
            ready, _, _ = select.select(waited, [], [])
            if 0 in ready:
                return
            wish, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _attend(wish)
            wish.close()


def _attend(wish: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    text, fds, _, _ = socket.recv_fds(wish, 1 << 16, 3)
    while not text.endswith(b"\n"):
        text += wish.recv(1 << 16)
    pid = os.fork()
    if pid == 0:
        wish.close()
        _live(json.loads(text), fds)
    for fd in (0, 1, *fds):
        os.close(fd)
    wish.sendall(f"{pid}\n".encode())
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    *_, code, kind = ended
    code = code if kind == os.CLD_EXITED else -code
    wish.sendall(f"{code}\n".encode())
    wish.recv(1)  # while the parent is there, the pid is nobody else's: a signal for it finds this child or none
    os.waitpid(pid, 0)
    os._exit(0)


def _live(asked: dict[str, Any], fds: list[int]) -> None:
    code = 1
    try:
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
            os.close(fd)
        os.chdir(asked["folder"])
        sys.path.insert(0, asked["folder"])
        world.witness = asked["witness"]
        world.stops = set(asked["stops"])
        children.settle_in(**asked["settings"])
        points.arm(asked["crash"])
        getattr(children, asked["program"])(*asked["args"])
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001 (what a process does at its end)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


# What `import poimen` leaves for later is loaded once, here, and not by each child.
LOADED = (runtime, sqlite, cancelling)


class Nursery:
    """The parent's side.

    Arguments:
        folder: where its socket lies; a short path.
    """

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "s")
        read, self._life = os.pipe()
        told, tell = os.pipe()
        self.pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "tests.cases.nursery", self._path],
            _environment(),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, read, 0),
                (os.POSIX_SPAWN_DUP2, tell, 1),
            ],
        )
        os.close(read)
        os.close(tell)
        self._told = told
        self._open = False

    def child(self, asked: dict[str, Any], fds: list[int]) -> socket.socket:
        """Ask for a child with these three descriptors; what comes back tells its pid, then its exit code."""
        if not self._open:
            assert os.read(self._told, 16) == b"open\n"
            self._open = True
        wish = socket.socket(socket.AF_UNIX)
        wish.connect(self._path)
        text = json.dumps(asked).encode() + b"\n"
        wish.sendall(text[socket.send_fds(wish, [text], fds) :])
        return wish

    def close(self) -> None:
        """Let it end."""
        os.close(self._life)
        os.close(self._told)
        os.waitpid(self.pid, 0)


def _environment() -> dict[str, str]:
    import poimen
    from tests.tidy.tree import ROOT

    source = Path(poimen.__file__).parents[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POIMEN_")}
    return kept | {"PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}


if __name__ == "__main__":
    serve(sys.argv[1])
