"""Made-up secrets, and the search for them: whether anything that a program leaves behind holds one.

Give canaries to your own agent, at every place where a secret could slip in; then search its database, its logs and
what commands print. This module must never know how poimen hides a secret; it keeps the invariant that a canary is
sought by its random part, in plain, in base64 and in hex, whatever stands around it.

Source: docs/decisions/0014-secrets.md.
"""

from __future__ import annotations

import random  # noqa: TID251 (made up, and the same again for the same seed)
import re
import string
from base64 import b64decode, b64encode, urlsafe_b64encode
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_ALNUM: Final = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """A secret that is none.

    Arguments:
        kind: of which form it is, such as `jwt`; see `CANARY_KINDS`.
        value: what a program would pass: a text, or an object with a name that says so.
        text: as it stands in a message, a URL or a header.
        hidden: the random part, by which it is sought.
    """

    kind: str
    value: Any
    text: str
    hidden: str


def _word(n: int, letters: str = _ALNUM) -> Callable[[random.Random], str]:
    return lambda dice: "".join(dice.choices(letters, k=n - 1)) + dice.choice(string.digits)


def _segment(dice: random.Random) -> str:
    return urlsafe_b64encode(f'{{"sub":"{_word(16)(dice)}"}}'.encode()).decode().rstrip("=")


_PARTS: Final[dict[str, Callable[[random.Random], str]]] = {
    "openai": _word(40),
    "anthropic": _word(60),
    "stripe": _word(24),
    "stripe-restricted": _word(24),
    "stripe-webhook": _word(32),
    "aws-id": _word(16, string.ascii_uppercase + string.digits),
    "aws-secret": _word(40, _ALNUM + "/+"),
    "github": _word(36),
    "github-fine": _word(60),
    "gitlab": _word(20),
    "slack": _word(24),
    "google": _word(35),
    "huggingface": _word(34),
    "npm": _word(36),
    "jwt": lambda dice: f"{_segment(dice)}.{_word(43)(dice)}",
    "pem": _word(60, _ALNUM + "+/"),
    "bearer": _word(32),
    "basic": lambda dice: b64encode(f"ann:{_word(20)(dice)}".encode()).decode(),
    "url": _word(16),
    "password": _word(14),
}
_FORMS: Final = {
    "openai": "sk-proj-{}",
    "anthropic": "sk-ant-api03-{}",
    "stripe": "sk_live_{}",
    "stripe-restricted": "rk_live_{}",
    "stripe-webhook": "whsec_{}",
    "aws-id": "AKIA{}",
    "aws-secret": "aws_secret_access_key = {}",
    "github": "ghp_{}",
    "github-fine": "github_pat_{}",
    "gitlab": "glpat-{}",
    "slack": "xoxb-{}",
    "google": "AIza{}",
    "huggingface": "hf_{}",
    "npm": "npm_{}",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.{}",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
    "bearer": "Authorization: Bearer {}",
    "basic": "Basic {}",
    "url": "postgresql://ann:{}@db.internal:5432/shop",
    "password": "password={}",
}
_NAMED: Final = {"aws-secret": "aws_secret_access_key", "password": "password"}

CANARY_KINDS: Final = tuple(_FORMS)
"""The twenty forms of canaries."""


def made_up_secrets(n: int, *, seed: int = 0) -> list[Canary]:
    """Made-up secrets of all forms in turn; the same ones for the same seed.

    Arguments:
        n: how many.
        seed: of the random parts.
    """
    dice = random.Random(seed)  # noqa: S311 (guards nothing)
    found = []
    for number in range(n):
        kind = CANARY_KINDS[number % len(CANARY_KINDS)]
        hidden = _PARTS[kind](dice)
        text = _FORMS[kind].format(hidden)
        value = {_NAMED[kind]: hidden} if kind in _NAMED else text
        found.append(Canary(kind=kind, value=value, text=text, hidden=hidden))
    return found


def canaries_in(sought: Iterable[Canary], *places: Path | bytes) -> list[tuple[str, str]]:
    """The canaries that something holds: for each, its kind and where.

    Arguments:
        sought: those that were given to a program.
        places: files, folders with all that is in them, and bytes, such as what a command has printed.
    """
    contents: list[tuple[str, bytes]] = []
    for place in places:
        if isinstance(place, bytes):
            contents.append(("what was printed", place))
        elif place.is_dir():
            contents += [(str(path), path.read_bytes()) for path in sorted(place.rglob("*")) if path.is_file()]
        else:
            contents.append((str(place), place.read_bytes()))
    held = [(name, data + b"\0" + _decoded(data)) for name, data in contents]
    return [(one.kind, name) for one in sought for name, data in held if one.hidden.encode() in data]


_CODED: Final = re.compile(rb"[A-Za-z0-9+/]{16,}")


def _decoded(data: bytes) -> bytes:
    """What is written in base64, wherever in a group of four characters it begins, and in hex."""
    found = []
    for word in set(_CODED.findall(data)):
        for begin in range(4):
            with suppress(ValueError):
                found.append(b64decode(word[begin : begin + (len(word) - begin) // 4 * 4]))
        with suppress(ValueError):
            found.append(bytes.fromhex(word.decode()))
    return b"\0".join(found)
