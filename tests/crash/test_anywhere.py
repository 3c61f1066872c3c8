"""Killed anywhere, in its recoveries as well: log, witness and what processes had been told agree (P2).

The run has each class in it, steps of several effects, effects side by side, retries and decisions (`mixed.py`). An
operator answers where no machine may. Each control is caught by the fault that it makes.
"""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from poimen.kernel.errors import ConfigurationError
from poimen.testing import Fact, ForkServer, Story, contradictions, kill_anywhere

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Figures, Scale, Seeds

MIXED = "tests.crash.mixed:mixed"
OPERATOR = "tests.crash.mixed:operator"
KILLS = 500
"""In each round."""

ROUNDS = (1, 50)
"""In each half, by day and by night."""

APART = 1_000_000
"""Between the seeds of the halves."""

pytestmark = pytest.mark.harness("P2")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(MIXED, OPERATOR) as made:
        yield made


def lived(server: ForkServer, folder: Path, **more: Any) -> list[Story]:
    order: dict[str, Any] = {"kills": 1, "args": ("tea",), "operator": OPERATOR, "width": 16, "server": server}
    return kill_anywhere(MIXED, folder=folder, **order | more)


def about(stories: list[Story], kind: str) -> list[Fact]:
    return [fact for story in stories for fact in story.remains.facts if fact.kind == kind]


def met(stories: list[Story]) -> set[str]:
    """What the stories have come through: a harness that never gets somewhere shows nothing of it."""
    found = {f"classified {fact.body['classification']}" for fact in about(stories, "intent.classified.v1")}
    found |= {f"probe {fact.body['answer']}" for fact in about(stories, "intent.probed.v1")}
    found |= {f"demoted {fact.body['to']}" for fact in about(stories, "intent.demoted.v1")}
    found |= {f"{f.body['to']} by {f.body['by']}" for f in about(stories, "intent.resolved.v1")}
    found |= {"a further send" for fact in about(stories, "intent.dispatched.v1") if fact.body["send"] > 1}
    return found | {f"{story.kills} kills" for story in stories}


ALL_OF_IT = {
    "classified never_sent",
    "classified may_have_been_sent",
    "probe landed",
    "probe absent",
    "demoted AT_MOST_ONCE",
    "landed by probe",
    "landed by ann",
    "not_landed by ann",
    "a further send",
    "1 kills",
    "2 kills",
    "3 kills",
}

RARE, MANY_ROUNDS = {"demoted AT_MOST_ONCE"}, 5
"""What not every seed comes to in few rounds; 0 does."""


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("half", [0, 1])
def test_nothing_is_lost_misclassified_or_sent_against_its_class(
    server: ForkServer, tmp_path: Path, half: int, scale: Scale, seeds: Seeds, figures: Figures
) -> None:
    rounds = scale(*ROUNDS)
    faults: Counter[str] = Counter()
    kills = processes = 0
    seen: set[str] = set()
    for seed in seeds(rounds):
        stories = lived(server, tmp_path / f"{seed}", kills=KILLS, seed=half * APART + seed)
        found = contradictions(stories)
        faults.update(one.fault for one in found)
        assert found == [], f"--seed {seed}:\n" + "\n".join(map(str, found))
        kills += sum(story.kills for story in stories)
        processes += sum(len(story.lives) for story in stories)
        seen |= met(stories)
        shutil.rmtree(tmp_path / f"{seed}")
    assert kills >= KILLS * rounds
    assert seen | (RARE if rounds < MANY_ROUNDS and seed else set()) >= ALL_OF_IT
    counts = ", ".join(f"{faults[fault]} {fault}" for fault in ("lost", "misclassified", "against class", "other end"))
    figures(
        f"P2 kill anywhere, part {half}: {kills:,} kills in {processes:,} processes, {counts}",
        asked=KILLS * rounds,
        reached=kills,
        unit="kills",
        lost=faults["lost"],
        misclassified=faults["misclassified"],
        against_class=faults["against class"],
    )


@pytest.mark.parametrize(
    ("control", "fault", "says"),
    [
        ("two_records", "misclassified", "says ('may_have_been_sent', 1), its records before say ('never_sent', 0)"),
        ("decided_late", "lost", "had been told of decision plan"),
        ("sent_again", "against class", "sent again by a machine"),
    ],
)
def test_a_control_is_caught(
    server: ForkServer, tmp_path: Path, control: str, fault: str, says: str, figures: Figures
) -> None:
    stories = lived(server, tmp_path, sabotage=control, only=range(0, 60, 2))
    found = contradictions(stories)
    caught = sum(one.fault == fault and says in one.what for one in found)
    figures(f"P2 control {control}: {caught} {fault}, of {len(found)} contradictions", control=control, caught=caught)
    assert caught, "\n".join(map(str, found))


def test_each_transaction_is_struck_before_and_behind(server: ForkServer, tmp_path: Path) -> None:
    stories = lived(server, tmp_path, only=range(8))
    assert [str(story.lives[0].kill) for story in stories[1:5]] == [
        "before_commit 1",
        "after_commit 1",
        "before_commit 2",
        "after_commit 2",
    ]
    assert all(story.lives[0].ended.was_killed for story in stories[1:])
    before, behind = (len(story.lives[0].notes.told) for story in (stories[7], stories[8]))
    assert before == behind, "neither the transaction that had not begun nor the one that nobody was told of"
    records = [{f.lsn for f in story.remains.facts if f.life == 0} for story in (stories[7], stories[8])]
    assert len(records[1]) > len(records[0]), "but the second is durable"


def test_a_run_that_does_not_end_undisturbed_cannot_be_judged(server: ForkServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not come to its end when nobody kills it: raised"):
        lived(server, tmp_path, args=(), kills=1)
