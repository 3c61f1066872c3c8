"""Decisions: recorded in place, durable before anything else of the run happens.

This module must never act on a decision; it keeps promise 1: a decision, once `decide()` returns,
survives cancellation, time-out, `kill -9` and power loss.

Source: requirement decision-ledger; design protocol.md, section 3 ("Decisions").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poimen.declare import values
from poimen.engine.driving.replay import SHOWN, Asked, Differs, decided
from poimen.gate import points
from poimen.gate.places import asked_at
from poimen.kernel.errors import DecisionConflict, NotFound, NotStorable, Suspended
from poimen.kernel.events import DecisionRecorded, DecisionSettled
from poimen.kernel.intent import cut
from poimen.secrecy.setting import in_force

if TYPE_CHECKING:
    from poimen.engine.driving.driver import Driver
    from poimen.engine.driving.scopes import Scope


LONGEST_ID = 500


class Decisions:
    """The decisions of one branch."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def decide(self, scope: Scope, decision_id: str, value: Any) -> Any:
        """Record a decision; durable when it returns.

        What is given back is decoded from bytes whose digest is that of the record, so it is the recorded value.
        """
        _must_be_an_id(decision_id)
        body, stored = values.dump_own(value, path=f"decide({decision_id!r})")
        digest = values.digest(body)
        in_workflow = scope is self._driver.workflow
        known = self._driver.line.decisions.get(decision_id)
        ahead = in_workflow and self._ahead(f"decide:{decision_id}")
        if not ahead and known is not None and known.value_digest != digest:
            raise DecisionConflict(
                f"decision {decision_id!r} was recorded with another value",
                where=f"{self._driver.run} LSN {known.lsn}",
                why=f"recorded: value {known.value_digest[:SHOWN]}; now: value {digest[:SHOWN]}",
                hint="the recorded decision stands; use another id for another choice; the recorded value: "
                f"poimen decisions ls --run {self._driver.run} --json --content",
                decision_id=decision_id,
            )
        if ahead or (in_workflow and known is None):
            words = decided(decision_id, digest)
            written = f"decide({decision_id!r}, {cut(body)})"
            self._claim(f"decide:{decision_id}", "decide", digest, Asked(words, written))
        if known is None:
            seq = self._take_seq() if in_workflow else -1
            event = DecisionRecorded(
                id=decision_id,
                value=self._driver.keep(body),
                value_digest=digest,
                step=scope.step,
                attempt=scope.attempt,
                seq=seq,
            )
            self._driver.outbox.send_now((event,))
            points.reach("decided", decision_id)
        return stored

    def settle(self, scope: Scope, decision_id: str) -> None:
        """Record that a decision was carried out; durable when it returns."""
        if decision_id not in self._driver.line.decisions:
            raise NotFound(
                f"no decision {decision_id!r} is recorded in this run",
                where=self._driver.run,
                hint=f"poimen.decide({decision_id!r}, value) records it",
            )
        in_workflow = scope is self._driver.workflow
        ahead = in_workflow and self._ahead(f"settle:{decision_id}")
        owed = self._driver.line.decisions[decision_id].owed
        if ahead or (in_workflow and owed):
            self._claim(f"settle:{decision_id}", "settle", "", Asked(f"settle {decision_id!r}"))
        if owed:
            seq = self._take_seq() if in_workflow else -1
            self._driver.outbox.send_now((DecisionSettled(id=decision_id, by="workflow", why="settle()", seq=seq),))

    def _take_seq(self) -> int:
        seq = self._driver.workflow.seq
        self._driver.workflow.seq += 1
        return seq

    def _ahead(self, key: str) -> bool:
        """Whether the record has this call, and the code has not come to it before."""
        return not self._driver.live and self._driver.script.ahead(key)

    def _claim(self, key: str, name: str, digest: str, asked: Asked) -> None:
        """Take the recorded place of this call, or, where the record is used up, a new one behind the calls held.

        A call that the record has elsewhere, or not at all, stops the run.
        """
        driver = self._driver
        if driver.live:
            return
        if driver.ending.settling:
            raise Suspended

        def what() -> Asked:
            return asked._replace(words=asked.words + asked_at())

        try:
            recorded = driver.script.claim(key=key, kind=name, name=name, digest=digest, what=what)
        except Differs as differs:
            driver.ending.differ(differs.recorded, differs.asked, about=differs.key)
            raise Suspended from differs
        if recorded:
            driver.workflow.seq += 1
        elif driver.script.complete:
            driver.steps.record_held()
        else:
            driver.ending.differ_from_next(what())
            raise Suspended


def _must_be_an_id(text: object) -> None:
    """A decision is found again by its id: text that can be stored, of a length that people can read."""
    if not isinstance(text, str) or not 1 <= len(text) <= LONGEST_ID or not text.isprintable():
        raise NotStorable(
            f"{text!r:.80} cannot be the id of a decision",
            path="id",
            hint=f"give a text of 1 to {LONGEST_ID} printable characters",
        )
    if what := in_force().in_name(text):
        raise NotStorable(
            f"the id of a decision holds {what}, which is not written to the log",
            why="nothing was recorded",
            path="id",
            hint="name the choice, not what was chosen",
        )
