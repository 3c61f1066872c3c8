"""What a crash left in a branch: which attempts go on, which effects are classified, what must be asked first.

The classification is itself a record, written before anything is done about it. Pure: it reads the
view and names records. This module must never act; it keeps the invariants that each send is
classified once, and that the intent whose key dies first comes first.

Source: requirement write-ahead-intent, "Restart classification"; design protocol.md, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from poimen.kernel.attempt import AttemptState
from poimen.kernel.effect_class import EffectClass, key_deadline_us
from poimen.kernel.events import AttemptCancelled, AttemptFailed, AttemptIndeterminate, AttemptResumed, Waiting
from poimen.kernel.intent import ErrorRecord, IntentClassified, ReadDropped, classify
from poimen.kernel.views import open_steps

if TYPE_CHECKING:
    from poimen.kernel.events import Event
    from poimen.kernel.intent import DropReason
    from poimen.kernel.views import AttemptView, BranchView, IntentView, RunView, StepView

MOST_RESUMES: Final = 3
"""After so many resumptions without a record of its own an attempt is stopped."""

_FAR: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What was left behind.

    Arguments:
        records: to append before anything else happens.
        resumed: to append with them where the branch goes on: the attempts whose code runs again.
        climb: intents that may have been sent, nearest key deadline first.
        stopped: why the branch must wait instead of going on; empty when it may go on.
    """

    records: tuple[Event, ...]
    resumed: tuple[Event, ...]
    climb: tuple[IntentView, ...]
    stopped: tuple[Waiting, ...]


def left_behind(view: RunView, line: BranchView, *, epoch: int, now_us: int) -> Left:
    """Look at a branch that another epoch left.

    Arguments:
        view: the run.
        line: its branch.
        epoch: of the lease that was just taken.
        now_us: the wall clock.
    """
    records: list[Event] = []
    resumed: list[Event] = []
    climb: list[IntentView] = []
    stopped: list[Waiting] = []
    for step in open_steps(line):
        attempt = step.last
        if attempt.state is not AttemptState.RUNNING:
            continue
        records += _classified(step, attempt, epoch)
        if attempt.resumes >= MOST_RESUMES:
            records += _looped(step, attempt, now_us)
            stopped.append(_looping(step.key, "crash loop: see its attempts"))
            continue
        resumed.append(AttemptResumed(step=step.key, attempt=attempt.no, epoch=epoch))
        climb += [intent for intent in attempt.intents.values() if intent.open]
    if line.resumes > MOST_RESUMES and not stopped:  # the branch's count holds the present resumption already
        stopped.append(_looping("workflow", "crash loop in the workflow's own code"))
    climb.sort(key=lambda intent: _deadline(view, intent))
    return Left(records=tuple(records), resumed=tuple(resumed), climb=tuple(climb), stopped=tuple(stopped))


def called_off(line: BranchView) -> tuple[Event, ...]:
    """The ends of the attempts that a cancelled branch still has, for when their code cannot end them.

    Nothing may be at work in it: what is Dispatched without an outcome now stays so.

    Arguments:
        line: the branch.

    Source: design protocol.md, section 1 (`intent_dispatched`; a READ is first closed by a `ReadDropped`).
    """
    records: list[Event] = []
    for step in open_steps(line):
        attempt = step.last
        unknown = tuple(sorted(intent.id.ordinal for intent in attempt.unknown()))
        records += dropped_reads(attempt, "cancel")
        if unknown:
            records.append(AttemptIndeterminate(step=step.key, attempt=attempt.no, cause="cancel", unknown=unknown))
            continue
        why = line.cancel_why or "the workflow has ended"
        records.append(AttemptCancelled(step=step.key, attempt=attempt.no, why=why))
    return tuple(records)


def _looping(about: str, detail: str) -> Waiting:
    return Waiting(reason="operator", about=about, detail=detail, matter="crash-loop")


def dropped_reads(attempt: AttemptView, why: DropReason) -> list[Event]:
    """The records that close what an attempt still reads, for the transaction that ends the attempt.

    Arguments:
        attempt: it ends.
        why: it is not the reads that end it.
    """
    return [
        ReadDropped(step=intent.id.step, attempt=attempt.no, ordinal=intent.id.ordinal, send=len(intent.sends), why=why)
        for intent in attempt.intents.values()
        if intent.open and intent.effect_class is EffectClass.READ
    ]


def _classified(step: StepView, attempt: AttemptView, epoch: int) -> list[Event]:
    found: list[Event] = []
    for ordinal, intent in sorted(attempt.intents.items()):
        said = classify(intent.state)
        if said is not None and intent.classified_send != len(intent.sends):
            found.append(
                IntentClassified(
                    step=step.key,
                    attempt=attempt.no,
                    ordinal=ordinal,
                    classification=said,
                    send=len(intent.sends),
                    epoch=epoch,
                )
            )
    return found


def _looped(step: StepView, attempt: AttemptView, now_us: int) -> list[Event]:
    unknown = tuple(intent.id.ordinal for intent in attempt.unknown())
    reads = dropped_reads(attempt, "crash-loop")
    if unknown:
        left = AttemptIndeterminate(step=step.key, attempt=attempt.no, cause="left_unresolved", unknown=unknown)
        return [*reads, left]
    error = ErrorRecord(
        type="CrashLoop", message=f"the process died {MOST_RESUMES} times in this attempt without a new record of it"
    )
    return [*reads, AttemptFailed(step=step.key, attempt=attempt.no, error=error, retry_at=now_us)]


def _deadline(view: RunView, intent: IntentView) -> int:
    request = view.requests.get(intent.pending.request_id)
    first = request.first_dispatched_at if request is not None else 0
    deadline = key_deadline_us(intent.pending.terms, first)
    return _FAR if deadline is None else deadline
