"""Writes `docs/reference/python.md` from the signatures and docstrings of the public names: `make docs`.

What is not in this version is listed apart, from `poimen.later`. A test checks that the page is current, and that
each public name stands on it one time.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import poimen
import poimen.ledger
import poimen.testing
from poimen import effects
from poimen.later import PARTS, SUBJECTS
from tools.docstrings import Doc, cell, read_doc, value_of
from tools.errors_page import as_anchor, heading
from tools.python_sections import (
    ALIASES,
    DECORATORS,
    HEAD,
    INTERNAL,
    LATER,
    LATER_HEAD,
    MADE_BY_USERS,
    SECTIONS,
    SETTINGS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "reference" / "python.md"
WIDTH: Final = 110
STARS: Final[dict[Any, str]] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}

MODULES: Final = {"effects": effects, "ledger": poimen.ledger, "testing": poimen.testing}

# ---- what there is ---------------------------------------------------------------------------------------------


def found(name: str) -> Any:
    """The thing of a name as the page writes it: `tool`, `effects.KEYED`, `Client.start`."""
    at: Any = poimen
    for part in name.split("."):
        at = MODULES[part] if part in MODULES and at is poimen else getattr(at, part)
    return at


def error_names() -> list[str]:
    """The public errors, by code."""
    public = [(name, getattr(poimen, name)) for name in poimen.__all__]
    errors = [(e.code, name) for name, e in public if isinstance(e, type) and issubclass(e, poimen.PoimenError)]
    return [name for _, name in sorted(errors)]


def named() -> list[str]:
    """Every name that the page describes, in its order."""
    in_sections = [name for section in SECTIONS for name in section.names]
    return [*in_sections, *ALIASES, *error_names(), *LATER, *(name for name in PARTS if is_name(name))]


def is_name(part: str) -> bool:
    """Whether an entry of the list of later parts is a public name, and not a setting or a method."""
    return "(" not in part and (part.removeprefix("testing.").isidentifier())


# ---- signatures ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One row of a table."""

    name: str
    type: str
    default: str
    kind: Any


def arguments(thing: Callable[..., Any], *, method: bool = False) -> list[Argument]:
    """The arguments of a function or class as its callers see them: what overloads say better is theirs."""
    own = inspect.signature(thing)
    typed = [inspect.signature(each) for each in typing.get_overloads(inspect.unwrap(thing))]
    rows: list[Argument] = []
    for parameter in [*own.parameters.values()][1 if method else 0 :]:
        seen = [each.parameters[parameter.name] for each in typed if parameter.name in each.parameters]
        written = _text(parameter.annotation)
        if written in {"Any", ""} and seen:
            written = " | ".join(dict.fromkeys(_text(each.annotation) for each in seen))
        needed = bool(seen) and len(seen) == len(typed) and all(each.default is each.empty for each in seen)
        default = "" if needed or parameter.default is parameter.empty else shown(parameter.default)
        rows.append(Argument(name=parameter.name, type=written, default=default, kind=parameter.kind))
    return rows


def _text(annotation: Any) -> str:
    """An annotation as it is written in the source."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return {"E": "effect class", "F": "function"}.get(text, text.replace("effects.", ""))


def shown(default: Any) -> str:
    """A default as a reader writes it."""
    if default is ...:
        return "left out"
    if callable(default) and hasattr(default, "__name__"):
        return str(default.__name__)
    return repr(default).replace("datetime.", "")


def signature(name: str, rows: list[Argument], *, before: str = "", after: str = "") -> str:
    """A call as it is written, wrapped, as a block."""
    parts: list[str] = []
    keyword = False
    for n, row in enumerate(rows):
        if row.kind is inspect.Parameter.KEYWORD_ONLY and not keyword:
            keyword = True
            if not (n and rows[n - 1].kind is inspect.Parameter.VAR_POSITIONAL):
                parts.append("*")
        parts.append(
            f"{STARS.get(row.kind, '')}{row.name}"
            + (f"={row.default}" if row.default and row.default != "left out" else "")
        )
        last = n + 1 == len(rows) or rows[n + 1].kind is not inspect.Parameter.POSITIONAL_ONLY
        if row.kind is inspect.Parameter.POSITIONAL_ONLY and last:
            parts.append("/")
    line = f"{before}{name}({', '.join(parts)}){after}"
    if len(line) > WIDTH:
        lines, at = [f"{before}{name}("], "    "
        for part in parts:
            if len(at) + len(part) > WIDTH:
                lines.append(at.rstrip())
                at = "    "
            at += f"{part}, "
        line = "\n".join([*lines, at.rstrip(" ,"), f"){after}"])
    return f"```text\n{line}\n```\n"


def table(rows: list[Argument], doc: Doc, owner: str, *, fields: bool = False) -> str:
    """The arguments, or the fields of what is given out, as a table that can be scanned."""
    lines = ["| field | type | means |", "|---|---|---|"] if fields else []
    lines = lines or ["| argument | type | default | means |", "|---|---|---|---|"]
    for row in [row for row in rows if f"{owner}.{row.name}" not in INTERNAL]:
        means = doc.arguments.get(row.name, "")
        if f"{owner}({row.name}=)" in PARTS and "in a later version" not in means and "in this version" not in means:
            means = f"*in a later version:* {means}"
        needed = "any number" if row.kind in STARS else "needed"
        name, kind = f"`{STARS.get(row.kind, '')}{row.name}`", f"`{cell(row.type)}`" if row.type else ""
        default = row.default or needed
        default = f"`{cell(default)}`" if default not in {"left out", needed} else default
        lines.append(f"| {' | '.join([name, kind, *([] if fields else [default]), cell(means)])} |")
    return "\n".join(lines) + "\n"


# ---- one thing -------------------------------------------------------------------------------------------------


def described(name: str) -> str:
    """All that the page says of one public name."""
    thing = found(name)
    if isinstance(thing, types.ModuleType):
        return _module(name, thing)
    if isinstance(thing, type):
        return _class(name, thing)
    if callable(thing):
        return _function(name, thing)
    return _value(name)


def _module(name: str, module: types.ModuleType) -> str:
    """A module that is a name of another: for whom it is, and what it holds."""
    text = re.sub(r"This module must.*", "", read_doc(module).text, flags=re.DOTALL).strip()
    lines = [f"- `{each}`: {cell(read_doc(value).text)}" for each, value in getattr(module, "CONTROLS", {}).items()]
    return "\n".join([f"### {name}\n", f"{text}\n", *lines, ""])


def _function(name: str, fn: Callable[..., Any], *, level: str = "###", method: bool = False) -> str:
    doc = read_doc(fn)
    rows = [row for row in arguments(fn, method=method) if not (name in DECORATORS and row.name == "fn")]
    call = f"@poimen.{name}" if name in DECORATORS else name if method else f"poimen.{name}"
    before, after = "", ""
    plain = inspect.unwrap(fn)
    if inspect.iscoroutinefunction(fn):
        before = "await "
    elif inspect.isasyncgenfunction(fn):
        before, after = "async for each in ", ": ..."
    elif plain is not fn and inspect.isgeneratorfunction(plain):
        before, after = "with ", " as found: ..." if "Iterator[None]" not in str(inspect.signature(fn)) else ": ..."
    parts = [f"{level} {name}\n", signature(call, rows, before=before, after=after), doc.text + "\n"]
    if rows and doc.arguments:
        parts.append(table(rows, doc, SETTINGS.get(name, name)))
    return "\n".join([*parts, *_ends(doc)])


def _ends(doc: Doc) -> list[str]:
    parts = [f"Gives: {doc.returns}\n"] if doc.returns else []
    if doc.raises:
        parts.append("Raises:\n\n" + "\n".join(f"- {_errors(names)}: {why}" for names, why in doc.raises) + "\n")
    return parts


def _errors(names: str) -> str:
    return ", ".join(f"[`{name}`](#errors)" if name in error_names() else f"`{name}`" for name in names.split(", "))


def _class(name: str, cls: type) -> str:
    doc = read_doc(cls)
    parts = [f"### {name}\n"]
    made = name in MADE_BY_USERS
    rows = arguments(cls) if made or dataclasses.is_dataclass(cls) else []
    if made:
        parts.append(signature(f"poimen.{name}", rows))
    parts.append(doc.text + "\n")
    if issubclass(cls, enum.Enum):
        parts.append("One of " + ", ".join(f"`{member}`" for member in cls.__members__) + ".\n")
    elif rows and doc.arguments:
        parts.append(table(rows, doc, name, fields=not made))
    elif doc.arguments:
        parts.append("\n".join(f"- `{field}`: {means}" for field, means in doc.arguments.items()) + "\n")
    if doc.attributes:
        parts.append("\n".join(f"- `{name}.{own}`: {means}" for own, means in doc.attributes.items()) + "\n")
    parts += _ends(doc)
    return "\n".join([*parts, *_members(name, cls)])


def _members(name: str, cls: type) -> list[str]:
    """Its public methods and properties: those without a table in one list, the others each under its heading."""
    listed: list[str] = []
    full: list[str] = []
    for own, member in vars(cls).items():
        path = f"{name}.{own}"
        if own.startswith("_") or path in INTERNAL or path in PARTS:
            continue
        doc = read_doc(member.__func__ if isinstance(member, classmethod | staticmethod) else member)
        if isinstance(member, property):
            listed.append(f"- `{path}`: {doc.text}")
        elif doc.inherits:
            continue
        elif isinstance(member, classmethod | staticmethod) or inspect.isroutine(member):
            bound = isinstance(member, classmethod | staticmethod)
            fn = getattr(cls, own)
            if doc.arguments or doc.raises:
                full.append(_function(path, fn, level="####", method=not bound))
            else:
                rows = arguments(fn, method=not bound)
                call = ", ".join(f"{STARS.get(r.kind, '')}{r.name}" for r in rows)
                wait = "await " if inspect.iscoroutinefunction(fn) else ""
                wait = "async for each in " if inspect.isasyncgenfunction(fn) else wait
                listed.append(f"- `{wait}{path}({call})`: {doc.text}")
    return ["\n".join(listed) + "\n", *full] if listed else full


def _value(name: str) -> str:
    _, doc = value_of(*_home(name))
    value = found(name)
    lines = [f"### {name}\n", (doc or inspect.cleandoc(getattr(value, "__doc__", "") or "")) + "\n"]
    if isinstance(value, dict):
        lines.append("\n".join(f"- `{key}`: {means}" for key, means in value.items()) + "\n")
    elif isinstance(value, tuple | int):
        lines.append(f"`{value!r}`\n")
    return "\n".join(lines)


def _home(name: str) -> tuple[str, str]:
    module, _, own = name.rpartition(".")
    return (f"poimen.{module}" if module else "poimen"), own


# ---- the page --------------------------------------------------------------------------------------------------


def aliases() -> str:
    """The short names of types."""
    lines = ["| name | is | means |", "|---|---|---|"]
    for name in ALIASES:
        source, doc = value_of(*_home(name))
        lines.append(f"| `{name}` | `{cell(source)}` | {cell(doc)} |")
    return "\n".join(lines) + "\n"


def errors() -> str:
    """The errors by name."""
    lines = ["| error | code | says |", "|---|---|---|"]
    for name in sorted(error_names()):
        cls = getattr(poimen, name)
        lines.append(f"| `{name}` | [{cls.code}](errors.md#{as_anchor(heading(cls))}) | {cell(cls.title())} |")
    return "\n".join(lines) + "\n"


def later(part: int) -> str:
    """What one of the later parts brings."""
    names = sorted(name for name, brings in PARTS.items() if brings == part)
    rows = [f"| `{name}` | {cell(_first(_later_text(name)))} |" for name in names]
    return "\n".join(["| name | is |", "|---|---|", *rows]) + "\n"


def _later_text(name: str) -> str:
    owner, _, setting = name.removesuffix("=)").partition("(")
    if setting:
        path = next((path for path, short in SETTINGS.items() if short == owner), owner)
        return read_doc(found(path)).arguments[setting].replace("; in a later version", "")
    thing = found(name)
    return read_doc(thing if inspect.isroutine(thing) or isinstance(thing, type) else type(thing)).text


def _first(text: str) -> str:
    return re.split(r"(?<=[^.])\. ", text.replace("\n", " "), maxsplit=1)[0].rstrip(".")


def render() -> str:
    """The page, as Markdown."""
    parts = [HEAD]
    for section in SECTIONS:
        parts.append(f"## {section.title}\n")
        if section.text:
            parts.append(section.text + "\n")
        parts += [described(name) for name in section.names]
    parts += ["## Types in signatures\n", aliases(), "## Errors\n", "What each means: [errors](errors.md).\n", errors()]
    parts.append(LATER_HEAD)
    for part in sorted(set(PARTS.values())):
        parts += [f"### Part {part}: {SUBJECTS[part]}\n", later(part)]
    parts += ["### Types that go with them\n", "\n".join(f"- `{n}`: {_first(read_doc(found(n)).text)}" for n in LATER)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip("\n") + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(Path.cwd())}" if PAGE.is_relative_to(Path.cwd()) else f"wrote {PAGE}")


if __name__ == "__main__":
    main()
