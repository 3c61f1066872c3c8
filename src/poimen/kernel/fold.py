"""From records to what is known: one pure function, applied record by record.

The fold of a prefix of the log is the state at that LSN; folding on from there or from nothing gives
the same. This module must never know about I/O or clocks; it keeps the invariants I3 (LSNs without
gap), I5 (nothing leaves a terminal state) and I10 (one request id, one tool, one args digest) by
refusing a record that breaks them.

Source: design protocol.md, sections 1 to 5 and 8.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from poimen.kernel import attempt as a
from poimen.kernel import branch as b
from poimen.kernel.attempt import AttemptState, transition
from poimen.kernel.effect_class import EffectClass
from poimen.kernel.errors import invariant, violated
from poimen.kernel.events import (
    TELLING,
    AppendSettled,
    AttemptCancelled,
    AttemptFailed,
    AttemptIndeterminate,
    AttemptResumed,
    AttemptStarted,
    AttemptSucceeded,
    AttemptTimedOut,
    BranchEnded,
    BranchResumed,
    BranchStarted,
    BranchVerifying,
    BranchWaiting,
    CancelDelivered,
    DecisionRecorded,
    DecisionSettled,
    ResumeRequested,
    RunAdmitted,
    StepComputed,
    TimerFired,
    tells,
)
from poimen.kernel.events import CancelRequested as RunCancelRequested
from poimen.kernel.ids import BranchId, IntentId, RunId, StepKey
from poimen.kernel.intent import (
    UNANSWERED,
    IntentClaimed,
    IntentClassified,
    IntentCommitted,
    IntentDemoted,
    IntentDispatched,
    IntentPending,
    IntentProbed,
    IntentResolved,
    LateOutcome,
    OfIntent,
    ReadDropped,
    Resolution,
    Returned,
    RuleApplied,
    SendAnswered,
    SendView,
    did_nothing,
    no_of,
)
from poimen.kernel.plan import leaves_open
from poimen.kernel.views import (
    AttemptView,
    BranchView,
    IntentView,
    RequestView,
    RunView,
    StepView,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from poimen.kernel.events import AttemptEvent, BranchEvent, Event, OtherEvent
    from poimen.kernel.intent import IntentEvent


def fold(run: str, records: Iterable[tuple[int, int, str, Event, int]]) -> RunView:
    """Fold the records of a run, `(lsn, at, branch, event, epoch)` in LSN order from 1."""
    view = RunView(run=run)
    for lsn, at, branch, event, epoch in records:
        apply(view, lsn=lsn, at=at, branch=branch, event=event, epoch=epoch)
    return view


def apply(view: RunView, *, lsn: int, at: int, branch: str, event: Event, epoch: int) -> None:
    """Fold one more record into the view.

    Arguments:
        view: what is known below `lsn`.
        lsn: the record's LSN, one above the view's.
        at: when it was written, microseconds since the Unix epoch.
        branch: its branch.
        event: what it says.
        epoch: the driver's epoch, 0 for an outsider.

    Raises:
        InvariantViolated: when the record cannot follow what is known.
        IllegalTransition: when it would move a state where the table has no arm.
    """
    if lsn != view.lsn + 1:
        violated("the LSNs of a run have no gap", run=view.run, lsn=lsn, after=view.lsn)
    view.lsn = lsn
    if at > view.latest_at:  # noqa: PLR1730 (for each record: calling max costs several times as much)
        view.latest_at = at
    if not epoch:
        view.outsider_lsn = lsn
    line = view.branches.get(branch)
    if line is None:
        _without_branch(view, event, lsn, at, branch)
    elif isinstance(event, OfIntent):
        _intent(view, line, event, lsn, at)
        if epoch and isinstance(event, TELLING):
            _told(line, event, lsn)
    else:
        _fold(line, event, lsn, at)


def _without_branch(view: RunView, event: Event, lsn: int, at: int, branch: str) -> None:
    if isinstance(event, RunAdmitted):
        invariant(lsn == 1, "a run is admitted by its first record", run=view.run, lsn=lsn)
        view.admitted, view.admitted_at = event, at
        view.branches[branch] = BranchView(id=BranchId(branch), state=b.BranchState.PENDING)
    else:
        invariant(isinstance(event, AppendSettled), "a record belongs to a branch that exists", run=view.run, lsn=lsn)


def _fold(line: BranchView, event: AttemptEvent | BranchEvent | OtherEvent, lsn: int, at: int) -> None:
    match event:
        case AttemptStarted() | StepComputed():
            _started(line, event, lsn, at)
        case AttemptSucceeded() | AttemptFailed() | AttemptTimedOut() | AttemptIndeterminate() | AttemptCancelled():
            _ended(line, event, lsn, at)
        case AttemptResumed():
            line.steps[event.step].attempts[event.attempt - 1].resumes += line.recovered
        case BranchStarted() | BranchResumed() | BranchWaiting() | BranchVerifying() | BranchEnded():
            _branch(line, event)
        case RunCancelRequested():
            if not line.cancel_lsn:
                line.cancel_lsn, line.cancel_by, line.cancel_why = lsn, event.by, event.why
        case CancelDelivered():
            line.cancel_delivered = True
        case ResumeRequested():
            line.resume_lsn, line.resumes = lsn, 0
            for step in line.steps.values():
                step.last.resumes = 0
        case DecisionRecorded():
            line.decided(event, lsn=lsn, at=at)
        case DecisionSettled():
            _settle(line, event.id, "rejected" if event.rejected else "settled")
        case TimerFired():
            line.resumes = 0
            if event.step:
                line.steps[event.step].attempts[event.attempt - 1].fired += ((lsn, event.n),)
        case RunAdmitted():
            violated("a run is admitted by its first record", branch=line.id, lsn=lsn)
        case AppendSettled():
            pass  # it changes no branch


_ADMITTED, _COMPLETED = a.Admitted(), a.Completed()


def _told(line: BranchView, event: IntentCommitted | IntentResolved | ReadDropped | RuleApplied, lsn: int) -> None:
    if tells(event):
        line.steps[event.step].attempts[event.attempt - 1].intents[event.ordinal].told_lsn = lsn


def _settle(line: BranchView, decision: str, how: str) -> None:
    known = line.decisions.get(decision)
    if known is not None and not known.settled:
        line.decisions[decision] = replace(known, settled=how)


def _started(line: BranchView, event: AttemptStarted | StepComputed, lsn: int, at: int) -> None:
    step = line.steps.get(event.step)
    line.resumes = 0
    if step is None:
        step = line.steps[event.step] = StepView(
            key=event.step,
            seq=event.seq,
            kind=event.kind,
            name=event.name,
            version=event.version,
            args=event.args,
            args_digest=event.args_digest,
        )
    number = event.attempt if isinstance(event, AttemptStarted) else 1
    if number > len(step.attempts):
        step.attempts.append(AttemptView(no=number))
    if number != len(step.attempts):
        violated("attempts are numbered without a gap", step=event.step, attempt=number)
    attempt = step.last
    attempt.state = transition(attempt.state, _ADMITTED)
    attempt.started_lsn, attempt.started_at = lsn, at
    if isinstance(event, StepComputed):
        attempt.started_at = event.started_at
        attempt.state = transition(attempt.state, _COMPLETED)
        attempt.value, attempt.ended_lsn, attempt.ended_at = event.value, lsn, at


def _ended(
    line: BranchView,
    event: AttemptSucceeded | AttemptFailed | AttemptTimedOut | AttemptIndeterminate | AttemptCancelled,
    lsn: int,
    at: int,
) -> None:
    step = line.steps[event.step]
    attempt = step.attempts[event.attempt - 1]
    cause: a.Cause
    match event:
        case AttemptSucceeded():
            cause = _COMPLETED
            attempt.value = event.value
            if event.value is None and event.ordinal is not None:
                attempt.value = step.effect(event.attempt, event.ordinal).value
        case AttemptFailed():
            cause = a.Errored()
            attempt.error = event.error
        case AttemptTimedOut():
            cause = a.StepDeadlinePassed(intent_dispatched=attempt.has_open)
            attempt.error = event.error
        case AttemptIndeterminate():
            known = [attempt.intents.get(ordinal) for ordinal in event.unknown]
            left = [i for i in known if i is not None and (i.open or i.resolution is not None)]
            invariant(left and len(left) == len(known), "an Indeterminate attempt has an unknown effect", lsn=lsn)
            cause = _unknown_cause(event)
            attempt.told, attempt.unknown_ordinals = event.told, event.unknown
            for ordinal in event.running:
                attempt.intents[ordinal].running += 1
        case AttemptCancelled():
            cause = a.CancelRequested(intent_dispatched=attempt.has_open)
            attempt.cause = event.why
    attempt.state = transition(attempt.state, cause)
    attempt.ended_lsn, attempt.ended_at = lsn, at
    line.resumes = 0
    if attempt.state is not _ENDS.get(type(event), attempt.state):
        violated("a record ends its attempt as the table says", step=event.step, lsn=lsn)
    if isinstance(event, AttemptFailed | AttemptTimedOut) and event.retry_at is not None:
        step.attempts.append(AttemptView(no=event.attempt + 1, not_before=event.retry_at))


_ENDS: Final[Mapping[type, AttemptState]] = {
    AttemptTimedOut: AttemptState.TIMED_OUT,
    AttemptIndeterminate: AttemptState.INDETERMINATE,
    AttemptCancelled: AttemptState.CANCELLED,
}


def _unknown_cause(event: AttemptIndeterminate) -> a.Cause:
    match event.cause:
        case "left_unresolved":
            return a.LeftUnresolved()
        case "cancel":
            return a.CancelRequested(intent_dispatched=True)
        case "deadline":
            return a.StepDeadlinePassed(intent_dispatched=True)


def _intent(view: RunView, line: BranchView, event: IntentEvent, lsn: int, at: int) -> None:
    attempt = line.steps[event.step].attempts[event.attempt - 1]
    if isinstance(event, IntentPending):
        attempt.resumes = line.resumes = 0
        _pending(view, line, attempt, event, lsn)
        return
    intent = attempt.intents[event.ordinal]
    intent.last_lsn = lsn
    match event:
        case IntentDispatched():
            attempt.resumes = line.resumes = 0
            if event.send != len(intent.sends) + 1:
                violated("sends are numbered without a gap", intent=str(intent.id))
            if intent.outcome is not None or intent.resolution is not None:
                violated("nothing is sent after its outcome", lsn=lsn)
            intent.sends.append(SendView(send=event.send, lsn=lsn, at=at, boot=(event.boot_us, line.boot)))
            request = view.requests[intent.pending.request_id]
            if not request.first_dispatched_at:
                request.first_dispatched_at, request.first_boot = at, (event.boot_us, line.boot)
            request.sends += 1
        case IntentCommitted() | SendAnswered():
            attempt.resumes = line.resumes = 0
            intent.sends[event.send - 1].outcome = event.outcome
            if isinstance(event, IntentCommitted):
                if intent.outcome is not None:
                    violated("one outcome per intent", intent=str(intent.id), lsn=lsn)
                intent.outcome = event.outcome
                if intent.pending.decision and not did_nothing(event.outcome):
                    _settle(line, intent.pending.decision, "carried out")
        case IntentClassified():
            intent.classification, intent.classified_send = event.classification, event.send
        case IntentProbed():
            intent.probes += ((lsn, event, line.boot),)
        case IntentDemoted():
            intent.demoted_to = event.to
            intent.lapsed = intent.lapsed or event.rule != "stricter-now"
        case IntentResolved():
            intent.resolution = event
            if intent.pending.decision and event.to is Resolution.LANDED:
                _settle(line, intent.pending.decision, "carried out")
        case LateOutcome():
            _late(intent, event)
        case IntentClaimed():
            intent.claimed_by = event.by
        case ReadDropped():
            intent.dropped, intent.timed_out = True, event.why in UNANSWERED
        case RuleApplied() if event.rule == "call-ended":
            intent.running = max(0, intent.running - 1)
        case RuleApplied() if event.rule == "begins-late":
            intent.sends[-1].begins_late(at, event.inputs.get("boot_us"))
        case RuleApplied():
            pass  # it tells readers


def _pending(view: RunView, line: BranchView, attempt: AttemptView, event: IntentPending, lsn: int) -> None:
    intent = IntentView(
        id=IntentId(
            run=RunId(view.run), branch=line.id, step=StepKey(event.step), attempt=event.attempt, ordinal=event.ordinal
        ),
        pending=event,
        pending_lsn=lsn,
        last_lsn=lsn,
    )
    attempt.intents[event.ordinal] = intent
    known = view.requests.get(event.request_id)
    if known is None or not known.first_dispatched_at:
        view.requests[event.request_id] = RequestView(tool=event.tool, args_digest=event.args_digest)
    else:
        same = known.tool == event.tool and known.args_digest == event.args_digest
        invariant(
            same or event.terms.effect_class is EffectClass.READ,
            "one request id is one tool and one args digest",
            request_id=event.request_id,
            lsn=lsn,
        )
    view.generations.setdefault((event.step, event.ordinal, event.tool), []).append(intent)


def _late(intent: IntentView, event: LateOutcome) -> None:
    intent.late += (event.outcome,)
    intent.running = max(0, intent.running - 1)
    if not intent.open:
        return
    intent.sends[event.send - 1].outcome = event.outcome
    outcome, landed = event.outcome, isinstance(event.outcome, Returned)
    later_unknown = any(s.outcome is None for s in intent.sends[event.send :])
    if not landed and (later_unknown or leaves_open(outcome, intent, event.send)):
        return
    intent.late_no = no_of(outcome)
    intent.resolution = IntentResolved(
        step=event.step,
        attempt=event.attempt,
        ordinal=event.ordinal,
        to=Resolution.LANDED if landed else Resolution.NOT_LANDED,
        rule="late_outcome",
        by="late",
        why="the call came back after it had been given up",
        value=outcome.value if isinstance(outcome, Returned) else None,
    )


def _branch(
    line: BranchView, event: BranchStarted | BranchResumed | BranchWaiting | BranchVerifying | BranchEnded
) -> None:
    match event:
        case BranchStarted():
            line.state = b.branch_transition(line.state, b.Started())
            line.code, line.boot = event.code, event.boot
        case BranchResumed():
            if line.state is b.BranchState.WAITING:
                line.state = b.branch_transition(line.state, b.Woken())
                line.waiting = ()
            line.recovered = event.why == "recovered"
            line.resumes += line.recovered
            line.code, line.boot = event.code, event.boot
        case BranchWaiting():
            line.state = b.branch_transition(line.state, b.Parked())
            line.waiting, line.waiting_code = event.reasons, event.code
        case BranchVerifying():
            line.state = b.branch_transition(line.state, b.BodyEnded())
            line.body = event
        case BranchEnded():
            line.state = b.branch_transition(line.state, b.Ended(to=b.BranchState(event.state)))
            line.ended = event
            if line.state is b.BranchState.SUCCEEDED:
                for decision in line.decisions:
                    _settle(line, decision, "run succeeded")
