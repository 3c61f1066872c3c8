"""Let each call on a workflow's files fail, one after another, and look at what is told, kept and lost.

Each trial runs the workflow over storage with one fault, then judges three things: the files as the dead process left
them, what a power cut would have left of them, and the workflow started again on sound storage. This module must never
excuse an error by where it struck; it keeps the invariant that a trial whose fault did not strike shows nothing and
says so.

Source: design proof.md, P7; storage.md, "Durability" (fail-stop).
"""

from __future__ import annotations

import random  # noqa: TID251 (a seed names each state)
import shutil
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from poimen._typing import override
from poimen.kernel.errors import StorageFailed
from poimen.testing.crashes.forks import ForkServer
from poimen.testing.power.cuts import AWAY_S, DB, MEMORY
from poimen.testing.power.disk import Disk
from poimen.testing.power.inside import RESULTS_VARIABLE, Storage
from poimen.testing.power.judging import Judge, Told
from poimen.testing.power.recording import WITNESS, Op, Recording
from poimen.testing.storage.faults import CALLS, ERRORS, Fault, FaultyCall
from poimen.testing.witness import VARIABLE, Witness

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from poimen.testing.crashes.forks import Ended, Fork

STORAGE_ERRORS: Final = ("CommitUnknown", "StorageFailed", "Corrupt")
"""The errors by which a process tells that its storage has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTrial:
    """One fault and what came of it.

    Arguments:
        fault: what failed.
        struck: how often.
        error: the name of the error that the run ended with; empty: it came to its end.
        again: how the run ended on sound storage afterwards: `returned` or `waiting`, else the error.
        states: states of the disk that were judged.
        losses: what is wrong, as sentences.
    """

    fault: Fault
    struck: int
    error: str
    again: str
    states: int
    losses: tuple[str, ...]

    @override
    def __str__(self) -> str:
        fault = self.fault
        when = "from then on" if fault.sticky else "once"
        ended = self.error or "came to its end"
        return f"{fault.error} at {fault.call} {fault.nth} {when}: {ended}, then {self.again}"


def fault_sweep(
    target: str,
    *,
    folder: str | os.PathLike[str],
    args: Sequence[object] = (),
    calls: Sequence[FaultyCall] = CALLS,
    only: str = "*",
    in_turn: bool = False,
    states: int = 3,
    seed: int = 0,
    sabotage: str = "",
    width: int = 8,
    server: ForkServer | None = None,
    patience_s: float = 60.0,
) -> list[FaultTrial]:
    """Let each call on the files of a workflow fail: with `EIO` and with `ENOSPC`, once and from then on.

    Arguments:
        target: the workflow, `MODULE:FUNC` or `FILE.py:FUNC`; it returns the same value each time.
        folder: takes what the processes print; the databases lie in memory where the system offers that.
        args: the workflow's arguments: what can be stored without an annotation.
        calls: of `write`, `sync`, `read`, `truncate`.
        only: a pattern of file names, such as `*-wal`; calls on other files go well.
        in_turn: each call fails in one of the four ways, in turn, instead of in all of them.
        states: how many power cuts to judge between the fault and the end of each trial.
        seed: decides which.
        sabotage: what to break in the failing run, see `poimen.testing.sabotage.CONTROLS`.
        width: how many trials go on beside each other.
        server: a fork server that has loaded the target; one is made when left out.
        patience_s: how long one process may take, seconds.

    Returns:
        A trial for each fault. `fault_losses` says what is wrong with them.

    Raises:
        NotFound, NotStorable: as `kill_sweep`.
        StorageFailed: the run does not come to an end on sound storage.

    Source: design proof.md, P7.
    """
    place = Path(folder)
    with (
        nullcontext(server) if server is not None else ForkServer(target) as forks,
        tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else place) as memory,
    ):
        faults = _Faults(
            target,
            args,
            place,
            Path(memory),
            forks,
            sabotage=sabotage,
            states=states,
            seed=seed,
            patience_s=patience_s,
        )
        counted = faults.counted(only)
        chosen = [fault for call in calls for fault in _ways(call, counted.get(call, 0), only, in_turn=in_turn)]
        return faults.trials(chosen, width)


def _ways(call: FaultyCall, calls: int, only: str, *, in_turn: bool) -> Iterator[Fault]:
    """Every way in which each of so many calls can fail."""
    ways = [(error, sticky) for error in ERRORS if (call, error) != ("read", "ENOSPC") for sticky in (False, True)]
    for nth in range(1, calls + 1):
        for error, sticky in [ways[nth % len(ways)]] if in_turn else ways:
            yield Fault(call=call, nth=nth, error=error, sticky=sticky, only=only)


def fault_losses(trials: Sequence[FaultTrial]) -> list[str]:
    """What is wrong with the trials of a sweep, as sentences; none when nothing was lost, hidden or wrongly sent again.

    Arguments:
        trials: what `fault_sweep` has given; a sweep in which hardly a fault has struck is a fault.

    Source: design proof.md, P7.
    """
    struck = sum(trial.struck > 0 for trial in trials)
    found = [f"{trial}: {what}" for trial in trials for what in trial.losses]
    if not trials or struck * 10 < len(trials) * 9:
        found.insert(0, f"of {len(trials)} faults {struck} have struck, so little was shown")
    return found


class _Faults:
    def __init__(
        self,
        target: str,
        args: Sequence[object],
        place: Path,
        memory: Path,
        forks: ForkServer,
        *,
        sabotage: str,
        states: int,
        seed: int,
        patience_s: float,
    ) -> None:
        self._target, self._args, self._place, self._memory, self._forks = target, args, place, memory, forks
        self._sabotage, self._states, self._seed, self._patience_s = sabotage, states, seed, patience_s
        self._judge = Judge(memory / "state", db=DB)
        self._value: Any = None

    def counted(self, only: str) -> dict[str, int]:
        """Run the target on sound storage; how many calls of each kind there were on the files that matter."""
        one = _One(self._memory / "sound", Fault(call="write", nth=1 << 60, only=only))
        ended = self._begin(one, failing=True).ended()
        if ended.how != "returned":
            raise StorageFailed(f"{self._target} does not return on sound storage: {ended.how} {ended.why}")
        self._value = ended.value
        return Recording.load(one.recording).calls

    def trials(self, faults: Sequence[Fault], width: int) -> list[FaultTrial]:
        """Run the target with each fault, and on; so many beside each other, since a restart may have to wait."""
        found: list[FaultTrial] = []
        for first in range(0, len(faults), width):
            ones = [_One(self._memory / f"trial-{n}", fault) for n, fault in enumerate(faults[first : first + width])]
            failing = [(one, self._begin(one, failing=True)) for one in ones]
            for one, fork in failing:
                self._look(one, fork.ended())
            again = [(one, self._begin(one, failing=False)) for one in ones]
            found += [self._afterwards(one, fork.ended()) for one, fork in again]
        return found

    def _begin(self, one: _One, *, failing: bool) -> Fork:
        more: dict[str, Any] = {"ahead_s": AWAY_S}
        if failing:
            storage = Storage(root=str(one.root), recording=str(one.recording), fault=one.fault)
            more = {"storage": storage.text(), "sabotage": self._sabotage}
        return self._forks.begin(
            self._target,
            args=self._args,
            db=one.root / DB,
            run_id="sweep",
            env=one.env,
            output=self._place / "output",
            patience_s=self._patience_s,
            **more,
        )

    def _look(self, one: _One, ended: Ended) -> None:
        """What the failing process told, and what its files say, as they are and after power cuts."""
        if not one.recording.exists():
            one.losses.append(f"the failing process did not end: {ended.how} {ended.why[:300]}")
            return
        recording = Recording.load(one.recording)
        one.struck = recording.struck
        one.error = "" if ended.how == "returned" else ended.why.partition(":")[0]
        if one.error and one.error not in STORAGE_ERRORS:
            one.losses.append(f"the fault is told as {ended.how}: {ended.why[:300]}")
        one.losses += [f"after a power cut: {what}" for what in self._cut(one, recording)]
        one.losses += [f"as the process left it: {what}" for what in self._judge.faults(_files(one.root), one.told)]

    def _cut(self, one: _One, recording: Recording) -> Iterator[str]:
        """What power cuts leave between the fault and the end, where the WAL is emptied and hides a loss."""
        rng = random.Random(self._seed)  # noqa: S311 (as at the import)
        end = len(recording.ops)
        moments = sorted(rng.randint(min(recording.struck_at, end), end) for _ in range(self._states - 1))
        disk = Disk(recording)
        for moment in [*moments, end]:
            while disk.done < moment and disk.step():
                op = recording.ops[disk.done - 1]
                if op.what == "told":
                    one.told.take(op)
            yield from self._judge.faults(disk.cut(rng), one.told)

    def _afterwards(self, one: _One, again: Ended) -> FaultTrial:
        """What is wrong once the run was started again on sound storage."""
        how = again.how if again.how in {"returned", "waiting"} else f"{again.how}: {again.why[:300]}"
        if how not in {"returned", "waiting"}:
            one.losses.append("on sound storage it does not end")
        elif how == "returned" and again.value != self._value:
            one.losses.append("on sound storage it returns another value")
        one.told.entered.clear()
        for line in Witness(one.env[VARIABLE]).lines():
            one.told.take(Op("told", path=WITNESS, data=line.encode()))
        one.losses += [f"after the restart: {what}" for what in self._judge.faults(_files(one.root), one.told)]
        shutil.rmtree(one.place)
        return FaultTrial(
            fault=one.fault,
            struck=one.struck,
            error=one.error,
            again=how,
            states=self._states + 2,
            losses=tuple(one.losses),
        )


class _One:
    """A trial on its way.

    Arguments:
        place: its own folder.
        fault: what fails.
    """

    def __init__(self, place: Path, fault: Fault) -> None:
        place.mkdir(parents=True)
        self.place, self.fault = place, fault
        self.root, self.recording = place / "root", place / "recording"
        self.env = {VARIABLE: str(place / "witness"), RESULTS_VARIABLE: str(place / "results")}
        self.told, self.struck, self.error = Told(), 0, ""
        self.losses: list[str] = []


def _files(root: Path) -> dict[str, bytes]:
    recording = Recording.of_folder(root)
    return dict(recording.initial)
