"""`python -m poimen.testing.schedules MODULE:FUNC --seed N`: one schedule again, or many; its trace, and what is wrong.

Source: design proof.md, P11.
"""

from __future__ import annotations

import argparse
import sys

from poimen.testing import sabotage
from poimen.testing.schedules.sweeping import schedule_sweep, simulate


def main(words: list[str]) -> int:
    """Do what the words say; the exit code is 0 when nothing is wrong.

    Arguments:
        words: of the command line.
    """
    parser = argparse.ArgumentParser(prog="python -m poimen.testing.schedules", description=__doc__)
    parser.add_argument("program", help="MODULE:FUNC or FILE.py:FUNC that gives called workflows")
    parser.add_argument("--seed", type=int, help="one schedule: its trace and what is wrong")
    parser.add_argument("--seeds", type=int, default=1000, help="or so many, from 0 on")
    parser.add_argument("--order", choices=("seeded", "asyncio"), default="seeded", help="which callback runs next")
    parser.add_argument("--check", help="MODULE:FUNC that says what else is wrong")
    parser.add_argument("--sabotage", choices=tuple(sabotage.CONTROLS), help="break poimen first")
    given = parser.parse_args(words)
    sys.path.insert(0, "")
    if given.sabotage:
        sabotage.apply(given.sabotage)
    if given.seed is None:
        report = schedule_sweep(given.program, seeds=given.seeds, order=given.order, check=given.check)
        sys.stdout.write("\n".join([f"{report}", *map(str, report.faults), ""]))
        return 1 if report.faults else 0
    found = simulate(given.program, seed=given.seed, order=given.order, check=given.check)
    sys.stdout.write("\n".join([*found.trace(), f"{found.disturbances}", f"{found}", *found.faults, ""]))
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
