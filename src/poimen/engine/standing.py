"""Where a run stands: why it does not move, which command moves it, what waits for a person.

Pure reading, used by clients and the command line alike. This module must never append; it keeps the
invariant that a run which is not terminal always says why it does not move and which command moves it.

Source: design protocol.md, section 2; mission.md, promise 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from poimen import clock
from poimen.engine.reading import has_ended
from poimen.engine.surface.results import InboxItem, RunState, Standing
from poimen.gate.ladder import facts_from
from poimen.kernel.branch import OperatorMatter, WaitReason, command, moves_by_itself, shown
from poimen.kernel.errors import (
    RunWaiting,
)
from poimen.kernel.events import BranchResumed, BranchStarted
from poimen.kernel.intent import Returned, cut, written
from poimen.kernel.resolution import AskProbe, rule
from poimen.kernel.views import RunView, newest_branch
from poimen.log.api import TERMINAL_STATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poimen.kernel.events import Event, Waiting
    from poimen.kernel.views import BranchView, IntentView
    from poimen.log.api import Head


BY_PEOPLE = frozenset({WaitReason.OPERATOR, WaitReason.HUMAN, WaitReason.CODE, WaitReason.BUDGET})
"""Reasons that only somebody else can remove."""


def matter_of(waiting: Waiting) -> OperatorMatter:
    """What an operator is asked for; a record of old says it in its detail alone."""
    looping = waiting.matter == "crash-loop" or (not waiting.matter and waiting.detail.startswith("crash loop"))
    return OperatorMatter.CRASH_LOOP if looping else OperatorMatter.UNKNOWN_EFFECT


def workflow_of(view: RunView) -> str:
    """The name of the run's workflow."""
    return view.admitted.workflow if view.admitted is not None else "WORKFLOW"


def command_of(view: RunView, waiting: Waiting) -> str:
    """The command that moves what waits so; "" where there is none to type."""
    reason, matter = WaitReason(waiting.reason), matter_of(waiting)
    return command(reason, run=view.run, about=waiting.about, workflow=workflow_of(view), matter=matter)


def order(line: BranchView) -> list[Waiting]:
    """The reasons of a wait, in the order in which they are shown."""
    ranks = {reason: n for n, reason in enumerate(shown(WaitReason(w.reason) for w in line.waiting))}
    return sorted(line.waiting, key=lambda w: ranks[WaitReason(w.reason)])


def holding(view: RunView) -> list[Waiting]:
    """The reasons of a wait that still hold, first the one to look at; empty when whoever drives it next goes on."""
    line = newest_branch(view)
    if line.state.name != "WAITING" or line.cancel_lsn or line.resume_lsn == view.lsn:
        return []
    answered = {str(i.id) for branch in view.branches.values() for i in branch.intents() if not i.open}
    return [w for w in order(line) if w.about not in answered]


def standing_of(view: RunView, head: Head | None, *, driven: bool) -> Standing:
    """Where a run stands.

    Arguments:
        view: the run as folded.
        head: its row, for the lease.
        driven: somebody alive holds its lease.
    """
    line = newest_branch(view)
    state = RunState(line.state.value)
    reason: str | None = None
    what: str | None = None
    holds = holding(view)
    if holds:
        first = holds[0]
        kind = WaitReason(first.reason)
        itself = moves_by_itself(kind, matter_of(first))
        reason = f"{first.reason}: {first.detail or first.about}" + (f" (or {itself})" if itself else "")
        what = command_of(view, first) or None
    elif not has_ended(view) and not driven:
        reason = "no live worker drives it" + (f"; cancelled by {line.cancel_by}" if line.cancel_lsn else "")
        what = command(WaitReason.CODE, run=view.run, workflow=workflow_of(view))
    return Standing(state=state, reason=reason, command=what, lsn=head.lsn if head is not None else view.lsn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A probe that is asked again: its intent, what it said last, when it is asked, and from when an absence counts.

    Times are in microseconds since the Unix epoch; `counts_us` is 0 once an absence counts.
    """

    intent: IntentView
    answer: str
    at_us: int
    counts_us: int


def asking(view: RunView, records: Sequence[tuple[int, Event, int]]) -> list[Asking]:
    """What the ladder of whoever drives the run waits for: derived from the records as the ladder derives it.

    Arguments:
        view: the run, driven by somebody alive.
        records: its records, as `read_run` gives them.
    """
    now_us = clock.wall_us()
    taken = max((at for at, event, _ in records if isinstance(event, BranchStarted | BranchResumed)), default=0)
    found: list[Asking] = []
    for intent in (i for line in view.branches.values() for i in line.unresolved()):
        terms, request = intent.pending.terms, view.requests[intent.pending.request_id]
        facts = facts_from(intent, terms, request, taken_us=taken, latest_us=view.latest_at, loaded=True)
        ruling = rule(facts)
        if isinstance(ruling, AskProbe) and facts.readings:
            counts_us = int(ruling.inputs.get("settled_at_us", 0))
            last = facts.readings[-1].answer
            found.append(
                Asking(intent=intent, answer=last, at_us=ruling.at_us, counts_us=counts_us if counts_us > now_us else 0)
            )
    return found


def both_sides(view: RunView, waiting: Waiting) -> str:
    """Both sides of a difference between record and code, written out: agent text, for those who ask for it."""
    line, about = newest_branch(view), waiting.about
    step, decision = line.steps.get(about), line.decisions.get(about.removeprefix("decide:"))
    recorded = ""
    if step is not None and isinstance(step.args, bytes):
        recorded = written(step.name, step.args)
    elif decision is not None and isinstance(decision.value, bytes):
        recorded = f"decide({decision.id!r}, {cut(decision.value)})"
    sides = (("recorded: ", recorded), ("asked for: ", waiting.asked))
    return "; ".join(f"{which}{side}" for which, side in sides if side) if waiting.asked else ""


def waits_for(view: RunView, *, content: bool = True) -> RunWaiting | None:
    """The error for a run that only somebody else can move; None when it moves, or has ended.

    Arguments:
        view: the run.
        content: show what agents passed, where record and code differ.
    """
    line = newest_branch(view)
    if view.outsider_lsn == view.lsn:
        return None  # somebody has just acted on it: whoever drives it next goes on
    reasons = [w for w in order(line) if WaitReason(w.reason) in BY_PEOPLE] if line.state.name == "WAITING" else []
    if not reasons:
        return None
    first = reasons[0]
    what, differs = command_of(view, first), first.reason == "code"
    sides = both_sides(view, first) if content else ""
    sides = sides or f"what is recorded: poimen runs show {view.run} --content"
    return RunWaiting(
        f"run {view.run} waits for the {first.reason}: {first.detail or first.about}",
        where=first.about,
        why=f"nothing was executed of what the code asks for; {sides}"
        if differs
        else "nothing was lost; it goes on where it stands",
        hint=f"with the code that recorded it, or mended: {what}" if differs else what,
        reason=first.reason,
        command=what,
        run_id=view.run,
    )


def follows(view: RunView, intent: IntentView) -> str:
    """Why a resolution of this intent is a record and moves nothing; "" where the run goes on by it.

    Source: design protocol.md, section 5 ("After Indeterminate").
    """
    line = view.branches[intent.id.branch]
    if line.state.name in TERMINAL_STATES:
        return f"the run has ended ({line.state.name})"
    if line.cancel_lsn:
        return f"the run is being cancelled by {line.cancel_by}"
    if line.steps[intent.id.step].attempts[intent.id.attempt - 1].told:
        return "the workflow was told that it is unknown, and has gone on"
    return ""


def contradiction(intent: IntentView) -> str:
    """What to look at where a late outcome contradicts what was said of an effect; "" where none does."""
    closed = intent.resolution
    if not intent.contradicted or closed is None:
        return ""
    came = "a call that had returned" if any(isinstance(late, Returned) for late in intent.late) else "a no"
    return f"resolved as {closed.to.value.replace('_', ' ')} by {closed.by}, and then came {came}: look at the far side"


# ---- what waits for a person -----------------------------------------------------------------------------------


def inbox_of(view: RunView) -> list[InboxItem]:
    """What of this run waits for a person."""
    found: list[InboxItem] = []
    for branch in view.branches.values():
        for intent in branch.unresolved():
            attempt = branch.steps[intent.id.step].attempts[intent.id.attempt - 1]
            if attempt.live and branch.state.name not in TERMINAL_STATES and not branch.waiting:
                continue  # its ladder is at work, or the call is
            found.append(
                InboxItem(
                    id=str(intent.id),
                    kind="effect",
                    run_id=view.run,
                    summary=f"may have happened, verify first: {intent.says}",
                    lsn=intent.last_lsn,
                )
            )
    found.extend(
        InboxItem(id=view.run, kind="code", run_id=view.run, summary=waiting.detail or waiting.about, lsn=view.lsn)
        for waiting in holding(view)
        if waiting.reason == "code" or matter_of(waiting) is OperatorMatter.CRASH_LOOP
    )
    return found


def look_again(intent_id: str) -> str:
    """The hint for who has not seen the last record about an intent."""
    return f"look again, and pass the LSN that is shown now: poimen inbox show {intent_id}"
