"""The shapes of well known secrets, and the names under which secrets stand: the table, and nothing that uses it.

Each row is as narrow as the form that its issuer documents, because a value that is refused by mistake stops somebody's
work. This module is data; it keeps the invariants that no pattern looks at a text more than a fixed number of times a
character, whatever the text is, and that each shape begins at a place that the first look (`SIEVE`) finds.

Source: the issuers' descriptions of their keys; RFC 7519 (JWT), 7468 (PEM), 6750 (Bearer), 7617 (Basic), 3986 (URLs).
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

NAMES: Final = (
    *("password", "passwd", "passphrase", "secret", "client_secret", "api_key", "api_secret", "x_api_key"),
    *("access_token", "refresh_token", "id_token", "auth_token", "x_auth_token", "session_token", "bearer_token"),
    *("authorization", "proxy_authorization", "set_cookie"),
    *("private_key", "secret_key", "secret_access_key", "aws_secret_access_key", "aws_session_token"),
)
"""Names that say of a text that it is secret, whole names, whatever their case; `-`, `_`, a blank or nothing may part
their words. Not here: `token`, `key`, `pwd`, `cookie`, `credentials`, which as often name something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of secret.

    Arguments:
        id: by which a setting allows it.
        says: what it is, with its article, for messages.
        pattern: of the whole secret. A group `hidden` is the part that is secret, where not all of it is.
        begins: lower-case patterns, without a choice at their beginning, of how it begins behind a separator.
    """

    id: str
    says: str
    pattern: str
    begins: tuple[str, ...]


_START: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf]))"
_BREAK: Final = r"(?:\s|\\{1,8}(?:[nrt]|u000[ad])){0,20}"
_TO_KEY: Final = _BREAK + r"(?:[A-Z][A-Za-z-]{1,30}: ?[^\r\n\\]{1,200}(?:[\r\n]|\\{1,8}[nru])" + _BREAK + r"){0,6}"
"""Between the marker of a key and its first line: breaks, escaped or not, and headers (RFC 1421; OpenPGP)."""
_LONG: Final = r"(?=[^\s\"']{0,200}[0-9])"

SHAPES: Final = (
    Shape(
        id="pem",
        says="a private key",
        pattern=r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?=" + _TO_KEY + r"[A-Za-z0-9+/]{20})"
        r"(?s:.*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z))",
        begins=("----begin ",),
    ),
    Shape(
        id="jwt",
        says="a JSON web token",
        pattern=_START + r"eyJ[\w-]{8,1024}\.[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]{1,})*",
        begins=("eyj[a-z0-9_-]{8}",),
    ),
    Shape(
        id="sk",
        says="an API key",
        pattern=_START + r"sk-(?:(?:proj|svcacct|admin|ant-[a-z]{2,8}[0-9]{2}|or-v[0-9]|lf)-(?=[A-Za-z_-]{0,40}[0-9])"
        r"[\w-]{12,}|(?:[A-Za-z0-9]{1,12}-){0,2}(?=[A-Za-z]{0,40}[0-9]{1,20}[A-Za-z])[A-Za-z0-9]{20,}[\w-]*)",
        begins=("sk-[a-z0-9_-]{12}",),
    ),
    Shape(
        id="stripe",
        says="a Stripe key",
        pattern=_START + r"(?:(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{24,})",
        begins=("sk_(?:live|test)_", "rk_(?:live|test)_", "whsec_"),
    ),
    Shape(
        id="aws",
        says="an AWS access key",
        pattern=r"(?:(?<![A-Za-z0-9+/=])|(?<=\\[nrtbf]))(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9+/=])",
        begins=("akia[a-z0-9]{16}", "asia[a-z0-9]{16}"),
    ),
    Shape(
        id="github",
        says="a GitHub token",
        pattern=_START + r"(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})",
        begins=("gh[pousr]_", "github_pat_"),
    ),
    Shape(id="gitlab", says="a GitLab token", pattern=_START + r"glpat-[\w-]{20,}", begins=("glpat-",)),
    Shape(
        id="slack",
        says="a Slack token",
        pattern=_START + r"(?:(?:xox[a-eoprs]|xapp)-[0-9]{1,20}-[\w-]{8,}|"
        r"xox[a-eprs]-(?=[A-Za-z]{0,40}[0-9])[A-Za-z0-9]{20,}[\w-]*)",
        begins=("xox[a-z]-", "xapp-"),
    ),
    Shape(
        id="google",
        says="a Google key",
        pattern=_START + r"(?:AIza[\w-]{35}(?![\w-])|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,})",
        begins=("aiza[a-z0-9_-]{35}", r"ya29\.", "gocspx-"),
    ),
    Shape(id="sendgrid", says="a SendGrid key", pattern=_START + r"SG\.[\w-]{22}\.[\w-]{43}", begins=(r"sg\.",)),
    Shape(id="hf", says="a Hugging Face token", pattern=_START + r"hf_[A-Za-z0-9]{30,}", begins=("hf_[a-z0-9]{30}",)),
    Shape(id="npm", says="an npm token", pattern=_START + r"npm_[A-Za-z0-9]{36}", begins=("npm_[a-z0-9]{36}",)),
    Shape(
        id="bearer",
        says="a bearer token",
        pattern=_START + r"(?i:bearer)\s{1,8}(?P<hidden_bearer>" + _LONG + r"[\w.~+/-]{16,}={0,2})",
        begins=(r"bearer[\s\\]",),
    ),
    Shape(
        id="basic",
        says="a user's name and password",
        pattern=_START + r"(?i:basic)\s{1,8}(?P<hidden_basic>[A-Za-z0-9+/]{6,}={0,2})(?![\w+/=])",
        begins=(r"basic[\s\\]",),
    ),
    Shape(
        id="url",
        says="a URL with a password",
        pattern=r"(?<=://)[^\s/?#@:\"'<>]{0,200}:(?P<hidden_url>[^\s/?#@\"'<>,;|]{1,400})@(?!sha[0-9]{3}:)",
        begins=(r"//[^/\"?#@\s:]*:[^/\"?#@\s]*@",),
    ),
)
"""What is known. A secret of another form is found by the name that it stands under, or not at all."""

PLACEHOLDER: Final = re.compile(r"[*•x]{3,}|<[^<>]*>|\$\{?\w+\}?|\{\{?[\w. ]*\}?\}|\[redacted\]|\.{3}|…", re.IGNORECASE)
"""What stands in the place of a secret and is none."""


def is_credentials(text: str) -> bool:
    """Whether the word behind `Basic` is what RFC 7617 says: base64 of a user's name, a colon and a password."""
    try:
        plain = b64decode(text, validate=True).decode()
    except ValueError:
        return False
    return ":" in plain[1:] and plain.isprintable()


def name_pattern(name: str) -> str:
    """The pattern of a name in any of its spellings."""
    return "[-_. ]?".join(re.escape(word) for word in re.split(r"[-_. ]", name.lower()))


def plain_name(name: str) -> str:
    """A name without case and separators: what is compared."""
    return re.sub(r"[-_. ]", "", name.lower())


ESCAPES: Final = re.compile(rb"\\(?:[nrtbf]|u[0-9a-f]{4})")
"""Escapes of JSON whose last character would not count as a separator."""


def sieve(names: list[str], shapes: list[Shape], *, behind_name: str) -> re.Pattern[bytes]:
    """One look at lower-case bytes without `ESCAPES` that finds each place where a secret may begin.

    Beginnings are grouped by their first character and tried only behind a separator: seven times as fast as
    one plain choice.

    Arguments:
        names: as settings spell them.
        shapes: those that count.
        behind_name: the pattern of what stands behind a name.
    """
    grouped: defaultdict[str, list[str]] = defaultdict(list)
    named = (name_pattern(name) + behind_name for name in names)
    for begin in [*named, *(one for shape in shapes for one in shape.begins)]:
        grouped[begin[0]].append(begin[1:])
    begins = "|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in sorted(grouped.items()))
    return re.compile(f"[^a-z0-9](?:{begins or '(?!)'})".encode())
