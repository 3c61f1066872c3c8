"""Closed bodies: the functions behind declared names, held where only the gate opens them.

A token stands for a function and leads nowhere: the function lies in a mapping of this module, by the
token's identity. This module must never call a body or know why it is opened; it keeps the invariant
that nothing reachable from a token, or from what holds one, is the function.

`opened` belongs to `poimen.gate._call`; an import contract keeps everybody else away from it. Python
is no sandbox: whoever goes looking through the globals of this module finds what is there.

Source: design protocol.md, section 3 (the closed object); architecture.md, "Imports".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn, final
from weakref import WeakKeyDictionary

from poimen._typing import override

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class Token:
    """Stands for one closed function. Equal to itself alone."""

    __slots__ = ("__weakref__", "_name")

    def __init__(self, name: str) -> None:
        self._name = name

    @override
    def __repr__(self) -> str:
        return f"<sealed body of {self._name}>"

    @override
    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be copied or pickled; pickle the declared name")


_bodies: Final[WeakKeyDictionary[Token, Callable[..., Any]]] = WeakKeyDictionary()


def seal(fn: Callable[..., Any]) -> Token:
    """Close a function away; it lives as long as its token.

    Arguments:
        fn: the function that an author has written.
    """
    token = Token(getattr(fn, "__qualname__", type(fn).__qualname__))
    _bodies[token] = fn
    return token


def opened(token: Token) -> Callable[..., Any]:
    """The function behind a token. For `poimen.gate._call` alone."""
    return _bodies[token]


def surroundings(token: Token) -> list[object]:
    """What the body can name: the values of its module and of the functions around it, not the body itself.

    Of a body that is decorated (`functools.wraps`), what the decorated function can name too.

    Used to find the tools that a workflow may call, before it calls them.
    """
    body: Any = _bodies[token]
    found: list[object] = []
    bodies: list[Any] = []
    while body is not None and body not in bodies:
        bodies.append(body)
        found += getattr(body, "__globals__", {}).values()
        for cell in getattr(body, "__closure__", None) or ():
            try:
                found.append(cell.cell_contents)
            except ValueError:  # the name is bound later
                continue
        body = getattr(body, "__wrapped__", None)
    return [value for value in found if not any(value is each for each in bodies)]
