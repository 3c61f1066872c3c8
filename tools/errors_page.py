"""Writes `docs/reference/errors.md` from the error classes themselves: `make docs`.

The page says of each error what `poimen explain CODE` says. A test checks that it is current.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Final

import poimen
from poimen.kernel.errors import PoimenError

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "reference" / "errors.md"

GROUPS: Final = {
    "0": "The base",
    "1": "You: the code or the call",
    "2": "You: the code has changed",
    "3": "What the world answered, and what somebody must decide",
    "4": "This worker must stop",
    "5": "Tell a person",
    "9": "A bug of poimen",
}

HEAD: Final = """\
# Errors

Every error of poimen is a `PoimenError` with a code that stays. A message says what happened, where, why it matters
and how to go on; `poimen explain CODE` prints what stands here. This page is made from the code by `make docs`.
"""


def import_everything() -> None:
    """Import every module of poimen, so that every error class is known."""
    for module in pkgutil.walk_packages(poimen.__path__, "poimen."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)


def error_classes() -> list[type[PoimenError]]:
    """All error classes that poimen itself defines, by code, then by name; two of one code are both here."""
    found: list[type[PoimenError]] = []
    ahead: list[type[PoimenError]] = [PoimenError]
    while ahead:
        cls = ahead.pop()
        ahead.extend(cls.__subclasses__())
        if cls.__module__.partition(".")[0] == "poimen" and cls not in found:
            found.append(cls)
    return sorted(found, key=lambda cls: (cls.code, cls.__name__))


def as_markdown(doc: str) -> str:
    """A docstring with its list of arguments as a list."""
    text = re.sub(r"(?m)^Arguments:$", "Arguments:\n", inspect.cleandoc(doc))
    return re.sub(r"(?m)^    (\w+): ", r"- `\1`: ", text)


def heading(cls: type[PoimenError]) -> str:
    """The heading of an error: its code, its name, and what it is a case of."""
    bases = [base.__name__ for base in cls.__mro__[1:] if issubclass(base, PoimenError)]
    kind = f" (a `{bases[0]}`)" if bases[:1] not in ([], ["PoimenError"]) else ""
    return f"{cls.code} {cls.__name__}{kind}"


def as_anchor(text: str) -> str:
    """What leads to a heading, behind `#`."""
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def render(classes: list[type[PoimenError]]) -> str:
    """The page about these classes, as Markdown."""
    parts = [HEAD]
    group = ""
    for cls in classes:
        if cls.code[2] != group:
            group = cls.code[2]
            parts.append(f"## {GROUPS[group]}\n")
        parts.append(f"### {heading(cls)}\n\n{as_markdown(cls.__doc__ or '')}\n")
        if cls.__dict__.get("hint"):
            parts.append(f"Go on: {cls.hint}\n")
    return "\n".join(parts)


def main() -> None:
    """Write the page."""
    import_everything()
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(error_classes()), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(Path.cwd())}" if PAGE.is_relative_to(Path.cwd()) else f"wrote {PAGE}")


if __name__ == "__main__":
    main()
