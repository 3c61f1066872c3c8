"""The states of an attempt, and the one function that moves it.

An attempt is one numbered try at a step. What may end it, and how, is the table below and nothing
else. The closed set is the point: a new state or a new cause is a type error here until somebody
has said what it means in each place. This module must never know about time, storage or how a
cause came to be known. It keeps I5 (nothing leaves a terminal state), and the distinction between
a stop that was decided (CANCELLED, TIMED_OUT) and an effect that nobody knows about (INDETERMINATE).

Source: requirement attempt-state.md; design protocol.md, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias, assert_never

from poimen.kernel.errors import IllegalTransition


class AttemptState(Enum):
    """Where an attempt stands.

    INDETERMINATE: an effect was dispatched and what became of it is unknown. CANCELLED and TIMED_OUT:
    stopped by a decision or a deadline, with nothing dispatched that is not resolved.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    INDETERMINATE = "INDETERMINATE"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"


TERMINAL: Final = frozenset(
    {
        AttemptState.SUCCEEDED,
        AttemptState.FAILED,
        AttemptState.INDETERMINATE,
        AttemptState.CANCELLED,
        AttemptState.TIMED_OUT,
    }
)
"""The states that nothing leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The attempt was taken from the queue and its code is about to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """Somebody asked for a stop, or the run's deadline passed.

    Arguments:
        intent_dispatched: an intent of this attempt is Dispatched without an outcome, after the
            tool's grace. Read from the intent records, never guessed from where the code stopped.
    """

    intent_dispatched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDeadlinePassed:
    """The attempt waited for admission longer than it was allowed to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The step's code returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errored:
    """The step's code raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDeadlinePassed:
    """The step ran longer than its timeout.

    Arguments:
        intent_dispatched: as in `CancelRequested`.
    """

    intent_dispatched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftUnresolved:
    """An intent was Dispatched, has no outcome, and its class's rule could not find one."""


Cause: TypeAlias = (
    Admitted | CancelRequested | QueueDeadlinePassed | Completed | Errored | StepDeadlinePassed | LeftUnresolved
)


def transition(state: AttemptState, cause: Cause) -> AttemptState:
    """The state that an attempt moves to.

    Arguments:
        state: where it stands.
        cause: what happened to it.

    Raises:
        IllegalTransition: the table has no such arm; `.state` and `.cause` are the arguments.

    Source: requirement attempt-state.md, "Normative legal set".
    """
    match state:
        case AttemptState.PENDING:
            match cause:
                case Admitted():
                    return AttemptState.RUNNING
                case CancelRequested(intent_dispatched=dispatched):
                    if dispatched:
                        raise _refused(state, cause, why="an attempt that has not started has dispatched nothing")
                    return AttemptState.CANCELLED
                case QueueDeadlinePassed():
                    return AttemptState.TIMED_OUT
                case Completed() | Errored() | StepDeadlinePassed() | LeftUnresolved():
                    raise _refused(state, cause, why="an attempt that has not started cannot end by its own code")
            assert_never(cause)
        case AttemptState.RUNNING:
            match cause:
                case Completed():
                    return AttemptState.SUCCEEDED
                case Errored():
                    return AttemptState.FAILED
                case StepDeadlinePassed(intent_dispatched=dispatched):
                    return AttemptState.INDETERMINATE if dispatched else AttemptState.TIMED_OUT
                case CancelRequested(intent_dispatched=dispatched):
                    return AttemptState.INDETERMINATE if dispatched else AttemptState.CANCELLED
                case LeftUnresolved():
                    return AttemptState.INDETERMINATE
                case Admitted() | QueueDeadlinePassed():
                    raise _refused(state, cause, why="the attempt has left the queue already")
            assert_never(cause)
        case (
            AttemptState.SUCCEEDED
            | AttemptState.FAILED
            | AttemptState.INDETERMINATE
            | AttemptState.CANCELLED
            | AttemptState.TIMED_OUT
        ):
            raise _refused(state, cause, why="nothing leaves a terminal state")
    assert_never(state)


def _refused(state: AttemptState, cause: Cause, *, why: str) -> IllegalTransition:
    return IllegalTransition(
        f"an attempt that is {state.name} cannot move by {cause!r}",
        why=why,
        hint="the legal moves are in docs/reference/states.md",
        state=state,
        cause=cause,
    )
