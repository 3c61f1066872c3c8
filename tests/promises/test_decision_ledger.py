"""Promise 1 without a runtime: a decision that was recorded survives the timeout that follows it.

The four tests of the requirement, the result of `poimen reproduce`, and what may be recorded. The file is
looked at in `test_decision_ledger_file.py`, crashes and failing storage in `test_decision_ledger_crashes.py`.
"""

from __future__ import annotations

import ast
import asyncio
import json
import math
import os
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poimen.ledger
from poimen.kernel.errors import (
    DecisionConflict,
    NotFound,
    NotStorable,
    StorageFailed,
    WouldBlock,
)
from poimen.ledger import MAX_ID_CHARS, MAX_LINE_BYTES, DecisionLedger
from poimen.testing.decision_window import after_success, after_timeout, reproduce, safe_path, unsafe_path

if TYPE_CHECKING:
    from poimen.testing.decision_window import DecisionPath

INTENT = {"decision": "retry-with-smaller-batch", "decision_id": "contact-3", "event": "intent"}
COMMIT = {"decision_id": "contact-3", "event": "commit"}
PRINTED = """{
  "safe_after_timeout": [
    {
      "decision": "retry-with-smaller-batch",
      "decision_id": "contact-3",
      "event": "intent"
    }
  ],
  "unsafe_after_timeout": []
}"""
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


# ---- the window: four tests, the printed result, the control -----------------------------------------------


def test_unsafe_path_loses_its_decision_to_the_timeout(file: Path) -> None:
    assert asyncio.run(after_timeout(unsafe_path, file)) == []


def test_safe_path_keeps_an_intent_without_a_commit(file: Path) -> None:
    assert asyncio.run(after_timeout(safe_path, file)) == [INTENT]
    with DecisionLedger(file) as ledger:
        assert ledger.pending() == {"contact-3": "retry-with-smaller-batch"}


def test_unsafe_path_writes_when_nothing_interrupts_it(file: Path) -> None:
    assert asyncio.run(after_success(unsafe_path, file)) == [INTENT]


def test_safe_path_commits_when_nothing_interrupts_it(file: Path) -> None:
    assert asyncio.run(after_success(safe_path, file)) == [INTENT, COMMIT]
    with DecisionLedger(file) as ledger:
        assert ledger.pending() == {}


def test_reproduce_prints_the_result_of_the_requirement() -> None:
    assert json.dumps(reproduce(), indent=2) == PRINTED
    assert json.dumps(reproduce(), indent=2, sort_keys=True) == PRINTED


def test_control_the_append_after_the_await_is_caught(tmp_path: Path) -> None:
    def the_decision_outlives_the_timeout(path: DecisionPath, file: Path) -> None:
        assert asyncio.run(after_timeout(path, file)) == [INTENT]

    the_decision_outlives_the_timeout(safe_path, tmp_path / "safe.jsonl")
    with pytest.raises(AssertionError):
        the_decision_outlives_the_timeout(unsafe_path, tmp_path / "unsafe.jsonl")


def test_a_timeout_that_hits_no_window_proves_nothing_and_is_refused(tmp_path: Path) -> None:
    async def never_decides(ledger: DecisionLedger, ready: asyncio.Event, release: asyncio.Event) -> None:
        pass

    async def never_waits(ledger: DecisionLedger, ready: asyncio.Event, release: asyncio.Event) -> None:
        ready.set()

    async def breaks(ledger: DecisionLedger, ready: asyncio.Event, release: asyncio.Event) -> None:
        raise LookupError("contact-3")

    with pytest.raises(AssertionError, match="never said"):
        asyncio.run(after_timeout(never_decides, tmp_path / "a"))
    with pytest.raises(AssertionError, match="without being released"):
        asyncio.run(after_timeout(never_waits, tmp_path / "b"))
    with pytest.raises(LookupError):
        asyncio.run(after_timeout(breaks, tmp_path / "c"))


def test_reproduce_refuses_to_block_a_running_loop() -> None:
    async def inside() -> dict[str, Any]:
        with pytest.raises(WouldBlock, match="one runs in this thread"):
            reproduce()
        return await asyncio.to_thread(reproduce)

    assert json.dumps(asyncio.run(inside()), indent=2) == PRINTED


# ---- ids and values ----------------------------------------------------------------------------------------


def test_the_same_again_writes_nothing_and_another_value_is_refused(file: Path) -> None:
    with DecisionLedger(file) as ledger:
        ledger.record_intent("a", {"to": "ann", "n": 1})
        before = file.read_bytes()
        ledger.record_intent("a", {"n": 1, "to": "ann"})
        with pytest.raises(DecisionConflict) as caught:
            ledger.record_intent("a", {"to": "bob", "n": 1})
        assert "decision 'a' is recorded as value " in str(caught.value)
        assert "ann" not in str(caught.value) and "bob" not in str(caught.value), "digests: a log may keep the text"
        assert (caught.value.ids["recorded"], caught.value.ids["offered"]) == (
            {"to": "ann", "n": 1},
            {"to": "bob", "n": 1},
        )
        assert file.read_bytes() == before
        ledger.record_commit("a")
        before = file.read_bytes()
        ledger.record_commit("a")
        ledger.record_intent("a", {"to": "ann", "n": 1})
        assert file.read_bytes() == before
        assert ledger.pending() == {}
        with pytest.raises(NotFound, match="'b'"):
            ledger.record_commit("b")
        assert file.read_bytes() == before
    with DecisionLedger(file) as again, pytest.raises(DecisionConflict):
        again.record_intent("a", {"to": "bob", "n": 1})


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (1, True), (0, False), (None, "null"), ([], {}), ("a", "A"), (0.0, -0.0)]
)
def test_values_that_python_calls_equal_may_be_different_decisions(file: Path, one: Any, other: Any) -> None:
    with DecisionLedger(file) as ledger:
        ledger.record_intent("a", one)
        with pytest.raises(DecisionConflict):
            ledger.record_intent("a", other)


def test_what_is_handed_out_is_a_copy(file: Path) -> None:
    decision = {"steps": ["draft"]}
    with DecisionLedger(file) as ledger:
        ledger.record_intent("a", decision)
        decision["steps"].append("send")
        ledger.events()[0]["decision"]["steps"].append("send")
        taken: Any = ledger.pending()["a"]
        taken["steps"].append("send")
        assert ledger.events()[0]["decision"] == ledger.pending()["a"] == {"steps": ["draft"]}


@settings(max_examples=40, deadline=None)
@given(decisions=st.dictionaries(st.text(min_size=1, max_size=8), JSON, max_size=6), data=st.data())
def test_any_json_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, decisions: dict[str, Any], data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("l") / "decisions.jsonl"
    done = {name for name in decisions if data.draw(st.booleans())}
    with DecisionLedger(file) as ledger:
        for name, decision in decisions.items():
            ledger.record_intent(name, decision)
        for name in sorted(done):
            ledger.record_commit(name)
        live = ledger.events()
    owed = {name: decision for name, decision in decisions.items() if name not in done}
    with DecisionLedger(file) as again:
        assert repr(again.events()) == repr(live) == repr(DecisionLedger.read(file).events())
        intents = {event["decision_id"]: event["decision"] for event in live if event["event"] == "intent"}
        assert intents == decisions
        assert again.pending() == owed
        assert again.compact() == len(done)
        assert again.pending() == owed
    assert DecisionLedger.read(file).pending() == owed


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"to": [1, math.nan]}, "decision.to[1]"),
        (math.inf, "decision"),
        ({"a": (1, 2)}, "decision.a"),
        ({"a b": {1}}, "decision['a b']"),
        ([{"x": b"1"}], "decision[0].x"),
        ({1: "a"}, "decision[1]"),
        (object(), "decision"),
        ([OrderedDict()], "decision[0]"),
        (["\ud800"], "decision[0]"),
        ({"\ud800": 1}, "decision['\\ud800']"),
        (2**4000, "decision"),
        (nested(101), "decision" + "[0]" * 10 + "…[0]"),
        ({"k" * 90: {"a b": [set()]}}, "decision." + "k" * 38 + "…['a b'][0]"),
        ("x" * MAX_LINE_BYTES, "decision"),
    ],
)
def test_what_json_cannot_say_is_refused_by_its_path(file: Path, value: Any, path: str) -> None:
    with DecisionLedger(file) as ledger:
        with pytest.raises(NotStorable) as caught:
            ledger.record_intent("a", value)
        assert caught.value.path == path
        assert file.read_bytes() == b""
        ledger.record_intent("a", "b")


def test_a_value_that_contains_itself_is_refused(file: Path) -> None:
    value: list[Any] = []
    value.append(value)
    with DecisionLedger(file) as ledger, pytest.raises(NotStorable, match="contains itself"):
        ledger.record_intent("a", value)


@pytest.mark.parametrize("bad", ["", "x" * (MAX_ID_CHARS + 1), 3, None, ["a"], "\udfff"])
def test_an_id_is_a_short_text(file: Path, bad: Any) -> None:
    with DecisionLedger(file) as ledger:
        for record in (lambda: ledger.record_intent(bad, 1), lambda: ledger.record_commit(bad)):
            with pytest.raises(NotStorable) as caught:
                record()
            assert caught.value.path == "decision_id"
        assert ledger.events() == []
        ledger.record_intent("x" * MAX_ID_CHARS, nested(99))
    assert len(DecisionLedger.read(file).pending()) == 1


# ---- one handle --------------------------------------------------------------------------------------------


def test_an_interrupt_in_the_middle_of_a_write_closes_the_ledger(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    ledger = DecisionLedger(file)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ledger.record_intent("a", 1)
    with pytest.raises(StorageFailed, match="intent of decision 'a'"):
        ledger.record_intent("b", 2)
    with DecisionLedger(file) as again:
        assert again.pending() == {"a": 1}


def test_a_call_in_the_middle_of_a_write_is_refused_and_the_write_goes_on(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def calls_again(fd: int) -> None:  # as a signal handler would
        monkeypatch.undo()
        with pytest.raises(StorageFailed):
            ledger.record_intent("b", 2)
        real(fd)

    with DecisionLedger(file) as ledger:
        monkeypatch.setattr(os, "fsync", calls_again)
        ledger.record_intent("a", 1)
        ledger.record_intent("c", 3)
    assert DecisionLedger.read(file).pending() == {"a": 1, "c": 3}


def test_a_closed_ledger_says_so_and_closes_again(file: Path) -> None:
    ledger = DecisionLedger(file)
    ledger.close()
    ledger.close()
    for call in (
        ledger.pending,
        ledger.events,
        ledger.compact,
        lambda: ledger.record_intent("a", 1),
        lambda: "a" in ledger,
    ):
        with pytest.raises(StorageFailed, match="closed"):
            call()


def test_a_forgotten_ledger_warns_and_lets_the_next_one_in(file: Path) -> None:
    with pytest.warns(ResourceWarning, match="not closed"):
        DecisionLedger(file)
    DecisionLedger(file).close()


def test_threads_share_a_ledger(file: Path) -> None:
    with DecisionLedger(file) as ledger:

        def decide(who: int) -> None:
            for n in range(10):
                ledger.record_intent(f"{who}-{n}", n)
                ledger.record_intent(f"shared-{n}", n)
                ledger.record_commit(f"shared-{n}")

        threads = [threading.Thread(target=decide, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(ledger.pending()) == 40
    assert len(DecisionLedger.read(file).events()) == 40 + 20


def test_the_ledger_imports_next_to_nothing() -> None:
    for source in Path(poimen.ledger.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name != "asyncio", source
                ours = name in {"poimen.kernel.errors", "poimen.secrecy.setting"} or name.split(".")[:2] == [
                    "poimen",
                    "ledger",
                ]
                assert ours or name.split(".")[0] in sys.stdlib_module_names, (source, name)
