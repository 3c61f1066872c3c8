"""Domain states: what a workflow calls the stages of its own subject, as data.

Declared by a literal in the code or by a TOML file, and checked when they are loaded; the kernel
decides what is a sound set and a legal move. This module must never know what a state means; it
keeps the invariant that `States` that exist have passed that check.

Source: design protocol.md, section 1 (domain states); api.md, "Declaring" (`states=`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any, Final

from poimen._typing import override
from poimen.kernel.domain import Domain
from poimen.kernel.errors import BadDeclaration, ConfigurationError

_KEYS: Final = ("names", "initial", "moves")
_EXAMPLE: Final = 'States({"names": ["new", "sent"], "initial": "new", "moves": {"new": ["sent"]}})'


class States:
    """The states that a workflow may be in, where it starts, and the moves that are allowed.

    Arguments:
        data: `names`: the states; `initial`: where a run begins; `moves`: for each state where it may go,
            none for a final one. Members of an enum stand for their values.
        source: where the data comes from, for messages.

    Raises:
        BadDeclaration: a state is unknown, unreachable or given twice, or there is no initial one.
    """

    __slots__ = ("_domain", "_source")

    def __init__(self, data: Mapping[str, Any], /, *, source: str = "a literal") -> None:
        self._source = source
        self._domain = _domain(data)

    @classmethod
    def load(cls, path: str | PathLike[str], /) -> States:
        """Read a TOML file with `names`, `initial` and a table `[moves]`.

        Arguments:
            path: the file; a relative one is looked up from the current directory.

        Raises:
            ConfigurationError: the file cannot be read or is not TOML.
            BadDeclaration: its states are not sound.
        """
        import tomllib  # noqa: PLC0415 (most workflows read no file)

        file = Path(path)
        try:
            data = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigurationError(
                f"the states cannot be read: {error}", where=str(file), hint="a TOML file like: initial = 'new'"
            ) from error
        try:
            return cls(data, source=str(file))
        except BadDeclaration as error:
            where = f"{file} {error.where}".strip()
            raise BadDeclaration(error.message, where=where, why=error.why, hint=error.hint) from error

    @property
    def domain(self) -> Domain:
        """The checked set, as the kernel knows it."""
        return self._domain

    @property
    def names(self) -> tuple[str, ...]:
        """The states, in the order of their declaration."""
        return self._domain.names

    @property
    def initial(self) -> str:
        """Where a run begins."""
        return self._domain.initial

    def move(self, frm: str | Enum, to: str | Enum) -> str:
        """The state after a move.

        Arguments:
            frm: where it is: a state, or a member of an enum that stands for one.
            to: where it goes, likewise.

        Raises:
            IllegalTransition: the move is not declared.
        """
        return self._domain.move(state_name(frm), state_name(to))

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, States) and self._domain == other._domain

    @override
    def __hash__(self) -> int:
        return hash(self._domain)

    @override
    def __repr__(self) -> str:
        return f"<States {', '.join(self.names)} from {self._source}>"


def state_name(state: str | Enum) -> str:
    """The name of a state that may be given as the member of an enum."""
    if not isinstance(state, Enum):
        return state
    return state.value if isinstance(state.value, str) else state.name


def _domain(data: object) -> Domain:
    if not isinstance(data, Mapping):
        raise BadDeclaration(f"the states are {data!r}, not a mapping", hint=_EXAMPLE)
    unknown = [key for key in data if key not in _KEYS]
    if unknown:
        raise BadDeclaration(
            f"the states have the unknown entry {unknown[0]!r}", why=f"known are {', '.join(_KEYS)}", hint=_EXAMPLE
        )
    missing = [key for key in _KEYS if key not in data and key != "initial"]
    if missing:
        raise BadDeclaration(f"the states have no entry {missing[0]!r}", hint=_EXAMPLE)
    return Domain.of(_named(data["names"]), _named(data.get("initial")), _named(data["moves"]))


def _named(part: Any) -> Any:
    """The same with members of enums replaced by their names; what is no state stays for the check to refuse."""
    if isinstance(part, type) and issubclass(part, Enum):
        return [state_name(member) for member in part]
    if isinstance(part, Enum):
        return state_name(part)
    if isinstance(part, Mapping):
        return {_named(key): _named(value) for key, value in part.items()}
    if isinstance(part, Iterable) and not isinstance(part, str):
        return [_named(each) for each in part]
    return part
