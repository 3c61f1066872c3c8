"""What a session of tests has shown, as one value: entries of tests, rows of harnesses, findings, a verdict.

Portions of one night are merged when they are of the same commit, the same changes to it and the same numbers. A test
that has failed with a seed stays failed until the same test passes with the same seed. This module must never run
anything; it keeps the invariant that a harness whose control was passed over, that fell short, or that shows a loss,
is never called whole, whatever pytest says of its tests.

Source: design proof.md, "Harnesses" (a control that passes fails CI).
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeAlias

VERSION: Final = 1

TITLES: Final = {
    "P1": "both windows",
    "P2": "kill anywhere",
    "P3": "power loss",
    "P4": "system calls",
    "P5": "sync count",
    "P6": "order",
    "P7": "I/O faults",
    "P8": "bit rot",
    "P9": "kernel tables",
    "P10": "protocol model",
    "P11": "schedules",
    "P12": "cancel",
    "P13": "snapshot barrier",
    "P14": "backends",
    "P15": "fences",
    "P16": "PostgreSQL",
    "P17": "sabotage matrix",
    "P18": "decision boundary",
    "secrets": "secrets",
    "soak": "soak",
}
"""Harnesses by their number in proof.md."""

GOALS: Final = {"P2": 20_000, "P3": 200_000}
"""What a night must reach at least."""

FAULTS: Final = ("lost", "misclassified", "against_class")

Numbers: TypeAlias = Literal["day", "night"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one test has shown with one seed.

    Arguments:
        test: pytest's name of it.
        harness: `P2`; empty: of no harness.
        seed: from which it goes on; where it has failed, the one that makes the failure the first thing it does.
        passed: whether it has.
        seconds: of wall time.
        figures: each line it has told, `text` and numbers beside it: `asked`, `reached`, `unit`, `lost`,
            `misclassified`, `against_class`; of a control `control` and `caught`.
        why: of a failure, in a line.
        options: that it ran with beside the seed.
    """

    test: str
    harness: str
    seed: int
    passed: bool
    seconds: float
    figures: tuple[dict[str, Any], ...] = ()
    why: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one harness has shown.

    Arguments:
        harness: its number in proof.md, and `title` beside it.
        verdict: `ok`, or what keeps it from being that.
        asked, reached: of `unit`, over all its tests; None where it tells no numbers.
        lost, misclassified, against_class: as it has told; None where it does not look for that.
        controls: each control and how often it was seen to be caught; 0 is an error.
        passed, failed: tests.
        seconds: of its tests together.
        seeds: that it began with.
        lines: what it has told.
    """

    harness: str
    title: str
    verdict: str
    asked: int | None
    reached: int | None
    unit: str
    lost: int | None
    misclassified: int | None
    against_class: int | None
    controls: dict[str, int]
    passed: int
    failed: int
    seconds: float
    seeds: tuple[int, ...]
    lines: tuple[str, ...]

    @property
    def bad(self) -> bool:
        """Whether something is wrong, not only missing."""
        return not self.verdict.startswith(("ok", "incomplete"))


@dataclass(kw_only=True)
class Report:
    """All of it.

    Arguments:
        commit: of the tree; `tree` is a digest of what differs from it, empty when it is clean.
        numbers: of a day or of a night.
        machine: what it ran on, without its name.
        entries: of tests of harnesses, and of every failure.
        portions: one for each session: when, how many tests, how long.
    """

    commit: str
    tree: str
    numbers: Numbers
    machine: dict[str, str]
    entries: list[Entry] = field(default_factory=list)
    portions: list[dict[str, Any]] = field(default_factory=list)

    # ---- portions ----------------------------------------------------------------------------------------------

    def merged(self, before: Report | None) -> Report:
        """This session with what earlier ones of the same tree and numbers have shown.

        Arguments:
            before: what lies there already.
        """
        mine = (self.commit, self.tree, self.numbers)
        if before is None or mine != (before.commit, before.tree, before.numbers) or not self.commit:
            return self
        entries = {(one.test, one.seed): one for one in before.entries}
        entries |= {(one.test, one.seed): one for one in self.entries}
        return Report(
            commit=self.commit,
            tree=self.tree,
            numbers=self.numbers,
            machine=self.machine,
            entries=list(entries.values()),
            portions=[*before.portions, *self.portions],
        )

    # ---- what follows ------------------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """The harnesses, in the order of proof.md."""
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            if entry.harness:
                found[entry.harness].append(entry)
        order = {name: n for n, name in enumerate(TITLES)}
        names = sorted(found, key=lambda name: (order.get(name, len(order)), name))
        return [_row(name, found[name], self.numbers) for name in names]

    def findings(self) -> list[dict[str, Any]]:
        """Each failure, with the command that shows it again alone."""
        return [
            {
                "test": one.test,
                "harness": one.harness,
                "seed": one.seed,
                "why": one.why,
                "command": command(one, self.numbers),
            }
            for one in self.entries
            if not one.passed
        ]

    @property
    def verdict(self) -> str:
        """`ok`, `failed` or `incomplete`, with what is missing."""
        rows = self.rows()
        if self.findings() or any(row.bad for row in rows):
            return "failed"
        missing = [row.harness for row in rows if row.verdict.startswith("incomplete")]
        if self.numbers == "night":
            missing += [name for name in (*GOALS, "soak") if name not in {row.harness for row in rows}]
        if not rows:
            return "incomplete: no harness has told anything"
        return f"incomplete: {', '.join(missing)}" if missing else "ok"

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "v": VERSION,
            "verdict": self.verdict,
            "commit": self.commit,
            "clean": not self.tree,
            "tree": self.tree,
            "numbers": self.numbers,
            "machine": self.machine,
            "portions": self.portions,
            "harnesses": [asdict(row) for row in self.rows()],
            "findings": self.findings(),
            "entries": [asdict(entry) for entry in self.entries],
        }

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Report | None:
        """What `plain` has written; None where another version has.

        Arguments:
            plain: as read from JSON.
        """
        if plain.get("v") != VERSION:
            return None
        entries = [
            Entry(**{**one, "figures": tuple(one["figures"]), "options": tuple(one["options"])})
            for one in plain["entries"]
        ]
        known = {name: plain[name] for name in ("commit", "tree", "numbers", "machine", "portions")}
        return cls(**known, entries=entries)


def command(entry: Entry, numbers: Numbers) -> str:
    """The one line that runs a test alone, as it ran.

    Arguments:
        entry: the test.
        numbers: with which it ran.
    """
    inner = " ".join([shlex.quote(entry.test), f"--seed {entry.seed}", *entry.options]).replace("$", "$$")
    target = "nightly" if numbers == "night" else "test"
    quoted = shlex.quote(inner) if set(inner) & set('"$`\\!') else f'"{inner}"'
    return f"make {target} ARGS={quoted}"


def _row(name: str, entries: list[Entry], numbers: Numbers) -> Row:
    told = [figure for entry in entries for figure in entry.figures]
    shown = [figure for figure in told if "control" not in figure]
    controls: dict[str, int] = {}
    for figure in told:
        if "control" in figure:
            controls[figure["control"]] = controls.get(figure["control"], 0) + figure["caught"]
    passed_over = sorted({figure["control"] for figure in told if "control" in figure and figure["caught"] < 1})
    failed = sum(not entry.passed for entry in entries)
    sums = {what: _sum(shown, what) for what in ("asked", "reached", *FAULTS)}
    return Row(
        harness=name,
        title=TITLES.get(name, ""),
        verdict=_bad(failed, passed_over, sums) or _missing(name, controls, sums, numbers) or "ok",
        asked=sums["asked"],
        reached=sums["reached"],
        unit=next((figure["unit"] for figure in shown if "unit" in figure), ""),
        lost=sums["lost"],
        misclassified=sums["misclassified"],
        against_class=sums["against_class"],
        controls=controls,
        passed=len(entries) - failed,
        failed=failed,
        seconds=round(sum(entry.seconds for entry in entries), 1),
        seeds=tuple(sorted({entry.seed for entry in entries})),
        lines=tuple(sorted(figure["text"] for figure in told)),
    )


def _sum(figures: list[dict[str, Any]], what: str) -> int | None:
    numbers = [figure[what] for figure in figures if what in figure]
    return sum(numbers) if numbers else None


def _bad(failed: int, passed_over: list[str], sums: dict[str, int | None]) -> str:
    if failed:
        return f"FAILED: {failed} tests"
    if passed_over:
        return f"CONTROL PASSED: {', '.join(passed_over)}"
    if faults := [f"{sums[what]} {what.replace('_', ' ')}" for what in FAULTS if sums[what]]:
        return f"FAILED: {', '.join(faults)}"
    asked, reached = sums["asked"] or 0, sums["reached"] or 0
    return f"FELL SHORT: {reached:,} of {asked:,}" if reached < asked else ""


def _missing(name: str, controls: dict[str, int], sums: dict[str, int | None], numbers: Numbers) -> str:
    if not controls:
        return "incomplete: no control was seen to fail"
    reached, goal = sums["reached"] or 0, GOALS.get(name, 0)
    return f"incomplete: {reached:,} of {goal:,} of a night" if numbers == "night" and reached < goal else ""
