"""What can be read off a function as it is written: annotations, signature, code digest, what it takes.

This module must never know what a function is declared as; it keeps the invariant that reading a
function runs none of it.

Source: design api.md, "Calling" (resolved annotations); protocol.md, section 5 (source text is no identity).
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import types
import typing
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_OWN: Final = __name__.rpartition(".")[0].rpartition(".")[0]
_PROMOTED: Final = {(float, int), (complex, int), (complex, float)}
_SAYS_NOTHING: Final = (Any, object, inspect.Parameter.empty)


def annotations_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """The annotations as types; one that names what does not exist yet stays as it is written.

    Names are looked up in the function's module, in the functions around it, and where it is declared.
    """
    written: dict[str, Any] = dict(getattr(inspect.unwrap(fn), "__annotations__", {}))
    nearby = {**_where_declared(), **_closure(fn)}
    try:
        return typing.get_type_hints(fn, localns=nearby, include_extras=True)
    except Exception:  # noqa: BLE001 (any expression may stand in an annotation)
        return {name: _resolved(fn, note, nearby) for name, note in written.items()}


def signature_of(fn: Callable[..., Any], annotations: Mapping[str, Any]) -> inspect.Signature:
    """The signature with these annotations.

    Raises:
        ValueError, TypeError: the callable does not show one.
    """
    signature = inspect.signature(fn)
    return signature.replace(
        parameters=[
            each.replace(annotation=annotations.get(each.name, each.annotation))
            for each in signature.parameters.values()
        ],
        return_annotation=annotations.get("return", signature.return_annotation),
    )


def outline_of(
    fn: types.FunctionType, annotations: Mapping[str, Any], signature: inspect.Signature
) -> types.FunctionType:
    """A function that looks like another and does nothing: what may be kept where the body must not be.

    It has the module, place, annotations and signature of the other, so that messages can name it and names
    that are defined later can be looked up.
    """

    def outline(*_args: Any, **_kwargs: Any) -> None:
        return None

    code = outline.__code__.replace(
        co_filename=fn.__code__.co_filename, co_firstlineno=fn.__code__.co_firstlineno, co_name=fn.__name__
    )
    found = types.FunctionType(code, fn.__globals__, fn.__name__)
    found.__qualname__, found.__module__ = fn.__qualname__, fn.__module__
    found.__annotations__ = dict(annotations)
    vars(found)["__signature__"] = signature
    return found


def same_parameters(wide: inspect.Signature, narrow: inspect.Signature) -> bool:
    """Whether both have the same names in the same places, and the first takes every value of the second."""
    pairs = list(zip(wide.parameters.values(), narrow.parameters.values(), strict=False))
    return len(wide.parameters) == len(narrow.parameters) == len(pairs) and all(
        (a.name, a.kind) == (b.name, b.kind) and _takes(a.annotation, b.annotation) for a, b in pairs
    )


def code_digest(code: types.CodeType) -> str:
    """64 hex digits over what a function does: its instructions, constants and names, not its text or place."""
    digest = hashlib.sha256()
    for part in _parts(code):
        digest.update(part)
    return digest.hexdigest()


def _resolved(fn: Callable[..., Any], note: Any, nearby: dict[str, Any]) -> Any:
    alone = types.SimpleNamespace(__annotations__={"it": note})
    scope = getattr(inspect.unwrap(fn), "__globals__", {})
    try:
        return typing.get_type_hints(alone, globalns=scope, localns=nearby, include_extras=True)["it"]
    except Exception:  # noqa: BLE001 (as above)
        return note


def _where_declared() -> dict[str, Any]:
    frame: types.FrameType | None = sys._getframe(1)  # noqa: SLF001 (there is no other way to see local classes)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_OWN):
        frame = frame.f_back
    return {} if frame is None else dict(frame.f_locals)


def _closure(fn: Callable[..., Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    plain = inspect.unwrap(fn)
    if isinstance(plain, types.FunctionType):
        for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True):
            try:
                found[name] = cell.cell_contents
            except ValueError:  # the name is bound later
                continue
    return found


def _takes(wide: Any, narrow: Any) -> bool:
    """Whether what is annotated `wide` takes what is annotated `narrow`; in doubt, yes."""
    if wide == narrow or any(wide is each or narrow is each for each in _SAYS_NOTHING):
        return True
    if isinstance(wide, str) or isinstance(narrow, str):
        return True
    if isinstance(wide, type) and isinstance(narrow, type) and (wide, narrow) in _PROMOTED:
        return True
    if typing.get_origin(wide) in (typing.Union, types.UnionType):
        return any(_takes(arm, narrow) for arm in typing.get_args(wide))
    plain = isinstance(wide, type) and isinstance(narrow, type)
    return plain and not typing.get_args(wide) and not typing.get_args(narrow) and issubclass(narrow, wide)


def _parts(code: types.CodeType) -> Iterator[bytes]:
    yield code.co_code
    for names in (code.co_names, code.co_varnames, code.co_freevars):
        yield "\0".join(names).encode() + b"\1"
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _parts(constant)
        else:
            yield _written(constant).encode() + b"\1"


def _written(constant: object) -> str:
    """A constant as text, the members of a set in sorted order: their own differs from process to process."""
    if isinstance(constant, frozenset):
        return f"frozenset({sorted(map(_written, constant))})"
    if isinstance(constant, tuple):
        return f"({', '.join(map(_written, constant))})"
    return repr(constant)
