"""What verifiers see and say, as values."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import poimen
from poimen import AttemptView, EpisodeView, OpenIntent, StepView, Totals, UsageTotals, Verdict

NOTHING = UsageTotals(input_tokens=None, output_tokens=None, cost_usd=None)


def test_verdicts() -> None:
    assert Verdict.passing() == Verdict(kind="scored", passed=True, value=None, label=None, explanation=None)
    assert Verdict.failing("too dear", value=0.0) == Verdict(
        kind="scored", passed=False, value=0.0, label=None, explanation="too dear"
    )
    assert Verdict.score(0.5) == Verdict(kind="scored", passed=None, value=0.5, label=None, explanation=None)
    assert Verdict.score(1, passed=True, label="good", explanation="why") == Verdict(
        kind="scored", passed=True, value=1, label="good", explanation="why"
    )
    assert Verdict.abstain("unknown effect") == Verdict(
        kind="abstained", passed=None, value=None, label=None, explanation="unknown effect"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_score_is_a_finite_number(value: float) -> None:
    with pytest.raises(poimen.NotStorable, match="value"):
        Verdict.score(value)
    with pytest.raises(poimen.NotStorable):
        Verdict.passing(value=value)


def test_an_episode_is_frozen_and_equal_by_what_it_says() -> None:
    def built() -> EpisodeView:
        attempt = AttemptView(no=1, state="FAILED", output=None, usage=NOTHING)
        return EpisodeView(
            steps=(StepView(key="charge#0", kind="tool", attempts=(attempt,)),),
            totals=Totals(usage=NOTHING, attempts={"FAILED": 1}),
            open=(OpenIntent(id="r/main/charge#0/1/0", tool="charge"),),
            snapshot_lsn=7,
        )

    assert built() == built()
    values: list[Any] = [built(), built().steps[0], built().steps[0].attempts[0], built().open[0], NOTHING]
    for value in values:
        assert not hasattr(value, "__dict__")
        for field in dataclasses.fields(value):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(value, field.name, None)


def test_run_states_are_those_of_branches() -> None:
    assert [state.name for state in poimen.RunState] == [
        "PENDING",
        "RUNNING",
        "WAITING",
        "VERIFYING",
        "SUCCEEDED",
        "FAILED",
        "REJECTED",
        "CANCELLED",
        "TIMED_OUT",
    ]


def test_a_verifier_is_a_value_with_a_name() -> None:
    @poimen.verifier(gate=True, timeout=3, version="2", needs=["expected"])
    def cheap(ctx: poimen.VerifierCtx) -> bool:
        return ctx.snapshot_lsn > 0

    assert (cheap.name, repr(cheap)) == ("cheap", "<verifier cheap>")
    for name in ("name", "other"):
        with pytest.raises(AttributeError, match="cannot be changed"):
            setattr(cheap, name, "x")
