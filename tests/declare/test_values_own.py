"""What is stored by its own class comes back equal, as that class, or is refused with a way out."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Sequence  # noqa: TC003 (read when a value is stored)
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum, auto
from pathlib import Path
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import attrs
import httpx
import msgspec
import pydantic
import pytest

from poimen.declare.storing.codec import REGISTRY
from poimen.declare.values import dump, dump_own, load, register_codec
from poimen.kernel.errors import NotStorable


class Colour(Enum):
    RED = 1
    BLUE = 2


class Size(StrEnum):
    SMALL = "s"


class Rank(IntEnum):
    FIRST = 1


class Rights(Flag):
    READ = auto()
    WRITE = auto()


@dataclass(frozen=True)
class Plan:
    goal: str
    steps: tuple[str, ...] = ()
    colour: Colour = Colour.RED
    notes: dict[str, Any] = field(default_factory=dict, hash=False)


class Offer(pydantic.BaseModel):
    price: Decimal
    until: datetime


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Person(TypedDict):
    name: str


class Struct(msgspec.Struct):
    when: date


@attrs.define
class Attrs:
    names: list[str]


class Bare:
    """Registered below."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bare) and self.n == other.n

    def __hash__(self) -> int:
        return self.n


@dataclass(eq=False)
class Alike:
    n: int


NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
PLAN = Plan("tea", ("boil", "pour"), Colour.BLUE, {"n": 1})
PLAIN: list[Any] = [
    None,
    True,
    3,
    1.5,
    "tea",
    b"\x00\xff",
    [1, [2]],
    {"a": {"b": None}},
    {1: "one", (2, 3): "two"},
    {"$type": "Plan", "value": 1},
    (1, "a"),
    {1, 2},
    frozenset({"a"}),
    Person(name="ann"),
    NOON,
    date(2026, 1, 1),
    time(1, 2),
    timedelta(seconds=1.5),
    Decimal("1.10"),
    UUID(int=7),
    Path("a/b"),
]
"""What needs no class: stored before by its kind."""

CLASSES: list[Any] = [
    PLAN,
    Colour.RED,
    Size.SMALL,
    Rank.FIRST,
    Rights.READ | Rights.WRITE,
    Point(1, 2.5),
    Offer(price=Decimal("4.20"), until=NOON),
    Struct(date(2026, 1, 1)),
    Attrs(["a"]),
]
INSIDE: list[Any] = [
    [PLAN, Colour.RED],
    {"plan": PLAN, "when": NOON},
    (PLAN, (Colour.BLUE, UUID(int=1))),
    {Colour.RED: [PLAN], Colour.BLUE: []},
    {Colour.RED, Size.SMALL, Rank.FIRST},
    frozenset({Point(1), Point(2)}),
    {"$type": "Plan", "value": PLAN},
    [{"a": [Offer(price=Decimal(1), until=NOON)]}],
]


def same(value: Any, other: Any) -> bool:
    """Equal, of one class, and so are the parts."""
    if type(value) is not type(other) or value != other:
        return False
    if isinstance(value, dict):
        return same(list(value.items()), [(key, other[key]) for key in value])
    if isinstance(value, list | tuple):
        return all(same(a, b) for a, b in zip(value, other, strict=True))
    return True


@pytest.mark.parametrize("value", [*PLAIN, *CLASSES, *INSIDE])
def test_it_comes_back_equal_and_as_its_class(value: Any) -> None:
    body, back = dump_own(value)
    assert same(value, back)
    again, _ = dump_own(back)
    assert again == body


@pytest.mark.parametrize("value", PLAIN)
def test_what_needs_no_class_has_the_bytes_that_it_has_without_one(value: Any) -> None:
    assert dump_own(value)[0] == dump(value)


@pytest.mark.parametrize("value", CLASSES)
def test_the_class_is_a_part_of_what_is_stored(value: Any) -> None:
    body, _ = dump_own(value)
    assert f'"$type":"{type(value).__name__}"'.encode() in body
    assert body != dump_own(load(dump(value, type(value))))[0]
    with pytest.raises(NotStorable, match="no codec is registered"):
        load(body)  # the bytes alone choose no class


def test_two_classes_of_one_name_are_told_apart() -> None:
    def made() -> type:
        return dataclass(type("Plan", (), {"__annotations__": {"goal": str}, "__module__": "elsewhere"}))

    other = made()
    mixed = [PLAN, other("x")]
    body, back = dump_own(mixed)
    assert back == mixed
    assert b'"elsewhere.Plan"' in body
    assert dump_own(mixed[::-1])[1] == mixed[::-1]
    with pytest.raises(NotStorable, match=r"both stored under the name 'elsewhere\.Plan'"):
        dump_own([other("x"), made()("x")])


def test_a_registered_codec_goes_before_and_keeps_its_name() -> None:
    try:
        register_codec(Bare, name="Plan", encode=lambda bare: bare.n, decode=Bare)  # type: ignore[arg-type]
        body, back = dump_own([Bare(1), PLAN])
        assert back == [Bare(1), PLAN]
        assert b'{"$type":"Plan","value":1}' in body
    finally:
        REGISTRY.by_class.pop(Bare, None)
        REGISTRY.by_name.pop("Plan", None)
        REGISTRY._classes.pop("Plan", None)


def test_a_class_without_equality_is_compared_by_what_is_stored() -> None:
    _, back = dump_own(Alike(3))
    assert type(back) is Alike
    assert back.n == 3


@dataclass
class Loose:
    items: Sequence[int]


@dataclass
class Open:
    inside: Any


class Odd:
    def __init__(self) -> None:
        self.client = None


@dataclass
class Angry:
    n: int

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("do not compare me")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("value", "path", "says", "hint"),
    [
        (httpx.Timeout(3), "value", "httpx.Timeout cannot be stored", "register a codec"),
        ({"a": [Odd()]}, "value['a'][0]", "Odd cannot be stored", "register a codec"),
        (object(), "value", "object cannot be stored", "register a codec"),
        (Plan, "value", "type cannot be stored", "plain data"),
        (len, "value", "cannot be stored", "plain data"),
        (Loose((1, 2)), "value", "Loose would not come back equal", "annotate its fields"),
        ([Plan("x", notes={"a": PLAN})], "value[0].notes['a']", "cannot be stored where no class", "annotate"),
        (Open(Colour.RED), "value.inside", "cannot be stored where no class is annotated", "annotate"),
        (Plan(3), "value.goal", "expected str, found int", "annotated type"),  # type: ignore[arg-type]
        (OrderedDict(a=1), "value", "OrderedDict would not come back as", "dict(value)"),
        (Counter("a"), "value", "Counter would not come back as", "dict(value)"),
        (defaultdict(int), "value", "defaultdict would not come back as", "dict(value) (its default is lost)"),
        (deque([1]), "value", "deque would not come back as", "list(value)"),
        (bytearray(b"a"), "value", "bytearray would not come back as", "bytes(value)"),
        (type("Name", (str,), {})("x"), "value", "Name would not come back as", "str(value)"),
        (float("nan"), "value", "nan has no JSON", "None"),
        (Angry(1), "value", "its own code raised RuntimeError: do not compare me", ""),
    ],
)
def test_what_cannot_come_back_is_refused_with_a_way_out(value: Any, path: str, says: str, hint: str) -> None:
    with pytest.raises(NotStorable) as refused:
        dump_own(value)
    assert refused.value.path == path
    assert says in str(refused.value)
    assert hint in (refused.value.hint or "")
    assert "resource" not in (refused.value.hint or "")


def test_a_value_that_contains_itself_says_so() -> None:
    loop: list[Any] = []
    loop.append({"again": loop})
    with pytest.raises(NotStorable, match="contains itself"):
        dump_own(loop)
