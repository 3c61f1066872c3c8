"""Runs the release agent in a process of its own.

    python agent_main.py --id release-1 --db poimen.db REPO REMOTE REGISTRY SMTP_HOST SMTP_PORT TO

The same id again goes on with the same run. Ends 0 with the result on standard output, 4 when only an operator
can move the run (why, and the command, on standard error), 1 when the run ended badly.
"""

from __future__ import annotations

import argparse
import sys

import poimen
from agent import release

OPERATOR_MUST_DECIDE = 4
"""What the poimen command line ends with in this case."""


def main() -> int:
    """Run it and say how it ended."""
    parser = argparse.ArgumentParser(description="Release a git repository.")
    parser.add_argument("--id", required=True, help="the run's id")
    parser.add_argument("--db", required=True, help="the database")
    for name in ("repo", "remote", "registry", "smtp_host"):
        parser.add_argument(name)
    parser.add_argument("smtp_port", type=int)
    parser.add_argument("to")
    args = parser.parse_args()
    call = release(args.repo, args.remote, args.registry, args.smtp_host, args.smtp_port, args.to)
    try:
        sys.stdout.write(poimen.run(call, run_id=args.id, db=args.db) + "\n")
    except poimen.RunWaiting as waiting:
        sys.stderr.write(f"the run waits for: {waiting.reason}\n  {waiting.command}\n")
        return OPERATOR_MUST_DECIDE
    except poimen.RunEnded as ended:
        sys.stderr.write(f"{ended}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
