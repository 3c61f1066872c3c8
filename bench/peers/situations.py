"""What a trial is: a situation, and what the far side offers; and how its end is judged.

This module must never know a runtime; it keeps the invariant that a judgement rests on two things only: how many
effects the far side has done, and how the run says that it has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Offers: TypeAlias = Literal["nothing", "keys", "look", "keys+look"]
"""What the far side offers: no second chance, idempotency keys, a way to ask, or both of these."""

How: TypeAlias = Literal["kill", "stop", "none"]

OFFERS: Final[tuple[Offers, ...]] = ("nothing", "keys", "look", "keys+look")


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One way in which it goes wrong.

    Arguments:
        name: the column.
        says: what happens, for the page.
        at: the point at which the process dies or is stopped; see `inside.point`.
        how: SIGKILL, SIGSTOP, or nothing.
        offers: with what the situation makes sense.
        loses: answers that are lost.
        rewords: whether the model's words differ each time.
        ttl_s: how long keys live, seconds.
        lag_s: how long the far side hides what it has done, seconds.
        cut: whether the power fails with the process: what was not synced is gone.
        expires: whether the run is taken up again only when its key has expired.
    """

    name: str
    says: str
    at: str = "after"
    how: How = "kill"
    offers: tuple[Offers, ...] = ("nothing", "keys", "look")
    loses: int = 0
    rewords: bool = False
    ttl_s: float = 3600.0
    lag_s: float = 0.0
    cut: bool = False
    expires: bool = False


SITUATIONS: Final = (
    Situation(name="window A", says="killed after the decision to act, before the call is handed to the tool", at="A"),
    Situation(name="before the call", says="killed in the tool, before the request leaves", at="before"),
    Situation(name="after the call", says="killed in the tool, after the far side has answered", at="after"),
    Situation(name="outcome lost", says="nothing dies: the far side acts, and its answer is lost", how="none", loses=1),
    Situation(
        name="zombie",
        says="stopped in the tool before the request leaves; another process takes the run up; then the first goes on",
        at="before",
        how="stop",
    ),
    Situation(
        name="power loss",
        says="as *after the call*, and all that was not synced is gone from the disk",
        cut=True,
    ),
    Situation(
        name="key expired",
        says="as *after the call*, and the run is taken up when the far side has forgotten the key",
        offers=("keys", "keys+look"),
        ttl_s=4.0,
        expires=True,
    ),
    Situation(
        name="probe lag",
        says="as *after the call*, and the far side shows what it has done only 10 s later",
        offers=("look",),
        lag_s=10.0,
    ),
    Situation(
        name="re-worded call",
        says="as *after the call*, and a model that is asked again words the call in another way",
        rewords=True,
    ),
)

BY_NAME: Final = {each.name: each for each in SITUATIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What one trial adds to the score.

    Arguments:
        landed: effects that the far side has done.
        duplicates: those beyond the first.
        lost: 1 when none was done and no person is asked about it.
        misreported: 1 when the run is told as a failure, and the effect is there.
        needless: 1 when a person is asked although a machine could have known or sent again safely.
        unended: 1 when the run did not come to an end within the limit.
    """

    landed: int
    duplicates: int
    lost: int
    misreported: int
    needless: int
    unended: int


def judge(situation: Situation, offers: str, *, landed: int, ended: str) -> Judged:
    """Judge one trial.

    A person is asked needlessly when nothing can have been sent (window A), while a key is alive, or where the far side
    can be asked. When it offers nothing, or the key has expired, asking is the only answer that cannot be wrong.

    Arguments:
        situation: what happened.
        offers: what the far side offers.
        landed: effects that it has done.
        ended: see `inside.told`.
    """
    asks = ended == "asks"
    could_know = situation.name == "window A" or "look" in offers or ("keys" in offers and not situation.expires)
    return Judged(
        landed=landed,
        duplicates=max(0, landed - 1),
        lost=int(landed == 0 and ended in {"done", "failed"}),
        misreported=int(landed > 0 and ended == "failed"),
        needless=int(asks and could_know),
        unended=int(ended in {"busy", "stuck"}),
    )
