"""poimen: a durable runtime for agents that act.

The public names and nothing else. Type checkers see them all at once; a running program imports
each from its home when it is first asked for, so that `import poimen` costs next to nothing. This
module must never hold anything of its own; it keeps the invariant that each name is exported once.

Source: design api.md.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poimen import effects, testing
    from poimen.declare.calling import Current, current, decide, request_id, settle
    from poimen.declare.decorators import model, step, tool, verifier, workflow
    from poimen.declare.shapes import AnyTool, AsyncTool, Call, SyncTool, Verifier, Workflow
    from poimen.declare.specs import Budget, Errors, OnUnknown, Seconds, Summary
    from poimen.declare.states import States
    from poimen.declare.toolset import ToolOutcome, ToolSchema, Toolset
    from poimen.declare.values import register_codec
    from poimen.effects import Absent, Landed, Unknown
    from poimen.engine.client import Client
    from poimen.engine.handle import Run
    from poimen.engine.runtime import Runtime, SyncClient, run
    from poimen.engine.surface.inside import (
        Carrier,
        Json,
        carry,
        cleanup,
        context,
        emit,
        now,
        patched,
        resource,
        rng,
        set_state,
        usage,
        uuid4,
    )
    from poimen.engine.surface.results import (
        Branch,
        BranchDiff,
        DiffRow,
        EarlierEffect,
        Emitted,
        InboxItem,
        RewindPlan,
        RunState,
        Standing,
    )
    from poimen.engine.surface.waits import ask, child, perform, receive, sleep
    from poimen.episodes import (
        AttemptView,
        BlobRef,
        BlobStore,
        EpisodeView,
        OpenIntent,
        StepView,
        Totals,
        UsageTotals,
        Verdict,
        VerifierCtx,
    )
    from poimen.kernel.errors import (
        BadDeclaration,
        BudgetReached,
        CodeChanged,
        CommitUnknown,
        ConfigurationError,
        Conflict,
        Corrupt,
        CrashLoop,
        DecisionConflict,
        DuplicateKey,
        EffectAbandoned,
        Fenced,
        IllegalTransition,
        IndeterminateOutcome,
        InvariantViolated,
        NotBuiltYet,
        NotFound,
        NotSent,
        NotStorable,
        PoimenError,
        ReadOnly,
        Rejected,
        RunCancelled,
        RunEnded,
        RunExists,
        RunFailed,
        RunRejected,
        RunTimedOut,
        RunWaiting,
        StepError,
        StorageFailed,
        Suspended,
        UnguardedEffect,
        WouldBlock,
    )
    from poimen.kernel.ids import BadRunId
    from poimen.secrecy.named import Secret, SecretMissing

    __version__: str

_MODULES = ("effects", "testing")

_HOMES = {
    "declare.calling": "Current current decide request_id settle",
    "declare.decorators": "model step tool verifier workflow",
    "declare.shapes": "AnyTool AsyncTool Call SyncTool Verifier Workflow",
    "declare.specs": "Budget Errors OnUnknown Seconds Summary",
    "declare.states": "States",
    "declare.toolset": "ToolOutcome ToolSchema Toolset",
    "declare.values": "register_codec",
    "effects": "Absent Landed Unknown",
    "engine.client": "Client",
    "engine.handle": "Run",
    "engine.runtime": "Runtime SyncClient run",
    "engine.surface.inside": ("Carrier Json carry cleanup context emit now patched resource rng set_state usage uuid4"),
    "engine.surface.results": (
        "Branch BranchDiff DiffRow EarlierEffect Emitted InboxItem RewindPlan RunState Standing"
    ),
    "engine.surface.waits": "ask child perform receive sleep",
    "episodes": (
        "AttemptView BlobRef BlobStore EpisodeView OpenIntent StepView Totals UsageTotals Verdict VerifierCtx"
    ),
    "kernel.errors": (
        "BadDeclaration BudgetReached CodeChanged CommitUnknown ConfigurationError Conflict Corrupt CrashLoop "
        "DecisionConflict DuplicateKey EffectAbandoned Fenced IllegalTransition IndeterminateOutcome "
        "InvariantViolated NotBuiltYet NotFound NotSent NotStorable PoimenError ReadOnly Rejected RunCancelled "
        "RunEnded RunExists RunFailed RunRejected RunTimedOut RunWaiting StepError StorageFailed Suspended "
        "UnguardedEffect WouldBlock"
    ),
    "kernel.ids": "BadRunId",
    "secrecy.named": "Secret SecretMissing",
}

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Absent",
    "AnyTool",
    "AsyncTool",
    "AttemptView",
    "BadDeclaration",
    "BadRunId",
    "BlobRef",
    "BlobStore",
    "Branch",
    "BranchDiff",
    "Budget",
    "BudgetReached",
    "Call",
    "Carrier",
    "Client",
    "CodeChanged",
    "CommitUnknown",
    "ConfigurationError",
    "Conflict",
    "Corrupt",
    "CrashLoop",
    "Current",
    "DecisionConflict",
    "DiffRow",
    "DuplicateKey",
    "EarlierEffect",
    "EffectAbandoned",
    "Emitted",
    "EpisodeView",
    "Errors",
    "Fenced",
    "IllegalTransition",
    "InboxItem",
    "IndeterminateOutcome",
    "InvariantViolated",
    "Json",
    "Landed",
    "NotBuiltYet",
    "NotFound",
    "NotSent",
    "NotStorable",
    "OnUnknown",
    "OpenIntent",
    "PoimenError",
    "ReadOnly",
    "Rejected",
    "RewindPlan",
    "Run",
    "RunCancelled",
    "RunEnded",
    "RunExists",
    "RunFailed",
    "RunRejected",
    "RunState",
    "RunTimedOut",
    "RunWaiting",
    "Runtime",
    "Seconds",
    "Secret",
    "SecretMissing",
    "Standing",
    "States",
    "StepError",
    "StepView",
    "StorageFailed",
    "Summary",
    "Suspended",
    "SyncClient",
    "SyncTool",
    "ToolOutcome",
    "ToolSchema",
    "Toolset",
    "Totals",
    "UnguardedEffect",
    "Unknown",
    "UsageTotals",
    "Verdict",
    "Verifier",
    "VerifierCtx",
    "Workflow",
    "WouldBlock",
    "ask",
    "carry",
    "child",
    "cleanup",
    "context",
    "current",
    "decide",
    "effects",
    "emit",
    "model",
    "now",
    "patched",
    "perform",
    "receive",
    "register_codec",
    "request_id",
    "resource",
    "rng",
    "run",
    "set_state",
    "settle",
    "sleep",
    "step",
    "testing",
    "tool",
    "usage",
    "uuid4",
    "verifier",
    "workflow",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return _import_module(f"poimen.{name}")
        if name == "__version__":
            from importlib.metadata import version

            value = version("poimen")
        elif name in _HOME_OF:
            value = getattr(_import_module(f"poimen.{_HOME_OF[name]}"), name)
        else:
            raise AttributeError(f"module 'poimen' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return [*__all__, "__version__"]
