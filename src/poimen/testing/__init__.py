"""Crash-test your own tools with what poimen is crash-tested with: public, documented, real SIGKILLs.

    testing.sweep(agent.shop("tea")).assert_clean()

Names are loaded when they are first asked for, so that the pytest plugin costs nothing until a test uses it.
This package must never be imported by product code; it keeps the invariant that a harness has a control
(`sabotage`) that it must catch.

Source: design api.md, "Testing"; proof.md.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poimen.gate.points import POINTS
    from poimen.testing import sabotage
    from poimen.testing.canaries import CANARY_KINDS, Canary, canaries_in, made_up_secrets
    from poimen.testing.crashes.children import child_command, crash
    from poimen.testing.crashes.forks import Ended, Fork, ForkServer
    from poimen.testing.crashes.orders import COMMITS
    from poimen.testing.crashes.sweeps import EVERY_POINT, WINDOW_A, WINDOW_B, Trial, kill_sweep
    from poimen.testing.crashes.verdicts import disagreements
    from poimen.testing.doors import in_call, load_episode, raw, replace, verifier_ctx
    from poimen.testing.lives.anywhere import kill_anywhere
    from poimen.testing.lives.audits import Contradiction, contradictions
    from poimen.testing.lives.commits import Notes
    from poimen.testing.lives.stories import EffectFacts, Fact, Kill, Life, Remains, Story
    from poimen.testing.lives.tables import Sweep, Swept, sweep
    from poimen.testing.permission import allow_raw
    from poimen.testing.power.cuts import Cut, Loss, PowerReport, power_sweep
    from poimen.testing.power.trials import FaultTrial, fault_losses, fault_sweep
    from poimen.testing.rendezvous import Rendezvous
    from poimen.testing.schedules.sweeping import ScheduleFault, ScheduleReport, schedule_sweep, simulate
    from poimen.testing.schedules.traces import Disturbances, Simulation
    from poimen.testing.schedules.world import Mark, World
    from poimen.testing.storage.counting import CountingVFS, sync_counter
    from poimen.testing.storage.faults import Fault, faulty_storage
    from poimen.testing.storage.layer import Layer
    from poimen.testing.storage.tape import Entry, Tape, entered_early, shared_syncs, taped
    from poimen.testing.storage.tracing import Traced, strace_command, straced
    from poimen.testing.witness import CLASSES, Witness, recording_tool

_HOMES = {
    "poimen.gate.points": "POINTS",
    "poimen.testing.canaries": "CANARY_KINDS Canary canaries_in made_up_secrets",
    "poimen.testing.crashes.children": "child_command crash",
    "poimen.testing.crashes.forks": "Ended Fork ForkServer",
    "poimen.testing.crashes.orders": "COMMITS",
    "poimen.testing.crashes.sweeps": "EVERY_POINT Trial WINDOW_A WINDOW_B kill_sweep",
    "poimen.testing.crashes.verdicts": "disagreements",
    "poimen.testing.doors": "in_call load_episode raw replace verifier_ctx",
    "poimen.testing.lives.anywhere": "kill_anywhere",
    "poimen.testing.lives.audits": "Contradiction contradictions",
    "poimen.testing.lives.commits": "Notes",
    "poimen.testing.lives.stories": "EffectFacts Fact Kill Life Remains Story",
    "poimen.testing.lives.tables": "Sweep Swept sweep",
    "poimen.testing.permission": "allow_raw",
    "poimen.testing.power.cuts": "Cut Loss PowerReport power_sweep",
    "poimen.testing.power.trials": "FaultTrial fault_losses fault_sweep",
    "poimen.testing.rendezvous": "Rendezvous",
    "poimen.testing.schedules.sweeping": "ScheduleFault ScheduleReport schedule_sweep simulate",
    "poimen.testing.schedules.traces": "Disturbances Simulation",
    "poimen.testing.schedules.world": "Mark World",
    "poimen.testing.storage.counting": "CountingVFS sync_counter",
    "poimen.testing.storage.faults": "Fault faulty_storage",
    "poimen.testing.storage.layer": "Layer",
    "poimen.testing.storage.tape": "Entry Tape entered_early shared_syncs taped",
    "poimen.testing.storage.tracing": "Traced strace_command straced",
    "poimen.testing.witness": "CLASSES Witness recording_tool",
}

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "CANARY_KINDS",
    "CLASSES",
    "COMMITS",
    "EVERY_POINT",
    "POINTS",
    "WINDOW_A",
    "WINDOW_B",
    "Canary",
    "Contradiction",
    "CountingVFS",
    "Cut",
    "Disturbances",
    "EffectFacts",
    "Ended",
    "Entry",
    "Fact",
    "Fault",
    "FaultTrial",
    "Fork",
    "ForkServer",
    "Kill",
    "Layer",
    "Life",
    "Loss",
    "Mark",
    "Notes",
    "PowerReport",
    "Remains",
    "Rendezvous",
    "ScheduleFault",
    "ScheduleReport",
    "Simulation",
    "Story",
    "Sweep",
    "Swept",
    "Tape",
    "Traced",
    "Trial",
    "Witness",
    "World",
    "allow_raw",
    "canaries_in",
    "child_command",
    "contradictions",
    "crash",
    "disagreements",
    "entered_early",
    "fault_losses",
    "fault_sweep",
    "faulty_storage",
    "in_call",
    "kill_anywhere",
    "kill_sweep",
    "load_episode",
    "made_up_secrets",
    "power_sweep",
    "raw",
    "recording_tool",
    "replace",
    "sabotage",
    "schedule_sweep",
    "shared_syncs",
    "simulate",
    "strace_command",
    "straced",
    "sweep",
    "sync_counter",
    "taped",
    "verifier_ctx",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "sabotage":
            return _import_module("poimen.testing.sabotage")
        if name not in _HOME_OF:
            raise AttributeError(f"module 'poimen.testing' has no attribute {name!r}")
        value = getattr(_import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return list(__all__)
