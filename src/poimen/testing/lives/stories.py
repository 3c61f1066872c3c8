"""One run that dies and is started again, several times, and what each of its processes has noted and left.

A story has a folder of its own: a database, a witness, and for each life the notes that its process took. This
module must never judge; it keeps the invariant that a kill counts only where the operating system says SIGKILL.

Source: design proof.md, P2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from poimen._typing import override
from poimen.log import codec
from poimen.log.sqlite import SqliteStore
from poimen.testing.crashes.forks import Ended, in_parallel
from poimen.testing.crashes.orders import name_of
from poimen.testing.lives.commits import Notes
from poimen.testing.witness import VARIABLE, Witness

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from poimen.log.api import Record
    from poimen.testing.crashes.forks import Fork, ForkServer
    from poimen.testing.crashes.orders import Target

RUN: Final = "r"
"""The id of the run in each story."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """Where or when a process dies.

    Arguments:
        at: `POINT[:TOOL[:N]]`, of `POINTS`, or `before_commit::N`, `after_commit::N`; empty: at no place.
        after_s: so long after its start, seconds; 0: at no time.
    """

    at: str = ""
    after_s: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.at or self.after_s)

    @override
    def __str__(self) -> str:
        point, _, rest = self.at.partition(":")
        tool, _, nth = rest.partition(":")
        words = [point, f"of {tool}" if tool else "", nth] if self.at else [f"after {self.after_s:.4f} s"]
        return " ".join(word for word in words if word) if self else "not killed"


NO_KILL: Final = Kill()


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One process of a story.

    Arguments:
        kill: what was meant for it.
        ended: how it ended; a kill may have come too late.
        seen: how many lines the witness had when it was dead.
        notes: what it has noted.
        operator: it was a person's answer, not the run.
    """

    kill: Kill
    ended: Ended
    seen: int
    notes: Notes
    operator: bool = False


@dataclass(kw_only=True)
class Story:
    """A run and its lives.

    Arguments:
        n: its number, from 0.
        folder: of its own.
        lives: so far, in order.
        away_s: how far the clocks of the next life are ahead, seconds.
        known: its log and witness, where they were read already.
    """

    n: int
    folder: Path
    lives: list[Life] = field(default_factory=list)
    away_s: float = 0.0
    known: Remains | None = None

    @property
    def db(self) -> Path:
        """Its database."""
        return self.folder / "poimen.db"

    @property
    def witness(self) -> Witness:
        """What really happened."""
        return Witness(self.folder / "witness")

    @property
    def kills(self) -> int:
        """How many of its processes the operating system says were killed."""
        return sum(life.ended.was_killed for life in self.lives)

    @property
    def remains(self) -> Remains:
        """Its log and its witness, read one time; ask for it when the last life has ended."""
        if self.known is None:
            self.known = Remains.of(self)
        return self.known

    @override
    def __str__(self) -> str:
        return f"story {self.n} ({', then '.join(str(life.kill) for life in self.lives if life.ended.was_killed)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A record as it was read: `life` is the number of the process that wrote it, -1 if none says that it did."""

    lsn: int
    kind: str
    subject: str
    body: dict[str, Any]
    at: int
    life: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What a story has left.

    Arguments:
        facts: the run's records, in LSN order.
        hashes: the chain's hash at each LSN, as hex digits.
        state: the run's, empty where there is none.
        lines: the lines of the witness, each with the number of the life that wrote it.
        error: why the log could not be read; empty.
    """

    facts: tuple[Fact, ...] = ()
    hashes: tuple[str, ...] = ()
    state: str = ""
    lines: tuple[tuple[int, str], ...] = ()
    error: str = ""

    @classmethod
    def of(cls, story: Story) -> Remains:
        """Read what nobody has open."""
        ends = [life.seen for life in story.lives]
        lines = tuple(
            (next((n for n, end in enumerate(ends) if at < end), len(ends)), line)
            for at, line in enumerate(story.witness.lines())
        )
        asked = {
            one: n for n, life in enumerate(story.lives) for transaction in life.notes.asked for one in transaction
        }
        if not story.db.exists():
            return cls(lines=lines)
        try:
            records, state = _records(story.db)
        except Exception as error:  # noqa: BLE001 (whatever keeps a log from being read is what is looked for)
            return cls(lines=lines, error=f"{type(error).__name__}: {error}")
        facts = tuple(
            Fact(
                lsn=record.lsn,
                kind=record.kind,
                subject=record.subject,
                body=codec.plain(record),
                at=record.at,
                life=asked.get(record.record_id, -1),
            )
            for record in records
        )
        return cls(facts=facts, hashes=tuple(r.hash.hex() for r in records), state=state, lines=lines)

    def effects(self) -> list[EffectFacts]:
        """The effects of the run: what was asked of the world under one request id each, in their order."""
        found: dict[str, EffectFacts] = {}
        named: dict[str, str] = {}
        for fact in self.facts:
            if fact.kind == "intent.pending.v1":
                named[fact.subject] = request_id = fact.body["request_id"]
                if request_id not in found:
                    found[request_id] = EffectFacts(request_id=request_id, pending=fact.body)
            if fact.subject in named:
                found[named[fact.subject]].facts.append(fact)
        for effect in found.values():
            mine = {effect.request_id}
            effect.lines += [
                (life, line) for life, line in self.lines if line.partition(" ")[0].partition(".")[0] in mine
            ]
        return list(found.values())


@dataclass(kw_only=True)
class EffectFacts:
    """What was asked of the world under one request id.

    Arguments:
        request_id: its name; a later send of a READ says `ID.SEND` to the world.
        pending: the body of its first Pending.
        facts: every record of its intents, in LSN order.
        lines: what the witness has of it, each with the number of the life that wrote it.
    """

    request_id: str
    pending: dict[str, Any]
    facts: list[Fact] = field(default_factory=list)
    lines: list[tuple[int, str]] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Its place in the workflow: the key of the step, and the number of the effect where it is not the first."""
        ordinal = self.pending["ordinal"]
        return f"{self.pending['step']}/{ordinal}" if ordinal else str(self.pending["step"])

    @property
    def effect_class(self) -> str:
        """As declared when it was first asked for."""
        return str(self.pending["terms"]["effect_class"])

    @property
    def sends(self) -> int:
        """How many sends are on record."""
        return sum(fact.kind == "intent.dispatched.v1" for fact in self.facts)


def _records(db: Path) -> tuple[list[Record], str]:
    store = SqliteStore(db, read_only=True)
    try:
        head = store.head(RUN)
        return (store.read(RUN), head.state) if head is not None else ([], "")
    finally:
        store.close()


def stories_in(folder: Path, numbers: Sequence[int]) -> list[Story]:
    """New stories, each with an empty folder.

    Arguments:
        folder: of all.
        numbers: theirs.
    """
    made = [Story(n=n, folder=folder / f"story-{n:05}") for n in numbers]
    for story in made:
        story.folder.mkdir(parents=True)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where stories are lived.

    Arguments:
        forks: has loaded the targets.
        target: the workflow, called with its arguments or named.
        args: its arguments where it is only named.
        operator: a plain function of the database's path that decides what waits for a person; empty: nobody.
        sabotage: what to break in every process.
        width: how many go on beside each other.
        patience_s: how long one process may take, seconds.
    """

    forks: ForkServer
    target: Target
    args: Sequence[object] = ()
    operator: str = ""
    sabotage: str = ""
    width: int = 8
    patience_s: float = 60.0

    def live(self, stories: Sequence[Story], kills: Sequence[Kill], *, operator: bool = False) -> None:
        """Give each story one more life, beside each other.

        Arguments:
            stories: in which the run is started, for the first time or again.
            kills: where each dies.
            operator: it is the operator who is called, not the run.
        """
        pairs = list(zip(stories, kills, strict=True))
        begins = [partial(self._begin, story, kill, operator=operator) for story, kill in pairs]
        for (story, kill), ended in zip(pairs, in_parallel(begins, self.width), strict=True):
            notes = Notes.of(_notes(story))
            seen = len(story.witness)
            story.lives.append(Life(kill=kill, ended=ended, seen=seen, notes=notes, operator=operator))

    def _begin(self, story: Story, kill: Kill, *, operator: bool) -> Fork:
        what: dict[str, Any] = {"db": story.db, "run_id": RUN, "args": self.args}
        if operator:
            what = {"args": (str(story.db),)}
        return self.forks.begin(
            self.operator if operator else name_of(self.target) if self.args else self.target,
            at=kill.at,
            after_s=kill.after_s,
            notes=_notes(story),
            sabotage=self.sabotage,
            ahead_s=story.away_s,
            env={VARIABLE: str(story.folder / "witness")},
            output=story.folder / "output",
            patience_s=self.patience_s,
            **what,
        )


def _notes(story: Story) -> Path:
    return story.folder / f"notes-{len(story.lives)}"
