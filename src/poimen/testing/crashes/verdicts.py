"""What trials ought to have found: the requirement's table and the effect classes, written down once more by hand.

This module must never import what it judges (the kernel's tables, the guard, the ladder), or a mistake there
would be a mistake here. It keeps the invariant that a trial which says nothing counts as a fault.

Source: requirement write-ahead-intent, "Restart classification"; design protocol.md, section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from poimen.testing.crashes.sweeps import Trial

# point: the last record, what the restart says of it, effects that the world has seen by then
_LEFT: Final = {
    "pending": ("pending", ("never_sent",), 0),
    "dispatched": ("dispatched", ("may_have_been_sent",), 0),
    "in_call": ("dispatched", ("may_have_been_sent",), 0),
    "called": ("dispatched", ("may_have_been_sent",), 1),
    "committed": ("committed", (), 1),
}
_SENT_AGAIN: Final = frozenset({"READ", "IDEMPOTENT", "KEYED"})
_CLASSES: Final = frozenset({*_SENT_AGAIN, "PROBE", "AT_MOST_ONCE"})


def disagreements(trials: Sequence[Trial]) -> list[str]:
    """What is wrong with the trials of a sweep: sentences, none when log and witness agree everywhere.

    Window A is *never sent* and ends with one effect, whatever the class; window B is *may have been sent* and
    ends as the class says; the two are never classified alike; after the outcome there is nothing to do.

    Arguments:
        trials: what `kill_sweep` has given; none at all is a fault.

    Source: requirement write-ahead-intent, "Verify".
    """
    if not trials:
        return ["there are no trials, so nothing was shown"]
    found = [f"{_name(trial)}: {what}; look into {trial.folder}" for trial in trials for what in _faults(trial)]
    return found + _alike(trials)


def _name(trial: Trial) -> str:
    return f"{trial.tool} ({trial.effect_class or 'no intent'}) killed at {trial.point}, trial {trial.n}"


def _faults(trial: Trial) -> Iterator[str]:
    if not trial.killed:
        yield "it was not killed there"
        return
    if trial.effect_class not in _CLASSES:
        yield f"its class {trial.effect_class!r} is none that leaves records"
        return
    left, classified, before = _LEFT[trial.point]
    after, sends, state = _end(trial)
    if sends > 1 and before and trial.after == before:
        after = before  # it was sent again, and the far side has deduped or converged
    for what, wanted, got in (
        ("the last record it left", left, trial.left),
        ("the classification on record", classified, trial.classified),
        ("effects at the witness when it was dead", before, trial.before),
        ("effects at the witness after the restart", after, trial.after),
        ("sends on record", sends, trial.sends),
        ("the state of the run after the restart", state, trial.state),
        ("waiting in the inbox", state == "WAITING", trial.in_inbox),
    ):
        if wanted != got:
            because = f" ({trial.why})" if what.startswith("the state") and trial.why else ""
            yield f"{what}: {wanted!r} is right, {got!r} was found{because}"


def _end(trial: Trial) -> tuple[int, int, str]:
    """Effects, sends and the run's state after the restart, by the class in force."""
    _, _, before = _LEFT[trial.point]
    if trial.point in {"pending", "committed"}:
        return 1, 1, "SUCCEEDED"
    in_force = [trial.effect_class, *(choice for choice in trial.choices if choice in _CLASSES)][-1]
    if in_force == "AT_MOST_ONCE":
        return before, 1, "WAITING"
    if in_force == "PROBE":
        return 1, 2 - before, "SUCCEEDED"
    return before + 1, 2, "SUCCEEDED"


def _alike(trials: Sequence[Trial]) -> list[str]:
    """Which tools' windows cannot be told apart by what the restart has recorded."""
    found = []
    for tool in dict.fromkeys(trial.tool for trial in trials):
        windows: list[set[tuple[str, ...]]] = [
            {t.classified for t in trials if t.tool == tool and t.killed and _LEFT[t.point][0] == left}
            for left in ("pending", "dispatched")
        ]
        if both := windows[0] & windows[1]:
            said = " and ".join(str(list(one)) for one in sorted(both))
            found.append(f"{tool}: windows A and B are classified alike, as {said}")
    return found
