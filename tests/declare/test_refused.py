"""What cannot work is refused where it is declared, with the way out."""

from __future__ import annotations

import functools
from collections.abc import Callable  # noqa: TC003 (an annotation of what is declared)
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import Absent, Landed, Unknown, effects
from tests.declare import samples

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


def told(settings: dict[str, Any]) -> str:
    """The settings as the id of a test: the same in every process."""
    return ",".join(f"{key}={getattr(value, '__name__', value)}" for key, value in settings.items()).replace("\n", " ")


READ = poimen.tool(effect=effects.READ)
AT_ONCE = timedelta(0)


def fine(order: str, cents: int) -> str:
    return order * cents


def hides_its_colour(fn: Any) -> Any:
    @functools.wraps(fn)
    def inner(*args: Any) -> Any:
        return fn(*args)

    return inner


class Shop:
    @hides_its_colour
    def decorated(self, order: str) -> str:
        return order

    def method(self, order: str) -> str:
        return order

    @classmethod
    def of(cls, order: str) -> str:
        return order

    @staticmethod
    def plain(order: str) -> str:
        return order

    def __call__(self, order: str) -> str:
        return order


def generator(order: str) -> Iterator[str]:
    yield order


async def async_generator(order: str) -> AsyncIterator[str]:
    yield order


@hides_its_colour
async def hidden(order: str) -> str:
    return order


def takes_a_callback(order: str, then: Callable[[], None]) -> str:
    return order


def gives_a_callback(order: str) -> Callable[[], None]:
    raise AssertionError(order)


def bad_default(order: str = 3) -> str:  # type: ignore[assignment]
    return order


FUNCTIONS: list[tuple[Any, str, str]] = [
    (Shop.method, "it is a method", "a function of the module"),
    (Shop.decorated, "it is a method", "a function of the module"),
    (vars(Shop)["of"], "it is a classmethod", "out of its class"),
    (vars(Shop)["plain"], "it is a staticmethod", "out of its class"),
    (Shop().method, "is not a plain function", "wrap it"),
    (Shop(), "is not a plain function", "wrap it"),
    (Shop, "is not a plain function", "wrap it"),
    (functools.partial(fine, "a"), "is not a plain function", "wrap it"),
    (len, "is not a plain function", "wrap it"),
    (3, "is not a plain function", "wrap it"),
    (generator, "it is a generator", "return a list"),
    (async_generator, "it is a generator", "poimen.emit"),
    (lambda order: order, "a lambda has no name", "name="),
    (hidden, "made a plain function of a coroutine function", "async def"),
    (samples.charge, "it is declared already", "one decorator"),
    (samples.shop, "it is declared already", "one decorator"),
    (takes_a_callback, "then: collections.abc.Callable", "go on"),
    (gives_a_callback, "result: collections.abc.Callable", "go on"),
    (bad_default, "order: expected str, found int", "go on"),
]


@pytest.mark.parametrize(
    "declare", [READ, poimen.model, poimen.step, poimen.workflow], ids=["tool", "model", "step", "workflow"]
)
@pytest.mark.parametrize(("fn", "what", "way_out"), FUNCTIONS)
def test_a_function_that_cannot_be_declared(declare: Any, fn: Any, what: str, way_out: str) -> None:
    with pytest.raises(poimen.BadDeclaration) as refused:
        declare(fn)
    assert what in str(refused.value)
    assert way_out in str(refused.value)


def test_the_message_names_the_function_and_the_line() -> None:
    with pytest.raises(poimen.BadDeclaration) as refused:
        poimen.step(Shop.method)
    line = Shop.method.__code__.co_firstlineno
    assert str(refused.value).startswith("PO109 @step Shop.method: it is a method\n")
    assert f"test_refused.py:{line}\n" in str(refused.value)


def test_methods_of_classes_inside_functions_are_methods_too() -> None:
    class Inner:
        def method(self, order: str) -> str:
            return order

    with pytest.raises(poimen.BadDeclaration, match="it is a method"):
        READ(Inner.method)


def test_functions_inside_functions_are_not_methods() -> None:
    def inner(order: str) -> str:
        return order

    assert READ(inner).__name__ == "inner"


def test_a_static_method_may_be_made_of_a_tool() -> None:
    class Inner:
        @staticmethod
        @READ
        def plain(order: str) -> str:
            return order

    with pytest.raises(poimen.UnguardedEffect):
        Inner.plain("x")


def test_a_lambda_with_a_name_is_fine() -> None:
    assert poimen.tool(effect=effects.PURE, name="twice")(lambda x: x).__qualname__.endswith("<lambda>")


def test_what_is_defined_further_below_is_not_refused() -> None:
    assert samples.early.__name__ == "early"


# ---- the effect ------------------------------------------------------------------------------------------------------


def test_a_missing_effect_lists_the_six_choices() -> None:
    undeclared: Any = poimen.tool
    for make in (lambda: undeclared(fine), undeclared, lambda: undeclared(name="x")):
        with pytest.raises(poimen.BadDeclaration) as refused:
            make()
        text = str(refused.value)
        assert "effect= is missing" in text
        for choice in ("PURE", "READ", "IDEMPOTENT", "KEYED(ttl=", "PROBE(fn, lag=", "AT_MOST_ONCE"):
            assert f"effects.{choice}" in text
    with pytest.raises(poimen.BadDeclaration, match="@tool fine"):
        undeclared(fine)


@pytest.mark.parametrize("effect", ["READ", None, effects.KEYED, effects.PROBE, Landed("x"), effects.Effect])
def test_an_effect_is_one_of_the_six(effect: Any) -> None:
    with pytest.raises(poimen.BadDeclaration, match=r"is not an effect class[\s\S]*effects\.AT_MOST_ONCE"):
        poimen.tool(effect=effect)(fine)
    with pytest.raises(poimen.BadDeclaration, match="is not an effect class"):
        poimen.model(effect=effect)(fine)


def test_a_class_that_is_none_of_the_six_is_refused() -> None:
    unknown: Any = "TWICE"
    with pytest.raises(poimen.BadDeclaration, match="is not an effect class"):
        poimen.tool(effect=effects.Effect(effect_class=unknown))(fine)


def same(order: str, cents: int) -> Landed[str] | Absent | Unknown:
    return Unknown(f"{order} {cents}")


async def same_async(order: str, cents: int) -> Landed[str] | Absent | Unknown:
    return Unknown(f"{order} {cents}")


def wider(order: str | None, cents: float = 3) -> Landed[str]:
    return Landed(f"{order} {cents}")


def untyped(order, cents):
    return Landed((order, cents))


def fewer(order: str) -> Absent:
    return Absent(evidence=order)


def swapped(cents: int, order: str) -> Absent:
    return Absent(evidence=order * cents)


def renamed(order: str, pence: int) -> Absent:
    return Absent(evidence=order * pence)


def retyped(order: str, cents: str) -> Absent:
    return Absent(evidence=order + cents)


def keyword(order: str, *, cents: int) -> Absent:
    return Absent(evidence=order * cents)


def yielding(order: str, cents: int) -> Iterator[Absent]:
    yield Absent(evidence=order * cents)


@pytest.mark.parametrize("probe", [same, same_async, wider, untyped, lambda order, cents: Absent()])
def test_a_probe_with_the_same_parameters_is_fine(probe: Any) -> None:
    assert poimen.tool(effect=effects.PROBE(probe, lag=AT_ONCE))(fine).__name__ == "fine"
    assert poimen.tool(effect=effects.KEYED(timedelta(1), probe=probe))(fine).__name__ == "fine"


@pytest.mark.parametrize("probe", [fewer, swapped, renamed, retyped, keyword])
def test_a_probe_takes_the_parameters_of_its_tool(probe: Any) -> None:
    with pytest.raises(poimen.BadDeclaration) as refused:
        poimen.tool(effect=effects.PROBE(probe, lag=AT_ONCE))(fine)
    text = str(refused.value)
    assert f"@tool fine: the probe {probe.__name__}(" in text
    assert "does not take its parameters" in text
    assert f"def {probe.__name__}(order: str, cents: int)" in text


@pytest.mark.parametrize(
    ("probe", "what"),
    [(yielding, "is a generator"), (samples.look, "is itself declared"), (iter, "cannot be seen|does not take")],
)
def test_a_probe_is_a_plain_function(probe: Any, what: str) -> None:
    with pytest.raises(poimen.BadDeclaration, match=what):
        poimen.tool(effect=effects.PROBE(probe, lag=AT_ONCE))(fine)


@READ
def back(order: str, cents: int) -> None: ...


@READ
def back_fewer(order: str) -> None: ...


def test_an_undo_with_the_same_parameters_is_fine() -> None:
    assert poimen.tool(effect=effects.READ, undo=back)(fine).__name__ == "fine"


@pytest.mark.parametrize(
    ("undo", "what"),
    [
        (fine, "undo=fine is not a tool"),
        (samples.tidy, "undo=tidy is not a tool"),
        (samples.chat, "undo=chat is not a tool"),
        (back_fewer, "the undo back_fewer(order: str) does not take its parameters"),
        (back.options(timeout=3), "without .options(...)"),
    ],
)
def test_an_undo_is_a_tool_that_takes_the_same(undo: Any, what: str) -> None:
    with pytest.raises(poimen.BadDeclaration) as refused:
        poimen.tool(effect=effects.READ, undo=undo)(fine)
    assert what in str(refused.value)


# ---- other settings --------------------------------------------------------------------------------------------------

TOOL_SETTINGS: list[dict[str, Any]] = [
    {"timeout": 0},
    {"timeout": -1},
    {"timeout": timedelta(0)},
    {"timeout": float("inf")},
    {"timeout": None},
    {"timeout": "60"},
    {"timeout": True},
    {"grace": -0.1},
    {"backoff": timedelta(seconds=-1)},
    {"attempts": 0},
    {"attempts": 2.0},
    {"attempts": None},
    {"max_sends": 0},
    {"max_sends": True},
    {"exchanges": 0},
    {"on_indeterminate": "ask"},
    {"rejected": "ValueError"},
    {"rejected": (ValueError, int)},
    {"not_sent": int},
    {"not_sent": 1},
    {"summary": "charge {amount}"},
    {"summary": "charge {}"},
    {"summary": "charge {0}"},
    {"summary": "charge {order"},
    {"summary": 3},
    {"stake": "{more.than}"},
    {"name": ""},
    {"name": "a#1"},
    {"name": "a\nb"},
    {"name": "a" * 201},
    {"name": 3},
]


@pytest.mark.parametrize("settings", TOOL_SETTINGS, ids=told)
def test_a_setting_that_cannot_be_used(settings: dict[str, Any]) -> None:
    with pytest.raises(poimen.BadDeclaration) as refused:
        poimen.tool(effect=effects.READ, **settings)(fine)
    assert "@tool fine: " in str(refused.value)
    assert next(iter(settings)) in str(refused.value)
    assert "go on: " in str(refused.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"timeout": 0.001, "grace": 0, "backoff": timedelta(0), "attempts": 1, "max_sends": 1, "exchanges": 1},
        {"rejected": ValueError, "not_sent": (OSError, KeyboardInterrupt)},
        {"rejected": lambda error: True, "summary": lambda order, cents: order},
        {"summary": "charge {cents:,} for {order!r} and {order.title}, {{plain}}", "stake": "{cents}"},
        {"name": "the look-up / of it", "version": "2024-01", "on_indeterminate": "raise"},
    ],
    ids=told,
)
def test_a_setting_that_can(settings: dict[str, Any]) -> None:
    assert poimen.tool(effect=effects.READ, **settings)(fine).__name__ == "fine"


def test_unknown_settings_are_type_errors() -> None:
    for decorator in (poimen.tool, poimen.model, poimen.step, poimen.workflow, poimen.verifier):
        bare: Any = decorator
        with pytest.raises(TypeError, match="retries"):
            bare(retries=3, effect=effects.READ) if decorator is poimen.tool else bare(retries=3)


@pytest.mark.parametrize(
    "settings",
    [
        {"queue_timeout": 0},
        {"timeout": 0},
        {"attempts": 0},
        {"backoff": -1},
        {"retry_on": 3},
        {"on_indeterminate": "no"},
    ],
    ids=told,
)
def test_a_step_is_checked_too(settings: dict[str, Any]) -> None:
    with pytest.raises(poimen.BadDeclaration, match=next(iter(settings))):
        poimen.step(**settings)(fine)


@pytest.mark.parametrize("argument", ["timeout", "queue_timeout"])
@pytest.mark.parametrize("length", [60, 60.0, 59, timedelta(minutes=1)], ids=str)
def test_a_deadline_of_a_step_is_refused_where_it_is_declared(argument: str, length: Any) -> None:
    settings: Any = {argument: length}
    with pytest.raises(poimen.NotBuiltYet) as refused:
        poimen.step(**settings)(fine)
    assert refused.value.ids == {"name": f"step({argument}=)", "part": 3}


def test_a_deadline_of_one_call_of_a_step_is_refused_where_it_is_chosen() -> None:
    with pytest.raises(poimen.NotBuiltYet, match=r"step\(timeout=\)"):
        poimen.step(fine).options(timeout=60)


@pytest.mark.parametrize("settings", [{"timeout": 0}, {"attempts": 0}, {"backoff": -1}, {"retry_on": 3}], ids=told)
def test_a_model_is_checked_too(settings: dict[str, Any]) -> None:
    with pytest.raises(poimen.BadDeclaration, match=next(iter(settings))):
        poimen.model(**settings)(fine)


@pytest.mark.parametrize(
    "settings",
    [
        {"timeout": 0},
        {"budget": 3},
        {"states": {"names": []}},
        {"verifiers": ["cheap"]},
        {"verifiers": [samples.cheap, samples.cheap]},
        {"on_indeterminate": None},
        {"on_indeterminate": "no"},
    ],
    ids=told,
)
def test_a_workflow_is_checked_too(settings: dict[str, Any]) -> None:
    with pytest.raises(poimen.BadDeclaration, match=next(iter(settings))):
        poimen.workflow(**settings)(fine)


def judge(ctx: poimen.VerifierCtx) -> bool:
    return ctx.snapshot_lsn > 0


@pytest.mark.parametrize(
    "settings", [{"timeout": 0}, {"needs": ["everything"]}, {"needs": "expected"}, {"gate": 1}], ids=told
)
def test_a_verifier_is_checked_too(settings: dict[str, Any]) -> None:
    with pytest.raises(poimen.BadDeclaration, match=next(iter(settings))):
        poimen.verifier(**settings)(judge)


def test_a_verifier_takes_one_context() -> None:
    unfit: Any = fine
    with pytest.raises(poimen.BadDeclaration, match="cannot be called with one context"):
        poimen.verifier(unfit)


def test_a_refusal_of_a_value_names_its_path() -> None:
    with pytest.raises(poimen.BadDeclaration) as refused:
        poimen.step(takes_a_callback)
    assert refused.value.ids["path"] == "then"
    assert isinstance(refused.value.__cause__, poimen.NotStorable)
