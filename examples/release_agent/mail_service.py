"""A real SMTP server on the loopback address that keeps what it accepts in a spool.

    python mail_service.py --spool spool --port 0

prints `{"service": "mail", "port": 40124, "pid": 78}` on one line. The spool is laid out like a Maildir: a
message is written to `tmp/`, synced, renamed into `new/`, and only then accepted, one file each, numbered in
the order of acceptance. Recipients in the domain `invalid` (RFC 2606) are refused, so that refusal can be tried.

It knows nothing of poimen: it is the far side, and like any mail server it does not dedupe.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiosmtpd.smtp import SMTP

if TYPE_CHECKING:
    from aiosmtpd.smtp import Envelope, Session

_LARGEST: Final = 1 << 20


class Spool:
    """A folder of accepted messages; also the handler that aiosmtpd calls."""

    def __init__(self, folder: Path) -> None:
        """Open or create the folder and drop what was never accepted.

        Raises:
            BlockingIOError: when another process serves this folder.
        """
        self._tmp, self._new = folder / "tmp", folder / "new"
        self._tmp.mkdir(parents=True, exist_ok=True)
        self._new.mkdir(exist_ok=True)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in self._tmp.iterdir():
            left.unlink()
        self._last = max((int(path.stem) for path in self._new.glob("*.eml")), default=0)

    def keep(self, sender: str, recipients: list[str], content: bytes) -> str:
        """Put one message into the spool and sync it; gives its name.

        Arguments:
            sender: the envelope's sender.
            recipients: the envelope's recipients.
            content: the message as received.

        Raises:
            OSError: when it cannot be stored; the spool is as before.
        """
        name = f"{self._last + 1:06d}.eml"
        envelope = f"Return-Path: <{sender}>\r\nDelivered-To: {', '.join(recipients)}\r\n"
        with (self._tmp / name).open("wb") as file:
            file.write(envelope.encode("utf-8", "surrogateescape") + content)
            file.flush()
            os.fsync(file.fileno())
        (self._tmp / name).rename(self._new / name)
        folder = os.open(self._new, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        except OSError:
            (self._new / name).unlink()
            raise
        finally:
            os.close(folder)
        self._last += 1
        return name

    async def handle_RCPT(  # noqa: N802 (aiosmtpd's name)
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        """Take any recipient but those that cannot exist."""
        if address.rpartition("@")[2].lower().endswith("invalid"):
            return "550 5.1.1 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(  # noqa: N802 (aiosmtpd's name)
        self, _server: SMTP, _session: Session, envelope: Envelope
    ) -> str:
        """Accept a message once it is on disk."""
        content = envelope.content
        raw = content if isinstance(content, bytes) else (content or "").encode()
        try:
            name = self.keep(envelope.mail_from or "", envelope.rcpt_tos, raw)
        except OSError as error:
            return f"451 4.3.0 cannot be stored now: {error.strerror}"
        return f"250 2.0.0 accepted as {name}"


async def serve(folder: Path, port: int, *, until_stdin_closes: bool) -> None:
    """Serve until SIGTERM or, if asked, until standard input closes."""
    spool = Spool(folder)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_signal_handler(signal.SIGINT, ended.set)
    server = await loop.create_server(
        lambda: SMTP(spool, hostname="localhost", data_size_limit=_LARGEST, loop=loop), "127.0.0.1", port
    )
    stdin = sys.stdin.fileno()

    def read_stdin() -> None:
        if not os.read(stdin, 1024):
            ended.set()

    if until_stdin_closes:
        loop.add_reader(stdin, read_stdin)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(json.dumps({"service": "mail", "port": port, "pid": os.getpid()}) + "\n")
    sys.stdout.flush()
    await ended.wait()
    server.close()


def main() -> int:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description="An SMTP server on loopback that keeps a spool.")
    parser.add_argument("--spool", type=Path, required=True, help="the spool's folder")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when the starting process is gone")
    args = parser.parse_args()
    try:
        asyncio.run(serve(args.spool, args.port, until_stdin_closes=args.until_stdin_closes))
    except OSError as error:
        sys.stderr.write(f"mail_service: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
