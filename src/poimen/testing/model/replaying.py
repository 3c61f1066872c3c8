"""A trace of the model on the real kernel: its plan, its fold, its ladder, a real log with its epochs.

Each move is made with what the kernel plans for it, appended to a log in memory under the mover's epoch, read back
and folded; then both must say the same of states, answers, classification, and of what is to be done next. This
module must never take from the model what the kernel can say itself. It keeps the invariant that a difference is told
with the step at which it appeared.

Source: design proof.md, P10.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from poimen import clock
from poimen._typing import override
from poimen.gate.ladder import LADDER, facts_from
from poimen.kernel import events as e
from poimen.kernel import intent as i
from poimen.kernel.effect_class import EffectClass, Terms
from poimen.kernel.errors import Fenced, PoimenError
from poimen.kernel.fold import apply
from poimen.kernel.ids import TRUNK
from poimen.kernel.plan import Answer, Claim, Send, Then, plan
from poimen.kernel.resolution import AskProbe, GiveUp, Land, SendAgain, rule
from poimen.kernel.views import RunView, newest_branch
from poimen.log import codec
from poimen.log.api import Batch
from poimen.log.memory import Contents, MemoryStore
from poimen.testing.model.rules import ruled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from poimen.kernel.plan import Plan
    from poimen.kernel.resolution import Ruling
    from poimen.kernel.views import AttemptView, IntentView
    from poimen.log.api import Lease
    from poimen.testing.model.state import Move, Setup, State

_RUN: Final = "modelled"
_STEP: Final = "act#0"
_BEGIN_US: Final = 1_700_000_000 * clock.US
_ERROR: Final = i.ErrorRecord(type="Modelled", message="")
_HALF_S: Final = 0.5
"""A lease of n ticks is over at tick n, for the log that counts its last moment in, too."""
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "send": (SendAgain,), "ask": (AskProbe,), "wait": (AskProbe,), "land": (Land,), "give_up": (GiveUp,)
}  # fmt: skip


def differences(setup: Setup, trace: Iterable[tuple[Move, State]]) -> list[str]:
    """Put a trace to the real kernel; what both say differently, the first place of it.

    Arguments:
        setup: of the trace, without a control.
        trace: the moves, each with the state after it.

    Returns:
        A sentence, or nothing when they agree to the end.
    """
    time = _Time()
    before = clock.use(time)
    try:
        real = _Real(setup, time)
        for n, (move, state) in enumerate(trace, start=1):
            try:
                real.make(move, state)
                real.compare(state)
            except (_Differs, PoimenError) as error:
                return [f"step {n}, {move.what} {' '.join(map(str, move.words))} by {move.who}: {error}"]
        return []
    finally:
        clock.use(before)


class _Differs(Exception):
    """Model and kernel say different things."""


class _Time(clock.Source):
    """A clock that shows the model's tick, a second each."""

    tick = 0

    @override
    def wall_us(self) -> int:
        return _BEGIN_US + self.tick * clock.US

    @override
    def boot_us(self) -> int:
        return self.wall_us()


def _same(what: str, model: object, kernel: object) -> None:
    if model != kernel:
        raise _Differs(f"{what}: the model says {model!r}, the kernel {kernel!r}")


class _Real:
    """The real thing behind one trace.

    Arguments:
        setup: of the trace.
        time: the clock in place.
    """

    def __init__(self, setup: Setup, time: _Time) -> None:
        self.setup, self.time = setup, time
        self.read = setup.effect_class == "READ"
        probing = "PROBE" in setup.effect_class
        self.terms = Terms(
            effect_class=EffectClass[setup.effect_class.removesuffix("+PROBE")],
            ttl_us=setup.ttl * clock.US if setup.effect_class.startswith("KEYED") else None,
            probe="find" if probing else None,
            probe_version="1" if probing else None,
            lag_us=setup.lag * clock.US,
            timeout_us=setup.timeout * clock.US,
            grace_us=setup.grace * clock.US,
            max_sends=setup.max_sends,
        )
        self.contents = Contents()
        self.store = MemoryStore(self.contents)
        self.view = RunView(run=_RUN)
        self.leases: dict[int, Lease] = {}
        self.attempt = 1
        self.append(
            0,
            e.RunAdmitted(workflow="w", version="1", code="c", args=b"{}", args_digest="d", nonce="n", by="model"),
            admits=True,
        )
        self.claim(1)
        self.append(1, e.BranchStarted(epoch=1, worker="w1", code="c"), self.started())

    # ---- the log -----------------------------------------------------------------------------------------------

    def append(self, epoch: int, *events: Any, admits: bool = False, seen: int | None = None) -> None:
        """Append under an epoch (0: as an outsider), read back, fold."""
        records = tuple(codec.record(event, branch=TRUNK) for event in events)
        batch = Batch(run=_RUN, records=records, epoch=epoch or None, admits=admits, seen=seen)
        (answer,) = self.store.commit([batch])
        if isinstance(answer, PoimenError):
            raise answer
        for stored in self.store.read(_RUN, after=self.view.lsn):
            event = codec.event_of(stored)
            apply(self.view, lsn=stored.lsn, at=stored.at, branch=stored.branch, event=event, epoch=stored.epoch)

    def claim(self, epoch: int) -> None:
        lease = self.store.claim(_RUN, worker=f"w{epoch}", lease_s=self.setup.lease - _HALF_S)
        _same("the lease", epoch, None if lease is None else lease.epoch)
        if lease is not None:
            self.leases[epoch] = lease

    def started(self) -> e.AttemptStarted:
        return e.AttemptStarted(
            step=_STEP, attempt=self.attempt, seq=0, kind="tool", name="act", version="1", args=b"{}", args_digest="d"
        )

    # ---- what is known -----------------------------------------------------------------------------------------

    @property
    def tried(self) -> AttemptView:
        return newest_branch(self.view).steps[_STEP].attempts[self.attempt - 1]

    @property
    def intent(self) -> IntentView:
        return self.tried.intents[0]

    @property
    def ids(self) -> dict[str, Any]:
        return {"step": _STEP, "attempt": self.attempt, "ordinal": 0}

    @property
    def of(self) -> dict[str, Any]:
        return {"step": _STEP, "attempt": self.attempt}

    def ruling(self, state: State) -> Ruling:
        facts = facts_from(
            self.intent,
            self.terms,
            self.view.requests["request"],
            taken_us=_BEGIN_US + state.taken * clock.US,
            latest_us=self.view.latest_at,
            loaded=self.terms.probe is not None,
        )
        return rule(replace(facts, probing_us=self.setup.probing * clock.US))

    def compare(self, state: State) -> None:
        """Model and kernel on the attempt, the intent, its sends, and what is to be done next."""
        _same("the attempt", (state.attempt_no, state.attempt), (self.attempt, self.tried.state.name))
        _same("the epoch", state.epoch, max(self.leases))
        _same("a cancel", state.cancelled, bool(newest_branch(self.view).cancel_lsn))
        if state.by == "inherited":
            return
        _same("the claim", state.pending, 0 in self.tried.intents)
        if not state.pending:
            return
        says = "committed" if state.closed else "dispatched" if state.sends else "pending"
        _same("the intent", says, self.intent.state.value)
        _same("sends", len(state.sends), len(self.intent.sends))
        answers = [bool(send.answer) for send in state.sends]
        if not state.closed:
            _same("answers", answers, [send.outcome is not None for send in self.intent.sends])
        elif not self.read:
            _same("landed", state.closed == "landed", self.intent.landed)
        asks = any(w.doing == "open" and w.epoch == state.epoch for w in state.workers)
        if asks and state.open and state.attempt == "RUNNING" and not state.cancelled:
            self.compare_ruling(state)

    def compare_ruling(self, state: State) -> None:
        mine, theirs = ruled(state, self.setup), self.ruling(state)
        demoted = theirs.demotions[-1].to.name if theirs.demotions else ""
        _same("a demotion", mine.demote, demoted)
        if not isinstance(theirs, _KINDS[mine.do]):
            raise _Differs(f"next: the model says {mine.do}, the kernel {theirs}")

    # ---- the moves ---------------------------------------------------------------------------------------------

    def make(self, move: Move, state: State) -> None:
        """Make one move as the kernel plans it."""
        self.time.tick = state.now
        made = getattr(self, f"_{move.what}", None)
        if made is not None:
            made(move, state)

    def _claim(self, move: Move, _: State) -> None:
        self.claim(move.who)

    def _renew(self, move: Move, _: State) -> None:
        kept = self.store.renew([self.leases[move.who]], lease_s=self.setup.lease - _HALF_S)
        _same("renewed", 1, len(kept))

    def _crash(self, move: Move, _: State) -> None:
        self.contents.workers.discard(f"w{move.who}")

    _leave = _crash

    def _cancel(self, *_: object) -> None:
        self.append(0, e.CancelRequested(by="model", why="enough"))

    def _resolve(self, move: Move, _: State) -> None:
        to = i.Resolution(move.words[0])
        self.append(0, i.IntentResolved(**self.ids, to=to, rule="person", by="model", why="seen"))

    def _classify(self, move: Move, _: State) -> None:
        found = i.classify(self.intent.state) if self.tried.intents and move.words[0] else None
        _same("classified", move.words[0], "" if found is None else found.value)
        resumed = e.AttemptResumed(**self.of, epoch=move.who)
        if found is None:
            self.append(move.who, resumed)
            return
        sends = len(self.intent.sends)
        self.append(move.who, i.IntentClassified(**self.ids, classification=found, send=sends, epoch=move.who), resumed)

    def _pend(self, move: Move, _: State) -> None:
        pending = i.IntentPending(
            **self.ids, tool="act", version="1", terms=self.terms, args_digest="d", request_id="request"
        )
        self.append(move.who, *plan(None, Claim(pending=pending)).commit)

    def _dispatch(self, move: Move, _: State) -> None:
        planned = plan(self.intent, Send(called_off=""))
        _same("then", Then.CALL, planned.then)
        self.append(move.who, *planned.commit, seen=self.view.outsider_lsn)

    def _outcome(self, answer: str) -> i.Outcome:
        if answer == "returned":
            return i.Returned(value=b"null")
        if self.read:
            return i.FailedRead(error=_ERROR)
        return i.RejectedOutcome(error=_ERROR) if answer == "rejected" else i.NotSentOutcome(error=_ERROR)

    def _answer_of(self, answer: str, send: int, why: i.DropReason = "timeout") -> Plan:
        outcome = None if answer == "maybe" else self._outcome(answer)
        return plan(self.intent, Answer(send=send, outcome=outcome, effect_class=self.terms.effect_class, why=why))

    def _record(self, move: Move, state: State) -> None:
        how, answer = str(move.words[0]), str(move.words[-1])
        send = len(self.intent.sends)
        if how == "maybe":
            _same("then", Then.CLIMB, self._answer_of("maybe", send).then)
        elif how == "dropped":
            self._end(move.who, state, *self._answer_of("maybe", send, "cancel").commit)
        elif how == "answered":
            planned = self._answer_of(answer, send)
            _same("then", Then.CLIMB, planned.then)
            self.append(move.who, *planned.commit)
        elif how == "committed":
            planned = self._answer_of(answer, send)
            _same("then", Then.CLOSE, planned.then)
            self._end(move.who, state, *planned.commit)
        elif how == "closed":
            planned = self._answer_of(answer, send)
            if not self.read:
                _same("then (it has landed, as a late outcome says)", Then.CLIMB, planned.then)
            self._end(move.who, state, *planned.commit)

    def _fenced(self, move: Move, _: State) -> None:
        try:
            self.append(move.who, e.AttemptResumed(**self.of, epoch=move.who))
        except Fenced:
            pass
        else:
            raise _Differs("a driver with a stale epoch appended")
        self._late_outcome(move)

    def _late_outcome(self, move: Move) -> None:
        answer, send = (*move.words, "maybe", 0)[:2] if move.words else ("maybe", 0)
        if answer != "maybe":
            outcome = self._outcome(str(answer))
            self.append(0, i.LateOutcome(**self.ids, send=int(send), epoch=move.who, outcome=outcome))

    def _late(self, move: Move, _: State) -> None:
        self._late_outcome(move)

    def _demote(self, move: Move, state: State) -> None:
        for one in self.ruling(state._replace(demoted="")).demotions:
            _same("demoted", move.words[0], one.to.name)
            self.append(
                move.who, i.IntentDemoted(**self.ids, frm=one.frm, to=one.to, rule=one.rule, inputs=dict(one.inputs))
            )

    def _ask(self, move: Move, _: State) -> None:
        says: Any = move.words[0]
        asked_at = clock.wall_us()
        self.append(move.who, i.IntentProbed(**self.ids, answer=says, evidence="", by=LADDER, asked_at=asked_at))

    def _land(self, move: Move, state: State) -> None:
        found = i.IntentResolved(**self.ids, to=i.Resolution.LANDED, rule="probe-landed", by="probe", why="found")
        self._end(move.who, state, found)

    def _stop(self, move: Move, state: State) -> None:
        self._end(move.who, state, *self._dropped(), why=str(move.words[0]))

    def _give_up(self, move: Move, state: State) -> None:
        self._end(move.who, state, *self._dropped())

    def _found_closed(self, move: Move, state: State) -> None:
        self._end(move.who, state)

    def _dropped(self) -> tuple[Any, ...]:
        if not (self.read and 0 in self.tried.intents and self.intent.open):
            return ()
        return self._answer_of("maybe", len(self.intent.sends), "cancel").commit

    def _end(self, who: int, state: State, *events: Any, why: str = "left_unresolved") -> None:
        """End the attempt as the model says; the fold refuses what its table has no arm for."""
        cause: Any = why
        ends: dict[str, Any] = {
            "SUCCEEDED": lambda: e.AttemptSucceeded(**self.of, ordinal=0),
            "FAILED": lambda: e.AttemptFailed(**self.of, error=_ERROR),
            "CANCELLED": lambda: e.AttemptCancelled(**self.of, why="cancel"),
            "TIMED_OUT": lambda: e.AttemptTimedOut(**self.of, error=_ERROR),
            "INDETERMINATE": lambda: e.AttemptIndeterminate(**self.of, cause=cause, unknown=(0,)),
        }
        self.append(who, *events, ends[state.attempt]())

    def _resume(self, move: Move, state: State) -> None:
        self.attempt += 1
        self.append(move.who, self.started())
        inherited = newest_branch(self.view).steps[_STEP].inherited(self.attempt)
        _same("inherited", state.attempt != "RUNNING", 0 in inherited)
        if state.attempt == "SUCCEEDED":
            _same("landed", 1, inherited[0].landed)
            self._end(move.who, state)
        elif state.attempt == "FAILED":
            _same("abandoned", 1, inherited[0].abandoned)
            self._end(move.who, state)
