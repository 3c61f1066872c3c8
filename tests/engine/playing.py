"""Playing a program: its run is driven as often as it takes, crashed where a test says, and looked at.

Where a branch waits for an operator, one decides by chance; where a test says so, outsiders meddle while it is driven.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from poimen.engine import desk
from poimen.kernel.views import newest_branch
from poimen.log.api import TERMINAL_STATES
from poimen.log.writer import Door
from tests.engine.programs import CELLS, REGISTRY, Cell, Maker, mixed, program
from tests.engine.simulated import CutStore, Driven, admit, drive, folded

if TYPE_CHECKING:
    from poimen.engine.driving.driver import Driver
    from poimen.kernel.views import BranchView
    from poimen.log.api import Record
    from tests.engine.programs import Node


@dataclass
class Played:
    """A run that has come to its end: its log, all that its code saw, and how much of that was replayed."""

    how: str
    store: CutStore
    records: list[Record]
    seen: list[tuple[Any, ...]]
    replayed: int
    details: str
    state: str
    value: Any
    line: BranchView

    @cached_property
    def end(self) -> int:
        """How many records lie before the commit that ended the branch."""
        kinds = ("branch.verifying", "branch.ended")
        first = next((i for i, r in enumerate(self.records) if r.kind.startswith(kinds)), len(self.records))
        return max(at for at in self.store.commits if at <= first)

    def cuts(self, after: int = 1) -> list[int]:
        """Where a crash can have left the log: at the end of a commit, before the branch had ended."""
        return sorted({at for at in self.store.commits if after <= at <= self.end})


WAYS: Final[tuple[desk.To, ...]] = ("landed", "not_landed", "abandoned")


class Watched:
    """Tells what a driver hands over from the record that it found from what has come since."""

    def __init__(self) -> None:
        self.new = False
        self.driver: Any = None

    def by(self, driver: Driver) -> None:
        self.driver = driver
        self.kept = list(driver.script.queue)  # an id is one thing's as long as that thing lives
        recorded, give = {id(due) for due in self.kept}, driver.hands._give

        def watch(due: Any) -> None:
            self.new = self.new or id(due) not in recorded
            give(due)

        driver.hands._give = watch  # type: ignore[method-assign]


class Play:
    """One program and its run, driven as often as it takes, with an operator who decides what nobody knows."""

    def __init__(self, seed: int, nodes: list[Node] | None = None, *, workflow: Any = program, **settings: Any) -> None:
        self.workflow = workflow
        self.run = f"run-{seed}"
        made = Maker(seed).nodes if nodes is None else nodes
        self.cell = CELLS[self.run] = Cell(seed=seed, nodes=made, chance=random.Random(seed), **settings)
        self.seed = seed
        self.meddling = 0.0
        self.meddled: list[str] = []
        self.lived_through = 0

    def _meddle(self, store: CutStore) -> None:
        """What outsiders do while the run is driven: cancel it, close effects that are under way, look at them."""
        if self.cell.chance.random() >= self.meddling:
            return
        line = newest_branch(folded(self.run, store.records(self.run)))
        there = [i for i in line.intents() if i.open]
        if line.state.name in TERMINAL_STATES:
            return
        beside = store.beside()
        door, what = Door(beside), self.cell.chance.choice(("cancel", "landed", "abandoned", "claim", "claim"))
        intent = str(self.cell.chance.choice(there).id) if there else ""
        match what:
            case "cancel":
                desk.cancel(beside, door, self.run, by="outsider", why="no longer wanted")
            case "claim" if there:
                desk.claim(beside, door, intent, by="outsider")
            case "landed" if there:
                desk.resolve(beside, door, intent, "landed", by="outsider", why="looked", value=b"78")
            case "abandoned" if there:
                desk.resolve(beside, door, intent, "abandoned", by="outsider", why="looked")
            case _:
                return
        self.meddled.append(what)

    def _soon(self, loop: asyncio.AbstractEventLoop, store: CutStore) -> None:
        loop.call_soon(self._meddle, store)

    def begin(self) -> CutStore:
        store = CutStore()
        admit(store, self.workflow, self.run, self.seed)
        return store

    async def go(self, store: CutStore) -> Played:
        """Drive the run until it ends, or until only other code can move it."""
        before: list[tuple[Any, ...]] = []
        replayed = -1
        if self.meddling:
            loop = asyncio.get_running_loop()
            store.on_commit = lambda: self._soon(loop, store)
        while True:
            cell = self.cell
            cell.trace = []
            cell.watched = watched = Watched()
            driven = await drive(store, self.run, REGISTRY, claimed=watched.by)
            if replayed < 0 and driven.driver.root is not None:
                replayed = sum(not new for new, _ in cell.trace)
            assert cell.seen[: len(before)] == before, difference(before, cell.seen)
            if driven.how != "waiting" or not self._decide(driven):
                break
            before = cell.seen
        line = driven.driver.line
        value = line.body.value if line.body is not None else None
        replayed = max(replayed, 0)
        details, state = driven.details, line.state.name
        return Played(driven.how, store, driven.records, cell.seen, replayed, details, state, value, line)

    def _decide(self, driven: Driven) -> bool:
        """What an operator does about a branch that waits for one; False when it waits for something else."""
        door = Door(driven.store)
        if driven.driver.view.lsn < len(driven.records):
            return True  # an outsider has written while it came to rest
        if any(w.reason != "operator" for w in driven.waiting):
            return False
        for waiting in driven.waiting:
            if waiting.detail.startswith("crash loop"):
                desk.resume(driven.store, door, self.run, by="operator", why="tried again")
                continue
            if self.cell.far is None:
                to = self.cell.chance.choice(WAYS)
            else:
                to = WAYS[mixed(self.seed, waiting.about) % len(WAYS)]
            value = b"77" if to == "landed" else None
            desk.resolve(driven.store, door, waiting.about, to, by="operator", why="looked", value=value)
        return True


def difference(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> str:
    """Where two traces part."""
    at = next((i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))
    low = max(0, at - 4)
    return f"at {at} of {len(one)} and {len(other)}:\n  {one[low : at + 4]}\n  {other[low : at + 4]}"
