"""Classes of users: every field comes back, nothing is lost in silence, and no stored byte chooses a class."""

from __future__ import annotations

import dataclasses
import subprocess
import typing
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from ipaddress import IPv4Address
from types import GenericAlias, ModuleType
from typing import Annotated, Any, Generic, NamedTuple, NotRequired, Required, Self, TypedDict, TypeVar

import attrs
import httpx
import msgspec
import pydantic
import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st

from poimen.declare.storing.codec import REGISTRY
from poimen.declare.values import dump, load, register_codec, storable
from poimen.kernel.errors import BadDeclaration, NotStorable

T = TypeVar("T")


@dataclass
class Line:
    name: str
    cents: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    lines: tuple[Line, ...]
    due: date | None = None
    notes: dict[str, list[Line]] = field(default_factory=dict)


@dataclass
class Node(Generic[T]):
    value: T
    children: list[Node[T]] = field(default_factory=list)
    parent: Self | None = None


@dataclass
class Dated(Node[date]):
    label: str = ""


@dataclass
class Rounded:
    """Its constructor changes what it is given, and sets what it is not given."""

    cents: int
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.cents *= 100
        self.total = self.cents + 1


@dataclass(frozen=True)
class Grown:
    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", self.n + 1)


@attrs.define
class Parcel:
    weight: float
    _inner: str = attrs.field(default="s", alias="key")
    tags: list[str] = attrs.field(factory=list, converter=lambda tags: [*tags, "seen"])
    size: int = attrs.field(init=False, default=3)


class Row(msgspec.Struct, frozen=True, rename="camel", tag="row"):
    row_id: int
    note: str | msgspec.UnsetType = msgspec.UNSET
    when: datetime | None = None


class Doubled(msgspec.Struct, frozen=True):
    n: int

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "n", self.n * 2)


class Point(NamedTuple):
    x: int
    y: int = 0


Pair = namedtuple("Pair", ["a", "b"])  # noqa: PYI024 (as older code has them)


class Base(TypedDict):
    name: str


class Person(Base, total=False):
    age: Required[int]
    nick: str


class Loose(TypedDict):
    a: NotRequired[Annotated[int, "cents"]]
    b: str


class Ext(typing_extensions.TypedDict):
    n: int


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    amount: Decimal = pydantic.Field(alias="theAmount")
    lines: list[Line] = []
    tags: set[str] = set()
    ratio: float = 0  # an int until it is read back
    inner: Model | None = None
    _hidden: int = pydantic.PrivateAttr(default=1)


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Box(pydantic.BaseModel, Generic[T]):
    content: T


class Leaf(pydantic.BaseModel):
    twig: Twig | None = None


@dataclass
class Twig:
    leaf: Leaf | None = None


LINES = st.builds(Line, name=st.text(), cents=st.integers())
NODES = st.recursive(
    st.builds(Node, value=st.integers()),
    lambda inner: st.builds(Node, value=st.integers(), children=st.lists(inner)),
    max_leaves=4,
)
MODELS = st.builds(
    lambda amount, lines, tags, extra: Model.model_validate(
        {"theAmount": amount, "lines": lines, "tags": tags, "more": extra}
    ),
    st.decimals(allow_nan=False, allow_infinity=False, places=2),
    st.lists(LINES, max_size=2),
    st.sets(st.text(st.characters(codec="utf-8"), max_size=3)),
    st.text(st.characters(codec="utf-8")),
)
CASES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Line, LINES),
    (
        Order,
        st.builds(
            Order, lines=st.lists(LINES).map(tuple), due=st.dates() | st.none(), notes=st.just({"a": [Line("b")]})
        ),
    ),
    (Node[int], NODES),
    (Node, st.builds(Node, value=st.text() | st.none())),
    (Dated, st.builds(Dated, value=st.dates(), children=st.lists(st.builds(Node, value=st.dates())))),
    (Rounded, st.builds(Rounded, cents=st.integers())),
    (Grown, st.builds(Grown, n=st.integers())),
    (Parcel, st.builds(Parcel, weight=st.just(1.5), key=st.text(), tags=st.lists(st.text()))),
    (
        Row,
        st.builds(Row, row_id=st.integers(), note=st.text() | st.just(msgspec.UNSET), when=st.datetimes() | st.none()),
    ),
    (Doubled, st.builds(Doubled, n=st.integers())),
    (Point, st.builds(Point, x=st.integers())),
    (Pair, st.builds(Pair, a=st.integers(), b=st.text())),
    (Person, st.fixed_dictionaries({"name": st.text(), "age": st.integers()}, optional={"nick": st.text()})),
    (Loose, st.fixed_dictionaries({"b": st.text()}, optional={"a": st.integers()})),
    (Ext, st.fixed_dictionaries({"n": st.integers()})),
    (Model, MODELS),
    (Numbers, st.builds(Numbers, st.lists(st.integers(-(2**70), 2**70)))),
    (Box[date], st.builds(Box[date], content=st.dates())),
    (Line | Order | None, LINES | st.builds(Order, lines=st.just(())) | st.none()),
    (Line | Model | Row, LINES | MODELS | st.builds(Row, row_id=st.integers())),
    (Line | dict[str, int], LINES | st.dictionaries(st.sampled_from(["$type", "value", "name"]), st.integers())),
    (Person | Ext | str, st.fixed_dictionaries({"n": st.integers()}) | st.text()),
    (Node[int] | Node[str], st.builds(Node, value=st.integers() | st.text())),
    (list[Line | Point | Any], st.lists(LINES | st.builds(Point, x=st.integers()) | st.dates())),
    (Numbers | None, st.builds(Numbers, st.lists(st.integers(0, 9))) | st.none()),
    (pydantic.JsonValue, st.recursive(st.none() | st.integers() | st.text(), st.lists)),
    (pydantic.HttpUrl, st.just(pydantic.HttpUrl("https://example.com/a?b=c"))),
]


@pytest.mark.parametrize(("annotation", "values"), CASES, ids=[str(annotation)[:70] for annotation, _ in CASES])
def test_every_field_comes_back(annotation: Any, values: st.SearchStrategy[Any]) -> None:
    @given(values)
    @settings(max_examples=25)
    def both_ways(value: object) -> None:
        body = dump(value, annotation)
        back = load(body, annotation)
        assert type(back) is type(value)
        assert back == value
        assert dump(back, annotation) == body

    both_ways()


def test_the_bytes_by_example() -> None:
    assert dump(Order(lines=(Line("tea", 2),)), Order) == b'{"due":null,"lines":[{"cents":2,"name":"tea"}],"notes":{}}'
    assert dump(Line("tea"), Line | Order) == b'{"$type":"Line","value":{"cents":0,"name":"tea"}}'
    assert dump(Line("tea"), Line | None) == b'{"cents":0,"name":"tea"}'
    assert dump({"$type": 1}, Line | dict[str, int]) == b'{"$type":"object","value":{"$type":1}}'
    assert dump(Row(row_id=1), Row) == b'{"row_id":1,"when":null}'
    assert dump(Point(1), Point) == b'{"x":1,"y":0}'
    assert dump(Model(theAmount=Decimal("1.50"), tags={"b", "a"}), Model) == (
        b'{"amount":"1.50","inner":null,"lines":[],"ratio":0.0,"tags":["a","b"]}'
    )


def test_the_bytes_do_not_depend_on_which_type_was_met_first() -> None:
    first = [dump(Leaf(twig=Twig(Leaf())), Leaf), dump(Twig(Leaf()), Twig)]
    REGISTRY.generation += 1  # all codecs are built anew
    assert [dump(Twig(Leaf()), Twig), dump(Leaf(twig=Twig(Leaf())), Leaf)] == first[::-1]


# ---- what is refused ---------------------------------------------------------------------------------------


@dataclass
class Discount(Line):
    percent: int = 10


class Wide(Model):
    extra_field: int = 1


class Secret(pydantic.BaseModel):
    key: pydantic.SecretStr


class Outer(pydantic.BaseModel):
    parts: list[Model]


class Hashed(pydantic.BaseModel):
    word: str

    @pydantic.field_validator("word")
    @classmethod
    def hashed(cls, word: str) -> str:
        return f"#{word}"


class WithBytes(pydantic.BaseModel):
    data: bytes


@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        (Discount("tea"), Line, "value: expected"),
        ([Discount("tea")], list[Line], "Discount, which would lose what it adds"),
        (Order(lines=(Discount("tea"),)), Order, "value.lines[0]: expected"),
        (Line(1), Line, "value.name: expected str, found int"),  # type: ignore[arg-type]
        (Order(lines=(), notes={"a": [Line("x", "y")]}), Order, "value.notes['a'][0].cents: expected int, found str"),  # type: ignore[arg-type]
        (Line("tea"), Any, "Line cannot be stored where no class is annotated"),
        ({"a": Point(1)}, Any, "Point would not come back as"),
        (Point(1), tuple[int, int], "found its subclass"),
        ({"name": "x"}, Person, "value.age: tests.declare.test_values_classes.Person needs the key"),
        (
            {"name": "x", "age": 1, "more": 2},
            Person,
            "value.more: tests.declare.test_values_classes.Person declares no such key",
        ),
        (Wide(theAmount=Decimal(1)), Model, "found its subclass"),
        (Outer(parts=[Wide(theAmount=Decimal(1))]), Outer, "value.parts[0]: pydantic does not write this"),
        (Secret(key=pydantic.SecretStr("x")), Secret, "value.key: pydantic does not write this"),
        (Hashed(word="x"), Hashed, "value.word: pydantic does not write this"),
        (WithBytes(data=b"\xff"), WithBytes, "value: pydantic cannot write"),
        (Model(theAmount=Decimal(1), ratio=float("nan")), Model, "value['ratio']: nan has no JSON"),
        (Box[date](content=date(2024, 1, 1)), Box[int], "expected"),
    ],
    ids=str,
)
def test_what_would_be_lost_is_refused(value: object, annotation: Any, message: str) -> None:
    with pytest.raises(NotStorable) as refused:
        dump(value, annotation)
    assert message in refused.value.message


def test_a_field_without_a_value() -> None:
    with pytest.raises(NotStorable, match=r"value\.name: the field has no value"):
        dump(object.__new__(Line), Line)


def test_code_of_the_value_that_raises() -> None:
    @dataclass
    class Broken:
        name: str

        def __getattribute__(self, name: str) -> Any:
            raise ZeroDivisionError(name)

    with pytest.raises(NotStorable, match="its own code raised ZeroDivisionError: name") as refused:
        dump(Broken("x"), Broken)
    assert isinstance(refused.value.__cause__, ZeroDivisionError)


# ---- types that have changed since -------------------------------------------------------------------------


def changed(name: str, *fields: Any) -> Any:
    return dataclasses.make_dataclass(name, fields)


def test_a_field_that_the_class_no_longer_has_is_not_dropped() -> None:
    body = dump(Line("tea", 4200), Line)
    renamed = changed("Line", ("name", str), ("amount", int, 0))
    with pytest.raises(NotStorable, match=r"plan\.cents: .*Line has no such field, one is stored"):
        load(body, renamed, path="plan")
    added = changed("Line", ("name", str), ("cents", int), ("note", str, "none"))
    assert load(body, added).note == "none"
    needed = changed("Line", ("name", str), ("cents", int), ("note", str))
    with pytest.raises(NotStorable, match=r"value\.note: .*Line needs the field, none is stored"):
        load(body, needed)
    retyped = changed("Line", ("name", str), ("cents", str))
    with pytest.raises(NotStorable, match=r"value\.cents: str is annotated, an integer is stored"):
        load(body, retyped)
    with pytest.raises(NotStorable, match=r"value\[1\]\.cents: str is annotated"):
        load(dump([None, Line("a")], list[Line | None]), GenericAlias(list, (retyped | None,)))


def test_a_union_that_grows_and_shrinks() -> None:
    alone, among = dump(Line("tea"), Line | None), dump(Line("tea"), Line | Order)
    assert load(alone, Line | Order | None) == Line("tea")
    assert load(among, Line) == Line("tea")
    with pytest.raises(NotStorable, match=r"Point is annotated, 'Line' is stored"):
        load(among, Order | Point)
    both = dump(Node([1]), Node[list[int]] | Node[list[str]])
    assert load(both, Node[list[int]] | Node[list[str]]) == Node([1])


def test_a_class_may_move_to_another_module() -> None:
    moved = changed("Line", ("name", str), ("cents", int))
    moved.__module__ = "shop.models.lines"
    assert load(dump(Line("tea"), Line | Order), moved | Order) == moved("tea", 0)


def test_a_constructor_that_refuses_what_is_stored() -> None:
    @dataclass
    class Positive:
        n: int

        def __post_init__(self) -> None:
            if self.n < 0:
                raise ValueError("below zero")

    with pytest.raises(NotStorable, match="Positive refuses its stored fields: ValueError: below zero"):
        load(b'[{"n":-1}]', list[Positive])
    with pytest.raises(NotStorable, match=r"value\.amount: .*Model: the stored value does not fit: Field required"):
        load(b"{}", Model)
    with pytest.raises(NotStorable, match=r"value\[0\]\.row_id: int is annotated"):
        load(b'[{"row_id":"x"}]', list[Row])
    with pytest.raises(NotStorable, match="Row refuses its stored fields: TypeError"):
        load(b"{}", Row)


def test_two_classes_of_one_name_in_a_union() -> None:
    other = changed("Line", ("n", int))
    other.__module__ = "elsewhere"
    annotation = Line | other
    assert load(dump(Line("tea"), annotation), annotation) == Line("tea")
    assert load(dump(other(1), annotation), annotation) == other(1)
    third = changed("Line", ("n", int))
    third.__module__ = Line.__module__
    with pytest.raises(NotStorable, match=r"two arms of .* are both stored under the name"):
        storable(Line | third, path="plan")


# ---- what can be stored at all -----------------------------------------------------------------------------


@dataclass
class Plan:
    name: str
    client: httpx.Client


@dataclass
class Trip:
    plans: dict[str, list[Plan]]


@dataclass
class Needs:
    n: int
    scale: InitVar[int]


@dataclass(init=False)
class Custom:
    n: int

    def __init__(self, other: int) -> None:
        self.n = other


class Carrier(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    client: httpx.Client


class Carried(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    client: httpx.Client

    @pydantic.field_serializer("client")
    def written(self, client: httpx.Client) -> str:
        return "client"


class Excluded(pydantic.BaseModel):
    kept: int
    left: int = pydantic.Field(exclude=True)


class Addressed(pydantic.BaseModel):
    """Types that only pydantic knows."""

    address: IPv4Address
    link: pydantic.AnyUrl = pydantic.AnyUrl("https://example.com")
    port: Annotated[int, pydantic.Field(gt=0)] = 1


@dataclass
class Unknown:
    there: NoSuchName  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (Plan, "plan.client: httpx.Client cannot be stored"),
        (list[Trip], "plan[].plans[][].client: httpx.Client cannot be stored"),
        (Plan | Line, "plan.client: httpx.Client cannot be stored"),
        (Node[httpx.Client], "plan.value: httpx.Client cannot be stored"),
        (Carrier, "plan.client: httpx.Client cannot be stored"),
        (list[Carrier | None], "plan[].client: httpx.Client cannot be stored"),
        (Excluded, "plan.left:"),
        (Needs, "its __init__ asks for 'scale'"),
        (Custom, "cannot be made from its fields"),
        (Unknown, "plan: an annotation cannot be evaluated: NameError: name 'NoSuchName' is not defined"),
        (ModuleType, "plan: module cannot be stored"),
        (Iterator[int], "plan: collections.abc.Iterator[int] cannot be stored"),
        (typing.Callable[[int], str], "plan: collections.abc.Callable[[int], str] cannot be stored"),
    ],
    ids=str,
)
def test_what_can_never_be_stored_is_refused_before(annotation: Any, message: str) -> None:
    with pytest.raises(NotStorable) as refused:
        storable(annotation, path="plan")
    assert message in refused.value.message
    assert refused.value.path.startswith("plan")
    assert refused.value.hint
    with pytest.raises(NotStorable):
        storable(annotation, path="plan")  # a refusal leaves nothing half built behind


def test_what_pydantic_knows_and_we_do_not_passes() -> None:
    storable(Addressed, path="plan")
    value = Addressed(address=IPv4Address("10.0.0.1"))
    assert load(dump(value, Addressed), Addressed) == value
    storable(Carried, path="plan")
    with httpx.Client() as client, pytest.raises(NotStorable, match="does not read back"):
        dump(Carried(client=client), Carried)


def test_classes_that_are_written_inside_a_function() -> None:
    @dataclass
    class Stop:
        route: Route | None = None

    @dataclass
    class Route:
        stops: list[Stop]

    value = Route([Stop(), Stop(Route([]))])
    assert load(dump(value, Route), Route) == value
    assert load(dump([value], list[Route]), list[Route]) == [value]


# ---- registered codecs -------------------------------------------------------------------------------------


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(self.cents)


class Euro(Money):
    pass


@pytest.fixture
def registered() -> Iterator[None]:
    kept = dict(REGISTRY.by_class), dict(REGISTRY.by_name), dict(REGISTRY._classes)
    yield
    REGISTRY.by_class, REGISTRY.by_name, REGISTRY._classes = kept
    REGISTRY.generation += 1


@pytest.mark.usefixtures("registered")
def test_a_registered_class_works_everywhere() -> None:
    with pytest.raises(NotStorable):
        storable(dict[str, Money], path="plan")
    register_codec(Money, name="money.v1", encode=lambda money: [money.cents], decode=lambda tree: Money(tree[0]))  # type: ignore[index,arg-type]
    storable(dict[str, Money], path="plan")
    for value, annotation, body in [
        (Money(5), Money, b"[5]"),
        ([Money(5)], list[Money], b"[[5]]"),
        (Money(5), Any, b'{"$type":"money.v1","value":[5]}'),
        (Money(5), Money | list[int], b'{"$type":"money.v1","value":[5]}'),
        ({Money(5)}, Any, None),
        (Money(5), Money | None, b'{"$type":"money.v1","value":[5]}'),
    ]:
        found = dump(value, annotation)
        assert body in (found, None)
        assert load(found, annotation) == value
        assert type(load(found, annotation)) is type(value)
    with pytest.raises(NotStorable, match=r"expected .*Money, found str"):
        dump("x", Money)
    with pytest.raises(NotStorable, match=r"value: .*Euro cannot be stored"):
        dump(Euro(1))
    assert dump(Euro(1), Money) == b"[1]"  # who wrote the codec for the base judges its subclasses
    with pytest.raises(NotStorable, match="Euro cannot be stored"):
        storable(Euro, path="plan")


@pytest.mark.usefixtures("registered")
def test_a_codec_that_misbehaves() -> None:
    register_codec(Money, name="money", encode=lambda money: (money.cents,), decode=lambda tree: tree)  # type: ignore[arg-type,return-value]
    with pytest.raises(
        NotStorable, match=r"value\[0\]: expected JSON, found tuple; the codec 'money' must give JSON types"
    ):
        dump([Money(1)], list[Money])
    with pytest.raises(NotStorable, match="the codec 'money' gave list instead of"):
        load(b"[1]", Money)
    register_codec(Money, name="money", encode=lambda money: 1 // 0, decode=lambda tree: Money(tree["a"]))  # type: ignore[index,arg-type,call-overload]
    with pytest.raises(NotStorable, match="the codec 'money' failed: ZeroDivisionError"):
        dump(Money(1), Money)
    with pytest.raises(NotStorable, match="the codec 'money' failed: TypeError"):
        load(b"[1]", Money)


@pytest.mark.usefixtures("registered")
def test_one_name_stands_for_one_class() -> None:
    register_codec(Money, name="money", encode=lambda money: money.cents, decode=Money)  # type: ignore[arg-type]
    with pytest.raises(BadDeclaration, match="'money' is taken by"):
        register_codec(Euro, name="money", encode=lambda money: money.cents, decode=Euro)  # type: ignore[arg-type]
    assert load(dump(Money(1), Money), Money) == Money(1)
    again = type("Money", (), {"__module__": Money.__module__, "__qualname__": "Money"})  # the cell was run again
    register_codec(again, name="money", encode=lambda money: 1, decode=lambda tree: again())
    assert type(load(dump(again()))) is again
    with pytest.raises(NotStorable):
        dump(Money(1), Money)
    for name in ("", "tuple", "object", "\n"):
        with pytest.raises(BadDeclaration, match="cannot name the codec"):
            register_codec(Euro, name=name, encode=lambda money: 1, decode=lambda tree: Euro(1))
    with pytest.raises(BadDeclaration, match="register_codec cannot take str"):
        register_codec(str, name="text", encode=lambda text: text, decode=str)


def test_no_stored_name_leads_to_code() -> None:
    for tag in ("subprocess.Popen", f"{Line.__module__}.Line", "Line", "builtins.eval", "__class__", "pairs"):
        with pytest.raises(NotStorable):
            load(f'{{"$type":"{tag}","value":{{"args":"true"}}}}'.encode())
    assert load(b'{"$type":"subprocess.Popen"}') == {"$type": "subprocess.Popen"}
    assert subprocess.Popen not in REGISTRY.by_class


def test_moments() -> None:
    hour_again = datetime(2024, 10, 27, 2, 30, fold=1)  # noqa: DTZ001 (naive on purpose)
    assert load(dump(hour_again, datetime), datetime).fold == 1
    assert (
        load(dump(hour_again.time(), type(hour_again.time())), type(hour_again.time())).fold == hour_again.time().fold
    )
    rules_changed = load(b'"2024-07-01T00:00:00+05:00[Europe/Berlin]"', datetime)
    assert rules_changed == datetime(2024, 6, 30, 19, tzinfo=UTC)
    assert str(rules_changed.tzinfo) == "Europe/Berlin"
