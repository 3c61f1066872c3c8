"""A declared name is a plain function that looks like the one it stands for."""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import subprocess
import sys
import types
import typing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import poimen
from poimen import effects
from poimen.declare import sealed
from poimen.declare.specs import spec_of
from tests.declare import samples
from tests.declare.samples import Later, Order


def body(name: Any) -> Any:
    spec = spec_of(name)
    assert spec is not None
    return sealed.opened(spec.token)


@pytest.mark.parametrize("name", samples.TOOLS, ids=lambda name: name.__name__)
def test_it_shows_what_the_function_shows(name: Any) -> None:
    own = body(name)
    assert type(name) is types.FunctionType
    assert (name.__name__, name.__qualname__, name.__module__) == (
        own.__name__,
        own.__qualname__,
        "tests.declare.samples",
    )
    assert name.__doc__ == own.__doc__
    assert name.__globals__ is vars(samples)
    assert not hasattr(name, "__wrapped__")
    hints = typing.get_type_hints(own)
    assert inspect.signature(name).parameters.keys() == inspect.signature(own).parameters.keys()
    for key, parameter in inspect.signature(name).parameters.items():
        original = inspect.signature(own).parameters[key]
        assert (parameter.kind, parameter.default) == (original.kind, original.default)
        if name is not samples.early:
            assert parameter.annotation == hints[key]
    assert typing.get_type_hints(name) == hints


def test_annotations_are_types_although_they_were_written_as_text() -> None:
    assert samples.charge.__annotations__ == {"order": Order, "note": str, "return": str}
    assert (
        str(inspect.signature(samples.look)) == "(path: str, *more: str, deep: bool = False, **rest: int) -> list[str]"
    )


def test_only_what_is_not_defined_yet_stays_text_and_is_found_later() -> None:
    assert samples.early.__annotations__ == {"later": "Later", "return": "Later"}
    assert typing.get_type_hints(samples.early) == {"later": Later, "return": Later}
    with pytest.raises(poimen.UnguardedEffect):
        samples.early(Later(1))
    with pytest.raises(poimen.NotStorable, match="later"):
        samples.early(samples.Order("a", 1))  # type: ignore[arg-type]


def test_one_unknown_name_does_not_hide_the_others() -> None:
    @poimen.step
    def mixed(order: Order, other: Nowhere) -> str:  # type: ignore[name-defined] # noqa: F821
        return str((order, other))

    assert mixed.__annotations__ == {"order": Order, "other": "Nowhere", "return": str}


def test_types_of_the_function_around_it_are_found() -> None:
    class Local(typing.NamedTuple):
        n: int

    @poimen.step
    def inner(local: Local) -> list[Local]:
        return [local]

    assert inner.__annotations__ == {"local": Local, "return": list[Local]}


@pytest.mark.parametrize("name", [*samples.TOOLS, *samples.WORKFLOWS], ids=lambda name: name.__name__)
def test_it_is_pickled_by_name(name: Any) -> None:
    assert pickle.loads(pickle.dumps(name)) is name
    for face in ("aio", "sync"):
        if hasattr(name, face):
            assert pickle.loads(pickle.dumps(getattr(name, face))) is getattr(name, face)


COLOURS = [
    (samples.charge, True),
    (samples.charge.aio, True),
    (samples.charge.sync, False),
    (samples.charge.options, False),
    (samples.charge.options(key="k"), True),
    (samples.look, False),
    (samples.look.aio, True),
    (samples.look.sync, False),
    (samples.chat, True),
    (samples.tidy, False),
    (samples.shop, False),
    (samples.shop_sync, False),
]


@pytest.mark.parametrize(("face", "awaited"), COLOURS)
def test_it_keeps_its_colour(face: Any, awaited: bool) -> None:
    assert inspect.iscoroutinefunction(face) is awaited
    assert inspect.iscoroutinefunction(partial(face)) is awaited
    assert not inspect.isgeneratorfunction(face)
    assert not inspect.isasyncgenfunction(face)


def test_asyncio_sees_the_colour_too() -> None:
    assert asyncio.iscoroutinefunction(samples.charge)
    assert not asyncio.iscoroutinefunction(samples.charge.sync)


def test_a_workflow_says_that_it_gives_a_call() -> None:
    signature = inspect.signature(samples.shop)
    assert list(signature.parameters) == ["order"]
    assert signature.return_annotation == poimen.Call[str]
    assert samples.shop.__annotations__ == {"order": Order, "return": poimen.Call[str]}


def test_options_are_keywords_with_names_and_nothing_else() -> None:
    expected = ["key", "timeout", "attempts", "on_indeterminate", "decision"]
    assert list(inspect.signature(samples.charge.options).parameters) == expected
    with pytest.raises(TypeError, match="retries"):
        samples.charge.options(retries=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        samples.charge.options("k")  # type: ignore[call-arg]


def test_what_options_gives_looks_the_same() -> None:
    chosen: Any = samples.charge.options(key="k", timeout=3)
    assert type(chosen) is types.FunctionType
    assert inspect.signature(chosen) == inspect.signature(samples.charge)
    assert chosen.__globals__ is vars(samples)
    assert chosen.__name__ == "charge"
    assert spec_of(chosen) is spec_of(samples.charge)


def test_faces_say_whose_they_are() -> None:
    assert samples.charge.aio.__qualname__ == "charge.aio"
    assert samples.charge.sync.__qualname__ == "charge.sync"
    assert samples.charge.options.__qualname__ == "charge.options"
    assert inspect.getdoc(samples.charge.sync) == "Take the money."


def test_settings_become_a_spec() -> None:
    spec: Any = spec_of(samples.charge)
    assert (spec.kind, spec.name, spec.version, spec.is_async) == ("tool", "charge", "1", True)
    assert (spec.timeout_s, spec.grace_s, spec.attempts, spec.backoff_s, spec.max_sends) == (60.0, 5.0, 1, 1.0, 3)
    assert spec.effect.effect_class == "KEYED"
    assert spec.undo is spec_of(samples.refund)
    assert spec.file.endswith("tests/declare/samples.py")
    assert Path(spec.file).read_text().splitlines()[spec.line - 1].startswith("@poimen.tool(effect=effects.KEYED")
    assert len(spec.code_digest) == 64
    model: Any = spec_of(samples.chat)
    assert (model.kind, model.attempts, model.effect) == ("model", 3, effects.READ)
    step: Any = spec_of(samples.tidy)
    assert (step.kind, step.attempts, step.effect, step.is_async) == ("step", 5, None, False)
    workflow: Any = spec_of(samples.shop)
    assert (workflow.kind, workflow.name, workflow.on_indeterminate) == ("workflow", "shop", "wait")
    verifier: Any = spec_of(samples.cheap)
    assert (verifier.kind, verifier.name, verifier.gate, verifier.timeout_s) == ("verifier", "cheap", True, 60.0)


DIGESTS = """
from poimen.declare.making.functions import code_digest
def body(x):
    def inner():
        return x in {"a", "b", "c", "d"}
    return inner
print(code_digest(body.__code__))
"""


def test_the_code_digest_is_of_the_code_alone() -> None:
    def compiled(text: str) -> str:
        from poimen.declare.making.functions import code_digest

        return code_digest(compile(text, "agent.py", "exec"))

    assert compiled("def f():\n    return 1") == compiled("# a comment\n\ndef f():\n    return (1)  # another")
    assert compiled("def f():\n    return 1") != compiled("def f():\n    return 2")
    assert compiled("def f():\n    return a") != compiled("def f():\n    return b")
    assert compiled("def f():\n    return lambda: 1") != compiled("def f():\n    return lambda: 2")
    told = {
        subprocess.run(
            [sys.executable, "-c", DIGESTS], check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1
