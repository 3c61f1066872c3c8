"""The settings of a project: the table `[tool.poimen]` of the nearest pyproject.toml upward that has one.

Looking creates nothing. This module must never know what a setting means; it keeps the invariant that a key nobody
knows is refused, since it is a misspelt one or hopes for what does not exist.

Source: design api.md, "Configuration".
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, Final

from poimen.kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

KEYS: Final = ("db", "secrets")


def upward(folder: Path) -> Iterator[Path]:
    """A folder and those around it, from the inside."""
    yield folder
    yield from folder.parents


def setting(folder: Path, key: str) -> tuple[Path, Any] | None:
    """A setting from the nearest file upward that has it, and that file; None where there is none.

    Raises:
        ConfigurationError: a file on the way cannot be read, or has a key that nobody knows.
    """
    for one in upward(folder):
        project = one / "pyproject.toml"
        found = _table(project).get(key)
        if found is not None:
            return project, found
    return None


def _table(project: Path) -> Mapping[str, Any]:
    try:
        text = project.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{project} cannot be read: {error}", where=str(project)) from error
    if "poimen" not in text:
        return {}
    try:
        tool = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{project} is not TOML: {error}", where=str(project)) from error
    table = tool.get("poimen", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        return {}
    unknown = next((key for key in table if key not in KEYS), None)
    if unknown is not None:
        raise ConfigurationError(
            f"[tool.poimen] has no key {unknown!r}",
            where=str(project),
            hint=f"there are {' and '.join(KEYS)}; rename or remove it",
        )
    return table
