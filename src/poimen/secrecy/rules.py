"""What is secret: found in values before they are stored, taken out of texts for people.

A value is never changed, because what code is told must be what is stored: whoever stores it asks `find` and refuses.
A text for people (an error's message, evidence, a reason) is stored without its secrets: `redacted`. This module is
pure: it must never know settings, files or the log. It keeps the invariants that nothing it says of a secret holds the
secret, and that a value in which the first look finds nothing costs that look alone.

Source: docs/decisions/0014-secrets.md.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, quote_plus

from poimen.secrecy.shapes import ESCAPES, NAMES, PLACEHOLDER, SHAPES, is_credentials, name_pattern, plain_name, sieve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

REDACTED: Final = "[redacted]"

_SHORTEST: Final = 6
"""Characters of a revealed value that is sought in texts: a shorter one would be found in ordinary words."""

_PLAIN_WORD: Final = 12
"""Letters of a word behind `password: ` that is taken for prose."""

_TAIL: Final = 4096
"""Characters dropped at the end of a text that was cut before it was looked at: half a secret has no shape."""

_SHOWN_KEY: Final = 40


@dataclass(frozen=True, slots=True)
class Found:
    """A secret in a value: where, as the end of a path, and what it is. Neither shows it."""

    path: str
    what: str


class Rules:
    """What counts as secret.

    Arguments:
        names: names under which a text is secret, beside the built-in ones.
        patterns: further shapes, as regular expressions.
        allow: built-in names and ids of shapes that do not count.
        active: False: nothing is secret.
    """

    def __init__(
        self, *, names: Iterable[str] = (), patterns: Iterable[str] = (), allow: Iterable[str] = (), active: bool = True
    ) -> None:
        allowed = {plain_name(one) for one in allow}
        spelled = [name for name in (*NAMES, *names) if plain_name(name) not in allowed]
        self.active = active
        self._names = {plain_name(name) for name in spelled}
        self._spelled = spelled
        self._shapes = [shape for shape in SHAPES if shape.id not in allowed]
        self._patterns = [re.compile(one) for one in patterns]
        self._revealed: tuple[_Form, ...] = ()
        self._beside = bool(self._patterns)

    @cached_property
    def _first_look(self) -> re.Pattern[bytes]:
        return sieve(self._spelled, self._shapes, behind_name='"')

    @cached_property
    def _look_at_text(self) -> re.Pattern[bytes]:
        return sieve(self._spelled, self._shapes, behind_name="")

    @cached_property
    def _any_shape(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?P<{shape.id}>{shape.pattern})" for shape in self._shapes) or "(?!)")

    @cached_property
    def _says(self) -> dict[str, str]:
        return {shape.id: shape.says for shape in self._shapes}

    @cached_property
    def _pairs(self) -> re.Pattern[str]:
        """A name, what parts it from its value, and the value: quoted, behind a scheme, or one word."""
        names = "|".join(name_pattern(name) for name in sorted(self._spelled, key=len, reverse=True))
        quoted = r"\"(?:[^\"\\]|\\.){0,4096}\"|'(?:[^'\\]|\\.){0,4096}'|\\{1,3}\"[^\"\\]{0,4096}\\{1,3}\""
        word = r"(?:(?:bearer|basic|token|digest)\s{1,8})?[^\s,;&\"'<>(){}\[\]\\]{1,4096}"
        return re.compile(
            rf"(?:(?<![a-z0-9])|(?<=\\[nrtbf]))(?P<name>{names or '(?!)'})"
            rf"(?P<parts>[\\\"'\]]{{0,4}}\s{{0,4}}(?:=>|[:=])\s{{0,4}})(?P<value>{quoted}|{word})",
            re.IGNORECASE,
        )

    # ---- in values -------------------------------------------------------------------------------------------

    def hides(self, name: str) -> bool:
        """Whether what stands under a name is secret."""
        return self.active and plain_name(name) in self._names

    def find(self, body: bytes, parsed: Callable[[bytes], Any]) -> Found | None:
        """The first secret in a stored value; None, nearly always, after one look at its bytes.

        Arguments:
            body: JSON, UTF-8.
            parsed: reads it, when the look was not enough.
        """
        if not self.active:
            return None
        plain = body.lower()
        if b"\\" in plain:
            plain = ESCAPES.sub(b"\n", plain)
        if self._first_look.search(plain) is None and not (self._beside and self._holds(body)):
            return None
        found = self._in_tree(parsed(body), hidden="")
        return None if found is None else Found("".join(reversed(found[0])), found[1])

    def in_text(self, text: str) -> str:
        """What a text holds that is secret (`a GitHub token`), by its shape alone; "" for nothing."""
        if not self.active:
            return ""
        if any(form.text in text for form in self._revealed):
            return "a secret that was revealed here"
        if any(pattern.search(text) for pattern in self._patterns):
            return "what a configured pattern says is secret"
        if not self._looks_secret(text):
            return ""
        return next((self._says[str(hit.lastgroup)] for hit in self._any_shape.finditer(text) if _is_real(hit)), "")

    def in_name(self, name: str) -> str:
        """The same for what identifies (a run, a decision, a step): it stands in every list, and is never changed."""
        what = self.in_text(name)
        return what or ("a text under a name that says so" if self.redacted(name) != name else "")

    def in_bytes(self, data: bytes) -> str:
        """The same for bytes of any kind."""
        if not self.active or (self._first_look.search(b"\n" + data.lower()) is None and not self._beside):
            return ""
        return self.in_text(data.decode("utf-8", "replace"))

    def _holds(self, body: bytes) -> bool:
        """Whether JSON may hold what no beginning tells: what fits a configured pattern, or was revealed."""
        if self._patterns:
            return True
        return any(form.stored in body for form in self._revealed)

    def _in_tree(self, tree: Any, *, hidden: str) -> tuple[list[str], str] | None:
        """The path from the inner end, and what is there. `hidden`: the name above that makes texts secret."""
        if type(tree) is str:
            if hidden and tree.strip() and not PLACEHOLDER.fullmatch(tree.strip()):
                return [], f"a text under the name {hidden!r}"
            what = self.in_text(tree)
            return ([], what) if what else None
        if type(tree) is list:
            for n, one in enumerate(tree):
                if (found := self._in_tree(one, hidden=hidden)) is not None:
                    found[0].append(f"[{n}]")
                    return found
            return None
        if type(tree) is not dict:
            return None
        if len(tree) == 2 and "$type" in tree and "value" in tree:  # noqa: PLR2004 (how a value carries its class)
            if tree["$type"] == "pairs" and type(tree["value"]) is list:
                return self._in_items([pair for pair in tree["value"] if type(pair) is list and len(pair) == 2])  # noqa: PLR2004
            return self._in_tree(tree["value"], hidden=hidden)
        return self._in_items(tree.items())

    def _in_items(self, items: Iterable[Any]) -> tuple[list[str], str] | None:
        for key, one in items:
            if what := self.in_text(key) if type(key) is str else "":
                return [".<a key>"], what
            named = key[:_SHOWN_KEY] if type(key) is str and self.hides(key) else ""
            if (found := self._in_tree(one, hidden=named)) is not None:
                found[0].append(f".{str(key)[:_SHOWN_KEY]}")
                return found
        return None

    def _looks_secret(self, text: str) -> bool:
        """Whether a secret may begin in a text: a tenth of the cost of a look for whole ones."""
        plain = f"\n{text}".lower().encode("utf-8", "replace")
        return self._look_at_text.search(ESCAPES.sub(b"\n", plain) if b"\\" in plain else plain) is not None

    # ---- in texts for people ---------------------------------------------------------------------------------

    def redacted(self, text: str, *, most: int | None = None) -> str:
        """A text with `[redacted]` in the place of each secret.

        Arguments:
            text: of any length.
            most: only so many characters of it are wanted: what is behind them is not looked at.
        """
        if not self.active:
            return text if most is None else text[:most]
        if most is not None and len(text) > most + 2 * _TAIL:
            text = self._without(text[: most + 2 * _TAIL])[:-_TAIL]
        else:
            text = self._without(text)
        return text if most is None else text[:most]

    def _without(self, text: str) -> str:
        if not self._beside and not self._looks_secret(text):
            return text
        for form in self._revealed:
            text = text.replace(form.text, REDACTED)
        for pattern in self._patterns:
            text = pattern.sub(REDACTED, text)
        text = self._any_shape.sub(_shape_redacted, text)
        return self._pairs.sub(_pair_redacted, text)

    # ---- what was revealed -----------------------------------------------------------------------------------

    def learn(self, value: str) -> None:
        """Take note of a secret that was revealed in this process: it counts as one wherever it is met.

        Escaped once, by Python's `repr`, as JSON, as part of a URL or of a form, it is the same secret; so each look
        seeks at most seven texts a secret, one where nothing in it needs an escape. They are made here, once.
        """
        if len(value) < _SHORTEST or any(form.text == value for form in self._revealed):
            return
        forms = {*self._revealed, *(_Form(text, _stored(text)) for text in _escaped(value))}
        self._revealed = tuple(sorted(forms, key=_length, reverse=True))  # at once: threads look through it
        self._beside = True


class _Form(NamedTuple):
    """A text in which a revealed secret may stand, and how that is stored inside of JSON."""

    text: str
    stored: bytes


def _length(form: _Form) -> int:
    return len(form.text)


def _stored(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")


def _escaped(value: str) -> set[str]:
    """A secret as it is, and as it is when it was escaped once."""
    raw = value.encode("utf-8", "surrogatepass")
    as_json = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    return {value, repr(value)[1:-1], *as_json, quote(raw, safe=""), quote(raw), quote_plus(raw)}


def _hidden(hit: re.Match[str]) -> str:
    """The name of the group that is secret: the shape's own, or a part of it."""
    part = f"hidden_{hit.lastgroup}"
    return part if part in hit.re.groupindex else str(hit.lastgroup)


def _is_real(hit: re.Match[str]) -> bool:
    secret = hit[_hidden(hit)]
    return not PLACEHOLDER.fullmatch(secret) and (hit.lastgroup != "basic" or is_credentials(secret))


def _shape_redacted(hit: re.Match[str]) -> str:
    if not _is_real(hit):
        return hit[0]
    begin, end = hit.span(_hidden(hit))
    return hit[0][: begin - hit.start()] + REDACTED + hit[0][end - hit.start() :]


def _pair_redacted(hit: re.Match[str]) -> str:
    """`password=…` always; `password: …` unless what follows is one ordinary word of prose."""
    value, parts = hit["value"], hit["parts"]
    bare = value.strip("\\\"'")
    is_prose = ":" in parts and value[0] not in "\\\"'" and bare.rstrip(".!?:").isalpha() and len(bare) < _PLAIN_WORD
    if not bare or PLACEHOLDER.fullmatch(bare) or bare in {"None", "null", "True", "False"} or is_prose:
        return hit[0]
    quote = value[: len(value) - len(value.lstrip("\\\"'"))]
    return f"{hit['name']}{parts}{quote}{REDACTED}{quote}"
