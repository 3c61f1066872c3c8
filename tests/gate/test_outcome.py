"""What an exception says about an effect: the tool, its declaration, its class, then the library; else maybe."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from poimen.declare.values import Parameters
from poimen.gate import outcome
from poimen.gate.error_record import rebuild
from poimen.gate.outcome import Failed, Maybe, RejectedBy, Unsent, judge
from poimen.kernel import intent as kept
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.errors import IndeterminateOutcome, NotSent, Rejected, StepError, Suspended
from tests.gate.live import kind_of, same_live

if TYPE_CHECKING:
    from collections.abc import Callable

EFFECTS: Final = tuple(one for one in EffectClass if one not in {EffectClass.PURE, EffectClass.READ})
every_effect = pytest.mark.parametrize("effect_class", EFFECTS)


class Declined(Exception):
    """The user's own: no."""


class GraphInterrupt(Exception):
    """How an agent framework stops its graph to ask a person: raised by a tool, after what the tool did."""


class Handoff(BaseException):
    """The same, by a framework that wants to pass `except Exception`."""


def of(exc: BaseException, effect_class: EffectClass = EffectClass.AT_MOST_ONCE, **declared: Any) -> outcome.Raised:
    said: dict[str, Any] = {"rejected": None, "not_sent": None, "exchanges": None, **declared}
    return judge(exc, effect_class=effect_class, **said)


def refused() -> httpx.ConnectError:
    """A real error of connecting."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(httpx.ConnectError) as caught:
            httpx.post(f"http://127.0.0.1:{taken.getsockname()[1]}/", trust_env=False)
    return caught.value


# ---- who is asked, and in which order ----------------------------------------------------------------------------


@every_effect
@pytest.mark.parametrize("exc", [ValueError("x"), TimeoutError(), ConnectionRefusedError(), Declined(), StepError("X")])
def test_the_default_is_maybe(exc: Exception, effect_class: EffectClass) -> None:
    assert isinstance(of(exc, effect_class), Maybe)
    assert isinstance(of(exc, effect_class, rejected=(), not_sent=()), Maybe)


@pytest.mark.parametrize("effect_class", EffectClass)
def test_the_tool_itself_is_asked_first(effect_class: EffectClass) -> None:
    found = of(Rejected("no stock", hint="ask"), effect_class, not_sent=Rejected, exchanges=1)
    assert found == RejectedBy(found.error, all_sends=False, rule="raised by the tool")
    assert (found.error.type, found.error.message, found.error.fields["hint"]) == ("Rejected", "no stock", "ask")
    every = of(Rejected("never seen", all_sends=True), effect_class)
    assert isinstance(every, RejectedBy)
    assert every.all_sends
    assert isinstance(of(NotSent("no address"), effect_class, rejected=NotSent), Unsent)


@every_effect
def test_a_declaration_speaks_by_type_tuple_or_predicate(effect_class: EffectClass) -> None:
    for declared in (Declined, (KeyError, Declined), lambda exc: "no" in str(exc)):
        assert isinstance(of(Declined("no"), effect_class, rejected=declared), RejectedBy)
        assert isinstance(of(Declined("no"), effect_class, not_sent=declared), Unsent)
        assert isinstance(of(ValueError("yes"), effect_class, rejected=declared, not_sent=declared), Maybe)
    assert isinstance(of(Declined(), effect_class, rejected=Declined, not_sent=Declined), Unsent)


def test_a_declaration_goes_before_the_class_and_before_the_library() -> None:
    assert isinstance(of(Declined(), EffectClass.READ, rejected=Declined), RejectedBy)
    assert isinstance(of(refused(), exchanges=1, rejected=httpx.ConnectError), RejectedBy)


def test_the_message_of_the_far_side_may_be_asked() -> None:
    def said_no(error: BaseException) -> bool:
        return "[rejected]" in str(getattr(error, "stderr", ""))

    import subprocess

    for said, expected in (("! [rejected] v1", RejectedBy), ("fatal: hung up", Maybe)):
        error = subprocess.CalledProcessError(1, ["git", "push"], stderr=said)
        assert isinstance(of(error, rejected=said_no), expected)


def broken(_: BaseException) -> bool:
    raise ZeroDivisionError("one by none")


async def later(_: BaseException) -> bool:
    return True


class Neither:
    def __bool__(self) -> bool:
        raise ValueError("neither yes nor no")


@pytest.mark.parametrize("name", ["rejected", "not_sent"])
@pytest.mark.parametrize(
    ("predicate", "noted"),
    [(broken, "ZeroDivisionError: one by none"), (later, "coroutine"), (lambda _: Neither(), "neither yes nor no")],
)
def test_a_predicate_that_cannot_tell_is_maybe_and_its_error_is_noted(
    name: str, predicate: Callable[..., Any], noted: str
) -> None:
    declared: dict[str, Any] = {name: predicate}
    found = of(refused(), exchanges=1, **declared)
    assert isinstance(found, Maybe)
    assert noted in str(found.error.fields["predicate_error"])
    assert name in found.rule
    assert noted in found.rule
    read = of(refused(), EffectClass.READ, **declared)
    assert isinstance(read, Failed)
    assert noted in str(read.error.fields["predicate_error"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()  # a coroutine that nobody awaits would complain here


def test_after_a_broken_predicate_no_later_declaration_is_believed() -> None:
    found = of(Declined(), not_sent=broken, rejected=Declined)
    assert isinstance(found, Maybe)


@pytest.mark.parametrize("effect_class", [EffectClass.PURE, EffectClass.READ])
def test_a_body_that_only_looks_has_failed_and_nothing_is_unknown(effect_class: EffectClass) -> None:
    for exchanges in (None, 1):
        found = of(refused(), effect_class, exchanges=exchanges)
        assert isinstance(found, Failed)
        assert found.error.type == "ConnectError"
    assert isinstance(of(ExceptionGroup("several", [ValueError()]), effect_class), Failed)
    assert isinstance(of(Handoff(), effect_class), Maybe)  # no error of the body: it wants to pass through everything


@every_effect
def test_libraries_are_known_with_one_exchange_only(effect_class: EffectClass) -> None:
    error = refused()
    found = of(error, effect_class, exchanges=1)
    assert found == Unsent(found.error, "exchanges=1: no connection, so no request")
    for exchanges in (None, 0, 2, 3):
        assert isinstance(of(error, effect_class, exchanges=exchanges), Maybe)


def test_an_answer_by_code_is_known_with_one_exchange_only() -> None:
    request = httpx.Request("POST", "http://far.example/")
    for code, expected in ((404, RejectedBy), (502, Maybe)):
        error = httpx.HTTPStatusError("no", request=request, response=httpx.Response(code, request=request))
        assert isinstance(of(error, exchanges=1), expected)
        assert isinstance(of(error), Maybe)


INTERRUPTS: Final = (KeyboardInterrupt(), SystemExit(1), GeneratorExit(), asyncio.CancelledError(), Suspended())


@pytest.mark.parametrize("effect_class", EffectClass)
@pytest.mark.parametrize("exc", INTERRUPTS, ids=lambda exc: type(exc).__name__)
def test_an_interruption_is_maybe_whatever_is_declared(exc: BaseException, effect_class: EffectClass) -> None:
    for declared in (BaseException, type(exc), lambda _: True):
        assert isinstance(of(exc, effect_class, rejected=declared, not_sent=declared, exchanges=1), Maybe)
    group = BaseExceptionGroup("body", [ValueError(), BaseExceptionGroup("inner", [exc])])
    assert isinstance(of(group, effect_class, rejected=BaseException), Maybe)


@every_effect
def test_a_group_is_maybe_even_when_every_member_says_no(effect_class: EffectClass) -> None:
    """Those that succeeded are not in it."""
    for group in (ExceptionGroup("g", [Rejected("no")]), ExceptionGroup("g", [NotSent("no"), refused()])):
        assert isinstance(of(group, effect_class, exchanges=1), Maybe)
        assert isinstance(of(group, effect_class, not_sent=(NotSent, httpx.ConnectError)), Maybe)


# ---- cases -------------------------------------------------------------------------------------------------------


@every_effect
@pytest.mark.parametrize("exchanges", [None, 1])
@pytest.mark.parametrize("cls", [GraphInterrupt, Handoff])
def test_c11_a_frameworks_control_flow_after_an_effect_is_maybe(
    cls: type[BaseException], exchanges: int | None, effect_class: EffectClass
) -> None:
    effects: list[str] = []

    def tool() -> None:
        effects.append("made")
        raise cls("ask a person")

    with pytest.raises(cls) as caught:
        tool()
    assert effects == ["made"]
    found = of(caught.value, effect_class, exchanges=exchanges)
    assert isinstance(found, Maybe)
    assert found.error.type == cls.__name__
    assert isinstance(of(caught.value, effect_class, rejected=cls), RejectedBy)  # unless it is declared


@every_effect
def test_c14_a_create_that_times_out_on_our_side_is_unknown(effect_class: EffectClass) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts, never answers
        timeout = httpx.Timeout(5, read=0.05)
        with pytest.raises(httpx.ReadTimeout) as caught:
            httpx.post(f"http://127.0.0.1:{server.getsockname()[1]}/", timeout=timeout, trust_env=False)
        connection, _ = server.accept()
        with connection:
            assert connection.recv(4) == b"POST"  # the far side has it
    for exchanges in (None, 1):
        assert isinstance(of(caught.value, effect_class, exchanges=exchanges), Maybe)


# ---- what the workflow is told -----------------------------------------------------------------------------------


def test_what_is_told_live_is_what_a_replay_will_tell() -> None:
    error = refused()
    cases: list[tuple[outcome.Raised, type[Exception]]] = [
        (of(error, rejected=httpx.ConnectError), Rejected),
        (of(error, exchanges=1), NotSent),
        (of(error, EffectClass.READ), StepError),
        (of(TimeoutError("t"), EffectClass.READ), TimeoutError),
        (of(error), IndeterminateOutcome),
    ]
    for ending, expected in cases:
        live = same_live(error, ending, intent_id="r/main/s#0/1/0")
        again = rebuild(kind_of(ending), ending.error, intent_id="r/main/s#0/1/0")
        assert type(live) is type(again) is expected
        assert (str(live), live.args, vars(live)) == (str(again), again.args, vars(again))
        assert live.__cause__ is error
        assert again.__cause__ is None
    assert same_live(error).__cause__ is error
    assert isinstance(same_live(error), StepError)


# ---- as the guard records it -------------------------------------------------------------------------------------


def spec(**declared: Any) -> Any:
    return SimpleNamespace(**{"rejected": (), "not_sent": (), "exchanges": None, **declared})


def test_judged_gives_the_outcome_to_record_and_none_for_maybe() -> None:
    at_most_once, read = EffectClass.AT_MOST_ONCE, EffectClass.READ
    no = outcome.judged(Rejected("no", all_sends=True), spec(), at_most_once)
    assert isinstance(no, kept.RejectedOutcome)
    assert no.all_sends
    assert no.error.message == "no"
    declared = outcome.judged(Declined("no"), spec(rejected=Declined), at_most_once)
    assert declared == kept.RejectedOutcome(error=of(Declined("no")).error)
    assert isinstance(outcome.judged(refused(), spec(exchanges=1), at_most_once), kept.NotSentOutcome)
    assert isinstance(outcome.judged(ValueError(), spec(), read), kept.FailedRead)
    assert outcome.judged(ValueError(), spec(), at_most_once) is None
    assert outcome.judged(asyncio.CancelledError(), spec(), read) is None


def text_tool(n: int) -> str:
    return str(n)


def test_c34_a_value_that_cannot_be_stored_is_recorded_as_returned() -> None:
    parameters = Parameters(text_tool)
    assert outcome.returned("fine", parameters, bytes) == kept.Returned(value=b'"fine"')
    for value in (object(), 7):
        found = outcome.returned(value, parameters, bytes)
        assert found.value == b"null"
        assert "result" in found.unstorable
    odd: Any = SimpleNamespace(result=None)  # whatever breaks while storing, the effect has happened
    assert outcome.returned(object(), odd, bytes).unstorable


def test_only_a_cancellation_is_cancelled() -> None:
    cancelled = asyncio.CancelledError()
    assert outcome.is_cancelled(cancelled)
    assert outcome.is_cancelled(BaseExceptionGroup("g", [ValueError(), cancelled]))
    assert not outcome.is_cancelled(TimeoutError())
    assert not outcome.is_cancelled(KeyboardInterrupt())
    assert not outcome.is_cancelled(ExceptionGroup("g", [ValueError()]))
