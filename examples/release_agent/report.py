"""Lays out what a scenario has shown: plain text, 100 columns at most, for somebody who was not there.

Pure: data in, lines out.
"""

from __future__ import annotations

import shlex
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from scenarios import EFFECTS, marks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inspect_run import Intent, Item, Record
    from scenarios import Scenario, Seen
    from world import Said

_WORDS: Final = {"never_sent": "never sent", "may_have_been_sent": "may have been sent"}
_BREAKS: Final = ("--by", "--evidence", "--expect-lsn", "--db")
_HEAD: Final = f"   {'effect':<17}{'class':<13}{'Pending':<18}{'Dispatched':<18}outcome"


def heading(number: int, scenario: Scenario, run_id: str) -> list[str]:
    """The first lines of a scenario."""
    return ["", f"{number:>2} {scenario.title}", f"   run {run_id}"]


def records(intents: tuple[Intent, ...]) -> list[str]:
    """Each effect with its three records: LSN and time of day (UTC)."""
    lines = [_HEAD]
    for intent in intents:
        dispatched = intent.of("IntentDispatched")
        outcome = intent.of("IntentCommitted", "IntentResolved")[-1:]
        for send in range(max(1, len(dispatched))):
            first, last = send == 0, send >= len(dispatched) - 1
            name, kind = (intent.tool, intent.effect_class) if first else (f"  send {send + 1}", "")
            cells = (
                _cell(intent.of("IntentPending")[:1] if first else ()),
                _cell(dispatched[send : send + 1]),
                _cell(outcome if last else ()),
            )
            lines.append(f"   {name:<17}{kind:<13}{cells[0]:<18}{cells[1]:<18}{cells[2]}".rstrip())
    return lines


def told(intents: tuple[Intent, ...]) -> Iterator[str]:
    """For each effect that a crash interrupted: its classification and what was done about it."""
    for intent in intents:
        classified = intent.of("IntentClassified")
        if intent.classification is None or not classified:
            continue
        words = _WORDS.get(intent.classification, intent.classification)
        yield _line("after restart", f"{intent.tool}: {words} (LSN {classified[0].lsn}), so it was {_done(intent)}")


def world(label: str, said: Said, tag: str) -> str:
    """One line of what the world says."""
    count = marks(said, tag)
    sides = (("clone", said.made), ("remote", said.refs))
    places = [f"{name}: {_short(refs, tag)}" for name, refs in sides]
    entries, mails = (_count(count[tool], one, many) for tool, one, many in _NOUNS)
    return _line(label, " · ".join([*places, f"registry: {entries}", f"mailbox: {mails}"]))


def operator(item: Item, found: str, command: list[str]) -> list[str]:
    """What a person sees who is asked, where they look, and the command they give."""
    return [
        _line("the run waits", f"for an operator; in the inbox: {item.summary}"),
        _line("they look", found),
        *_wrapped("they decide", ["python", "-m", *command]),
    ]


def verdict(found: list[str]) -> list[str]:
    """The last lines of a scenario: nothing, or what is wrong."""
    return [_line("UNEXPECTED", complaint) for complaint in found]


def summary(all_seen: list[tuple[Scenario, Seen]], seconds: float) -> str:
    """The last line of the whole run."""
    kills = sum(bool(scenario.tool) for scenario, _ in all_seen)
    total = {tool: sum(marks(seen.at_end, seen.tag)[tool] for _, seen in all_seen) for tool in EFFECTS}
    asked = sum(bool(scenario.operator) for scenario, _ in all_seen)
    return (
        f"\n{len(all_seen)} runs, {kills} of them killed; an operator was asked {asked} times. In {seconds:.0f} s.\n"
        f"The world has {total['push']} tags at its remotes, {total['register']} registrations, "
        f"{total['announce']} mails."
    )


_NOUNS: Final = (("register", "entry", "entries"), ("announce", "mail", "mails"))


def _line(label: str, text: str) -> str:
    return f"   {label:<15} {text}"


def _wrapped(label: str, command: list[str]) -> Iterator[str]:
    """A command over several lines, as a shell takes them: broken before some of its options."""
    starts = [0, *(at for at, word in enumerate(command) if word in _BREAKS), len(command)]
    lines = [shlex.join(command[one:two]) for one, two in pairwise(starts)]
    for at, line in enumerate(lines):
        yield _line("" if at else label, ("  " if at else "") + line + (" \\" if at < len(lines) - 1 else ""))


def _cell(found: tuple[Record, ...]) -> str:
    if not found:
        return ""
    resolved = " resolved" if found[0].kind == "IntentResolved" else ""
    return f"{found[0].lsn:>3} {found[0].at:%H:%M:%S}.{found[0].at.microsecond // 1000:03}{resolved}"


def _short(refs: dict[str, str], tag: str) -> str:
    """A tag and the beginning of the commit that it names, or that there is none."""
    at = refs.get(f"refs/tags/{tag}^{{}}", "")
    return f"{tag} {at[:7]}" if at else f"no {tag}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _done(intent: Intent) -> str:
    """What was done about an interrupted effect, from its records alone."""
    asked = bool(intent.of("IntentProbed"))
    closed = intent.resolution
    if closed is not None and not asked:
        return f"left to an operator, who said: {closed.to.replace('_', ' ')}"
    if intent.classification == "never_sent":
        return "sent"
    if intent.sends > 1:
        again = "sent again, under the same request id"
        return f"looked for and not found, then {again}" if asked else again
    return "looked for and found there: not sent again" if asked else "left alone"
