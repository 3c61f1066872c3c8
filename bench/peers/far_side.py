"""The far side of a trial: a small HTTP service outside every runtime, and the only witness of what has happened.

It dedupes on keys until they expire, shows late what it has accepted, loses answers, and words things anew. Each thing
that it does is a line in a file opened with O_APPEND before any answer is given. This module must never look into a
runtime's log; it keeps the invariant that an effect is counted when the far side does it, whoever has asked.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from poimen._typing import override

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self


class FarSide:
    """A service on a free port of the loopback address, for one trial.

    Arguments:
        lines: the file of its witness.
        ttl_s: how long it remembers a key, seconds.
        lag_s: how long something that it has done stays invisible to a look, seconds.
        loses: how many of the first answers to an act are lost after it was done.
        rewords: whether the model's words differ each time.
    """

    def __init__(
        self, lines: Path, *, ttl_s: float = 3600.0, lag_s: float = 0.0, loses: int = 0, rewords: bool = False
    ) -> None:
        self.ttl_s, self.lag_s, self.loses, self.rewords = ttl_s, lag_s, loses, rewords
        self._fd = os.open(lines, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        self._lines = lines
        self._lock = threading.Lock()
        self._keys: dict[str, tuple[float, str]] = {}
        self._seen: dict[str, tuple[float, str]] = {}
        self._said = 0
        self._first: float | None = None
        self.requests = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def landed(self) -> int:
        """How many effects it has done."""
        return len(self._lines.read_bytes().splitlines())

    def keys_expire_in(self) -> float:
        """Seconds until the key of the first act is forgotten; 0 when it is."""
        return 0.0 if self._first is None else max(0.0, self._first + self.ttl_s - time.monotonic())

    def act(self, words: str, ref: str, key: str) -> str | None:
        """Do it, or repeat the answer that the key stands for; None: the answer is lost."""
        with self._lock:
            now = time.monotonic()
            self._first = self._first or now
            self.requests += 1
            known = self._keys.get(key) if key else None
            if known is not None and now - known[0] < self.ttl_s:
                return known[1]
            done = f"receipt {self.landed + 1}"
            os.write(self._fd, (json.dumps({"words": words, "ref": ref, "key": key, "done": done}) + "\n").encode())
            if key:
                self._keys[key] = (now, done)
            if ref:
                self._seen.setdefault(ref, (now, done))
            self.loses -= 1
            return None if self.loses >= 0 else done

    def look(self, ref: str) -> str | None:
        """What it shows under a reference."""
        with self._lock:
            found = self._seen.get(ref)
            return found[1] if found is not None and time.monotonic() - found[0] >= self.lag_s else None

    def say(self) -> str:
        """What the model says."""
        with self._lock:
            self._said += 1
            return f"charge 42.00 to Ada, please ({self._said})" if self.rewords else "charge 42.00 to Ada"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        os.close(self._fd)


def _handler_of(side: FarSide) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            given: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/act":
                done = side.act(given["words"], given["ref"], given["key"])
                if done is None:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                self._answer({"done": done})
            elif self.path == "/look":
                self._answer({"done": side.look(given["ref"])})
            else:
                self._answer({"words": side.say()})

        def _answer(self, what: dict[str, Any]) -> None:
            body = json.dumps(what).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
            """Say nothing: the witness is the file."""

    return Handler
