"""The five decorators: tool, model, step, workflow, verifier.

Each checks a function, closes it away and puts a plain function in its place. Only `effect=` may
speak of the function's parameters, so that types survive. This module must never know what a call
does; it keeps the invariant that what is declared is complete: no tool is without an effect class.

Source: design api.md, "Declaring"; protocol.md, section 9 (defaults).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar, cast, overload

from poimen import effects
from poimen.declare.making.building import declared_tool, declared_verifier, declared_workflow
from poimen.declare.making.candidate import CHOICES
from poimen.declare.shapes import (
    AnyTool,
    AsyncTool,
    PlainDecorator,
    SyncTool,
    ToolDecorator,
    Verifier,
    VerifierDecorator,
    VerifierFn,
    Workflow,
    WorkflowDecorator,
)
from poimen.declare.specs import Budget, Errors, OnUnknown, Seconds, Summary
from poimen.declare.states import States
from poimen.kernel.errors import BadDeclaration

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=effects.AnyEffect)
F = TypeVar("F", bound=Callable[..., Any])


def _asks_for_an_effect(decorator: F) -> F:
    """Explains itself where `@tool` stands bare or `effect=` is missing; the types stay as they are."""

    @wraps(decorator)
    def checked(*args: Any, **settings: Any) -> Any:
        if args or "effect" not in settings:
            code = getattr(args[0], "__code__", None) if args else None
            name = f" {getattr(args[0], '__qualname__', repr(args[0]))}" if args else ""
            raise BadDeclaration(
                f"@tool{name}: effect= is missing",
                where=f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "",
                why="it says what may be done with a call that a crash has interrupted, and nobody else can know",
                hint=CHOICES,
            )
        return decorator(**settings)

    return cast("F", checked)


def _applied(fn: Callable[..., Any] | None, decorator: Callable[[Any], Any]) -> Any:
    """A decorator that stands bare is applied; one with settings waits for its function."""
    return decorator if fn is None else decorator(fn)


@_asks_for_an_effect
def tool(
    *,
    effect: E,
    name: str | None = None,
    version: str = "1",
    summary: Summary = "",
    stake: Summary = "",
    timeout: Seconds = 60.0,
    grace: Seconds = 5.0,
    attempts: int = 1,
    backoff: Seconds = 1.0,
    rejected: Errors = (),
    not_sent: Errors = (),
    exchanges: int | None = None,
    max_sends: int = 3,
    undo: AnyTool | None = None,
    on_indeterminate: OnUnknown | None = None,
) -> ToolDecorator[E]:
    """Declare a function that acts on the outside world, or looks at it.

    Arguments:
        effect: what may be done with a call that a crash has interrupted: one of `poimen.effects`.
        name: under which it is recorded; the function's own name when left out.
        version: free text, recorded; another version has another probe.
        summary: for people, `"charge {cents} for {order}"`, or a function of the parameters; the call itself when
            left out.
        stake: for people: what is at stake; a text or function as `summary`.
        timeout: how long one send may take, in seconds or as a timedelta; then a coroutine is cancelled, and a plain
            function, which cannot be, is waited for. An absence that a probe finds counts only from timeout + grace
            + lag after the send.
        grace: how long a cancelled or timed-out call has to finish, in seconds or as a timedelta; after that it is an
            unknown.
        attempts: how many, the first one included. A further one is made only where nothing was sent (`NotSent`),
            or a READ or PURE has failed: an unknown is never tried again here, its class says what is done.
        backoff: before the second attempt, in seconds or as a timedelta; doubled for each further one up to 60 s,
            each wait 20 % more or less by chance.
        rejected: exceptions that mean that the far side said no: a type, several, or a predicate.
        not_sent: exceptions that mean that nothing left: likewise.
        exchanges: 1 if one call makes one exchange (no redirects, no client's retries): poimen then knows
            what the exceptions of common clients mean. None: it may be more.
        max_sends: how often one effect may be sent in all, the first send included.
        undo: a tool with the same parameters that takes the effect back; kept for a later version.
        on_indeterminate: what the workflow is told of an unknown: `wait`, nothing until it is resolved; `raise`,
            `IndeterminateOutcome`; None: as its run.

    Raises:
        BadDeclaration: the function or a setting cannot be used.
        NotStorable: a parameter or the result can never be stored.

    Source: design api.md, "Declaring"; protocol.md, section 4.
    """
    settings = dict(locals())  # the parameters by name; checked when the function is there
    return ToolDecorator(lambda fn: declared_tool(fn, "tool", settings))


@overload
def model(fn: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncTool[P, T]: ...
@overload
def model(fn: Callable[P, T], /) -> SyncTool[P, T]: ...
@overload
def model(
    *,
    effect: effects.Effect = ...,
    name: str | None = ...,
    version: str = ...,
    timeout: Seconds = ...,
    attempts: int = ...,
    backoff: Seconds = ...,
    retry_on: Errors | None = ...,
) -> PlainDecorator: ...
def model(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    effect: effects.Effect = effects.READ,
    name: str | None = None,
    version: str = "1",
    timeout: Seconds = 60.0,
    attempts: int = 3,
    backoff: Seconds = 1.0,
    retry_on: Errors | None = None,
) -> Any:
    """Declare a function that asks a model: a metered read.

    Its arguments are the prompt and its result is the output. Where the far side keeps the conversation or
    runs tools itself, asking is an effect: say which.

    Arguments:
        fn: the function, where the decorator stands without settings.
        effect: READ, or the class of what the model's host does beside answering.
        name: under which it is recorded; the function's own name when left out.
        version: free text, recorded.
        timeout: how long one attempt may take, in seconds or as a timedelta; then it has 5 s to finish.
        attempts: how many, the first one included.
        backoff: before the second attempt, in seconds or as a timedelta; doubled for each further one up to 60 s,
            each wait 20 % more or less by chance.
        retry_on: exceptions after which another attempt is made: a type, several, or a predicate. None: `NotSent`,
            and every `Exception` that is not poimen's own.

    Raises:
        BadDeclaration: the function or a setting cannot be used.
        NotStorable: a parameter or the result can never be stored.
    """
    settings = dict(locals())  # the parameters by name; checked when the function is there
    return _applied(fn, PlainDecorator(lambda fn: declared_tool(fn, "model", settings)))


@overload
def step(fn: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncTool[P, T]: ...
@overload
def step(fn: Callable[P, T], /) -> SyncTool[P, T]: ...
@overload
def step(
    *,
    name: str | None = ...,
    version: str = ...,
    attempts: int = ...,
    backoff: Seconds = ...,
    timeout: Seconds = ...,
    queue_timeout: Seconds | None = ...,
    retry_on: Errors | None = ...,
    on_indeterminate: OnUnknown | None = ...,
) -> PlainDecorator: ...
def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: str = "1",
    attempts: int = 3,
    backoff: Seconds = 1.0,
    timeout: Seconds | None = None,
    queue_timeout: Seconds | None = None,
    retry_on: Errors | None = None,
    on_indeterminate: OnUnknown | None = None,
) -> Any:
    """Declare a named unit of work: it is retried as a whole, and the tools it calls are its effects.

    A further attempt is handed what the last one has done, up to its last effect that landed: a broken answer of a
    model is asked anew, a sent mail is not. A step that is called inside a step is part of the outer one.

    Arguments:
        fn: the function, where the decorator stands without settings.
        name: under which it is recorded; the function's own name when left out.
        version: free text, recorded.
        attempts: how many, the first one included.
        backoff: before the second attempt, in seconds or as a timedelta; doubled for each further one up to 60 s,
            each wait 20 % more or less by chance.
        timeout: of one attempt, in seconds or as a timedelta. In a later version: what is given here today is refused
            (`NotBuiltYet`); use `asyncio.timeout` inside the step.
        queue_timeout: how long an attempt may wait to be admitted, in seconds or as a timedelta; None: for ever. In a
            later version, as `timeout`.
        retry_on: exceptions after which another attempt is made: a type, several, or a predicate. None: `NotSent`,
            and every `Exception` that is not poimen's own (`Rejected` and `StepError` are).
        on_indeterminate: what the workflow is told of an unknown: `wait` or `raise`, as for a tool; None: as its run.

    Raises:
        BadDeclaration: the function or a setting cannot be used.
        NotBuiltYet: `timeout` or `queue_timeout` is given.
        NotStorable: a parameter or the result can never be stored.
    """
    settings = dict(locals())  # the parameters by name; checked when the function is there
    return _applied(fn, PlainDecorator(lambda fn: declared_tool(fn, "step", settings)))


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, T]], /) -> Workflow[P, T]: ...
@overload
def workflow(fn: Callable[P, T], /) -> Workflow[P, T]: ...
@overload
def workflow(
    *,
    name: str | None = ...,
    version: str = ...,
    states: States | None = ...,
    verifiers: Sequence[Verifier] = ...,
    timeout: Seconds | None = ...,
    budget: Budget | None = ...,
    on_indeterminate: OnUnknown = ...,
) -> WorkflowDecorator: ...
def workflow(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: str = "1",
    states: States | None = None,
    verifiers: Sequence[Verifier] = (),
    timeout: Seconds | None = None,
    budget: Budget | None = None,
    on_indeterminate: OnUnknown = "wait",
) -> Any:
    """Declare a workflow: calling it describes a run, and `poimen.run` or `rt.start` starts it.

    Arguments:
        fn: the function, where the decorator stands without settings.
        name: under which it is recorded; the function's own name when left out.
        version: free text, recorded.
        states: its domain states, if it has any; checked when it is declared.
        verifiers: what judges its runs.
        timeout: of the whole run, in seconds or as a timedelta; None: none.
        budget: of the whole run; None: none.
        on_indeterminate: what it is told of an unknown, where a tool says nothing else: `wait`, nothing until it is
            resolved; `raise`, `IndeterminateOutcome`.

    Raises:
        BadDeclaration: the function or a setting cannot be used.
        NotStorable: a parameter or the result can never be stored.
    """
    settings = dict(locals())  # the parameters by name; checked when the function is there
    return _applied(fn, WorkflowDecorator(lambda fn: declared_workflow(fn, settings)))


@overload
def verifier(fn: VerifierFn, /) -> Verifier: ...
@overload
def verifier(
    *,
    gate: bool = ...,
    timeout: Seconds = ...,
    version: str = ...,
    needs: Sequence[Literal["expected"]] = ...,
) -> VerifierDecorator: ...
def verifier(
    fn: VerifierFn | None = None,
    /,
    *,
    gate: bool = False,
    timeout: Seconds = 60.0,
    version: str = "1",
    needs: Sequence[Literal["expected"]] = (),
) -> Any:
    """Declare a function that judges the frozen episode of a run.

    Arguments:
        fn: the function, where the decorator stands without settings.
        gate: whether its no rejects the run.
        timeout: of one attempt, in seconds or as a timedelta.
        version: free text, recorded with its verdicts.
        needs: what it asks for beside the episode: `expected`, the expected answer.

    Raises:
        BadDeclaration: the function or a setting cannot be used.

    Source: design verification.md, "Verifiers and verdicts".
    """
    settings = dict(locals())  # the parameters by name; checked when the function is there
    return _applied(fn, VerifierDecorator(lambda fn: declared_verifier(fn, settings)))
