"""`override` for the type checkers, on every Python that poimen runs on.

`typing.override` came with Python 3.12; on 3.11 the checkers know it from `typing_extensions`, which
poimen does not need at run time. This module must never know anything else of poimen: it lies below all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

__all__ = ["override"]

if TYPE_CHECKING:
    from typing_extensions import override
else:
    _Method = TypeVar("_Method")

    def override(method: _Method) -> _Method:
        """Mark a method that replaces one of a base class; the checkers verify that there is one."""
        return method
