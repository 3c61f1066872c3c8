"""Measure the scoreboard and write its page; see the package.

python -m bench.peers [--only NAME ...] [--situations NAME ...] [--times N] [--timings | --trials] [--page]
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import apsw

from bench.peers import page
from bench.peers.install import ROOT, install, versions
from bench.peers.runtimes import BY_NAME, RUNTIMES, Runtime
from bench.peers.servers import Servers
from bench.peers.situations import BY_NAME as BY_SITUATION
from bench.peers.situations import OFFERS, SITUATIONS
from bench.peers.timings import timing
from bench.peers.trial import NotAsMeantError, run_trial
from poimen import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESULTS: Final = Path(__file__).with_name("results.json")


def scored(runtime: Runtime, servers: Servers, times: int, only: Sequence[str]) -> dict[str, Any]:
    """Every trial of a runtime: by what the far side offers, by situation, one entry for each time.

    Arguments:
        runtime: which.
        servers: where it finds its server.
        times: how often each.
        only: names of situations; all when empty.
    """
    found: dict[str, Any] = {}
    for offers in OFFERS:
        for situation in SITUATIONS:
            if offers not in situation.offers or situation.name in runtime.without:
                continue
            if only and situation.name not in only:
                continue
            cell: list[dict[str, Any]] = []
            for _ in range(times):
                run = f"run-{time.monotonic_ns()}"
                trial = run_trial(runtime, situation, offers, servers.settings(runtime.server), run)
                cell.append({"landed": trial["landed"], "ended": trial["ended"]})
            found.setdefault(offers, {})[situation.name] = cell
            print(f"{runtime.name:<20}{offers:<11}{situation.name:<18}{cell}", flush=True)
    return found


def machine(servers: Servers, *, postgres: bool) -> dict[str, Any]:
    """When, and on what: no names of hosts, no paths."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], check=True, capture_output=True, text=True, cwd=ROOT
    )
    said = {
        "date": dt.datetime.fromtimestamp(clock.wall_us() / 1e6, dt.UTC).date().isoformat(),
        "commit": commit.stdout.strip(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "sqlite of poimen": apsw.sqlite_lib_version(),
    }
    return said | ({"postgresql": servers.version("postgres")} if postgres else {})


def measure(
    chosen: list[Runtime], known: dict[str, Any], given: argparse.Namespace, save: Callable[[], None]
) -> list[str]:
    """Measure some runtimes into what is known; what went wrong.

    Arguments:
        chosen: which.
        known: the contents of results.json, changed in place.
        given: `--times` and `--timings`.
        save: called after each runtime.
    """
    wrong: list[str] = []
    with Servers() as servers:
        for runtime in chosen:
            if runtime.venv:
                install(runtime.venv)
            row = known["runtimes"].setdefault(runtime.name, {})
            row["versions"] = versions(runtime.venv, runtime.packages) if runtime.venv else {}
            about = machine(servers, postgres=runtime.server == "postgres")
            try:
                if not given.timings:
                    found = scored(runtime, servers, given.times, given.situations)
                    kept = row.get("trials", {}) if given.situations else {}
                    row["trials"] = {offers: {**kept.get(offers, {}), **found.get(offers, {})} for offers in OFFERS}
                    row["measured"] = about
                if not given.trials:
                    row["timing"] = {**timing(runtime, servers), "measured": about}
            except (NotAsMeantError, subprocess.SubprocessError) as error:
                wrong.append(f"{runtime.name}: {error}")
            save()
    return wrong


def main() -> None:
    """Measure, save, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(BY_NAME), help="these runtimes, into the same results")
    parser.add_argument("--situations", nargs="+", choices=sorted(BY_SITUATION), default=[], help="only these anew")
    parser.add_argument("--times", type=int, default=1, help="how often each trial is made")
    parser.add_argument("--timings", action="store_true", help="only the timed part: alone, on a quiet machine")
    parser.add_argument(
        "--trials", action="store_true", help="only the trials, nothing timed: it may run beside other work"
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="another file than the repository's; no page then"
    )
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page from results.json")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped
    known: dict[str, Any] = {"runtimes": {}}
    if given.results.exists():
        known = json.loads(given.results.read_text(encoding="utf-8"))

    def save() -> None:
        given.results.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        if given.results == RESULTS:
            page.write(known)

    if given.page:
        page.write(known)
        return
    wrong = measure([BY_NAME[name] for name in given.only] if given.only else list(RUNTIMES), known, given, save)
    if wrong:
        raise SystemExit("\n".join(["not measured:", *wrong]))


if __name__ == "__main__":
    main()
