"""Cut the power of a workflow at every operation on its files, in many ways each, and look at what is left.

The workflow runs once, recorded; each state of the disk that a cut could have left is laid out, opened and judged. Some
are started again over recorded storage, and cut a second time in the middle of their recovery. This module must never
judge; it keeps the invariant that a state is named by its recording, its operation and its seed, and can be made again.

Source: design proof.md, P3 and P4.
"""

from __future__ import annotations

import random  # noqa: TID251 (a seed names each state)
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from poimen._typing import override
from poimen.kernel.errors import StorageFailed
from poimen.testing.crashes.children import child_command
from poimen.testing.crashes.forks import ForkServer
from poimen.testing.power.disk import Disk
from poimen.testing.power.inside import RESULTS_VARIABLE, Storage
from poimen.testing.power.judging import Judge, Told, lay_out
from poimen.testing.power.recording import RESULTS, WITNESS, Recording
from poimen.testing.power.syscalls import traced_recording
from poimen.testing.witness import VARIABLE

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

DB: Final = "poimen.db"
MEMORY: Final = Path("/dev/shm")  # noqa: S108 (each state lies there for some milliseconds, in a private folder)

AWAY_S: Final = 90.0
"""How long a process is away before it is started again, seconds: no probe has to wait for a tool's timeout."""

_DRAWS: Final = 3
_WEIGHT: Final = 40
_SHARE_OF_RECOVERIES: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One state of the disk.

    Arguments:
        recording: the file that holds what was done.
        at: how many operations had been made.
        seed: decides what is left of those that were not durable.
    """

    recording: Path
    at: int
    seed: str

    def lay_out(self, folder: str | os.PathLike[str]) -> None:
        """Write the files of the state into a folder, to look at them.

        Arguments:
            folder: created when it is missing, emptied when it is not.
        """
        disk = Disk(Recording.load(self.recording))
        while disk.done < self.at:
            disk.step()
        lay_out(disk.cut(random.Random(self.seed)), Path(folder))  # noqa: S311 (as at the import)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Something that is wrong with a state.

    Arguments:
        what: a sentence.
        cut: the state; None: it was found in a run, not in a state.
    """

    what: str
    cut: Cut | None

    @override
    def __str__(self) -> str:
        where = f" [{self.cut.recording} cut at {self.cut.at}, seed {self.cut.seed!r}]" if self.cut else ""
        return f"{self.what}{where}"


@dataclass(slots=True, kw_only=True)
class PowerReport:
    """What a sweep has found.

    Arguments:
        states: different states of disk and outside that were opened and judged.
        contents: how many different logs were in them, each read in full.
        operations: on files, over all recordings.
        acknowledged: commits that had returned, over all recordings.
        effects: lines of the witness.
        answers: outcomes that code was given, where it has said so.
        recoveries: states that were started again and ran to their end.
        losses: what is wrong.
    """

    states: int = 0
    contents: int = 0
    operations: int = 0
    acknowledged: int = 0
    effects: int = 0
    answers: int = 0
    recoveries: int = 0
    losses: list[Loss] = field(default_factory=list)

    @override
    def __str__(self) -> str:
        return (
            f"{self.states} states of {self.operations} operations, {self.contents} logs in them, "
            f"{self.acknowledged} acknowledgements, {self.effects} effects, {self.recoveries} recoveries: "
            f"{len(self.losses)} losses"
        )


def power_sweep(
    target: str,
    *,
    folder: str | os.PathLike[str],
    args: Sequence[object] = (),
    states: int = 2000,
    recoveries: int = 10,
    seed: int = 0,
    traced: bool = False,
    sabotage: str = "",
    most: int = 20,
    server: ForkServer | None = None,
    patience_s: float = 60.0,
) -> PowerReport:
    """Run a workflow one time, and judge what a power cut at each moment of it could have left.

    Its witness is told by lines that begin with the request id of their effect, as `recording_tool` writes them.

    Arguments:
        target: the workflow, `MODULE:FUNC` or `FILE.py:FUNC`.
        folder: takes the recordings and witnesses; the states lie in memory where the system offers that.
        args: the workflow's arguments: what can be stored without an annotation.
        states: how many different states to judge, in all.
        recoveries: how many of them to start again, and to cut a second time.
        seed: decides which states.
        traced: record by strace, from outside an unmodified child.
        sabotage: what to break in the recorded run, see `poimen.testing.sabotage.CONTROLS`.
        most: stop after so many losses.
        server: a fork server that has loaded the target; one is made when left out.
        patience_s: how long one process may take, seconds.

    Raises:
        NotFound, NotStorable: as `kill_sweep`.
        ConfigurationError: `traced`, and strace is not installed.
        StorageFailed: the recorded run did not come to an end, so nothing was shown.

    Source: design proof.md, P3, P4.
    """
    place = Path(folder)
    with (
        nullcontext(server) if server is not None else ForkServer(target) as forks,
        tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else place) as memory,
    ):
        sweep = _Sweep(target, args, place, Path(memory), forks, sabotage=sabotage, seed=seed, most=most)
        sweep.patience_s = patience_s
        first = sweep.record("0", traced=traced)
        alone = states if not recoveries else int(states * (1 - _SHARE_OF_RECOVERIES))
        sweep.judge(first, alone)
        again = list(sweep.recovered(first, recoveries))
        for number, recording in enumerate(again):
            left = states - sweep.report.states
            sweep.judge(recording, left // (len(again) - number))
    return sweep.report


class _Sweep:
    def __init__(
        self,
        target: str,
        args: Sequence[object],
        place: Path,
        memory: Path,
        forks: ForkServer,
        *,
        sabotage: str,
        seed: int,
        most: int,
    ) -> None:
        self.report = PowerReport()
        self.patience_s = 60.0
        self._target, self._args, self._place, self._memory = target, args, place, memory
        self._forks, self._sabotage, self._seed, self._most = forks, sabotage, seed, most
        self._judge = Judge(memory / "state", db=DB)

    # ---- recording -----------------------------------------------------------------------------------------

    def record(self, name: str, *, traced: bool = False, ahead_s: float = 0.0) -> Path:
        """Run the target over `root(name)`; the file that holds what it did."""
        recording, root = self._place / f"{name}.recording", self._memory / name
        env = {VARIABLE: str(self._place / f"{name}.witness"), RESULTS_VARIABLE: str(self._place / f"{name}.results")}
        self._place.mkdir(parents=True, exist_ok=True)
        if traced:
            command = child_command(
                self._target, args=self._args, db=root / DB, run_id="sweep", env=env, sabotage=self._sabotage
            )
            found, done = traced_recording(
                command,
                root=root,
                folder=self._place,
                channels={WITNESS: env[VARIABLE], RESULTS: env[RESULTS_VARIABLE]},
                timeout_s=self.patience_s,
            )
            if done.returncode not in {0, 4}:
                raise StorageFailed(f"the recorded run of {self._target} failed: {done.stderr[-2000:]}")
            found.save(recording)
            return recording
        ended = self._forks.run(
            self._target,
            args=self._args,
            db=root / DB,
            run_id="sweep",
            env=env,
            storage=Storage(root=str(root), recording=str(recording)).text(),
            sabotage=self._sabotage,
            ahead_s=ahead_s,
            output=self._place / f"{name}.output",
            patience_s=self.patience_s,
        )
        if ended.how not in {"returned", "waiting"}:
            raise StorageFailed(f"the recorded run of {self._target} failed: {ended.how} {ended.why}")
        return recording

    def recovered(self, recording: Path, n: int) -> Iterator[Path]:
        """Start `n` states again, evenly over the recording; the recordings of their recoveries."""
        found = Recording.load(recording)
        for number in range(n):
            at = (2 * number + 1) * len(found.ops) // (2 * n)
            cut = Cut(recording=recording, at=at, seed=f"{self._seed}:recovery:{number}")
            name = f"recovery-{number}"
            cut.lay_out(self._memory / name)
            for channel, ending in ((WITNESS, "witness"), (RESULTS, "results")):
                (self._place / f"{name}.{ending}").write_bytes(b"".join(found.told(channel, at)))
            try:
                again = self.record(name, ahead_s=AWAY_S)
            except StorageFailed as error:
                self._lost(f"the restart after it: {error.message}", cut)
                continue
            self.report.recoveries += 1
            yield again

    # ---- judging -------------------------------------------------------------------------------------------

    def judge(self, path: Path, states: int) -> None:
        """Judge so many states of a recording, spread over its operations by how much is open there."""
        recording = Recording.load(path)
        weights = _weights(recording)
        told, disk, report = Told(recording.before), Disk(recording), self.report
        seen: set[int] = set()
        wanted, total = 0.0, sum(weights)
        for weight in weights:
            wanted += states * weight / total
            for n in range(_DRAWS * max(0, round(wanted) - len(seen))):
                if len(seen) >= round(wanted) or len(report.losses) >= self._most:
                    break
                cut = Cut(recording=path, at=disk.done, seed=f"{self._seed}:{disk.done}:{n}")
                files = disk.cut(random.Random(cut.seed))  # noqa: S311 (as at the import)
                state = hash((told.lines, *sorted((name, hash(content)) for name, content in files.items())))
                if state in seen:
                    continue
                seen.add(state)
                for what in self._judge.faults(files, told):
                    self._lost(what, cut)
            if not disk.step():
                break
            op = recording.ops[disk.done - 1]
            if op.what == "told":
                told.take(op)
        report.states += len(seen)
        report.contents = self._judge.read
        report.operations += len(recording.ops)
        report.acknowledged += len(told.acked)
        report.effects += sum(told.entered.values())
        report.answers += len(told.answered)

    def _lost(self, what: str, cut: Cut | None) -> None:
        self.report.losses.append(Loss(what=what, cut=cut))


def _weights(recording: Recording) -> list[int]:
    """How many states each moment deserves: one more than there are operations that no sync has made durable."""
    disk = Disk(recording)
    found = [1]
    while disk.step():
        found.append(1 + min(_WEIGHT, disk.open_writes))
    return found
