"""A program in many schedules, each made twice: what is wrong in any of them, with the command that shows it again.

This module must never pass over a schedule because it is dull; it keeps the invariant that a seed is held to be
reproducible only where both of its traces are equal.

Source: design proof.md, P11.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from poimen._typing import override
from poimen.declare import modules
from poimen.declare.shapes import Call
from poimen.kernel.errors import ConfigurationError
from poimen.testing.schedules.judging import faults_of
from poimen.testing.schedules.replaying import other_ends
from poimen.testing.schedules.simulation import Stage, registry_of
from poimen.testing.schedules.traces import Simulation

if TYPE_CHECKING:
    from poimen.declare.registry import Registry
    from poimen.testing.schedules.loop import Order

Program: TypeAlias = str | Callable[..., Call[Any] | Sequence[Call[Any]]]
"""What is simulated: a function, or its name as `MODULE:FUNC` or `FILE.py:FUNC`, that gives a workflow called with
its arguments, or several; one that has a parameter is given the seed."""
Check: TypeAlias = str | Callable[[Simulation], Iterable[str]]
"""What else has to hold: a function, or its name, that gives a sentence for each thing that is wrong."""

COLLECT_EACH: Final = 50
"""Schedules between two collections of what they have left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFault:
    """What is wrong in one schedule.

    Arguments:
        seed: of it.
        what: a sentence each.
        command: shows it again, alone, in a shell.
    """

    seed: int
    what: tuple[str, ...]
    command: str

    @override
    def __str__(self) -> str:
        return "\n  ".join([f"seed {self.seed}:", *self.what, f"again: {self.command}"])


@dataclass(kw_only=True)
class ScheduleReport:
    """What a sweep over schedules has looked at and found.

    Arguments:
        schedules: how many, each made twice.
        different: how many of them were unlike all others, callback by callback.
        callbacks: that have run.
        records: that were written.
        replays: logs that were replayed.
        met: what the schedules have come through, and how many of them have.
        faults: what is wrong.
    """

    schedules: int = 0
    different: int = 0
    callbacks: int = 0
    records: int = 0
    replays: int = 0
    met: dict[str, int] = field(default_factory=dict)
    faults: list[ScheduleFault] = field(default_factory=list)

    def assert_clean(self) -> None:
        """Fail unless there was a schedule, and nothing is wrong in any.

        Raises:
            AssertionError: with each fault and its command.
        """
        if self.faults or not self.schedules:
            told = "\n".join(map(str, self.faults[:5])) or "no schedule was made, so nothing was shown"
            raise AssertionError(f"{self}\n{told}")

    @override
    def __str__(self) -> str:
        return (
            f"{self.schedules:,} schedules, each twice, {self.different:,} different ones, {self.replays:,} replays, "
            f"{self.callbacks:,} callbacks, {self.records:,} records: {len(self.faults)} with faults"
        )


def simulate(program: Program, *, seed: int, order: Order = "seeded", check: Check | None = None) -> Simulation:
    """Run a program in one schedule, in simulated time, and judge it.

    Its runs are driven by the real runtime over a log in memory. The seed decides which ready callback runs next, when
    the clock jumps, how long threads take, when the log is locked or fails, when processes die and others take over,
    who is cancelled, and whatever tools draw from `World.here().chance`. No real time passes in a sleep or a back-off.

    Arguments:
        program: gives the runs, of workflows and steps that are coroutine functions.
        seed: makes the schedule.
        order: `asyncio` runs callbacks in the order in which they became ready, with nothing but the seed's cancels.
        check: what else has to hold.

    Returns:
        What happened; `faults` says what is wrong.

    Raises:
        NotFound: there is no such module, file or function.
        ConfigurationError: the program gives no run.

    Source: design proof.md, P11.
    """
    return _Program(program, check).simulated(seed, order)


def schedule_sweep(
    program: Program,
    *,
    seeds: int | Iterable[int] = 1000,
    order: Order = "seeded",
    check: Check | None = None,
    most: int = 5,
) -> ScheduleReport:
    """Run a program in many schedules, each twice: both must leave the same trace, and nothing may be wrong.

    Arguments:
        program: as for `simulate`.
        seeds: how many, from 0 on, or which.
        order: as for `simulate`.
        check: as for `simulate`.
        most: after so many schedules with faults it ends.

    Raises:
        NotFound, ConfigurationError: as `simulate`.

    Source: design proof.md, P11.
    """
    swept, one = ScheduleReport(), _Program(program, check)
    paths = set[int]()
    collecting = gc.isenabled()
    gc.disable()
    try:
        for seed in range(seeds) if isinstance(seeds, int) else seeds:
            first, second = one.simulated(seed, order), one.played(seed, order)
            what = list(first.faults)
            if first.trace() != second.trace():
                what.append(f"made twice, it went two ways: {_parting(first, second)}")
            if what:
                swept.faults.append(ScheduleFault(seed=seed, what=tuple(what), command=one.command(seed, order)))
            paths.add(first.path)
            _count(swept, first)
            if len(swept.faults) >= most:
                break
            if not seed % COLLECT_EACH:
                gc.collect(1)
    finally:
        if collecting:
            gc.enable()
    swept.different = len(paths)
    return swept


def _count(swept: ScheduleReport, one: Simulation) -> None:
    swept.schedules += 1
    swept.callbacks += one.steps
    swept.records += sum(map(len, one.runs.values()))
    swept.replays += one.replayed
    for what in one.met():
        swept.met[what] = swept.met.get(what, 0) + 1


def _parting(first: Simulation, second: Simulation) -> str:
    pairs = zip(first.trace(), second.trace(), strict=False)
    return next((f"{one!r} and then {other!r}" for one, other in pairs if one != other), "one is longer")


class _Program:
    """A program, and what it is held to.

    Arguments:
        program, check: as for `simulate`.
    """

    def __init__(self, program: Program, check: Check | None) -> None:
        self._make: Callable[..., Any] = _found(program) if isinstance(program, str) else program
        self._check: Callable[..., Any] | None = _found(check) if isinstance(check, str) else check
        self._words = [_name(program), *(["--check", _name(check)] if check is not None else [])]
        self._seeded = bool(inspect.signature(self._make).parameters)
        self._registries: dict[tuple[str, ...], Registry] = {}

    def command(self, seed: int, order: Order) -> str:
        """What to type to see one schedule again."""
        more = ["--order", order] if order != "seeded" else []
        return " ".join(["python -m poimen.testing.schedules", *self._words, "--seed", str(seed), *more])

    def _calls(self, seed: int) -> Sequence[Call[Any]]:
        made = self._make(seed) if self._seeded else self._make()
        calls = [made] if isinstance(made, Call) else list(made)
        if not calls or not all(isinstance(call, Call) for call in calls):
            raise ConfigurationError(
                f"{self._words[0]} gives no workflow called with its arguments",
                why="there is nothing to simulate",
                hint="return shop('tea'), or a list of such calls",
            )
        return calls

    def _stage(self, seed: int, order: Order, *, judged: bool) -> Stage:
        calls = self._calls(seed)
        names = tuple(call.workflow for call in calls)
        if names not in self._registries:
            self._registries[names] = registry_of(calls)
        return Stage(calls, seed, order, judged=judged, registry=self._registries[names])

    def played(self, seed: int, order: Order) -> Simulation:
        """One schedule, not judged."""
        return self._stage(seed, order, judged=False).play()

    def simulated(self, seed: int, order: Order) -> Simulation:
        """One schedule, judged."""
        stage = self._stage(seed, order, judged=True)
        found = stage.play()
        found.faults = faults_of(found)
        if not found.stuck:
            found.faults += other_ends(stage.calls, stage.registry, found)
        if self._check is not None:
            found.faults += self._check(found)
        return found


def _found(name: str) -> Callable[..., Any]:
    module, _, function = name.rpartition(":")
    found: Callable[..., Any] | None = getattr(modules.load(module), function, None) if module else None
    if not callable(found):
        raise ConfigurationError(
            f"{name!r} names no function", why="there is nothing to call", hint="give MODULE:FUNC or FILE.py:FUNC"
        )
    return found


def _name(one: str | Callable[..., Any]) -> str:
    if isinstance(one, str):
        return one
    module = sys.modules[one.__module__]
    file = getattr(module, "__file__", None)
    by_file = one.__module__ == "__main__" and file is not None
    return f"{Path(file).name if by_file and file else one.__module__}:{one.__qualname__}"
