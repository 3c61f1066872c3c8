"""Which rules are in force in this process: one setting, found as the database is.

`POIMEN_SECRETS` in the environment, else `[tool.poimen] secrets` of the nearest pyproject.toml that has it, else the
built-in rules. It is looked up once, when the first value is stored. This module must never know what is stored; it
keeps the invariant that a setting which cannot be understood is an error, and never the same as none.

Source: docs/decisions/0014-secrets.md; design api.md, "Configuration".
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from poimen import project
from poimen.kernel.errors import ConfigurationError
from poimen.secrecy.rules import Rules
from poimen.secrecy.shapes import NAMES, SHAPES, plain_name

VARIABLE: Final = "POIMEN_SECRETS"
_KEYS: Final = ("names", "patterns", "allow")

_rules: Rules | None = None
_source = ""


def in_force() -> Rules:
    """The rules of this process.

    Raises:
        ConfigurationError: the setting cannot be understood.
    """
    return _rules or _look()


def source() -> str:
    """What decided, for people."""
    in_force()
    return _source


def _look() -> Rules:
    global _rules, _source
    try:
        cwd = Path.cwd()
    except FileNotFoundError:
        cwd = Path("/")
    _rules, _source = rules_of(os.environ, cwd)
    return _rules


def rules_of(environ: Mapping[str, str], cwd: Path) -> tuple[Rules, str]:
    """The rules that the surroundings ask for, and what decided.

    Arguments:
        environ: the environment.
        cwd: where to look from, absolute.

    Raises:
        ConfigurationError: the setting cannot be understood.
    """
    switch = environ.get(VARIABLE, "")
    if switch not in {"", "on", "off"}:
        raise ConfigurationError(f"{VARIABLE} is neither on nor off", hint=f"{VARIABLE}=off, or leave it out")
    if switch == "off":
        return Rules(active=False), f"off: {VARIABLE} in the environment"
    found = project.setting(cwd, "secrets")
    if found is None:
        return Rules(), "the built-in rules"
    file, said = found
    if said == "off":
        if switch == "on":
            return Rules(), f"the built-in rules: {VARIABLE} in the environment"
        return Rules(active=False), f"off: [tool.poimen] secrets in {file}"
    return _ruled(said, str(file)), f"[tool.poimen] secrets in {file}"


def _ruled(said: Any, where: str) -> Rules:
    if not isinstance(said, Mapping):
        raise _wrong("secrets is neither a table nor 'off'", where)
    for key, words in said.items():
        if key not in _KEYS:
            raise _wrong(f"secrets has no key {key!r}: there are {', '.join(_KEYS)}", where)
        if not isinstance(words, list) or not all(isinstance(one, str) and one for one in words):
            raise _wrong(f"secrets.{key} is no list of texts", where)
    known = {plain_name(name) for name in NAMES} | {shape.id for shape in SHAPES}
    if strange := [one for one in said.get("allow", ()) if plain_name(one) not in known]:
        kinds = ", ".join(shape.id for shape in SHAPES)
        raise _wrong(f"secrets.allow has {strange[0]!r}, which is no built-in name and none of {kinds}", where)
    for pattern in said.get("patterns", ()):
        try:
            empty = re.compile(pattern).search("") is not None
        except re.error as error:
            raise _wrong(f"a pattern of secrets.patterns is no regular expression: {error}", where) from error
        if empty:
            raise _wrong("a pattern of secrets.patterns fits the empty text, so it fits everything", where)
    return Rules(names=said.get("names", ()), patterns=said.get("patterns", ()), allow=said.get("allow", ()))


def _wrong(what: str, where: str) -> ConfigurationError:
    return ConfigurationError(f"[tool.poimen] {what}", where=where, hint="see docs/reference/configuration.md")
