"""Each call on the files fails, one after another: told, never passed over, and nothing acknowledged is lost (P7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import poimen
from poimen.testing import Fault, FaultTrial, Witness, fault_losses, fault_sweep, faulty_storage

if TYPE_CHECKING:
    from pathlib import Path

    from poimen.testing import ForkServer
    from poimen.testing.storage.faults import FaultyCall
    from tests.conftest import Figures, Scale, Seeds

SMALL = "tests.power.programs:small"

pytestmark = pytest.mark.harness("P7")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("call", ["write", "sync", "read", "truncate"])
def test_each_call_fails_and_nothing_is_lost(
    server: ForkServer, tmp_path: Path, call: FaultyCall, scale: Scale, seeds: Seeds, figures: Figures
) -> None:
    trials = fault_sweep(
        SMALL,
        folder=tmp_path,
        args=("tea",),
        calls=[call],
        in_turn=scale(call == "write", 0) > 0,
        seed=next(seeds()),
        server=server,
    )
    told = sum(bool(trial.error) for trial in trials)
    waiting = sum(trial.again == "waiting" for trial in trials)
    states, losses = sum(trial.states for trial in trials), len(fault_losses(trials))
    figures(
        f"P7 {call}: {len(trials)} faults, all of {max(t.fault.nth for t in trials)} calls; {told} told, the others "
        f"harmless; afterwards {waiting} runs wait for a person, the others return; {states} states, {losses} losses",
        reached=len(trials),
        unit="faults",
        lost=losses,
    )
    assert fault_losses(trials) == []
    assert {trial.fault.nth for trial in trials} == set(range(1, max(t.fault.nth for t in trials) + 1))
    assert told > len(trials) // 3
    if call in {"write", "sync"}:
        assert any(trial.error == "CommitUnknown" for trial in trials)
        assert len(trials) > 100


@pytest.mark.parametrize("control", ["swallowed", "sync_retried"])
def test_an_error_that_is_passed_over_is_caught(
    server: ForkServer, tmp_path: Path, control: str, figures: Figures
) -> None:
    trials = fault_sweep(
        SMALL,
        folder=tmp_path,
        args=("tea",),
        calls=["sync"],
        only="*-wal",
        in_turn=True,
        states=6,
        sabotage=control,
        server=server,
        patience_s=10,
    )
    gone = ("acknowledged records are gone", "is about an effect that has no Pending", "did not end")
    lost = [what for what in fault_losses(trials) if any(each in what for each in gone)]
    figures(f"P7 control {control}: {len(trials)} faults, {len(lost)} losses seen", control=control, caught=len(lost))
    assert any(gone[0] in what for what in lost), lost


def test_a_sweep_in_which_nothing_has_struck_shows_nothing() -> None:
    trial = FaultTrial(fault=Fault(call="sync", nth=9), struck=0, error="", again="returned", states=1, losses=())
    assert "little was shown" in fault_losses([trial])[0]
    assert "little was shown" in fault_losses([])[0]


@pytest.mark.parametrize(("call", "error"), [("erase", "EIO"), ("read", "ENOSPC"), ("sync", "ENOENT")])
def test_there_is_no_such_fault(call: str, error: str) -> None:
    with pytest.raises(poimen.ConfigurationError, match="no storage fails with"):
        Fault(call=call, nth=1, error=error)  # type: ignore[arg-type]
    with pytest.raises(poimen.ConfigurationError, match="cannot fail"):
        Fault(call="sync", nth=0)


def test_storage_fails_for_what_is_opened_in_the_block(poimen_db: Path, witness: Witness) -> None:
    from tests.power.programs import small

    with faulty_storage(poimen_db, Fault(call="sync", nth=6, only="*-wal")) as layer:
        with pytest.raises((poimen.CommitUnknown, poimen.StorageFailed)):
            poimen.run(small("tea"), db=str(poimen_db), run_id="r")
        assert layer.struck == 1
    assert poimen.run(small("tea"), db=str(poimen_db), run_id="r") == "tea"
    assert len(witness) == 3


def test_the_next_fault_is_chosen_while_storage_is_in_use(poimen_db: Path, witness: Witness) -> None:
    from tests.power.programs import small

    with faulty_storage(poimen_db, Fault(call="sync", nth=1, only="nothing")) as layer:
        assert poimen.run(small("tea"), db=str(poimen_db), run_id="one") == "tea"
        layer.arm(Fault(call="sync", nth=2, only="*-wal"))
        assert (layer.struck, layer.calls.total()) == (0, 0)
        with pytest.raises((poimen.CommitUnknown, poimen.StorageFailed)):
            poimen.run(small("tea"), db=str(poimen_db), run_id="two")
        assert layer.struck == 1
        layer.arm(None)
        assert poimen.run(small("tea"), db=str(poimen_db), run_id="two") == "tea"
    assert len(witness) == 6
