"""Which run is killed where, and what must be seen afterwards.

A kill is named by a tool and a point of poimen's protocol: `pending` is window A (the intent is durable, nothing
was sent); `dispatched` and `called` are the two ends of window B (Dispatched is durable, the outcome is not), where
the log is the same and the world differs. It keeps one invariant: a scenario that shows anything else than is
expected gives a complaint, so that the whole run ends badly.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from notes import message_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inspect_run import Intent
    from world import Said

EFFECTS: Final = ("commit_changelog", "push", "register", "announce")
_PARKED: Final = 4
"""How the agent's process ends when an operator must decide."""
_OUTCOMES: Final = ("IntentCommitted", "IntentResolved")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run of the agent.

    Arguments:
        tool: whose call the kill hits; empty for the run that nobody kills.
        point: where.
        sends: how often the tool's effect is dispatched in all.
        operator: what the person finds who is asked; empty where nobody needs to be.
    """

    tool: str = ""
    point: Literal["", "pending", "dispatched", "called"] = ""
    sends: int = 1
    operator: Literal["", "landed", "not-landed"] = ""

    @property
    def name(self) -> str:
        """A name for folders and run ids."""
        return f"{self.tool}-{self.point}".replace("_", "-") if self.tool else "untouched"

    @property
    def title(self) -> str:
        """What happens, in one line."""
        match self.point:
            case "":
                return "untouched"
            case "pending":
                return f"SIGKILL in window A of {self.tool}: its intent is durable, nothing was sent"
            case "dispatched":
                return f"SIGKILL in window B of {self.tool}, just before the call"
            case "called":
                return f"SIGKILL in window B of {self.tool}, just after the call, its outcome not recorded"

    @property
    def classification(self) -> str | None:
        """What recovery must say of the effect."""
        if not self.point:
            return None
        return "never_sent" if self.point == "pending" else "may_have_been_sent"


SCENARIOS: Final = (
    Scenario(),
    Scenario(tool="commit_changelog", point="pending"),
    Scenario(tool="commit_changelog", point="called", sends=2),
    Scenario(tool="push", point="pending"),
    Scenario(tool="push", point="dispatched", sends=2),
    Scenario(tool="push", point="called"),
    Scenario(tool="register", point="pending"),
    Scenario(tool="register", point="called", sends=2),
    Scenario(tool="announce", point="pending"),
    Scenario(tool="announce", point="dispatched", sends=2, operator="not-landed"),
    Scenario(tool="announce", point="called", operator="landed"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one scenario has shown.

    Arguments:
        codes: how the agent's processes ended, in order; negative for a signal.
        after_kill: what the world said after the kill, None where there was none.
        at_end: what it said at the end.
        intents: the run's intents at the end.
        branch: the branch that was released.
        tag: the tag that was released.
    """

    codes: tuple[int, ...]
    after_kill: Said | None
    at_end: Said
    intents: tuple[Intent, ...]
    branch: str
    tag: str


def expected_codes(scenario: Scenario) -> tuple[int, ...]:
    """How the agent's processes must end, in order."""
    killed = (-signal.SIGKILL,) if scenario.tool else ()
    parked = (_PARKED,) if scenario.operator else ()
    return (*killed, *parked, 0)


def marks(said: Said, tag: str) -> dict[str, int]:
    """How many marks each effect on the outside has left there."""
    return {
        "commit_changelog": sum(name == f"refs/tags/{tag}" for name in said.made),
        "push": sum(name == f"refs/tags/{tag}" for name in said.refs),
        "register": sum(entry.version == tag for entry in said.registrations),
        "announce": len(said.mails),
    }


def complaints(scenario: Scenario, seen: Seen) -> Iterator[str]:
    """Everything that is not as it must be.

    Arguments:
        scenario: what was done.
        seen: what was seen.
    """
    if seen.codes != expected_codes(scenario):
        yield f"the agent's processes ended {seen.codes}, expected {expected_codes(scenario)}"
    mine = [intent for intent in seen.intents if intent.tool == scenario.tool]
    if scenario.tool:
        found = [intent.classification for intent in mine[:1]]
        if found != [scenario.classification]:
            yield f"{scenario.tool} is classified {found}, expected {scenario.classification}"
        if sum(intent.sends for intent in mine) != scenario.sends:
            yield f"{scenario.tool} was sent {sum(intent.sends for intent in mine)} times, expected {scenario.sends}"
    for tool in EFFECTS:
        yield from _order(tool, [intent for intent in seen.intents if intent.tool == tool])
    yield from _world(scenario, seen)


def _order(tool: str, rows: list[Intent]) -> Iterator[str]:
    """The three records must be there, in this order, and no intent may be left open."""
    if not rows:
        yield f"{tool} has no intent"
    for row in rows:
        pending, dispatched = row.of("IntentPending"), row.of("IntentDispatched")
        outcome = row.of(*_OUTCOMES)
        if not (pending and dispatched and outcome):
            yield f"{row.id} lacks one of its three records"
        elif not pending[0].lsn < dispatched[0].lsn < outcome[-1].lsn:
            yield f"{row.id} has its records out of order"


def _world(scenario: Scenario, seen: Seen) -> Iterator[str]:
    """The witness must have one mark of each effect, under the names that the log gave it."""
    if seen.after_kill is not None:
        before = marks(seen.after_kill, seen.tag)[scenario.tool]
        if before != (1 if scenario.point == "called" else 0):
            yield f"after the kill the world had {before} marks of {scenario.tool}"
    if marks(seen.at_end, seen.tag) != dict.fromkeys(EFFECTS, 1):
        yield f"at the end the world has {marks(seen.at_end, seen.tag)}, expected one of each"
    tag, branch = f"refs/tags/{seen.tag}^{{}}", f"refs/heads/{seen.branch}"
    named = {side.get(name, "nothing") for side in (seen.at_end.made, seen.at_end.refs) for name in (tag, branch)}
    if len(named) != 1:
        yield f"{seen.tag} and {seen.branch} do not name one commit in the clone and at the remote: {sorted(named)}"
    ids = {intent.tool: intent.request_id for intent in seen.intents}
    keys = [entry.key for entry in seen.at_end.registrations]
    if keys != [ids.get("register")]:
        yield f"the registry knows the keys {keys}, the log {ids.get('register')}"
    letters = [mail.message_id for mail in seen.at_end.mails]
    if letters != [message_id(ids.get("announce", ""))]:
        yield f"the mailbox has the ids {letters}, the log {ids.get('announce')}"
