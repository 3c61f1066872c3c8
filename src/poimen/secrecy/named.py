"""`Secret`: the name of where a secret is, for arguments; its value never leaves the tool that asks for it.

Because the name is what is stored, a rotated key is the new one at the next send, and a run that goes on elsewhere
asks there. This module must never keep a value (the rules take note of it, to find it again); it keeps the invariant
that no form of a `Secret` (text, record, pickle) holds more than the name.

Source: docs/decisions/0014-secrets.md.
"""

from __future__ import annotations

import json
import os
import re
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from poimen._typing import override
from poimen.kernel.errors import NotStorable, PoimenError, UnguardedEffect
from poimen.secrecy.setting import in_force

KEY: Final = "$secret"
"""The one key of a stored `Secret`."""

_NAME: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]{0,199}|file:/[^\0-\x1f\x7f]{1,1000}")

IN_CODE: Final[ContextVar[str]] = ContextVar("poimen_secret_in_code", default="")
"""Set in the code of workflows and steps, which asks for no secret: what it has, it hands on as arguments."""


class SecretMissing(PoimenError):
    """A secret is not where its name says.

    The variable is not set, or the file cannot be read, in the process that drives the run. Where the `Secret` is an
    argument of the call, this is found before the tool's body begins, and the call ends as `NotSent`: nothing was sent.
    """

    code = "PO116"
    hint = "set it where the worker runs, then start the worker again"


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """Names a secret, and stands for it where arguments are recorded.

    Give it to workflows, steps and tools as an argument, annotated as `Secret`; the tool's body asks for the value:
    `charge(key=Secret("env:STRIPE_KEY"))`, and inside `key.reveal()`. Two are equal when their names are.

    Arguments:
        name: `env:NAME` of an environment variable, or `file:/path` of a file; never the secret itself.

    Raises:
        NotStorable: it is no such name, and is not shown.
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise NotStorable(
                "a Secret takes the name of where a secret is, and never the secret",
                why="its name is what is stored",
                hint='put the value into the environment and name it: Secret("env:STRIPE_KEY")',
                path="name",
            )

    def reveal(self) -> str:
        """The secret, read now. For the body of a tool, a probe or an undo; keep it no longer than the call takes.

        Returns:
            The variable's value, or the file's text without the line end behind it.

        Raises:
            SecretMissing: it is not there, or is empty.
            UnguardedEffect: asked in the code of a workflow or a step, where it would be lost in a record or a replay.
        """
        if where := IN_CODE.get():
            raise UnguardedEffect(
                f"{self!r}.reveal() was called in the code of a {where}",
                why="what a workflow or a step knows is passed on, and recorded",
                hint="pass the Secret itself to a tool, and call reveal() in the tool's body",
            )
        value = _read(self.name)
        if not value:
            raise _missing(self.name)
        in_force().learn(value)
        return value

    @override
    def __repr__(self) -> str:
        return f"Secret({self.name!r})"

    @override
    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self.name,)


def missing(packed: bytes) -> SecretMissing | None:
    """The error for the first `Secret` among stored arguments that is not there; None: all of them are.

    Arguments:
        packed: arguments as stored.
    """
    if b'"$secret"' not in packed:
        return None
    return next((_missing(name) for name in _names_in(json.loads(packed)) if not _read(name)), None)


def _names_in(tree: Any) -> list[str]:
    if isinstance(tree, list):
        return [name for one in tree for name in _names_in(one)]
    if not isinstance(tree, dict):
        return []
    name = tree.get(KEY)
    if len(tree) == 1 and isinstance(name, str) and _NAME.fullmatch(name):
        return [name]
    return [found for one in tree.values() for found in _names_in(one)]


def _read(name: str) -> str:
    kind, _, rest = name.partition(":")
    if kind == "env":
        return os.environ.get(rest, "")
    try:
        return Path(rest).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError):
        return ""


def _missing(name: str) -> SecretMissing:
    return SecretMissing(f"there is no secret {name}", where=name, why="it is not set here, or is empty")
