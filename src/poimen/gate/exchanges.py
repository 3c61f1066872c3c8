"""What the errors of well-known libraries say about one exchange with the far side.

Asked only for tools that declare `exchanges=1`: one request over one connection, no redirects followed,
no retries by the client. A library is never imported here: an exception brings its class along, and the
class is looked up in `sys.modules`. This module must never know about runs, tools or records. It keeps
the invariant that whatever it does not know for certain is MAYBE: an error of a class that somebody else
derived, an error that has no row, a second exchange that can be seen in the traceback.

The tables stand in `docs/reference/outcomes.md` too; a test compares them.

Source: design protocol.md, section 3, "Outcomes"; RFC 9110, section 15; RFC 5321, section 4.2.5.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from types import FrameType


class Answer(Enum):
    """What an error says about its exchange; MAYBE: it may have happened."""

    NOT_SENT = "not sent"
    REJECTED = "rejected"
    MAYBE = "maybe"


Judged: TypeAlias = tuple[Answer, str]
"""An answer and the reason for it, in one phrase."""

Look: TypeAlias = Callable[[Any], Judged]
"""Looks into an error for what its class alone does not say; the docstring's first line is for the reference."""


@dataclass(frozen=True, slots=True)
class Row:
    """Errors of one module that say the same.

    Arguments:
        module: the module that the classes name as theirs.
        names: the classes, separated by blanks.
        says: the answer, or the function that finds it in the error.
        why: a phrase for people; a function gives its own.
    """

    module: str
    names: str
    says: Answer | Look
    why: str


# ---- HTTP --------------------------------------------------------------------------------------------------------

REFUSALS: Final = {
    400: "the server cannot or will not process the request",
    401: "no valid credentials: turned away before the resource",
    402: "payment APIs: the charge was declined",
    403: "understood and refused",
    404: "there is nothing to act on",
    405: "the resource does not know the method",
    407: "the proxy did not let the request through",
    410: "what was to be acted on is gone",
    411: "refused for want of a length",
    412: "the condition was false, so the method was not performed",
    413: "refused for its size",
    414: "refused for the length of its target",
    415: "refused for the format of its body",
    416: "the range cannot be served",
    417: "the expectation cannot be met",
    421: "the server does not answer for this origin",
    422: "understood and refused as invalid",
    423: "the resource is locked",
    425: "the server did not risk a replay and asks for the request again",
    426: "refused over this protocol",
    428: "refused because it carries no condition",
    429: "refused for its rate",
    431: "refused for the size of its headers",
    451: "refused for legal reasons",
}
"""HTTP codes by which a server says that it did not act."""

UNKNOWN: Final = {
    406: "some frameworks find out only after the handler has acted that they cannot render its result",
    408: "the server's wait ended; some services use it for an operation of theirs that ran out of time",
    409: "on a keyed API it can mean: the first send of this key is being carried out now",
    424: "may report the failure of something further behind, after a part was done",
    500: "the handler broke down at a place that we do not know",
    501: "frameworks also use it for an error in the middle of a handler",
    502: "the gateway has passed the request on and lost the answer",
    503: "gateways also use it when the server behind them broke off in the middle",
    504: "the gateway has passed the request on and stopped waiting",
}
"""HTTP codes that look like a refusal and are none. Every code in neither table is MAYBE as well."""

_REPEATED_BY_AIOHTTP: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})


def _code(code: object, history: object) -> Judged:
    if history:
        return Answer.MAYBE, "a redirect was followed"
    if not isinstance(code, int) or code not in REFUSALS:
        reason = UNKNOWN.get(code, "not known as a refusal") if isinstance(code, int) else "no code"
        return Answer.MAYBE, f"HTTP {code}: {reason}"
    return Answer.REJECTED, f"HTTP {code}: {REFUSALS[code]}"


def _response_code(error: Any) -> Judged:
    """By the response's HTTP code, below; maybe after a redirect."""
    return _code(error.response.status_code, error.response.history)


def _urllib_code(error: Any) -> Judged:
    """By HTTP code, below; maybe after a redirect."""
    return _code(error.code, None)


def _aiohttp_code(error: Any) -> Judged:
    """By HTTP code, below; maybe after a redirect, and for the methods that aiohttp itself repeats."""
    # aiohttp sends GET, HEAD, OPTIONS, TRACE, PUT and DELETE again, unasked, when a server has closed without an
    # answer. A DELETE that landed is then followed by a 404.
    method = error.request_info.method
    if method in _REPEATED_BY_AIOHTTP and not error.history:
        return Answer.MAYBE, f"HTTP {error.status}, but aiohttp repeats {method} by itself"
    return _code(error.status, error.history)


# ---- looking into an error -----------------------------------------------------------------------------------------


def _by_phase(error: BaseException) -> Judged:
    """Not sent when it was raised while connecting, shaking hands or starting the program; else maybe."""
    places = [_place(frame) for frame in _frames(error)]
    before = [place for place in places if place in _BEFORE] + [place for place in places[-1:] if place in _GIVES_UP]
    if before:
        return Answer.NOT_SENT, f"raised by {before[0][0]}.{before[0][1]}"
    return Answer.MAYBE, "nothing shows that it was raised before the request"


def _head_refused(error: BaseException) -> Judged:
    """Not sent when the request's head was illegal; else maybe."""
    # The same class also says "too little data for declared Content-Length", when most of the body has left.
    if str(error).startswith("Illegal "):
        return Answer.NOT_SENT, "the head was refused before it was written"
    return Answer.MAYBE, _PART


def _prepared(error: BaseException) -> Judged:
    """Not sent when the request could not be prepared; maybe when it wraps an error of the response."""
    if error.args and isinstance(error.args[0], str):
        return Answer.NOT_SENT, "the request could not be prepared"
    return Answer.MAYBE, _UNREAD


def _wrapped(error: BaseException) -> Judged:
    """By the error that it wraps."""
    inner = getattr(error, "reason", None) or getattr(error, "original_error", None)
    if inner is None:
        inner = error.args[0] if error.args else None
    if isinstance(inner, str) and inner.startswith(("unknown url type", "no host given")):
        return Answer.NOT_SENT, _URL
    if not isinstance(inner, BaseException):
        return Answer.MAYBE, "it wraps no error"
    # http.client reports a proxy's refusal of CONNECT as a plain OSError.
    if type(inner) is OSError and str(inner).startswith("Tunnel connection failed"):
        return Answer.NOT_SENT, _TUNNEL
    found, why = _judged(inner)
    return found, f"{type(inner).__name__}: {why}"


def _smtp_data(error: Any) -> Judged:
    """Rejected with a code of 400 to 599; maybe on LMTP, which answers for each recipient."""
    for frame in _frames(error):
        if any(cls.__name__ == "LMTP" for cls in type(frame.f_locals.get("self")).__mro__):
            return Answer.MAYBE, "LMTP answers for each recipient"
    refused = 400 <= error.smtp_code <= 599  # noqa: PLR2004 (SMTP's refusals)
    return (Answer.REJECTED if refused else Answer.MAYBE), f"SMTP {error.smtp_code} in answer to DATA"


_NO: Final = Answer.NOT_SENT
_REFUSED: Final = Answer.REJECTED
_MAYBE: Final = Answer.MAYBE
_CONNECT: Final = "no connection, so no request"
_PART: Final = "some of the request may have arrived"
_LOST: Final = "the request has left, its answer is lost"
_URL: Final = "the address was refused before connecting"
_LATER: Final = "an exchange has taken place before"
_TUNNEL: Final = "the proxy made no tunnel"

_ANSWER: Final = "the server has answered"
_UNREAD: Final = "an answer came and cannot be read"
_AIO: Final = "aiohttp.client_exceptions"
ROWS: Final = (
    Row("httpx", "ConnectError ConnectTimeout", _NO, _CONNECT),
    Row("httpx", "PoolTimeout", _NO, "no connection became free"),
    Row("httpx", "ProxyError", _NO, _TUNNEL),
    Row("httpx", "UnsupportedProtocol InvalidURL", _NO, _URL),
    Row("httpx", "LocalProtocolError", _head_refused, "the head is checked before it is written"),
    Row("httpx", "HTTPStatusError", _response_code, _ANSWER),
    Row("httpx", "WriteError WriteTimeout", _MAYBE, _PART),
    Row("httpx", "ReadError ReadTimeout RemoteProtocolError CloseError", _MAYBE, _LOST),
    Row("httpx", "DecodingError", _MAYBE, _UNREAD),
    Row("httpx", "TooManyRedirects", _MAYBE, _LATER),
    Row("requests.exceptions", "ConnectTimeout", _NO, _CONNECT),
    Row("requests.exceptions", "MissingSchema InvalidSchema InvalidURL InvalidProxyURL", _NO, _URL),
    Row("requests.exceptions", "InvalidJSONError", _NO, "the body could not be encoded"),
    Row("requests.exceptions", "InvalidHeader", _prepared, "also raised for headers of the response"),
    Row("requests.exceptions", "ConnectionError ProxyError SSLError", _wrapped, "also raised for a lost answer"),
    Row("requests.exceptions", "HTTPError", _response_code, _ANSWER),
    Row("requests.exceptions", "ReadTimeout ChunkedEncodingError", _MAYBE, _LOST),
    Row("requests.exceptions", "ContentDecodingError JSONDecodeError", _MAYBE, _UNREAD),
    Row("requests.exceptions", "RetryError TooManyRedirects", _MAYBE, _LATER),
    Row("urllib3.exceptions", "NewConnectionError NameResolutionError ConnectTimeoutError", _NO, _CONNECT),
    Row("urllib3.exceptions", "EmptyPoolError", _NO, "no connection became free"),
    Row("urllib3.exceptions", "LocationParseError LocationValueError URLSchemeUnknown", _NO, _URL),
    Row("urllib3.exceptions", "MaxRetryError ProxyError SSLError", _wrapped, "also raised for a lost answer"),
    Row("urllib3.exceptions", "ProtocolError ReadTimeoutError", _MAYBE, _LOST),
    Row("urllib.error", "URLError", _wrapped, "also raised for a broken sending"),
    Row("urllib.error", "HTTPError", _urllib_code, _ANSWER),
    Row("urllib.error", "ContentTooShortError", _MAYBE, _LOST),
    Row("http.client", "InvalidURL", _NO, _URL),
    Row("http.client", "RemoteDisconnected BadStatusLine IncompleteRead", _MAYBE, _LOST),
    Row(_AIO, "ClientConnectorError ClientConnectorDNSError UnixClientConnectorError", _NO, _CONNECT),
    Row(_AIO, "ClientConnectorSSLError ClientConnectorCertificateError", _NO, _CONNECT),
    Row(_AIO, "ConnectionTimeoutError ServerFingerprintMismatch", _NO, _CONNECT),
    Row(_AIO, "ClientProxyConnectionError ClientHttpProxyError", _NO, _TUNNEL),
    Row(_AIO, "InvalidURL InvalidUrlClientError NonHttpUrlClientError", _NO, _URL),
    Row(_AIO, "ClientResponseError ContentTypeError", _aiohttp_code, _ANSWER),
    Row(_AIO, "InvalidUrlRedirectClientError NonHttpUrlRedirectClientError TooManyRedirects", _MAYBE, _LATER),
    Row(_AIO, "ClientOSError ClientConnectionResetError", _MAYBE, _PART),
    Row(_AIO, "ServerDisconnectedError ServerTimeoutError SocketTimeoutError ClientPayloadError", _MAYBE, _LOST),
    Row("smtplib", "SMTPConnectError", _NO, "the server took no mail at all"),
    Row("smtplib", "SMTPNotSupportedError", _NO, "refused by smtplib, before the mail"),
    Row("smtplib", "SMTPHeloError SMTPAuthenticationError SMTPSenderRefused", _REFUSED, "refused before the message"),
    Row("smtplib", "SMTPRecipientsRefused", _REFUSED, "no recipient was accepted, the message was not sent"),
    Row("smtplib", "SMTPDataError", _smtp_data, "RFC 5321, 4.2.5: after 4yz or 5yz the server must not deliver"),
    Row("smtplib", "SMTPResponseException", _MAYBE, "also the answer to QUIT, after the mail was accepted"),
    Row("smtplib", "SMTPServerDisconnected", _MAYBE, "perhaps between the message's end and its answer"),
    Row("subprocess", "CalledProcessError TimeoutExpired", _MAYBE, "the program has run"),
    Row("socket", "gaierror", _NO, "the name has no address"),
    Row("ssl", "SSLCertVerificationError", _NO, "the certificate is checked before the request"),
    Row("ssl", "SSLError", _by_phase, "a connection can break at any time"),
    Row("poimen.secrecy.named", "SecretMissing", _NO, "without it no request can be made"),
    Row("builtins", "ConnectionRefusedError", _NO, "only connecting is refused"),
    Row("builtins", "OSError", _by_phase, "a reset, a timeout or a lost route also ends a connection that has sent"),
)
"""What is known. A class that somebody else derived inherits nothing: who knows when it is raised?"""

_BY_NAME: Final = {f"{row.module}.{name}": row for row in ROWS for name in row.names.split()}
_RAW: Final = frozenset({"builtins", "socket", "ssl", "http.client"})
"""Modules whose errors other libraries wrap: below a wrapper they are its cause, not an exchange of their own."""


# ---- where an error was raised ----------------------------------------------------------------------------------

_BEFORE: Final = frozenset(
    {
        ("socket", "create_connection"),
        ("ssl", "do_handshake"),
        ("asyncio.base_events", "_connect_sock"),
        ("asyncio.selector_events", "sock_connect"),
        ("asyncio.sslproto", "_on_handshake_complete"),
        ("subprocess", "_execute_child"),
        ("urllib3.util.connection", "create_connection"),
    }
)
"""Functions that have ended, when one of them raises, before the request or the program began."""

_GIVES_UP: Final = frozenset({("asyncio.base_events", "create_connection")})
"""As `_BEFORE`, but only where they raise themselves: "Multiple exceptions", one for each address."""


def _chain(error: BaseException) -> list[BaseException]:
    """The error, its causes and contexts, each once, 32 at most."""
    found: list[BaseException] = [error]
    for link in found:
        for behind in (link.__cause__, link.__context__):
            if behind is not None and all(behind is not one for one in found) and len(found) < 32:  # noqa: PLR2004
                found.append(behind)
    return found


def _frames(error: BaseException) -> list[FrameType]:
    """The frames that the error went through, each once (one that raised it again stands there twice)."""
    found: dict[int, FrameType] = {}
    trace = error.__traceback__
    while trace is not None:
        found[id(trace.tb_frame)] = trace.tb_frame
        trace = trace.tb_next
    return list(found.values())


def _place(frame: FrameType) -> tuple[str, str]:
    return str(frame.f_globals.get("__name__")), frame.f_code.co_name


def _redirected(frame: FrameType) -> str:
    return "a redirect was followed" if frame.f_locals.get("history") else ""


def _repeated(frame: FrameType) -> str:
    local = frame.f_locals
    again = local.get("retry_persistent_connection") is False and local.get("method") in _REPEATED_BY_AIOHTTP
    return _redirected(frame) or ("aiohttp has sent the request again" if again else "")


_SIGNS: Final[dict[tuple[str, str], Callable[[FrameType], str]]] = {
    ("urllib.request", "http_error_302"): lambda _: "a redirect was followed",
    ("requests.sessions", "resolve_redirects"): lambda _: "a redirect was followed",
    ("httpx._client", "_send_handling_redirects"): _redirected,
    ("aiohttp.client", "_request"): _repeated,
}
"""Functions of clients that do more than one exchange, and how that shows while they run."""


def _second_exchange(error: BaseException) -> str:
    """What shows that the client did more than the tool declared; "" when nothing shows it."""
    for link in _chain(error):
        frames = _frames(link)
        for frame in frames:
            sign = _SIGNS.get(_place(frame))
            if sign is not None and (seen := sign(frame)):
                return seen
        if [_place(frame) for frame in frames].count(("urllib3.connectionpool", "urlopen")) > 1:
            return "urllib3 has sent the request again"
    return _earlier_unknown(error)


def _earlier_unknown(error: BaseException) -> str:
    """A tool that catches a lost answer and tries again leaves the lost one as the context of the next."""
    own = _row(type(error))
    wraps = own is not None and own.module not in _RAW and isinstance(own.says, Answer)
    for link in _chain(error)[1:]:
        row = _row(type(link))
        if row is None or _look(row, link)[0] is not Answer.MAYBE:
            continue
        if row.module not in _RAW or (isinstance(link, (ConnectionError, TimeoutError)) and not wraps):
            return f"an earlier {type(link).__name__} of the same call"
    return ""


# ---- the question -------------------------------------------------------------------------------------------------


def _row(cls: type) -> Row | None:
    """The row of a class: its own, or that of a base in the same library."""
    for base in cls.__mro__:
        row = _BY_NAME.get(f"{base.__module__}.{base.__qualname__}")
        if row is not None and _is_loaded(base):
            return row if base is cls or _root(base) == _root(cls) else None
    return None


def _root(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _is_loaded(cls: type) -> bool:
    """Whether the class is the one that its module has: a name alone proves nothing."""
    found: object = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is cls


def _look(row: Row, error: BaseException) -> Judged:
    if isinstance(row.says, Answer):
        return row.says, row.why
    try:
        return row.says(error)
    except Exception as broken:  # noqa: BLE001 (an error of a foreign library may lack anything)
        return Answer.MAYBE, f"it cannot be looked into: {type(broken).__name__}"


def _judged(error: BaseException) -> Judged:
    row = _row(type(error))
    return (Answer.MAYBE, "no row in the table of known errors") if row is None else _look(row, error)


def answer(error: BaseException) -> Judged:
    """What an error says about the one exchange of its call.

    Arguments:
        error: as the tool's body raised it, with its traceback and its chain.

    Returns:
        The answer, and the reason in one phrase.

    Source: design protocol.md, section 3 (built-in knowledge with `exchanges=1`).
    """
    found, why = _judged(error)
    if found is not Answer.MAYBE and (seen := _second_exchange(error)):
        return Answer.MAYBE, f"{why}; but {seen}"
    return found, why
