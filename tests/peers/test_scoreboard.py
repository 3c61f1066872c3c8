"""The scoreboard's runner, over poimen and over a runtime that is naive on purpose; its page. Nothing is installed."""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bench.peers import page
from bench.peers.cut import lay_out, what_was_synced
from bench.peers.drivers import inside
from bench.peers.far_side import FarSide
from bench.peers.install import PINS
from bench.peers.runtimes import BY_NAME, RUNTIMES
from bench.peers.situations import BY_NAME as SITUATION
from bench.peers.situations import OFFERS, SITUATIONS, judge
from bench.peers.trial import DRIVERS, NotAsMeantError, command, run_trial
from poimen.testing.power.recording import Recorder

if TYPE_CHECKING:
    from pathlib import Path

KNOWN: dict[str, Any] = json.loads(page.RESULTS.read_text(encoding="utf-8"))
SOON = replace(SITUATION["key expired"], ttl_s=0.5)
BRIEF = {"probe lag": 2.0}


def trial(runtime: str, situation: str, offers: str) -> tuple[int, str]:
    what = SITUATION[situation]
    what = replace(what, lag_s=BRIEF.get(situation, what.lag_s))
    found = run_trial(BY_NAME[runtime], what, offers, {}, "run-1")
    return found["landed"], found["ended"]


# ---- the control -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("situation", ["after the call", "outcome lost", "zombie", "power loss", "re-worded call"])
def test_the_naive_runtime_is_seen_to_duplicate(situation: str) -> None:
    assert trial("naive", situation, "nothing") == (2, "done")


def test_the_naive_runtime_is_seen_to_trust_a_key_for_ever() -> None:
    found = run_trial(BY_NAME["naive"], SOON, "keys", {}, "run-1")
    assert (found["landed"], found["ended"]) == (2, "done")


def test_a_key_saves_even_the_naive_runtime() -> None:
    assert trial("naive", "after the call", "keys") == (1, "done")


def test_a_process_that_does_not_die_is_no_result(tmp_path: Path) -> None:
    driver = tmp_path / "run_lucky.py"
    driver.write_text('print(\'{"ended": "done", "said": ""}\')\n', encoding="utf-8")
    lucky = replace(BY_NAME["naive"], driver=str(driver))
    with pytest.raises(NotAsMeantError, match="exit 0 at after the call"):
        run_trial(lucky, SITUATION["after the call"], "nothing", {}, "run-1")
    with pytest.raises(NotAsMeantError, match="not stopped"):
        run_trial(lucky, SITUATION["zombie"], "nothing", {}, "run-1")
    driver.write_text("print('hello')\n", encoding="utf-8")
    with pytest.raises(NotAsMeantError, match="has not said"):
        run_trial(lucky, SITUATION["outcome lost"], "nothing", {}, "run-1")


# ---- poimen ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("situation", "offers", "landed", "ended"),
    [
        ("window A", "nothing", 1, "done"),
        ("before the call", "nothing", 0, "asks"),
        ("after the call", "nothing", 1, "asks"),
        ("outcome lost", "nothing", 1, "asks"),
        ("power loss", "nothing", 1, "asks"),
        ("re-worded call", "keys", 1, "done"),
        ("outcome lost", "keys", 1, "done"),
        ("after the call", "look", 1, "done"),
        ("probe lag", "look", 1, "done"),
        ("key expired", "keys+look", 1, "done"),
    ],
)
def test_poimen_does_what_the_page_says(situation: str, offers: str, landed: int, ended: str) -> None:
    assert trial("poimen", situation, offers) == (landed, ended)
    told = KNOWN["runtimes"]["poimen"]["trials"][offers][situation]
    assert {(each["landed"], each["ended"]) for each in told} == {(landed, ended)}


# ---- how a trial is judged -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("situation", "offers", "landed", "ended", "said"),
    [
        ("after the call", "nothing", 1, "done", set()),
        ("after the call", "nothing", 3, "done", {"duplicates"}),
        ("after the call", "nothing", 0, "done", {"lost"}),
        ("after the call", "nothing", 0, "failed", {"lost"}),
        ("after the call", "nothing", 1, "failed", {"misreported"}),
        ("after the call", "nothing", 1, "asks", set()),
        ("before the call", "nothing", 0, "asks", set()),
        ("after the call", "keys", 1, "asks", {"needless"}),
        ("after the call", "look", 1, "asks", {"needless"}),
        ("window A", "nothing", 0, "asks", {"needless"}),
        ("key expired", "keys", 1, "asks", set()),
        ("key expired", "keys+look", 1, "asks", {"needless"}),
        ("zombie", "nothing", 1, "stuck", {"unended"}),
        ("zombie", "nothing", 2, "busy", {"unended", "duplicates"}),
    ],
)
def test_a_trial_is_judged(situation: str, offers: str, landed: int, ended: str, said: set[str]) -> None:
    found = judge(SITUATION[situation], offers, landed=landed, ended=ended)
    names = ("duplicates", "lost", "misreported", "needless", "unended")
    assert found.landed == landed
    assert {name for name in names if getattr(found, name)} == said


# ---- the far side ----------------------------------------------------------------------------------------


def test_the_far_side_dedupes_expires_hides_and_loses(tmp_path: Path) -> None:
    side = FarSide(tmp_path / "effects", ttl_s=60, lag_s=60, loses=1, rewords=True)
    with side:
        assert side.act("a", "r", "k") is None, "the first answer is lost"
        assert side.landed == 1, "and yet it was done"
        assert side.act("a", "r", "k") == "receipt 1"
        assert side.look("r") is None, "hidden"
        side.lag_s = 0
        assert side.look("r") == "receipt 1"
        assert side.keys_expire_in() > 0
        side.ttl_s = 0
        assert side.keys_expire_in() == 0
        assert side.act("a", "r", "k") == "receipt 2", "forgotten"
        assert side.act("a", "r", "") == "receipt 3"
        assert side.say() != side.say()
        assert side.requests == 4


def test_a_lost_answer_is_a_maybe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "_ARMED", tmp_path / "armed")
    with FarSide(tmp_path / "effects", loses=1) as side:
        monkeypatch.setattr(inside, "_FAR_SIDE", side.url)
        with pytest.raises(inside.FarSideError):
            inside.act("tea")
        assert inside.act("tea", ref="r") == "receipt 2"
        assert inside.look("r") == "receipt 2"
        assert inside.look("other") is None


# ---- what a power cut leaves -----------------------------------------------------------------------------


def test_only_what_was_synced_is_left(tmp_path: Path) -> None:
    root = tmp_path / "state"
    root.mkdir()
    (root / "old").write_bytes(b"before")
    recorder = Recorder(str(root))
    recorder.wrote("new", 0, b"one")
    recorder.synced("new", recorder.made)
    begun = recorder.made
    recorder.wrote("new", 3, b"two")
    recorder.synced("new", begun)
    recorder.wrote("old", 6, b" and after")
    recorder.wrote("gone", 0, b"x")
    recorder.unlinked("gone")
    recorder.wrote("a", 0, b"moved")
    recorder.synced("a", recorder.made)
    recorder.renamed("a", "b")
    recorder.truncated("b", 2)
    recorder.synced("b", recorder.made)
    left = what_was_synced(recorder.recording)
    assert left == {"old": b"before", "new": b"one", "b": b"mo"}
    lay_out(left, root)
    assert {path.name: path.read_bytes() for path in root.iterdir()} == left


# ---- the page --------------------------------------------------------------------------------------------


def test_the_page_is_what_the_results_say() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.render(KNOWN), "make docs"


def test_another_result_is_another_page() -> None:
    other = deepcopy(KNOWN)
    other["runtimes"]["poimen"]["trials"]["keys"]["after the call"] = [{"landed": 2, "ended": "done"}]
    assert page.render(other) != page.render(KNOWN)
    better = section(page.render(other), "Where another does better than poimen")
    assert "*The far side dedupes on a key*, after the call: poimen **2**; " in better


def test_a_cheaper_runtime_is_named() -> None:
    other = deepcopy(KNOWN)
    figures = {"us": 1.0, "spread": [1.0, 1.0], "floor us": 100.0, "syncs": 0.01, "foreign cores": 0.0}
    measured = {"measured": other["runtimes"]["durabl"]["measured"]}
    other["runtimes"]["durabl"]["timing"] = figures | measured
    other["runtimes"]["poimen"]["timing"] = figures | measured | {"us": 90.0, "syncs": 3.0}
    better = section(page.render(other), "Where another does better than poimen")
    assert re.search(r"Less time .*poimen 0\.90\): .*durabl \(0\.01\)", better)
    assert re.search(r"Fewer syncs .*durabl \(0\.01\)", better)


def test_a_disturbed_time_is_said_to_be_one_and_compared_with_nothing() -> None:
    other = deepcopy(KNOWN)
    other["runtimes"]["poimen"]["timing"]["foreign cores"] = page.QUIET + 0.01
    text = page.render(other)
    row = next(line for line in section(text, "The sum, and what an effect costs").splitlines() if "| poimen |" in line)
    assert "*disturbed:*" in row
    assert "Less time" not in section(text, "Where another does better than poimen")
    other["runtimes"]["poimen"]["timing"]["foreign cores"] = page.QUIET
    row = next(line for line in page.render(other).splitlines() if line.startswith("| poimen |") and "(" in line)
    assert "*disturbed:*" not in row


def section(text: str, title: str) -> str:
    return text.split(f"## {title}\n")[1].split("\n## ", maxsplit=1)[0]


def test_every_runtime_is_measured_in_every_situation_or_the_page_says_why() -> None:
    for runtime in RUNTIMES:
        row = KNOWN["runtimes"][runtime.name]
        wanted = {(o, s.name) for o in OFFERS for s in SITUATIONS if o in s.offers and s.name not in runtime.without}
        assert {(cell.offers, cell.situation) for cell in page.cells_of(row)} == wanted, runtime.name
        assert all(cell.trials for cell in page.cells_of(row))
        assert row["timing"]["floor us"] > 0, runtime.name
    missing = section(page.render(KNOWN), "What is not measured")
    assert [
        r.name for r in RUNTIMES for name, why in r.without.items() if f"{r.title}, {name}: {why}." not in missing
    ] == []


def test_the_control_is_on_the_page_with_its_duplicates() -> None:
    naive = KNOWN["runtimes"]["naive"]["trials"]["nothing"]["after the call"]
    assert {each["landed"] for each in naive} == {2}


def test_the_results_name_no_machine() -> None:
    text = page.RESULTS.read_text(encoding="utf-8")
    assert socket.gethostname() not in text
    assert not re.search(r"/(?:home|tmp|root|usr|var)/", text)


# ---- what the drivers are --------------------------------------------------------------------------------


def test_every_runtime_has_its_driver_and_its_versions() -> None:
    assert len(RUNTIMES) > 10
    for runtime in RUNTIMES:
        compile((DRIVERS / runtime.driver).read_bytes(), runtime.driver, "exec")
        assert bool(runtime.venv) == (runtime.venv in PINS), runtime.name
        told = KNOWN["runtimes"][runtime.name]["versions"]
        assert set(told) == set(runtime.packages), runtime.name
    pins = [pin for kinds in PINS.values() for several in kinds.values() for pin in several]
    assert [pin for pin in pins if not re.fullmatch(r"(?:[\w.-]+==|@[\w/.-]+@)[\w.+!-]+", pin)] == []


def test_poimen_and_the_control_run_in_this_environment() -> None:
    assert [r.name for r in RUNTIMES if not r.venv] == ["poimen", "naive"]
    assert command(BY_NAME["poimen"], "start")[0] == sys.executable


def test_the_cost_of_one_more_effect_is_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 1.0, 12.0] * 2)  # a short run takes 1 s, a long one 11 s: 100 more effects take 10 s

    class Time:
        @staticmethod
        def perf_counter() -> float:
            return next(clock)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inside, "time", Time)
        inside.timed(lambda n: n, rounds=2)
    assert json.loads(capsys.readouterr().out)["seconds"] == pytest.approx([0.1, 0.1])
    assert time.perf_counter() > 0
