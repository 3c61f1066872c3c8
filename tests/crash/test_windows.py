"""Killed in either window, at every point, a hundred times a class: log and witness agree (P1; C09).

Window A is *never sent*, whatever the class; window B is *may have been sent*, and the class decides. The
classification is read back from its record, what happened from a file that no log has written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from poimen.testing import EVERY_POINT, WINDOW_A, WINDOW_B, Trial, Witness, disagreements, kill_sweep

if TYPE_CHECKING:
    from pathlib import Path

    from poimen.testing import ForkServer
    from tests.conftest import Figures, Scale

WORKFLOWS = {
    "READ": "reads",
    "IDEMPOTENT": "converges",
    "KEYED": "dedupes",
    "PROBE": "can_be_asked",
    "AT_MOST_ONCE": "mails",
}
AWAY_S = 90.0
"""Longer than a tool's timeout and grace, so that a probe's *absent* counts at once."""

pytestmark = pytest.mark.harness("P1")


def sweep(server: ForkServer, folder: Path, effect_class: str, *, kills: int, sabotage: str = "") -> list[Trial]:
    return kill_sweep(
        f"tests.crash.programs:{WORKFLOWS[effect_class]}",
        tool=f"recorded_{effect_class.lower()}",
        folder=folder,
        args=("tea",),
        kills=kills,
        ahead_s=AWAY_S,
        sabotage=sabotage,
        width=16,
        server=server,
    )


def at(trials: list[Trial], points: tuple[str, ...]) -> list[Trial]:
    found = [trial for trial in trials if trial.point in points]
    assert {trial.point for trial in found} == set(points)
    return found


@pytest.mark.parametrize("effect_class", WORKFLOWS)
def test_log_and_witness_agree_after_every_kill_c09(
    server: ForkServer, tmp_path: Path, effect_class: str, scale: Scale, figures: Figures
) -> None:
    kills = scale(20, 100)
    trials = sweep(server, tmp_path, effect_class, kills=kills)
    killed, wrong = sum(trial.killed for trial in trials), len(disagreements(trials))
    figures(
        f"P1 both windows, {effect_class}: {killed} kills at {len(EVERY_POINT)} points, {wrong} misclassified",
        asked=len(EVERY_POINT) * kills,
        reached=killed,
        unit="kills",
        misclassified=wrong,
    )
    assert disagreements(trials) == []
    assert len(trials) == len(EVERY_POINT) * kills
    assert all(trial.killed for trial in trials)
    assert {trial.effect_class for trial in trials} == {effect_class}

    # Window A: the call was never issued; after the restart it has been, one time, whatever the class.
    never = at(trials, WINDOW_A)
    assert {(t.left, t.classified, t.before, t.after) for t in never} == {("pending", ("never_sent",), 0, 1)}
    assert {t.state for t in never} == {"SUCCEEDED"}

    # Window B: it may have been; the witness tells which.
    maybe = at(trials, WINDOW_B)
    assert {(t.left, t.classified) for t in maybe} == {("dispatched", ("may_have_been_sent",))}
    assert {t.before for t in at(trials, ("dispatched", "in_call"))} == {0}
    assert {t.before for t in at(trials, ("called",))} == {1}
    assert {t.classified for t in never} != {t.classified for t in maybe}

    # After the outcome there is nothing to say and nothing to do.
    done = at(trials, ("committed",))
    assert {(t.left, t.classified, t.choices, t.before, t.after) for t in done} == {("committed", (), (), 1, 1)}

    assert_the_class_was_kept(effect_class, trials)


def assert_the_class_was_kept(effect_class: str, trials: list[Trial]) -> None:
    """What was done about window B, by the class, as log and witness say."""
    maybe = at(trials, WINDOW_B)
    if effect_class == "AT_MOST_ONCE":
        assert all(t.after == t.before and t.sends == 1 for t in maybe), "sent again by a machine"
        assert {(t.choices, t.state, t.in_inbox) for t in maybe} == {(("indeterminate",), "WAITING", True)}
    elif effect_class == "PROBE":
        assert {t.after for t in maybe} == {1}
        assert {t.choices for t in at(trials, ("called",))} == {("landed",)}
        assert {t.choices for t in at(trials, ("dispatched", "in_call"))} == {("absent", "absent", "send_again")}
    else:
        assert all(t.after == t.before + 1 and t.sends == 2 for t in maybe)
        assert {t.choices for t in maybe} == {("send_again",)}
    if effect_class != "READ":
        for trial in trials:
            ids = {line.split()[0] for line in Witness(trial.folder / "witness").lines()}
            assert len(ids) <= 1, f"one effect under several request ids: {trial}"


@pytest.mark.parametrize("effect_class", WORKFLOWS)
def test_a_two_record_protocol_is_caught(
    server: ForkServer, tmp_path: Path, effect_class: str, figures: Figures
) -> None:
    trials = sweep(server, tmp_path, effect_class, kills=2, sabotage="two_records")
    assert all(trial.killed for trial in trials)
    assert {t.classified for t in at(trials, WINDOW_A)} == {t.classified for t in at(trials, WINDOW_B)}
    assert {t.left for t in at(trials, (*WINDOW_A, *WINDOW_B))} == {"pending"}
    found = disagreements(trials)
    caught = sum("windows A and B are classified alike" in what for what in found)
    figures(f"P1 control two_records, {effect_class}: {caught} times alike", control="two_records", caught=caught)
    assert caught, found


def test_the_two_record_protocol_pages_a_person_for_a_mail_that_was_never_sent(
    server: ForkServer, tmp_path: Path
) -> None:
    trials = at(sweep(server, tmp_path, "AT_MOST_ONCE", kills=1, sabotage="two_records"), WINDOW_A)
    assert [(t.after, t.state, t.in_inbox) for t in trials] == [(0, "WAITING", True)]
