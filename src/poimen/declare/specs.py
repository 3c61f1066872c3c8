"""What a declaration says, as plain data: one spec for each declared tool, model, step, workflow, verifier.

The engine reads specs and nothing else of a declared function; the function itself is behind the
token. This module must never know about runs, records or clocks; it keeps the invariant that a spec
never changes after it was declared.

Source: design api.md, "Declaring"; protocol.md, section 9 (defaults).
"""

from __future__ import annotations

import inspect
import reprlib
import string
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

from poimen.kernel.errors import BadDeclaration
from poimen.secrecy.speaking import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from poimen.declare.sealed import Token
    from poimen.declare.states import States
    from poimen.declare.values import Parameters
    from poimen.effects import AnyEffect

Seconds: TypeAlias = float | timedelta
"""A length of time: seconds, or a timedelta."""

OnUnknown: TypeAlias = Literal["wait", "raise"]
"""What a workflow is told of an unknown effect: nothing until it is resolved, or `IndeterminateOutcome`."""

Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool]
"""Which exceptions are meant: by type, or by a function of the exception."""

Summary: TypeAlias = str | Callable[..., str]
"""A text for people about one call: `"charge {cents} for {order}"`, or a function of the parameters."""

Kind: TypeAlias = Literal["tool", "model", "step", "workflow", "verifier"]

SPEC: Final = "__poimen_spec__"
"""The attribute of a declared name that holds its spec."""

OPTIONS: Final = "__poimen_options__"
"""The attribute of a declared tool, model or step that holds the options of this name."""

_LONGEST_SUMMARY: Final = 500
_LONGEST_VALUE: Final = 80
_shortened: Final = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = _LONGEST_VALUE

# ---- what is declared ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a run may spend.

    Arguments:
        usd: money, in US dollars; None: no limit.
        tokens: of all models together; None: no limit.

    Raises:
        BadDeclaration: when a limit is negative or no number.
    """

    usd: Decimal | float | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        for name, limit, types in (("usd", self.usd, (int, float, Decimal)), ("tokens", self.tokens, (int,))):
            number = isinstance(limit, types) and not isinstance(limit, bool)
            if limit is not None and not (number and isfinite(limit) and limit >= 0):
                raise BadDeclaration(
                    f"Budget: {name}={limit!r} is not a number of zero or more", hint="Budget(usd=2, tokens=200_000)"
                )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spec:
    """What all declared things have.

    Arguments:
        name: unique in a runtime among its kind.
        version: free text by the author, recorded.
        is_async: whether the body is a coroutine function.
        token: stands for the body; only the gate opens it.
        module, qualname: where the name can be imported from.
        file, line: where it is written.
        code_digest: 64 hex digits over the compiled body; shown to people, never identity.
    """

    name: str
    version: str
    is_async: bool
    token: Token
    module: str
    qualname: str
    file: str
    line: int
    code_digest: str

    @property
    def where(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ToolSpec(Spec):
    """A tool, a model or a step. Times are in seconds.

    Arguments:
        kind: which of the three.
        parameters: the typed parameters and result, and how they are stored.
        effect: its effect class; None for a step, which has none of its own.
        probe: stands for the effect's probe, which takes the same parameters.
        summary, stake: texts for people about one call, see `described`.
        timeout_s: of one attempt.
        grace_s: what a cancelled or timed-out body may take to finish.
        attempts: how many, the first one included.
        backoff_s: before the second attempt; doubled for each further one.
        rejected, not_sent: exceptions of the body that say so of one send, see `matches`.
        retry_on: exceptions after which another attempt is made; None: the engine's rule.
        exchanges: 1 when one call makes one exchange with the far side (no redirects, no client's retries).
        max_sends: how often one intent may be sent, the first send included.
        undo: a tool with the same parameters that takes the effect back.
        on_indeterminate: what the workflow is told of an unknown; None: as its run.
        queue_timeout_s: how long an attempt may wait to be admitted; None: for ever.
    """

    kind: Literal["tool", "model", "step"]
    parameters: Parameters
    effect: AnyEffect | None = None
    probe: Token | None = None
    summary: Summary = ""
    stake: Summary = ""
    timeout_s: float = 60.0
    grace_s: float = 5.0
    attempts: int = 1
    backoff_s: float = 1.0
    rejected: Errors = ()
    not_sent: Errors = ()
    retry_on: Errors | None = None
    exchanges: int | None = None
    max_sends: int = 3
    undo: ToolSpec | None = None
    on_indeterminate: OnUnknown | None = None
    queue_timeout_s: float | None = None

    @property
    def probe_name(self) -> str | None:
        """What an intent freezes of the probe, together with the tool's version; None without one."""
        return f"{self.name}.probe" if self.probe is not None else None

    @property
    def is_pure(self) -> bool:
        """Whether it is a tool without an intent: no I/O, computed again whenever it is asked for."""
        return self.effect is not None and self.effect.effect_class == "PURE"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VerifierSpec(Spec):
    """A verifier.

    Arguments:
        gate: whether its no rejects the run.
        timeout_s: of one attempt.
        needs: what it asks for beside the episode.
    """

    kind: ClassVar[Literal["verifier"]] = "verifier"
    gate: bool = False
    timeout_s: float = 60.0
    needs: tuple[Literal["expected"], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkflowSpec(Spec):
    """A workflow.

    Arguments:
        parameters: the typed parameters and result, and how they are stored.
        states: its domain states, if it declares any.
        verifiers: what judges its runs.
        timeout_s: of the whole run, by the wall clock; None: none.
        budget: of the whole run; None: none.
        on_indeterminate: what the workflow is told of an unknown, where a tool says nothing else.
    """

    kind: ClassVar[Literal["workflow"]] = "workflow"
    parameters: Parameters
    states: States | None = None
    verifiers: tuple[VerifierSpec, ...] = ()
    timeout_s: float | None = None
    budget: Budget | None = None
    on_indeterminate: OnUnknown = "wait"


AnySpec: TypeAlias = ToolSpec | WorkflowSpec | VerifierSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings for one call; None: as declared.

    Arguments:
        key: names the step; its request id derives from it.
        timeout_s: of one attempt.
        attempts: how many, the first one included.
        on_indeterminate: what the workflow is told of an unknown.
        decision: the id of the decision that this call carries out.
    """

    key: str | None = None
    timeout_s: float | None = None
    attempts: int | None = None
    on_indeterminate: OnUnknown | None = None
    decision: str | None = None


PLAIN: Final = Options()
"""Every call as declared."""

# ---- reading declarations --------------------------------------------------------------------------------------


def spec_of(thing: object) -> AnySpec | None:
    """The spec of a declared name, or None when the thing was not declared."""
    found = getattr(thing, SPEC, None)
    return found if isinstance(found, (ToolSpec, WorkflowSpec, VerifierSpec)) else None


def seconds(value: object) -> float | None:
    """A length of time in seconds, from a number or a timedelta; None when it is neither or not finite."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value):
        return float(value)
    return None


def matches(errors: Errors, error: BaseException) -> bool:
    """Whether an exception is among declared ones: by its type, or by a predicate.

    Arguments:
        errors: an exception class, a tuple of them, or a function of the exception.
        error: what the body raised.

    Raises:
        TypeError: the function is a coroutine function, whose answer would be true whatever it is.
        Exception: whatever the function raises.
    """
    if isinstance(errors, (type, tuple)):
        return isinstance(error, errors)
    found: object = errors(error)
    if inspect.isawaitable(found):
        if inspect.iscoroutine(found):
            found.close()
        raise TypeError("a predicate over errors must be a plain function, not a coroutine function")
    return bool(found)


def described(text: Summary, spec: ToolSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The text for people about one call, as its author wants it: `charge 4200 for tea`; "" where there is none.

    None is made up from the arguments, which may hold secrets: what an author shows of them is shown, nothing else is.
    A text that its author has got wrong must not stand in the way of the effect: it is left out.

    Arguments:
        text: the spec's `summary` or `stake`.
        spec: what is called.
        args: by position, as the body gets them.
        kwargs: by keyword, likewise.

    Source: design api.md, "Command line" (agent text is shown only with `--content`).
    """
    if not text:
        return ""
    given = spec.parameters.signature.bind(*args, **kwargs)
    given.apply_defaults()
    try:
        found = str(text(*args, **kwargs)) if callable(text) else string.Formatter().vformat(text, (), given.arguments)
    except Exception:  # noqa: BLE001 (an author's text; see above)
        return ""
    return _flat(redacted(found, most=_LONGEST_SUMMARY))[:_LONGEST_SUMMARY]


def _flat(text: str) -> str:
    """One line that can be stored: a text of an agent forges no second line of evidence."""
    return " ".join(text.split()).encode("utf-8", "replace").decode()


def called(name: str, given: inspect.BoundArguments) -> str:
    """A call as it is written, long values shortened: `charge(order='tea', cents=4200)`."""
    short = _shortened
    parts: list[str] = []
    for key, value in given.arguments.items():
        kind = given.signature.parameters[key].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            parts += [short.repr(each) for each in value]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            parts += [f"{each}={short.repr(it)}" for each, it in value.items()]
        else:
            parts.append(f"{key}={short.repr(value)}")
    return f"{name}({', '.join(parts)})"
