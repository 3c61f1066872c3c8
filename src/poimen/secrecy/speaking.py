"""Texts on their way out of the process: without secrets, whoever wrote them.

This module must never know who listens; it keeps the invariant that a line of poimen's own loggers holds no secret,
its traceback included.

Source: docs/decisions/0014-secrets.md.
"""

from __future__ import annotations

import logging

from poimen._typing import override
from poimen.secrecy.setting import in_force


def redacted(text: str, *, most: int | None = None) -> str:
    """A text by the rules in force, see `Rules.redacted`."""
    return in_force().redacted(text, most=most)


class _Redacting(logging.Filter):
    @override
    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        if (clean := redacted(said)) != said:
            record.msg, record.args = clean, None
        if record.exc_info and not record.exc_text:
            traced = _plain.formatException(record.exc_info)
            record.exc_text = clean if (clean := redacted(traced)) != traced else None
        return True


_plain = logging.Formatter()
_redacting = _Redacting()


def logger(name: str) -> logging.Logger:
    """One of poimen's loggers. A filter stands at each of them, because those of a parent see nothing of a child."""
    found = logging.getLogger(name)
    found.addFilter(_redacting)
    return found
