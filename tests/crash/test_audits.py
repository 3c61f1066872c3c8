"""The judge of kills anywhere: a sound story passes, and each thing that is wrong is one sentence of its kind."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from poimen.testing import Ended, Fact, Kill, Life, Notes, Remains, Story, contradictions

SUBJECT = "intent:pay#0/1/0"
DAY_US = 24 * 3600 * 1_000_000


def life(how: Any, *, told: tuple[tuple[str, int, str], ...] = ()) -> Life:
    died = signal.SIGKILL if how == "killed" else 0
    return Life(
        kill=Kill(at="called:pay:1" if died else ""),
        ended=Ended(how=how, signal=died, code=-died, value=None if died else "paid", why=""),
        seen=0,
        notes=Notes(told=told),
    )


def fact(lsn: int, kind: str, life_n: int, at_us: int = 0, **body: Any) -> Fact:
    subject = f"decision:{body['id']}" if kind.startswith("decision") else SUBJECT
    return Fact(lsn=lsn, kind=kind, subject=subject, body=body, at=at_us, life=life_n)


def pending(effect_class: str, lsn: int = 1) -> Fact:
    terms = {"effect_class": effect_class, "max_sends": 3, "ttl_us": DAY_US if effect_class == "KEYED" else None}
    return fact(lsn, "intent.pending.v1", 0, request_id="id", tool="pay", step="pay#0", ordinal=0, terms=terms)


def sent(lsn: int, send: int, by: int, at: int = 1) -> Fact:
    return fact(lsn, "intent.dispatched.v1", by, at, send=send)


def classified(lsn: int, said: str, send: int) -> Fact:
    return fact(lsn, "intent.classified.v1", 1, classification=said, send=send)


def returned(lsn: int, by: int = 1, kind: str = "returned") -> Fact:
    return fact(lsn, "intent.committed.v1", by, outcome={"kind": kind}, send=1)


def probed(lsn: int, answer: str) -> Fact:
    return fact(lsn, "intent.probed.v1", 1, answer=answer)


def resolved(lsn: int, to: str) -> Fact:
    return fact(lsn, "intent.resolved.v1", 1, to=to, by="ann")


def resumed(lsn: int) -> Fact:
    return fact(lsn, "attempt.resumed.v1", 1, step="pay#0", attempt=1)


def demoted(lsn: int, to: str) -> Fact:
    return fact(lsn, "intent.demoted.v1", 1, to=to)


MAYBE = "may_have_been_sent"


def story(*facts: Fact, lines: tuple[tuple[int, str], ...] = ((0, "id tea"),), **read: Any) -> Story:
    """Killed one time, in its first life, and brought to its end in the second."""
    made = Story(n=3, folder=Path("story"), lives=[life("killed", told=(("r", 1, "aa"),)), life("returned")])
    hashes = tuple(f"{n:02x}" for n in range(0xAA, 0xAA + len(facts)))
    made.known = Remains(**{"facts": facts, "hashes": hashes, "state": "SUCCEEDED", "lines": lines} | read)
    return made


def whole() -> Story:
    made = Story(n=-1, folder=Path("whole"), lives=[life("returned")])
    facts = (pending("AT_MOST_ONCE"), sent(2, 1, 0), returned(3, 0))
    lines = ((0, "id tea"),)
    made.known = Remains(facts=facts, hashes=("a", "b", "c"), state="SUCCEEDED", lines=lines)
    return made


SOUND = {
    "window A": story(
        pending("AT_MOST_ONCE"), classified(2, "never_sent", 0), sent(3, 1, 1), returned(4), lines=((1, "id"),)
    ),
    "sent again": story(
        pending("IDEMPOTENT"),
        sent(2, 1, 0),
        classified(3, MAYBE, 1),
        sent(4, 2, 1),
        returned(5),
        lines=((0, "id"), (1, "id")),
    ),
    "a living key": story(
        pending("KEYED"), sent(2, 1, 0), classified(3, MAYBE, 1), resumed(4), sent(5, 2, 1, DAY_US), returned(6)
    ),
    "found": story(
        pending("PROBE"), sent(2, 1, 0), classified(3, MAYBE, 1), probed(4, "landed"), resolved(5, "landed")
    ),
    "absent": story(
        pending("PROBE"),
        sent(2, 1, 0),
        classified(3, MAYBE, 1),
        probed(4, "absent"),
        probed(5, "absent"),
        sent(6, 2, 1),
        returned(7),
        lines=((1, "id"),),
    ),
    "a person": story(pending("AT_MOST_ONCE"), sent(2, 1, 0), classified(3, MAYBE, 1), resolved(4, "landed")),
    "a person says no": story(
        pending("AT_MOST_ONCE"), sent(2, 1, 0), classified(3, MAYBE, 1), resolved(4, "not_landed"), lines=()
    ),
    "told": story(
        fact(1, "decision.recorded.v1", 0, id="plan"),
        pending("READ", 2),
        sent(3, 1, 0),
        returned(4, 0),
        lines=((0, "told decision plan"), (0, "id tea"), (0, "told outcome id")),
    ),
}


@pytest.mark.parametrize("name", [name for name in SOUND if name != "a person says no"])
def test_a_sound_story_passes(name: str) -> None:
    assert list(map(str, contradictions([whole(), SOUND[name]]))) == []


def test_what_did_not_land_is_missed_at_the_end() -> None:
    assert [(one.fault, one.what) for one in contradictions([whole(), SOUND["a person says no"]])] == [
        ("other end", "pay#0 is not in the world")
    ]


AMO, IDEM, KEYED, PROBE = (pending(name) for name in ("AT_MOST_ONCE", "IDEMPOTENT", "KEYED", "PROBE"))
TWICE = ((0, "id tea"), (1, "id tea"))
WRONG = [
    ("lost", "been told of LSN 1", story(AMO, sent(2, 1, 0), returned(3), hashes=("b", "c", "d"))),
    ("lost", "been told of LSN 1", story(AMO, sent(2, 1, 0), returned(3), hashes=())),
    ("lost", "cannot be read", story(error="Corrupt: it")),
    ("lost", "no process says", story(AMO, sent(2, 1, 0), returned(3, -1))),
    (
        "lost",
        "told of decision plan",
        story(AMO, sent(2, 1, 0), returned(3), lines=((0, "id"), (0, "told decision plan"))),
    ),
    (
        "lost",
        "not in the log when it died",
        story(
            AMO,
            sent(2, 1, 0),
            fact(3, "decision.recorded.v1", 1, id="x"),
            returned(4),
            lines=((0, "id"), (0, "told decision x")),
        ),
    ),
    ("lost", "told of outcome id", story(AMO, sent(2, 1, 0), returned(3), lines=((0, "id"), (0, "told outcome id")))),
    (
        "misclassified",
        "records before say ('never_sent', 0)",
        story(AMO, classified(2, MAYBE, 1), sent(3, 1, 1), returned(4), lines=((1, "id"),)),
    ),
    (
        "misclassified",
        "records before say ('may_have_been_sent', 1)",
        story(AMO, sent(2, 1, 0), classified(3, "never_sent", 0), returned(4)),
    ),
    (
        "misclassified",
        "records before say ('nothing', 1)",
        story(AMO, sent(2, 1, 0), returned(3), classified(4, MAYBE, 1)),
    ),
    ("misclassified", "is not on record", story(AMO, sent(2, 1, 0), resumed(3), returned(4))),
    ("misclassified", "is not on record", story(AMO, resumed(2), sent(3, 1, 1), returned(4), lines=((1, "id"),))),
    (
        "misclassified",
        "a second time",
        story(AMO, sent(2, 1, 0), classified(3, MAYBE, 1), classified(4, MAYBE, 1), returned(5)),
    ),
    ("misclassified", "and 0 were dispatched", story(AMO, classified(2, "never_sent", 0), sent(3, 1, 1), returned(4))),
    ("misclassified", "the probe did not find", story(PROBE, sent(2, 1, 0), probed(3, "absent"), returned(4))),
    ("misclassified", "says that it landed", story(AMO, sent(2, 1, 0), resolved(3, "landed"), lines=((9, "id"),))),
    ("misclassified", "did not land, and the witness", story(AMO, sent(2, 1, 0), resolved(3, "not_landed"))),
    ("misclassified", "recorded to have done nothing", story(AMO, sent(2, 1, 0), returned(3, 1, "not_sent"))),
    ("against class", "by a machine", story(AMO, sent(2, 1, 0), sent(3, 2, 1), returned(4))),
    (
        "against class",
        "by a machine",
        story(KEYED, sent(2, 1, 0), demoted(3, "AT_MOST_ONCE"), sent(4, 2, 1), returned(5)),
    ),
    (
        "against class",
        "behind 1 absences",
        story(PROBE, sent(2, 1, 0), probed(3, "absent"), sent(4, 2, 1), returned(5), lines=((1, "id"),)),
    ),
    ("against class", "had expired", story(KEYED, sent(2, 1, 0), sent(3, 2, 1, DAY_US + 1), returned(4))),
    ("against class", "its outcome is recorded", story(IDEM, sent(2, 1, 0), returned(3), sent(4, 2, 1))),
    ("against class", "send 4 of 3", story(IDEM, sent(2, 1, 0), sent(3, 4, 1), returned(4))),
    (
        "against class",
        "has seen it 2 times",
        story(AMO, sent(2, 1, 0), resolved(3, "not_landed"), sent(4, 1, 1), returned(5), lines=TWICE),
    ),
    ("other end", "the run is WAITING", story(AMO, sent(2, 1, 0), returned(3), state="WAITING")),
    ("other end", "not in the world", story(pending("READ"), sent(2, 1, 0), returned(3), lines=())),
]


@pytest.mark.parametrize(("fault", "says", "wrong"), WRONG, ids=[f"{one[0]}-{n}" for n, one in enumerate(WRONG)])
def test_what_is_wrong_is_said(fault: str, says: str, wrong: Story) -> None:
    found = contradictions([whole(), wrong])
    assert any(one.fault == fault and says in one.what for one in found), "\n".join(map(str, found))
    assert all("story 3 (called of pay 1)" in str(one) for one in found)


@pytest.mark.parametrize(("how", "value"), [("waiting", "paid"), ("raised", "paid"), ("returned", "other")])
def test_another_result_is_another_end(how: Any, value: str) -> None:
    other = story(AMO, sent(2, 1, 0), returned(3))
    other.lives[-1] = Life(
        kill=Kill(), ended=Ended(how=how, signal=0, code=0, value=value, why=""), seen=0, notes=Notes()
    )
    (found,) = contradictions([whole(), other])
    assert found.fault == "other end"
    assert found.what.endswith("cannot be judged: replace() what differs)") is (how == "returned")


def test_stories_that_show_nothing_are_a_fault() -> None:
    assert [one.what for one in contradictions([])] == ["nothing was killed, so nothing was shown"]
    assert [one.what for one in contradictions([whole()])] == ["nothing was killed, so nothing was shown"]
    silent = whole()
    silent.known = Remains(facts=silent.remains.facts, hashes=silent.remains.hashes, state="SUCCEEDED")
    said = [one.what for one in contradictions([silent, story(AMO, sent(2, 1, 0), returned(3))])]
    hint = " (if its body leaves no line at Witness.here(), replace() it by one that does)"
    assert said == [f"the witness has no line of any effect, so nothing was shown{hint}"]
    half = story(AMO, sent(2, 1, 0), returned(3), lines=())
    assert any(one.what.endswith(f"the witness has nothing{hint}") for one in contradictions([whole(), half]))
