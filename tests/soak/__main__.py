"""`make soak ARGS="--minutes 30"`: one soak, its table, and its figures as JSON.

    python -m tests.soak [--minutes N] [--seed N] [--pace N] [--control NAME]... [--folder DIR] [--json FILE]

It ends with 0 where nothing was lost, against its class or stranded, and growth is flat; else with 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.soak.driving import KILL_EACH_S, soak
from tests.soak.judging import judged


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--minutes", type=float, default=1.0, help="of load")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pace", type=float, default=12.0, help="runs a second at most, each of some ten effects")
    parser.add_argument(
        "--control", action="append", default=[], help="keeps_records, or one of poimen.testing.sabotage"
    )
    parser.add_argument("--folder", type=Path, help="keep database and witness there")
    parser.add_argument("--json", type=Path, default=Path(".build/soak/report.json"))
    given = parser.parse_args()
    seconds = given.minutes * 60
    print(f"{seconds:g} s of load, a worker killed each {KILL_EACH_S:g} s, --seed {given.seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as place:
        folder = given.folder or Path(place)
        verdict = judged(soak(folder, seconds=seconds, seed=given.seed, pace=given.pace, controls=given.control))
    print(verdict.table())
    print(", ".join(f"{n:,} {what}" for what, n in verdict.figures.items() if isinstance(n, int)))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(verdict.plain() | {"seed": given.seed}, indent=1) + "\n")
    return 1 if verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
