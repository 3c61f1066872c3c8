"""The control: a loop that writes down what it has done, after it has done it. It must be seen to duplicate."""

from __future__ import annotations

import json

import inside

DONE = inside.STATE / "done.json"


def step(name: str, words: str | None) -> str:
    """Do what is not on record, and put it there."""
    try:
        known: dict[str, str] = json.loads(DONE.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # nothing there, or what a power cut has left of it
        known = {}
    if name not in known:
        known[name] = inside.say() if words is None else _act(words)
        DONE.write_text(json.dumps(known), encoding="utf-8")
    return known[name]


def _act(words: str) -> str:
    inside.point("A")
    return inside.act_as_offered(words, f"{inside.RUN}/charge")


def quick(times: int) -> None:
    """Effects that do nothing."""
    for n in range(times):
        DONE.write_text(json.dumps({"done": n}), encoding="utf-8")


def main() -> None:
    """One mode."""
    if inside.MODE == "time":
        inside.timed(quick)
    elif inside.MODE == "count":
        quick(inside.COUNT)
    else:
        inside.watch()
        words = step("say", None)
        for left in (2, 1, 0):  # as loops do: once more when it has failed
            try:
                inside.told("done", step("charge", words))
                break
            except inside.FarSideError as error:
                if not left:
                    inside.told("failed", error)


if __name__ == "__main__":
    main()
