"""Kill a workflow at every point of one of its effects, many times, start it again, and compare log and witness.

Each trial has a database and a witness of its own. What recovery found is read back from its record, never
taken from the code that wrote it. This module must never judge by the log alone; it keeps the invariant that
a trial counts only if the operating system says SIGKILL.

Source: requirement write-ahead-intent, "Verify"; design proof.md, P1; protocol.md, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from poimen.kernel.errors import NotFound
from poimen.log import codec
from poimen.log.sqlite import SqliteStore
from poimen.testing.crashes.forks import Ended, Fork, ForkServer, in_parallel
from poimen.testing.witness import VARIABLE, Witness

if TYPE_CHECKING:
    import os

    from poimen.testing.crashes.orders import Target

WINDOW_A: Final = ("pending",)
"""The crash points at which the intent is Pending and durable, and nothing was sent."""

WINDOW_B: Final = ("dispatched", "in_call", "called")
"""The crash points at which the intent is Dispatched and durable, and its outcome is not."""

EVERY_POINT: Final = (*WINDOW_A, *WINDOW_B, "committed")
"""The crash points around one effect, in their order."""

RUN: Final = "sweep"
"""The id of the run of each trial."""

_STATES: Final = {
    "intent.pending.v1": "pending",
    "intent.dispatched.v1": "dispatched",
    "intent.committed.v1": "committed",
}

Args: TypeAlias = Sequence[object] | Callable[[Path], Sequence[object]]
Count: TypeAlias = Callable[[Path], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One kill and what was found after it.

    Arguments:
        tool, effect_class: as the log says; the class is empty where no intent was written.
        point, n: where it was killed, and the number of the trial there, from 0.
        killed: the operating system says SIGKILL.
        left: the last of the intent's three records when it was dead: `pending`, `dispatched`, `committed`, or
            empty.
        before, after: effects that the witness saw before and after the restart.
        classified: what the restart recorded about it, in LSN order.
        choices: the results of the rules and probes that were applied, in LSN order.
        sends: how many times the log says that it was sent.
        state: of the run after the restart.
        in_inbox: whether it waits for a person.
        folder: the trial's database and witness.
        why: how the second process ended, where it did not return.
    """

    tool: str
    effect_class: str
    point: str
    n: int
    killed: bool
    left: str
    before: int
    after: int
    classified: tuple[str, ...]
    choices: tuple[str, ...]
    sends: int
    state: str
    in_inbox: bool
    folder: Path
    why: str = ""


def lines_in(folder: Path) -> int:
    """The effects that a trial's witness has seen: its lines."""
    return len(Witness(folder / "witness"))


def kill_sweep(
    target: Target,
    *,
    tool: str,
    folder: str | os.PathLike[str],
    args: Args = (),
    points: Sequence[str] = EVERY_POINT,
    kills: int = 20,
    count: Count = lines_in,
    ahead_s: float = 0.0,
    sabotage: str = "",
    width: int = 8,
    patience_s: float = 60.0,
    server: ForkServer | None = None,
) -> list[Trial]:
    """Kill a workflow at points of one effect, start it again each time, and tell what was found.

    Arguments:
        target: the workflow, `MODULE:FUNC`, `FILE.py:FUNC` or called with its arguments; it makes one effect with
            `tool`.
        tool: at whose points it is killed.
        folder: holds one folder for each trial, with `poimen.db` and `witness`.
        args: the workflow's arguments, or a function of the trial's folder that gives them.
        points: of `EVERY_POINT`.
        kills: how often at each point.
        count: how many effects the world has seen in a trial's folder.
        ahead_s: how long the process is away before it is started again, as its clocks tell, seconds: skips what a
            probe has to wait for, lets keys expire.
        sabotage: what to break in both processes of each trial, see `poimen.testing.sabotage.CONTROLS`.
        width: how many trials go on beside each other.
        patience_s: how long one process may take, seconds.
        server: a fork server that has loaded the target; one is made when left out.

    Returns:
        A row for each trial, by point and number. `disagreements` says what is wrong with them.

    Raises:
        NotFound: no such crash point, target or module.

    Source: design proof.md, P1.
    """
    places = _places(Path(folder), tool, points, kills)
    with nullcontext(server) if server is not None else ForkServer(target) as forks:
        begin = partial(_begin, forks, target, args, sabotage=sabotage, patience_s=patience_s)
        killed = in_parallel([partial(begin, place, at=f"{place.point}:{tool}") for place in places], width)
        left = [(_Found.of(place.db, tool), count(place.folder)) for place in places]
        again = in_parallel([partial(begin, place, ahead_s=ahead_s) for place in places], width)
    return [
        _trial(tool, place, died, before, seen=seen, after=count(place.folder), ended=ended)
        for place, died, (before, seen), ended in zip(places, killed, left, again, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where and at which point one trial is made."""

    point: str
    n: int
    folder: Path

    @property
    def db(self) -> Path:
        """Its database."""
        return self.folder / "poimen.db"


def _places(folder: Path, tool: str, points: Sequence[str], kills: int) -> list[_Place]:
    for point in points:
        if point not in EVERY_POINT:
            raise NotFound(
                f"{point!r} is not a crash point of an effect", hint=f"one of {', '.join(EVERY_POINT)}", point=point
            )
    places = [_Place(point=p, n=n, folder=folder / f"{tool}-{p}-{n:03}") for p in points for n in range(kills)]
    for place in places:
        place.folder.mkdir(parents=True)
    return places


def _begin(forks: ForkServer, target: Target, args: Args, place: _Place, **order: Any) -> Fork:
    """Start the workflow of one trial in a fork: the first time armed, the second time later."""
    return forks.begin(
        target,
        args=args(place.folder) if callable(args) else args,
        db=place.db,
        run_id=RUN,
        env={VARIABLE: str(place.folder / "witness")},
        output=place.folder / "output",
        **order,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the records of a trial say of the tool's effect."""

    effect_class: str = ""
    left: str = ""
    classified: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    sends: int = 0
    state: str = ""
    in_inbox: bool = False

    @classmethod
    def of(cls, db: Path, tool: str) -> _Found:
        """Read a database that nobody has open."""
        if not db.exists():
            return cls()
        store = SqliteStore(db, read_only=True)
        try:
            head = store.head(RUN)
            records = store.read(RUN) if head is not None else []
        finally:
            store.close()
        bodies = [(record, codec.plain(record)) for record in records]
        mine = {r.subject for r, body in bodies if r.kind == "intent.pending.v1" and body["tool"] == tool}
        about = [(r, body) for r, body in bodies if r.subject in mine]
        pending = [body for r, body in about if r.kind == "intent.pending.v1"]
        states = [_STATES[r.kind] for r, _ in about if r.kind in _STATES]
        results = {"intent.rule_applied.v1": "result", "intent.probed.v1": "answer", "intent.demoted.v1": "to"}
        state = head.state if head is not None else ""
        waiting = [body for r, body in bodies if r.kind == "branch.waiting.v1"][-1:] if state == "WAITING" else []
        return cls(
            effect_class=pending[0]["terms"]["effect_class"] if pending else "",
            left=states[-1] if states else "",
            classified=tuple(body["classification"] for r, body in about if r.kind == "intent.classified.v1"),
            choices=tuple(body[results[r.kind]] for r, body in about if r.kind in results),
            sends=sum(r.kind == "intent.dispatched.v1" for r, _ in about),
            state=state,
            in_inbox=any(one["reason"] == "operator" for body in waiting for one in body["reasons"]),
        )

    def told(self) -> dict[str, Any]:
        """What goes into the row as it was found at the end."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "left"}


def _trial(tool: str, place: _Place, died: Ended, left: _Found, *, seen: int, after: int, ended: Ended) -> Trial:
    return Trial(
        tool=tool,
        point=place.point,
        n=place.n,
        folder=place.folder,
        killed=died.was_killed,
        left=left.left,
        before=seen,
        after=after,
        why="" if ended.how == "returned" else f"{ended.how}: {ended.why}",
        **_Found.of(place.db, tool).told(),
    )
