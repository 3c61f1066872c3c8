"""`poimen demo`, `reproduce`, `bench`, `explain`, `completion`: what shows how poimen works, and what its words mean.

The demonstration kills real processes and asks an outside witness, never the log, what happened in the world. This
module must never touch the user's database; it keeps the invariant that what it prints was read back.

Source: design api.md, "Command line"; requirement decision-ledger.md; requirement write-ahead-intent.md.
"""

from __future__ import annotations

import inspect
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import poimen
from poimen.blobs.tables import TieredBlobs
from poimen.cli.frame.declaring import command, noun
from poimen.cli.frame.output import us_of
from poimen.cli.frame.session import Log
from poimen.cli.intents import intent_shape, records_by_intent
from poimen.cli.main import WAITING, exit_code, root
from poimen.engine import reading
from poimen.kernel.errors import NotFound, PoimenError, RunWaiting
from poimen.kernel.views import newest_branch
from poimen.log.opening import open_store
from poimen.log.writer import Door

if TYPE_CHECKING:
    from poimen.cli.frame.session import Session

# ---- errors and shells -----------------------------------------------------------------------------------------


def known_errors() -> dict[str, type[PoimenError]]:
    """Our error classes by code, in order, those defined beside their subject included; not those that users derive."""
    import poimen.engine.desk
    import poimen.kernel.ids  # noqa: F401 (both define errors)

    todo, found = [PoimenError], dict[str, type[PoimenError]]()
    for cls in todo:
        if cls.__module__.partition(".")[0] == "poimen":
            found[cls.code] = cls
        todo.extend(cls.__subclasses__())
    return dict(sorted(found.items()))


@command(None, "explain")
@click.argument("code")
def explain(session: Session, code: str) -> None:
    """Print the long form of an error: CODE is PO108, 108 or Conflict."""
    errors = known_errors()
    by_name = {cls.__name__.lower(): cls for cls in errors.values()}
    cls = errors.get(code.upper()) or errors.get(f"PO{code}") or by_name.get(code.lower())
    if cls is None:
        raise NotFound(f"no error is called {code!r}", hint=f"there are: {', '.join(errors)}")
    text = inspect.cleandoc(cls.__doc__ or "")
    data: dict[str, Any] = {"code": cls.code, "name": cls.__name__, "title": cls.title(), "text": text}
    data |= {"hint": cls.hint, "exit": exit_code(cls.__new__(cls))}
    data["exit_by_reason"] = WAITING if cls is RunWaiting else {}

    def words() -> None:
        session.out.line(f"{cls.code} {cls.__name__}", bold=True)
        session.out.whole(text)
        if cls.hint:
            session.out.line()
            session.out.line(f"go on: {cls.hint}")
        others = "".join(f", with {code} where it waits for {what}" for what, code in data["exit_by_reason"].items())
        session.out.line()
        session.out.line(f"the command line ends with {data['exit']}{others}")

    session.out.show(data, words)


@command(None, "completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(session: Session, shell: str) -> None:
    """Print a script that completes poimen's commands: `source <(poimen completion bash)`."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise NotFound(f"no completion for {shell}")
    script = kind(root, {}, "poimen", "_POIMEN_COMPLETE").source()
    session.out.show({"shell": shell, "script": script}, lambda: click.echo(script))


# ---- proofs ----------------------------------------------------------------------------------------------------


@command(None, "reproduce")
def reproduce(session: Session) -> None:
    """Decide, then time out: what is left when the decision was written before the wait, and after it."""
    from poimen.testing import decision_window

    found = decision_window.reproduce()
    session.out.show(found, lambda: click.echo(json.dumps(found, indent=2)))


@click.command("bench", context_settings={"ignore_unknown_options": True})
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def bench(args: tuple[str, ...]) -> int:
    """Run the benchmarks of the repository; ARGS are theirs, --json and the like included."""
    places = (Path(poimen.__file__).parents[2], Path.cwd())
    script = next((place / "bench" / "run.py" for place in places if (place / "bench" / "run.py").is_file()), None)
    if script is None:
        raise NotFound(
            "the benchmarks are in the repository, not in the installed package", hint="make bench, in a clone"
        )
    return subprocess.run([sys.executable, str(script), *args], check=False).returncode  # noqa: S603 (our own script)


# ---- the demonstration -----------------------------------------------------------------------------------------


@noun("demo", default="", later={"branch": 4, "verify": 4})
def demo() -> None:
    """Watch it work."""


AGENT: Final = """\
from datetime import timedelta

import poimen
from poimen import effects


@poimen.tool(effect=effects.KEYED(ttl=timedelta(hours=24)), summary="charge {cents} for {order}")
async def charge(order: str, cents: int) -> str:
    with open("witness.txt", "a") as far_side:           # a payment API that dedupes on our request id
        print("charge", poimen.request_id(), file=far_side)
    return f"charged {cents}"


@poimen.tool(effect=effects.AT_MOST_ONCE, summary="mail the receipt for {order}")
async def mail(order: str) -> None:
    with open("witness.txt", "a") as far_side:           # a mail server: nobody can take a mail back
        print("mail", poimen.request_id(), file=far_side)


@poimen.workflow
async def shop(order: str) -> str:
    done = await charge(order, 4200)
    await mail(order)
    return done
"""
RUN: Final = "tea-1"
SLOWEST_S: Final = 60


class Stage:
    """A folder with the agent, its database and its witness.

    Arguments:
        session: says what happens.
        folder: empty.
    """

    def __init__(self, session: Session, folder: Path) -> None:
        self.out = session.out
        self.folder = folder
        self.tells = session.out.form == "text"
        self.wrong: list[str] = []
        self.seen: list[dict[str, Any]] = []
        (folder / "agent.py").write_text(AGENT, encoding="utf-8")

    def poimen(self, *words: str, crash: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command in a process of its own, to whatever end it comes."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("POIMEN_")}
        home = str(Path(poimen.__file__).parents[1])
        env["PYTHONPATH"] = os.pathsep.join([home, *filter(None, [env.get("PYTHONPATH", "")])])
        if crash:
            env["POIMEN_CRASH"] = crash
        return subprocess.run(  # noqa: S603 (ourselves)
            [sys.executable, "-m", "poimen", *words, "--db", "demo.db"],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=SLOWEST_S,
            stdin=subprocess.DEVNULL,
        )

    def tell(self, text: str = "", *, bold: bool = False) -> None:
        """Say what happens, to people."""
        if self.tells:
            self.out.line(text, bold=bold)

    def act(self, title: str, *words: str, ends: int, crash: str = "") -> str:
        """Run a command, show it and how it ended."""
        done = self.poimen(*words, crash=crash)
        self.tell()
        self.tell(title, bold=True)
        self.tell(f"$ {'POIMEN_CRASH=' + crash + ' ' if crash else ''}poimen {shlex.join(words)}")
        killed = "killed by SIGKILL" if done.returncode == -signal.SIGKILL else f"exit {done.returncode}"
        said = done.stdout or done.stderr
        self.tell(f"  {killed}" + (f": {said.strip().splitlines()[0]}" if said.strip() else ""))
        if done.returncode != ends:
            self.wrong.append(f"{title}: {killed}, expected {ends}: {done.stderr.strip()}")
        return done.stdout

    def _last_intent(self, tool: str) -> dict[str, Any]:
        store = open_store(str(self.folder / "demo.db"), read_only=True)
        try:
            log = Log(store=store, door=Door(store), bodies=TieredBlobs(store, None))
            view, _ = reading.read_run(store, RUN)
            intent = [i for i in newest_branch(view).intents() if i.pending.tool == tool][-1]
            about = records_by_intent(log, RUN)[str(intent.id).removeprefix(f"{RUN}/")]
            shape: dict[str, Any] = intent_shape(view, intent, about, log, content=False)
        finally:
            store.close()
        return shape

    def look(self, tool: str, *, witness: int, says: str | None) -> dict[str, Any]:
        """Show what the log says of a tool's last intent, and what the witness says."""
        one = self._last_intent(tool)
        for record in one["records"]:
            self.tell(f"  log      LSN {record['lsn']:<3} {self.out.when(us_of(record['at']))}  {record['kind']}")
        if one["classification"]:
            self.tell(f"  so       {one['classification'].replace('_', ' ')}")
        file = self.folder / "witness.txt"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        found = sum(line.startswith(tool) for line in lines)
        self.tell(f"  witness  {found} line(s) of {tool}")
        self.seen.append(
            {"tool": tool, "state": one["state"], "classification": one["classification"], "witness": found}
        )
        if (found, one["classification"]) != (witness, says):
            self.wrong.append(f"{tool}: {found} lines and {one['classification']}, expected {witness} and {says}")
        return one


@command(demo, "crash")
@click.option("--keep", is_flag=True, help="keep the folder")
def crash(session: Session, keep: bool) -> int:
    """Kill a small agent in window A and in window B, restart it, and compare the log with an outside witness."""
    with ExitStack() as stack:
        made = (
            tempfile.mkdtemp(prefix="poimen-demo-")
            if keep
            else stack.enter_context(tempfile.TemporaryDirectory(prefix="poimen-demo-"))
        )
        stage = Stage(session, Path(made))
        _play(stage)
    data = {"ok": not stage.wrong, "seen": stage.seen, "wrong": stage.wrong, "folder": made if keep else None}
    session.out.show(data, lambda: _verdict(session, stage, made if keep else ""))
    return 1 if stage.wrong else 0


def _play(stage: Stage) -> None:
    run = ("run", "agent.py:shop", "tea", "--id", RUN)
    stage.tell("An agent charges (KEYED: the far side dedupes) and mails (AT_MOST_ONCE). The witness is a file of the")
    stage.tell("far side, outside the database. Around each effect: Pending, Dispatched, outcome; each synced alone.")
    stage.act("Window A: killed after Pending, before Dispatched", *run, ends=-signal.SIGKILL, crash="pending:charge")
    stage.look("charge", witness=0, says=None)
    stage.act("Started again, killed in window B of the mail", *run, ends=-signal.SIGKILL, crash="called:mail")
    stage.look("charge", witness=1, says="never_sent")
    stage.look("mail", witness=1, says=None)
    stage.act("Started again: a mail that may be out is not sent again", *run, ends=4)
    mail = stage.look("mail", witness=1, says="may_have_been_sent")
    decide = ["inbox", "resolve", mail["id"], "--landed", "--why", "the witness has it", "--evidence", "witness.txt"]
    stage.act("A person has looked", *decide, "--by", "demo", "--confirm", mail["id"], ends=0)
    stage.act("Started again: the run goes on where it stood", *run, ends=0)
    stage.look("mail", witness=1, says="may_have_been_sent")


def _verdict(session: Session, stage: Stage, folder: str) -> None:
    session.out.line()
    for text in stage.wrong:
        session.out.line(f"UNEXPECTED {text}")
    if not stage.wrong:
        session.out.line(
            "Two kills, one charge, one mail; what a crash left unknown was said, and decided by a person."
        )
    if folder:
        session.out.line(f"kept in {folder}")
