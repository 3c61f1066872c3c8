"""A function that wants to be declared: what is refused, with the way out.

Everything that can be known to go wrong later is refused here, when the module is imported, naming
the function and the argument. This module must never know what becomes of a declaration; it keeps
the invariant that what passes can be called, stored and found again by name.

Source: design api.md, "Calling" (refused at decoration) and "Declaring".
"""

from __future__ import annotations

import inspect
import string
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar, cast

from poimen.declare.making.functions import code_digest, outline_of, same_parameters, signature_of, source_of
from poimen.declare.sealed import seal
from poimen.declare.specs import OPTIONS, PLAIN, ToolSpec, VerifierSpec, seconds, spec_of
from poimen.declare.values import Parameters
from poimen.effects import Effect, ProbingEffect
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.errors import BadDeclaration, NotStorable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from poimen.declare.specs import Errors, OnUnknown, Seconds, Summary
    from poimen.effects import AnyEffect

CHOICES: Final = """choose its effect class:
          effects.PURE                     no input or output: computed again
          effects.READ                     observes, changes nothing: sent again
          effects.IDEMPOTENT               repeating converges: sent again
          effects.KEYED(ttl=timedelta(…))  the far side dedupes on request_id(): sent again while the key lives
          effects.PROBE(fn, lag=…)         we can ask whether it landed: asked first
          effects.AT_MOST_ONCE             opaque or irreversible: never sent again by a machine"""

_LONGEST_NAME: Final = 200

X = TypeVar("X")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A function that has passed the checks of its own; its settings are checked by the methods.

    Arguments:
        fn: the function as written.
        kind: what it is declared as.
        name: under which it is recorded.
        is_async: whether it is a coroutine function.
        source: what the author has written of it, below decorators.
        signature: with annotations as types, as far as they can be evaluated now.
    """

    fn: types.FunctionType
    kind: str
    name: str
    is_async: bool
    source: types.FunctionType
    signature: inspect.Signature

    @classmethod
    def of(cls, fn: object, kind: str, name: str | None) -> Candidate:
        """Check a function.

        Arguments:
            fn: what the decorator was put on.
            kind: `tool`, `model`, `step`, `workflow` or `verifier`.
            name: given by the author; None: the function's own.

        Raises:
            BadDeclaration: it cannot be declared.
        """
        found = _plain_function(fn, kind)
        return cls(
            fn=found,
            kind=kind,
            name=_name(found, kind, name),
            is_async=inspect.iscoroutinefunction(found),
            source=source_of(found),
            signature=signature_of(found),
        )

    def refuse(self, what: str, *, why: str = "", hint: str) -> NoReturn:
        """Raise `BadDeclaration` about this function."""
        _refuse(self.fn, self.kind, what, why=why, hint=hint)

    def common(self, version: str) -> dict[str, Any]:
        """The fields that every spec has; closes the function away."""
        if not isinstance(version, str) or not version.isprintable():
            self.refuse(f"version={version!r} cannot be a version", hint=f"a text: version={str(version)!r}")
        code = self.source.__code__
        return {
            "name": self.name,
            "version": version,
            "is_async": self.is_async,
            "token": seal(self.fn),
            "module": self.fn.__module__,
            "qualname": self.fn.__qualname__,
            "file": code.co_filename,
            "line": code.co_firstlineno,
            "code_digest": code_digest(code),
        }

    def parameters(self) -> Parameters:
        """How its values are checked and stored; refuses what by its annotation can never be.

        What speaks of a name that is defined further below is checked at the first call.
        """
        parameters = Parameters.of(outline_of(self.fn, inspect.signature(self.fn)))
        try:
            parameters.check()
        except NotStorable as error:
            raise BadDeclaration(
                f"@{self.kind} {self.fn.__qualname__}: {error.message}",
                where=f"{self.source.__code__.co_filename}:{self.source.__code__.co_firstlineno}",
                why="arguments and results are written to the log",
                hint=error.hint or "annotate it with what can be written: JSON types, dataclasses, models",
                path=error.path,
            ) from error
        return parameters

    # ---- settings ------------------------------------------------------------------------------------------

    def seconds(self, argument: str, value: Seconds) -> float:
        """A positive length of time, in seconds."""
        found = self.seconds_or_none(argument, value)
        if found == 0:
            self.refuse(f"{argument}={value!r} leaves no time", hint=f"{argument}=30 (seconds), or a timedelta")
        return found

    def seconds_or_none(self, argument: str, value: Seconds) -> float:
        """A length of time, in seconds, zero included."""
        found = seconds(value)
        if found is None or found < 0:
            self.refuse(
                f"{argument}={value!r} is not a length of time", hint=f"{argument}=30 (seconds), or a timedelta"
            )
        return found

    def count(self, argument: str, value: int) -> int:
        """A whole number from 1."""
        if type(value) is not int or value < 1:
            self.refuse(f"{argument}={value!r} is not a whole number from 1", hint=f"{argument}=1 or more")
        return value

    def errors(self, argument: str, value: Errors) -> Errors:
        """Exception classes, or a function of one exception."""
        if isinstance(value, (type, tuple)):
            classes = value if isinstance(value, tuple) else (value,)
            good = all(isinstance(each, type) and issubclass(each, BaseException) for each in classes)
        else:
            good = callable(value)
        if not good:
            self.refuse(
                f"{argument}={value!r} is neither exception classes nor a function of one exception",
                hint=f"{argument}=(ConnectionRefusedError,), or {argument}=lambda error: ...",
            )
        return value

    def on_indeterminate(self, argument: str, value: OnUnknown) -> OnUnknown:
        """`wait` or `raise`."""
        if value not in ("wait", "raise"):
            self.refuse(f"{argument}={value!r} is unknown", hint=f"{argument}='wait' or 'raise'")
        return value

    def text(self, argument: str, value: Summary) -> Summary:
        """A text for people whose `{fields}` are parameters, or a function that makes one."""
        if not isinstance(value, str):
            if not callable(value):
                self.refuse(f"{argument}={value!r} is neither a text nor a function", hint=f"{argument}='… {{field}}'")
            return value
        try:
            fields = [field for _, field, _, _ in string.Formatter().parse(value) if field is not None]
        except ValueError as error:
            self.refuse(f"{argument}={value!r} cannot be read: {error}", hint="write {{ and }} for plain braces")
        known = list(self.signature.parameters)
        for field in fields:
            if field.partition(".")[0].partition("[")[0] not in known:
                self.refuse(
                    f"{argument}={value!r} speaks of {{{field}}}, which is not a parameter",
                    hint=f"the parameters are {', '.join(known) or 'none'}; write {{{{ and }}}} for plain braces",
                )
        return value

    def instance(self, argument: str, value: X, cls: type[X]) -> X:
        """A value of this class."""
        if not isinstance(value, cls):
            self.refuse(f"{argument}={value!r} is not a {cls.__name__}", hint=f"{argument}={cls.__name__}(...)")
        return value

    # ---- verifiers -------------------------------------------------------------------------------------------

    def verifiers(self, argument: str, value: Sequence[object]) -> tuple[VerifierSpec, ...]:
        """Declared verifiers, each once."""
        found: list[VerifierSpec] = []
        for each in value:
            spec = spec_of(each)
            if not isinstance(spec, VerifierSpec):
                self.refuse(f"{argument}: {each!r} is not a verifier", hint="declare it with @poimen.verifier")
            if spec.name in [other.name for other in found]:
                self.refuse(f"{argument}: two verifiers are called {spec.name!r}", hint="name each of them once")
            found.append(spec)
        return tuple(found)

    def needs(self, argument: str, value: Sequence[Literal["expected"]]) -> tuple[Literal["expected"], ...]:
        """What a verifier may ask for."""
        if isinstance(value, str) or any(each != "expected" for each in value):
            self.refuse(f"{argument}={value!r} is unknown", hint=f"{argument}=['expected']")
        return tuple(value)

    def takes_one_context(self) -> None:
        """Refuse a verifier that cannot be called with one context."""
        try:
            self.signature.bind(None)
        except TypeError as error:
            self.refuse(
                f"it cannot be called with one context: {error}",
                hint=f"def {self.fn.__name__}(ctx: poimen.VerifierCtx)",
            )

    # ---- effects ---------------------------------------------------------------------------------------------

    def effect(self, argument: str, value: object) -> AnyEffect:
        """An effect class; its probe must take the tool's own parameters."""
        if not isinstance(value, (Effect, ProbingEffect)) or value.effect_class not in EffectClass.__members__:
            self.refuse(f"{argument}={getattr(value, '__name__', repr(value))} is not an effect class", hint=CHOICES)
        return value

    def probe(self, effect: AnyEffect | None) -> dict[str, Any]:
        """The fields of the spec that speak of the effect's probe; closes it away."""
        fn = None if effect is None else effect.probe
        if fn is None:
            return {}
        name: str = getattr(fn, "__name__", type(fn).__name__)
        if spec_of(fn) is not None:
            self.refuse(
                f"the probe {name} is itself declared",
                why="a probe is called by the gate and may only read",
                hint="give the plain function",
            )
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            self.refuse(f"the probe {name} is a generator", hint="return Landed(value), Absent() or Unknown(why)")
        try:
            signature = signature_of(fn)
        except (TypeError, ValueError) as error:
            self.refuse(f"the parameters of the probe {name} cannot be seen: {error}", hint="give a plain function")
        self._takes_mine("probe", name, signature)
        return {"probe": seal(fn)}

    def undo(self, argument: str, value: object) -> ToolSpec:
        """A declared tool that takes the tool's own parameters."""
        spec = spec_of(value)
        if not isinstance(spec, ToolSpec) or spec.kind != "tool":
            self.refuse(
                f"{argument}={getattr(value, '__name__', repr(value))} is not a tool",
                why="taking an effect back is an effect itself and goes through the gate",
                hint="declare the undo above this tool, with @poimen.tool(effect=...)",
            )
        if getattr(value, OPTIONS, PLAIN) != PLAIN:
            self.refuse("undo= takes a tool as declared, without .options(...)", hint=f"undo={spec.name}")
        self._takes_mine("undo", spec.name, inspect.signature(cast("Callable[..., Any]", value)))
        return spec

    def _takes_mine(self, role: str, name: str, theirs: inspect.Signature) -> None:
        if not same_parameters(theirs, self.signature):
            bare = inspect.Signature.empty
            self.refuse(
                f"the {role} {name}{theirs.replace(return_annotation=bare)} does not take its parameters",
                why=f"the {role} is called with the recorded arguments of the {self.kind}",
                hint=f"def {name}{self.signature.replace(return_annotation=bare)}",
            )


# ---- what a function must be ------------------------------------------------------------------------------------


def _plain_function(fn: object, kind: str) -> types.FunctionType:
    if spec_of(fn) is not None:
        _refuse(fn, kind, "it is declared already", hint="put one decorator on the plain function")
    if isinstance(fn, (staticmethod, classmethod)):
        _refuse(fn.__func__, kind, f"it is a {type(fn).__name__}", hint="move it out of its class")
    if not isinstance(fn, types.FunctionType):
        _refuse(
            fn,
            kind,
            f"{fn!r} is not a plain function",
            why="a declared name is found again by module and name after a restart",
            hint="wrap it: def name(...): return it(...)",
        )
    if _is_method(fn):
        _refuse(
            fn,
            kind,
            "it is a method",
            why="its object would have to be stored with each call and found again after a restart",
            hint="make it a function of the module and pass what it needs; open clients inside it",
        )
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        _refuse(
            fn,
            kind,
            "it is a generator",
            why="one call has one recorded result",
            hint="return a list; poimen.emit(value) hands out values on the way",
        )
    if not inspect.iscoroutinefunction(fn) and inspect.iscoroutinefunction(inspect.unwrap(fn)):
        _refuse(
            fn,
            kind,
            "a decorator beneath has made a plain function of a coroutine function",
            why="its colour cannot be told",
            hint="make that decorator's wrapper an `async def` that awaits",
        )
    return fn


def _is_method(fn: types.FunctionType) -> bool:
    scope = fn.__qualname__.rpartition(".")[0]
    code = source_of(fn).__code__
    first = next(iter(code.co_varnames[: code.co_argcount]), "")
    return bool(scope) and not scope.endswith("<locals>") and first in {"self", "cls"}


def _name(fn: types.FunctionType, kind: str, name: str | None) -> str:
    if name is None:
        if fn.__name__ == "<lambda>":
            _refuse(fn, kind, "a lambda has no name to be recorded under", hint="give name=, or write a def")
        return fn.__name__
    if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME or "#" in name or not name.isprintable():
        _refuse(
            fn,
            kind,
            f"name={name!r} cannot be a name",
            why=f"a name has 1 to {_LONGEST_NAME} printable characters and no '#', which numbers its calls",
            hint=f"name={fn.__name__!r}",
        )
    return name


def _refuse(fn: object, kind: str, what: str, *, why: str = "", hint: str) -> NoReturn:
    code = getattr(inspect.unwrap(fn) if callable(fn) else fn, "__code__", None)
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    where = f"{code.co_filename}:{code.co_firstlineno}" if isinstance(code, types.CodeType) else ""
    raise BadDeclaration(f"@{kind} {name}: {what}", where=where, why=why, hint=hint)
