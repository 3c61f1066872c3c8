"""Reads docstrings of this house's form: sentences, then `Arguments:`, `Returns:`, `Raises:`, `Source:`.

Also the string below a value or a type alias, which Python itself does not keep.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

_SECTION: Final = re.compile(r"(Arguments|Attributes|Returns|Yields|Raises|Source):(?: (.*))?")
_ENTRY: Final = re.compile(r" {4}(\*{0,2}\w[\w., ]*): (.*)")


@dataclass(slots=True, kw_only=True)
class Doc:
    """A docstring in its parts.

    Arguments:
        text: the sentences, as Markdown.
        arguments: what each means, by name.
        returns: what is given back.
        raises: the names of errors, and when.
        attributes: what else can be read of an object, by name.
        inherits: there is none of its own.
    """

    text: str = ""
    arguments: dict[str, str] = field(default_factory=dict)
    returns: str = ""
    raises: list[tuple[str, str]] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)
    inherits: bool = False


def read_doc(thing: Any) -> Doc:
    """The docstring of a thing itself."""
    written = getattr(thing, "__doc__", None)
    if not written:
        return Doc(inherits=True)
    sections: dict[str, list[str]] = {"": []}
    at = ""
    for line in inspect.cleandoc(written).splitlines():
        begun = _SECTION.fullmatch(line)
        if begun is not None:
            at = begun[1]
            sections[at] = [f"    {begun[2]}"] if begun[2] else []
        elif at and line and not line.startswith(" "):
            at = "" if at != "Source" else at
            sections[at].append(line)
        else:
            sections[at].append(line)
    arguments = {each: means for names, means in _entries(sections.get("Arguments", [])) for each in names.split(", ")}
    return Doc(
        text="\n".join(sections[""]).strip(),
        arguments={name.lstrip("*"): means for name, means in arguments.items()},
        returns=" ".join(" ".join(sections.get("Returns", [])).split()),
        raises=_entries(sections.get("Raises", [])),
        attributes=dict(_entries(sections.get("Attributes", []))),
    )


def _entries(lines: list[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for line in lines:
        entry = _ENTRY.fullmatch(line)
        if entry is not None:
            found.append((entry[1], entry[2]))
        elif found and line.strip():
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
    return found


def cell(text: str) -> str:
    """A text that can stand in a cell of a table."""
    return " ".join(text.split()).replace("|", r"\|")


# ---- values --------------------------------------------------------------------------------------------------


def value_of(module: str, name: str) -> tuple[str, str]:
    """How a value is written where it is defined, and the string below it.

    Raises:
        LookupError: the module neither defines nor imports it.
    """
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return value_of(str(node.module), name)
        body = getattr(node, "body", None)
        for n, each in enumerate(body if isinstance(body, list) else []):
            targets = each.targets if isinstance(each, ast.Assign) else [getattr(each, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets) and each.value:
                below = body[n + 1] if body and n + 1 < len(body) else None
                return ast.unparse(each.value), inspect.cleandoc(_text_of(below))
    raise LookupError(f"{module}.{name}")


def _text_of(node: ast.AST | None) -> str:
    text = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else ""
    return text if isinstance(text, str) else ""


@cache
def _tree(module: str) -> ast.Module:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise LookupError(module)
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
