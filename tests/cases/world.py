"""The parent's side of the acceptance cases: children, the witness, the log as it was left."""

from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from poimen.engine.reading import read_run
from poimen.engine.standing import inbox_of
from poimen.kernel.views import newest_branch
from poimen.log.opening import open_store

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from poimen.engine.surface.results import InboxItem
    from poimen.kernel.events import Event
    from poimen.kernel.views import AttemptView, BranchView, IntentView
    from poimen.log.api import Head, Store
    from tests.cases.nursery import Nursery

    E = TypeVar("E", bound=Event)


class Child:
    """A process of ours that talks in JSON lines.

    Arguments:
        wish: tells its pid, then its exit code.
        said, tell: its stdout and stdin.
        errors: the file behind its stderr.
    """

    def __init__(self, wish: socket.socket, said: int, tell: int, errors: Path) -> None:
        self._life = wish.makefile("r")
        self._said = os.fdopen(said)
        self._tell = tell
        self._errors = errors
        self._code: int | None = None
        pid = self._life.readline()
        self.pid = int(pid) if pid else 0

    def hear(self) -> Any:
        """The next thing that it says."""
        line = self._said.readline()
        assert line, f"the child ended with {self.wait()} and nothing more to say: {self.errors()}"
        return json.loads(line)

    def tell(self) -> None:
        """Let one that waits for our word go on."""
        os.write(self._tell, b"\n")

    def signal(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        if self._code is None and self.pid:
            os.kill(self.pid, number)

    def wait(self) -> int:
        """How it ended; a negative number is the signal that did it."""
        if self._code is None:
            self._code = int(self._life.readline() or 1)
        return self._code

    def kill(self) -> None:
        """A real SIGKILL; it is gone when this returns."""
        self.signal(signal.SIGKILL)
        self.died()

    def died(self) -> None:
        """It was killed, by us or by itself at its crash point."""
        assert self.wait() == -signal.SIGKILL, self.errors()

    def ended(self) -> list[Any]:
        """It ends the ordinary way; what it still had to say."""
        said = [json.loads(line) for line in self._said]
        assert self.wait() == 0, self.errors()
        return said

    def errors(self) -> str:
        """What it wrote to stderr."""
        return self._errors.read_text("utf-8", "replace")

    def close(self) -> None:
        """It is gone when this returns, whatever it was doing."""
        self.signal(signal.SIGKILL)
        self.wait()
        self._life.close()
        self._said.close()
        os.close(self._tell)


class Case:
    """One database, one witness file, and what is asked about them.

    Arguments:
        folder: where both lie.
        nursery: where children come from.
    """

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self.folder = folder
        self.db = folder / "poimen.db"
        self.witness = folder / "witness"
        self._nursery = nursery
        self._children = 0

    # ---- children ----------------------------------------------------------------------------------------------------

    @contextmanager
    def child(
        self, program: str, *args: object, crash: str = "", stops: Sequence[str] = (), **settings: object
    ) -> Iterator[Child]:
        """A child that runs a program of `tests.cases.children`; gone when the block ends.

        Arguments:
            program, args: see there; the database comes first by itself.
            crash: the point at which it kills itself, `POINT[:TOOL[:N]]`.
            stops: tools that stop in their bodies until they are told to go on.
            settings: as `children.settle_in` takes them.
        """
        self._children += 1
        errors = self.folder / f"stderr-{self._children}"
        asked = {
            "program": program,
            "args": [str(self.db), *map(str, args)],
            "folder": str(self.folder),
            "witness": str(self.witness),
            "crash": crash,
            "stops": list(stops),
            "settings": settings,
        }
        stdin, tell = os.pipe()
        said, stdout = os.pipe()
        with errors.open("wb") as stderr:
            wish = self._nursery.child(asked, [stdin, stdout, stderr.fileno()])
        os.close(stdin)
        os.close(stdout)
        with wish:
            child = Child(wish, said, tell, errors)
            try:
                assert child.pid, "the nursery has no more children"
                yield child
            finally:
                child.close()

    def dies(self, program: str, *args: object, crash: str, **settings: Any) -> None:
        """Run a child until it kills itself at a crash point."""
        with self.child(program, *args, crash=crash, **settings) as child:
            child.died()

    def says(self, program: str, *args: object, **settings: Any) -> list[Any]:
        """Run a child to its end; what it said."""
        with self.child(program, *args, **settings) as child:
            return child.ended()

    # ---- the witness -------------------------------------------------------------------------------------------------

    def lines(self, tool: str = "") -> list[dict[str, Any]]:
        """What has happened outside, in the order in which it did."""
        if not self.witness.exists():
            return []
        found = [json.loads(line) for line in self.witness.read_text("utf-8").splitlines()]
        return [line for line in found if tool in ("", line["tool"])]

    def beside(self) -> Store:
        """The database, as another process of this machine has it open."""
        return open_store(str(self.db))

    # ---- the log -----------------------------------------------------------------------------------------------------

    def log(self, run: str) -> Log:
        """The log of a run as it is now."""
        return Log(self.db, run)


class Log:
    """What is recorded of one run: its events, `(lsn, epoch, event)`, its view, its row, its inbox."""

    def __init__(self, db: Path, run: str) -> None:
        store = open_store(str(db), read_only=True)
        try:
            view, records = read_run(store, run)
            head = store.head(run)
            self.hash = store.read(run)[-1].hash
        finally:
            store.close()
        assert head is not None
        self.head: Head = head
        self.view = view
        self.line: BranchView = newest_branch(view)
        self.records = [(lsn, epoch, event) for lsn, (_, event, epoch) in enumerate(records, 1)]
        self.inbox: list[InboxItem] = inbox_of(view)

    def all(self, kind: type[E]) -> list[E]:
        """The events of a type."""
        return [event for _, _, event in self.records if isinstance(event, kind)]

    def one(self, kind: type[E]) -> E:
        """The only event of a type."""
        found = self.all(kind)
        assert len(found) == 1, found
        return found[0]

    def lsn(self, kind: type[Event]) -> int:
        """Where the only event of a type stands; 0 when there is none."""
        found = [lsn for lsn, _, event in self.records if isinstance(event, kind)]
        assert len(found) <= 1, found
        return found[0] if found else 0

    def attempt(self, step: str, no: int = 1) -> AttemptView:
        """An attempt of a step."""
        return self.line.steps[step].attempts[no - 1]

    def intent(self, step: str, attempt: int = 1, ordinal: int = 0) -> IntentView:
        """An effect."""
        return self.attempt(step, attempt).intents[ordinal]

    @property
    def names(self) -> list[str]:
        """The types of the events, in order."""
        return [type(event).__name__ for _, _, event in self.records]
