"""How declared things look to their users and to type checkers.

A declared tool, model, step or workflow is a plain function at run time; the protocols here are its
typed shape. `Call`, `Verifier` and the decorators are real classes. This module must never know how
a call is carried out; it keeps the invariant that the author's parameters and result survive every
decorator.

Source: design api.md, "Calling"; surface.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Protocol, TypeAlias, TypeVar, final, overload

from poimen import effects
from poimen._typing import override
from poimen.declare.specs import OnUnknown, Seconds, called
from poimen.later import not_built

if TYPE_CHECKING:
    from poimen.declare.specs import VerifierSpec, WorkflowSpec
    from poimen.episodes import Verdict, VerifierCtx

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
E_co = TypeVar("E_co", bound=effects.AnyEffect, covariant=True)

# ---- what may be called in a run ---------------------------------------------------------------------------------


class AsyncTool(Protocol[P, T_co]):
    """A declared coroutine function: a tool, model or step. Called, its key is taken now, its result is awaited."""

    __name__: str
    __qualname__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T_co]:
        """Call it; its key is taken now, its result is awaited."""
        ...

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T_co]:
        """The awaitable face: the same as calling it."""
        ...

    def sync(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """The blocking face, for plain workflows and steps."""
        ...

    def options(
        self,
        *,
        key: str | None = ...,
        timeout: Seconds | None = ...,
        attempts: int | None = ...,
        on_indeterminate: OnUnknown | None = ...,
        decision: str | None = ...,
    ) -> AsyncTool[P, T_co]:
        """The same with settings for one call; what is left out stays as declared.

        Arguments:
            key: names the step, where its place in the order of calls should not; unique in a run, without `#`. The
                request id derives from it. Not inside a step, whose effects are numbered.
            timeout: of one send (of a step: in a later version), in seconds or as a timedelta. Not of a PURE tool
                inside a step, whose code it is part of there.
            attempts: how many, the first one included.
            on_indeterminate: what the workflow is told of an unknown: `wait` or `raise`.
            decision: the id of the decision that this call carries out: the outcome settles it.

        Raises:
            DuplicateKey: the key cannot be a step key.
            BadDeclaration: another setting cannot be used.
        """
        ...


class SyncTool(Protocol[P, T_co]):
    """A declared plain function: a tool, model or step. Called, it blocks; where an event loop runs: `WouldBlock`."""

    __name__: str
    __qualname__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Call it and block; where an event loop runs this raises `WouldBlock`."""
        ...

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T_co]:
        """The awaitable face, for coroutines: `await look.aio(...)`."""
        ...

    def sync(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """The blocking face: the same as calling it."""
        ...

    def options(
        self,
        *,
        key: str | None = ...,
        timeout: Seconds | None = ...,
        attempts: int | None = ...,
        on_indeterminate: OnUnknown | None = ...,
        decision: str | None = ...,
    ) -> SyncTool[P, T_co]:
        """The same with settings for one call, as `AsyncTool.options`."""
        ...


AnyTool: TypeAlias = AsyncTool[..., Any] | SyncTool[..., Any]
"""A declared tool, model or step of either colour."""

# ---- workflows -----------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Call(Generic[T_co]):
    """One described, not yet started execution of a workflow: inert, typed, checked for storability.

    Arguments:
        workflow: the workflow's name.
        spec: what is declared of it.
        packed: the arguments as they will be stored.
    """

    workflow: str
    spec: WorkflowSpec
    packed: bytes

    @override
    def __repr__(self) -> str:
        args, kwargs = self.spec.parameters.unpack(self.packed)
        return f"<call of {called(self.workflow, self.spec.parameters.signature.bind(*args, **kwargs))}>"

    if not TYPE_CHECKING:

        def __await__(self) -> NoReturn:
            raise TypeError(
                f"{self!r} has not been started and cannot be awaited: poimen.run(call), "
                "await rt.start(call), or inside a workflow await poimen.child(call)"
            )


class Workflow(Protocol[P, T_co]):
    """A declared workflow; calling it runs nothing and gives a `Call`, checked for what can be stored."""

    __name__: str
    __qualname__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[T_co]:
        """Describe one execution."""
        ...


# ---- verifiers -----------------------------------------------------------------------------------------------------


@final
class Verifier:
    """A declared verifier: judges the frozen episode of a run."""

    __slots__ = ("__poimen_spec__",)

    __poimen_spec__: VerifierSpec

    def __init__(self, spec: VerifierSpec) -> None:
        object.__setattr__(self, "__poimen_spec__", spec)

    @property
    def name(self) -> str:
        """Under which its verdicts are recorded."""
        return self.__poimen_spec__.name

    def __call__(self, ctx: VerifierCtx, /) -> Coroutine[Any, Any, Verdict]:  # noqa: ARG002 (see `poimen.later`)
        """Judge one episode.

        Raises:
            NotBuiltYet: always, in this version.
        """
        not_built("Verifier.__call__")

    @override
    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a verifier cannot be changed: {name}")

    @override
    def __repr__(self) -> str:
        return f"<verifier {self.name}>"


VerifierFn: TypeAlias = "Callable[[VerifierCtx], Verdict | bool | Coroutine[Any, Any, Verdict | bool]]"

# ---- decorators ------------------------------------------------------------------------------------------------------


class _Decorator:
    """A decorator with its settings, waiting for the function."""

    __slots__ = ("_declare",)

    def __init__(self, declare: Callable[[Callable[..., Any]], Any]) -> None:
        self._declare = declare


class ToolDecorator(_Decorator, Generic[E_co]):
    """What `tool(effect=...)` returns. Only `effect` may speak of the tool's parameters."""

    __slots__ = ()

    @overload
    def __call__(
        self: ToolDecorator[effects.ProbingEffect[P, T]], fn: Callable[P, Coroutine[Any, Any, T]], /
    ) -> AsyncTool[P, T]: ...
    @overload
    def __call__(self: ToolDecorator[effects.ProbingEffect[P, T]], fn: Callable[P, T], /) -> SyncTool[P, T]: ...
    @overload
    def __call__(
        self: ToolDecorator[effects.Effect], fn: Callable[P, Coroutine[Any, Any, T]], /
    ) -> AsyncTool[P, T]: ...
    @overload
    def __call__(self: ToolDecorator[effects.Effect], fn: Callable[P, T], /) -> SyncTool[P, T]: ...
    def __call__(self, fn: Callable[..., Any], /) -> Any:
        """Declare the function."""
        return self._declare(fn)


class PlainDecorator(_Decorator):
    """What `model(...)` and `step(...)` return."""

    __slots__ = ()

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncTool[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, T], /) -> SyncTool[P, T]: ...
    def __call__(self, fn: Callable[..., Any], /) -> Any:
        """Declare the function."""
        return self._declare(fn)


class WorkflowDecorator(_Decorator):
    """What `workflow(...)` returns."""

    __slots__ = ()

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]], /) -> Workflow[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, T], /) -> Workflow[P, T]: ...
    def __call__(self, fn: Callable[..., Any], /) -> Any:
        """Declare the function."""
        return self._declare(fn)


class VerifierDecorator(_Decorator):
    """What `verifier(...)` returns."""

    __slots__ = ()

    def __call__(self, fn: VerifierFn, /) -> Verifier:
        """Declare the function."""
        declared: Verifier = self._declare(fn)
        return declared
