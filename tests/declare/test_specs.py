"""What is read off a declaration: lengths of time, exceptions, texts for people, budgets."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

import poimen
from poimen.declare.specs import ToolSpec, described, matches, seconds, spec_of
from poimen.kernel.errors import BadDeclaration
from tests.declare import samples
from tests.declare.samples import Order


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3.0),
        (0.5, 0.5),
        (0, 0.0),
        (-1, -1.0),
        (timedelta(minutes=1, milliseconds=500), 60.5),
        (True, None),
        ("3", None),
        (None, None),
        (float("nan"), None),
        (float("inf"), None),
    ],
)
def test_seconds(value: Any, expected: float | None) -> None:
    assert seconds(value) == expected
    assert isinstance(seconds(value), float) is (expected is not None)


def test_exceptions_match_by_type_or_by_predicate() -> None:
    assert matches(ValueError, UnicodeError())
    assert not matches(ValueError, TypeError())
    assert matches((OSError, KeyError), ConnectionRefusedError())
    assert not matches((), ValueError())
    assert matches(lambda error: "[rejected]" in str(error), RuntimeError("! [rejected]"))
    assert not matches(lambda error: "[rejected]" in str(error), RuntimeError("timeout"))
    seen: list[BaseException] = []
    error = ValueError()
    assert matches(lambda it: seen.append(it) or True, error)  # type: ignore[func-returns-value]
    assert seen == [error]


def tool_spec(name: object) -> ToolSpec:
    spec = spec_of(name)
    assert isinstance(spec, ToolSpec)
    return spec


def test_a_text_for_people_is_filled_in() -> None:
    spec = tool_spec(samples.charge)
    args = (Order("tea", 4200),)
    assert described(spec.summary, spec, args, {}) == "charge 4200"
    assert described("{note} for {order.id!r}", spec, args, {}) == "none for 'tea'"
    assert described("{note}", spec, args, {"note": "n"}) == "n"
    assert described(lambda order, note="none": f"{order.id}/{note}", spec, args, {}) == "tea/none"
    assert described("x" * 1000, spec, args, {}) == "x" * 500


def raises(order: Order, note: str = "none") -> str:
    raise RuntimeError(f"{order} {note}")


@pytest.mark.parametrize("text", ["", "{order.price}", "{order[0]}", "{note:%d}", raises, lambda: "too few"])
def test_a_text_that_cannot_be_put_together_is_none_and_is_not_made_up_from_the_arguments(text: Any) -> None:
    spec = tool_spec(samples.charge)
    assert described(text, spec, (Order("tea", 1),), {}) == ""


def test_only_what_was_declared_has_a_spec() -> None:
    assert spec_of(samples.landed) is None
    assert spec_of(None) is None
    assert spec_of(samples) is None


@pytest.mark.parametrize("usd", [None, 0, 2, 0.5, Decimal("0.10")])
@pytest.mark.parametrize("tokens", [None, 0, 200_000])
def test_a_budget(usd: Any, tokens: int | None) -> None:
    budget = poimen.Budget(usd=usd, tokens=tokens)
    assert (budget.usd, budget.tokens) == (usd, tokens)
    assert budget == poimen.Budget(usd, tokens)


@pytest.mark.parametrize("limit", [-1, float("nan"), float("inf"), Decimal(-1), "2", True])
def test_a_budget_that_is_none(limit: Any) -> None:
    with pytest.raises(BadDeclaration, match="usd="):
        poimen.Budget(usd=limit)
    with pytest.raises(BadDeclaration, match="tokens="):
        poimen.Budget(tokens=limit)


def test_a_budget_of_half_a_token() -> None:
    half: Any = 0.5
    with pytest.raises(BadDeclaration, match="tokens="):
        poimen.Budget(tokens=half)
