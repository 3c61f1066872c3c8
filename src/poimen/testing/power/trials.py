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

    from poimen.testing.crashes.forks import Ended

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
        states: how many power cuts to judge at the end of each trial.
        seed: decides which.
        sabotage: what to break in the failing run, see `poimen.testing.sabotage.CONTROLS`.
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
        faults = _Faults(target, args, place, Path(memory), forks, sabotage=sabotage, states=states, seed=seed)
        faults.patience_s = patience_s
        counted = faults.counted(only)
        chosen = [fault for call in calls for fault in _ways(call, counted.get(call, 0), only, in_turn=in_turn)]
        return [faults.trial(fault) for fault in chosen]


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
    if sum(trial.struck > 0 for trial in trials) * 10 < len(trials) * 9 or not trials:
        return [f"of {len(trials)} faults {sum(trial.struck > 0 for trial in trials)} have struck, so little was shown"]
    return [f"{trial}: {what}" for trial in trials for what in trial.losses]


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
    ) -> None:
        self.patience_s = 60.0
        self._target, self._args, self._place, self._memory, self._forks = target, args, place, memory, forks
        self._sabotage, self._states, self._seed = sabotage, states, seed
        self._judge = Judge(memory / "state", db=DB)
        self._root, self._recording = memory / "root", memory / "recording"
        self._env = {VARIABLE: str(memory / "witness"), RESULTS_VARIABLE: str(memory / "results")}
        self._value: Any = None

    def counted(self, only: str) -> dict[str, int]:
        """Run the target on sound storage; how many calls of each kind there were on the files that matter."""
        never = Fault(call="write", nth=1 << 60, only=only)
        ended = self._run(never)
        if ended.how != "returned":
            raise StorageFailed(f"{self._target} does not return on sound storage: {ended.how} {ended.why}")
        self._value = ended.value
        return Recording.load(self._recording).calls

    def trial(self, fault: Fault) -> FaultTrial:
        """Run the target with one fault, and on."""
        for path in (self._root, self._recording, *map(Path, self._env.values())):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        ended = self._run(fault)
        recording = Recording.load(self._recording)
        error = "" if ended.how == "returned" else ended.why.partition(":")[0]
        losses = (
            [] if not error or error in STORAGE_ERRORS else [f"the fault is told as {ended.how}: {ended.why[:300]}"]
        )
        told = Told()
        for op in recording.ops:
            if op.what == "told":
                told.take(op)
        losses += [f"as the process left it: {what}" for what in self._judge.faults(_files(self._root), told)]
        cuts = self._cuts(recording)
        losses += [f"after a power cut: {what}" for files in cuts for what in self._judge.faults(files, told)]
        again = self._forks.run(self._target, **self._order(), ahead_s=AWAY_S)
        losses += self._afterwards(again, told)
        how = again.how if again.how in {"returned", "waiting"} else f"{again.how}: {again.why}"
        return FaultTrial(
            fault=fault, struck=recording.struck, error=error, again=how, states=len(cuts) + 2, losses=tuple(losses)
        )

    def _run(self, fault: Fault) -> Ended:
        storage = Storage(root=str(self._root), recording=str(self._recording), fault=fault)
        return self._forks.run(self._target, **self._order(), storage=storage.text(), sabotage=self._sabotage)

    def _order(self) -> dict[str, Any]:
        return {
            "args": self._args,
            "db": self._root / DB,
            "run_id": "sweep",
            "env": self._env,
            "output": self._place / "output",
            "patience_s": self.patience_s,
        }

    def _cuts(self, recording: Recording) -> list[dict[str, bytes]]:
        """What power cuts at the end of the failing run could have left."""
        disk = Disk(recording)
        while disk.step():
            pass
        rng = random.Random(self._seed)  # noqa: S311 (as at the import)
        return [disk.cut(rng) for _ in range(self._states)]

    def _afterwards(self, again: Ended, told: Told) -> list[str]:
        """What is wrong once the run was started again on sound storage."""
        found = []
        if again.how not in {"returned", "waiting"}:
            found.append(f"on sound storage it does not end: {again.how}: {again.why[:300]}")
        elif again.how == "returned" and again.value != self._value:
            found.append("on sound storage it returns another value")
        told.entered.clear()
        for line in Witness(self._env[VARIABLE]).lines():
            told.take(Op("told", path=WITNESS, data=line.encode()))
        return found + [f"after the restart: {what}" for what in self._judge.faults(_files(self._root), told)]


def _files(root: Path) -> dict[str, bytes]:
    recording = Recording.of_folder(root)
    return dict(recording.initial)
