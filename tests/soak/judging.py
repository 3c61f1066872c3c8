"""The verdict on a soak: each effect of the log held against the witness, every run ended, growth flat.

*Flat* compares the second half with the first: of the life of the worker that is not killed for what it holds in
memory, of the soak for the rest. Limits leave room for what a short soak cannot tell from warming up.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poimen.log import codec
from poimen.log.api import TERMINAL_STATES
from poimen.log.sqlite import SqliteStore
from poimen.testing.lives import audits
from poimen.testing.lives.stories import Fact, Remains, Story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from poimen.log.api import Record
    from tests.soak.driving import Sample, Soaked

MIB = 1 << 20
MOST_TOLD = 20


@dataclass(frozen=True)
class Line:
    """One line of the verdict."""

    what: str
    said: str
    wrong: tuple[str, ...] = ()
    kind: str = ""
    count: int = 0

    @property
    def ok(self) -> bool:
        return not self.wrong


@dataclass(frozen=True)
class Verdict:
    """All of it."""

    lines: tuple[Line, ...]
    figures: dict[str, Any]

    @property
    def wrong(self) -> list[str]:
        return [f"{line.what}: {what}" for line in self.lines for what in line.wrong]

    def count(self, kind: str) -> int:
        return sum(line.count for line in self.lines if line.kind == kind)

    def table(self) -> str:
        widths = [max(len(line.what) for line in self.lines), max(len(line.said) for line in self.lines)]
        rows = [
            f"{line.what:{widths[0]}}  {line.said:{widths[1]}}  {'ok' if line.ok else 'WRONG'}" for line in self.lines
        ]
        return "\n".join([*rows, *(f"  {what}" for what in self.wrong[:MOST_TOLD])])

    def plain(self) -> dict[str, Any]:
        lines = [{"what": one.what, "said": one.said, "wrong": list(one.wrong[:MOST_TOLD])} for one in self.lines]
        return {"ok": not self.wrong, "lines": lines, "figures": self.figures}


def judged(soaked: Soaked) -> Verdict:
    """Judge a soak whose processes have ended."""
    wrong, figures = _world(soaked)
    lines = [
        Line(name.replace("_", " "), f"{len(wrong[name])}", tuple(wrong[name]), name, len(wrong[name]))
        for name in ("lost", "misclassified", "against_class", "stranded")
    ]
    lines += [Line("trouble", f"{len(soaked.errors)}", tuple(soaked.errors))]
    lines += list(_growth(soaked, figures))
    figures |= {"kills": soaked.kills, "seconds": round(soaked.seconds, 1), "recoveries": len(soaked.recoveries)}
    return Verdict(tuple(lines), figures)


# ---- the log and the world -------------------------------------------------------------------------------------------


def _world(soaked: Soaked) -> tuple[dict[str, list[str]], dict[str, Any]]:
    lines: dict[str, list[str]] = defaultdict(list)
    for line in soaked.witness.lines():
        words = line.split()
        lines[words[3] if words[0] == "told" else words[2]].append(line)
    wrong: dict[str, list[str]] = defaultdict(list)
    counts: Counter[str] = Counter()
    store = SqliteStore(soaked.db, read_only=True)
    try:
        heads = {head.run: head for head in _heads(store)}
        for run in soaked.admitted:
            if run not in heads:
                wrong["lost"].append(f"{run} was admitted, and is not in the log")
                continue
            for kind, what in _of_run(store.read(run), lines.pop(run, []), counts):
                wrong[kind].append(f"{run}: {what}")
            state = heads[run].state
            counts[state] += 1
            if state not in TERMINAL_STATES:
                wrong["stranded"].append(f"{run} is {state}")
            elif state != "SUCCEEDED" and not (state == "CANCELLED" and run in soaked.cancelled):
                wrong["lost"].append(f"{run} is {state}, and nobody has asked for that")
        for _, run, state in soaked.ended:
            if run in heads and heads[run].state != state:
                wrong["lost"].append(f"{run} had ended as {state}, and is {heads[run].state}")
    finally:
        store.close()
    for run, left in lines.items():
        wrong["misclassified"].append(f"the witness has {len(left)} lines of {run}, which nobody has admitted")
    if not (counts["effects"] and soaked.kills):
        wrong["lost"].append("there were no effects, or no kills, so nothing was shown")
    figures = {"runs": len(soaked.admitted), **{name.lower(): n for name, n in sorted(counts.items())}}
    return wrong, figures | {f"a person said {to}": n for to, n in soaked.answered.items()}


def _heads(store: SqliteStore) -> Iterator[Any]:
    after = ""
    while heads := store.heads(after=after):
        yield from heads
        after = heads[-1].run


def _of_run(records: Sequence[Record], lines: list[str], counts: Counter[str]) -> Iterator[tuple[str, str]]:
    facts = tuple(
        Fact(lsn=r.lsn, kind=r.kind, subject=r.subject, body=codec.plain(r), at=r.at, life=0) for r in records
    )
    effects = [line for line in lines if not line.startswith("told ")]
    remains = Remains(facts=facts, lines=tuple((0, line) for line in effects))
    story: Any = Story(n=0, folder=None, known=remains)  # type: ignore[arg-type]
    known = {("decision", fact.body["id"]) for fact in facts if fact.kind == "decision.recorded.v1"}
    seen: Counter[str] = Counter()
    for effect in remains.effects():
        counts["effects"] += 1
        counts["sends"] += effect.sends
        counts["classified"] += sum(fact.kind == "intent.classified.v1" for fact in effect.facts)
        seen[effect.request_id] = len(effect.lines)
        landed = any(audits._says_yes(fact) for fact in effect.facts)
        known |= {("outcome", effect.request_id)} if landed else set()
        for what in audits._misclassified(effect):
            yield "lost" if "the witness has nothing" in what else "misclassified", f"{effect.label}: {what}"
        for what in (*audits.against_class(effect),):
            yield "against_class", f"{effect.label} ({effect.effect_class}): {what}"
        for what in _by_time(effect):
            yield "misclassified", f"{effect.label}: {what}"
        if not any(fact.kind in audits._CLOSING for fact in effect.facts) and effect.sends:
            yield "stranded", f"{effect.label} has no outcome, and nobody has resolved it"
    for what in audits._unclassified(story):
        yield "misclassified", what
    for line in effects:
        if not seen[line.partition(" ")[0].partition(".")[0]]:
            yield "misclassified", f"the witness has an effect of which the log knows nothing: {line}"
    for line in lines:
        _, kind, name, *_ = line.split() if line.startswith("told ") else ["", "", ""]
        if kind and (kind, name) not in known:
            yield "lost", f"code was told of {kind} {name}, which is not in the log"


def _by_time(effect: Any) -> Iterator[str]:
    """What the times of lines say; witness and log are of one machine, and share its clock."""
    times = sorted(int(line.split()[1]) for _, line in effect.lines)
    sent = [fact.at for fact in effect.facts if fact.kind == "intent.dispatched.v1"]
    if times and (not sent or times[0] < sent[0]):
        yield "the witness has seen it before its Dispatched was written"
    for fact in effect.facts:
        before = [at for at in times if at < fact.at]
        if fact.kind == "intent.classified.v1" and fact.body["classification"] == "never_sent" and before and not sent:
            yield f"LSN {fact.lsn} says never sent, and the witness has seen it"
        if fact.kind == "intent.resolved.v1" and fact.body["to"] == "not_landed" and before:
            yield f"LSN {fact.lsn} says that it did not land, and the witness has it"


# ---- growth ----------------------------------------------------------------------------------------------------------


def _growth(soaked: Soaked, figures: dict[str, Any]) -> Iterator[Line]:
    oldest = max((s.life for s in soaked.samples if s.worker == 0), default=0)
    elder = [s for s in soaked.samples if s.worker == 0 and s.life == oldest]
    yield _slopes("memory of the old worker, MiB", elder, lambda s: s.rss / MIB, 4.0, 0.15, figures)
    young = _at_equal_age(soaked.samples)
    yield _halves("memory at equal age, MiB", [s.rss / MIB for s in young], 1.2, 3.0, figures)
    every = [s for s in soaked.samples if s.worker == 0]
    yield _per_effect(every, figures)
    half = len(every) // 2
    wal = [max([s.wal / MIB for s in part], default=0.0) for part in (every[:half], every[half:])]
    yield _compared("largest WAL, MiB", wal[0], wal[1], 1.5 * wal[0] + 20, figures)
    fds = [s.fds for s in elder[len(elder) // 4 :]]
    quiet = [min(part, default=0) for part in (fds[: len(fds) // 2], fds[len(fds) // 2 :])]
    yield _compared("open files, fewest", quiet[0], quiet[1], quiet[0] + 24, figures)
    times = [first for begun, _, first in soaked.recoveries if begun > 0]
    yield _halves("restart to first effect, s", times, 2.0, 2.0, figures)
    a, b = (
        sum(begin <= at < begin + soaked.seconds / 2 for at, _, _ in soaked.ended) for begin in (0, soaked.seconds / 2)
    )
    rates = [round(2 * n / soaked.seconds, 2) for n in (a, b)]
    wrong = (f"{rates[1]}/s in the second half, {rates[0]}/s in the first",) if rates[1] < 0.3 * rates[0] else ()
    figures["runs a second"] = rates
    yield Line("runs a second, halves", f"{rates[0]} then {rates[1]}", wrong)


def _at_equal_age(samples: Sequence[Sample]) -> list[Sample]:
    """Of each life of the second worker the sample nearest after that age."""
    from tests.soak.driving import EQUAL_AGE_S

    found: dict[int, Sample] = {}
    for one in samples:
        if one.worker == 1 and EQUAL_AGE_S <= one.age < EQUAL_AGE_S + 1:
            found.setdefault(one.life, one)
    return list(found.values())


def _slopes(
    what: str, samples: list[Sample], of: Callable[[Sample], float], room: float, part: float, figures: dict[str, Any]
) -> Line:
    """Least squares over each half of a life; the second may rise by `room` and `part` of what is there at most."""
    half = len(samples) // 2
    if half < 6:
        return Line(what, "too few samples", ("nothing was shown",))
    rises = []
    for points in (samples[:half], samples[half:]):
        rises.append(_slope([(s.age, of(s)) for s in points]) * (points[-1].age - points[0].age))
    middle, minutes = of(samples[half]), (samples[-1].age - samples[half].age) / 60
    figures[what] = {"first half": round(rises[0], 2), "second half": round(rises[1], 2), "at": round(middle, 1)}
    most = room + part * middle
    said = f"{rises[0]:+.1f} then {rises[1]:+.1f} in {minutes:.1f} min, of {middle:.0f}; at most {most:+.1f}"
    return Line(what, said, (f"it rises by {rises[1]:.1f} in the second half of its life",) if rises[1] > most else ())


def _slope(points: list[tuple[float, float]]) -> float:
    x, y = (statistics.fmean(one) for one in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / (sum((a - x) ** 2 for a, _ in points) or 1.0)


def _halves(what: str, values: list[float], factor: float, room: float, figures: dict[str, Any]) -> Line:
    half = len(values) // 2
    if not half:
        return Line(what, "too few lives", ())
    first, second = statistics.median(values[:half]), statistics.median(values[half:])
    return _compared(what, first, second, factor * first + room, figures)


def _compared(what: str, first: float, second: float, most: float, figures: dict[str, Any]) -> Line:
    figures[what] = [round(first, 2), round(second, 2)]
    said = f"{first:.2f} then {second:.2f}; at most {most:.2f}"
    return Line(what, said, (f"{second:.2f} after {first:.2f}",) if second > most else ())


def _per_effect(samples: list[Sample], figures: dict[str, Any]) -> Line:
    """Bytes of database and WAL for each effect; the WAL, which is used again, is one allowance."""
    what = "KiB on disk per effect"
    half = len(samples) // 2
    if half < 6:
        return Line(what, "too few samples", ("nothing was shown",))
    grown = [
        ((part[-1].db + part[-1].wal - part[0].db - part[0].wal) / 1024, part[-1].effects - part[0].effects)
        for part in (samples[:half], samples[half:])
    ]
    (first, some), (second, more) = grown
    rates = [size / (n or 1) for size, n in grown]
    most = 1.3 * max(rates[0], 0.0) * more + 20 * 1024
    figures[what] = [round(rate, 2) for rate in rates]
    said = f"{rates[0]:.2f} then {rates[1]:.2f}, of {some} and {more} effects"
    return Line(
        what, said, (f"{second:.0f} KiB for {more} effects after {first:.0f} for {some}",) if second > most else ()
    )
