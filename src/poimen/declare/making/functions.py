"""What can be read off a function as it is written: its source, signature, code digest, what it takes.

This module must never know what a function is declared as; it keeps the invariant that reading a
function runs none of it.

Source: design api.md, "Calling" (resolved annotations); protocol.md, section 5 (source text is no identity).
"""

from __future__ import annotations

import hashlib
import inspect
import types
import typing
from typing import TYPE_CHECKING, Any, Final

from poimen.declare.values import Parameters
from poimen.kernel.errors import NotStorable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_EMPTY: Final = inspect.Signature.empty
_PROMOTED: Final = {(float, int), (complex, int), (complex, float)}
_SAYS_NOTHING: Final = (Any, object, _EMPTY)


def source_of(fn: types.FunctionType) -> types.FunctionType:
    """The function that the author has written, below the decorators that say so (`functools.wraps`)."""
    found = inspect.unwrap(fn)
    return found if isinstance(found, types.FunctionType) else fn


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """The signature with annotations as types; one that names what does not exist yet stays as it is written.

    Raises:
        ValueError, TypeError: the callable does not show one.
    """
    read = Parameters.of(fn)
    try:
        read.result  # noqa: B018 (refused when an annotation cannot be evaluated)
    except NotStorable:
        bare = inspect.signature(fn)
        return bare.replace(
            parameters=[each.replace(annotation=_type(fn, each.annotation)) for each in bare.parameters.values()],
            return_annotation=_type(fn, bare.return_annotation),
        )
    return read.signature


def annotations_of(signature: inspect.Signature) -> dict[str, Any]:
    """The annotations of a signature by name, and `return`."""
    notes = {each.name: each.annotation for each in signature.parameters.values()}
    return {name: note for name, note in {**notes, "return": signature.return_annotation}.items() if note is not _EMPTY}


def outline_of(fn: Callable[..., Any], signature: inspect.Signature) -> types.FunctionType:
    """A function that looks like another and does nothing: what may be kept where the body must not be.

    It has the module, place and annotations of the other, so that messages can name it and names that are
    defined later can be looked up.
    """

    def outline(*_args: Any, **_kwargs: Any) -> None:
        return None

    source = inspect.unwrap(fn)
    code, name = getattr(source, "__code__", outline.__code__), getattr(fn, "__name__", "outline")
    code = outline.__code__.replace(co_filename=code.co_filename, co_firstlineno=code.co_firstlineno, co_name=name)
    found = types.FunctionType(code, getattr(source, "__globals__", {}), name)
    found.__qualname__ = getattr(fn, "__qualname__", name)
    found.__module__ = fn.__module__
    found.__annotations__ = annotations_of(signature)
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


def _type(fn: Callable[..., Any], note: Any) -> Any:
    alone = outline_of(fn, inspect.Signature(return_annotation=note))
    return Parameters.of(alone).signature.return_annotation


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
