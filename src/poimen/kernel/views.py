"""What the fold knows of a run: its branches, steps, attempts and intents.

The fold owns these objects and is the only one to change them; everybody else reads. This module
must never know how records are read; it keeps the invariant that a view says nothing that is not in
a record at or below its LSN.

Source: design protocol.md, sections 3 and 5 ("A new attempt").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeAlias

from poimen.kernel.attempt import AttemptState
from poimen.kernel.effect_class import EffectClass, stricter_class
from poimen.kernel.errors import invariant
from poimen.kernel.intent import (
    Classification,
    IntentPending,
    IntentProbed,
    IntentResolved,
    IntentState,
    NotSentOutcome,
    Outcome,
    RejectedOutcome,
    Resolution,
    Returned,
    SendView,
    contradicts,
    did_nothing,
    short,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from poimen.kernel.branch import BranchState
    from poimen.kernel.events import BranchEnded, BranchVerifying, DecisionRecorded, RunAdmitted, Waiting
    from poimen.kernel.ids import BranchId, IntentId
    from poimen.kernel.intent import ErrorRecord, Payload


@dataclass(slots=True, kw_only=True)
class IntentView:
    """One effect, from its Pending to whatever is known of it.

    `running`: how many of its calls were given up and go on. `told_lsn` is the driver's record at whose place in the
    order the code is told of the end; 0 before it.
    `timed_out`: a READ that was given up without an answer, and whose code is told so. `late_no`: the far side's no
    that resolved it, which came when the call had been given up.
    """

    id: IntentId
    pending: IntentPending
    pending_lsn: int
    last_lsn: int
    told_lsn: int = 0
    sends: list[SendView] = field(default_factory=list)
    outcome: Outcome | None = None
    classification: Classification | None = None
    classified_send: int = -1
    resolution: IntentResolved | None = None
    dropped: bool = False
    timed_out: bool = False
    probes: tuple[tuple[int, IntentProbed, str], ...] = ()
    demoted_to: EffectClass | None = None
    lapsed: bool = False
    claimed_by: str = ""
    late: tuple[Outcome, ...] = ()
    late_no: RejectedOutcome | NotSentOutcome | None = None
    running: int = 0

    @property
    def says(self) -> str:
        """What it is, for people: its author's words, else the call without its arguments, which may be secret."""
        return self.pending.summary or short(self.pending.tool)

    @property
    def state(self) -> IntentState:
        """The last of the three records that is there (a resolution closes like an outcome)."""
        if self.outcome is not None or self.dropped or self.resolution is not None:
            return IntentState.COMMITTED
        return IntentState.DISPATCHED if self.sends else IntentState.PENDING

    @property
    def open(self) -> bool:
        """Dispatched, and nobody knows what became of it."""
        return bool(self.sends) and self.state is IntentState.DISPATCHED

    @property
    def effect_class(self) -> EffectClass:
        """The class by which it is judged: the one frozen in the Pending, or a stricter one on record."""
        frozen = self.pending.terms.effect_class
        return frozen if self.demoted_to is None else stricter_class(frozen, self.demoted_to)

    @property
    def landed(self) -> bool:
        """It is known to have happened. What the call itself came back with counts before what was said of it."""
        if isinstance(self.outcome, Returned):
            return True
        return self.resolution is not None and self.resolution.to is Resolution.LANDED

    @property
    def abandoned(self) -> bool:
        """An operator closed it without an answer."""
        return self.outcome is None and self.resolution is not None and self.resolution.to is Resolution.ABANDONED

    @property
    def did_nothing(self) -> bool:
        """Every send of it is known not to have landed (trivially so when there was none)."""
        if self.resolution is not None:
            return self.resolution.to is Resolution.NOT_LANDED
        if self.outcome is not None:
            return did_nothing(self.outcome)
        return not self.sends

    @property
    def value(self) -> Payload:
        """What it returned, or was said to have returned.

        Only for an intent that has landed.
        """
        if isinstance(self.outcome, Returned):
            return self.outcome.value
        return b"null" if self.resolution is None or self.resolution.value is None else self.resolution.value

    @property
    def contradicted(self) -> bool:
        """A call that had been given up came back otherwise than what was said of the effect: an alarm."""
        if self.open or self.effect_class is EffectClass.READ:
            return False
        return any(contradicts(late, landed=self.landed, sends=len(self.sends)) for late in self.late)

    @property
    def answered(self) -> bool:
        """There is something to tell the code that made it."""
        if self.outcome is not None or self.late_no is not None or self.timed_out:
            return True
        return self.resolution is not None and not self.did_nothing


@dataclass(slots=True, kw_only=True)
class AttemptView:
    """One try at a step. `resumes` counts resumptions after a crash since its last own record.

    `fired` has the timers of its code that fired, in order: `(lsn, n)`. `decided_lsn` is that of the newest decision
    that its code has taken; 0 before one.
    """

    no: int
    state: AttemptState = AttemptState.PENDING
    started_lsn: int = 0
    started_at: int = 0
    ended_lsn: int = 0
    ended_at: int = 0
    not_before: int = 0
    error: ErrorRecord | None = None
    value: Payload | None = None
    cause: str = ""
    told: bool = False
    unknown_ordinals: tuple[int, ...] = ()
    resumes: int = 0
    intents: dict[int, IntentView] = field(default_factory=dict)
    fired: tuple[tuple[int, int], ...] = ()
    decided_lsn: int = 0

    @property
    def live(self) -> bool:
        """Neither ended nor waiting to start."""
        return self.state is AttemptState.RUNNING

    @property
    def has_open(self) -> bool:
        """Of one of its effects nobody knows what became of it."""
        return any(intent.open for intent in self.intents.values())

    @property
    def late_no(self) -> RejectedOutcome | NotSentOutcome | None:
        """The far side's no to one of its effects, which came when the call had been given up."""
        return next((i.late_no for i in self.intents.values() if i.late_no is not None), None)

    def unknown(self) -> list[IntentView]:
        """Its intents that are Dispatched and unresolved, READs excepted."""
        return [i for i in self.intents.values() if i.open and i.effect_class is not EffectClass.READ]


Place: TypeAlias = tuple[Literal["effect", "timer"], int]
"""Something that an attempt's code is told, by its number: how an effect ended, that a timer fired."""


@dataclass(slots=True, kw_only=True)
class StepView:
    """A named unit of work in a branch, with all its attempts."""

    key: str
    seq: int
    kind: str
    name: str
    version: str
    args: Payload
    args_digest: str
    attempts: list[AttemptView] = field(default_factory=list)

    @property
    def last(self) -> AttemptView:
        """The newest attempt."""
        return self.attempts[-1]

    @property
    def parked(self) -> bool:
        """Its last attempt ended with an unknown that the workflow was not told of."""
        return self.last.state is AttemptState.INDETERMINATE and not self.last.told

    def effects(self, attempt: int) -> dict[int, IntentView]:
        """The effects that attempt `attempt` sees by ordinal: those it inherited, then its own."""
        own = self.attempts[attempt - 1].intents
        return {**self.inherited(attempt), **own} if attempt > 1 else dict(own)

    def effect(self, attempt: int, ordinal: int) -> IntentView:
        """The effect that attempt `attempt` sees at `ordinal`: its own, or one that it inherited."""
        own = self.attempts[attempt - 1].intents.get(ordinal)
        return own if own is not None else self.inherited(attempt)[ordinal]

    def inherited(self, attempt: int) -> dict[int, IntentView]:
        """What attempt `attempt` takes over from the one before.

        Everything up to the last effect that binds it; what is known to have done nothing after a resolution that was
        no late no is sent anew and therefore missing.
        """
        if attempt == 1:
            return {}
        before = self.effects(attempt - 1)
        last = self._last_binding(attempt, before)
        return {n: intent for n, intent in sorted(before.items()) if n <= last and intent.answered}

    def _last_binding(self, attempt: int, before: Mapping[int, IntentView]) -> int:
        """The ordinal of the last effect by which attempt `attempt` is bound, of those that the one before saw.

        It may not do again what returned or was resolved, READ excepted. It is told again what a decision was taken
        from. And it is told all that the attempt before was told when that one was given up for a late no: the two are
        one try of the code. A further attempt asks anew, as after a no that came in time.

        Returns:
            -1 when nothing binds it.
        """
        done = (
            n
            for n, intent in before.items()
            if intent.effect_class is not EffectClass.READ and (intent.landed or intent.abandoned)
        )
        past, own = self.attempts[: attempt - 1], self.attempts[attempt - 2]
        decided = (n for a in past for n, intent in a.intents.items() if 0 < intent.told_lsn < a.decided_lsn)
        late = self.kind == "step" and own.late_no is not None
        told = (n for n, i in own.intents.items() if late and (i.told_lsn or i.late_no is not None))
        return max(chain(done, decided, told), default=-1)

    def placed(self, attempt: int, ordinal: int) -> IntentView:
        """The effect at an inherited place of attempt `attempt`: of the newest attempt before it that has it."""
        return next(a.intents[ordinal] for a in reversed(self.attempts[: attempt - 1]) if ordinal in a.intents)

    def inherited_order(self, attempt: int) -> list[Place]:
        """In which order the code of attempt `attempt` is told what it inherits.

        As the attempt before was told it. Timers that fired and effects that were called off before the last
        binding effect was asked for, or before a decision, are part of the order: they led the code to where it was.
        """
        taken = self.inherited(attempt)
        if not taken:
            return []
        before, earlier = self.attempts[attempt - 2], self.inherited_order(attempt - 1)
        last = max(taken)
        asked_lsn = before.intents[last].pending_lsn if last in before.intents else 0
        if self.kind == "step" and before.late_no is not None:
            asked_lsn = before.ended_lsn
        asked_lsn = max(asked_lsn, before.decided_lsn)
        own: list[tuple[int, Place]] = [(i.told_lsn, ("effect", n)) for n, i in before.intents.items() if i.told_lsn]
        own += [(lsn, ("timer", n)) for lsn, n in before.fired]
        places = [place for place in earlier if place[0] == "timer" or place[1] not in before.intents]
        places += [p for lsn, p in sorted(own) if lsn < asked_lsn or (p[0] == "effect" and p[1] in taken)]
        return [*places, *(("effect", n) for n in taken if ("effect", n) not in places)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionView:
    """A decision of the branch. `owed` until settled, carried out by a committed effect, or the run succeeds."""

    id: str
    value: Payload
    value_digest: str
    lsn: int
    at: int
    step: str
    seq: int
    settled: str = ""

    @property
    def owed(self) -> bool:
        """Nothing says yet that it was carried out or rejected."""
        return not self.settled


@dataclass(slots=True, kw_only=True)
class RequestView:
    """One request id over all attempts and branches. `first_dispatched_at` is 0 before the first send."""

    tool: str
    args_digest: str
    first_dispatched_at: int = 0
    first_boot: tuple[int, str] = (0, "")
    sends: int = 0


@dataclass(slots=True, kw_only=True)
class BranchView:
    """One line of history of the run."""

    id: BranchId
    state: BranchState
    waiting: tuple[Waiting, ...] = ()
    waiting_code: str = ""
    cancel_lsn: int = 0
    cancel_by: str = ""
    cancel_why: str = ""
    cancel_delivered: bool = False
    resume_lsn: int = 0
    resumes: int = 0
    recovered: bool = False
    code: str = ""
    boot: str = ""
    body: BranchVerifying | None = None
    ended: BranchEnded | None = None
    steps: dict[str, StepView] = field(default_factory=dict)
    decisions: dict[str, DecisionView] = field(default_factory=dict)

    def decided(self, event: DecisionRecorded, *, lsn: int, at: int) -> None:
        """Take in a decision; one that was taken inside a step binds its attempts to what it was taken from."""
        self.decisions[event.id] = DecisionView(
            id=event.id,
            value=event.value,
            value_digest=event.value_digest,
            lsn=lsn,
            at=at,
            step=event.step,
            seq=event.seq,
        )
        if event.step:
            self.steps[event.step].attempts[event.attempt - 1].decided_lsn = lsn

    def intents(self) -> Iterator[IntentView]:
        """All intents, in the order of their steps and attempts."""
        for step in self.steps.values():
            for attempt in step.attempts:
                yield from attempt.intents.values()

    def unresolved(self) -> list[IntentView]:
        """Intents that may have been sent and that nobody has answered, READs excepted."""
        return [i for i in self.intents() if i.open and i.effect_class is not EffectClass.READ]


@dataclass(slots=True, kw_only=True)
class RunView:
    """Everything known of a run at `lsn`."""

    run: str
    lsn: int = 0
    admitted: RunAdmitted | None = None
    admitted_at: int = 0
    latest_at: int = 0
    outsider_lsn: int = 0
    branches: dict[str, BranchView] = field(default_factory=dict)
    requests: dict[str, RequestView] = field(default_factory=dict)
    generations: dict[tuple[str, int, str], list[IntentView]] = field(default_factory=dict)


LIVE = frozenset({AttemptState.PENDING, AttemptState.RUNNING})


def open_steps(line: BranchView) -> list[StepView]:
    """Steps whose last attempt has not ended."""
    return [s for s in line.steps.values() if s.last.state in LIVE]


def newest_branch(view: RunView) -> BranchView:
    """The newest branch of the run; the run's state is this branch's.

    Raises:
        InvariantViolated: before the run was admitted.
    """
    invariant(bool(view.branches), "the run was admitted", run=view.run)
    return next(reversed(view.branches.values()))
