"""What is wrong with stories: the log held against the witness and against what processes had been told.

The rules are written down once more by hand, over the stored bodies. This module must never import what it judges
(the kernel's tables, the guard, the ladder), or a mistake there would be a mistake here. It keeps the invariant
that stories which show nothing are a fault.

Source: requirement write-ahead-intent, "Restart classification"; design protocol.md, sections 4 and 8; proof.md, P2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from poimen._typing import override
from poimen.testing.lives.stories import RUN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from poimen.testing.lives.stories import EffectFacts, Fact, Story

Fault: TypeAlias = Literal["lost", "misclassified", "against class", "other end"]
"""What can be wrong: an acknowledgement that is not in the log; something that log and witness do not agree on;
something sent that its class forbids; an end that differs from that of the undisturbed run."""

_NOES: Final = frozenset({"rejected", "not_sent"})
_CLOSING: Final = frozenset({"intent.committed.v1", "intent.resolved.v1", "intent.read_dropped.v2"})
_READS_TO_BE_SURE: Final = 2
_SILENT: Final = " (if its body leaves no line at Witness.here(), replace() it by one that does)"
_NOT_THE_SAME: Final = " (a workflow whose result differs from run to run cannot be judged: replace() what differs)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """One thing that is wrong.

    Arguments:
        fault: of which kind.
        what: a sentence.
        story: in which, with what was killed in it.
        folder: its database, witness and notes.
    """

    fault: Fault
    what: str
    story: str
    folder: str

    @override
    def __str__(self) -> str:
        return f"{self.story}: {self.fault}: {self.what}; look into {self.folder}"


def contradictions(stories: Sequence[Story]) -> list[Contradiction]:
    """Hold the log of each story against the witness, and against what its processes had been told.

    - *lost*: each batch that a process knew to be durable is in the log, with the same hash, and so with all before
      it; each line `told decision ID` or `told outcome REQUEST_ID` of the witness has its record.
    - *misclassified*: each interrupted effect is classified one time a send, *never sent* where its last record
      was Pending, *may have been sent* where it was Dispatched; the witness has no line of what was never sent, no
      line without a Dispatched before it, none of what a probe found absent, and one of each recorded return.
    - *against class*: AT_MOST_ONCE is sent again only behind a no; KEYED only while its key lives; PROBE only behind
      two absences; nothing is sent again behind its outcome; never more often than `max_sends`.
    - *other end*: each run ends as the undisturbed one did, with the same effects in the world.

    Arguments:
        stories: what `kill_anywhere` has given, the undisturbed one first.

    Source: design proof.md, P2.
    """
    whole = stories[0] if stories else None
    if whole is None or not sum(story.kills for story in stories):
        return [Contradiction(fault="lost", what="nothing was killed, so nothing was shown", story="", folder="")]
    if not any(effect.lines for effect in whole.remains.effects()):
        what = f"the witness has no line of any effect, so nothing was shown{_SILENT}"
        return [Contradiction(fault="misclassified", what=what, story=str(whole), folder=str(whole.folder))]
    return [
        Contradiction(fault=fault, what=what, story=str(story), folder=str(story.folder))
        for story in stories
        for fault, what in _faults(story, whole)
    ]


def _faults(story: Story, whole: Story) -> Iterator[tuple[Fault, str]]:
    if story.remains.error:
        yield "lost", f"the log cannot be read: {story.remains.error}"
        return
    for what in _lost(story):
        yield "lost", what
    for effect in story.remains.effects():
        for what in _misclassified(effect):
            yield "misclassified", f"{effect.label}: {what}"
        for what in against_class(effect):
            yield "against class", f"{effect.label} ({effect.effect_class}): {what}"
    for what in _unclassified(story):
        yield "misclassified", what
    for what in _other_end(story, whole):
        yield "other end", what


# ---- lost --------------------------------------------------------------------------------------------------------


def _lost(story: Story) -> Iterator[str]:
    read = story.remains
    for n, life in enumerate(story.lives):
        for run, lsn, digest in life.notes.told:
            if run == RUN and read.hashes[lsn - 1 : lsn] != (digest,):
                yield f"process {n} had been told of LSN {lsn}, and the log has something else there"
    known = {("decision", f.body["id"]): f.life for f in reversed(read.facts) if f.kind == "decision.recorded.v1"}
    for effect in read.effects():
        yes = [f.life for f in effect.facts if _says_yes(f)]
        known |= {("outcome", effect.request_id): yes[0]} if yes else {}
    for by, line in read.lines:
        told, _, what = line.partition(" ")
        kind, _, name = what.partition(" ")
        if told == "told" and not -1 < known.get((kind, name), -1) <= by:
            yield f"process {by} had been told of {what}, which was not in the log when it died"
    for fact in read.facts:
        if fact.life < 0:
            yield f"LSN {fact.lsn} ({fact.kind}) is in the log, and no process says that it wrote it"


def _says_yes(fact: Fact) -> bool:
    if fact.kind == "intent.committed.v1":
        return not _no(fact)
    return fact.kind == "intent.resolved.v1" and fact.body["to"] == "landed"


def _no(fact: Fact) -> bool:
    """Whether a record says that a send, or all of them, did nothing."""
    if fact.kind in {"intent.committed.v1", "intent.send_answered.v1"}:
        return fact.body["outcome"]["kind"] in _NOES
    return fact.kind == "intent.resolved.v1" and fact.body["to"] == "not_landed"


# ---- misclassified ---------------------------------------------------------------------------------------------------


def _misclassified(effect: EffectFacts) -> Iterator[str]:
    yield from _unwitnessed(effect)
    sends: dict[str, int] = {}
    open_: dict[str, str] = {}
    said: set[tuple[str, int]] = set()
    dispatched = 0
    for fact in effect.facts:
        before = sum(life < fact.life for life, _ in effect.lines)
        by_now = sum(life <= fact.life for life, _ in effect.lines)
        one = fact.subject
        match fact.kind:
            case "intent.pending.v1":
                open_[one], sends[one] = "never_sent", 0
            case "intent.dispatched.v1":
                open_[one], sends[one] = "may_have_been_sent", sends[one] + 1
                dispatched += 1
            case "intent.classified.v1":
                wanted = (open_.get(one, "nothing"), sends[one])
                got = (fact.body["classification"], fact.body["send"])
                if wanted != got:
                    yield f"LSN {fact.lsn} says {got}, its records before say {wanted}"
                if (one, fact.body["send"]) in said:
                    yield f"LSN {fact.lsn} classifies send {fact.body['send']} a second time"
                said.add((one, fact.body["send"]))
                if got[0] == "never_sent" and not dispatched and before:
                    yield f"LSN {fact.lsn} says never sent, and the witness has seen it {before} times by then"
            case "intent.probed.v1" if fact.body["answer"] == "absent" and before:
                yield f"LSN {fact.lsn}: the probe did not find what the witness has"
            case _ if _says_yes(fact) and not by_now and not _unseen(effect):
                yield f"LSN {fact.lsn} ({fact.kind}) says that it landed, and the witness has nothing{_SILENT}"
            case "intent.resolved.v1" if fact.body["to"] == "not_landed" and before:
                yield f"LSN {fact.lsn} says that it did not land, and the witness has it"
        if fact.kind in _CLOSING:
            open_.pop(one, None)


def _unclassified(story: Story) -> Iterator[str]:
    """Attempts that go on although nothing was said of an effect that their process had left open."""
    left: dict[str, int] = {}
    for fact in story.remains.facts:
        if fact.kind in {"intent.pending.v1", "intent.dispatched.v1"}:
            left[fact.subject] = fact.body.get("send", 0)
        elif fact.kind == "intent.classified.v1" and left.get(fact.subject) == fact.body["send"]:
            del left[fact.subject]
        elif fact.kind in _CLOSING:
            left.pop(fact.subject, None)
        elif fact.kind == "attempt.resumed.v1":
            mine = f"intent:{fact.body['step']}/{fact.body['attempt']}/"
            for subject in [one for one in left if one.startswith(mine)]:
                yield f"LSN {fact.lsn}: {subject} goes on, and what the crash left of it is not on record"


def _unseen(effect: EffectFacts) -> bool:
    """Whether it is of a class whose effects may leave no line."""
    return effect.effect_class == "READ"


def _unwitnessed(effect: EffectFacts) -> Iterator[str]:
    """Lines that no Dispatched stands before, life by life (I1)."""
    noes = sum(_no(fact) and fact.kind != "intent.resolved.v1" for fact in effect.facts)
    last = max([life for life, _ in effect.lines], default=-1)
    for life in range(last + 1):
        lines = sum(of <= life for of, _ in effect.lines)
        sends = sum(fact.kind == "intent.dispatched.v1" and fact.life <= life for fact in effect.facts)
        if lines > sends:
            yield f"the witness has seen {lines} by the end of process {life}, and {sends} were dispatched by then"
            return
    if len(effect.lines) > effect.sends - noes:
        lines = len(effect.lines)
        yield f"the witness has seen {lines}, of {effect.sends} sends {noes} are recorded to have done nothing"


# ---- against its class ---------------------------------------------------------------------------------------------


def against_class(effect: EffectFacts) -> Iterator[str]:
    """What was sent against its class, a sentence each."""
    terms = effect.pending["terms"]
    in_force = effect.effect_class
    open_sends = absent = first_at = 0
    closed = False
    for fact in effect.facts:
        if fact.kind == "intent.dispatched.v1":
            first_at = first_at or fact.at
            if closed:
                yield f"LSN {fact.lsn}: sent again, although its outcome is recorded"
            if fact.body["send"] > terms["max_sends"]:
                yield f"LSN {fact.lsn}: send {fact.body['send']} of {terms['max_sends']}"
            if open_sends:
                yield from _sent_again(fact, in_force, absent, first_at + (terms.get("ttl_us") or 0))
            open_sends, absent = open_sends + 1, 0
        elif fact.kind == "intent.demoted.v1":
            in_force = fact.body["to"]
        elif fact.kind == "intent.probed.v1":
            absent = absent + 1 if fact.body["answer"] == "absent" else 0
        if _no(fact):
            open_sends = 0 if fact.kind == "intent.resolved.v1" else open_sends - 1
        closed = closed or _says_yes(fact)
    if effect.effect_class in {"AT_MOST_ONCE", "PROBE"} and len(effect.lines) > 1:
        yield f"the witness has seen it {len(effect.lines)} times"


def _sent_again(fact: Fact, in_force: str, absent: int, key_until: int) -> Iterator[str]:
    if in_force == "AT_MOST_ONCE":
        yield f"LSN {fact.lsn}: sent again by a machine"
    if in_force == "PROBE" and absent < _READS_TO_BE_SURE:
        yield f"LSN {fact.lsn}: sent again behind {absent} absences"
    if in_force == "KEYED" and fact.at >= key_until:
        yield f"LSN {fact.lsn}: sent again under a key that had expired"


# ---- the end -----------------------------------------------------------------------------------------------------


def _other_end(story: Story, whole: Story) -> Iterator[str]:
    right, found = whole.lives[-1].ended, story.lives[-1].ended
    if (found.how, found.value) != (right.how, right.value):
        same = _NOT_THE_SAME if found.how == right.how == "returned" else ""
        why = f" ({found.why})" if found.why else ""
        yield f"{right.how} with {right.value!r} is right, {found.how} with {found.value!r} was found{why}{same}"
    if story.remains.state != whole.remains.state:
        yield f"the run is {story.remains.state or 'not there'}"
    here = {effect.label for effect in story.remains.effects() if effect.lines}
    for effect in whole.remains.effects():
        if effect.lines and effect.label not in here:
            yield f"{effect.label} is not in the world"
