"""The servers that some runtimes need: each in a folder of its own, on free loopback ports, stopped at the end."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.peers.install import BUILD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

READY_S: Final = 60.0


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Servers:
    """Starts what is asked for, when it is first asked for; stops all at the end.

    As `with Servers() as servers:`.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._postgres: tuple[int, int] | None = None
        self._restate: tuple[int, dict[str, str]] | None = None
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def settings(self, server: str) -> dict[str, str]:
        """What a driver of one trial is told: a new database, or a port and the server's addresses.

        Arguments:
            server: `postgres`, `restate`, or empty.
        """
        if server == "postgres":
            name = f"t{next(self._numbers)}"
            port = self._running_postgres()[1]
            _psql(port, f"CREATE DATABASE {name}")
            return {"PEER_DSN": f"postgresql://postgres@127.0.0.1:{port}/{name}"}
        if server == "restate":
            return {"PEER_PORT": str(free_port()), **self._running_restate()[1]}
        return {}

    def processes(self, server: str) -> list[int]:
        """The processes of a running server: whose syncs are to be counted."""
        if server == "postgres":
            return _with_children(self._running_postgres()[0])
        return [self._running_restate()[0]] if server == "restate" else []

    def version(self, server: str) -> str:
        """What the server says that it is; empty for a pinned one."""
        if server != "postgres":
            return ""
        done = subprocess.run([_tool("postgres"), "--version"], check=True, capture_output=True, text=True)
        return done.stdout.split()[2]

    def _running_postgres(self) -> tuple[int, int]:
        if self._postgres is None:
            self._postgres = self._stack.enter_context(_postgres())
        return self._postgres

    def _running_restate(self) -> tuple[int, dict[str, str]]:
        if self._restate is None:
            self._restate = self._stack.enter_context(_restate())
        return self._restate


def _tool(name: str) -> str:
    """A program of PostgreSQL: Debian keeps them in a folder of the version."""
    for folder in (*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), None):
        found = shutil.which(name, path=str(folder) if folder else None)
        if found:
            return found
    raise SystemExit(f"PostgreSQL's {name} is needed: sudo apt-get install -y postgresql")


def _psql(port: int, statement: str) -> None:
    command = ["psql", "-qAt", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-c", statement]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def _postgres() -> Iterator[tuple[int, int]]:
    """Its process and port. It refuses to run as root, so then it runs as the user that its package has made."""
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="peers-pg-", ignore_cleanup_errors=True) as name:
        if user:
            shutil.chown(name, user)
        data = f"{name}/data"
        port = free_port()
        init = [_tool("initdb"), "-D", data, "-A", "trust", "-U", "postgres"]
        subprocess.run(init, check=True, stdout=subprocess.DEVNULL, user=user, cwd=name)
        options = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": name,
            "max_connections": 200,
        }
        server = subprocess.Popen(
            [_tool("postgres"), "-D", data, *(f"--{key}={value}" for key, value in options.items())],
            user=user,
            cwd=name,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _until(lambda: _answers(["psql", "-qAt", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-c", ""]))
            yield server.pid, port
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


@contextmanager
def _restate() -> Iterator[tuple[int, dict[str, str]]]:
    (binary,) = BUILD.glob("restate/node_modules/@restatedev/restate-server-*/bin/restate-server")
    ingress, admin = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="peers-restate-") as name:
        env = {
            **os.environ,
            "RESTATE_BASE_DIR": name,
            "RESTATE_BIND_IP": "127.0.0.1",
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_ADVERTISED_HOST": "127.0.0.1",
            "RESTATE_BIND_PORT": str(free_port()),
            "RESTATE_INGRESS__BIND_PORT": str(ingress),
            "RESTATE_ADMIN__BIND_PORT": str(admin),
            "RESTATE_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "1",
            "RUST_LOG": "error",
        }
        server = subprocess.Popen(
            [str(binary), "--no-logo", "--node-name", "n1"],
            env=env,
            cwd=name,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _until(lambda: _healthy(f"http://127.0.0.1:{admin}/health"))
            yield server.pid, {"PEER_INGRESS": f"http://127.0.0.1:{ingress}", "PEER_ADMIN": f"http://127.0.0.1:{admin}"}
        finally:
            server.terminate()
            server.wait(60)


def _until(so: Callable[[], bool]) -> None:
    end = time.monotonic() + READY_S
    while not so():
        if time.monotonic() > end:
            raise SystemExit("a server has not come up")
        time.sleep(0.1)


def _answers(command: list[str]) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _healthy(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=1):
            return True
    except OSError:
        return False


def _with_children(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return [pid, *map(int, children)]
