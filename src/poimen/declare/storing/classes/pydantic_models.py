"""Codecs of pydantic models, and of other types that bring a pydantic schema of their own.

Pydantic itself writes and reads them, by field name. What it writes is then read back and compared,
because its serializers leave things out without a word: fields of a subclass, excluded fields,
secrets. Pydantic is never imported here: whoever has such a type has loaded it. This module keeps
the invariant that a model comes back equal, field by field, or is refused.

Source: design api.md, "Values"; architecture.md, "Style" (pydantic only where users bring it).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any

from poimen.declare.storing.canonical import to_bytes
from poimen.declare.storing.codec import (
    ALL_KINDS,
    CHANGED,
    Codec,
    Refusal,
    class_tag,
    json_tree,
    key_part,
    mismatch,
    subclass_refused,
    text_of,
)
from poimen.declare.storing.hints import label


def is_model(cls: type) -> bool:
    """Whether a class is a pydantic model (version 2)."""
    library: Any = sys.modules.get("pydantic")
    return library is not None and hasattr(cls, "__pydantic_serializer__") and issubclass(cls, library.BaseModel)


def has_schema(annotation: object) -> bool:
    """Whether a type says itself how pydantic stores it (`HttpUrl`, `SecretStr`)."""
    return "pydantic" in sys.modules and hasattr(annotation, "__get_pydantic_core_schema__")


@cache
def _by_name() -> Mapping[str, bool]:
    """The options that read a model by field name whatever its aliases; older versions have none."""
    found = tuple(int(part) for part in sys.modules["pydantic"].VERSION.split(".")[:2])
    return {"by_alias": False, "by_name": True} if found >= (2, 11) else {}


def model_codec(cls: Any, field_check: Callable[[Any], object]) -> Codec:
    """The codec of a pydantic model.

    Arguments:
        cls: the class.
        field_check: raises `Refusal` where an annotation cannot be stored.
    """
    cls.model_rebuild(raise_errors=False)
    _check_fields(cls, field_check)
    shown = label(cls)

    def enc(value: Any, depth: int) -> Any:
        if type(value) is not cls:
            raise subclass_refused(shown, value) if isinstance(value, cls) else mismatch(shown, value)
        return _written(value, cls.__pydantic_serializer__, read, shown, depth)

    def read(body: bytes) -> Any:
        return cls.__pydantic_validator__.validate_json(body, **_by_name())

    return Codec(
        label=shown,
        tag=class_tag(cls),
        types=frozenset({cls}),
        kinds=model_kinds(cls),
        enc=enc,
        dec=_reader(read, shown),
    )


def model_kinds(cls: Any) -> frozenset[type]:
    """The JSON kinds that pydantic may write a model as."""
    custom = cls.__pydantic_root_model__ or cls.__pydantic_decorators__.model_serializers
    return ALL_KINDS if custom else frozenset({dict})


def schema_codec(annotation: Any) -> Codec:
    """The codec of another type with a pydantic schema."""
    library: Any = sys.modules["pydantic"]
    shown = label(annotation)
    try:
        adapter = library.TypeAdapter(annotation)
    except Exception as cause:
        raise Refusal(f"{shown} cannot be stored: pydantic refuses it: {text_of(cause)}") from cause

    def enc(value: Any, depth: int) -> Any:
        return _written(value, adapter.serializer, read, shown, depth)

    def read(body: bytes) -> Any:
        return adapter.validator.validate_json(body, **_by_name())

    types = frozenset({annotation}) if isinstance(annotation, type) else frozenset[type]()
    tag = class_tag(annotation) if isinstance(annotation, type) else shown
    return Codec(label=shown, tag=tag, types=types, kinds=ALL_KINDS, enc=enc, dec=_reader(read, shown))


def _written(value: Any, serializer: Any, read: Callable[[bytes], Any], shown: str, depth: int) -> Any:
    try:
        tree = serializer.to_python(value, mode="json", round_trip=True, warnings=False, by_alias=not _by_name())
    except Exception as cause:
        raise Refusal(f"pydantic cannot write {shown}: {text_of(cause)}") from cause
    tree = json_tree(_sets_sorted(value, tree), depth)
    try:
        back = read(to_bytes(tree))
    except Exception as cause:
        raise _unreadable(cause, shown, "what pydantic writes does not read back") from cause
    lost = _difference(value, back)
    if lost is not None:
        refusal = Refusal(
            "pydantic does not write this so that it comes back the same",
            hint=f"give the field a serializer that keeps everything, or register a codec for {shown}",
        )
        for part in reversed(lost):
            refusal.inside(part)
        raise refusal
    return tree


def _reader(read: Callable[[bytes], Any], shown: str) -> Callable[[Any], Any]:
    def dec(tree: Any) -> Any:
        try:
            return read(to_bytes(tree))
        except Exception as cause:
            raise _unreadable(cause, shown, "the stored value does not fit") from cause

    return dec


def _unreadable(cause: Exception, shown: str, text: str) -> Refusal:
    errors = getattr(cause, "errors", None)
    if not callable(errors):
        return Refusal(f"{shown}: {text}: {text_of(cause)}", hint=CHANGED)
    first = errors(include_url=False, include_input=False, include_context=False)[0]
    refusal = Refusal(f"{shown}: {text}: {first['msg']}", hint=CHANGED)
    for part in reversed(first["loc"]):
        refusal.inside(f"[{part}]" if isinstance(part, int) else f".{part}")
    return refusal


def _parts(value: Any) -> dict[str, Any] | None:
    """The parts of a model or dataclass by name; None for anything else."""
    cls: Any = type(value)
    if hasattr(cls, "__pydantic_validator__") and hasattr(cls, "model_fields"):
        names, extra = cls.model_fields, getattr(value, "__pydantic_extra__", None) or {}
    elif hasattr(cls, "__dataclass_fields__"):
        names, extra = cls.__dataclass_fields__, {}
    else:
        return None
    return {**{name: getattr(value, name, None) for name in names}, **extra}


def _sets_sorted(value: Any, tree: Any) -> Any:
    """The tree with each array that a set was written as in the order of its elements' bytes."""
    if isinstance(value, set | frozenset) and isinstance(tree, list) and len(tree) == len(value):
        return sorted((_sets_sorted(one, inner) for one, inner in zip(value, tree, strict=True)), key=to_bytes)
    if isinstance(value, list | tuple) and isinstance(tree, list) and len(tree) == len(value):
        return [_sets_sorted(one, inner) for one, inner in zip(value, tree, strict=True)]
    if isinstance(value, Mapping) and isinstance(tree, dict) and len(tree) == len(value):
        pairs = zip(value.values(), tree.items(), strict=True)
        return {key: _sets_sorted(one, inner) for one, (key, inner) in pairs}
    if getattr(type(value), "__pydantic_root_model__", False):
        return _sets_sorted(value.root, tree)
    parts = _parts(value)
    if parts is not None and isinstance(tree, dict):
        return {key: _sets_sorted(parts.get(key), inner) for key, inner in tree.items()}
    return tree


def _children(value: Any) -> dict[Any, tuple[str, Any]] | None:
    """The parts of a value with their paths, by what names them; None when it has none."""
    parts = _parts(value)
    if parts is not None:
        return {name: (f".{name}", part) for name, part in parts.items()}
    if isinstance(value, dict):
        return {key: (key_part(key), part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return {n: (f"[{n}]", part) for n, part in enumerate(value)}
    return None


def _difference(one: Any, other: Any) -> list[str] | None:
    """The path to the first part in which two values differ, in class or content; None when there is none."""
    if type(one) is not type(other):
        # Pydantic does not look at defaults: `x: float = 0` holds an int until it is read back.
        alike = isinstance(one, type(other)) or (type(one) is int and type(other) is float)
        return None if alike and isinstance(other, str | int | float | bytes) and one == other else []
    parts, others = _children(one), _children(other)
    if parts is None or others is None:
        return None if one == other else []
    if len(parts) != len(others):
        return []
    for key, (path, part) in parts.items():
        inner = _difference(part, others[key][1]) if key in others else []
        if inner is not None:
            return [path, *inner]
    return None


def _check_fields(cls: Any, field_check: Callable[[Any], object]) -> None:
    decorators = cls.__pydantic_decorators__
    if decorators.model_serializers:
        return
    serialized = {name for one in decorators.field_serializers.values() for name in one.info.fields}
    for name, field in cls.model_fields.items():
        if field.exclude and field.is_required():
            text = f"{label(cls)} leaves the field out where pydantic writes it"
            raise Refusal(text, hint="drop exclude=True, or give the field a default").inside(f".{name}")
        if name in serialized or "*" in serialized:
            continue
        try:
            field_check(field.annotation)
        except Refusal as refusal:
            # Pydantic knows types and metadata that are its own: what it has a JSON form for passes.
            if not _has_json_form(field):
                raise refusal.inside(f".{name}") from refusal.__cause__


def _has_json_form(field: Any) -> bool:
    library: Any = sys.modules["pydantic"]
    whole = field.annotation
    for extra in field.metadata:
        whole = Annotated[whole, extra]
    try:
        library.TypeAdapter(whole).json_schema()
    except Exception:  # noqa: BLE001 (pydantic, and what models bring with them, raise many kinds)
        return False
    return True
