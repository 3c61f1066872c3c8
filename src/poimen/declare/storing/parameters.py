"""The arguments of a call as one stored object.

Made once per decorated function. Annotations are evaluated as soon as that works: at decoration, or,
where they name what is defined further below, at the first call. This module must never know what
a call does. It keeps the invariant that packing what was unpacked gives the same bytes.

Source: design api.md, "Calling" and "Values".
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from pathlib import PurePath
from typing import Any, Final, Unpack, get_origin

from poimen.declare.storing.annotations import codec_for, unresolved
from poimen.declare.storing.canonical import NotJson, from_bytes, to_bytes
from poimen.declare.storing.codec import CHANGED, REGISTRY, Codec, Decode, Encode, Refusal, foreign
from poimen.declare.storing.containers import dict_codec, tuple_codec
from poimen.declare.storing.hints import Scope, Unresolved, function_hints
from poimen.declare.storing.leaves import LEAVES
from poimen.declare.storing.screening import screened
from poimen.kernel.errors import NotStorable

_BY_POSITION: Final = frozenset({Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD})
_UNKNOWN: Final = object()
_GATHERED: Final = frozenset({Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What was found out about a function.

    Arguments:
        generation: of the registered codecs when these were built.
        signature: with evaluated annotations.
        encs, decs: the codec of each parameter by name, in order.
        positional: the names that may be given by position, in order.
        defaults: by name.
        result: the codec of the result.
        simple: no `*args`, `**kwargs` or positional-only parameters: calls are bound without `inspect`.
        listed: all parameters may be given by position.
    """

    generation: int
    signature: inspect.Signature
    encs: Mapping[str, Encode]
    decs: Mapping[str, Decode]
    positional: tuple[str, ...]
    defaults: Mapping[str, Any]
    result: Codec
    simple: bool
    listed: bool


class Parameters:
    """The parameters and the result of one function: checked, packed into bytes, unpacked.

    Names inside annotations (`list["Json"]` in an alias of that name) are looked up where the function was written.

    Make it with `Parameters.of(fn)`.
    """

    __slots__ = ("_fn", "_plan", "_result", "_scope", "_signature", "_where")

    def __init__(self, fn: Callable[..., Any]) -> None:
        bare = inspect.unwrap(fn)
        code = getattr(bare, "__code__", None)
        name = getattr(fn, "__qualname__", type(fn).__name__)
        self._fn = fn
        self._scope = Scope(names=getattr(bare, "__globals__", {}), thing=bare)
        self._where = f"{name} ({PurePath(code.co_filename).name}:{code.co_firstlineno})" if code else name
        self._signature: inspect.Signature | None = None
        self._plan: _Plan | None = None
        self._result: Any = _UNKNOWN

    @classmethod
    def of(cls, fn: Callable[..., Any]) -> Parameters:
        """The parameters of a function.

        Arguments:
            fn: a plain function, sync or async. Nothing is refused here: call `check`.
        """
        made = cls(fn)
        try:
            # Tried now, while the function is still running that types and `fn` may be defined in.
            made._prepared()
        except Refusal:
            return made
        return made

    @property
    def signature(self) -> inspect.Signature:
        """The signature with evaluated annotations; those that cannot be evaluated yet are as written."""
        try:
            return self._evaluated()
        except Refusal:
            return inspect.signature(self._fn)

    @property
    def result(self) -> Any:
        """The evaluated return annotation, `Any` where there is none; of an async function what it awaits to.

        Raises:
            NotStorable: when an annotation cannot be evaluated.
        """
        if self._result is _UNKNOWN:
            try:
                found = self._evaluated().return_annotation
            except Refusal as refusal:
                raise refusal.error("result", where=self._where) from refusal.__cause__
            self._result = Any if found is inspect.Signature.empty else found
        return self._result

    def check(self) -> None:
        """Refuse a function whose arguments, defaults or result can never be stored.

        Annotations that name what is not defined yet pass; the first call looks again, at that of the result too.

        Raises:
            NotStorable: with the path to the part at fault, starting with the parameter's name, or `result`.

        Source: design api.md, "Values" (refused before anything happens); case C34.
        """
        name = ""
        try:
            plan = self._prepared()
            for name, default in plan.defaults.items():
                plan.encs[name](default, 0)
        except Refusal as refusal:
            if not refusal.later:
                raise self._error(refusal, name) from refusal.__cause__
        except Exception as cause:  # a default's own code runs inside
            raise foreign(name, cause, where=self._where) from cause

    def pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The arguments of a call as a canonical JSON object by parameter name, defaults included.

        Arguments:
            args: as given to the function; `*args` become an array.
            kwargs: as given to the function; `**kwargs` become an object.

        Raises:
            TypeError: when the function cannot be called so.
            NotStorable: when an argument does not match its annotation, or holds a secret; the path starts with its
                name.

        Source: design api.md, "Calling" (the arguments given, by name).
        """
        plan = self._ready()
        values = self._bound(plan, args, kwargs)
        name = ""
        try:
            for name, enc in plan.encs.items():
                values[name] = enc(values[name], 0)
            body = to_bytes(values)
        except Refusal as refusal:
            raise self._error(refusal, name) from refusal.__cause__
        except Exception as cause:  # the arguments' own code (properties, `__eq__`) runs inside
            raise foreign(name, cause, where=self._where) from cause
        return screened(body, "", where=self._where)

    def unpack(self, body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The reverse of `pack`: arguments by position where the function takes them so, the rest by keyword.

        Arguments:
            body: a JSON object by parameter name. A parameter with a default may be missing.

        Raises:
            NotStorable: when it does not fit the parameters (the function has changed since).
        """
        plan = self._ready()
        name = "arguments"
        try:
            tree = from_bytes(body)
            if type(tree) is not dict:
                raise Refusal("an object by parameter name is expected")
            values: dict[str, Any] = {}
            for name, dec in plan.decs.items():
                values[name] = dec(tree[name] if name in tree else self._missing(plan, name))
            if extra := tree.keys() - values.keys():
                name = min(extra)[:60]
                raise Refusal("the function has no such parameter, an argument is stored", hint=CHANGED)
        except NotJson as cause:
            raise self._error(Refusal(f"the bytes are no JSON: {cause}"), name) from cause
        except Refusal as refusal:
            raise self._error(refusal, name) from refusal.__cause__
        except Exception as cause:  # the arguments' own code runs inside
            raise foreign(name, cause, where=self._where) from cause
        return (tuple(values.values()), {}) if plan.listed else _split(plan, values)

    def dump_result(self, value: object, *, path: str = "result") -> bytes:
        """What the function has returned, checked against its annotation, as canonical JSON.

        Arguments:
            value: what it returned; of an async function what it awaits to.
            path: how messages name the value.

        Raises:
            NotStorable: when it does not match, cannot be stored, or holds a secret; the message starts with the path.
        """
        return self._ready().result.dump(value, path)

    def load_result(self, body: bytes, *, path: str = "result") -> Any:
        """Read what `dump_result` wrote and check it against what the annotation says now.

        Arguments:
            body: JSON, UTF-8; need not be canonical.
            path: how messages name the value.

        Raises:
            NotStorable: when it is no JSON, or does not fit the annotation (the type has changed since).
        """
        return self._ready().result.load(body, path)

    def _missing(self, plan: _Plan, name: str) -> Any:
        """The tree of an argument that is not stored."""
        if name in plan.defaults:
            return plan.encs[name](plan.defaults[name], 0)
        kind = plan.signature.parameters[name].kind
        if kind in _GATHERED:
            return [] if kind is Parameter.VAR_POSITIONAL else {}
        raise Refusal("no argument is stored and there is no default", hint=CHANGED)

    def _bound(self, plan: _Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if plan.simple and len(args) <= len(plan.positional):
            values = dict(zip(plan.positional, args, strict=False))
            for name, value in kwargs.items():
                if name in values or name not in plan.encs:
                    break
                values[name] = value
            else:
                if len(values) == len(plan.encs):
                    return values
                values = {**plan.defaults, **values}
                if len(values) == len(plan.encs):
                    return values
        try:
            bound = plan.signature.bind(*args, **kwargs)
        except TypeError as cause:
            said = str(cause).replace("multiple values", "got multiple values")
            raise TypeError(f"{getattr(self._fn, '__qualname__', self._where)}() {said}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _evaluated(self) -> inspect.Signature:
        if self._signature is None:
            bare = inspect.signature(self._fn)
            try:
                hints = function_hints(self._fn)
            except Unresolved as cause:
                raise unresolved(cause) from cause
            self._signature = bare.replace(
                parameters=[p.replace(annotation=hints.get(p.name, Parameter.empty)) for p in bare.parameters.values()],
                return_annotation=hints.get("return", inspect.Signature.empty),
            )
        return self._signature

    def _prepared(self) -> _Plan:
        generation = REGISTRY.generation
        if self._plan is not None and self._plan.generation == generation:
            return self._plan
        signature = self._evaluated()
        parameters = list(signature.parameters.values())
        codecs = {parameter.name: self._codec(parameter) for parameter in parameters}
        returned = signature.return_annotation
        self._plan = _Plan(
            generation=generation,
            signature=signature,
            encs={name: codec.enc for name, codec in codecs.items()},
            decs={name: codec.dec for name, codec in codecs.items()},
            positional=tuple(p.name for p in parameters if p.kind in _BY_POSITION),
            result=self._codec_of(Any if returned is inspect.Signature.empty else returned, "result"),
            defaults={p.name: p.default for p in parameters if p.default is not Parameter.empty},
            simple=not any(p.kind in _GATHERED or p.kind is Parameter.POSITIONAL_ONLY for p in parameters),
            listed=all(p.kind in _BY_POSITION for p in parameters),
        )
        return self._plan

    def _ready(self) -> _Plan:
        plan = self._plan
        if plan is not None and plan.generation == REGISTRY.generation:
            return plan
        try:
            return self._prepared()
        except Refusal as refusal:
            raise self._error(refusal, "") from refusal.__cause__

    def _codec(self, parameter: Parameter) -> Codec:
        codec = self._codec_of(parameter.annotation, parameter.name)
        if parameter.kind is Parameter.VAR_POSITIONAL:
            return tuple_codec((codec,), repeat=True)
        if parameter.kind is Parameter.VAR_KEYWORD and get_origin(parameter.annotation) is not Unpack:
            return dict_codec(LEAVES[str], codec)
        return codec

    def _codec_of(self, annotation: Any, name: str) -> Codec:
        try:
            return codec_for(annotation, self._scope)
        except Refusal as refusal:
            raise refusal.inside(name) from refusal.__cause__

    def _error(self, refusal: Refusal, name: str) -> NotStorable:
        return refusal.error(name, where=self._where)


def _split(plan: _Plan, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, value in values.items():
        kind = plan.signature.parameters[name].kind
        if kind in _BY_POSITION:
            args.append(value)
        elif kind is Parameter.VAR_POSITIONAL:
            args.extend(value)
        elif kind is Parameter.VAR_KEYWORD:
            kwargs.update(value)
        else:
            kwargs[name] = value
    return tuple(args), kwargs
