"""Values come back as they were, from bytes that depend on nothing else, or are refused with their path."""

from __future__ import annotations

import enum
import json
import os
import subprocess
import sys
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Annotated, Any, Literal, NewType, NoReturn, Self, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from poimen._typing import override
from poimen.declare.storing.hints import label
from poimen.declare.values import Json, digest, dump, load, may_be, storable
from poimen.kernel.errors import NotStorable

Blob = TypeAliasType("Blob", "list[Blob | bytes] | None")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.Enum):
    LOW = enum.auto()
    HIGH = enum.auto()


class Currency(enum.StrEnum):
    EUR = "eur"
    USD = "usd"


class Right(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


Tree = TypeAliasType("Tree", "int | list[Tree]")
OrderId = NewType("OrderId", str)
Word = TypeVar("Word", bound=str)
Either = TypeVar("Either", int, bytes)

KEYS = st.text(max_size=8) | st.sampled_from(["$type", "$escaped", "$blob", "value", "\ud83d", "\\ud83d", ""])
TEXTS = st.text(st.characters(codec=None), max_size=12) | st.text(max_size=12)
INTS = st.integers() | st.integers(-(2**70), 2**70) | st.sampled_from([2**63, -(2**63) - 1, 2**64, -(10**300)])
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"]).map(ZoneInfo)
OFFSETS = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
MOMENTS = st.datetimes(timezones=st.none() | st.just(UTC) | ZONES | OFFSETS, allow_imaginary=False)
SPANS = st.timedeltas() | st.sampled_from([timedelta.min, timedelta.max, timedelta(microseconds=-1)])
DECIMALS = st.decimals(allow_nan=False)
SCALARS = st.none() | st.booleans() | INTS | FLOATS | TEXTS
PLAIN = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4))
HASHABLE = st.recursive(
    SCALARS | st.binary(max_size=6) | st.uuids() | st.dates() | DECIMALS,
    lambda inner: st.frozensets(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
ANYTHING = st.recursive(
    SCALARS | HASHABLE | MOMENTS | SPANS | st.just(Path("a/b")) | st.just(PurePosixPath("c")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS | HASHABLE, inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(HASHABLE, max_size=3)
    ),
    max_leaves=5,
)

CASES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (None, st.none()),
    (bool, st.booleans()),
    (int, INTS),
    (float, FLOATS),
    (str, TEXTS),
    (bytes, st.binary()),
    (datetime, MOMENTS),
    (date, st.dates()),
    (time, st.times(timezones=st.none() | OFFSETS)),
    (timedelta, SPANS),
    (Decimal, DECIMALS | st.decimals().filter(lambda number: not number.is_nan())),
    (UUID, st.uuids()),
    (Path, TEXTS.filter(lambda text: "\0" not in text).map(Path)),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Right, st.sampled_from([Right.READ, Right.READ | Right.WRITE, Right(0)])),
    (Literal["a", 1, True, b"x", Level.LOW], st.sampled_from(["a", 1, True, b"x", Level.LOW])),
    (Literal["a", 2] | None, st.sampled_from(["a", 2, None])),
    (list[int], st.lists(INTS)),
    (list[str], st.lists(TEXTS)),
    (tuple[int, str], st.tuples(INTS, TEXTS)),
    (tuple[Decimal, ...], st.lists(DECIMALS).map(tuple)),
    (tuple[()], st.just(())),
    (set[str], st.sets(TEXTS)),
    (frozenset[tuple[int, bool]], st.frozensets(st.tuples(INTS, st.booleans()))),
    (dict[str, float], st.dictionaries(KEYS, FLOATS)),
    (dict[int, str], st.dictionaries(INTS, TEXTS)),
    (dict[UUID, list[date]], st.dictionaries(st.uuids(), st.lists(st.dates()))),
    (dict[tuple[int, str], bytes], st.dictionaries(st.tuples(INTS, TEXTS), st.binary())),
    (dict[int | str, None], st.dictionaries(INTS | TEXTS, st.none())),
    (dict[Level, int], st.dictionaries(st.sampled_from(Level), INTS)),
    (int | None, INTS | st.none()),
    (int | float | bool | str | None, SCALARS),
    (str | bytes | datetime | Colour, TEXTS | st.binary() | MOMENTS | st.sampled_from(Colour)),
    (list[int] | list[str], st.lists(INTS) | st.lists(TEXTS)),
    (list[date] | list[UUID], st.lists(st.dates(), min_size=1) | st.lists(st.uuids(), min_size=1)),
    (
        dict[str, int] | dict[str, date] | date,
        st.dictionaries(KEYS, INTS) | st.dictionaries(KEYS, st.dates(), min_size=1),
    ),
    (tuple[int, ...] | list[int] | set[int], st.lists(INTS).map(tuple) | st.lists(INTS) | st.sets(INTS)),
    (list[float] | list[int] | list[bool], st.lists(FLOATS) | st.lists(INTS) | st.lists(st.booleans())),
    (list[str] | list[Currency], st.lists(TEXTS) | st.lists(st.sampled_from(Currency))),
    (date | Any, ANYTHING),
    (Blob, st.recursive(st.none(), lambda inner: st.lists(inner | st.binary()))),
    (Json, PLAIN),
    (Tree, st.recursive(INTS, st.lists)),
    (dict[str, Any], st.dictionaries(KEYS, ANYTHING, max_size=3)),
    (dict, st.dictionaries(KEYS, PLAIN, max_size=3)),
    (list, st.lists(PLAIN, max_size=3)),
    (tuple, st.lists(PLAIN, max_size=3).map(tuple)),
    (object, ANYTHING),
    (OrderId, TEXTS),
    (Word, TEXTS),
    (Either, INTS | st.binary()),
    (Annotated[list[Annotated[int, "cents"]], "prices"], st.lists(INTS)),
]


def same(one: object, other: object) -> bool:
    """Equal, and of the same classes all through."""
    if type(one) is not type(other):
        return False
    match one, other:
        case ((list() | tuple()), (list() | tuple())):
            return len(one) == len(other) and all(map(same, one, other))
        case dict(), dict():
            return one == other and all(any(same(key, k) and same(one[key], other[k]) for k in other) for key in one)
        case ((set() | frozenset()), (set() | frozenset())):
            return one == other and all(any(same(item, o) for o in other) for item in one)
        case datetime(), datetime():
            # Where there is an offset, `fold` says nothing beyond it.
            folds = one.tzinfo is not None or one.fold == other.fold
            return folds and (one, one.utcoffset(), str(one.tzinfo)) == (other, other.utcoffset(), str(other.tzinfo))
        case time(), time():
            return (one, one.fold) == (other, other.fold)
        case float(), float():
            return repr(one) == repr(other)
        case _:
            return one == other


@pytest.mark.parametrize(("annotation", "values"), CASES, ids=[str(annotation)[:60] for annotation, _ in CASES])
def test_a_value_comes_back_from_bytes_that_come_back(annotation: Any, values: st.SearchStrategy[Any]) -> None:
    @given(values)
    @settings(max_examples=25)
    def both_ways(value: object) -> None:
        body = dump(value, annotation)
        back = load(body, annotation)
        assert same(back, value)
        assert dump(back, annotation) == body
        json.loads(body.decode("utf-8"))

    both_ways()


@given(ANYTHING)
def test_what_is_stored_where_nothing_is_annotated_comes_back_as_the_same_class(value: object) -> None:
    assert same(load(dump(value)), value)


@given(PLAIN)
@example({"é": [1.5, "\u2028", {"b": None, "a": True}]})
def test_the_bytes_are_canonical(value: Json) -> None:
    body = dump(value)
    if b"$" in body:
        return  # an escape stands for what JSON does not have
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    ours, theirs = json.loads(body, parse_float=float), json.loads(text)
    assert same(ours, theirs)
    assert body == dump(ours)
    keys: list[list[str]] = []
    json.loads(body, object_pairs_hook=lambda pairs: keys.append([key for key, _ in pairs]))
    assert all(found == sorted(found) for found in keys)


def test_the_bytes_by_example() -> None:
    value = {"é": 1, "b": [1.0, 1e22, -0.0, "é\x00/"], "a": {"y": None, "x": True}}
    assert dump(value) == '{"a":{"x":true,"y":null},"b":[1.0,1e22,-0.0,"é\\u0000/"],"é":1}'.encode()
    assert dump("e\u0301") != dump("\u00e9")  # no normalisation
    assert (
        dump(datetime(2024, 1, 2, 3, tzinfo=ZoneInfo("Europe/Berlin")), datetime)
        == b'"2024-01-02T03:00:00+01:00[Europe/Berlin]"'
    )
    assert dump(timedelta(days=1, seconds=2, microseconds=30), timedelta) == b'"P1DT2.00003S"'
    assert dump(b"\x00\xff", bytes) == b'"AP8="'
    assert dump(Decimal("1.50"), Decimal) == b'"1.50"'
    assert dump((1, {2}), Any) == b'{"$type":"tuple","value":[1,{"$type":"set","value":[2]}]}'
    assert dump(2**200) == str(2**200).encode()
    assert digest(b"null") == "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"


@pytest.mark.parametrize(
    "number", [10**4_299, 10**4_300, -(10**5_000), 1 << 14_000, (1 << 14_000) - 1], ids=int.bit_length
)
def test_an_integer_of_any_size(number: int) -> None:
    for value, annotation in ((number, int), ([number], Any), ({"a": number}, dict[str, int | str])):
        assert load(dump(value, annotation), annotation) == value


@pytest.mark.parametrize(
    "value",
    [
        "\ud83d",
        "\\ud83d and \ud83d",
        "\\\\\ude00",
        ["\ud83d\ude00", "\U0001f600"],
        {"\ud83d": "\udfff", "a": 1},
        {"$escaped": ["str", "x"]},
        {"$escaped": ["int", "ff"], "b": 1},
        {"$escaped": ["pairs", []]},
        {"$escaped": ["dict", {"$escaped": ["dict", {}]}]},
        {"$blob": {"digest": "x"}},
        {"$blob": 1, "$escaped": 2, "z": "\ud83d"},
        {"$type": "date", "value": "2024-01-01"},
        {"$type": "object", "value": {"$type": "object"}},
        {"$type": "pairs", "value": [[1, 2]], "more": -1},
    ],
    ids=ascii,
)
def test_what_looks_like_an_escape_comes_back(value: object) -> None:
    for held, annotation in [(value, Any), ([value], list[Any]), (value, date | Any)]:
        body = dump(held, annotation)
        assert same(load(body, annotation), held)
        assert dump(load(body, annotation), annotation) == body
        # The log tells references to blobs from values by their first bytes.
        assert not body.startswith(b'{"$blob":')
        body.decode("utf-8")
    if isinstance(value, dict):
        body = dump(value, dict[str, Any])
        assert same(load(body, dict[str, Any]), value)
        assert not body.startswith(b'{"$blob":')


@given(st.permutations([(f"k{n}", n) for n in range(6)]))
def test_the_order_of_keys_changes_nothing(pairs: list[tuple[str, int]]) -> None:
    assert dump(dict(pairs)) == dump(dict(sorted(pairs)))
    assert dump({(key, 1): n for key, n in pairs}) == dump({(key, 1): n for key, n in sorted(pairs)})


SEEDED = """
import sys, datetime, decimal
from typing import Any
import pydantic
from poimen.declare.values import dump, digest

class Model(pydantic.BaseModel):
    tags: set[str]
    nested: dict[str, list[frozenset[str]]]

words = {"tea", "coffee", "milk", "water", "juice", "wine", "beer", "mate"}
for value, annotation in [
    (words, set[str]),
    (frozenset(words), frozenset[str]),
    ({"deep": [words, {frozenset(words)}]}, Any),
    ({(word, 1): {word} for word in words}, dict[tuple[str, int], set[str]]),
    ({decimal.Decimal(n) for n in range(9)} | {str(n) for n in range(9)}, set[decimal.Decimal | str]),
    (Model(tags=words, nested={"a": [frozenset(words)]}), Model),
]:
    print(digest(dump(value, annotation)))
print(next(iter(words)), file=sys.stderr)
"""


def test_sets_have_the_same_bytes_in_every_process() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", SEEDED],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        for seed in ("1", "2", "3")
    ]
    assert len({run.stderr for run in runs}) > 1, "the seeds have to give different orders, or this shows nothing"
    assert len(runs[0].stdout.split()) == 6
    assert {run.stdout for run in runs} == {runs[0].stdout}


# ---- what comes back otherwise, equal and documented -------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "annotation", "back"),
    [
        (Currency.EUR, str, "eur"),
        (True, int, 1),
        (5, float, 5.0),
        ((1, 2), Sequence[int], [1, 2]),
        (defaultdict(int, a=1), dict[str, int], {"a": 1}),
        (OrderedDict(b=1, a=2), dict, {"a": 2, "b": 1}),
        (MappingProxyType({"a": 1}), Mapping[str, int], {"a": 1}),
        (MappingProxyType({"a": 1}), Mapping, {"a": 1}),
        (frozenset({1}), AbstractSet[int], {1}),
        ((1, (2,)), Sequence, [1, (2,)]),
    ],
    ids=str,
)
def test_an_equal_value_of_the_annotated_class(value: object, annotation: Any, back: object) -> None:
    found = load(dump(value, annotation), annotation)
    assert same(found, back)
    assert dump(found, annotation) == dump(value, annotation)


# ---- what is refused ---------------------------------------------------------------------------------------


class Loud(str):  # noqa: SLOT000 (its attribute is what would be lost)
    volume: int

    def __new__(cls, text: str, volume: int) -> Self:
        made = super().__new__(cls, text)
        made.volume = volume
        return made


class Nowhere(tzinfo):
    @override
    def utcoffset(self, moment: datetime | None, /) -> timedelta | None:
        return None

    @override
    def dst(self, moment: datetime | None, /) -> timedelta | None:
        return None

    @override
    def tzname(self, moment: datetime | None, /) -> str | None:
        return None


@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        ("4", int, "value: expected int, found str"),
        (4, str, "value: expected str, found int"),
        (None, int, "value: expected int, found None"),
        (1, bool, "value: expected bool, found int"),
        (True, float, "value: expected float, found bool"),
        (2**53 + 1, float, "value: expected float, found an int that no float holds exactly"),
        (10**400, float, "value: expected float, found an int that no float holds exactly"),
        (float("nan"), float, "value: nan has no JSON"),
        ([1.0, float("inf")], list[float], "value[1]: inf has no JSON"),
        ({"a": [float("-inf")]}, Any, "value['a'][0]: -inf has no JSON"),
        ([1, "2"], list[int], "value[1]: expected int, found str"),
        ("ab", list[str], "value: expected list[str], found str"),
        ("ab", Sequence[str], "value: expected collections.abc.Sequence[str], found str"),
        ((1, 2), list[int], "value: expected list[int], found tuple"),
        ((1, 2, 3), tuple[int, int], "value: expected tuple[int, int], found 3 elements"),
        ((1, "2"), tuple[int, int], "value[1]: expected int, found str"),
        ({"a": {"b": "c"}}, dict[str, dict[str, int]], "value['a']['b']: expected int, found str"),
        ({1: 2}, dict[str, int], "value[1]: expected str, found int"),
        ({"x"}, set[int], "value[0]: expected int, found str"),
        (datetime(2024, 1, 1, tzinfo=UTC), date, "value: expected datetime.date, found its subclass datetime.datetime"),
        (datetime(2024, 1, 1, tzinfo=Nowhere()), datetime, "has no offset"),
        (time(1, tzinfo=ZoneInfo("Europe/Berlin")), time, "value: a time without a date has no offset in a named zone"),
        (Loud("hey", 11), str, "found its subclass"),
        ("green", Literal["red", "blue"], "value: expected 'red' | 'blue', found another str"),
        (True, Literal[1], "value: expected 1, found another bool"),
        (Level.LOW, Colour, "Colour, found"),
        ("x", int | None, "value: expected int, found str"),
        (1.5, int | str, "value: expected int | str, found float"),
        (["x"], list[int] | str, "value[0]: expected int, found str"),
        (Colour.RED, Any, "Colour cannot be stored where no class is annotated"),
        (Currency.EUR, Any, "Currency would not come back as"),
        (object(), Any, "value: object cannot be stored where no class is annotated"),
        ([print], Any, "value[0]: builtin_function_or_method cannot be stored"),
        ({"a": UserDict()}, dict[str, Any], "value['a']: collections.UserDict cannot be stored"),
        (1, NoReturn, "value: expected no value at all, found int"),
    ],
    ids=lambda value: None if type(value) is object else str(value),
)
def test_a_value_that_does_not_match_is_refused_with_its_path(value: object, annotation: Any, message: str) -> None:
    with pytest.raises(NotStorable) as refused:
        dump(value, annotation)
    assert message in refused.value.message
    assert refused.value.path == refused.value.message.partition(": ")[0]


def test_the_path_starts_as_asked() -> None:
    with pytest.raises(NotStorable) as refused:
        dump([["x"]], list[list[int]], path="result")
    assert refused.value.path == "result[0][0]"
    assert refused.value.hint


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def test_a_hundred_levels_and_no_more() -> None:
    assert load(dump(nested(100))) == nested(100)
    assert load(dump(nested(100), Tree), Tree) == nested(100)
    for annotation in (Any, Tree, dict[str, Any]):
        deep = {"a": nested(100)} if annotation == dict[str, Any] else nested(101)
        with pytest.raises(NotStorable, match="nested more than 100 levels deep"):
            dump(deep, annotation)
    with pytest.raises(NotStorable, match="nested"):
        dump(nested(5_000))
    with pytest.raises(NotStorable, match="nested"):
        load(b"[" * 5_000 + b"]" * 5_000)


def test_a_value_that_contains_itself() -> None:
    ring: list[Any] = [1]
    ring.append({"again": ring})
    with pytest.raises(NotStorable) as refused:
        dump({"ring": ring})
    assert refused.value.message == "value['ring'][1]['again']: the value contains itself"
    knot: list[Any] = []
    knot.append(knot)
    with pytest.raises(NotStorable, match=r"value\[0\]: the value contains itself"):
        dump(knot, Tree)


@pytest.mark.parametrize(
    ("body", "annotation", "message"),
    [
        (b'"4"', int, "value: int is annotated, a string is stored"),
        (b"1.0", int, "value: int is annotated, a number is stored"),
        (b"true", int, "value: int is annotated, a boolean is stored"),
        (b"null", str, "value: str is annotated, null is stored"),
        (b"[1,[]]", list[int], "value[1]: int is annotated, an array is stored"),
        (b'{"a":1}', dict[str, str], "value['a']: str is annotated, an integer is stored"),
        (b'{"a":1}', dict[int, int], "value['a']: an integer is annotated as key"),
        (b"[[1]]", dict[tuple[int], int], "is annotated, an array is stored"),
        (b"[1]", tuple[int, int], "value: tuple[int, int] is annotated, 1 elements are stored"),
        (b'"green"', Colour, "has no member that is stored as 'green'"),
        (b"8", Right, "has no flags 8"),
        (b'"x"', datetime, "the stored text does not read as one"),
        (b'"2024-01-01T00:00:00+00:00[No/Where]"', datetime, "the stored text does not read as one"),
        (b'"P"', timedelta, "the stored text does not read as one"),
        (b'"x"', Decimal, "the stored text does not read as one"),
        (b'"a"', bytes, "the stored text does not read as one"),
        (b'"x"', UUID, "the stored text does not read as one"),
        (b"[[1],[1]]", set[list[int]], "elements that cannot be in a set are stored"),
        (b'{"$type":"shop.Plan","value":{}}', Any, "no codec is registered under the stored tag 'shop.Plan'"),
        (b'{"$type":"date","value":"x"}', date | str, "the stored text does not read as one"),
        (b'{"$type":"gone","value":"x"}', date | str, "is annotated, 'gone' is stored"),
        (b"{", Any, "value: Any is annotated, the bytes are no JSON"),
        (b"", int, "value: int is annotated, the bytes are no JSON"),
        (b"\xff", Any, "the bytes are no JSON"),
        (b"[1] 2", Any, "the bytes are no JSON"),
        (b"NaN", float, "the bytes are no JSON"),
    ],
    ids=str,
)
def test_stored_bytes_that_do_not_fit_are_refused(body: bytes, annotation: Any, message: str) -> None:
    with pytest.raises(NotStorable) as refused:
        load(body, annotation)
    assert message in refused.value.message


def test_a_widened_annotation_reads_what_was_stored_before() -> None:
    assert load(dump(5, int), int | None) == 5
    assert load(dump(5, int), float) == 5.0
    assert load(dump("x", str), str | date) == "x"
    assert load(dump(date(2024, 1, 1), date | str), date | str | int) == date(2024, 1, 1)
    assert load(dump(date(2024, 1, 1), date | None), date | int | None) == date(2024, 1, 1)
    assert load(dump([date(2024, 1, 1)], list[date] | str), list[date] | str | list[UUID]) == [date(2024, 1, 1)]
    assert load(dump([1], list[int]), list[int] | set[int]) == [1]


# ---- what can be stored at all -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation", [Any, object, None, Word, Either, list, dict[str, Any], NoReturn, Json, list[Tree]]
)
def test_open_annotations_pass(annotation: Any) -> None:
    storable(annotation, path="plan")


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (subprocess.Popen, "plan: subprocess.Popen cannot be stored"),
        (list[subprocess.Popen[bytes]], "plan[]: subprocess.Popen[bytes] cannot be stored"),
        (dict[str, int | type], "plan[]: type cannot be stored"),
        (dict[complex, int], "plan[key]: complex cannot be stored"),
        (tuple[int, range], "plan[1]: range cannot be stored"),
        (tuple[int, *tuple[str, ...]], "cannot be stored"),
        ("Plan", "plan: the name 'Plan' cannot be looked up"),
    ],
    ids=str,
)
def test_what_can_never_be_stored_is_refused_before(annotation: Any, message: str) -> None:
    with pytest.raises(NotStorable) as refused:
        storable(annotation, path="plan")
    assert message in refused.value.message


def test_pydantic_is_not_loaded_for_those_who_do_not_use_it() -> None:
    program = (
        "import sys\nfrom poimen.declare import values\n"
        "values.load(values.dump({'a': (1, 2)}))\nassert 'pydantic' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("annotation", "fits", "does_not"),
    [
        (str, ["x", ""], [1, None, ["x"], {"a": 1}, True]),
        (int, [1, 2**70], [True, 1.5, "1", None]),
        (float, [1.5, 1], [True, "1.5"]),
        (bool, [True], [1, "true"]),
        (None, [None], [0, "", []]),
        (list[int], [[], [1]], [1, ["a"], [1, None], {"a": 1}]),
        (dict[str, int], [{}, {"a": 1}], [[], {"a": "b"}]),
        (tuple[int, ...], [[1, 2]], [["a"], 1]),
        (str | None, ["a", None], [1, ["a"]]),
        (Literal["a | b", 3], ["a | b", 3], ["a", 4]),
        (list[Decimal] | int, [["1.5"], 2], ["x"]),
        (list, [["a", 1]], ["a", 1]),
    ],
)
def test_what_a_value_can_be_is_told_by_words_alone(annotation: Any, fits: list[Any], does_not: list[Any]) -> None:
    words = label(annotation)
    for tree in fits:
        assert may_be(words, json.dumps(tree).encode()), tree
    for tree in does_not:
        assert not may_be(words, json.dumps(tree).encode()), tree


@pytest.mark.parametrize(
    "words",
    [
        "",
        "Any",
        "shop.Plan",
        "list[shop.Plan] | shop.Plan",
        "<Size.SMALL: 'small'>",
        "T",
        "(",
        "__import__('os').abort()",
    ],
)
def test_words_that_only_the_code_knows_refuse_nothing(words: str) -> None:
    for tree in (1, "a", None, [1], {"a": 1}, {"$type": "shop.plan", "value": 1}):
        assert may_be(words, json.dumps(tree).encode()), tree
