"""Programs that run in a process of their own, to be killed, stopped or starved there."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import poimen
from poimen import clock
from poimen._typing import override
from poimen.declare import modules
from poimen.engine import worker
from poimen.gate import points
from poimen.kernel import resolution
from poimen.kernel.errors import PoimenError
from poimen.log.api import TERMINAL_STATES
from poimen.log.disk.connect import SQL
from poimen.log.disk.group import Group
from tests.cases import agents, cancelling
from tests.cases.agents import say, world

if TYPE_CHECKING:
    from collections.abc import Callable


def settle_in(*, lease_s: float = 0.0, clock_back_s: float = 0.0, dies_at: tuple[str, int] = ("", 0)) -> None:
    """Back-offs and the pause between two looks of a probe in hundredths of seconds, and what a case asks for.

    Arguments:
        lease_s: for how long a lease is taken; it is renewed five times as often. 0: as ever.
        clock_back_s: how far the wall clock of this process is behind.
        dies_at: a statement of the log's transaction, by its name in `queries.sql`, and before its how manieth
            execution the process kills itself.
    """
    resolution.BACKOFF_FIRST_US = 20_000  # type: ignore[misc]
    resolution.ABSENCE_APART_US = 20_000  # type: ignore[misc]
    if lease_s:
        worker.LEASE_S, worker.RENEW_S, worker.DISPATCH_MARGIN_S = lease_s, lease_s / 5, lease_s / 10  # type: ignore[misc]
    if clock_back_s:
        clock.use(Behind(clock_back_s))
    if dies_at[0]:
        _die_at(*dies_at)
    _tell_outcomes()


def _die_at(statement: str, nth: int) -> None:
    """A SIGKILL between two statements of one transaction."""
    write, seen = Group.write, 0

    def written(self: Group) -> None:
        many = self._handle.executemany

        def watched(sql: str, values: Any) -> Any:
            nonlocal seen
            if sql == SQL[statement] and values:
                seen += 1
                if seen == nth:
                    os.kill(os.getpid(), signal.SIGKILL)
            return many(sql, values)

        self._handle.executemany = watched
        try:
            write(self)
        finally:
            self._handle.executemany = many

    Group.write = written  # type: ignore[method-assign]


class Behind(clock.Source):
    """A machine whose wall clock has jumped back; the clock that counts from boot has not.

    Arguments:
        seconds: how far.
    """

    def __init__(self, seconds: float) -> None:
        self._back_us = round(seconds * clock.US)

    @override
    def wall_us(self) -> int:
        return super().wall_us() - self._back_us


def _tell_outcomes() -> None:
    """Let tools wait for a durable outcome of another tool."""
    reach = points.reach

    def told(point: str, tool: str = "") -> None:
        if point == "committed":
            world.outcome(tool).set()
        reach(point, tool)

    points.reach = told


def _call(workflow: str, args: str) -> Any:
    """`NAME` of the shared workflows, or `FILE.py:NAME`."""
    file, _, name = workflow.rpartition(":")
    return getattr(modules.load(file) if file else agents, name)(*json.loads(args))


def _told(act: Callable[[], Any]) -> None:
    try:
        say({"result": act()})
    except PoimenError as error:
        say({"error": type(error).__name__, "text": str(error)})


def run(db: str, run_id: str, workflow: str, args: str = "[]", tags: str = "{}") -> None:
    """Run one workflow to its end."""
    _told(lambda: poimen.run(_call(workflow, args), db=db, run_id=run_id, tags=json.loads(tags)))


def start(db: str, run_id: str, workflow: str, args: str = "[]") -> None:
    """Admit a run without driving it, say so, and stay."""

    async def main() -> None:
        async with poimen.Client(db) as client:
            handle = await client.start(_call(workflow, args), run_id=run_id)
            say({"started": handle.id})
            sys.stdin.read(1)

    asyncio.run(main())


def serve(db: str, module: str, *runs: str) -> None:
    """Drive whatever can move, asking for no run; tell how the named runs end, then leave."""

    async def main() -> None:
        async with poimen.Runtime(db, modules=[module], drain=0) as runtime:
            say({"open": os.getpid()})
            for run_id in runs:
                handle = await runtime.get(run_id)
                try:
                    say({"run": run_id, "result": await handle.result(waiting="raise")})
                except PoimenError as error:
                    say({"run": run_id, "error": type(error).__name__, "text": str(error)})

    asyncio.run(main())


def finish(db: str, module: str, run_id: str) -> None:
    """Drive whatever can move until a run has ended, however long it waits in between."""

    async def main() -> None:
        async with poimen.Runtime(db, modules=[module], drain=0) as runtime:
            say({"result": await (await runtime.get(run_id)).result()})

    asyncio.run(main())


def looks(db: str, module: str, n: str) -> None:
    """Drive whatever can move while the worker looks for work so many times."""
    look_once, left = worker.Worker._look_once, int(n)
    over = asyncio.Event()

    def looked(self: worker.Worker) -> None:
        nonlocal left
        look_once(self)
        left -= 1
        if left <= 0:
            over.set()

    worker.Worker._look_once = looked  # type: ignore[method-assign]
    worker.SCAN_S = 0.0  # type: ignore[misc]

    async def main() -> None:
        async with poimen.Runtime(db, modules=[module], drain=0):
            await over.wait()

    asyncio.run(main())


def cancel(db: str, run_id: str, why: str) -> None:
    """Ask for a run to be stopped."""

    async def main() -> None:
        async with poimen.Client(db) as client:
            await (await client.get(run_id)).cancel(why, by="another process")
            say({"cancelled": run_id})

    asyncio.run(main())


def beside(db: str, other: str, *runs: str) -> None:
    """Drive a run of one's own to its end while other runs wait, or are held elsewhere; then wait for those named."""

    async def main() -> None:
        async with poimen.Runtime(db, modules=[agents], drain=0) as runtime:
            say({"own": await (await runtime.start(agents.one_row(1), run_id=other)).result()})
            for run_id in runs:
                say({"result": await (await runtime.get(run_id)).result()})

    asyncio.run(main())


def watch(db: str, *runs: str) -> None:
    """Open a runtime and ask for no run; tell where the named runs come to rest, from the records alone."""

    async def rest(runtime: poimen.Runtime, run_id: str) -> None:
        head = runtime.store.head(run_id)
        while head is None or head.worker or head.state not in TERMINAL_STATES | {"WAITING"}:
            await asyncio.sleep(0)
            head = runtime.store.head(run_id)
        say({"run": run_id, "state": head.state})

    async def main() -> None:
        async with poimen.Runtime(db, modules=[agents], drain=0) as runtime:
            await asyncio.gather(*(rest(runtime, run_id) for run_id in runs))

    asyncio.run(main())


def asleep(db: str, run_id: str, workflow: str, args: str = "[]") -> None:
    """Drive a run, to be stopped in a call and woken when another has taken it over; tell of what comes too late."""
    append_outside = worker.Worker.append_outside

    def and_say(self: worker.Worker, run: str, branch: str, event: Any, told: Any) -> None:
        append_outside(self, run, branch, event, told)
        say({"late": type(event).__name__})

    worker.Worker.append_outside = and_say  # type: ignore[method-assign]

    async def main() -> None:
        async with poimen.Runtime(db, modules=[agents], drain=0) as runtime:
            handle = await runtime.start(_call(workflow, args), run_id=run_id)
            say({"result": await handle.result()})
            await asyncio.get_running_loop().create_future()

    asyncio.run(main())


def starved(db: str, run_id: str, point: str, tool: str, spare: int) -> None:
    """The disk is full, some bytes behind the end of the WAL, from a point on; later there is space again."""
    reach = points.reach

    def filled(reached: str, at: str = "") -> None:
        if (reached, at) == (point, tool):
            size = Path(f"{db}-wal").stat().st_size + int(spare)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        reach(reached, at)

    async def main() -> None:
        async with poimen.Runtime(db, modules=[agents], drain=0) as runtime:
            points.reach = filled  # type: ignore[assignment]  # another name for its first parameter
            handle = await runtime.start(agents.pair("ann"), run_id=run_id)
            try:
                await handle.result()
            except PoimenError as error:
                say({"error": type(error).__name__, "text": str(error)})
            points.reach = reach
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            for act in (lambda: runtime.start(agents.one_row(1), run_id="next"), lambda: handle.cancel("no")):
                try:
                    await act()
                except PoimenError as error:
                    say({"then": type(error).__name__, "text": str(error)})

    asyncio.run(main())


def reads(db: str, run_id: str) -> None:
    """What a client without any code is told of a run that failed."""

    async def main() -> None:
        async with poimen.Client(db, read_only=True) as client:
            try:
                await (await client.get(run_id)).result()
            except poimen.RunFailed as failed:
                error: Any = failed.error
                say({"type": error.type, "message": error.message, "limit": error.fields["limit"]})

    asyncio.run(main())


def limited(db: str, run_id: str, tool: str, in_step: str) -> None:
    """A call with a time limit of its workflow's own, which ends within its grace."""

    async def main() -> None:
        meeting = world.meetings["charge"] = agents.Meeting("finishes")
        async with poimen.Runtime(db, modules=[cancelling], drain=0) as runtime:
            call = cancelling.limited(tool, in_step=in_step == "true")
            ending = asyncio.ensure_future((await runtime.start(call, run_id=run_id)).result())
            entered = asyncio.ensure_future(meeting.entered.wait())
            await asyncio.wait([ending, entered], return_when=asyncio.FIRST_COMPLETED)
            if entered.done():
                agents.time_passes(runtime, run_id)
            say({"result": await ending})
            entered.cancel()

    asyncio.run(main())
