"""The plain function that stands for a declared one.

Frameworks accept nothing but plain functions, and look at them: so a declared name is one, with the
name, signature, annotations and colour of the function that it stands for, and with faces `.aio`,
`.sync` and `.options`. It has no `__wrapped__` and holds a spec, never the function. This module must
never know what a call does; it keeps the invariant that no face leads to the body.

Source: design api.md, "Calling"; docs/decisions/0003-colour-of-decorated-tools.md.
"""

from __future__ import annotations

import inspect
import sys
import types
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from poimen.declare.calling import begin, wait
from poimen.declare.making.functions import annotations_of
from poimen.declare.shapes import Call
from poimen.declare.specs import OPTIONS, PLAIN, SPEC, Options, seconds
from poimen.kernel.errors import BadDeclaration
from poimen.kernel.ids import explicit_key
from poimen.later import not_built
from poimen.secrecy.setting import in_force

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from poimen.declare.making.candidate import Candidate
    from poimen.declare.specs import OnUnknown, Seconds, ToolSpec, WorkflowSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """What the stand-in shows of the function that it stands for."""

    name: str
    qualname: str
    module: str
    doc: str | None
    annotations: dict[str, Any]
    signature: inspect.Signature
    type_params: tuple[Any, ...]

    @classmethod
    def of(cls, candidate: Candidate) -> Likeness:
        """The likeness of a checked function."""
        fn = candidate.fn
        return cls(
            name=fn.__name__,
            qualname=fn.__qualname__,
            module=fn.__module__,
            doc=fn.__doc__,
            annotations=annotations_of(candidate.signature),
            signature=candidate.signature,
            type_params=getattr(fn, "__type_params__", ()),
        )

    def described(self) -> Likeness:
        """The likeness of a workflow, which gives a `Call` of what its body returns."""
        written = self.signature.return_annotation
        given = Any if written is inspect.Signature.empty else written
        result = cast("Any", Call)[given]
        return replace(
            self,
            annotations={**self.annotations, "return": result},
            signature=self.signature.replace(return_annotation=result),
        )


def tool_like(spec: ToolSpec, likeness: Likeness, scope: dict[str, Any], options: Options = PLAIN) -> Any:
    """The stand-in for a tool, model or step.

    Arguments:
        spec: what was declared.
        likeness: how it looks.
        scope: the globals of the author's module, in which annotations written as text are looked up.
        options: the settings of each call made through it.
    """
    main = _face(_calls(begin if spec.is_async else wait, spec, options), likeness, scope, awaited=spec.is_async)
    aio = _face(_calls(begin, spec, options), likeness, scope, suffix="aio", awaited=True)
    sync = _face(_calls(wait, spec, options), likeness, scope, suffix="sync")
    settings = _rehomed(_options(spec, likeness, options), scope)
    settings.__module__, settings.__qualname__ = likeness.module, f"{likeness.qualname}.options"
    vars(main).update({SPEC: spec, OPTIONS: options, "aio": aio, "sync": sync, "options": settings})
    return main


def workflow_like(spec: WorkflowSpec, likeness: Likeness, scope: dict[str, Any]) -> Any:
    """The stand-in for a workflow: a plain function of either colour's parameters that returns a `Call`."""
    main = _face(_describes(spec), likeness.described(), scope)
    vars(main)[SPEC] = spec
    return main


# ---- bodies of stand-ins: they use closed-over names only, for their globals are the author's ---------------------


def _calls(enter: Callable[..., Any], spec: ToolSpec, options: Options) -> types.FunctionType:
    def call(*args: Any, **kwargs: Any) -> Any:
        return enter(spec, options, args, kwargs)

    return cast("types.FunctionType", call)


def _describes(spec: WorkflowSpec) -> types.FunctionType:
    make, refuse = Call, _refuse_later_parts

    def call(*args: Any, **kwargs: Any) -> Any:
        refuse(spec)
        return make(workflow=spec.name, spec=spec, packed=spec.parameters.pack(args, kwargs))

    return cast("types.FunctionType", call)


def _refuse_later_parts(spec: WorkflowSpec) -> None:
    if spec.budget is not None:
        not_built("workflow(budget=)")
    if spec.timeout_s is not None:
        not_built("workflow(timeout=)")
    if spec.verifiers:
        not_built("workflow(verifiers=)")


def _options(spec: ToolSpec, likeness: Likeness, before: Options) -> types.FunctionType:
    scope_here, with_options, dress = globals, _with, tool_like

    def options(
        *,
        key: str | None = None,
        timeout: Seconds | None = None,
        attempts: int | None = None,
        on_indeterminate: OnUnknown | None = None,
        decision: str | None = None,
    ) -> Any:
        """The same with settings for one call.

        Arguments:
            key: names the step; its request id derives from it.
            timeout: of one attempt, in seconds or as a timedelta; not of a PURE tool inside a step.
            attempts: how many, the first one included.
            on_indeterminate: what the workflow is told of an unknown: `wait` or `raise`.
            decision: the id of the decision that this call carries out.

        Raises:
            DuplicateKey: the key cannot be a step key.
            BadDeclaration: another setting cannot be used.
        """
        given = {
            "key": key,
            "timeout_s": timeout,
            "attempts": attempts,
            "on_indeterminate": on_indeterminate,
            "decision": decision,
        }
        return dress(spec, likeness, scope_here(), with_options(spec, before, given))

    return cast("types.FunctionType", options)


def _with(spec: ToolSpec, before: Options, given: Mapping[str, Any]) -> Options:
    """The options with what was given now; each is checked, so that a refusal comes where it was written."""
    chosen = {name: value for name, value in given.items() if value is not None}
    if "key" in chosen:
        if not isinstance(chosen["key"], str):
            _refuse(spec, f"key={chosen['key']!r} is not a text")
        if what := in_force().in_name(explicit_key(chosen["key"])):
            _refuse(spec, f"key= holds {what}")
    if "timeout_s" in chosen:
        found = seconds(chosen["timeout_s"])
        if found is None or found <= 0:
            _refuse(spec, f"timeout={chosen['timeout_s']!r} is not a positive length of time")
        if spec.kind == "step":
            not_built("step(timeout=)")
        chosen["timeout_s"] = found
    attempts = chosen.get("attempts", 1)
    if type(attempts) is not int or attempts < 1:
        _refuse(spec, f"attempts={attempts!r} is not a whole number from 1")
    if chosen.get("on_indeterminate", "wait") not in {"wait", "raise"}:
        _refuse(spec, f"on_indeterminate={chosen['on_indeterminate']!r} is neither 'wait' nor 'raise'")
    decision = chosen.get("decision", "id")
    if not isinstance(decision, str) or not decision:
        _refuse(spec, f"decision={decision!r} is not the id of a decision")
    return replace(before, **chosen)


def _refuse(spec: ToolSpec, what: str) -> NoReturn:
    raise BadDeclaration(
        f"{spec.name}.options: {what}",
        where=spec.where,
        hint=f"{spec.name}.options(key=, timeout=, attempts=, on_indeterminate=, decision=)(...)",
    )


# ---- making functions -----------------------------------------------------------------------------------------------


def _face(
    body: types.FunctionType, likeness: Likeness, scope: dict[str, Any], *, suffix: str = "", awaited: bool = False
) -> types.FunctionType:
    face = _rehomed(body, scope, awaited=awaited)
    face.__name__ = suffix or likeness.name
    face.__qualname__ = f"{likeness.qualname}.{suffix}" if suffix else likeness.qualname
    face.__module__ = likeness.module
    face.__doc__ = likeness.doc
    face.__annotations__ = likeness.annotations
    vars(face)["__signature__"] = likeness.signature
    if sys.version_info >= (3, 12):
        face.__type_params__ = likeness.type_params
    return face


_AWAITED_FLAG: Final = 0 if sys.version_info >= (3, 12) else inspect.CO_COROUTINE


@cache
def _seen_as_coroutine(code: types.CodeType) -> types.CodeType:
    return code.replace(co_flags=code.co_flags | _AWAITED_FLAG)


def _rehomed(body: types.FunctionType, scope: dict[str, Any], *, awaited: bool = False) -> types.FunctionType:
    """The same function with other globals; `awaited`: seen as a coroutine function.

    Its call must run up to the point where the key is taken, so it is a plain function that returns a
    coroutine. From Python 3.12 on there is a mark for that. On 3.11 the flag on the code says it: what a
    call does is decided by the code's instructions, the flag is only read by `inspect`.
    """
    code = _seen_as_coroutine(body.__code__) if awaited and _AWAITED_FLAG else body.__code__
    found = types.FunctionType(code, scope, body.__name__, body.__defaults__, body.__closure__)
    found.__kwdefaults__ = body.__kwdefaults__
    found.__doc__ = body.__doc__
    if awaited and sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(found)
    return found
