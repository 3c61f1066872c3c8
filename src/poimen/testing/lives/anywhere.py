"""Kill a run anywhere, its recoveries as well, let an operator decide what no machine may, and go on to its end.

Where each process dies is drawn from the seed and the story's number, so a story is told again by its number. This
module must never judge; it keeps the invariant that each transaction of an undisturbed run is struck once before
and once behind, however few kills are asked for.

Source: design proof.md, P2.
"""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from poimen import clock
from poimen.kernel.errors import ConfigurationError
from poimen.testing.crashes.forks import ForkServer
from poimen.testing.lives.stories import NO_KILL, Kill, Stage, Story, stories_in

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Sequence

    from poimen.testing.crashes.orders import Target

AWAY_S: Final = 90.0
"""Longer than a tool's timeout and grace: a probe's absence counts at once."""

LONG_AWAY_S: Final = 25 * 3600.0
"""Longer than a key lives."""

_BATCH: Final = 256
_MOST_ROUNDS: Final = 12
_ONE_IN: Final = 8


def kill_anywhere(
    target: Target,
    *,
    folder: str | os.PathLike[str],
    kills: int,
    seed: int = 0,
    args: Sequence[object] = (),
    operator: str = "",
    sabotage: str = "",
    only: Collection[int] = (),
    width: int = 8,
    patience_s: float = 60.0,
    server: ForkServer | None = None,
) -> list[Story]:
    """Run a workflow many times; kill it anywhere, kill what recovers it up to twice, and let it come to its end.

    The first stories die in turn before and behind each transaction of an undisturbed run, the others at random
    transactions and at random times. Every story is then recovered; a recovery may be killed like the first life.
    The processes are away for 90 s in between, as their clocks tell; in one story of eight for 25 hours.

    Arguments:
        target: a workflow, called with its arguments or named. Each of its effects but a READ has to leave a line
            that begins with its request id at `Witness.here()`, and its result has to be the same each time; give
            a tool that acts elsewhere another body with `replace`.
        folder: takes one folder for each story.
        kills: how many at least; it goes on until the operating system has said SIGKILL so often.
        seed: another one, other kills.
        args: the arguments of a workflow that is only named.
        operator: `MODULE:FUNC` of a plain function that is called with the path of the database, as text, where the
            run waits for a person; it looks at the world, and resolves. Empty: nobody does.
        sabotage: what to break in every process, see `poimen.testing.sabotage.CONTROLS`.
        only: the numbers of the stories to tell, whatever `kills` says; empty: all.
        width: how many go on beside each other.
        patience_s: how long one process may take, seconds.
        server: a fork server that has loaded target and operator; one is made when left out.

    Returns:
        The stories, the undisturbed one first. `contradictions` says what is wrong with them.

    Raises:
        ConfigurationError: the run does not come to its end undisturbed.
        NotFound: no such target, operator or control.

    Source: design proof.md, P2.
    """
    names = [target, operator] if operator else [target]
    with nullcontext(server) if server is not None else ForkServer(*names) as forks:
        stage = Stage(
            forks=forks,
            target=target,
            args=args,
            operator=operator,
            sabotage=sabotage,
            width=width,
            patience_s=patience_s,
        )
        return _tell(stage, Path(folder), kills=kills, seed=seed, only=sorted(only))


def _tell(stage: Stage, folder: Path, *, kills: int, seed: int, only: Sequence[int]) -> list[Story]:
    whole, took_s = undisturbed(stage, folder)
    plan = _Plan(seed=seed, commits=len(whole.lives[0].notes.asked), took_s=took_s)
    told = [whole]
    if only:
        return [whole, *_told(stage, plan, stories_in(folder, only))]
    next_n = 0
    while (missing := kills - sum(story.kills for story in told)) > 0 or next_n < plan.places:
        many = min(_BATCH, max(missing * 4 // 9, plan.places - next_n, 1))  # a story has more than two kills
        told += _told(stage, plan, stories_in(folder, range(next_n, next_n + many)))
        next_n += many
    return told


def undisturbed(stage: Stage, folder: Path) -> tuple[Story, float]:
    """The run as it is when nobody kills it, and how long it took, in seconds.

    Arguments:
        stage: where it is lived.
        folder: takes its own folder.

    Raises:
        ConfigurationError: it does not come to its end.
    """
    story = Story(n=-1, folder=folder / "undisturbed")
    story.folder.mkdir(parents=True)
    begun = clock.monotonic()
    stage.live([story], [NO_KILL])
    ended = story.lives[0].ended
    if ended.how != "returned":
        raise ConfigurationError(
            f"the run does not come to its end when nobody kills it: {ended.how}: {ended.why}",
            where=str(story.folder),
            why="what a kill does to it cannot be told",
            hint=f"what it printed is in {story.folder / 'output'}",
        )
    return story, clock.monotonic() - begun


class _Plan:
    """What is drawn for each story."""

    def __init__(self, *, seed: int, commits: int, took_s: float) -> None:
        self._seed = seed
        self._commits = commits
        self._took_s = took_s

    @property
    def places(self) -> int:
        """How many stories it takes until each transaction was struck before and behind."""
        return 2 * self._commits

    def _draw(self, n: int, what: str, below: int) -> int:
        digest = hashlib.sha256(f"{self._seed}/{n}/{what}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % below

    def first(self, n: int) -> Kill:
        """Where the first process dies: in turn at each place, then anywhere."""
        if n < self.places:
            return _around(n % 2, n // 2 + 1)
        return self._any(n, "first", self._commits)

    def again(self, n: int, time: int) -> Kill:
        """Where a recovery dies, the `time`-th one from 0; no kill where it does not."""
        if self._draw(n, "recoveries", 4) <= time:  # none, one, two, two
            return NO_KILL
        return self._any(n, f"again{time}", max(2, self._commits * (5 - self._draw(n, f"reach{time}", 5)) // 10))

    def operator(self, n: int, time: int) -> Kill:
        """Whether the person's answer is killed as well: before it is durable, or before anybody was told."""
        drawn = self._draw(n, f"operator{time}", 6)
        return _around(drawn, 1) if drawn < 2 and not time else NO_KILL  # noqa: PLR2004 (before, behind)

    def away_s(self, n: int) -> float:
        """How long nobody runs it before it is recovered."""
        return AWAY_S if self._draw(n, "away", _ONE_IN) else LONG_AWAY_S

    def _any(self, n: int, what: str, commits: int) -> Kill:
        if self._draw(n, f"{what} how", 2):
            return _around(self._draw(n, f"{what} side", 2), 1 + self._draw(n, f"{what} n", commits))
        return Kill(after_s=0.002 + self._took_s * self._draw(n, f"{what} s", 1000) / 1000)


def _around(side: int, nth: int) -> Kill:
    return Kill(at=f"{('before_commit', 'after_commit')[side]}::{nth}")


def _told(stage: Stage, plan: _Plan, stories: list[Story]) -> list[Story]:
    stage.live(stories, [plan.first(story.n) for story in stories])
    for story in stories:
        story.away_s += plan.away_s(story.n)
    for time in range(2):
        dying = [story for story in stories if plan.again(story.n, time)]
        _live(stage, dying, [plan.again(story.n, time) for story in dying])
    open_ = stories
    for time in range(_MOST_ROUNDS):
        _live(stage, open_, [NO_KILL] * len(open_))
        open_ = [story for story in open_ if stage.operator and story.lives[-1].ended.how == "waiting"]
        if not open_:
            break
        killed = [plan.operator(story.n, time) for story in open_]
        stage.live(open_, killed, operator=True)
        for story in open_:
            story.away_s += AWAY_S
    return stories


def _live(stage: Stage, stories: Sequence[Story], kills: Sequence[Kill]) -> None:
    stage.live(stories, kills)
    for story in stories:
        story.away_s += AWAY_S
