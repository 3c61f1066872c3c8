"""How the page about the Python interface is divided: which name stands where, and the sentences between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page.

    Arguments:
        title: its heading.
        text: what stands before the names.
        names: what it describes, in order, as `tool`, `effects.KEYED`.
    """

    title: str
    text: str = ""
    names: tuple[str, ...] = ()


HEAD: Final = """\
# Python interface

Every public name, with its settings, their defaults and units. What is not in this version stands apart,
[at the end](#comes-in-a-later-version). How the parts work together:
[a long-lived agent](../guides/long-lived-agent.md). This page is made from the code by `make docs`.

- A length of time is a number of seconds or a `timedelta`. A name that ends in `_s` is in seconds.
- What stands behind `*` is given by name; `needed` means that there is no default.
- `import poimen` gives the names without a prefix; `from poimen import effects, ledger, testing` the others.

| I want to | look at |
|---|---|
| declare things | [`tool`](#tool), [`model`](#model), [`step`](#step), [`workflow`](#workflow) |
| say what a crash allows | [effect classes](#effect-classes) |
| change one call | [settings for one call](#asynctool) |
| run it | [`run`](#run), [`Runtime`](#runtime), [`Client`](#client), [`Run`](#run-1) |
| record a decision | [`decide`](#decide), [`settle`](#settle) |
| know where I am | [`request_id`](#request_id), [`current`](#current) |
| keep a secret out of the log | [`Secret`](#secret) |
| test it | [`poimen.testing`](#testing-killing-and-comparing) |
"""

DECORATORS: Final = ("tool", "model", "step", "workflow")

SECTIONS: Final = (
    Section(
        title="Declaring",
        text="A decorated name stays a plain function to look at; its types survive. `model`, `step` and `workflow` may"
        " stand bare (`@poimen.step`), `tool` needs `effect=`.",
        names=("tool", "model", "step", "workflow", "States"),
    ),
    Section(
        title="Effect classes",
        text="For `effect=`: what may be done with a call that a crash has interrupted. Which to take:"
        " [choosing a class](../guides/choosing-a-class.md); the rules: [effect classes](effect-classes.md). What a"
        " probe answers (`Landed`, `Absent`, `Unknown`) can be had from `poimen` as well.",
        names=(
            "effects.PURE",
            "effects.READ",
            "effects.IDEMPOTENT",
            "effects.KEYED",
            "effects.PROBE",
            "effects.AT_MOST_ONCE",
            "effects.Landed",
            "effects.Absent",
            "effects.Unknown",
            "effects.Effect",
            "effects.ProbingEffect",
        ),
    ),
    Section(
        title="Calling what was declared",
        text="What the decorators give: a name keeps the colour of its function, and has both faces and"
        " `.options(...)`.",
        names=("AsyncTool", "SyncTool", "Workflow", "Call"),
    ),
    Section(title="In a run", names=("decide", "settle", "request_id", "current", "Current", "Suspended")),
    Section(
        title="Running, looking, deciding",
        text="`poimen.run` for one run in one process; a `Runtime` for a process that lives long; a `Client` for all"
        " others.",
        names=("run", "Client", "Runtime", "Run", "RunState", "Standing", "InboxItem"),
    ),
    Section(
        title="Values",
        text="What can be stored: JSON types, tuples, sets, bytes, `datetime`, `date`, `time`, `timedelta`, `Decimal`,"
        " `UUID`, paths, enums, dataclasses, named tuples, typed dicts, attrs classes, msgspec structs, pydantic"
        " models, and classes with a registered codec. Arguments and results are checked against their annotations"
        " both ways. What the code is given is read from the stored bytes, live and replayed: objects and dicts come"
        ' back with their keys in order of their text (`{"z": 1, "a": 2}` as `{"a": 2, "z": 1}`, `{1: "a", -2: "b"}` as'
        ' `{-2: "b", 1: "a"}`), an `int` where `float` is annotated as a `float`, any `Sequence` as a list. So do the'
        " fields of a recorded error. A set has no order, and another in each process: loop over `sorted(found)`.",
        names=("register_codec", "Secret"),
    ),
    Section(
        title="ledger: decisions without a runtime",
        text="How it is used: [keep decisions without a runtime](../guides/decision-ledger.md).",
        names=("ledger.DecisionLedger", "ledger.LedgerView", "ledger.MAX_ID_CHARS", "ledger.MAX_LINE_BYTES"),
    ),
    Section(
        title="testing: killing and comparing",
        text="How it is used: [crash-test your own tools](../guides/crash-testing.md). The pytest plugin gives the"
        " fixtures `poimen_db` (a path for a database) and `witness` (a `Witness` that children find too), and calls"
        " `allow_raw`.",
        names=(
            "testing.crash",
            "testing.child_command",
            "testing.POINTS",
            "testing.COMMITS",
            "testing.sweep",
            "testing.Sweep",
            "testing.Swept",
            "testing.Kill",
            "testing.kill_sweep",
            "testing.Trial",
            "testing.disagreements",
            "testing.EVERY_POINT",
            "testing.WINDOW_A",
            "testing.WINDOW_B",
            "testing.Witness",
            "testing.recording_tool",
            "testing.CLASSES",
            "testing.sabotage",
        ),
    ),
    Section(
        title="testing: plain functions and fakes",
        names=("testing.raw", "testing.allow_raw", "testing.in_call", "testing.replace", "testing.Rendezvous"),
    ),
    Section(
        title="testing: kills anywhere",
        names=(
            "testing.kill_anywhere",
            "testing.contradictions",
            "testing.Contradiction",
            "testing.Story",
            "testing.Life",
            "testing.Remains",
            "testing.EffectFacts",
            "testing.Fact",
            "testing.Notes",
        ),
    ),
    Section(
        title="testing: many children",
        names=("testing.ForkServer", "testing.Fork", "testing.Ended"),
    ),
    Section(
        title="testing: secrets that are none",
        text="Give them to your agent wherever a secret could slip in, then search what it leaves behind. What counts"
        " as a secret: [secrets and limits](secrets-and-limits.md).",
        names=("testing.made_up_secrets", "testing.canaries_in", "testing.Canary", "testing.CANARY_KINDS"),
    ),
    Section(
        title="testing: what reaches the disk",
        names=(
            "testing.sync_counter",
            "testing.CountingVFS",
            "testing.taped",
            "testing.Tape",
            "testing.Entry",
            "testing.shared_syncs",
            "testing.entered_early",
            "testing.straced",
            "testing.strace_command",
            "testing.Traced",
        ),
    ),
    Section(
        title="testing: power loss and failing storage",
        text="How it is used: [cut the power, break the disk](../guides/disk-testing.md).",
        names=(
            "testing.power_sweep",
            "testing.PowerReport",
            "testing.Loss",
            "testing.Cut",
            "testing.fault_sweep",
            "testing.FaultTrial",
            "testing.fault_losses",
            "testing.Fault",
            "testing.faulty_storage",
            "testing.Layer",
        ),
    ),
    Section(
        title="testing: schedules",
        text="How it is used: [run it in another order](../guides/schedule-testing.md).",
        names=(
            "testing.simulate",
            "testing.schedule_sweep",
            "testing.ScheduleReport",
            "testing.ScheduleFault",
            "testing.Simulation",
            "testing.Disturbances",
            "testing.World",
            "testing.Mark",
        ),
    ),
)

ALIASES: Final = ("AnyTool", "Errors", "Json", "OnUnknown", "Seconds", "Summary", "effects.AnyEffect", "ledger.Json")
"""Short names of types."""

MADE_BY_USERS: Final = frozenset(
    {
        "Client",
        "Runtime",
        "Secret",
        "States",
        "effects.Absent",
        "effects.Landed",
        "effects.Unknown",
        "ledger.DecisionLedger",
        "testing.CountingVFS",
        "testing.Fault",
        "testing.ForkServer",
        "testing.Layer",
        "testing.Rendezvous",
        "testing.Witness",
    }
)
"""Classes whose constructors are for everybody; the others are given out."""

INTERNAL: Final = frozenset(
    {f"Client.{name}" for name in ("bodies", "check", "door", "nudge", "rest", "store", "writable")}
    | {f"Runtime.{name}" for name in ("check", "close", "nudge", "rest", "start")}
    | {"testing.CountingVFS.synced", "testing.CountingVFS.xOpen", "testing.ForkServer.answer_to", "testing.Tape.note"}
    | {"testing.Notes.of", "testing.Remains.of"}
    | {"testing.Fault.concerns", "testing.Fault.strikes"}
    | {f"testing.Layer.{name}" for name in ("due", "sync", "synced")}
    | {"Call.packed", "Call.spec", "States.domain"}
)
"""Members that serve the parts of poimen among themselves, or say again what their base says."""

SETTINGS: Final = {"Client.start": "start"}
"""Methods whose settings the list of later parts names by a shorter name."""

LATER: Final = (
    "AttemptView",
    "BlobRef",
    "BlobStore",
    "Branch",
    "BranchDiff",
    "Budget",
    "Carrier",
    "DiffRow",
    "EarlierEffect",
    "Emitted",
    "EpisodeView",
    "OpenIntent",
    "RewindPlan",
    "StepView",
    "ToolOutcome",
    "ToolSchema",
    "Toolset",
    "Totals",
    "UsageTotals",
    "Verdict",
    "Verifier",
    "VerifierCtx",
    "verifier",
)
"""Types and a decorator that can be named and declared, and that nothing in this version uses."""

LATER_HEAD: Final = """\
## Comes in a later version

These names are declared and typed, so that a program can be written against them. Called, they raise
[`NotBuiltYet`](errors.md#po100-notbuiltyet) before anything happens; `poimen doctor -v` lists them.
"""
