"""What a test may do that a program may not: reach the plain function of a tool, or put another in its place.

`raw` goes past the gate, so it works only after `allow_raw`, which the pytest plugin calls; `replace`
stays behind it: a fake runs between the same three records as the real body. This module must never be
imported by product code. It keeps the invariant that what a test has put in place is gone when its block
ends.

Source: design api.md, "Testing"; requirement write-ahead-intent, step 3.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, overload

from poimen.declare.calling import CALLER, Current
from poimen.declare.specs import ToolSpec, spec_of
from poimen.engine.driving.scopes import BodyScope
from poimen.gate import _call
from poimen.kernel.errors import BadDeclaration, UnguardedEffect
from poimen.later import not_built
from poimen.testing.permission import is_given

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from poimen.declare.shapes import AsyncTool, SyncTool
    from poimen.episodes import EpisodeView, VerifierCtx

P = ParamSpec("P")
T = TypeVar("T")


@overload
def raw(tool: AsyncTool[P, T], /) -> Callable[P, Coroutine[Any, Any, T]]: ...
@overload
def raw(tool: SyncTool[P, T], /) -> Callable[P, T]: ...
def raw(tool: Any, /) -> Any:
    """The plain function behind a tool, model or step: called, it runs at once, without a run and without a record.

    Arguments:
        tool: the declared name.

    Raises:
        UnguardedEffect: `allow_raw` was not called in this process.
        BadDeclaration: the thing is no declared tool, model or step.

    Source: design api.md, "Testing".
    """
    spec = _spec(tool, "raw")
    if not is_given():
        raise UnguardedEffect(
            f"poimen.testing.raw({spec.name}) was asked for in a process that is no test",
            where=spec.where,
            why="a call past the gate leaves no record, and nothing can be said about it after a crash",
            hint="under pytest the plugin of poimen allows it; elsewhere call poimen.testing.allow_raw() first",
            name=spec.name,
        )
    return _call.body(spec.token)


@overload
def replace(
    tool: AsyncTool[P, T], fake: Callable[P, Coroutine[Any, Any, T]], /
) -> AbstractContextManager[list[tuple[Any, ...]]]: ...
@overload
def replace(tool: SyncTool[P, T], fake: Callable[P, T], /) -> AbstractContextManager[list[tuple[Any, ...]]]: ...
def replace(tool: Any, fake: Any, /) -> AbstractContextManager[list[tuple[Any, ...]]]:
    """Put another function in the place of a tool's body for the length of a `with` block.

    The fake runs behind the gate: intents, classes, outcomes and replay are those of the tool.

    Arguments:
        tool: the declared name.
        fake: takes the tool's parameters; a coroutine function where the tool is one.

    Returns:
        A context manager that gives the list of calls: the arguments of each, in the order of the parameters.

    Raises:
        BadDeclaration: the thing is no declared tool, model or step, or the fake has the other colour.
    """
    spec = _spec(tool, "replace")
    if not callable(fake) or asyncio.iscoroutinefunction(fake) != spec.is_async:
        wanted = "a coroutine function" if spec.is_async else "a plain function"
        raise BadDeclaration(
            f"the fake {fake!r} cannot stand for {spec.name}, which is {wanted}",
            where=spec.where,
            hint=f"give {wanted} with the same parameters",
        )
    return _replaced(spec, fake)


@contextmanager
def _replaced(spec: ToolSpec, fake: Callable[..., Any]) -> Iterator[list[tuple[Any, ...]]]:
    calls: list[tuple[Any, ...]] = []
    signature = spec.parameters.signature

    def note(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        bound = signature.bind(*args, **kwargs)
        calls.append((*bound.args, *bound.kwargs.values()))

    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        note(args, kwargs)
        return await fake(*args, **kwargs)

    def plain(*args: Any, **kwargs: Any) -> Any:
        note(args, kwargs)
        return fake(*args, **kwargs)

    bodies = _call._replaced  # noqa: SLF001 (kept there for this function)
    before = bodies.get(spec.token)
    bodies[spec.token] = coroutine if spec.is_async else plain
    try:
        yield calls
    finally:
        if before is None:
            del bodies[spec.token]
        else:
            bodies[spec.token] = before


@contextmanager
def in_call(*, request_id: str = "0" * 32, resources: tuple[object, ...] = ()) -> Iterator[None]:
    """Let code see what a tool's body sees: `poimen.request_id()` and `poimen.current()` answer in the block.

    Arguments:
        request_id: what the body is told.
        resources: open clients that it may ask for; not in this version.

    Raises:
        NotBuiltYet: for `resources`.
    """
    if resources:
        not_built("resource")
    where = Current(run_id="in-call", branch_id="main", step="in_call#0", attempt=1, cancelling=None)
    token = CALLER.set(BodyScope(where, request_id, probing=False))
    try:
        yield
    finally:
        CALLER.reset(token)


def load_episode(path: str) -> EpisodeView:  # noqa: ARG001 (see `poimen.later`)
    """An episode that was exported to a file.

    Raises:
        NotBuiltYet: always, in this version.
    """
    not_built("testing.load_episode")


def verifier_ctx(episode: EpisodeView) -> VerifierCtx:  # noqa: ARG001 (see `poimen.later`)
    """What a verifier is handed for an episode.

    Raises:
        NotBuiltYet: always, in this version.
    """
    not_built("testing.verifier_ctx")


def _spec(tool: object, name: str) -> ToolSpec:
    spec = spec_of(tool)
    if not isinstance(spec, ToolSpec):
        _refuse(tool, name)
    return spec


def _refuse(tool: object, name: str) -> NoReturn:
    said = getattr(tool, "__name__", repr(tool))
    raise BadDeclaration(
        f"poimen.testing.{name} takes a declared tool, model or step, not {said}",
        hint="give the name that @poimen.tool, @poimen.model or @poimen.step has decorated"
        if not inspect.isclass(tool)
        else "give the decorated name, not a class",
    )
