"""Runs the release agent, untouched and killed at the worst moments, and shows what the log and the world say.

    python run.py [--repo PATH] [--workdir DIR] [--keep]

Each scenario has a world, a database and processes of its own. A kill is a real SIGKILL of the agent's process, at
a point that poimen names; then the agent is started again with the same run id. Ends 0 when everything was as
it must be.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import gitrepo
import inspect_run
import report
from notes import message_id
from scenarios import SCENARIOS, Seen, complaints
from world import DEFAULT_SOURCE, HERE, World, WorldError

if TYPE_CHECKING:
    from scenarios import Scenario

TEAM: Final = "team@example.org"
OPERATOR: Final = "operator"
_AGENT_S: Final = 60
_AT_ONCE: Final = 3
"""A scenario mostly waits: for syncs, and one of them for the lag of its probe."""


class Run:
    """One scenario in a world of its own."""

    def __init__(self, number: int, scenario: Scenario, source: Path, folder: Path) -> None:
        """Name its places.

        Arguments:
            number: its place in the report.
            scenario: what happens.
            source: the repository to release.
            folder: where its world goes.
        """
        self.number = number
        self.scenario = scenario
        self.run_id = f"release-{scenario.name}"
        self.lines = report.heading(number, scenario, self.run_id)
        self.seen: Seen | None = None
        self.wrong: list[str] = []
        self._source = source
        self._folder = folder
        self._db = folder / "poimen.db"
        self._codes: list[int] = []

    def carry_out(self) -> Run:
        """Run it to its end and keep what was seen, complaints included."""
        try:
            with World.set_up(self._source, self._folder / "world") as world:
                self._in(world)
        except (WorldError, gitrepo.GitFailed, inspect_run.CommandFailed, subprocess.TimeoutExpired) as error:
            self.wrong.append(str(error))
        self.lines += report.verdict(self.wrong)
        return self

    def _in(self, world: World) -> None:
        scenario, after_kill = self.scenario, None
        if scenario.tool:
            self._agent(world, crash=f"{scenario.point}:{scenario.tool}")
            after_kill = world.said()
        said = self._agent(world)
        person = self._ask_operator(world) if scenario.operator else []
        if person:
            said = self._agent(world)
        at_end, intents = world.said(), inspect_run.intents(self._db, self.run_id)
        tag = next((entry.version for entry in at_end.registrations), "no release")
        seen = Seen(
            codes=tuple(self._codes),
            after_kill=after_kill,
            at_end=at_end,
            intents=intents,
            branch=world.branch,
            tag=tag,
        )
        self.seen = seen
        self.lines += report.records(intents)
        if after_kill is not None:
            self.lines.append(report.world("after the kill", after_kill, tag))
        self.lines += [*report.told(intents), *person, report.world("at the end", at_end, tag)]
        self.wrong += complaints(scenario, seen)
        if self.wrong:
            self.wrong.append(f"the agent's last words: {said or 'none'}")

    def _agent(self, world: World, crash: str = "") -> str:
        """Run the agent's process to its end, however that comes; gives what it said."""
        env = {name: value for name, value in os.environ.items() if name != "POIMEN_CRASH"}
        env |= world.environment() | ({"POIMEN_CRASH": crash} if crash else {})
        where = [str(world.clone), str(world.remote), world.registry, world.smtp_host, str(world.smtp_port), TEAM]
        done = subprocess.run(
            [sys.executable, str(HERE / "agent_main.py"), "--id", self.run_id, "--db", str(self._db), *where],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=_AGENT_S,
        )
        self._codes.append(done.returncode)
        return (done.stdout + done.stderr).strip()

    def _ask_operator(self, world: World) -> list[str]:
        """Do what a person would do: read the inbox, look for the mail, resolve."""
        waiting = [item for item in inspect_run.inbox(self._db) if item.kind == "effect"]
        if len(waiting) != 1:
            self.wrong.append(f"the inbox has {len(waiting)} effects, expected 1")
            return []
        item = waiting[0]
        named = {intent.id: intent.request_id for intent in inspect_run.intents(self._db, self.run_id)}
        wanted = message_id(named.get(item.id, ""))
        there = any(mail.message_id == wanted for mail in world.said().mails)
        found = f"{wanted} is {'there' if there else 'not there'}"
        command = inspect_run.resolving(
            item,
            "landed" if there else "not-landed",
            by=OPERATOR,
            why="looked into the mailbox",
            evidence=found,
            db=self._db,
        )
        inspect_run.carry_out(command)
        if there != (self.scenario.operator == "landed"):
            self.wrong.append(f"the operator looked for the mail: {found}")
        return report.operator(item, found, command)


def show(source: Path, folder: Path) -> int:
    """Carry out all scenarios, print them in order, and give the number of complaints.

    Arguments:
        source: the repository to release.
        folder: an empty folder for their worlds.
    """
    begun = time.monotonic()
    print(f"Releasing {source}, each time into a world of its own in {folder}.")
    print("Per effect, its three records: LSN and time (UTC).")
    all_runs: list[Run] = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        runs = [
            Run(number, scenario, source, folder / f"{number:02}-{scenario.name}")
            for number, scenario in enumerate(SCENARIOS)
        ]
        for run in pool.map(Run.carry_out, runs):
            print("\n".join(run.lines), flush=True)
            all_runs.append(run)
    seen = [(run.scenario, run.seen) for run in all_runs if run.seen is not None]
    print(report.summary(seen, time.monotonic() - begun))
    return sum(len(run.wrong) for run in all_runs)


def main() -> int:
    """Read the arguments, run, clean up."""
    parser = argparse.ArgumentParser(description="Run the release agent, untouched and killed at the worst moments.")
    parser.add_argument("--repo", type=Path, default=DEFAULT_SOURCE, help="the git repository to release (only read)")
    parser.add_argument("--workdir", type=Path, help="where to make the folder of this run (default: a temporary one)")
    parser.add_argument("--keep", action="store_true", help="keep that folder: databases, remotes, mails")
    args = parser.parse_args()
    if args.workdir is not None:
        args.workdir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="release-agent-", dir=args.workdir)).resolve()
    try:
        World.set_up(args.repo, folder / "first look")
        shutil.rmtree(folder / "first look")
    except WorldError as error:
        sys.stderr.write(f"{error}\n")
        shutil.rmtree(folder)
        return 2
    wrong = show(args.repo, folder)
    if wrong or args.keep:
        print(f"kept in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
