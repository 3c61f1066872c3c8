"""Texts for people lose their secrets before they are appended: reasons, evidence, tags, errors.

What identifies (run, step, request id, digest) and what users brought (payloads, looked at when they were stored) stays
as it is. This module must never know what a text is for; it keeps the invariant that an event without a secret is
handed back itself.

Source: docs/decisions/0014-secrets.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from poimen.secrecy.rules import REDACTED, Rules
from poimen.secrecy.setting import in_force

if TYPE_CHECKING:
    from poimen.kernel.intent import Json

T = TypeVar("T")

TEXTS: Final = frozenset({"by", "why", "evidence", "detail", "asked", "tags", "summary", "unstorable", "inputs"})
"""Fields that hold words for people."""

INNER: Final = frozenset({"error", "outcome", "reasons", "message", "fields"})
"""Fields that hold such fields."""

_fields: dict[type, tuple[str, ...]] = {}


def redacted_event(event: T) -> T:
    """The event without the secrets in its texts; itself, when there are none.

    Arguments:
        event: an event, or a part of one.
    """
    rules = in_force()
    return _cleaned(event, rules) if rules.active else event


def _cleaned(event: Any, rules: Rules) -> Any:
    cls = type(event)
    names = _fields.get(cls)
    if names is None:
        names = tuple(spec.name for spec in dataclasses.fields(cls) if spec.name in TEXTS | INNER)
        _fields[cls] = names
    changed = {}
    for name in names:
        given = getattr(event, name)
        if given and (clean := _clean(given, rules)) is not given and clean != given:
            changed[name] = clean
    return dataclasses.replace(event, **changed) if changed else event


def _clean(value: Any, rules: Rules) -> Any:
    if isinstance(value, str):
        return rules.redacted(value)
    if isinstance(value, Mapping):
        return {_clean(name, rules): _under(name, each, rules) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_clean(each, rules) for each in value)
    return _cleaned(value, rules) if dataclasses.is_dataclass(value) else value


def _under(name: object, value: Json, rules: Rules) -> Json:
    is_secret = isinstance(name, str) and isinstance(value, str) and value and rules.hides(name)
    found: Json = REDACTED if is_secret else _clean(value, rules)
    return found
