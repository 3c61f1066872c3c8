"""The errors of poimen, in one family, grouped by who can act; a few stand beside the one thing that raises them.

A message says what happened, where, why it matters and how to go on. The docstring of each class is its long form
(`poimen explain CODE`). This module must never know about I/O; it keeps the invariant that a code never changes.

Source: design api.md, "Errors".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from poimen._typing import override

if TYPE_CHECKING:
    from collections.abc import Mapping


class PoimenError(Exception):
    """The base of all errors of poimen.

    Arguments:
        message: what happened, in one sentence.
        where: `file:line`, a value's path, or the id of the thing concerned.
        why: why it matters.
        hint: how to go on; replaces the class's own.
        ids: further facts, readable as attributes.
    """

    code: ClassVar[str] = "PO000"
    hint: str = ""

    def __init__(self, message: str = "", *, where: str = "", why: str = "", hint: str = "", **ids: Any) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.why = why
        if hint:
            self.hint = hint
        self.ids: Mapping[str, Any] = ids
        for name, value in ids.items():
            setattr(self, name, value)

    @classmethod
    def title(cls) -> str:
        """The first line of the long form."""
        return (cls.__doc__ or cls.__name__).partition("\n")[0].rstrip(".:")

    @override
    def __str__(self) -> str:
        parts = (("at ", self.where), ("", self.why), ("go on: ", self.hint))
        first = f"{self.code} {flat(self.message) or type(self).title()}"
        return "\n".join([first, *(f"      {head}{flat(said)}" for head, said in parts if said)])


def flat(text: object) -> str:
    """A text on one line: what somebody else has said, a far side perhaps, cannot look like a line of ours."""
    return " ".join(str(text).splitlines())


# ---- you: the code or the call is wrong --------------------------------------------------------------------


class NotBuiltYet(PoimenError):
    """The name is part of the public interface, its machinery is not in this version.

    Nothing has happened: the error is raised before any record is written. `poimen doctor` and the changelog say which
    version brings it.
    """

    code = "PO100"


class IllegalTransition(PoimenError):
    """A state was asked to move where the normative table has no arm.

    Nothing leaves a terminal state, and each cause is legal from exactly one state. The table is in
    `docs/reference/states.md`. From user code this is a move of a domain state that the workflow did not declare.
    """

    code = "PO101"
    state: object = None
    cause: object = None


class UnguardedEffect(PoimenError):
    """A tool, model or step was called where no run stands behind it.

    Outside a run there is no log to write the intent to, so the call is refused before anything is done. Start a run
    around it (`poimen.run(workflow(...))`), or, in a test, take the plain function with `poimen.testing.raw(tool)`.
    """

    code = "PO102"
    hint = "call it inside a workflow started by poimen.run(...), or use poimen.testing.raw(tool) in a test"


class WouldBlock(PoimenError):
    """A synchronous call was made where an event loop runs in this thread.

    It would block the loop that has to carry it out. Use the awaitable face: `await tool.aio(...)`.
    """

    code = "PO103"
    hint = "await NAME.aio(...) instead"


class DecisionConflict(PoimenError):
    """A decision id was used again with another value.

    The recorded decision stands. A decision id names one choice in the history of a branch; use another id for another
    choice.
    """

    code = "PO104"


class DuplicateKey(PoimenError):
    """An explicit `key=` was used twice in one branch, or contains `#`.

    A key names one step for ever, so that a restart finds it again.
    """

    code = "PO105"


class RunExists(PoimenError):
    """A run of this id exists with another workflow or other arguments.

    The same id with the same input is the same run. Choose another id for other input.
    """

    code = "PO106"


class NotStorable(PoimenError):
    """A value cannot be written to the log, or does not match its annotation.

    Refused before anything happened. Storable are JSON types, dataclasses, enums, datetime, date, time, timedelta,
    Decimal, UUID, bytes, pydantic models, msgspec structs and types with a registered codec.
    """

    code = "PO107"
    path: str = ""


class Conflict(PoimenError):
    """Somebody else has appended about the same subject since you looked.

    Nothing was written. Look again, decide anew, and pass the LSN you saw.
    """

    code = "PO108"
    hint = "look again and pass the LSN that is shown now"


class BadDeclaration(PoimenError):
    """A decorator was used in a way that cannot work.

    The message names the function and the argument. Nothing was registered.
    """

    code = "PO109"


class NotFound(PoimenError):
    """No run, intent or decision of this name exists.

    Ids accept any unique prefix; a bare noun lists what there is. A database that is not there is PO403.
    """

    code = "PO110"


class ConfigurationError(PoimenError):
    """A setting cannot be used: an unreadable file, an unknown scheme, a filesystem that cannot be trusted.

    `poimen doctor` shows which setting won and where it came from.
    """

    code = "PO111"


class ReadOnly(PoimenError):
    """The database was opened for reading only, and the call would write."""

    code = "PO112"


class CodeChanged(PoimenError):
    """The code asks for something else than what is recorded.

    What it asks for was not executed, and nothing was replayed as another call's result; what is recorded stands. Put
    the code back that recorded the run, or load that version, and start the run again under its id.
    """

    code = "PO204"
    hint = "with the code that recorded it: poimen run FILE_OR_MODULE:WORKFLOW --id RUN"


# ---- what the world answered -------------------------------------------------------------------------------


class Rejected(PoimenError):
    """The far side said no: nothing happened.

    A tool raises it (or lists exception types in `rejected=`) when the far side refused the request. It speaks for one
    send; `all_sends=True` says that no earlier send of the same request id landed either.
    """

    code = "PO301"

    # Tools raise this and the next one: nothing but what stands here is taken, so that no slip of the pen is lost.
    def __init__(
        self, message: str = "", *, all_sends: bool = False, where: str = "", why: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, where=where, why=why, hint=hint)
        self.all_sends = all_sends


class NotSent(PoimenError):
    """The request was refused before any byte of it left: nothing happened."""

    code = "PO302"

    def __init__(self, message: str = "", *, where: str = "", why: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, why=why, hint=hint)


class StepError(PoimenError):
    """A step failed with an error whose type is not part of the closed set.

    `type` is the name of the exception's class, `message` its text, `fields` those of its attributes that are plain
    values; nothing is unpickled. While the process lives that raised it, the original is `__cause__`.
    """

    code = "PO303"

    def __init__(self, type: str = "", message: str = "", fields: Mapping[str, Any] | None = None) -> None:  # noqa: A002
        super().__init__(message)
        self.type = type
        self.fields: Mapping[str, Any] = fields or {}

    @override
    def __str__(self) -> str:
        return flat(f"{self.type}: {self.message}" if self.message else self.type)


# ---- the operator must decide ------------------------------------------------------------------------------


class IndeterminateOutcome(PoimenError):
    """An effect may have happened and nobody knows.

    Raised only where `on_indeterminate="raise"` was chosen. The intent is in the inbox: verify first at the far side,
    never simply try again.
    """

    code = "PO310"
    hint = "poimen inbox show INTENT"
    intent_id: str = ""


class EffectAbandoned(PoimenError):
    """An operator closed an unknown effect as abandoned; its step fails with this."""

    code = "PO311"
    intent_id: str = ""


class BudgetReached(PoimenError):
    """A budget of the run is used up; an operator may raise it."""

    code = "PO312"
    hint = "poimen inbox budget RUN --usd AMOUNT"


class CrashLoop(PoimenError):
    """The process died several times in the same attempt without a new record of that attempt.

    The attempt is stopped so that other runs go on. Look at the recorded causes, mend the code, then `poimen runs
    resume RUN`.
    """

    code = "PO313"
    hint = "poimen runs show RUN; mend the cause; poimen runs resume RUN"


class RunEnded(PoimenError):
    """The run has ended otherwise than with a result."""

    code = "PO320"
    run_id: str = ""


class RunFailed(RunEnded):
    """The workflow raised; `error` is what is recorded of it. Nothing leaves FAILED: a new id does all of it anew."""

    code = "PO321"
    error: StepError


class RunCancelled(RunEnded):
    """The run was cancelled; `unresolved` effects are still unknown and stay in the inbox."""

    code = "PO322"
    unresolved: int = 0


class RunTimedOut(RunEnded):
    """The run's deadline passed; `unresolved` effects are still unknown and stay in the inbox."""

    code = "PO323"
    unresolved: int = 0


class RunRejected(RunEnded):
    """A gate among the run's verifiers said no; `verdicts` has what they said."""

    code = "PO324"
    verdicts: tuple[Any, ...] = ()


class RunWaiting(PoimenError):
    """Only somebody else can move the run now: `reason` says who, `command` says how."""

    code = "PO330"
    reason: str = ""
    command: str = ""


# ---- this worker must stop ---------------------------------------------------------------------------------


class Fenced(PoimenError):
    """Another worker holds the run under a newer epoch: this one may append nothing more to it."""

    code = "PO401"


class CommitUnknown(PoimenError):
    """The commit failed in a way that leaves open whether it is on disk.

    A failed commit is unknown, not undone. This handle acknowledges nothing more; the next opening of the database
    settles each doubtful append by its record id and logs what it found.
    """

    code = "PO402"
    hint = "end this process; the next opening for writing settles the doubtful records (poimen db check --rebuild)"


class StorageFailed(PoimenError):
    """The database cannot be used: not there, locked, unreachable, full, or closed by a failure."""

    code = "PO403"


# ---- tell a person -----------------------------------------------------------------------------------------


class Corrupt(PoimenError):
    """A record, a blob or the chain over the log does not match its hash.

    Reading stops at the last good record. Restore a verified backup; nothing is repaired silently.
    """

    code = "PO501"
    hint = "poimen log check; restore a verified backup"


class InvariantViolated(PoimenError):
    """poimen has found itself in a state that its own rules exclude: a bug of ours.

    It stops before writing anything further. Please report it with the output of `poimen log show`.
    """

    code = "PO900"


class Suspended(BaseException):
    """The run is being parked: let it pass through.

    A BaseException, so that `except Exception` does not swallow it. In `finally` no effect can be made.
    """


def invariant(holds: object, rule: str, **ids: Any) -> None:
    """Raise `InvariantViolated`, naming the rule and the `ids`, unless it holds; `python -O` does not remove it."""
    if not holds:
        violated(rule, **ids)


def violated(rule: str, **ids: Any) -> NoReturn:
    """Raise `InvariantViolated`."""
    facts = ", ".join(f"{name}={value!r}" for name, value in ids.items())
    raise InvariantViolated(rule, where=facts, **ids)
