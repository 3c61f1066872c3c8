"""A small release registry over HTTP that really dedupes on an idempotency key.

    python registry_service.py --file releases.jsonl --port 0

prints `{"service": "registry", "port": 40123, "pid": 77}` on one line and serves on the loopback address:

    POST /releases            {"version", "sha", "body"} and the header Idempotency-Key
                              201 made · the same answer and `Idempotent-Replay: true` when made before
                              400 bad input · 409 the key is in flight · 422 the key was used with another body
    GET  /releases            every entry, in order        GET /releases/VERSION     the newest entry of a version

It knows nothing of poimen: it is the far side. It keeps two invariants: an answer leaves only after its entry
is on disk, and one key has at most one entry, across restarts too. Two keys may register one version twice:
whoever counts the entries sees it.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import signal
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Generator

_FIELDS: Final = {
    "version": re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}"),
    "sha": re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?"),
    "body": re.compile(r"(?s).*"),
}
_KEY: Final = re.compile(r"[!-~]{1,255}")
_LARGEST: Final = 1 << 20
_PATIENCE_S: Final = 10
"""A client that stops in the middle of a request loses its key after so many seconds."""


class BadRequest(Exception):
    """The request is refused, and nothing was stored.

    Arguments:
        code: the answer's HTTP code.
        why: what is wrong, for the client.
    """

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Damaged(Exception):
    """The file has a line that cannot be read, and it is not the last one."""


class Store:
    """The entries in one append-only file: a line of JSON each, synced before it counts."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, cut a torn last line, read the rest.

        Raises:
            Damaged: when a line before the last cannot be read.
            BlockingIOError: when another process serves this file.
        """
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._broken = ""
        self.entries: list[dict[str, Any]] = []
        self._by_key: dict[str, dict[str, Any]] = {}
        self._size = self._read(path)
        os.ftruncate(self._fd, self._size)
        os.fsync(self._fd)
        _sync_folder(path.resolve().parent)

    def _read(self, path: Path) -> int:
        """Take in the whole lines; gives their length in bytes."""
        lines = path.read_bytes().splitlines(keepends=True)
        good = 0
        for number, line in enumerate(lines, 1):
            entry = _parsed(line) if line.endswith(b"\n") else None
            if entry is None and number < len(lines):
                msg = f"{path}, line {number} cannot be read; nothing was changed; restore the file"
                raise Damaged(msg)
            if entry is None:
                break
            self._take(entry)
            good += len(line)
        return good

    def _take(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)
        self._by_key[entry["key"]] = entry

    @contextmanager
    def in_flight(self, key: str) -> Generator[None]:
        """Hold a key while its request is read and answered.

        Raises:
            BadRequest: 409, when another request holds it.
        """
        with self._lock:
            if key in self._busy:
                raise BadRequest(409, "a request with this Idempotency-Key is in flight; ask again")
            self._busy.add(key)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(key)

    def register(self, key: str, digest: str, fields: dict[str, str]) -> tuple[dict[str, Any], bool]:
        """The entry of a key, and whether it was there before.

        Arguments:
            key: the idempotency key.
            digest: SHA-256 of the request's body, hex.
            fields: the entry's `version`, `sha`, `body`.

        Raises:
            BadRequest: 422, when the key was used with another body; 503, when the disk refuses.
        """
        with self._lock:
            found = self._by_key.get(key)
            if found is not None and found["digest"] != digest:
                raise BadRequest(422, "this Idempotency-Key was used with another body")
            if found is not None:
                return found, True
            entry = {"id": len(self.entries) + 1, **fields, "key": key, "digest": digest}
            self._append(json.dumps(entry, sort_keys=True).encode() + b"\n")
            self._take(entry)
            return entry, False

    def _append(self, line: bytes) -> None:
        """Write a line and sync it.

        What cannot be written whole is taken back. When a sync or the taking back fails, nobody knows what is
        on disk: nothing more is accepted until a new process has read the file.
        """
        if self._broken:
            raise BadRequest(503, f"closed after an error, restart the service: {self._broken}")
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            written, why = 0, str(error)
        else:
            why = "the disk took a part of the line only"
        try:
            if written != len(line):
                os.ftruncate(self._fd, self._size)
            os.fsync(self._fd)
        except OSError as error:
            self._broken = str(error)
            raise BadRequest(503, f"whether it is stored is unknown: {error}") from None
        if written != len(line):
            raise BadRequest(503, f"cannot be stored now: {why}")
        self._size += len(line)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """A line's entry; None when it is not one."""
    try:
        entry = _object(json.loads(line))
    except ValueError:
        return None
    whole = entry is not None and {"id", "key", "digest", *_FIELDS} <= entry.keys()
    return entry if whole else None


def _object(data: Any) -> dict[str, Any] | None:
    """A JSON value as an object; None when it is none."""
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _fields(raw: bytes) -> dict[str, str]:
    """The fields of a request's body.

    Raises:
        BadRequest: 400, naming what is wrong.
    """
    try:
        given = _object(json.loads(raw))
    except ValueError as error:
        raise BadRequest(400, f"the body is not JSON: {error}") from None
    if given is None or set(given) != set(_FIELDS):
        raise BadRequest(400, f"the body must be an object with exactly the fields {', '.join(_FIELDS)}")
    for name, pattern in _FIELDS.items():
        if not isinstance(given[name], str) or not pattern.fullmatch(given[name]):
            raise BadRequest(400, f"the field {name} is not well formed")
    return given


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = _PATIENCE_S
    store: ClassVar[Store]

    def do_GET(self) -> None:
        """Tell what is registered."""
        path = unquote(urlsplit(self.path).path)
        entries = self.store.entries.copy()
        if path == "/releases":
            self._answer(200, {"releases": entries})
            return
        version = path.removeprefix("/releases/")
        found = [entry for entry in entries if entry["version"] == version]
        if path.startswith("/releases/") and found:
            self._answer(200, found[-1])
        else:
            self._answer(404, {"error": f"there is no {path}"})

    def do_POST(self) -> None:
        """Register a release, or give the answer that its key got before."""
        try:
            key = self._key()
            with self.store.in_flight(key):
                raw = self._body()
                entry, before = self.store.register(key, hashlib.sha256(raw).hexdigest(), _fields(raw))
        except BadRequest as error:
            # What is left of a refused request's body must not be read as the next request.
            self.close_connection = True
            self._answer(error.code, {"error": str(error)})
        else:
            # The key is free again before the client can know, so that asking again at once is no 409.
            more = {"Location": f"/releases/{quote(entry['version'], safe='')}"}
            self._answer(201, entry, more | ({"Idempotent-Replay": "true"} if before else {}))

    def _key(self) -> str:
        """The idempotency key of a request to register."""
        if urlsplit(self.path).path != "/releases":
            raise BadRequest(404, "POST goes to /releases")
        key = self.headers.get("Idempotency-Key", "")
        if not _KEY.fullmatch(key):
            raise BadRequest(400, "the header Idempotency-Key must have 1 to 255 visible ASCII characters")
        return key

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise BadRequest(411, "the header Content-Length is needed")
        if int(length) > _LARGEST:
            raise BadRequest(413, f"the body has more than {_LARGEST} bytes")
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        raw = self.rfile.read(int(length))
        if len(raw) != int(length):
            raise BadRequest(400, "the body ended early")
        return raw

    def handle_expect_100(self) -> bool:  # type: ignore[explicit-override]  # typing.override came with 3.12
        """The go-ahead is given in `_body`, once the key is held."""
        return True

    def _answer(self, code: int, data: object, more: dict[str, str] | None = None) -> None:
        raw = json.dumps(data, sort_keys=True).encode() + b"\n"
        self.send_response(code)
        for name, value in (more or {}).items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:  # type: ignore[explicit-override]  # as above
        """Say nothing: the file tells what happened."""


def _leave(*_: object) -> None:
    sys.exit(0)


def _end_with_stdin() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Serve until SIGTERM or, if asked, until standard input closes."""
    parser = argparse.ArgumentParser(description="A release registry that dedupes on an idempotency key.")
    parser.add_argument("--file", type=Path, required=True, help="the append-only file")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when the starting process is gone")
    args = parser.parse_args()
    try:
        Handler.store = Store(args.file)
        server = ThreadingHTTPServer(("127.0.0.1", args.port), Handler)
    except (Damaged, OSError) as error:
        sys.stderr.write(f"registry_service: {error}\n")
        return 1
    signal.signal(signal.SIGTERM, _leave)
    if args.until_stdin_closes:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    sys.stdout.write(json.dumps({"service": "registry", "port": server.server_port, "pid": os.getpid()}) + "\n")
    sys.stdout.flush()
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
