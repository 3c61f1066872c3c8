"""What each driver says to the far side, and where it dies. Standard library alone: it runs in every runtime's venv.

A driver is started as `python run_NAME.py MODE` with the settings below in its environment. MODE is

- `start`: begin the one run and drive it to its end; in most situations the process dies on the way;
- `resume`: what the runtime's documentation says to do when a process has died, until the run is at its end;
- `time`: runs of few and of many effects that do nothing; prints how long one more effect takes;
- `count`: one run of so many effects, for whoever counts its syncs from outside.

It ends by printing one line of JSON, `told(...)`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MODE: Final = sys.argv[1] if len(sys.argv) > 1 else "start"
STATE: Final = Path(os.environ.get("PEER_STATE", "."))
"""The folder of the runtime's own files; a power cut takes from it what was not synced."""
DSN: Final = os.environ.get("PEER_DSN", "")
"""The PostgreSQL database of this trial, where the runtime uses one."""
OFFERS: Final = os.environ.get("PEER_OFFERS", "nothing")
"""What the far side offers: `nothing`, `keys`, `look`, `keys+look`."""
RUN: Final = os.environ.get("PEER_RUN", "run-1")
TTL_S: Final = float(os.environ.get("PEER_TTL_S", "3600"))
LAG_S: Final = float(os.environ.get("PEER_LAG_S", "0"))
LIMIT_S: Final = float(os.environ.get("PEER_LIMIT_S", "30"))
COUNT: Final = int(os.environ.get("PEER_COUNT", "10"))
TAKEOVER_S: Final = float(os.environ.get("PEER_TAKEOVER_S", "2"))
"""How long a silent process keeps its claim, where the runtime lets one say so."""

_FAR_SIDE: Final = os.environ.get("PEER_FAR_SIDE", "")
_ARMED: Final = Path(os.environ.get("PEER_ARMED", "armed"))
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class FarSideError(ConnectionError):
    """No answer has come: it may have happened."""


def point(name: str) -> None:
    """Die here, or be stopped here, if the trial wants it; at most one time in a trial."""
    try:
        armed, how = _ARMED.read_text(encoding="utf-8").split()
    except (FileNotFoundError, ValueError):
        return
    if armed == name:
        _ARMED.unlink()
        os.kill(os.getpid(), signal.SIGSTOP if how == "stop" else signal.SIGKILL)


def act(words: str, *, ref: str = "", key: str = "") -> str:
    """The effect: the far side does it and says so.

    Arguments:
        words: what is to be done, as the model has said it.
        ref: our reference, by which the far side can be asked later; it does not dedupe on it.
        key: an idempotency key; empty where the far side has none.
    """
    point("before")
    answer = _ask("/act", {"words": words, "ref": ref, "key": key})
    point("after")
    return str(answer["done"])


def look(ref: str) -> str | None:
    """What the far side shows under a reference now; None: nothing."""
    found = _ask("/look", {"ref": ref})["done"]
    return None if found is None else str(found)


def say() -> str:
    """A model: asked again, it may word the same thing in another way."""
    return str(_ask("/say", {})["words"])


def act_as_offered(words: str, ident: str) -> str:
    """The effect as the author of a plain step would write it: with the key, or with a look first.

    Arguments:
        words: as for `act`.
        ident: an id that is the same whenever the step is run again.
    """
    if "look" in OFFERS and (found := look(ident)) is not None:
        return found
    return act(words, ref=ident, key=ident if "keys" in OFFERS else "")


def armed_at(name: str) -> bool:
    """Whether the trial wants it at this point; the runtime itself is to see to it then."""
    try:
        wanted = _ARMED.read_text(encoding="utf-8").split()[0] == name
    except (FileNotFoundError, IndexError):
        return False
    if wanted:
        _ARMED.unlink()
    return wanted


def watch() -> None:
    """Say `stuck` and leave when the run has not come to an end within the limit."""

    def over() -> None:
        told("stuck", f"nothing has ended it for {LIMIT_S:g} s")
        os._exit(0)

    timer = threading.Timer(LIMIT_S, over)
    timer.daemon = True
    timer.start()


def told(ended: str, said: object = "") -> None:
    """Print how the run has ended, and leave.

    Arguments:
        ended: `done`; `failed`: over, and told as a failure; `asks`: a person has to decide; `busy`: another process
            has the run; `stuck`: nothing has moved it within the limit.
        said: the answer or the error.
    """
    print(json.dumps({"ended": ended, "said": str(said)[:300]}), flush=True)


def timed(run: Callable[[int], object], *, few: int = 10, many: int = 110, rounds: int = 7) -> None:
    """Print the seconds of one more effect: the difference of a long run and a short one, in each round."""
    run(few)
    found: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        run(few)
        half = time.perf_counter()
        run(many)
        found.append(((time.perf_counter() - half) - (half - began)) / (many - few))
    print(json.dumps({"seconds": found}), flush=True)


def _ask(path: str, what: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(_FAR_SIDE + path, json.dumps(what).encode(), {"Content-Type": "application/json"})
    try:
        with _OPENER.open(request, timeout=10) as response:
            answer: dict[str, Any] = json.load(response)
    except OSError as error:
        raise FarSideError(f"no answer: {error}") from error
    return answer
