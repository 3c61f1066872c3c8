"""The load, the kills, the operator and the samples of a soak.

Two workers drive one database. Every two seconds one of them is killed and started again at once: any of them in the
first part, always the second one afterwards, so that the first grows old and shows what it keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import poimen
from poimen.engine import desk, reading, standing
from poimen.engine.reading import find_intent
from poimen.log.api import TERMINAL_STATES
from poimen.testing import Witness
from tests.soak.load import FAR, mixed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from poimen.kernel.views import RunView

KILL_EACH_S = 2.0
SAMPLE_EACH_S = 0.25
EQUAL_AGE_S = 1.25
"""The age at which a worker of the second kind is looked at, life after life."""

SLOWEST_S = 0.1
"""How long the far side may take to answer."""

SPARED_FROM = 0.3
"""The part of the time after which the first worker is no longer killed."""

OPEN = 24
DRAIN_S = 90.0
ROOT = Path(__file__).parents[2]
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Sample:
    """The state of things at a moment, seconds from the start; sizes in bytes."""

    at: float
    worker: int
    life: int
    age: float
    rss: int
    fds: int
    db: int
    wal: int
    effects: int


@dataclass
class Soaked:
    """What a soak has left: samples, times, and what the parent itself was told."""

    folder: Path
    seconds: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    recoveries: list[tuple[float, float, float]] = field(default_factory=list)
    """When a worker was started, how long until it was up, and until it had entered a tool."""
    kills: int = 0
    admitted: list[str] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    ended: list[tuple[float, str, str]] = field(default_factory=list)
    """When a run was seen to have ended, which, and how."""
    answered: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    @property
    def db(self) -> Path:
        return self.folder / "poimen.db"

    @property
    def witness(self) -> Witness:
        return Witness(self.folder / "witness")


class FarSide:
    """A service that dedupes by request id, and says which it has seen."""

    def __init__(self, witness: Witness, name: str, chance: random.Random) -> None:
        self.name = name
        self._chance = chance
        self._witness = witness
        self._known: dict[str, str] = {}
        self.strange: list[str] = []

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with await asyncio.start_unix_server(self._serve, f"\0{self.name}"):
            yield

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            verb, _, line = (await reader.readline()).decode().strip().partition(" ")
            if line:
                request_id, _, rest = line.partition(" ")
                what = rest.partition(" ")[2]
                known = self._known.get(request_id)
                if verb == "put":
                    self._witness.note(line)
                    if self._known.setdefault(request_id, what) != what:
                        self.strange.append(f"{request_id} came with other bytes")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.Event().wait(), self._chance.random() * SLOWEST_S)
                writer.write(b"new\n" if known is None else b"known\n")
                await writer.drain()
        writer.close()


class Soak:
    """One soak.

    Arguments:
        folder: takes database and witness.
        seconds: of load; what is open then may end afterwards.
        seed: decides who is killed and what is cancelled.
        pace: runs a second, at most.
        controls: what to break in the workers.
    """

    def __init__(self, folder: Path, *, seconds: float, seed: int, pace: float, controls: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.told = Soaked(folder=folder, seconds=seconds)
        self._seconds, self._pace, self._controls = seconds, pace, controls
        self._chance = random.Random(seed)
        self._far = FarSide(self.told.witness, f"poimen-soak-{os.getpid()}-{seed}", self._chance)
        self._workers: list[asyncio.subprocess.Process] = []
        self._lives = [0, 0]
        self._begun = [0.0, 0.0]
        self._start = time.monotonic()
        self._over = asyncio.Event()
        self._open: dict[str, poimen.Run[Any]] = {}
        self._lines: set[str] = set()
        self._read_to = self._effects = 0
        self._listening: set[asyncio.Task[None]] = set()
        self._up = [asyncio.Event(), asyncio.Event()]

    def _now(self) -> float:
        return time.monotonic() - self._start

    async def _pause(self, seconds: float) -> bool:
        """Let time pass, which is what a soak is made of; whether it is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)
        return self._over.is_set()

    # ---- workers -----------------------------------------------------------------------------------------------

    async def _begin(self, number: int) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("POIMEN_")}
        env |= {"POIMEN_WITNESS": str(self.told.witness.path), FAR: self._far.name, "PYTHONPATH": str(ROOT)}
        with (self.told.folder / "output").open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.soak.worker", str(self.told.db), *self._controls,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=output, env=env,
            )  # fmt: skip
        self._workers[number : number + 1] = [process]
        self._lives[number] += 1
        self._begun[number] = time.monotonic()
        self._up[number] = asyncio.Event()
        listening = asyncio.ensure_future(self._listen(process, number, self._begun[number]))
        self._listening.add(listening)
        listening.add_done_callback(self._listening.discard)

    async def _listen(self, process: asyncio.subprocess.Process, number: int, begun: float) -> None:
        said, up = dict[str, float](), self._up[number]
        assert process.stdout is not None
        while line := (await process.stdout.readline()).decode().split():
            said[line[0]] = float(line[1])
            up.set()
            if "first" in said and line[0] == "first":
                self.told.recoveries.append((begun - self._start, said["up"] - begun, said["first"] - begun))

    async def _kills(self) -> None:
        spared = False
        while not await self._pause(KILL_EACH_S):
            late = self._now() > SPARED_FROM * self._seconds
            number = self._chance.randrange(2) if not late else 1 if spared else 0
            spared = late
            if self._chance.randrange(8):  # else it may die before it is up
                await asyncio.wait({asyncio.ensure_future(self._up[number].wait())}, timeout=DRAIN_S)
            process = self._workers[number]
            if process.returncode is not None:
                self.told.errors.append(f"worker {number} had ended by itself, with {process.returncode}")
            else:
                process.kill()
                self.told.kills += await process.wait() == -signal.SIGKILL
            await self._begin(number)

    # ---- load --------------------------------------------------------------------------------------------------

    async def _load(self, client: poimen.Client) -> None:
        n = 0
        while not await self._pause(max(0.0, n / self._pace - self._now())):
            if len(self._open) >= OPEN:
                await self._pause(0.02)
                continue
            run = f"r{n}"
            self._open[run] = await client.start(mixed(run, n), run_id=run)
            self.told.admitted.append(run)
            n += 1
            if self._chance.randrange(12) == 0:
                chosen = self._chance.choice(list(self._open))
                await self._open[chosen].cancel("enough", by="ann")
                self.told.cancelled.add(chosen)

    async def _people(self, client: poimen.Client) -> None:
        """See which runs have ended; answer for those that wait."""
        while True:
            for run in list(self._open):
                head = client.store.head(run)
                if head is not None and head.state in TERMINAL_STATES:
                    del self._open[run]
                    self.told.ended.append((self._now(), run, head.state))
                elif head is not None and head.state == "WAITING":
                    await self.answer(client, reading.read_run(client.store, run)[0])
            if self._over.is_set() and not self._open:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._drained), 0.05)
            if self._drained.done():
                return

    async def answer(self, client: poimen.Client, view: RunView) -> None:
        """Look at the world, and say what it shows."""
        for item in standing.inbox_of(view):
            if "crash loop" in item.summary:  # that it dies again and again is what we do to it
                with contextlib.suppress(desk.Refused):  # it has ended meanwhile
                    desk.resume(client.store, client.door, view.run, by="ann", why="killed on purpose")
                    self.told.answered["go on"] += 1
                continue
            if item.kind != "effect":
                self.told.errors.append(f"{item.run_id} waits for {item.kind}: {item.summary}")
                continue
            intent = find_intent(client.store, item.id)[1]
            request_id = intent.pending.request_id
            self._look()
            landed = request_id in self._lines
            what = {"result": f"{request_id} {view.run} a person says"} if landed else {}
            to: Any = "landed" if landed else "not_landed"
            with contextlib.suppress(poimen.Conflict):
                await client.resolve(item.id, to, by="ann", why="looked", expect_lsn=item.lsn, **what)
                self.told.answered[to] += 1

    def _look(self) -> None:
        try:
            with self.told.witness.path.open("rb") as file:
                file.seek(self._read_to)
                new = file.read()
        except FileNotFoundError:
            return
        self._read_to += len(new)
        for line in new.decode().splitlines():
            if not line.startswith("told "):
                self._effects += 1
                self._lines.add(line.partition(" ")[0])

    # ---- samples -----------------------------------------------------------------------------------------------

    async def _samples(self) -> None:
        while not await self._pause(SAMPLE_EACH_S):
            self._look()
            db, wal = (_size(self.told.db.with_name(f"poimen.db{end}")) for end in ("", "-wal"))
            for number, process in enumerate(self._workers):
                age = time.monotonic() - self._begun[number]
                with contextlib.suppress(OSError, IndexError):
                    rss = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * PAGE
                    fds = len(os.listdir(f"/proc/{process.pid}/fd"))  # noqa: PTH208 (a count is all)
                    life = self._lives[number]
                    self.told.samples.append(
                        Sample(self._now(), number, life, age, rss, fds, db, wal, self._effects)
                    )  # fmt: skip

    # ---- all of it ---------------------------------------------------------------------------------------------

    async def soaked(self) -> Soaked:
        """Load, then let everything that is open end; what was seen."""
        self._drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with self._far.open(), poimen.Client(str(self.told.db)) as client:
            try:
                for number in range(2):
                    await self._begin(number)
                await asyncio.gather(*(up.wait() for up in self._up))
                self._start = time.monotonic()
                chores = [asyncio.ensure_future(one) for one in (self._kills(), self._samples(), self._load(client))]
                people = asyncio.ensure_future(self._people(client))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(_first_error([*chores, people])), self._seconds)
                self._over.set()
                await asyncio.gather(*chores)
                await asyncio.wait({people}, timeout=DRAIN_S)
                if not people.done():
                    self._drained.set_result(None)
                await people
                for run in self.told.cancelled:
                    await self.answer(client, reading.read_run(client.store, run)[0])
            finally:
                await self._end()
        self.told.errors += self._far.strange
        return self.told

    async def _end(self) -> None:
        for process in self._workers:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in self._workers:
            try:
                await asyncio.wait_for(process.wait(), 20)
            except TimeoutError:
                self.told.errors.append("a worker did not end when it was told to")
                process.kill()
                await process.wait()
        await asyncio.gather(*self._listening)


async def _first_error(chores: list[asyncio.Future[Any]]) -> None:
    done, _ = await asyncio.wait(chores, return_when=asyncio.FIRST_EXCEPTION)
    for one in done:
        one.result()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def soak(folder: Path, *, seconds: float, seed: int = 0, pace: float = 12.0, controls: Sequence[str] = ()) -> Soaked:
    """Soak, and give what was seen.

    Arguments:
        folder, seconds, seed, pace, controls: as for `Soak`.
    """

    async def main() -> Soaked:
        return await Soak(folder, seconds=seconds, seed=seed, pace=pace, controls=controls).soaked()

    return asyncio.run(main())
