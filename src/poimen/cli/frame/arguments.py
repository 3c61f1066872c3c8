"""ARGS of `poimen run`: words of the command line as the arguments of a workflow, by its annotations.

Words go by position, or by name as `--name value`, `--name=value`, `name=value`; a `bool` is also `--name` and
`--no-name`. Text is taken as it is where a `str` is annotated; everything else is JSON, or where that does not fit
the text of it (a date, an amount, a member of an enum). This module must never know what is done with the arguments;
it keeps the invariant that a word which does not fit is an error that names the parameter.

Source: design api.md, "Command line" (ARGS follow the annotations).
"""

from __future__ import annotations

import json
import types
from inspect import Parameter, Signature
from math import isinf
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin

import click

from poimen.cli.frame.declaring import clipped
from poimen.declare import values
from poimen.declare.storing.hints import label
from poimen.kernel.errors import NotStorable
from poimen.secrecy.named import Secret

if TYPE_CHECKING:
    from collections.abc import Sequence

_BY_POSITION: Final = frozenset({Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD})
_BOOLS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def bound(signature: Signature, words: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments from words.

    Arguments:
        signature: with evaluated annotations.
        words: as typed.

    Raises:
        click.UsageError: a word has no parameter, a parameter no word, or the two do not fit.
    """
    parameters = signature.parameters
    places = [p for p in parameters.values() if p.kind in _BY_POSITION]
    more = next((p for p in parameters.values() if p.kind is Parameter.VAR_POSITIONAL), None)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    ahead = list(words)
    while ahead:
        word = ahead.pop(0)
        named = _named(parameters, word, ahead)
        if named is not None:
            parameter, name, text = named
            if name in kwargs:
                raise click.UsageError(f"{name} is given twice")
            kwargs[name] = value_of(parameter, text)
            continue
        place = places[len(args)] if len(args) < len(places) else more
        if place is None:
            raise click.UsageError(f"one word too many: it takes {_takes(places)}")
        args.append(value_of(place, word))
    return args, kwargs


def _takes(places: Sequence[Parameter]) -> str:
    return ", ".join(p.name for p in places) or "no arguments"


def _named(parameters: Any, word: str, ahead: list[str]) -> tuple[Parameter, str, str] | None:
    """The parameter that a word names, the name, and its text (perhaps the next word); None: it names none."""
    dashed = word.startswith("--") and len(word) > len("--")
    name, sep, text = word.removeprefix("--").partition("=")
    name = name.replace("-", "_") if dashed else name
    parameter = parameters.get(name)
    if parameter is not None and parameter.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
        parameter = None
    if parameter is None and name.isidentifier() and (dashed or sep):
        rest = next((p for p in parameters.values() if p.kind is Parameter.VAR_KEYWORD), None)
        off = parameters.get(name.removeprefix("no_")) if dashed and not sep and name.startswith("no_") else None
        if off is not None and _bare(off.annotation) is bool:
            return off, off.name, "false"
        parameter = rest
    if parameter is None:
        if dashed:
            known = ", ".join(f"--{p}" for p in parameters)
            raise click.UsageError(f"there is no parameter {clipped(name)!r}; there are: {known or 'none'}")
        return None
    if sep:
        return parameter, name, text
    if not dashed:
        return None
    if _bare(parameter.annotation) is bool and not (ahead and ahead[0].lower() in _BOOLS):
        return parameter, name, "true"
    if not ahead:
        raise click.UsageError(f"--{name.replace('_', '-')} needs a value")
    return parameter, name, ahead.pop(0)


def value_of(parameter: Parameter, text: str) -> Any:
    """The value that a text stands for.

    Arguments:
        parameter: its name and evaluated annotation.
        text: as typed.

    Raises:
        click.UsageError: the text does not fit; the message has types, and no value.
    """
    annotation = Any if parameter.annotation is Parameter.empty else parameter.annotation
    bare = _bare(annotation)
    if bare is bool and text.lower() in _BOOLS:
        return _BOOLS[text.lower()]
    if bare is Secret:
        try:
            return Secret(text)
        except NotStorable as error:
            raise click.UsageError(f"{parameter.name}: {error.message}; {error.hint}") from None
    if annotation is Any or bare is object:
        return next(iter(_as_json(text)), text)
    readings = [*_as_json(text), text]
    if _takes_text(bare):
        readings = [None, text] if text == "null" and type(None) in get_args(bare) else [text, *_as_json(text)]
    given = type(next(iter(_as_json(text)), text)).__name__  # never the text: arguments are shown on demand only
    details: list[str] = []
    for tree in readings:
        try:
            return values.load(json.dumps(tree).encode(), annotation, path=parameter.name)
        except NotStorable as error:
            details.append(error.message)
    more = f" ({details[0]})" if len(details) > 1 else ""
    raise click.UsageError(f"{parameter.name}: a {given} does not fit {label(annotation)}{more}")


def from_json(text: str) -> Any:
    """What a JSON text says; `NaN` and `Infinity` are no JSON, and a key that stands twice says two things.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _finite(text: str) -> float:
    if isinf(value := float(text)):
        raise ValueError(f"{clipped(text)} is larger than a number can be")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key of an object stands in it twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _as_json(text: str) -> list[Any]:
    """The JSON that a text is, if it is any."""
    try:
        return [from_json(text)]
    except ValueError:
        return []


def _bare(annotation: Any) -> Any:
    """The annotation without `Annotated`, `NewType` and aliases around it."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation


def _takes_text(bare: Any) -> bool:
    """Whether a plain text is one of the values: `str`, or a union with it."""
    if get_origin(bare) in {Union, types.UnionType}:
        return any(_takes_text(_bare(one)) for one in get_args(bare))
    return bare is str
