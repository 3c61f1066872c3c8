"""What the errors of real clients say about one exchange, against real sockets on the loopback."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import http.client
import importlib
import json
import smtplib
import socket
import ssl
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import httpx
import pytest
import requests
import requests.adapters
import urllib3
from aiosmtpd.smtp import SMTP

from poimen.gate.exchanges import REFUSALS, ROWS, UNKNOWN, Answer, answer

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "outcomes.md"
PATIENCE_S: Final = 0.05
"""How long a client waits for a far side that never answers."""
LONG_S: Final = 20.0
"""How long it waits for one that does."""
SO_ATTACH_FILTER: Final = 26
"""Linux's: which packets a socket takes, as a program."""

# ---- far sides ---------------------------------------------------------------------------------------------------

Script = Callable[[socket.socket, threading.Event], None]


class FarSide:
    """A listener on the loopback: connection n is handled by script n, the last one by all that follow."""

    def __init__(self, *scripts: Script, then_closed: bool = False) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.over = threading.Event()
        self.connections = 0
        self._scripts = scripts
        self._then_closed = then_closed
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.connections, len(self._scripts) - 1)]
            self.connections += 1
            if self._then_closed and self.connections == len(self._scripts):
                self._shut()
            with connection, suppress(OSError):
                script(connection, self.over)

    def _shut(self) -> None:
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def close(self) -> None:
        self.over.set()
        self._shut()
        self._thread.join(10)


@contextmanager
def far_side(*scripts: Script, then_closed: bool = False) -> Iterator[FarSide]:
    side = FarSide(*scripts, then_closed=then_closed)
    try:
        yield side
    finally:
        side.close()


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that is taken and refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@contextmanager
def deaf_port() -> Iterator[int]:
    """A port that drops whatever comes: whoever connects waits, however the machine is loaded."""
    drop_all = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # BPF: return 0 bytes of each packet
    with socket.create_server(("127.0.0.1", 0)) as listener:
        program = struct.pack("HP", 1, ctypes.addressof(drop_all))
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
        yield listener.getsockname()[1]


def hear(connection: socket.socket) -> bytes:
    heard = b""
    while b"\r\n\r\n" not in heard and (more := connection.recv(65536)):
        heard += more
    return heard


def hangs_up(connection: socket.socket, over: threading.Event) -> None:
    hear(connection)


def resets(connection: socket.socket, over: threading.Event) -> None:
    hear(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def says_nothing(connection: socket.socket, over: threading.Event) -> None:
    over.wait(30)


def says(code: int, *headers: str) -> Script:
    lines = [f"HTTP/1.1 {code} Word", *headers, "Content-Length: 0", "Connection: close", "", ""]

    def script(connection: socket.socket, over: threading.Event) -> None:
        hear(connection)
        connection.sendall("\r\n".join(lines).encode())

    return script


def sends_to(port: int) -> Script:
    return says(302, f"Location: http://127.0.0.1:{port}/elsewhere")


# ---- clients -----------------------------------------------------------------------------------------------------

Client = Callable[..., None]


def by_httpx(
    port: int, method: str = "POST", *, follow: bool = False, read_s: float = LONG_S, connect_s: float = LONG_S
) -> None:
    with httpx.Client(timeout=httpx.Timeout(LONG_S, read=read_s, connect=connect_s), trust_env=False) as client:
        client.request(method, f"http://127.0.0.1:{port}/", follow_redirects=follow).raise_for_status()


def by_httpx_async(
    port: int, method: str = "POST", *, follow: bool = False, read_s: float = LONG_S, connect_s: float = LONG_S
) -> None:
    async def call() -> None:
        async with httpx.AsyncClient(
            timeout=httpx.Timeout(LONG_S, read=read_s, connect=connect_s), trust_env=False
        ) as client:
            reply = await client.request(method, f"http://127.0.0.1:{port}/", follow_redirects=follow)
            reply.raise_for_status()

    asyncio.run(call())


def by_requests(
    port: int, method: str = "POST", *, follow: bool = False, read_s: float = LONG_S, connect_s: float = LONG_S
) -> None:
    with requests.Session() as session:
        session.trust_env = False
        url = f"http://127.0.0.1:{port}/"
        session.request(method, url, timeout=(connect_s, read_s), allow_redirects=follow).raise_for_status()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def by_urllib(
    port: int, method: str = "POST", *, follow: bool = False, read_s: float = LONG_S, connect_s: float = LONG_S
) -> None:
    class Connection(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            self.sock.settimeout(read_s)

    class Handler(urllib.request.HTTPHandler):
        def http_open(self, request: urllib.request.Request) -> Any:
            return self.do_open(Connection, request)

    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), Handler()]
    opener = urllib.request.build_opener(*handlers, *([] if follow else [_NoRedirects()]))
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", data=b"x", method=method)
    with opener.open(request, timeout=connect_s):
        pass


def by_aiohttp(
    port: int, method: str = "POST", *, follow: bool = False, read_s: float = LONG_S, connect_s: float = LONG_S
) -> None:
    async def call() -> None:
        timeout = aiohttp.ClientTimeout(sock_read=read_s, sock_connect=connect_s)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, f"http://127.0.0.1:{port}/", allow_redirects=follow) as reply,
        ):
            reply.raise_for_status()

    asyncio.run(call())


CLIENTS: Final[tuple[Client, ...]] = (by_httpx, by_httpx_async, by_requests, by_urllib, by_aiohttp)
every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)


def raised_by(call: Callable[..., object], *args: Any, **kwargs: Any) -> Exception:
    try:
        call(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 (whatever the client raises)
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        return error
    pytest.fail("the call came back")


def said(call: Callable[..., object], *args: Any, **kwargs: Any) -> Answer:
    return answer(raised_by(call, *args, **kwargs))[0]


# ---- HTTP --------------------------------------------------------------------------------------------------------


@every_client
def test_a_closed_port_means_that_nothing_was_sent(client: Client) -> None:
    with closed_port() as port:
        assert said(client, port) is Answer.NOT_SENT


@every_client
def test_a_connection_that_is_not_made_in_time_means_that_nothing_was_sent(client: Client) -> None:
    with deaf_port() as port:
        assert said(client, port, connect_s=PATIENCE_S) is Answer.NOT_SENT


@every_client
@pytest.mark.parametrize(("script", "read_s"), [(hangs_up, LONG_S), (resets, LONG_S), (says_nothing, PATIENCE_S)])
def test_a_lost_answer_is_maybe(client: Client, script: Script, read_s: float) -> None:
    with far_side(script) as side:
        assert said(client, side.port, read_s=read_s) is Answer.MAYBE


@every_client
@pytest.mark.parametrize("code", [400, 402, 404, 412, 422, 429])
def test_a_refusal_by_code_is_rejected(client: Client, code: int) -> None:
    with far_side(says(code)) as side:
        found, why = answer(raised_by(client, side.port))
    assert found is Answer.REJECTED
    assert why == f"HTTP {code}: {REFUSALS[code]}"


@every_client
@pytest.mark.parametrize("code", [*UNKNOWN, 418, 499, 505, 599])
def test_every_other_code_is_maybe(client: Client, code: int) -> None:
    with far_side(says(code)) as side:
        found, why = answer(raised_by(client, side.port))
    assert found is Answer.MAYBE
    assert f"HTTP {code}: " in why


@pytest.mark.parametrize("client", [by_httpx, by_urllib])
def test_a_redirect_as_an_error_is_maybe(client: Client) -> None:
    with far_side(says(302, "Location: /elsewhere")) as side:
        assert said(client, side.port) is Answer.MAYBE


@every_client
@pytest.mark.parametrize("second", ["closed", "refuses"])
def test_after_a_redirect_the_first_exchange_has_been_made(client: Client, second: str) -> None:
    with closed_port() as nobody, far_side(says(404)) as other:
        target = nobody if second == "closed" else other.port
        with far_side(sends_to(target)) as side:
            error = raised_by(client, side.port, follow=True)
            assert side.connections == 1
    found, why = answer(error)
    assert found is Answer.MAYBE
    assert "a redirect was followed" in why


def test_aiohttp_repeats_a_delete_by_itself_so_its_refusal_proves_nothing() -> None:
    with far_side(hangs_up, says(404)) as side:
        error = raised_by(by_aiohttp, side.port, "DELETE")
        assert side.connections == 2  # it is aiohttp that has sent it twice
    assert isinstance(error, aiohttp.ClientResponseError)
    assert answer(error)[0] is Answer.MAYBE


def test_aiohttp_repeats_a_put_by_itself_so_a_refused_second_connection_proves_nothing() -> None:
    with far_side(hangs_up, then_closed=True) as side:
        error = raised_by(by_aiohttp, side.port, "PUT")
    assert isinstance(error, aiohttp.ClientConnectorError)
    found, why = answer(error)
    assert found is Answer.MAYBE
    assert "aiohttp has sent the request again" in why


@pytest.mark.parametrize("direct", [True, False], ids=["urllib3", "requests"])
def test_a_retry_of_urllib3_shows(direct: bool) -> None:
    retry = urllib3.Retry(2, backoff_factor=0)
    with far_side(hangs_up, then_closed=True) as side:
        url = f"http://127.0.0.1:{side.port}/"
        if direct:
            with urllib3.PoolManager() as pool:
                error = raised_by(pool.request, "PUT", url, retries=retry)
        else:
            with requests.Session() as session:
                session.trust_env = False
                session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
                error = raised_by(session.put, url)
    found, why = answer(error)
    assert found is Answer.MAYBE
    assert "urllib3 has sent the request again" in why


def test_urllib3_without_retries_is_known() -> None:
    with urllib3.PoolManager() as pool, closed_port() as port:
        assert said(pool.request, "POST", f"http://127.0.0.1:{port}/", retries=False) is Answer.NOT_SENT
    with urllib3.PoolManager() as pool, far_side(hangs_up) as side:
        assert said(pool.request, "POST", f"http://127.0.0.1:{side.port}/", retries=False) is Answer.MAYBE
    with urllib3.PoolManager(timeout=urllib3.Timeout(connect=PATIENCE_S, read=LONG_S)) as pool, deaf_port() as port:
        error = raised_by(pool.request, "POST", f"http://127.0.0.1:{port}/", retries=urllib3.Retry(0))
        assert isinstance(error, urllib3.exceptions.MaxRetryError)
        assert answer(error)[0] is Answer.NOT_SENT


@every_client
def test_a_retry_written_into_the_tool_shows(client: Client) -> None:
    """`except` and again: the second, harmless error hides the first, and carries it as its context."""
    with closed_port() as nobody, far_side(says_nothing) as side:

        def tool() -> None:
            try:
                client(side.port, read_s=PATIENCE_S)
            except Exception:  # noqa: BLE001 (as such tools do)
                client(nobody)

        found, why = answer(raised_by(tool))
    assert found is Answer.MAYBE
    assert "an earlier" in why


def test_an_error_before_the_exchange_does_not_count_as_one() -> None:
    """A cache that is not there is no exchange."""
    with closed_port() as nobody:

        def tool() -> None:
            try:
                Path("/there/is/no/cache").read_text(encoding="utf-8")
            except FileNotFoundError:
                by_httpx(nobody)

        assert said(tool) is Answer.NOT_SENT


def test_an_illegal_head_is_refused_before_it_is_written_and_a_short_body_is_not() -> None:
    with far_side(hangs_up) as side:
        url = f"http://127.0.0.1:{side.port}/"
        error = raised_by(httpx.post, url, headers={"X": "a\r\nb"}, trust_env=False)
        assert isinstance(error, httpx.LocalProtocolError)
        assert answer(error)[0] is Answer.NOT_SENT
        short = raised_by(httpx.post, url, content=iter([b"x"]), headers={"Content-Length": "9"}, trust_env=False)
        assert answer(short)[0] is Answer.MAYBE
    assert answer(httpx.LocalProtocolError("Too little data for declared Content-Length"))[0] is Answer.MAYBE


@pytest.mark.parametrize(
    "call",
    [
        lambda: httpx.post("ftp://127.0.0.1/", trust_env=False),
        lambda: httpx.post("http://127.0.0.1:port/", trust_env=False),
        lambda: requests.post("127.0.0.1", timeout=1),
        lambda: requests.post("ftp://127.0.0.1/", timeout=1),
        lambda: requests.post("http://", timeout=1),
        lambda: requests.post("http://127.0.0.1/", json=float("nan"), timeout=1),
        lambda: requests.post("http://127.0.0.1/", headers={"X": "a\r\n"}, timeout=1),
        lambda: urllib.request.urlopen("nothing://127.0.0.1/", timeout=1),
        lambda: urllib.request.urlopen("http://127.0.0.1/a b", timeout=1),
    ],
)
def test_a_request_that_cannot_be_made_is_not_sent(call: Callable[[], object]) -> None:
    assert said(call) is Answer.NOT_SENT


def test_a_full_pool_has_sent_nothing() -> None:
    async def call() -> None:
        limits = httpx.Limits(max_connections=1)
        timeout = httpx.Timeout(LONG_S, pool=PATIENCE_S)
        async with httpx.AsyncClient(limits=limits, timeout=timeout, trust_env=False) as client:
            with far_side(says_nothing) as side:
                first = asyncio.create_task(client.post(f"http://127.0.0.1:{side.port}/"))
                while not side.connections:
                    await asyncio.sleep(0)
                try:
                    await client.post(f"http://127.0.0.1:{side.port}/")
                finally:
                    first.cancel()
                    await asyncio.gather(first, return_exceptions=True)

    error = raised_by(asyncio.run, call())
    assert isinstance(error, httpx.PoolTimeout)
    assert answer(error)[0] is Answer.NOT_SENT


def test_a_proxy_that_makes_no_tunnel_has_passed_nothing_on() -> None:
    with far_side(says(403)) as proxy:
        url, via = "https://127.0.0.1:9/", f"http://127.0.0.1:{proxy.port}"
        assert said(httpx.post, url, proxy=via, trust_env=False) is Answer.NOT_SENT
        assert said(requests.post, url, proxies={"https": via}, timeout=5) is Answer.NOT_SENT
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({"https": via}))
        assert said(opener.open, url, b"x", 5) is Answer.NOT_SENT


@pytest.mark.parametrize("client", ["httpx", "requests", "urllib"])
def test_a_handshake_that_fails_comes_before_the_request(client: str) -> None:
    """A far side that closes during the handshake: only httpx has a class that tells it from a lost answer."""
    with far_side(lambda connection, over: None) as side:
        url = f"https://127.0.0.1:{side.port}/"
        calls: dict[str, Callable[[], object]] = {
            "httpx": lambda: httpx.post(url, trust_env=False),
            "requests": lambda: requests.post(url, timeout=5, proxies={"https": ""}),
            "urllib": lambda: urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, b"x", 5),
        }
        found = said(calls[client])
    assert found in ({Answer.NOT_SENT} if client != "requests" else {Answer.NOT_SENT, Answer.MAYBE})


# ---- sockets and programs --------------------------------------------------------------------------------------------


def test_an_error_of_connecting_is_not_sent() -> None:
    with closed_port() as port:
        assert said(socket.create_connection, ("127.0.0.1", port)) is Answer.NOT_SENT
        assert said(asyncio.run, asyncio.open_connection("127.0.0.1", port)) is Answer.NOT_SENT
        with socket.socket() as plain:
            assert said(plain.connect, ("127.0.0.1", port)) is Answer.NOT_SENT
    # Whatever the system says of a connection to everybody, it says it while connecting.
    assert said(socket.create_connection, ("255.255.255.255", 9), 1) is Answer.NOT_SENT
    assert said(asyncio.run, asyncio.open_connection("255.255.255.255", 9)) is Answer.NOT_SENT
    assert said(socket.getaddrinfo, "no-number", 9, flags=socket.AI_NUMERICHOST) is Answer.NOT_SENT


def test_an_error_of_connecting_by_hand_in_asyncio_is_not_sent() -> None:
    async def by_hand() -> None:
        with socket.socket() as plain:
            plain.setblocking(False)
            await asyncio.get_running_loop().sock_connect(plain, ("255.255.255.255", 9))

    assert said(asyncio.run, by_hand()) is Answer.NOT_SENT
    from_elsewhere = asyncio.open_connection("127.0.0.1", 9, local_addr=("192.0.2.1", 0))  # not an address of ours
    error = raised_by(asyncio.run, from_elsewhere)
    assert "bind" in str(error)
    assert answer(error)[0] is Answer.NOT_SENT


def test_asyncio_with_an_error_for_each_address_is_not_sent() -> None:
    async def call(port: int) -> None:
        loop = asyncio.get_running_loop()

        async def two_addresses(*_: Any, **__: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.1", "127.0.0.2")]

        loop.getaddrinfo = two_addresses  # type: ignore[method-assign]
        await asyncio.open_connection("two.example", port)

    with closed_port() as port:
        error = raised_by(asyncio.run, call(port))
    assert str(error).startswith("Multiple exceptions")
    assert answer(error)[0] is Answer.NOT_SENT


def test_a_handshake_without_an_answer_is_not_sent() -> None:
    with far_side(says_nothing) as side, socket.create_connection(("127.0.0.1", side.port), LONG_S) as plain:
        plain.settimeout(PATIENCE_S)
        assert said(ssl.create_default_context().wrap_socket, plain, server_hostname="x") is Answer.NOT_SENT


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 400 plain words\r\n\r\n"], ids=["hangs up", "no TLS"])
def test_a_handshake_that_fails_in_asyncio_is_not_sent(words: bytes) -> None:
    def script(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(words)

    with far_side(script) as side:
        call = asyncio.open_connection("127.0.0.1", side.port, ssl=ssl.create_default_context())
        error = raised_by(asyncio.run, call)
    assert isinstance(error, OSError)
    assert answer(error)[0] is Answer.NOT_SENT


@pytest.mark.parametrize("script", [resets, says_nothing])
def test_an_error_after_connecting_is_maybe(script: Script) -> None:
    with far_side(script) as side, socket.create_connection(("127.0.0.1", side.port), LONG_S) as connection:
        connection.sendall(b"x\r\n\r\n")
        connection.settimeout(PATIENCE_S if script is says_nothing else LONG_S)
        assert said(connection.recv, 1) is Answer.MAYBE


@pytest.mark.parametrize(
    "error",
    [
        OSError(113, "No route to host"),
        OSError(101, "Network is unreachable"),
        TimeoutError("timed out"),
        BrokenPipeError(32, "Broken pipe"),
        ssl.SSLError(1, "bad record mac"),
        ValueError("what is this"),
    ],
    ids=repr,
)
def test_what_also_ends_a_connection_that_has_sent_is_maybe(error: Exception) -> None:
    """`No route to host` is what Linux reports to a read when the other machine has gone."""
    assert answer(error)[0] is Answer.MAYBE


def test_a_program_that_could_not_start_has_done_nothing(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program", encoding="utf-8")
    assert said(subprocess.run, [tmp_path / "missing"], check=True) is Answer.NOT_SENT
    assert said(subprocess.run, [plain], check=True) is Answer.NOT_SENT
    assert said(subprocess.run, ["true"], check=True, cwd=tmp_path / "missing") is Answer.NOT_SENT

    async def start() -> None:
        await asyncio.create_subprocess_exec(tmp_path / "missing")

    assert said(asyncio.run, start()) is Answer.NOT_SENT


def test_a_program_that_has_run_may_have_done_anything(tmp_path: Path) -> None:
    assert said(subprocess.run, ["false"], check=True) is Answer.MAYBE
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as waits:
        assert said(waits.wait, PATIENCE_S) is Answer.MAYBE
        assert waits.stdin is not None
    missing = raised_by((tmp_path / "missing").read_bytes)
    assert isinstance(missing, FileNotFoundError)
    assert answer(missing)[0] is Answer.MAYBE  # the tool may open a file after its effect


# ---- mail -----------------------------------------------------------------------------------------------------------

MAIL: Final = {
    "hello": "220 here",
    "EHLO": "250-here\r\n250 AUTH PLAIN",
    "HELO": "250 here",
    "AUTH": "235 in",
    "MAIL": "250 ok",
    "RCPT": "250 ok",
    "DATA": "354 go on",
    ".": "250 taken",
    "RSET": "250 ok",
    "QUIT": "221 bye",
}


def post_office(**replies: str) -> Script:
    """A scripted SMTP server; an empty reply hangs up, `silence` never answers."""
    book = {**MAIL, **{("." if verb == "dot" else verb): reply for verb, reply in replies.items()}}

    def script(connection: socket.socket, over: threading.Event) -> None:
        lines = connection.makefile("rb")
        verb, in_message = "hello", False
        with lines:
            while reply := book.get(verb, "500 what"):
                if reply == "silence":
                    over.wait(30)
                    return
                connection.sendall(reply.encode() + b"\r\n")
                in_message = verb == "DATA" and reply.startswith("354")
                while (line := lines.readline()) and in_message and line.strip() != b".":
                    pass
                if not line:
                    return
                verb = "." if in_message else line.split()[0].decode().upper()

    return script


def send_mail(
    port: int, *to: str, login: bool = False, client: type[smtplib.SMTP] = smtplib.SMTP, patience_s: float = LONG_S
) -> None:
    with client("127.0.0.1", port, local_hostname="localhost", timeout=LONG_S) as server:
        server.timeout = patience_s
        assert server.sock is not None
        server.sock.settimeout(patience_s)
        if login:
            server.login("me", "secret")
        server.sendmail("me@example.org", to or ("you@example.org",), "Subject: x\r\n\r\nhello")


MAIL_CASES: Final[dict[str, tuple[dict[str, str], type[Exception], Answer]]] = {
    "no service": ({"hello": "554 no"}, smtplib.SMTPConnectError, Answer.NOT_SENT),
    "no greeting back": ({"EHLO": "500 no", "HELO": "501 no"}, smtplib.SMTPHeloError, Answer.REJECTED),
    "sender": ({"MAIL": "550 not you"}, smtplib.SMTPSenderRefused, Answer.REJECTED),
    "all recipients": ({"RCPT": "550 nobody here"}, smtplib.SMTPRecipientsRefused, Answer.REJECTED),
    "leaves at recipients": ({"RCPT": "421 closing"}, smtplib.SMTPRecipientsRefused, Answer.REJECTED),
    "before the message": ({"DATA": "451 later"}, smtplib.SMTPDataError, Answer.REJECTED),
    "message, for good": ({"dot": "554 spam"}, smtplib.SMTPDataError, Answer.REJECTED),
    "message, for now": ({"dot": "451 later"}, smtplib.SMTPDataError, Answer.REJECTED),
    "an odd answer": ({"dot": "251 elsewhere"}, smtplib.SMTPDataError, Answer.MAYBE),
    "hangs up": ({"dot": ""}, smtplib.SMTPServerDisconnected, Answer.MAYBE),
    "never answers": ({"dot": "silence"}, smtplib.SMTPServerDisconnected, Answer.MAYBE),
    "taken, then no goodbye": ({"QUIT": "500 stay"}, smtplib.SMTPResponseException, Answer.MAYBE),
}


@pytest.mark.parametrize(("replies", "cls", "expected"), MAIL_CASES.values(), ids=MAIL_CASES)
def test_mail(replies: dict[str, str], cls: type[Exception], expected: Answer) -> None:
    with far_side(post_office(**replies)) as side:
        error = raised_by(send_mail, side.port, patience_s=PATIENCE_S if "silence" in replies.values() else LONG_S)
    assert type(error) is cls
    assert answer(error)[0] is expected


def test_mail_refused_at_the_login_was_not_mailed() -> None:
    with far_side(post_office(AUTH="535 no")) as side:
        error = raised_by(send_mail, side.port, login=True)
    assert type(error) is smtplib.SMTPAuthenticationError
    assert answer(error)[0] is Answer.REJECTED
    with far_side(post_office(EHLO="250 here")) as side:
        error = raised_by(send_mail, side.port, login=True)
    assert type(error) is smtplib.SMTPNotSupportedError
    assert answer(error)[0] is Answer.NOT_SENT


def test_lmtp_answers_for_each_recipient_so_one_refusal_proves_nothing() -> None:
    with far_side(post_office(LHLO="250 here", dot="554 not for him")) as side:
        error = raised_by(send_mail, side.port, "he@example.org", "she@example.org", client=smtplib.LMTP)
    assert type(error) is smtplib.SMTPDataError
    assert answer(error)[0] is Answer.MAYBE


def test_a_post_office_that_is_closed_or_gone() -> None:
    with closed_port() as port:
        assert said(send_mail, port) is Answer.NOT_SENT
    with far_side(lambda connection, over: None) as side:
        assert said(send_mail, side.port) is Answer.MAYBE  # the class does not tell when the server left


def test_a_real_server_that_refuses_a_message() -> None:
    class Refuses:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 (aiosmtpd's name)
            return "554 5.7.1 refused"

    async def call() -> Answer:
        factory = functools.partial(SMTP, Refuses(), hostname="localhost")
        server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
        async with server:
            return await asyncio.to_thread(said, send_mail, server.sockets[0].getsockname()[1])

    assert asyncio.run(call()) is Answer.REJECTED


# ---- what it does not know -------------------------------------------------------------------------------------------


class OtherPeoples(httpx.ConnectError):
    """Raised by whom, and when?"""


class OtherPeoplesRefusal(ConnectionRefusedError):
    """As above."""


def test_a_class_derived_elsewhere_inherits_no_knowledge() -> None:
    assert answer(httpx.ConnectError("x"))[0] is Answer.NOT_SENT
    assert answer(OtherPeoples("x"))[0] is Answer.MAYBE
    assert answer(OtherPeoplesRefusal("x"))[0] is Answer.MAYBE


def test_a_name_alone_proves_nothing() -> None:
    fake = type("ConnectError", (Exception,), {"__module__": "httpx", "__qualname__": "ConnectError"})
    assert answer(fake("x"))[0] is Answer.MAYBE
    unloaded = type("ConnectError", (Exception,), {"__module__": "smtplib2", "__qualname__": "ConnectError"})
    assert answer(unloaded("x"))[0] is Answer.MAYBE


def test_an_error_that_lacks_what_is_looked_for_is_maybe() -> None:
    bare = httpx.HTTPStatusError("x", request=None, response=None)  # type: ignore[arg-type]
    assert answer(bare) == (Answer.MAYBE, "it cannot be looked into: AttributeError")
    assert answer(requests.HTTPError("no response"))[0] is Answer.MAYBE
    assert answer(urllib.error.URLError("of some other kind"))[0] is Answer.MAYBE
    loop = urllib.error.URLError("")
    loop.reason = loop
    assert answer(loop)[0] is Answer.MAYBE


def test_nothing_heavy_is_loaded() -> None:
    code = (
        "import json, sys; import poimen.gate.exchanges;"
        "print(json.dumps([m for m in ('httpx','requests','aiohttp','urllib3','smtplib','http.client','asyncio')"
        " if m in sys.modules]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(ran.stdout) == []


# ---- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("module", "name"), [(row.module, name) for row in ROWS for name in row.names.split()])
def test_every_row_names_a_class_that_exists_and_names_itself_so(module: str, name: str) -> None:
    cls = getattr(importlib.import_module(module), name)
    assert (cls.__module__, cls.__qualname__) == (module, name)


def test_no_class_has_two_rows_and_no_code_two_meanings() -> None:
    names = [f"{row.module}.{name}" for row in ROWS for name in row.names.split()]
    assert len(names) == len(set(names))
    assert not REFUSALS.keys() & UNKNOWN.keys()
    assert all(400 <= code <= 499 for code in REFUSALS)


def test_the_reference_has_the_tables_of_the_code() -> None:
    errors = ["| module | exceptions | says | why |", "|---|---|---|---|"]
    for row in ROWS:
        if isinstance(row.says, Answer):
            says = row.says.value
        else:
            phrase = (row.says.__doc__ or "").partition("\n")[0].rstrip(".")
            says = phrase[:1].lower() + phrase[1:]
        names = " ".join(f"`{name}`" for name in row.names.split())
        errors.append(f"| `{row.module}` | {names} | {says} | {row.why} |")
    refusals = [
        "| HTTP code | why it is a refusal |",
        "|---|---|",
        *(f"| {c} | {why} |" for c, why in REFUSALS.items()),
    ]
    unknown = ["| HTTP code | why it is maybe |", "|---|---|", *(f"| {c} | {why} |" for c, why in UNKNOWN.items())]
    page = PAGE.read_text(encoding="utf-8")
    for table in (errors, refusals, unknown):
        block = "\n".join(table)
        assert f"\n\n{block}\n\n" in page, f"docs/reference/outcomes.md must have this table:\n{block}"
