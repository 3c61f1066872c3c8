"""An exception is recorded once, and what is made of the record is the same live, replayed and years later."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import types
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poimen.gate.error_record import BUILTINS, LONGEST, MOST, Kind, from_json, message_of, rebuild, record_of, to_json
from poimen.gate.outcome import judge
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.errors import (
    Conflict,
    Corrupt,
    EffectAbandoned,
    IndeterminateOutcome,
    NotSent,
    PoimenError,
    Rejected,
    StepError,
)
from poimen.kernel.events import AttemptFailed
from poimen.kernel.intent import ErrorRecord
from poimen.log.codec import KINDS, decode, encode
from tests.gate.live import same_live

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "outcomes.md"


def stored(record: ErrorRecord) -> ErrorRecord:
    """Through the bytes of a log and back."""
    event = AttemptFailed(step="pay#0", attempt=1, error=record)
    again = decode(KINDS[AttemptFailed], encode(event))
    assert isinstance(again, AttemptFailed)
    return again.error


def parts(error: BaseException) -> tuple[Any, ...]:
    """All that a program can see of an exception."""
    notes = getattr(error, "__notes__", [])
    plain = {name: value for name, value in vars(error).items() if name != "__notes__"}
    slots = [getattr(error, name, None) for name in ("errno", "strerror", "filename", "filename2", "name", "lineno")]
    return type(error), str(error), error.args, plain, notes, slots


def looks(error: BaseException) -> str:
    """The same as text: equal values that print otherwise make another prompt."""
    return repr(parts(error))


def raised(code: str) -> Exception:
    """What a piece of Python really raises."""
    try:
        exec(code, {"os": os, "json": json})
    except Exception as error:  # noqa: BLE001 (whatever it is)
        return error
    pytest.fail(f"{code!r} raises nothing")


class Custom(Exception):
    def __init__(self, order: str, cents: int) -> None:
        super().__init__(order, cents)
        self.order = order
        self.cents = cents
        self.client = object()


class MyKeyError(KeyError):
    """A subclass of a builtin."""


class ValueErrorOfAUser(Exception):
    pass


ValueErrorOfAUser.__name__ = "ValueError"

REAL: Final = {
    "value": "int('x')",
    "key": "{}['a key']",
    "key of int": "{}[7]",
    "key of tuple": "{}[(1, 'a')]",
    "index": "[][0]",
    "attribute": "object().nothing",
    "name": "nothing",
    "unbound": "def f():\n    x\n    x = 1\nf()",
    "zero": "1 / 0",
    "type": "'a' + 1",
    "missing file": "open('/there/is/nothing')",
    "missing path": "os.stat(__import__('pathlib').Path('/there/is/nothing'))",
    "two files": "os.rename('/there/is/nothing', '/nor/here')",
    "a directory": "open('/')",
    "bytes path": "open(b'/there/is/nothing')",
    "os error": "raise OSError('just words')",
    "no words": "raise ValueError",
    "empty words": "raise ValueError('')",
    "two words": "raise ValueError('a', 2, None, 1.5, True)",
    "an object": "raise ValueError(object)",
    "an own errno": "e = OSError('x'); e.errno = 5; raise e",
    "timeout": "raise TimeoutError",
    "timeout in words": "raise TimeoutError('timed out')",
    "syntax": "compile('a b', 'there.py', 'exec')",
    "indentation": "compile('if 1:\\nx', 'there.py', 'exec')",
    "import": "import there_is_nothing",
    "import from": "from os import there_is_nothing",
    "assertion": "assert False, {'a': 1}",
    "recursion": "def f(): f()\nf()",
    "unicode": "b'\\xff'.decode()",
    "unicode encode": "'\\ud800'.encode()",
    "json": "json.loads('{')",
    "a lone surrogate": "raise ValueError('a\\ud800b')",
    "zero byte": "raise ValueError('a\\0b')",
    "a note": "e = ValueError('x'); e.add_note('look here'); raise e",
    "an attribute": "e = ValueError('x'); e.code = 42; e.args_ = 1; raise e",
    "group": "raise ExceptionGroup('several', [ValueError('a'), KeyError('b')])",
    "stop": "raise StopIteration(1)",
    "memory": "raise MemoryError",
    "blocking": "raise BlockingIOError(11, 'again', 7)",
    "from": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('wrapped') from e",
    "while": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise RuntimeError('wrapped')",
}


@pytest.mark.parametrize("code", REAL.values(), ids=REAL)
def test_live_and_replayed_are_the_same(code: str) -> None:
    error = raised(code)
    live = same_live(error)
    again = rebuild("failed", stored(record_of(error)))
    assert looks(live) == looks(again)
    assert live.__cause__ is error
    assert again.__cause__ is None


AS_IT_WAS: Final = [
    name
    for name in REAL
    # what cannot come back as it was: other shapes, and arguments that are no plain values
    if name not in {"unicode", "unicode encode", "json", "group", "stop", "an object", "a lone surrogate", "bytes path"}
    and name != "missing path"
]


@pytest.mark.parametrize("code", [REAL[name] for name in AS_IT_WAS], ids=AS_IT_WAS)
def test_a_builtin_comes_back_as_it_was(code: str) -> None:
    error = raised(code)
    again = rebuild("failed", stored(record_of(error)))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert getattr(again, "__notes__", []) == getattr(error, "__notes__", [])
    assert getattr(again, "errno", None) == getattr(error, "errno", None)


def test_details_of_builtins_come_back() -> None:
    key = rebuild("failed", stored(record_of(raised("{}['a key']"))))
    assert (key.args, str(key)) == (("a key",), "'a key'")
    missing = rebuild("failed", stored(record_of(raised("open('/there/is/nothing')"))))
    assert isinstance(missing, FileNotFoundError)
    assert (missing.errno, missing.filename) == (2, "/there/is/nothing")
    assert str(missing) == "[Errno 2] No such file or directory: '/there/is/nothing'"
    module = rebuild("failed", stored(record_of(raised("import there_is_nothing"))))
    assert isinstance(module, ModuleNotFoundError)
    assert module.name == "there_is_nothing"
    general = rebuild("failed", ErrorRecord(type="OSError", message="m", fields={"args": [2, "x"], "errno": 2}))
    assert type(general) is OSError  # Python itself would have made a FileNotFoundError of these arguments
    coded = rebuild("failed", stored(record_of(raised(REAL["an attribute"]))))
    assert vars(coded)["code"] == 42


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (raised("b'\\xff'.decode()"), "UnicodeDecodeError"),
        (raised("json.loads('{')"), "JSONDecodeError"),
        (raised("raise StopIteration(1)"), "StopIteration"),
        (ExceptionGroup("g", [ValueError()]), "ExceptionGroup"),
        (MyKeyError("k"), "MyKeyError"),
        (Custom("tea", 4200), "Custom"),
        (ValueErrorOfAUser("not the builtin"), "ValueError"),
        (subprocess.CalledProcessError(1, ["git"], stderr="no"), "CalledProcessError"),
        (Conflict("somebody else"), "Conflict"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit(3), "SystemExit"),
        (DeprecationWarning("old"), "DeprecationWarning"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_all_others_come_back_as_step_error(error: BaseException, name: str) -> None:
    live, again = same_live(error), rebuild("failed", stored(record_of(error)))
    assert looks(live) == looks(again)
    assert isinstance(again, StepError)
    assert (again.type, again.fields["module"]) == (name, type(error).__module__)


def test_plain_fields_are_kept_and_others_are_not() -> None:
    again: Any = rebuild("failed", stored(record_of(Custom("tea", 4200))))
    assert isinstance(again, StepError)
    expected = {"module": __name__, "args": ["tea", 4200], "order": "tea", "cents": 4200}
    assert again.fields == expected
    assert again.message == "('tea', 4200)"


def test_an_attribute_with_a_name_of_ours_is_kept_beside_it() -> None:
    error = ValueErrorOfAUser("x")
    error.__dict__.update(module="theirs", cause="theirs", exceptions=1)
    fields = record_of(error).fields
    assert (fields["module"], fields["module_"], fields["cause_"], fields["exceptions_"]) == (
        __name__,
        "theirs",
        "theirs",
        1,
    )


def test_the_error_behind_is_kept_unless_it_was_waved_away() -> None:
    for name in ("from", "while"):
        cause: Any = record_of(raised(REAL[name])).fields["cause"]
        assert (cause["type"], cause["message"]) == ("ZeroDivisionError", "division by zero")
    hidden = raised("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise RuntimeError('alone') from None")
    assert "cause" not in record_of(hidden).fields


def test_the_members_of_a_group_are_kept() -> None:
    inner = ExceptionGroup("inner", [Custom("tea", 1)])
    again = rebuild("failed", stored(record_of(ExceptionGroup("outer", [KeyError("k"), inner]))))
    assert isinstance(again, StepError)
    key, group = again.fields["exceptions"]
    assert (key["type"], key["message"], key["fields"]["args"]) == ("KeyError", "'k'", ["k"])
    assert group["fields"]["exceptions"][0]["fields"]["order"] == "tea"
    assert again.message == "outer (2 sub-exceptions)"


# ---- our own ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "cls"),
    [
        ("rejected", Rejected),
        ("not_sent", NotSent),
        ("indeterminate", IndeterminateOutcome),
        ("abandoned", EffectAbandoned),
    ],
)
def test_our_own_come_back_as_themselves_and_stand_for_others(kind: Kind, cls: Any) -> None:
    said = {"where": "shop.py:7", "why": "no stock", "hint": "order more"}
    facts = {"sku": "x1", "n": 3}
    own = stored(record_of(with_facts(cls("sold out", **said), **facts)))
    for again in (rebuild(kind, own), rebuild("failed", own)):
        assert type(again) is cls
        assert str(again) == str(cls("sold out", **said))
        assert {name: vars(again)[name] for name in (*said, *facts)} == said | facts
        assert vars(again)["ids"] == facts
        assert parts(rebuild("failed", stored(record_of(again)))) == parts(again)
    other: Any = rebuild(kind, stored(record_of(Custom("tea", 4200))))
    assert type(other) is cls
    assert other.message == "Custom: ('tea', 4200)"
    assert (other.type, other.fields["order"]) == ("Custom", "tea")
    assert parts(rebuild("failed", stored(record_of(other)))) == parts(other)


E = TypeVar("E", bound=PoimenError)


def with_facts(error: E, **facts: Any) -> E:
    """The error with further facts, as one of ours has them."""
    error.ids = facts
    vars(error).update(facts)
    return error


@pytest.mark.parametrize("cls", [Rejected, NotSent])
def test_a_keyword_that_is_misspelt_is_refused(cls: Any) -> None:
    for wrong in ({"all_send": True}, {"alsends": True}, {"messages": "x"}):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{next(iter(wrong))}'"):
            cls("no", **wrong)
    error = cls("no", where="a.py:1", why="it said so", hint="ask")
    assert (error.where, error.why, error.hint, error.ids) == ("a.py:1", "it said so", "ask", {})
    with pytest.raises(TypeError):
        NotSent("no", all_sends=True)  # type: ignore[call-arg]


def test_facts_that_are_false_or_named_like_ours_come_back() -> None:
    facts: dict[str, Any] = {
        "n": 0,
        "paid": False,
        "name": "",
        "nothing": None,
        "cause": "no money",
        "module": "billing",
    }
    error = with_facts(Rejected("declined"), **facts)
    again = rebuild("rejected", stored(record_of(error)))
    assert vars(again) == vars(error)
    assert looks(same_live(error)) == looks(again)


def test_all_sends_and_the_intent_come_back() -> None:
    again: Any = rebuild("rejected", stored(record_of(Rejected("no", all_sends=True))))
    assert again.all_sends is True
    unknown: Any = rebuild("indeterminate", record_of(TimeoutError("t")), intent_id="r/main/s#0/1/0")
    assert unknown.intent_id == "r/main/s#0/1/0"
    outer: Any = rebuild("failed", stored(record_of(unknown)))
    assert type(outer) is IndeterminateOutcome
    assert outer.intent_id == "r/main/s#0/1/0"
    assert parts(outer) == parts(unknown)
    told = rebuild("abandoned", ErrorRecord(type="", message="closed by ada: lost"))
    assert str(told).splitlines()[0].endswith("closed by ada: lost")


class SoldOut(Rejected):
    """A user's own subclass."""


def test_a_users_subclass_of_ours_is_told_by_name() -> None:
    record = stored(record_of(with_facts(SoldOut("tea"), sku="x1")))
    again: Any = rebuild("rejected", record)
    assert (type(again), again.message, again.type, again.fields["sku"]) == (Rejected, "SoldOut: tea", "SoldOut", "x1")
    assert isinstance(rebuild("failed", record), StepError)


def test_a_step_error_stands_for_what_it_was() -> None:
    first = rebuild("failed", stored(record_of(Custom("tea", 4200))))
    assert looks(rebuild("failed", stored(record_of(first)))) == looks(first)
    assert looks(same_live(first)) == looks(first)


def test_a_record_of_no_exception_is_told_by_its_name() -> None:
    """The guard writes one for a call that was called off, the driver for a deadline."""
    off: Any = rebuild("not_sent", ErrorRecord(type="NotSent", message="called off before the call"))
    assert (type(off), off.message) == (NotSent, "called off before the call")
    late = rebuild("failed", ErrorRecord(type="TimeoutError", message="the step's deadline passed"))
    assert (type(late), str(late)) == (TimeoutError, "the step's deadline passed")
    loop = rebuild("failed", ErrorRecord(type="CrashLoop", message="died three times"))
    assert (type(loop), str(loop)) == (StepError, "CrashLoop: died three times")


def test_a_class_named_like_ours_is_not_ours() -> None:
    fake = type("Rejected", (Exception,), {"__module__": "theirs"})
    assert isinstance(rebuild("failed", record_of(fake("x"))), StepError)


def test_every_kind_is_told() -> None:
    for kind in get_args(Kind):
        assert isinstance(rebuild(kind, record_of(ValueError("x"))), Exception)


# ---- C38 ---------------------------------------------------------------------------------------------------------


def test_c38_a_class_that_has_moved_is_readable_for_ever() -> None:
    code = "class Declined(Exception):\n    def __init__(self, cents):\n        self.cents = cents\n"
    first = types.ModuleType("shop_of_last_year")
    exec(code, first.__dict__)
    body = json.dumps(to_json(record_of(first.Declined(4200))))
    del first
    before = set(sys.modules)
    again = rebuild("failed", from_json(json.loads(body)))
    assert isinstance(again, StepError)
    assert (again.type, again.fields["module"], again.fields["cents"]) == ("Declined", "shop_of_last_year", 4200)
    assert set(sys.modules) == before
    moved = types.ModuleType("shop_of_this_year")
    exec(code, moved.__dict__)
    now = rebuild("failed", record_of(moved.Declined(4200)))
    assert isinstance(now, StepError)
    assert now.type == again.type  # the name is what code looks at; it has not moved


@pytest.mark.parametrize("name", ["eval", "exec", "open", "exit", "object", "BaseException", "GeneratorExit"])
def test_c38_a_record_chooses_no_class_outside_the_closed_set(name: str) -> None:
    again = rebuild("failed", ErrorRecord(type=name, message="x", fields={"module": "builtins", "args": ["x"]}))
    assert type(again) is StepError


def test_a_record_written_by_a_newer_version_keeps_what_is_not_known() -> None:
    plain = {"type": "X", "message": "m", "fields": {"a": 1}, "severity": 3, "frames": ["f"]}
    record = from_json(plain)
    assert to_json(record) == plain
    assert isinstance(rebuild("failed", record), StepError)
    for bad in ({}, {"message": "m"}, {"type": 1}, {"type": "X", "fields": []}, {"type": "X", "message": None}):
        with pytest.raises(Corrupt):
            from_json(bad)


def test_attributes_of_a_record_do_not_reach_methods() -> None:
    fields: Any = {"module": "builtins", "with_traceback": 1, "__class__": "x", "__dict__": {}, "add_note": 2, "ok": 3}
    again = rebuild("failed", ErrorRecord(type="ValueError", message="x", fields=fields))
    assert type(again) is ValueError
    assert vars(again) == {"ok": 3}
    own: Any = {"module": "poimen.kernel.errors", "title": "x", "__str__": "y"}
    assert str(rebuild("failed", ErrorRecord(type="Rejected", message="m", fields=own))) == str(Rejected("m"))


# ---- whatever an exception does --------------------------------------------------------------------------------------


class Hostile(Exception):
    """Everything that is asked of it goes wrong."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __repr__(self) -> str:
        raise RuntimeError("no form")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equal")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no attribute")


class NoText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # noqa: PLE0307 (that is the case)


class Text(str):
    __slots__ = ()

    def encode(self, *_: Any, **__: Any) -> bytes:
        raise RuntimeError("no bytes")


def test_recording_never_raises() -> None:
    error = Hostile("a", object())
    error.__cause__ = Hostile()
    assert record_of(error).message == "<no text: it raised RuntimeError>"
    assert isinstance(same_live(error), StepError)
    outer = RuntimeError("outer")
    outer.__cause__ = Hostile()
    cause: Any = record_of(outer).fields["cause"]
    assert cause["type"] == "Hostile"
    assert message_of(NoText()) == "<no text: it raised TypeError>"
    assert record_of(ValueError(Text("words"))).message == "words"
    assert record_of(ValueError("a\ud800b")).message == "a\\ud800b"
    twisted = Rejected("m")
    twisted.message = object()  # type: ignore[assignment]
    twisted.ids = 7  # type: ignore[assignment]
    assert record_of(twisted).type == "Rejected"
    odd = ValueErrorOfAUser("x")
    vars(odd)["__notes__"] = 7
    assert stored(record_of(odd)).message == "x"
    broken_step = StepError("X", "m")
    broken_step.fields = None  # type: ignore[assignment]
    broken_step.type = None  # type: ignore[assignment]
    assert stored(record_of(broken_step)).type == "StepError"


def test_rings_and_depths_end() -> None:
    ring = ValueErrorOfAUser("ring")
    other = RuntimeError("other")
    ring.__cause__, other.__cause__ = other, ring
    items: list[Any] = []
    items.append(items)
    ring.__dict__["items"] = items
    assert stored(record_of(ring)).fields["cause"]
    deep: Exception = ValueError("bottom")
    for n in range(200):
        outer = RuntimeError(str(n))
        outer.__cause__ = deep
        deep = ExceptionGroup("g", [outer])
    record = record_of(deep)
    assert len(json.dumps(to_json(record))) < 2 * MOST


def test_what_is_kept_is_bounded() -> None:
    text = "é" * 100_000
    error = ValueErrorOfAUser(text)
    error.__dict__.update({f"field{n}": "x" * 3000 for n in range(50)}, small=1, numbers=list(range(100_000)))
    error.__cause__ = RuntimeError(text)
    group = ExceptionGroup(text, [ValueError(text) for _ in range(500)])
    for one in (error, group, StepError("X" * 100_000, text, {"a": text, "b": [text] * 9})):
        record = stored(record_of(one))
        assert len(record.message.encode()) <= LONGEST
        assert len(record.type) <= LONGEST
        assert len(json.dumps(to_json(record), ensure_ascii=False).encode()) < 4 * MOST
        assert looks(same_live(one)) == looks(rebuild("failed", record))
    assert record_of(error).fields["cut"] is True
    assert record_of(group).fields["cut"] is True


def test_numbers_that_json_does_not_have_are_told_in_words() -> None:
    error = ValueErrorOfAUser("x", math.nan, -math.inf, 2**70)
    error.__dict__.update(nan=math.nan, big=2**70, price=Decimal(1), ok=True, seven=7)
    record = record_of(error)
    assert stored(record) == record
    assert record.fields["args"] == ["x", "nan", "-inf", str(2**70)]
    assert (record.fields["nan"], record.fields["big"]) == ("nan", str(2**70))
    assert (record.fields["ok"], record.fields["seven"]) == (True, 7)
    assert "price" not in record.fields
    assert "args" not in record_of(ValueErrorOfAUser("x", Decimal(1))).fields


PLAIN: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    cls=st.sampled_from([*BUILTINS.values(), Custom, MyKeyError, Rejected, NotSent, UnicodeDecodeError]),
    args=st.lists(PLAIN, max_size=4),
    attributes=st.dictionaries(st.text(min_size=1, max_size=8) | st.sampled_from(["errno", "args", "msg"]), PLAIN),
    notes=st.lists(st.text(max_size=9), max_size=2),
)
def test_any_error_is_the_same_live_and_replayed(
    cls: type[Exception], args: list[Any], attributes: dict[str, Any], notes: list[str]
) -> None:
    try:
        error = cls(*args)
    except Exception:  # noqa: BLE001 (a shape that the class does not take)
        error = ValueErrorOfAUser(*args)
    vars(error).update(attributes)
    for note in notes:
        error.add_note(note)
    live, again = same_live(error), rebuild("failed", stored(record_of(error)))
    assert looks(live) == looks(again)
    assert looks(same_live(live)) == looks(live)


class Declined(Exception):
    def __init__(self) -> None:
        super().__init__("no", {"why": {"z": 1, "a": [{"y": 0, "b": -0.0}]}, "code": 1e16})
        self.reason, self.code, self.detail = "funds", 7, {"zeta": (1, 2.0), "alpha": None}


def declined() -> Exception:
    error = Declined()
    error.add_note("second")
    error.__cause__ = ExceptionGroup("several", [Declined(), KeyError((2, "a"))])
    return error


@pytest.mark.parametrize("kind", ["rejected", "not_sent", "indeterminate", "abandoned", "failed"])
def test_fields_stand_in_the_same_order_live_and_replayed(kind: Kind) -> None:
    step_error = StepError("Declined", "no", {"z": {"y": 1, "b": 2}, "a": 1})
    for error in (declined(), step_error, with_facts(Rejected("no", why="closed"), zip=1, area={"z": 1, "a": 2})):
        assert looks(rebuild(kind, record_of(error))) == looks(rebuild(kind, stored(record_of(error))))


def test_what_a_predicate_could_not_tell_stands_in_its_place() -> None:
    def broken(_: BaseException) -> bool:
        raise RuntimeError("no idea")

    ending = judge(declined(), effect_class=EffectClass.READ, rejected=broken, not_sent=None, exchanges=None)
    assert ending.error.fields["predicate_error"] == "rejected= raised RuntimeError: no idea"
    assert looks(rebuild("failed", ending.error)) == looks(rebuild("failed", stored(ending.error)))


def test_what_a_program_does_to_the_fields_stays_with_it() -> None:
    record = record_of(declined())
    first: Any = rebuild("failed", record)
    before = looks(first)
    first.fields["cause"]["fields"].clear()
    assert looks(rebuild("failed", record)) == before


def test_the_reference_lists_the_builtins() -> None:
    assert f"\n\n{' '.join(f'`{name}`' for name in sorted(BUILTINS))}\n" in PAGE.read_text(encoding="utf-8")
    assert all(isinstance(cls("text"), Exception) for cls in BUILTINS.values())


@pytest.mark.parametrize(("said", "text"), [({"code": 3}, "{'code': 3}"), (5, "5"), (None, ""), (["a"], "['a']")])
def test_one_of_ours_that_was_given_no_text_is_kept_by_its_text(said: Any, text: str) -> None:
    assert record_of(Rejected(said)).message == text
