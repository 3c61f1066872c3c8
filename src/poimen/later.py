"""Names of the public interface whose machinery is not in this version, and which part brings it.

Their types ship now, so that programs written against them can be checked; called, they raise
`NotBuiltYet` before anything happens. This module must never know what the names do; it keeps the
invariant that there is one list of them: a name that is refused is in it, and a name in it is refused.
When the list is empty this module goes.
"""

from __future__ import annotations

from typing import Final, NoReturn

from poimen.kernel.errors import NotBuiltYet

SUBJECTS: Final = {
    3: "people, time, children, queues, budgets",
    4: "branches, episodes, verdicts",
}
"""Part → what it is about."""

PARTS: Final[dict[str, int]] = {
    "Carrier.attached": 3,
    "Carrier.wrap": 3,
    "Client.answer": 3,
    "Client.raise_budget": 3,
    "Run.emitted": 3,
    "Run.signal": 3,
    "Runtime(audit=)": 3,
    "Runtime.queue": 3,
    "Runtime.schedule": 3,
    "SyncClient": 3,
    "ToolOutcome.text": 3,
    "Toolset.call": 3,
    "Toolset.schemas": 3,
    "ask": 3,
    "carry": 3,
    "child": 3,
    "cleanup": 3,
    "emit": 3,
    "now": 3,
    "patched": 3,
    "perform": 3,
    "receive": 3,
    "resource": 3,
    "rng": 3,
    "set_state": 3,
    "sleep": 3,
    "step(queue_timeout=)": 3,
    "step(timeout=)": 3,
    "start(budget=)": 3,
    "start(priority=)": 3,
    "start(queue=)": 3,
    "start(timeout=)": 3,
    "usage": 3,
    "uuid4": 3,
    "workflow(budget=)": 3,
    "workflow(timeout=)": 3,
    "BranchDiff._repr_html_": 4,
    "Client.verify": 4,
    "RewindPlan.apply": 4,
    "Run.branches": 4,
    "Run.diff": 4,
    "Run.episode": 4,
    "Run.plan_rewind": 4,
    "Run.retry": 4,
    "Verifier.__call__": 4,
    "context": 4,
    "testing.load_episode": 4,
    "testing.verifier_ctx": 4,
    "workflow(verifiers=)": 4,
}
"""Name → the part that brings its machinery."""


def not_built(name: str) -> NoReturn:
    """Refuse a name whose machinery is not there yet.

    Arguments:
        name: a key of `PARTS`.

    Raises:
        NotBuiltYet: always.
    """
    part = PARTS[name]
    raise NotBuiltYet(
        f"poimen.{name} is not in this version",
        why=f"its machinery comes with part {part} ({SUBJECTS[part]}); nothing was done",
        hint="the changelog says when it is there",
        name=name,
        part=part,
    )
