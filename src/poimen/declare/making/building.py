"""From a function and its settings to the declared name: check, close away, dress.

One table says how each setting is checked and which field of the spec it becomes. This module must
never know what the settings are for; it keeps the invariant that a setting that was given is checked.

Source: design api.md, "Declaring".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from poimen.declare.making.candidate import Candidate
from poimen.declare.making.dressing import Likeness, tool_like, workflow_like
from poimen.declare.shapes import Verifier
from poimen.declare.specs import Budget, ToolSpec, VerifierSpec, WorkflowSpec
from poimen.declare.states import States
from poimen.later import not_built

Check: TypeAlias = Callable[[Candidate, str, Any], Any]


def _optional(check: Check) -> Check:
    return lambda one, argument, value: None if value is None else check(one, argument, value)


_FIELDS: Final[dict[str, tuple[str, Check]]] = {
    "effect": ("effect", Candidate.effect),
    "summary": ("summary", Candidate.text),
    "stake": ("stake", Candidate.text),
    "timeout": ("timeout_s", Candidate.seconds),
    "grace": ("grace_s", Candidate.seconds_or_none),
    "attempts": ("attempts", Candidate.count),
    "backoff": ("backoff_s", Candidate.seconds_or_none),
    "rejected": ("rejected", Candidate.errors),
    "not_sent": ("not_sent", Candidate.errors),
    "retry_on": ("retry_on", _optional(Candidate.errors)),
    "exchanges": ("exchanges", _optional(Candidate.count)),
    "max_sends": ("max_sends", Candidate.count),
    "undo": ("undo", _optional(Candidate.undo)),
    "on_indeterminate": ("on_indeterminate", _optional(Candidate.on_indeterminate)),
    "queue_timeout": ("queue_timeout_s", _optional(Candidate.seconds)),
}

_DEADLINES: Final = ("timeout", "queue_timeout")
"""Of a step."""

_WORKFLOW_FIELDS: Final[dict[str, tuple[str, Check]]] = {
    "states": ("states", _optional(lambda one, argument, value: one.instance(argument, value, States))),
    "verifiers": ("verifiers", Candidate.verifiers),
    "timeout": ("timeout_s", _optional(Candidate.seconds)),
    "budget": ("budget", _optional(lambda one, argument, value: one.instance(argument, value, Budget))),
    "on_indeterminate": ("on_indeterminate", Candidate.on_indeterminate),
}

_VERIFIER_FIELDS: Final[dict[str, tuple[str, Check]]] = {
    "gate": ("gate", lambda one, argument, value: one.instance(argument, value, bool)),
    "timeout": ("timeout_s", Candidate.seconds),
    "needs": ("needs", Candidate.needs),
}


def declared_tool(fn: object, kind: Literal["tool", "model", "step"], settings: Mapping[str, Any]) -> Any:
    """Declare a tool, model or step.

    Arguments:
        fn: the function as written.
        kind: which of the three.
        settings: the decorator's own arguments by name.

    Raises:
        BadDeclaration: the function or a setting cannot be used.
        NotBuiltYet: a step is given a deadline.
        NotStorable: a parameter or the result can never be stored.
    """
    one = Candidate.of(fn, kind, settings["name"])
    if kind == "step":
        settings = _without_deadlines(one, settings)
    fields = _checked(one, settings, _FIELDS)
    spec = ToolSpec(
        kind=kind,
        parameters=one.parameters(),
        **fields,
        **one.probe(fields.get("effect")),
        **one.common(settings["version"]),
    )
    return tool_like(spec, Likeness.of(one), one.source.__globals__)


def _without_deadlines(one: Candidate, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A step's settings without its deadlines: one that nobody would keep yet is refused, not ignored."""
    for argument in _DEADLINES:
        if settings[argument] is not None:
            one.seconds(argument, settings[argument])
            not_built(f"step({argument}=)")
    return {argument: value for argument, value in settings.items() if argument not in _DEADLINES}


def declared_workflow(fn: object, settings: Mapping[str, Any]) -> Any:
    """Declare a workflow; as `declared_tool`."""
    one = Candidate.of(fn, "workflow", settings["name"])
    fields = _checked(one, settings, _WORKFLOW_FIELDS)
    spec = WorkflowSpec(parameters=one.parameters(), **fields, **one.common(settings["version"]))
    return workflow_like(spec, Likeness.of(one), one.source.__globals__)


def declared_verifier(fn: object, settings: Mapping[str, Any]) -> Verifier:
    """Declare a verifier; as `declared_tool`."""
    one = Candidate.of(fn, "verifier", None)
    one.takes_one_context()
    fields = _checked(one, settings, _VERIFIER_FIELDS)
    return Verifier(VerifierSpec(**fields, **one.common(settings["version"])))


def _checked(one: Candidate, settings: Mapping[str, Any], table: Mapping[str, tuple[str, Check]]) -> dict[str, Any]:
    return {
        field: check(one, argument, settings[argument])
        for argument, (field, check) in table.items()
        if argument in settings
    }
