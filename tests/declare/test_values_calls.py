"""Arguments become bytes and arguments again; errors become plain fields."""

from __future__ import annotations

import functools
import inspect
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Optional, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poimen._typing import override
from poimen.declare.values import Parameters, error_fields, register_codec
from poimen.kernel.errors import NotFound, NotStorable
from tests.declare.test_values import ANYTHING, KEYS, PLAIN
from tests.declare.test_values_classes import Line, Money, registered

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["registered"]

P = ParamSpec("P")
T = TypeVar("T")
Nested: TypeAlias = "int | list[Nested] | dict[str, Nested]"


class Options(TypedDict, total=False):
    retries: int
    tag: str


async def charge(order: str, cents: int) -> str:
    return f"{order} {cents}"


def everything(
    first: int,
    /,
    line: Line,
    due: date | None = None,
    *rest: Decimal,
    lang: str = "de",
    meta: Any = None,
    **more: list[int],
) -> dict[str, Line]:
    raise AssertionError


def bare(a, b=(1, 2), *c, d=None, **e):
    raise AssertionError


def optioned(name: str, **options: Unpack[Options]) -> None:
    raise AssertionError


def nested(value: Nested) -> Nested:
    return value


def later(plan: Later, plans: Optional[list[Later]] = None) -> Later:  # noqa: UP045 (as older code has it)
    raise AssertionError


LATER = Parameters.of(later)


@dataclass
class Later:
    client: int = 1


# ---- packing -----------------------------------------------------------------------------------------------


def test_arguments_by_name() -> None:
    parameters = Parameters.of(charge)
    parameters.check()
    body = b'{"cents":4200,"order":"tea"}'
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("tea", 4200), {}),
        (("tea",), {"cents": 4200}),
        ((), {"cents": 4200, "order": "tea"}),
    ]
    for args, kwargs in calls:
        assert parameters.pack(args, kwargs) == body
    assert parameters.unpack(body) == (("tea", 4200), {})
    assert str(parameters.signature) == "(order: str, cents: int) -> str"
    assert parameters.result is str


def test_all_kinds_of_parameters() -> None:
    parameters = Parameters.of(everything)
    parameters.check()
    body = parameters.pack((1, Line("tea"), None, Decimal(2)), {"lang": "en", "first": [3], "more": [4]})
    assert json.loads(body) == {
        "first": 1,
        "line": {"name": "tea", "cents": 0},
        "due": None,
        "rest": ["2"],
        "lang": "en",
        "meta": None,
        "more": {"first": [3], "more": [4]},
    }
    args, kwargs = parameters.unpack(body)
    assert args == (1, Line("tea"), None, Decimal(2))
    assert kwargs == {"lang": "en", "meta": None, "first": [3], "more": [4]}
    assert parameters.pack(args, kwargs) == body
    assert parameters.signature.parameters["due"].annotation == date | None
    assert parameters.result == dict[str, Line]


def test_nothing_annotated() -> None:
    parameters = Parameters.of(bare)
    parameters.check()
    assert parameters.result is Any
    body = parameters.pack(({"x": (1,)},), {"z": 1})
    assert parameters.unpack(body) == (({"x": (1,)}, (1, 2)), {"d": None, "z": 1})
    body = parameters.pack((1,), {"c": 2, "e": 3})
    assert json.loads(body)["e"] == {"c": 2, "e": 3}
    assert parameters.unpack(body) == ((1, (1, 2)), {"d": None, "c": 2, "e": 3})
    options = Parameters.of(optioned)
    assert options.unpack(options.pack(("x",), {"retries": 2})) == (("x",), {"retries": 2})
    with pytest.raises(NotStorable, match=r"options\.retries: expected int, found str"):
        options.pack(("x",), {"retries": "2"})


LINES = st.builds(Line, name=st.text(), cents=st.integers())


@given(
    st.tuples(st.integers(), LINES, st.dates() | st.none())
    | st.tuples(st.integers(), LINES, st.none(), st.decimals(allow_nan=False)),
    st.fixed_dictionaries({}, optional={"lang": st.text(), "meta": ANYTHING, "extra": st.lists(st.integers())}),
)
@settings(max_examples=50)
def test_packing_what_was_unpacked_gives_the_same_bytes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    parameters = Parameters.of(everything)
    body = parameters.pack(args, kwargs)
    assert parameters.pack(*parameters.unpack(body)) == body


@given(
    PLAIN,
    st.lists(ANYTHING, max_size=2),
    st.dictionaries(KEYS.filter(lambda key: key not in "abd"), ANYTHING, max_size=2),
)
@settings(max_examples=50)
def test_also_where_nothing_is_annotated(a: Any, c: list[Any], e: dict[str, Any]) -> None:
    parameters = Parameters.of(bare)
    body = parameters.pack((a, 1, *c), e)
    assert parameters.pack(*parameters.unpack(body)) == body


def test_a_default_is_stored_as_if_it_had_been_given() -> None:
    def order(name: str, cents: int = 5, tags: tuple[str, ...] = ()) -> None:
        raise AssertionError

    parameters = Parameters.of(order)
    assert parameters.pack(("tea",), {}) == parameters.pack((), {"cents": 5, "tags": (), "name": "tea"})
    assert parameters.unpack(parameters.pack(("tea",), {"tags": ("a",)})) == (("tea", 5, ("a",)), {})


def test_every_result_of_unpack_is_decoded_anew() -> None:
    parameters = Parameters.of(bare)
    given_list = [1]
    (first, _), _ = parameters.unpack(parameters.pack((given_list,), {}))
    assert first == given_list
    assert first is not given_list


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "charge() missing a required argument: 'order'"),
        (("tea",), {}, "charge() missing a required argument: 'cents'"),
        (("tea", 1, 2), {}, "charge() too many positional arguments"),
        (("tea", 1), {"cents": 2}, "charge() got multiple values for argument 'cents'"),
        (("tea", 1), {"sent": 2}, "charge() got an unexpected keyword argument 'sent'"),
    ],
    ids=str,
)
def test_a_wrong_call_is_a_type_error(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError) as refused:
        Parameters.of(charge).pack(args, kwargs)
    assert str(refused.value) == message
    with pytest.raises(TypeError):
        never = charge(*args, **kwargs)  # noqa: F841 (Python agrees)


def test_a_wrong_argument_is_named() -> None:
    with pytest.raises(NotStorable, match="cents: expected int, found str") as refused:
        Parameters.of(charge).pack(("tea", "4200"), {})
    assert refused.value.path == "cents"
    assert "charge (test_values_calls.py:" in refused.value.where
    with pytest.raises(NotStorable) as refused:
        Parameters.of(everything).pack((1, Line("tea", None)), {})  # type: ignore[arg-type]
    assert refused.value.path == "line.cents"
    with pytest.raises(NotStorable) as refused:
        Parameters.of(everything).pack((1, Line("tea"), None, Decimal(1), 2), {})
    assert refused.value.path == "rest[1]"
    with pytest.raises(NotStorable) as refused:
        Parameters.of(everything).pack((1, Line("tea")), {"x": [None]})
    assert refused.value.path == "more['x'][0]"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"order":"tea"}', "cents: no argument is stored and there is no default"),
        (b'{"cents":"1","order":"tea"}', "cents: int is annotated, a string is stored"),
        (b'{"cents":1,"order":"tea","tip":2}', "tip: the function has no such parameter, an argument is stored"),
        (b"[1]", "arguments: an object by parameter name is expected"),
        (b"{", "arguments: the bytes are no JSON"),
    ],
    ids=str,
)
def test_stored_arguments_that_no_longer_fit(body: bytes, message: str) -> None:
    with pytest.raises(NotStorable) as refused:
        Parameters.of(charge).unpack(body)
    assert message in refused.value.message


def test_a_parameter_that_is_new_has_its_default() -> None:
    assert Parameters.of(bare).unpack(b'{"a":1}') == ((1, (1, 2)), {"d": None})
    assert Parameters.of(everything).unpack(b'{"first":1,"line":{"name":"x"}}') == (
        (1, Line("x"), None),
        {"lang": "de", "meta": None},
    )


# ---- declaring ---------------------------------------------------------------------------------------------


def test_what_can_never_be_stored_is_refused_at_declaration() -> None:
    @dataclass
    class Plan:
        name: str
        clients: list[httpx.Client] = field(default_factory=list)

    def go(plan: Plan) -> str:
        raise AssertionError

    def wrong_default(x: int = "1") -> None:  # type: ignore[assignment]
        raise AssertionError

    def wrong_result(x: int) -> httpx.Response:
        raise AssertionError

    refusals: list[tuple[Callable[..., Any], str]] = [
        (go, "plan.clients[]: httpx.Client cannot be stored"),
        (wrong_default, "x: expected int, found str"),
        (wrong_result, "result: httpx.Response cannot be stored"),
    ]
    for fn, message in refusals:
        with pytest.raises(NotStorable) as refused:
            Parameters.of(fn).check()
        assert refused.value.message == message
        assert f"{fn.__name__} (test_values_calls.py:" in refused.value.where
    with pytest.raises(NotStorable, match=r"plan\.clients"):
        Parameters.of(go).pack((Plan("x"),), {})


def test_types_that_are_defined_further_below() -> None:
    assert LATER.unpack(LATER.pack((Later(2), [Later(3)]), {})) == ((Later(2), [Later(3)]), {})
    assert LATER.result is Later
    LATER.check()

    def early(plan: Nowhere) -> Line:  # type: ignore[name-defined]  # noqa: F821
        raise AssertionError

    parameters = Parameters.of(early)
    parameters.check()  # it may be defined before the first call
    assert parameters.signature.parameters["plan"].annotation == "Nowhere"
    with pytest.raises(
        NotStorable, match="an annotation cannot be evaluated: NameError: name 'Nowhere' is not defined"
    ) as refused:
        parameters.pack((1,), {})
    assert "early (test_values_calls.py:" in refused.value.where
    with pytest.raises(NotStorable, match="result: an annotation cannot be evaluated"):
        _ = parameters.result


def test_types_of_the_function_around() -> None:
    @dataclass
    class Local:
        n: int

    def inner(one: Local, more: list[Local]) -> Local:
        raise AssertionError

    def declared_elsewhere() -> Parameters:
        return Parameters.of(inner)

    parameters = declared_elsewhere()
    assert parameters.unpack(parameters.pack((Local(1), [Local(2)]), {})) == ((Local(1), [Local(2)]), {})


def test_an_alias_that_names_itself() -> None:
    parameters = Parameters.of(nested)
    value = [1, [2, {"a": [3]}]]
    assert parameters.unpack(parameters.pack((value,), {})) == ((value,), {})
    with pytest.raises(NotStorable, match=r"value\[1\]\[0\]: expected"):
        parameters.pack(([1, ["x"]],), {})


GENERIC = """
from __future__ import annotations
from dataclasses import dataclass
from poimen.declare.values import Parameters
from poimen.kernel.errors import NotStorable
type Tree[T] = T | list[Tree[T]]
type Blob = list[Blob | bytes] | None
@dataclass
class Box[T]:
    item: T
    more: list[Box[T]]
def pack[T: int](x: T, box: Box[int], tree: Tree[str], blob: Blob) -> Box[T]: ...
parameters = Parameters.of(pack)
parameters.check()
args = 1, Box(1, [Box(2, [])]), ["a", ["b"]], [None, b"x", [b"y"]]
assert parameters.unpack(parameters.pack(args, {})) == (args, {})
for bad, path in [
    (("x", *args[1:]), "x"),
    ((1, Box(1, [Box("x", [])]), "a", None), "box.more[0].item"),
    ((*args[:2], [1], None), "tree[0]"),
]:
    try:
        parameters.pack(bad, {})
    except NotStorable as refused:
        assert refused.path == path, refused
    else:
        raise SystemExit(f"{bad} was taken")
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax came with Python 3.12")
def test_type_parameters() -> None:
    subprocess.run(
        [sys.executable, "-c", GENERIC],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True,
        timeout=60,
    )


def test_a_decorated_function() -> None:
    def passing(fn: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(fn)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            return fn(*args, **kwargs)

        return wrapper

    parameters = Parameters.of(passing(everything))
    assert list(parameters.signature.parameters) == list(inspect.signature(everything).parameters)
    assert parameters.unpack(parameters.pack((1, Line("x")), {}))[0] == (1, Line("x"), None)


@pytest.mark.usefixtures("registered")
def test_a_codec_that_is_registered_after_the_declaration() -> None:
    def pay(amount: Money) -> None:
        raise AssertionError

    parameters = Parameters.of(pay)
    register_codec(Money, name="money", encode=lambda money: money.cents, decode=Money)  # type: ignore[arg-type]
    body = parameters.pack((Money(3),), {})
    assert body == b'{"amount":3}'
    register_codec(Money, name="money", encode=lambda money: [money.cents], decode=lambda tree: Money(tree[0]))  # type: ignore[index,arg-type]
    assert parameters.pack((Money(3),), {}) == b'{"amount":[3]}'


# ---- errors ------------------------------------------------------------------------------------------------


class Declined(Exception):
    limit = 3

    def __init__(self, **fields: Any) -> None:
        super().__init__("declined")
        self.__dict__.update(fields)


class Slotted(Exception):
    __slots__ = ("code", "never_set")

    def __init__(self, code: int) -> None:
        self.code = code


class Bad(StrEnum):
    CARD = "card"


def test_the_fields_of_an_error() -> None:
    exc = Declined(
        code="no_funds",
        amount=4200,
        ratio=0.5,
        again=False,
        cause=None,
        kind=Bad.CARD,
        tries=(1, 2),
        body={"detail": [{"loc": ["a"]}]},
        client=object(),
        mixed=[1, object()],
        keyed={1: 2},
        _private=1,
        nan=float("nan"),
        half="\ud83d",
        big=10**6_000,
    )
    fields = error_fields(exc)
    assert fields == {
        "code": "no_funds",
        "amount": 4200,
        "ratio": 0.5,
        "again": False,
        "cause": None,
        "kind": "card",
        "tries": [1, 2],
        "body": {"detail": [{"loc": ["a"]}]},
        "nan": "nan",
        "half": "\\ud83d",
        "big": "an integer of 19932 bits",
    }
    assert type(fields["kind"]) is str
    assert json.loads(json.dumps(fields, allow_nan=False)) == fields


def test_what_builtin_and_slotted_errors_hold() -> None:
    fields = error_fields(FileNotFoundError(2, "No such file", "orders.txt"))
    assert {"errno": 2, "strerror": "No such file", "filename": "orders.txt"}.items() <= fields.items()
    assert error_fields(Slotted(7)) == {"code": 7}
    assert error_fields(StopIteration(5))["value"] == 5
    assert error_fields(ValueError("x", 1)) == {}
    assert error_fields(NotFound("x", run_id="tea-1"))["run_id"] == "tea-1"
    request = httpx.Request("GET", "https://example.com")
    assert isinstance(error_fields(httpx.ConnectError("x", request=request)), dict)


def test_the_fields_are_bounded_and_cuts_are_marked() -> None:
    exc = Declined(**{f"f{n}": n for n in range(50)})
    assert list(error_fields(exc)) == [f"f{n}" for n in range(32)]
    for text in ("a" * 100_000, "\x00" * 100_000, "é" * 5_000, "\U0001f600" * 4_000, "a" * 4_095):
        cut = error_fields(Declined(text=text))["text"]
        assert isinstance(cut, str)
        assert 3_900 < len(json.dumps(cut, ensure_ascii=False).encode()) <= 4_096
        assert cut.endswith(f"… (cut, {len(text)} characters)")
        assert text.startswith(cut.partition("…")[0])
    assert error_fields(Declined(text="a" * 4_094))["text"] == "a" * 4_094
    rows = error_fields(Declined(rows=list(range(5_000)), body={"a": "x" * 9_000}))
    assert rows == {
        "rows": "… (a list of 23891 bytes as JSON, not kept)",
        "body": "… (a dict of 9008 bytes as JSON, not kept)",
    }
    ring: list[Any] = []
    ring.append(ring)
    assert error_fields(Declined(ring=ring, ok=1, deep=[[[[[1]]]]], near=[[[[1]]]])) == {"ok": 1, "near": [[[[1]]]]}


class Hostile(Exception):
    def __init__(self) -> None:
        self.code = 5

    @override
    def __str__(self) -> str:
        raise RuntimeError("no text")

    @override
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    @property
    def detail(self) -> str:
        raise RuntimeError("no detail")


class Raising(dict[str, Any]):
    @override
    def items(self) -> Any:
        raise RuntimeError("no items")


class Grim(str):
    __slots__ = ()

    @override
    def __len__(self) -> int:
        raise RuntimeError("no length")


def test_an_error_that_fights_back_is_still_recorded() -> None:
    assert error_fields(Hostile()) == {"code": 5}
    assert error_fields(Declined(a=Raising(x=1), b=Grim("text"), c=timedelta(1), d=1)) == {"b": "text", "d": 1}


def test_the_fields_are_not_the_attributes_themselves() -> None:
    tries = [1]
    fields = error_fields(Declined(tries=tries))
    tries.append(2)
    assert fields == {"tries": [1]}


@given(st.dictionaries(st.text(min_size=1, max_size=5), ANYTHING | st.iterables(st.integers()), max_size=5))
@settings(max_examples=50)
def test_any_error_gives_fields_that_any_reader_can_read(attributes: dict[str, Any]) -> None:
    text = json.dumps(error_fields(Declined(**attributes)), allow_nan=False, ensure_ascii=False)
    assert isinstance(json.loads(text.encode("utf-8")), dict)
