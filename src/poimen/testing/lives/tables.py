"""Kill a workflow at each of its commits and crash points, start it again, and count per effect what the world has.

This is for workflows and tools of users: what the world has is asked of a function of theirs, and what it should
have is what an undisturbed run left there. This module must never take the log's word for what happened; it keeps
the invariant that an intent which nobody has resolved counts as unknown, never as a loss.

Source: design api.md, "Testing" (`sweep`); proof.md, P2.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from poimen._typing import override
from poimen.kernel.errors import ConfigurationError
from poimen.log.api import TERMINAL_STATES
from poimen.testing.crashes.forks import ForkServer
from poimen.testing.lives.anywhere import undisturbed
from poimen.testing.lives.stories import NO_KILL, Kill, Stage, Story, stories_in
from poimen.testing.witness import Witness

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from poimen.declare.shapes import Call
    from poimen.testing.lives.stories import EffectFacts

Seen: TypeAlias = Callable[[Path], Iterable[str]]
"""What the world has, asked in a trial's folder: a text for each effect, whose first word names it."""

_MARGIN_S: Final = 5.0
_SHOWN: Final = 2
_ENDS: Final = frozenset({"intent.committed.v1", "intent.resolved.v1", "intent.read_dropped.v2"})


def lines_of(folder: Path) -> list[str]:
    """The lines of a trial's witness."""
    return Witness(folder / "witness").lines()


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep has found about one effect.

    Arguments:
        effect: the key of its step, with `/N` where it is not the first effect there; or the tool's name, or another
            word by which the world names it.
        tool, effect_class: as recorded; empty where the world names it otherwise.
        wanted: how often the world has it when nobody kills the run.
        sends: the fewest and the most sends that a trial recorded of it.
        duplicated: a kill for each time that the world had it once too often in the end.
        lost: a kill for each time that it was missing although the run had ended.
        unknown: a kill for each trial in which it waits for a person, in the inbox.
    """

    effect: str
    tool: str = ""
    effect_class: str = ""
    wanted: int = 0
    sends: tuple[int, int] = (0, 0)
    duplicated: tuple[Kill, ...] = ()
    lost: tuple[Kill, ...] = ()
    unknown: tuple[Kill, ...] = ()

    @property
    def duplicates(self) -> int:
        """How often the world had it too often; 0 for a READ, which leaves nothing: see its `sends`."""
        return len(self.duplicated)

    @property
    def losses(self) -> int:
        """How often it was missing behind the end of the run."""
        return len(self.lost)

    @property
    def unknowns(self) -> int:
        """In how many trials a person is asked about it; neither a duplicate nor a loss."""
        return len(self.unknown)

    @property
    def unseen(self) -> bool:
        """Whether the world does not show it even when nobody kills the run: then nothing is known about it."""
        return not self.wanted and self.effect_class != "READ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What a sweep has found.

    Arguments:
        call: what was run.
        effects: a row for each effect, in their order.
        kills: how many processes the operating system says were killed.
        missed: places at which no process died, because it did not come there again.
        other_ends: trials that ended otherwise than the undisturbed run and do not wait for a person: sentences.
        folder: holds a folder for each trial, with `poimen.db`, `witness`, and what the processes printed.
    """

    call: str
    effects: tuple[Swept, ...]
    kills: int
    missed: tuple[Kill, ...]
    other_ends: tuple[str, ...]
    folder: Path

    @property
    def duplicates(self) -> int:
        """Effects that the world has too often, over all trials."""
        return sum(row.duplicates for row in self.effects)

    @property
    def losses(self) -> int:
        """Effects that are missing, over all trials whose run has ended."""
        return sum(row.losses for row in self.effects)

    @property
    def unknowns(self) -> int:
        """Effects that wait for a person in the inbox, over all trials: unknown, not lost."""
        return sum(row.unknowns for row in self.effects)

    @property
    def clean(self) -> bool:
        """No duplicate, no loss, no other end, and the world shows each effect. Unknowns may be."""
        unseen = any(row.unseen for row in self.effects)
        return self.kills > 0 and not (self.duplicates or self.losses or self.other_ends or unseen)

    def assert_clean(self) -> None:
        """Fail with the table where the sweep is not clean.

        Raises:
            AssertionError: there is a duplicate, a loss, another end, or an effect that the world never shows.
        """
        if not self.clean:
            raise AssertionError(str(self))

    def __getitem__(self, effect: str) -> Swept:
        return next(row for row in self.effects if row.effect == effect)

    @override
    def __str__(self) -> str:
        head = ("effect", "class", "sends", "duplicates", "losses", "unknown", "killed at")
        rows = [head, *(_cells(row) for row in self.effects)]
        widths = [max(len(row[n]) for row in rows) for n in range(len(head))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        told = [f"{self.call}, killed {self.kills} times", *(line.rstrip() for line in lines)]
        told += [f"{row.effect}: the world does not show it, killed or not" for row in self.effects if row.unseen]
        told += [f"no process came to {', '.join(map(str, self.missed))} again"] if self.missed else []
        told += self.other_ends
        return "\n".join([*told, *([] if self.clean else [f"look into {self.folder}"])])


def _cells(row: Swept) -> tuple[str, ...]:
    fewest, most = row.sends
    sends = str(most) if fewest == most else f"{fewest} to {most}"
    places = list(dict.fromkeys(map(str, [*row.duplicated, *row.lost, *row.unknown])))
    more = f", and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    counts = (str(row.duplicates), str(row.losses), str(row.unknowns))
    return (row.effect, row.effect_class, sends, *counts, ", ".join(places[:_SHOWN]) + more)


def sweep(
    call: Call[Any],
    *,
    seen: Seen = lines_of,
    folder: str | os.PathLike[str] | None = None,
    points: bool = True,
    ahead_s: float | None = None,
    sabotage: str = "",
    width: int = 8,
    patience_s: float = 60.0,
    server: ForkServer | None = None,
) -> Sweep:
    """Kill a workflow at each of its commits and crash points, start it again, and count what the world has.

    The run is first left alone, to see what it commits and what the world has then. After that each place gets a
    trial of its own: a process that dies there by SIGKILL, and one that goes on from what it left.

    Arguments:
        call: a workflow of a module's top, called with its arguments.
        seen: asked for what the world has, with the folder of a trial: a text for each effect. Its first word
            says which: the request id, the tool's name, or any other word (then it is a row of its own). The lines of
            the witness when left out. A far side that all trials share has to name effects by their request ids: what
            it has under those of another trial is left out, an id of no trial counts as one too many.
        folder: takes one folder for each trial; when left out a temporary one, kept only if something was found.
        points: whether to kill at the named crash points as well as around each commit.
        ahead_s: how long the process is away before it is started again, as its clocks tell, seconds; None: as long
            as the probes of this run would have to wait.
        sabotage: what to break in each process, see `poimen.testing.sabotage.CONTROLS`.
        width: how many trials go on beside each other.
        patience_s: how long one process may take, seconds.
        server: a fork server that has loaded the workflow; one is made when left out.

    Returns:
        A row for each effect; printed, it is a table.

    Raises:
        ConfigurationError: the undisturbed run does not come to its end, or the world shows nothing of it.
        NotFound: the workflow is made inside a function.

    Source: design api.md, "Testing"; proof.md, P2.
    """
    with nullcontext(server) if server is not None else ForkServer(call) as forks:
        where = Path(tempfile.mkdtemp(prefix="poimen-sweep-") if folder is None else folder)
        stage = Stage(forks=forks, target=call, sabotage=sabotage, width=width, patience_s=patience_s)
        whole, _ = undisturbed(stage, where)
        found = _Counted(whole, seen)  # asked before there is anything of another trial
        kills = _places(whole, points=points) if found.rows else []
        stories = stories_in(where, range(len(kills)))
        stage.live(stories, kills)
        for story in stories:
            story.away_s = _away_s(whole) if ahead_s is None else ahead_s
        stage.live(stories, [NO_KILL] * len(stories))
    swept = _counted(call, whole, stories, found)
    if folder is None and swept.clean:
        shutil.rmtree(where)
    return swept


def _counted(call: Call[Any], whole: Story, stories: Sequence[Story], found: _Counted) -> Sweep:
    if not found.rows:
        raise ConfigurationError(
            "the world shows no effect of the undisturbed run",
            where=str(whole.folder),
            why="what a kill adds or takes away could not be seen",
            hint="let the tools write to Witness.here(), or give seen= a function that asks the far side",
        )
    for story in stories:
        found.know(story)
    for story in stories:
        found.add(story)
    return Sweep(
        call=repr(call).removeprefix("<call of ").removesuffix(">"),
        effects=tuple(row.swept() for row in found.rows.values()),
        kills=sum(story.kills for story in stories),
        missed=tuple(story.lives[0].kill for story in stories if not story.kills),
        other_ends=tuple(found.other_ends),
        folder=whole.folder.parent,
    )


def _places(whole: Story, *, points: bool) -> list[Kill]:
    """Around each transaction of the undisturbed run, and at each crash point that it passed."""
    notes = whole.lives[0].notes
    places = [
        Kill(at=f"{side}::{n}") for n in range(1, len(notes.asked) + 1) for side in ("before_commit", "after_commit")
    ]
    passed: Counter[tuple[str, str]] = Counter()
    for point, tool in notes.points if points else ():
        spelled = "" if ":" in tool else tool  # `POINT:TOOL:N` has no place for it: then by the point's own count
        passed[point, spelled] += 1
        nth = passed[point, spelled] if spelled else sum(n for (of, _), n in passed.items() if of == point)
        places.append(Kill(at=f"{point}:{spelled}:{nth}"))
    return places


def _away_s(whole: Story) -> float:
    """How long a probe of this run waits before its *absent* counts, with a margin; 0 where there is none."""
    terms = [effect.pending["terms"] for effect in whole.remains.effects()]
    waits = [t["timeout_us"] + t["grace_us"] + t.get("lag_us", 0) for t in terms if t.get("probe")]
    return max(waits) / 1e6 + _MARGIN_S if waits else 0.0


@dataclass(kw_only=True)
class _Row:
    """One row while it is counted."""

    effect: str
    tool: str = ""
    effect_class: str = ""
    wanted: int = 0
    sends: list[int] = field(default_factory=list)
    duplicated: list[Kill] = field(default_factory=list)
    lost: list[Kill] = field(default_factory=list)
    unknown: list[Kill] = field(default_factory=list)

    def swept(self) -> Swept:
        return Swept(
            effect=self.effect,
            tool=self.tool,
            effect_class=self.effect_class,
            wanted=self.wanted,
            sends=(min(self.sends, default=0), max(self.sends, default=0)),
            duplicated=tuple(self.duplicated),
            lost=tuple(self.lost),
            unknown=tuple(self.unknown),
        )


class _Counted:
    """Rows, from what the undisturbed run has left and then from each trial."""

    def __init__(self, whole: Story, seen: Seen) -> None:
        self._seen = seen
        self._whole = whole
        self.rows: dict[str, _Row] = {}
        self.other_ends: list[str] = []
        self._ids: set[str] = set()
        self.know(whole)
        words = self._words(whole)
        if not words:
            return
        for effect in whole.remains.effects():
            name = self._name(effect, words)
            row = self.rows.setdefault(
                name, _Row(effect=name, tool=effect.pending["tool"], effect_class=effect.effect_class)
            )
            row.sends[:] = [sum(row.sends) + effect.sends]
        for name, held in self._held(whole, words).items():
            self.rows.setdefault(name, _Row(effect=name)).wanted = held

    def know(self, story: Story) -> None:
        """Take note of a trial's request ids, so that what it did is not counted as another's."""
        self._ids |= {effect.request_id for effect in story.remains.effects()}

    def add(self, story: Story) -> None:
        """Count one trial, when all are known."""
        kill = story.lives[0].kill
        held = self._held(story, self._words(story))
        effects = story.remains.effects()
        open_ = {self._row_of(effect) for effect in effects if _is_open(effect)}
        ended = story.remains.state in TERMINAL_STATES
        for name in [*self.rows, *(name for name in held if name not in self.rows)]:
            row = self.rows.setdefault(name, _Row(effect=name))
            sends = [effect.sends for effect in effects if self._row_of(effect) == name]
            row.sends += [sum(sends)] if sends else []
            if row.effect_class == "READ":
                continue
            row.duplicated += [kill] * (held[name] - row.wanted)
            if name in open_:
                row.unknown.append(kill)
            elif ended:
                row.lost += [kill] * (row.wanted - held[name])
        right, last = self._whole.remains.state, story.lives[-1].ended
        if not (story.remains.state == right or (story.remains.state == "WAITING" and open_)):
            why = f": {last.why}" if last.why else ""
            self.other_ends.append(
                f"killed at {kill}, it is {story.remains.state or 'not there'}, not {right} ({last.how}{why})"
            )

    def _words(self, story: Story) -> list[str]:
        """What the world says of a trial, without what it has of the others where all share one far side."""
        others = self._ids - {effect.request_id for effect in story.remains.effects()}
        words = [text.split(maxsplit=1)[0] for text in self._seen(story.folder) if text.strip()]
        return [word for word in words if word.partition(".")[0] not in others]

    def _held(self, story: Story, words: Iterable[str]) -> Counter[str]:
        """How often the world has each row."""
        labels = {effect.request_id: effect.label for effect in story.remains.effects()}
        return Counter(labels.get(word.partition(".")[0], word) for word in words)

    def _name(self, effect: EffectFacts, words: Iterable[str]) -> str:
        """The row of an effect: its own where the world has its request id, its tool's where it has that name."""
        known = {word.partition(".")[0] for word in words}
        tool = str(effect.pending["tool"])
        return tool if effect.request_id not in known and tool in known else effect.label

    def _row_of(self, effect: EffectFacts) -> str:
        tool = str(effect.pending["tool"])
        return tool if effect.label not in self.rows and tool in self.rows else effect.label


def _is_open(effect: EffectFacts) -> bool:
    """Whether an intent of it is Dispatched, and neither its outcome nor a resolution is on record."""
    states: dict[str, bool] = {}
    for fact in effect.facts:
        if fact.kind == "intent.dispatched.v1":
            states[fact.subject] = True
        elif fact.kind in _ENDS:
            states[fact.subject] = False
    return any(states.values())
