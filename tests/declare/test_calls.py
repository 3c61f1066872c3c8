"""What a call of a declared name hands to the run behind it, and when."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import inspect
import os
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen.declare.calling import CALLER, Caller, Current
from poimen.declare.specs import Options, ToolSpec, spec_of
from tests.declare import samples
from tests.declare.samples import Order

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator


class Recording:
    """A caller that notes what it is given."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, tuple[Any, ...], dict[str, Any], Options]] = []
        self.awaited: list[int] = []
        self.pid = os.getpid()

    def _note(self, face: str, spec: ToolSpec, packed: bytes, options: Options) -> int:
        args, kwargs = spec.parameters.unpack(packed)
        self.calls.append((face, spec.name, args, kwargs, options))
        return len(self.calls) - 1

    def call(self, spec: ToolSpec, packed: bytes, options: Options, /) -> Coroutine[Any, Any, Any]:
        n = self._note("call", spec, packed, options)

        async def wait() -> int:
            self.awaited.append(n)
            return n

        return wait()

    def call_sync(self, spec: ToolSpec, packed: bytes, options: Options, /) -> Any:
        return self._note("call_sync", spec, packed, options)

    def decide(self, decision_id: str, value: Any, /) -> Any:
        return (decision_id, value)

    def settle(self, decision_id: str, /) -> None:
        self.settled = decision_id

    def request_id(self) -> str:
        return "the-id"

    def current(self) -> Current:
        return Current(run_id="r", branch_id="main", step="", attempt=0, cancelling=None)


@contextmanager
def behind(caller: Caller) -> Iterator[None]:
    token = CALLER.set(caller)
    try:
        yield
    finally:
        CALLER.reset(token)


@pytest.fixture
def caller() -> Iterator[Recording]:
    recording = Recording()
    samples.ENTERED.clear()
    with behind(recording):
        yield recording
    assert samples.ENTERED == []  # no body is ever run by a call


def test_the_key_is_taken_at_the_call_and_not_when_it_is_awaited(caller: Recording) -> None:
    async def main() -> list[Any]:
        later = [
            samples.charge(Order("a", 1)),
            samples.chat.aio([]),
            samples.look.aio("x"),
            samples.tidy.aio(Order("b", 2)),
        ]
        assert [name for _, name, *_ in caller.calls] == ["charge", "chat", "look-up", "tidy"]
        assert caller.awaited == []
        return [await each for each in reversed(later)]

    assert asyncio.run(main()) == [3, 2, 1, 0]
    assert {face for face, *_ in caller.calls} == {"call"}


def test_calls_in_a_gather_are_in_the_order_of_writing(caller: Recording) -> None:
    async def main() -> None:
        await asyncio.gather(*(samples.charge(Order(str(n), n)) for n in range(5)))

    asyncio.run(main())
    assert [args[0].id for _, _, args, _, _ in caller.calls] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("call", "face"),
    [
        (lambda: samples.charge.sync(Order("a", 1)), "call_sync"),
        (lambda: samples.look("x"), "call_sync"),
        (lambda: samples.look.sync("x"), "call_sync"),
        (lambda: samples.tidy(Order("a", 1)), "call_sync"),
        (lambda: samples.chat.sync([]), "call_sync"),
    ],
)
def test_the_blocking_face_goes_to_the_blocking_side(caller: Recording, call: Any, face: str) -> None:
    assert call() == 0
    assert [each for each, *_ in caller.calls] == [face]


def test_arguments_arrive_as_they_were_given(caller: Recording) -> None:
    samples.look("a", "b", "c", deep=True, x=1, y=2)
    samples.charge.sync(note="n", order=Order("a", 1))
    assert caller.calls[0][2:4] == (("a", "b", "c"), {"deep": True, "x": 1, "y": 2})
    assert caller.calls[1][2:4] == ((Order("a", 1), "n"), {})


@pytest.mark.parametrize(
    "call",
    [
        lambda: samples.charge(object()),  # type: ignore[arg-type]
        lambda: samples.charge.aio(Order("a", "b")),  # type: ignore[arg-type]
        lambda: samples.charge.sync(3),  # type: ignore[arg-type]
        lambda: samples.look("a", deep="yes"),  # type: ignore[arg-type]
        lambda: samples.shop(3),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_stored_is_refused_before_anything_happens(caller: Recording, call: Any) -> None:
    with pytest.raises(poimen.NotStorable):
        call()
    assert caller.calls == []


@pytest.mark.parametrize(
    "face", [samples.charge, samples.charge.aio, samples.charge.sync], ids=["plain", "aio", "sync"]
)
def test_without_a_run_what_cannot_be_stored_is_still_named_first(face: Any) -> None:
    with pytest.raises(poimen.NotStorable, match="order"):
        face(3)


@pytest.mark.parametrize(
    "call",
    [
        samples.charge,
        lambda: samples.charge(Order("a", 1), "n", "more"),  # type: ignore[call-arg]
        lambda: samples.charge(Order("a", 1), nope=1),  # type: ignore[call-arg]
        samples.shop,
    ],
)
def test_a_call_that_does_not_fit_is_a_type_error(caller: Recording, call: Any) -> None:
    with pytest.raises(TypeError):
        call()
    assert caller.calls == []


# ---- options -------------------------------------------------------------------------------------------------------


def test_options_reach_the_run_and_add_up(caller: Recording) -> None:
    samples.charge.sync(Order("a", 1))
    chosen = samples.charge.options(key="tag", timeout=timedelta(minutes=1))
    chosen.options(attempts=2, decision="d").options(timeout=3).sync(Order("a", 1))
    chosen.sync(Order("a", 1))
    samples.charge.options(on_indeterminate="raise").aio(Order("a", 1)).close()
    assert [options for *_, options in caller.calls] == [
        Options(),
        Options(key="tag", timeout_s=3.0, attempts=2, decision="d"),
        Options(key="tag", timeout_s=60.0),
        Options(on_indeterminate="raise"),
    ]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"key": "a#1"}, poimen.DuplicateKey, "#"),
        ({"key": ""}, poimen.DuplicateKey, "key"),
        ({"timeout": 0}, poimen.BadDeclaration, "timeout=0"),
        ({"timeout": -1.0}, poimen.BadDeclaration, "timeout=-1.0"),
        ({"timeout": timedelta(0)}, poimen.BadDeclaration, "timeout="),
        ({"timeout": float("nan")}, poimen.BadDeclaration, "timeout=nan"),
        ({"timeout": "3"}, poimen.BadDeclaration, "timeout='3'"),
        ({"key": 5}, poimen.BadDeclaration, "key=5"),
        ({"attempts": 0}, poimen.BadDeclaration, "attempts=0"),
        ({"attempts": True}, poimen.BadDeclaration, "attempts=True"),
        ({"attempts": 1.5}, poimen.BadDeclaration, "attempts=1.5"),
        ({"decision": ""}, poimen.BadDeclaration, "decision=''"),
        ({"on_indeterminate": "ask"}, poimen.BadDeclaration, "on_indeterminate='ask'"),
    ],
)
def test_options_are_checked_where_they_are_given(options: dict[str, Any], error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        samples.charge.options(**options)


# ---- inside a run --------------------------------------------------------------------------------------------------


def test_what_is_asked_inside_a_run_is_asked_of_the_run(caller: Recording) -> None:
    decided: Any = poimen.decide("id", 3)
    assert decided == ("id", 3)
    poimen.settle("id")
    assert caller.settled == "id"
    assert poimen.request_id() == "the-id"
    assert poimen.current().run_id == "r"


def test_a_context_without_the_run_has_none(caller: Recording) -> None:
    with pytest.raises(poimen.UnguardedEffect):
        contextvars.Context().run(samples.look, "x")


# ---- workflows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workflow", samples.WORKFLOWS, ids=lambda workflow: workflow.__name__)
def test_calling_a_workflow_runs_nothing(caller: Recording, workflow: Any) -> None:
    call = workflow(Order("tea", 3))
    assert type(call) is poimen.Call
    assert caller.calls == []
    assert call.workflow == workflow.__name__
    assert call.spec is spec_of(workflow)
    assert call.spec.parameters.unpack(call.packed) == ((Order("tea", 3),), {})
    assert repr(call) == f"<call of {workflow.__name__}(order=Order(id='tea', cents=3))>"


def test_a_call_is_inert_and_frozen() -> None:
    call: Any = samples.shop(Order("tea", 3))
    assert call == samples.shop(Order("tea", 3))
    assert call != samples.shop(Order("tea", 4))
    assert len({call, samples.shop(Order("tea", 3))}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        call.packed = b""
    assert not inspect.iscoroutine(call)


def test_a_call_cannot_be_awaited_and_says_what_to_do() -> None:
    async def main() -> Any:
        return await samples.shop(Order("tea", 3))  # type: ignore[misc]

    with pytest.raises(TypeError) as refused:
        asyncio.run(main())
    for word in ("shop(order=", "poimen.run(", "rt.start(", "poimen.child("):
        assert word in str(refused.value)
