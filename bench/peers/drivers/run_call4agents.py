"""call4agents: a decorated function in a run of plain Python; after a death the agent runs again, and calls it."""

from __future__ import annotations

import call4agents as c4a
import inside

HOW = {
    "nothing": {},
    "keys": {"idempotent_for": inside.TTL_S},
    "look": {"reconcile": lambda words: inside.look(inside.RUN)},
    "keys+look": {"idempotent_for": inside.TTL_S, "reconcile": lambda words: inside.look(inside.RUN)},
}


@c4a.effect(**HOW[inside.OFFERS])
def charge(words: str) -> str:
    """Act."""
    key = c4a.idempotency_key() if "keys" in inside.OFFERS else ""
    return inside.act(words, ref=inside.RUN, key=key)


@c4a.effect
def nothing(n: int) -> int:
    """An effect that does nothing."""
    return n


RUNS = iter(range(1_000_000))


def many(times: int) -> None:
    """Effects one after another."""
    with c4a.run(f"many-{next(RUNS)}"):
        for n in range(times):
            nothing(n)


def main() -> None:
    """One mode."""
    c4a.init(str(inside.STATE / "ledger.sqlite"), secret=b"of this trial alone, and it guards nothing")
    if inside.MODE == "time":
        inside.timed(many)
    elif inside.MODE == "count":
        many(inside.COUNT)
    else:
        inside.watch()
        with c4a.run(inside.RUN):
            words = inside.say()
            inside.point("A")
            try:
                try:
                    done = charge(words)
                except inside.FarSideError:
                    done = charge(words)  # an agent tries again; what may be done is the library's to say
                inside.told("done", done)
            except c4a.EffectInDoubt as doubt:
                inside.told("asks", doubt)


if __name__ == "__main__":
    main()
