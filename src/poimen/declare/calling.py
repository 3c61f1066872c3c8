"""From a declared name to the run that stands behind the call.

The engine sets `CALLER` while a run's code is running; a declared name packs its arguments and hands
them over. Nothing here knows how a call is carried out, and nothing here reaches a body: a call where
no run stands behind it is refused before anything is done. The invariant kept is that the key of a
call is taken inside the call itself, before any await or thread; and that nothing is asked of a run
in a forked child, where neither its loop's thread nor its log's handle exists.

Source: design api.md, "Calling" and "Inside a run"; protocol.md, section 3.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar

from poimen.kernel.errors import StorageFailed, UnguardedEffect

if TYPE_CHECKING:
    from poimen.declare.specs import Options, ToolSpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """Where the code that asks is running.

    Arguments:
        run_id, branch_id: the run and its branch.
        step: the key of the step, empty in the workflow itself.
        attempt: the number of the step's attempt, from 1; 0 in the workflow itself.
        cancelling: why the run is being cancelled; None while it is not.
    """

    run_id: str
    branch_id: str
    step: str
    attempt: int
    cancelling: str | None


class Caller(Protocol):
    """What stands behind a call: the engine's side. One for each workflow, step and tool body."""

    @property
    def pid(self) -> int:
        """The process that it was made in: `os.getpid()` there."""
        ...

    def call(self, spec: ToolSpec, packed: bytes, options: Options, /) -> Coroutine[Any, Any, Any]:
        """Call a tool, model or step from a coroutine.

        The key of the step is taken before this returns; the coroutine only waits for the result.

        Arguments:
            spec: what is called.
            packed: its arguments, as `spec.parameters.pack` made them.
            options: the settings of this call.

        Raises:
            DuplicateKey: when `options.key` is used.
            Suspended: when the run is being parked.
        """
        ...

    def call_sync(self, spec: ToolSpec, packed: bytes, options: Options, /) -> Any:
        """The same from synchronous code; blocks this thread until the result is there.

        Raises:
            WouldBlock: when an event loop runs in this thread.
        """
        ...

    def decide(self, decision_id: str, value: Any, /) -> Any:
        """Record a decision, durable when this returns; gives the recorded value.

        Raises:
            DecisionConflict: when another value is recorded under the id.
        """
        ...

    def settle(self, decision_id: str, /) -> None:
        """Record that a decision has been carried out, durable when this returns."""
        ...

    def request_id(self) -> str:
        """The request id of the effect in whose body, probe or undo this is asked."""
        ...

    def current(self) -> Current:
        """Where the code that asks is running."""
        ...


CALLER: Final[ContextVar[Caller | None]] = ContextVar("poimen_caller", default=None)
"""Who stands behind calls made here; None outside a run."""

# ---- calls of declared names -----------------------------------------------------------------------------------


def begin(
    spec: ToolSpec, options: Options, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Coroutine[Any, Any, Any]:
    """Call a declared name from a coroutine: checked, packed and numbered now, awaited later.

    Raises:
        NotStorable: an argument cannot be stored; nothing has happened.
        UnguardedEffect: no run stands behind the call.
        StorageFailed: called in a forked child.
    """
    packed = spec.parameters.pack(args, kwargs)
    caller = CALLER.get()
    if caller is None:
        _unguarded(spec)
    _refuse_fork(caller, f"the {spec.kind} {spec.name!r}", spec.where)
    return caller.call(spec, packed, options)


def wait(spec: ToolSpec, options: Options, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call a declared name from synchronous code.

    Raises:
        NotStorable: an argument cannot be stored; nothing has happened.
        UnguardedEffect: no run stands behind the call.
        StorageFailed: called in a forked child.
        WouldBlock: an event loop runs in this thread.
    """
    packed = spec.parameters.pack(args, kwargs)
    caller = CALLER.get()
    if caller is None:
        _unguarded(spec)
    _refuse_fork(caller, f"the {spec.kind} {spec.name!r}", spec.where)
    return caller.call_sync(spec, packed, options)


def _refuse_fork(caller: Caller, what: str, where: str = "") -> None:
    """A forked child has its parent's surroundings and not its threads: what waited for them would wait for ever."""
    if os.getpid() != caller.pid:
        raise StorageFailed(
            f"{what} was called in a forked child; the run belongs to process {caller.pid}; a fork does not inherit it",
            where=where,
            why="the run's loop and its log live in that process alone; nothing was done",
            hint="call it before the fork or in the parent; a child starts runs of its own with poimen.run(...)",
        )


def _unguarded(spec: ToolSpec) -> NoReturn:
    raise UnguardedEffect(
        f"the {spec.kind} {spec.name!r} was called where no run stands behind it",
        where=spec.where,
        why="without a run there is no log to write the call to, so nothing was done",
        hint=(
            f"call {spec.name} inside a workflow started by poimen.run(...) or rt.start(...); "
            f"in a thread of your own, poimen.carry().wrap(fn) takes the run along; "
            f"in a test, poimen.testing.raw({spec.name}) is the plain function"
        ),
        name=spec.name,
        kind=spec.kind,
    )


# ---- inside a run ------------------------------------------------------------------------------------------------


def decide(id: str, value: T, /) -> T:
    """Record a decision; it is durable when this returns, before any await can be cancelled.

    A replay records nothing: the value that it brings is compared with the recorded one, and another value, or an
    equal-looking one of another class, stops the run.

    Arguments:
        id: names one choice in the history of the branch: 1 to 500 printable characters.
        value: what was chosen: JSON types, tuples, sets, bytes, datetimes, Decimal, UUID, paths; enums,
            dataclasses, named tuples, attrs classes, msgspec structs, pydantic models, classes with a registered
            codec; and lists, tuples, sets and dicts of those. It is stored by its own class.

    Returns:
        The recorded value: equal to the one given, of the same class, live and replayed.

    Raises:
        DecisionConflict: another value is recorded under this id.
        NotStorable: the value cannot be stored, or would not come back equal; nothing was recorded.
        UnguardedEffect: called outside a run.
        StorageFailed: called in a forked child.

    Source: design protocol.md, section 3, "Decisions".
    """
    caller = _caller("decide")
    _refuse_fork(caller, f"poimen.decide({id!r})")
    recorded: T = caller.decide(id, value)
    return recorded


def settle(id: str, /) -> None:
    """Record that a decision has been carried out: it is no longer owed.

    Arguments:
        id: the id given to `decide`.

    Raises:
        UnguardedEffect: called outside a run.
        StorageFailed: called in a forked child.
    """
    caller = _caller("settle")
    _refuse_fork(caller, f"poimen.settle({id!r})")
    caller.settle(id)


def request_id() -> str:
    """Our name for the effect in whose tool, probe or undo this is asked: the same at every send of it.

    Give it to a far side that dedupes (an idempotency key), or write it where a probe can find it.

    Raises:
        UnguardedEffect: called outside a run.
    """
    return _caller("request_id").request_id()


def current() -> Current:
    """Where the code that asks is running.

    Raises:
        UnguardedEffect: called outside a run.
    """
    return _caller("current").current()


def _caller(name: str) -> Caller:
    caller = CALLER.get()
    if caller is None:
        raise UnguardedEffect(
            f"poimen.{name}() was called where no run stands behind it",
            why="it speaks of the run that it is called in; nothing was done",
            hint=(
                "call it inside a workflow started by poimen.run(...); in a test of a tool's plain function, "
                "with poimen.testing.in_call(): ... stands for the run"
            ),
            name=name,
        )
    return caller
