"""Reading annotations: their names in messages, forward references, type variables.

This module must never know how values are stored. It keeps the invariant that a name is resolved in
the scope where it was written, never in that of whoever asks.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass
from typing import Any, TypeVar

Unresolved = (NameError, AttributeError, TypeError, SyntaxError)
"""What the standard library raises for annotations that cannot be evaluated (yet)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where the names in an annotation are looked up.

    Arguments:
        names: the globals of the module that it is written in.
        thing: the function or class that it is written at.
    """

    names: dict[str, Any]
    thing: object

    @classmethod
    def of(cls, thing: Any) -> Scope:
        """The scope of a class, or of an alias."""
        module = sys.modules.get(getattr(thing, "__module__", ""))
        return cls(names=vars(module) if module is not None else {}, thing=thing)


def label(annotation: object) -> str:
    """The annotation as a reader would write it: `int`, `list[shop.Plan]`, `str | None`."""
    if annotation is None or annotation is types.NoneType:
        return "None"
    if annotation is Ellipsis:
        return "..."
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return label(typing.get_args(annotation)[0])
    if origin is typing.Union or origin is types.UnionType:
        return " | ".join(label(arm) for arm in typing.get_args(annotation))
    if origin is typing.Literal:
        return " | ".join(repr(value) for value in typing.get_args(annotation))
    if origin is not None and isinstance(origin, type):
        inner = ", ".join(
            f"[{', '.join(label(one) for one in arg)}]" if isinstance(arg, list) else label(arg)
            for arg in typing.get_args(annotation)
        )
        return f"{label(origin)}[{inner}]" if inner else label(origin)
    if isinstance(annotation, type):
        name = annotation.__qualname__.rsplit("<locals>.", 1)[-1]
        plain = annotation.__module__ in {"builtins", "__main__", "typing"}
        return name if plain else f"{annotation.__module__}.{name}"
    if isinstance(annotation, TypeVar | typing.NewType):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def function_hints(fn: Callable[..., Any]) -> dict[str, Any]:
    """The evaluated annotations of a function by parameter name, and `return`.

    Raises:
        NameError: (or another of `Unresolved`) when a name is not defined yet.
    """
    try:
        return typing.get_type_hints(fn, include_extras=True)
    except NameError:
        return typing.get_type_hints(fn, localns={**_variables(fn), **enclosing(fn)}, include_extras=True)


def class_hints(cls: type) -> dict[str, Any]:
    """The evaluated annotations of a class and its bases.

    Raises:
        NameError: (or another of `Unresolved`) when a name is not defined yet.
    """
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError:
        variables = {name: found for base in reversed(cls.__mro__) for name, found in _variables(base).items()}
        return typing.get_type_hints(
            cls, localns={**variables, **enclosing(cls), cls.__name__: cls}, include_extras=True
        )


def _variables(thing: object) -> dict[str, Any]:
    """The variables of `class Box[T]` or `def f[T]` by name; early versions of Python 3.12 do not look there."""
    return {variable.__name__: variable for variable in getattr(thing, "__type_params__", ())}


def resolved(annotation: Any, scope: Scope) -> Any:
    """Evaluate a string or a forward reference in the scope of a function or class.

    Raises:
        NameError: (or another of `Unresolved`) when a name is not defined yet.
    """
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    local = enclosing(scope.thing)
    return typing.get_type_hints(holder, globalns=scope.names, localns=local, include_extras=True)["it"]


def enclosing(thing: Any) -> dict[str, Any]:
    """The local names of the function in which a function or class was written, while that function runs.

    Types that are defined inside a function (a test, a factory) are found this way.
    """
    outer, found, _ = getattr(thing, "__qualname__", "").rpartition(".<locals>.")
    frame = sys._getframe(1) if found else None  # noqa: SLF001 (the documented way to a caller's locals)
    while frame is not None:
        if frame.f_code.co_qualname == outer and frame.f_globals.get("__name__") == thing.__module__:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


_WRAPPERS = frozenset({"Annotated", "Final", "ClassVar", "Required", "NotRequired", "ReadOnly", "Unpack"})


def stands_for(annotation: Any) -> Any:
    """The annotation that another one stands for as far as values go; None when it stands for itself.

    `Annotated[int, ...]` and a `NewType` of int stand for int, a type variable for its bound.
    """
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated or getattr(origin, "_name", None) in _WRAPPERS:
        return typing.get_args(annotation)[0]
    if isinstance(annotation, typing.NewType):
        return annotation.__supertype__
    if isinstance(annotation, InitVar):
        return annotation.type
    if isinstance(annotation, typing.ParamSpecArgs | typing.ParamSpecKwargs):
        return object
    if isinstance(annotation, TypeVar):
        has_default: Callable[[], bool] = getattr(annotation, "has_default", lambda: False)
        if has_default():
            return annotation.__default__  # type: ignore[attr-defined, unused-ignore]
        if annotation.__constraints__:
            return typing.Union[annotation.__constraints__]  # noqa: UP007 (made at run time)
        return object if annotation.__bound__ is None else annotation.__bound__
    return str if annotation is typing.LiteralString else None


def is_alias(annotation: Any) -> bool:
    """Whether it is a `type X = ...` statement's alias, or one with arguments."""
    return "TypeAliasType" in {type(annotation).__name__, type(typing.get_origin(annotation)).__name__}


def alias_value(annotation: Any) -> Any:
    """What an alias stands for.

    Raises:
        NameError: (or another of `Unresolved`) when a name is not defined yet.
    """
    alias = typing.get_origin(annotation) or annotation
    return substituted(alias.__value__, dict(zip(alias.__type_params__, typing.get_args(annotation), strict=False)))


def is_typed_dict(cls: type) -> bool:
    """Whether a class is a `TypedDict`, of whichever library."""
    return issubclass(cls, dict) and hasattr(cls, "__required_keys__") and hasattr(cls, "__total__")


def substituted(annotation: Any, given: Mapping[Any, Any]) -> Any:
    """The annotation with type variables replaced by what is given for them."""
    if not given:
        return annotation
    if isinstance(annotation, TypeVar):
        return given.get(annotation, annotation)
    variables = getattr(annotation, "__parameters__", ())
    if not variables or isinstance(annotation, type):
        return annotation
    return annotation[tuple(given.get(variable, variable) for variable in variables)]


def type_arguments(cls: Any, arguments: tuple[Any, ...]) -> dict[type, dict[Any, Any]]:
    """What each class among the bases of a generic class has for its type variables.

    Arguments:
        cls: the class.
        arguments: what its own variables were given; may be empty.
    """
    own = dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=False))
    found: dict[type, dict[Any, Any]] = {cls: own}
    for base in getattr(cls, "__orig_bases__", ()):
        origin = typing.get_origin(base)
        if isinstance(origin, type) and origin is not typing.Generic:
            inner = tuple(substituted(argument, own) for argument in typing.get_args(base))
            found = {**type_arguments(origin, inner), **found}
    for base in cls.__bases__:
        if base is not object and base not in found:
            found = {**type_arguments(base, ()), **found}
    return found


def owner(cls: type, name: str) -> type:
    """The class among the bases that annotates a field."""
    return next((base for base in cls.__mro__ if name in inspect.get_annotations(base)), cls)
