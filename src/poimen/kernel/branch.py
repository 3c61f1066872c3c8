"""The states of a branch, the one function that moves it, and why a branch waits.

State belongs to the branch; a run's state is that of its newest branch. VERIFYING is a resting place:
the body has ended, verifiers judge. This module must never know about steps, verdicts or storage; it
is told what happened. It keeps I5 (nothing leaves a terminal state), and it keeps promise 8: whatever
waits can say what moves it by itself and which command moves it.

Source: design protocol.md, section 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias, assert_never

from poimen.kernel.errors import IllegalTransition


class BranchState(Enum):
    """Where a branch stands."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    VERIFYING = "VERIFYING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    REJECTED = "REJECTED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"


BRANCH_TERMINAL: Final = frozenset(
    {
        BranchState.SUCCEEDED,
        BranchState.FAILED,
        BranchState.REJECTED,
        BranchState.CANCELLED,
        BranchState.TIMED_OUT,
    }
)
"""The states that nothing leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A worker drives the branch for the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """Nothing in it can move; the reasons are data beside the state, and may change while it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Woken:
    """Something that it waited for has come; a worker drives it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyEnded:
    """The body has returned or raised, and every workflow step is terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The branch is over.

    Arguments:
        to: how; after the body has ended it comes from `ending`, before that only a cancel and the run's
            deadline can end a branch.
    """

    to: BranchState


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound:
    """The run goes on on another branch; this one was still live and is left."""


BranchCause: TypeAlias = Started | Parked | Woken | BodyEnded | Ended | Rewound


def branch_transition(state: BranchState, cause: BranchCause) -> BranchState:
    """The state that a branch moves to.

    Arguments:
        state: where it stands.
        cause: what happened to it.

    Raises:
        IllegalTransition: the table has no such arm; `.state` and `.cause` are the arguments.

    Source: design protocol.md, section 2, "Legal moves".
    """
    match state:
        case BranchState.PENDING:
            match cause:
                case Started():
                    return BranchState.RUNNING
                case Ended(to=to):
                    return _stopped(state, cause, to)
                case Rewound():
                    return BranchState.CANCELLED
                case Parked() | Woken() | BodyEnded():
                    raise _refused(state, cause, why="nobody has driven it yet")
            assert_never(cause)
        case BranchState.RUNNING:
            match cause:
                case Parked():
                    return BranchState.WAITING
                case BodyEnded():
                    return BranchState.VERIFYING
                case Ended(to=to):
                    return _stopped(state, cause, to)
                case Rewound():
                    return BranchState.CANCELLED
                case Started() | Woken():
                    raise _refused(state, cause, why="it runs already")
            assert_never(cause)
        case BranchState.WAITING:
            match cause:
                case Woken():
                    return BranchState.RUNNING
                case Ended(to=to):
                    return _stopped(state, cause, to)
                case Rewound():
                    return BranchState.CANCELLED
                case Started() | Parked() | BodyEnded():
                    raise _refused(state, cause, why="it waits: it is woken first")
            assert_never(cause)
        case BranchState.VERIFYING:
            return _from_verifying(state, cause)
        case (
            BranchState.SUCCEEDED
            | BranchState.FAILED
            | BranchState.REJECTED
            | BranchState.CANCELLED
            | BranchState.TIMED_OUT
        ):
            raise _refused(state, cause, why="nothing leaves a terminal state")
    assert_never(state)


def ending(*, body_failed: bool, gate_refused: bool) -> BranchState:
    """How a branch in VERIFYING ends: a failed body is FAILED whatever the gates say.

    Arguments:
        body_failed: the body raised.
        gate_refused: at least one gate among the verifiers said no.
    """
    if body_failed:
        return BranchState.FAILED
    return BranchState.REJECTED if gate_refused else BranchState.SUCCEEDED


def _stopped(state: BranchState, cause: BranchCause, to: BranchState) -> BranchState:
    """Before its body has ended, a branch is ended by a cancel or by the run's deadline."""
    match to:
        case BranchState.CANCELLED | BranchState.TIMED_OUT:
            return to
        case BranchState.SUCCEEDED | BranchState.FAILED | BranchState.REJECTED:
            raise _refused(state, cause, why="a result is only given from VERIFYING, with or without verifiers")
        case BranchState.PENDING | BranchState.RUNNING | BranchState.WAITING | BranchState.VERIFYING:
            raise _refused(state, cause, why=f"{to.name} is no end")
    assert_never(to)


def _from_verifying(state: BranchState, cause: BranchCause) -> BranchState:
    """After its body has ended a branch has no deadline any more."""
    match cause:
        case Ended(to=to):
            match to:
                case BranchState.SUCCEEDED | BranchState.FAILED | BranchState.REJECTED | BranchState.CANCELLED:
                    return to
                case BranchState.TIMED_OUT:
                    raise _refused(state, cause, why="the body has ended in time; verifiers have their own deadlines")
                case BranchState.PENDING | BranchState.RUNNING | BranchState.WAITING | BranchState.VERIFYING:
                    raise _refused(state, cause, why=f"{to.name} is no end")
            assert_never(to)
        case Rewound():
            return BranchState.CANCELLED
        case Started() | Parked() | Woken() | BodyEnded():
            raise _refused(state, cause, why="its body has ended and is not run again")
    assert_never(cause)


def _refused(state: BranchState, cause: BranchCause, *, why: str) -> IllegalTransition:
    return IllegalTransition(
        f"a branch that is {state.name} cannot move by {cause!r}",
        why=why,
        hint="the legal moves are in docs/reference/states.md",
        state=state,
        cause=cause,
    )


# ---- why a branch waits ------------------------------------------------------------------------------------


class WaitReason(Enum):
    """Who or what can move a branch that waits; in the order in which reasons are shown."""

    OPERATOR = "operator"
    CODE = "code"
    BUDGET = "budget"
    HUMAN = "human"
    TIMER = "timer"
    DEPENDENCY = "dependency"


class OperatorMatter(Enum):
    """What an operator is asked for.

    UNKNOWN_EFFECT: an effect may have been made. CRASH_LOOP: a step dies each time. HELD_CALL: a call is
    held against an effect that another branch has made.
    """

    UNKNOWN_EFFECT = "unknown effect"
    CRASH_LOOP = "crash loop"
    HELD_CALL = "held call"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """`moves`: when it moves by itself, "" for never. `command`: with {run}, {about} and {workflow} to be filled in."""

    moves: str
    command: str


_OPERATOR: Final = {
    OperatorMatter.UNKNOWN_EFFECT: _Row(
        moves="a probe or a late outcome settles the intent",
        command="poimen inbox show {about}",
    ),
    OperatorMatter.CRASH_LOOP: _Row(moves="", command="poimen runs resume {run}"),
    OperatorMatter.HELD_CALL: _Row(moves="", command="poimen inbox show {about}"),
}

_ROWS: Final = {
    WaitReason.CODE: _Row(
        moves="a worker with another code digest claims it",
        command="poimen run FILE_OR_MODULE:{workflow} --id {run}",
    ),
    WaitReason.BUDGET: _Row(moves="", command="poimen inbox budget {run} --usd AMOUNT"),
    WaitReason.HUMAN: _Row(
        moves="the question is answered or its timeout passes", command="poimen inbox answer {about}"
    ),
    WaitReason.TIMER: _Row(moves="its time comes", command=""),
    WaitReason.DEPENDENCY: _Row(moves="the child ends", command=""),
}


def shown(reasons: Iterable[WaitReason]) -> tuple[WaitReason, ...]:
    """The reasons of a wait, each once, in the order in which they are shown."""
    held = set(reasons)
    return tuple(reason for reason in WaitReason if reason in held)


def moves_by_itself(reason: WaitReason, matter: OperatorMatter = OperatorMatter.UNKNOWN_EFFECT) -> str:
    """What would move the branch without anybody's doing; "" when nothing would.

    Arguments:
        reason: why it waits.
        matter: for OPERATOR, what the operator is asked for.
    """
    return _row(reason, matter).moves


def command(
    reason: WaitReason,
    *,
    run: str,
    about: str = "",
    workflow: str = "WORKFLOW",
    matter: OperatorMatter = OperatorMatter.UNKNOWN_EFFECT,
) -> str:
    """The command that moves the branch, ready to be pasted; "" where there is none to type.

    It is one command that works: where there is a choice to make, the one that shows the choices.

    Arguments:
        reason: why the branch waits.
        run: the run's id.
        about: the id of the thing concerned: intent, held call, question.
        workflow: the name of the run's workflow.
        matter: for OPERATOR, what the operator is asked for.
    """
    template = _row(reason, matter).command
    if not about:
        template = template.replace("{about}", "ID")
    return template.format(run=_word(run), about=_word(about), workflow=_word(workflow))


def _row(reason: WaitReason, matter: OperatorMatter) -> _Row:
    return _OPERATOR[matter] if reason is WaitReason.OPERATOR else _ROWS[reason]


_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789@%+=:,./#_-")


def _word(text: str) -> str:
    """The text as one word of a shell: step keys are free text, and operators paste what they are shown."""
    if not text.startswith(("#", "-")) and _PLAIN.issuperset(text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"
