"""`sweep`: kills at every commit and crash point, and a table of what the world has; wrong declarations are seen."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen.kernel.errors import ConfigurationError, NotFound
from poimen.testing import ForkServer, Kill, Sweep, Swept, Witness, crash, sweep
from tests.crash import swept

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("tests.crash.swept:right") as made:
        yield made


def done(server: ForkServer, folder: Path, call: poimen.Call[Any], **more: Any) -> Sweep:
    return sweep(call, folder=folder, server=server, width=16, **more)


def test_right_declarations_are_clean_and_what_a_person_is_asked_is_unknown_not_lost(
    server: ForkServer, tmp_path: Path
) -> None:
    found = done(server, tmp_path, swept.right("tea"))
    found.assert_clean()
    assert found.clean
    assert (found.duplicates, found.losses, found.other_ends) == (0, 0, ())
    assert [(row.effect, row.effect_class, row.wanted) for row in found.effects] == [
        ("look#0", "READ", 0),
        ("order#0", "KEYED", 1),
        ("order#0/1", "PROBE", 1),
        ("mail#0", "AT_MOST_ONCE", 1),
    ]
    # A person is asked about the mail wherever its Dispatched is durable and its outcome is not, and nowhere else.
    places = [str(kill) for kill in found["mail#0"].unknown]
    assert {"dispatched of mail 1", "in_call of mail 1", "called of mail 1"} < set(places)
    assert {place.partition(" ")[0] for place in places} >= {"after_commit", "before_commit"}
    assert found.unknowns == len(places) == 5
    assert [row.sends for row in found.effects] == [(1, 2), (1, 2), (1, 2), (1, 1)]

    shown = str(found).splitlines()
    assert shown[0] == f"right(what='tea'), killed {found.kills} times"
    assert shown[1].split() == ["effect", "class", "sends", "duplicates", "losses", "unknown", "killed", "at"]
    assert shown[5].split()[:6] == ["mail#0", "AT_MOST_ONCE", "1", "0", "0", "5"]
    assert shown[5].endswith("and 3 more")
    assert len(shown) == 6


def test_each_commit_and_each_point_gets_a_kill(server: ForkServer, tmp_path: Path) -> None:
    found = done(server, tmp_path, swept.mails("tea"))
    assert found.missed == ()
    kills = Counter(str(kill).partition(" ")[0] for kill in (*found["mail#0"].unknown, *found.missed))
    assert kills == {"dispatched": 1, "in_call": 1, "called": 1, "after_commit": 1, "before_commit": 1}
    stories = sorted(path.name for path in tmp_path.iterdir())
    points = ("admitted", "pending", "dispatched", "in_call", "called", "committed")
    assert found.kills == len(stories) - 1
    assert (found.kills - len(points)) % 2 == 0
    assert done(server, tmp_path / "2", swept.mails("tea"), points=False).kills == found.kills - len(points)


def test_what_must_not_be_repeated_and_is_declared_idempotent_is_a_duplicate(
    server: ForkServer, tmp_path: Path
) -> None:
    found = done(server, tmp_path, swept.mails_twice("tea"))
    assert found["wrongly_idempotent#0"].duplicates == found.duplicates == 2
    assert {str(kill).partition(" ")[0] for kill in found["wrongly_idempotent#0"].duplicated} == {
        "before_commit",
        "called",
    }
    with pytest.raises(AssertionError, match=r"(?s)wrongly_idempotent#0 .*called of wrongly_idempotent 1.*look into"):
        found.assert_clean()


def test_a_probe_that_believes_anything_loses(server: ForkServer, tmp_path: Path) -> None:
    found = done(server, tmp_path, swept.loses("tea"))
    assert (found.duplicates, found.unknowns) == (0, 0)
    assert {str(kill).partition(" ")[0] for kill in found["credulous#0"].lost} == {
        "after_commit",
        "dispatched",
        "in_call",
    }
    assert not found.clean


@pytest.mark.parametrize(("control", "duplicates"), [("", 0), ("sent_again", 2)])
def test_a_poimen_that_sends_against_the_class_is_seen(
    server: ForkServer, tmp_path: Path, control: str, duplicates: int
) -> None:
    found = done(server, tmp_path, swept.mails("tea"), sabotage=control)
    assert found.duplicates == duplicates
    assert found.clean is not bool(control)


def test_the_world_may_name_effects_by_tool_or_by_any_word(server: ForkServer, tmp_path: Path) -> None:
    def pages_and_calls(folder: Path) -> list[str]:
        return Witness(folder / "witness").lines()

    found = done(server, tmp_path, swept.names_otherwise("tea"), seen=pages_and_calls, points=False)
    assert [(row.effect, row.effect_class, row.wanted, row.duplicates) for row in found.effects] == [
        ("publish", "IDEMPOTENT", 1, 1),
        ("page-tea", "", 1, 1),
    ]

    def converged(folder: Path) -> set[str]:
        return set(pages_and_calls(folder))

    assert done(server, tmp_path / "2", swept.names_otherwise("tea"), seen=converged, points=False).clean


def test_what_the_world_never_shows_is_not_called_clean(server: ForkServer, tmp_path: Path) -> None:
    found = done(server, tmp_path, swept.unseen("tea"), points=False)
    assert (found.duplicates, found.losses) == (0, 0)
    assert not found.clean
    assert "silent#0: the world does not show it, killed or not" in str(found)
    with pytest.raises(ConfigurationError, match="the world shows no effect of the undisturbed run"):
        done(server, tmp_path / "2", swept.shows_nothing("tea"), points=False)


def test_places_that_no_process_came_to_are_told_and_a_sweep_without_kills_is_not_clean(tmp_path: Path) -> None:
    row = Swept(effect="mail#0", tool="mail", effect_class="AT_MOST_ONCE", wanted=1, sends=(1, 1))
    found = Sweep(
        call="shop()", effects=(row,), kills=1, missed=(Kill(at="called:mail:2"),), other_ends=(), folder=tmp_path
    )
    assert found.clean
    assert str(found).splitlines()[-1] == "no process came to called of mail 2 again"
    assert not replace(found, kills=0).clean
    with pytest.raises(AssertionError, match="killed 0 times"):
        replace(found, kills=0).assert_clean()


def test_a_run_that_ends_otherwise_is_told(server: ForkServer, tmp_path: Path) -> None:
    found = done(server, tmp_path, swept.ends_otherwise("tea"))
    assert not found.clean
    assert "killed at called of look_alone 1, it is FAILED, not SUCCEEDED (raised: RunFailed" in str(found)
    with pytest.raises(ConfigurationError, match="does not come to its end when nobody kills it"):
        done(server, tmp_path / "2", swept.fails("tea"))


def test_a_call_that_no_other_process_can_find_is_refused(tmp_path: Path) -> None:
    @poimen.workflow
    async def inside(what: str) -> str:
        return what

    with pytest.raises(NotFound, match="is made inside a function"):
        sweep(inside("tea"), folder=tmp_path)
    with pytest.raises(ConfigurationError, match="holds its arguments"):
        crash(swept.mails("tea"), at="called", args=("tea",))


def test_a_script_that_sweeps_itself_without_a_guard_starts_no_processes_without_end(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import poimen\nfrom poimen.testing import recording_tool, sweep\n"
        'mail = recording_tool("AT_MOST_ONCE")\n'
        "@poimen.workflow\nasync def shop(what: str) -> str:\n    return await mail(what)\n"
        'GUARD\n    print(sweep(shop("tea"), points=False).unknowns)\n'
    )
    text = script.read_text()
    script.write_text(text.replace("GUARD", "if True:"))
    refused = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "a module that a fork server loads starts a fork server itself" in refused.stderr
    script.write_text(text.replace("GUARD", 'if __name__ == "__main__":'))
    swept_itself = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (swept_itself.returncode, swept_itself.stdout) == (0, "2\n"), swept_itself.stderr


def test_a_kill_of_the_table_can_be_made_by_hand(tmp_path: Path) -> None:
    witness = Witness(tmp_path / "witness")
    order: dict[str, Any] = {"db": tmp_path / "poimen.db", "env": {"POIMEN_WITNESS": str(witness.path)}}
    assert crash(swept.mails("tea"), at="after_commit", nth=3, run_id="r", **order) == -9
    assert crash(swept.mails("tea"), at="before_commit", nth=30, run_id="r", **order) == 0
    assert len(witness) == 1
