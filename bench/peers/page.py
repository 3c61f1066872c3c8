"""Writes `docs/explanation/comparison.md` from `results.json` alone: `make docs`. A test checks that the two agree.

This module must never measure; it keeps the invariant that every figure and every verdict of the page follows from the
results, those that are unfavourable to poimen included.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.peers.runtimes import RUNTIMES, Runtime
from bench.peers.situations import BY_NAME, SITUATIONS, Judged, judge

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "explanation" / "comparison.md"
RESULTS: Final = Path(__file__).with_name("results.json")

QUIET: Final = 0.15
"""Cores that others may keep busy while something is timed."""

_OFFERED: Final = {
    "nothing": (
        "The far side offers nothing",
        "No key, no way to ask. Before the call and after it look the same from inside, so only two answers exist: send "
        "again, and act twice in one of the two; or ask a person, and ask for nothing in one of the two.",
    ),
    "keys": (
        "The far side dedupes on a key",
        "It remembers a key for an hour; under *key expired* for 4 s.",
    ),
    "look": (
        "The far side can be asked",
        "It does not dedupe; it shows under our reference what it has done, at once, and 10 s later under *probe lag*, when every runtime here has long recovered. Where a runtime "
        "has no notion of that, the step looks first and then acts, as its author would write it.",
    ),
    "keys+look": ("Keys that expire, and a way to ask", "As before, with both; only the expiry makes a difference."),
}

_HEAD: Final = """\
# Compared with other runtimes

What becomes of one effect when something dies, measured with the runtimes themselves: a process of each does one effect against a small
service outside of it, is killed by a real SIGKILL (or stopped, or its disk loses what was not synced), is recovered as its documentation says, and then
the service's own file says how often it has acted. Every figure and every verdict on this page follows from `bench/peers/results.json`.

poimen's authors have made it. They have used each runtime as its documentation recommends for effects outside, [told below](#how-each-is-used); where that is unfair to
one of them it is wrong: tell us. What these words mean, and when you should stay where you are, is in [coming from another runtime](coming-from.md).
"""

_HOW_TO_READ: Final = """\
A cell says how many effects the far side has done, and how the run has ended: `1` is one effect and a run that says so. **Bold** is an effect done twice or lost. `asks`: it
waits for a person; *needlessly* where a machine could have known (nothing had been sent, a key was alive, or the far side could be asked). `fails`: it is over and
told as a failure. `unended`: it did not end by itself. `–`: [not measured](#what-is-not-measured). Several answers stand for several trials.
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """The trials of one runtime in one situation.

    Arguments:
        offers: what the far side offers.
        situation: its name.
        trials: `landed` and `ended` of each.
    """

    offers: str
    situation: str
    trials: tuple[tuple[int, str], ...]

    @property
    def judged(self) -> list[Judged]:
        """The judgement of each trial."""
        where = BY_NAME[self.situation]
        return [judge(where, self.offers, landed=landed, ended=ended) for landed, ended in self.trials]

    @property
    def badness(self) -> tuple[float, float]:
        """Wrong ends for each trial (twice, lost, told wrongly, unended), then persons asked: less is better."""
        wrong = sum(j.duplicates + j.lost + j.misreported + j.unended for j in self.judged)
        return wrong / len(self.trials), sum(ended == "asks" for _, ended in self.trials) / len(self.trials)

    @property
    def text(self) -> str:
        """For a table."""
        return " / ".join(dict.fromkeys(self._one(*each) for each in zip(self.trials, self.judged, strict=True)))

    @staticmethod
    def _one(trial: tuple[int, str], judged: Judged) -> str:
        landed, ended = trial
        number = f"**{landed}**" if judged.duplicates or judged.lost else str(landed)
        said = {"done": "", "asks": ", asks needlessly" if judged.needless else ", asks", "failed": ", fails"}
        return number + said.get(ended, ", unended")


def cells_of(row: dict[str, Any]) -> Iterator[Cell]:
    """The cells of one runtime.

    Arguments:
        row: of results.json.
    """
    for offers, situations in row.get("trials", {}).items():
        for name, trials in situations.items():
            yield Cell(offers, name, tuple((each["landed"], each["ended"]) for each in trials))


def render(known: dict[str, Any]) -> str:
    """The page, as Markdown.

    Arguments:
        known: the contents of results.json.
    """
    rows = [(runtime, known["runtimes"][runtime.name]) for runtime in RUNTIMES if runtime.name in known["runtimes"]]
    cells = {runtime.name: {(c.offers, c.situation): c for c in cells_of(row)} for runtime, row in rows}
    parts = [_HEAD, "## The situations\n", *_situations(), "## What became of the effect\n", _HOW_TO_READ]
    for offers, (title, text) in _OFFERED.items():
        parts += [f"### {title}\n", f"{text}\n", *_table(rows, cells, offers)]
    parts += ["## The sum, and what an effect costs\n", *_sums(rows, cells)]
    parts += ["## Where another does better than poimen\n", *_better(rows, cells)]
    parts += ["## What is not measured\n", *_missing(rows)]
    parts += ["## How each is used\n", *_uses(rows), "## Versions, and how to measure again\n", *_again(rows)]
    return "\n".join(parts)


def write(known: dict[str, Any]) -> None:
    """Write the page.

    Arguments:
        known: the contents of results.json.
    """
    PAGE.write_text(render(known), encoding="utf-8")


_Rows = list[tuple[Runtime, dict[str, Any]]]
_Cells = dict[str, dict[tuple[str, str], Cell]]


def _situations() -> list[str]:
    return [*(f"- **{each.name}**: {each.says}." for each in SITUATIONS), ""]


def _table(rows: _Rows, cells: _Cells, offers: str) -> list[str]:
    names = [each.name for each in SITUATIONS if offers in each.offers]
    found = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for runtime, _ in rows:
        texts = [cell.text if (cell := cells[runtime.name].get((offers, name))) else "–" for name in names]
        found.append(f"| {runtime.title} | {' | '.join(texts)} |")
    return [*found, ""]


def _sums(rows: _Rows, cells: _Cells) -> list[str]:
    said = (
        "Over all trials above. *Told wrongly*: ended as a failure, and the effect is there. The cost is that of one more effect which does nothing, one at a time, "
        "in one run; the floor beside it is three bare commits of an effect's bytes (apsw, `synchronous=FULL`) in the same minutes, and *syncs* are what strace sees, the server's "
        "included. poimen syncs three records for each effect: on a slower disk the syncs are what counts. "
        f"*Foreign* is how many cores others kept busy meanwhile: above {QUIET} the time is *disturbed*, says little, and is compared with nothing here; the syncs are right all the same.\n"
    )
    head = (
        "| | trials | effects landed | duplicates | lost | told wrongly | asks | of these needlessly | unended | µs an effect | times the floor | syncs | foreign |",
        f"|---|{'---:|' * 12}",
    )
    found = [said, *head]
    for runtime, row in rows:
        judged = [each for cell in cells[runtime.name].values() for each in cell.judged]
        asked = sum(ended == "asks" for cell in cells[runtime.name].values() for _, ended in cell.trials)
        total = {field.name: sum(getattr(each, field.name) for each in judged) for field in fields(Judged)}
        first = [len(judged), *(total[name] for name in ("landed", "duplicates", "lost", "misreported"))]
        numbers = [*first, asked, total["needless"], total["unended"]]
        costs = _costs(row.get("timing"))
        found.append(f"| {runtime.title} | {' | '.join(map(str, numbers))} | {' | '.join(costs)} |")
    return [*found, ""]


def _costs(timing: dict[str, Any] | None) -> list[str]:
    if timing is None:
        return ["–"] * 4
    low, high = timing["spread"]
    us = f"{timing['us']:,.0f} ({low:,.0f} to {high:,.0f})"
    if not is_quiet(timing):
        us = f"*disturbed:* {us}"
    return [us, f"{timing['us'] / timing['floor us']:.2f}", f"{timing['syncs']:.2f}", f"{timing['foreign cores']:.2f}"]


def is_quiet(timing: dict[str, Any]) -> bool:
    """Whether nothing else was at work on the machine: only then a time says something.

    Arguments:
        timing: of results.json.
    """
    return bool(timing["foreign cores"] <= QUIET)


def _better(rows: _Rows, cells: _Cells) -> list[str]:
    ours = cells.get("poimen", {})
    others = [runtime for runtime, _ in rows if runtime.name not in {"poimen", "naive"}]
    found: list[str] = []
    for (offers, name), mine in ours.items():
        named = [r for r in others if (c := cells[r.name].get((offers, name))) and c.badness < mine.badness]
        if named:
            found.append(_better_line(cells, offers, name, named))
    if not found:
        found.append("- In none of the cells above.")
    return [
        "In these cells another ends with fewer wrong effects, or as well and without asking a person:\n",
        *found,
        *_cheaper(rows),
        "",
    ]


def _better_line(cells: _Cells, offers: str, name: str, named: list[Runtime]) -> str:
    mine = cells["poimen"][offers, name].text
    line = f"- *{_OFFERED[offers][0]}*, {name}: poimen {mine}; " + "; ".join(
        f"{each.title} {cells[each.name][offers, name].text}" for each in named
    )
    if name != "before the call":
        return line
    twice = [r.title for r in named if (c := cells[r.name].get((offers, "after the call"))) and c.badness[0]]
    return line + (f" (the same policy duplicates in *after the call*: {', '.join(twice)})" if twice else "")


def _cheaper(rows: _Rows) -> list[str]:
    timed = {runtime.title: row["timing"] for runtime, row in rows if "timing" in row and runtime.name != "naive"}
    if "poimen" not in timed:
        return []
    mine = timed["poimen"]
    ratio = mine["us"] / mine["floor us"]
    found: list[str] = []
    quiet = {name: t["us"] / t["floor us"] for name, t in timed.items() if is_quiet(t) and is_quiet(mine)}
    faster = [f"{name} ({times:.2f})" for name, times in quiet.items() if times < ratio]
    fewer = [f"{name} ({t['syncs']:.2f})" for name, t in timed.items() if t["syncs"] < mine["syncs"]]
    if not is_quiet(mine):
        found.append("- Time for an effect: not compared, poimen's figure is disturbed.")
    if faster:
        found.append(
            f"- Less time for an effect, in floors of its own minute (poimen {ratio:.2f}): {', '.join(faster)}"
        )
    if fewer:
        found.append(f"- Fewer syncs for an effect (poimen {mine['syncs']:.2f}): {', '.join(fewer)}")
    return found


def _missing(rows: _Rows) -> list[str]:
    found = [f"- {runtime.title}, {name}: {why}." for runtime, _ in rows for name, why in runtime.without.items()]
    absent = [each.title for each in RUNTIMES if each not in [runtime for runtime, _ in rows]]
    if absent:
        found.append(f"- Not at all in this run: {', '.join(absent)}.")
    return [
        *found,
        "- Temporal: its server is in no registry of packages; a repackaged development server is, whose origin cannot be checked, and which would not stand for the server.",
        "- *Power loss* is one state of many that a cut can leave: every unsynced byte is gone, every name is kept. poimen's own tests go through all of them.",
        "- A far side for which a repetition is harmless by nature (a `PUT` of the whole value): sending again is right there.",
        "- A call that has left cannot be called back by any runtime: a stopped process that wakes up in its call still sends it.",
        "",
    ]


def _uses(rows: _Rows) -> list[str]:
    return [*(f"- **{runtime.title}**: {runtime.says}." for runtime, _ in rows), ""]


def _again(rows: _Rows) -> list[str]:
    found = ["| | version | trials | timed |", "|---|---|---|---|"]
    for runtime, row in rows:
        said = ", ".join(f"{name} {version}" for name, version in row.get("versions", {}).items())
        timing = row.get("timing", {})
        dates = [_about(row.get("measured")), _about(timing.get("measured"))]
        found.append(f"| {runtime.title} | {said or 'this repository'} | {' | '.join(dates)} |")
    return [
        *found,
        "",
        "`make peers` installs each runtime into a venv of its own below `.build/peers` (PostgreSQL and npm must be there), measures, and writes this page; "
        '`make peers ARGS=--timings` measures only the costs, and is for a machine that does nothing else; `make peers ARGS="--only durabl --times 5"` repeats one '
        "runtime. `make docs` writes the page from the results alone. The drivers are `bench/peers/drivers/`, one for each.",
        "",
    ]


def _about(measured: dict[str, Any] | None) -> str:
    if measured is None:
        return "–"
    also = f", PostgreSQL {measured['postgresql']}" if "postgresql" in measured else ""
    return f"{measured['date']}, {measured['commit']}; {measured['machine']}, Python {measured['python']}{also}"


def main() -> None:
    """Write the page from the results."""
    write(json.loads(RESULTS.read_text(encoding="utf-8")))
    print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    main()
