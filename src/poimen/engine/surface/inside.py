"""What code inside a run may ask and say, beside calling: time, chance, clients, states, usage.

This module must never know how it is recorded; it keeps the invariant that nothing here answers
where no run stands behind it.

Source: design api.md, "Inside a run".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar, final

from poimen.later import not_built

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from datetime import datetime
    from decimal import Decimal
    from enum import Enum
    from random import Random  # noqa: TID251 (the type only; it is made of recorded bits)
    from uuid import UUID

    from poimen.declare.specs import Seconds

P = ParamSpec("P")
T = TypeVar("T")

Json: TypeAlias = bool | int | float | str | Sequence[Any] | Mapping[str, Any] | None
"""What JSON can say."""

ContextKind: TypeAlias = Literal[
    "system", "task", "history", "memory", "retrieval", "tool_catalogue", "tool_result", "scratch"
]


def now() -> datetime:
    """The time, aware, in UTC: recorded, and the same at each replay.

    Raises:
        NotBuiltYet: always, in this version.
    """
    not_built("now")


def rng() -> Random:
    """A source of chance whose seed is recorded.

    Raises:
        NotBuiltYet: always, in this version.
    """
    not_built("rng")


def uuid4() -> UUID:
    """A random UUID: recorded, and the same at each replay.

    Raises:
        NotBuiltYet: always, in this version.
    """
    not_built("uuid4")


def resource(cls: type[T], /) -> T:
    """The open client of this class that was given to the runtime (`resources=`).

    Arguments:
        cls: its class.

    Raises:
        NotBuiltYet: always, in this version.
    """
    not_built("resource")


def set_state(name: str | Enum, /) -> None:
    """Move the run to another of the states that its workflow declares.

    Arguments:
        name: the state, or a member of an enum that stands for it.

    Raises:
        NotBuiltYet: always, in this version.
    """
    not_built("set_state")


def context(kind: ContextKind, name: str, text: str, *, included: bool = True, why: str = "") -> None:
    """Say what the next model call is given, or was not given, and why.

    Arguments:
        kind: which part of the model's context.
        name: of this piece.
        text: the piece itself.
        included: whether the model got it.
        why: it was left out.

    Raises:
        NotBuiltYet: always, in this version.
    """
    not_built("context")


def usage(
    model: str,
    *,
    input_tokens: int | None,
    output_tokens: int | None,
    cache_read_tokens: int = 0,
    cache_write_tokens: int = 0,
    reasoning_tokens: int = 0,
    cost_usd: Decimal | None = None,
    source: Literal["reported", "estimated"] = "reported",
) -> None:
    """Say what the model call has used. None: unknown, never 0.

    Arguments:
        model: the model's name.
        input_tokens: all that went in.
        output_tokens: all that came out.
        cache_read_tokens: of those that went in, what the far side already had.
        cache_write_tokens: of those that went in, what it kept.
        reasoning_tokens: of those that came out, what was not shown.
        cost_usd: in US dollars.
        source: where the figures come from.

    Raises:
        NotBuiltYet: always, in this version.
    """
    not_built("usage")


def emit(value: object, /, *, durable: bool = True) -> None:
    """Hand a value to those who follow the run.

    Arguments:
        value: any value that can be stored.
        durable: whether it is on disk when this returns.

    Raises:
        NotBuiltYet: always, in this version.
    """
    not_built("emit")


def patched(id: str, /) -> bool:
    """Whether this run goes the new way of a change: true for runs that began with it.

    Arguments:
        id: names the change.

    Raises:
        NotBuiltYet: always, in this version.
    """
    not_built("patched")


def cleanup(seconds: Seconds, /) -> AbstractAsyncContextManager[None]:
    """A block in which effects are allowed although the run is being cancelled.

    Arguments:
        seconds: how long it may take.

    Raises:
        NotBuiltYet: always, in this version.
    """
    not_built("cleanup")


@final
class Carrier:
    """The run as a value, for threads and loops that poimen did not start; made by `carry`."""

    __slots__ = ()

    def attached(self) -> AbstractContextManager[None]:
        """A block in which calls belong to the run.

        Raises:
            NotBuiltYet: always, in this version.
        """
        not_built("Carrier.attached")

    def wrap(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """A function whose calls belong to the run, wherever it is called.

        Raises:
            NotBuiltYet: always, in this version.
        """
        not_built("Carrier.wrap")


def carry() -> Carrier:
    """Take the run along into a thread or loop of your own.

    Raises:
        NotBuiltYet: always, in this version.
    """
    not_built("carry")
