"""Finds the arms of `match` statements that would swallow a new member of a closed set.

The type checkers prove that a `match` handles every member, but only as long as no arm takes whatever is
left: with one, a new state is absorbed in silence. Any tidy test may use this.
"""

from __future__ import annotations

import ast

_ENUMS = frozenset({"Enum", "StrEnum", "IntEnum", "Flag", "IntFlag"})


def catch_alls(source: str) -> list[str]:
    """The catch-all arms in a module, as `line: arm`.

    A catch-all is `case _`, a bare capture (`case other`), either of them inside `|`, brackets or `as`, with or
    without a guard; `case object()`; and a class pattern that names an Enum of the module as a whole.
    """
    tree = ast.parse(source)
    whole = {"object"} | {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(_last_name(base) in _ENUMS for base in node.bases)
    }
    return [
        f"{arm.pattern.lineno}: case {ast.unparse(arm.pattern)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Match)
        for arm in node.cases
        if _takes_all(arm.pattern, whole)
    ]


def _takes_all(pattern: ast.pattern, whole: set[str]) -> bool:
    if isinstance(pattern, ast.MatchAs):
        return pattern.pattern is None or _takes_all(pattern.pattern, whole)
    if isinstance(pattern, ast.MatchOr):
        return any(_takes_all(part, whole) for part in pattern.patterns)
    if isinstance(pattern, ast.MatchClass):
        return _last_name(pattern.cls) in whole
    return False


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
