"""A client that drives: claims runs, recovers what others left, and goes on until it is closed.

`run` is the shortest way: one call, one process, no server. This module must never cancel a run by
leaving it; it keeps the invariant that many runtimes can live in one process.

Source: design api.md, "Client and Runtime"; protocol.md, section 9 (two `poimen.run` of one id).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from poimen._typing import override
from poimen.declare.registry import Registry
from poimen.declare.specs import seconds
from poimen.engine import desk, reading
from poimen.engine.client import Client
from poimen.engine.eventloop.locked import Locked
from poimen.engine.eventloop.whole import run_whole
from poimen.engine.handle import must_be_call
from poimen.engine.worker import Worker
from poimen.gate.places import here
from poimen.kernel.errors import NotFound, NotStorable, ReadOnly
from poimen.later import not_built
from poimen.log.api import TERMINAL_STATES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
    from datetime import datetime
    from types import ModuleType

    from poimen import effects
    from poimen.declare.shapes import Call
    from poimen.declare.specs import Budget, Seconds
    from poimen.engine.handle import Run
    from poimen.kernel.views import RunView

T = TypeVar("T")

DRAIN_S = 30.0
"""How long open calls may take when a runtime is closed, in seconds."""


class Runtime(Client):
    """A client that drives; leaving it never cancels a run.

    While it is open it claims the runs of its database whose code it has, recovers what other processes left, and
    goes on. Use it as `async with poimen.Runtime(modules=[...]) as rt:`.

    Arguments:
        url: the database; None: found by the usual rules.
        modules: the code of the runs that it drives: modules, names of modules, or files. The code of a run that is
            started here is known without.
        concurrency: how many runs may move at once.
        audit: what to do about I/O outside a tool; `off` in this version whatever is given but `strict`.
        resources: open clients that tools ask for; in a later version.
        drain: how long open calls may take when it is closed, in seconds or as a timedelta.

    Raises:
        NotFound: a module cannot be found.
        BadDeclaration: two declarations have one name.
        NotBuiltYet: for `resources` and `audit="strict"` in this version.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        modules: Sequence[str | ModuleType] = (),
        concurrency: int = 64,
        audit: Literal["strict", "warn", "off"] = "warn",
        resources: Sequence[object] = (),
        drain: Seconds = DRAIN_S,
    ) -> None:
        super().__init__(url)
        if resources:
            not_built("resource")
        if audit == "strict":
            not_built("Runtime(audit=)")
        self._registry = Registry.of(modules)
        self._concurrency = concurrency
        self._drain_s = seconds(drain) or 0.0
        self._worker: Worker | None = None

    @classmethod
    @override
    async def open(
        cls,
        url: str | None = None,
        *,
        read_only: bool = False,
        modules: Sequence[str | ModuleType] = (),
        concurrency: int = 64,
        resources: Sequence[object] = (),
        drain: Seconds = DRAIN_S,
    ) -> Self:
        """Open outside a `with`, for notebooks; `close` it.

        Raises:
            ReadOnly: for `read_only`, which only a `Client` can be.
        """
        if read_only:
            raise ReadOnly(
                "a Runtime cannot be opened with read_only=True",
                where=here(),
                why="it drives runs, and each step that it makes is a record",
                hint="await poimen.Client.open(url, read_only=True) reads the same database, and needs no modules",
            )
        runtime = cls(url, modules=modules, concurrency=concurrency, resources=resources, drain=drain)
        await runtime._open()
        return runtime

    @override
    async def _open(self) -> None:
        await Locked().patiently(super()._open)
        self._worker = Worker(self.store, self.bodies, self._registry, concurrency=self._concurrency)
        self._worker.watch(everything=True)

    @override
    async def close(self) -> None:
        """Let open calls end for a while, then close. No run is cancelled."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.close(drain_s=self._drain_s)
        await super().close()

    @override
    def nudge(self, run: str) -> None:
        """Look at a run now."""
        if self._worker is not None:
            self._worker.nudge(run)

    @override
    async def rest(self, run: str) -> RunView | None:
        """Wait until the run rests, if it is driven here; see `Client.rest`."""
        return await self._worker.rest(run) if self._worker is not None else await super().rest(run)

    @override
    def check(self, run: str) -> None:
        """Raise what has stopped the worker, or the run in it, if anything has."""
        if self._worker is None:
            return
        if self._worker.error is not None:
            raise self._worker.error
        broken = self._worker.broken.get(run)
        if broken is not None and (head := self.store.head(run)) is not None and head.state not in TERMINAL_STATES:
            raise broken  # unless it was mended, and has ended elsewhere

    @override
    async def start(
        self,
        call: Call[T],
        /,
        *,
        run_id: str | None = None,
        timeout: Seconds | None = None,
        deadline: datetime | None = None,
        queue: str | None = None,
        priority: int = 0,
        budget: Budget | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Run[T]:
        """Admit a run and drive it here; see `Client.start`. A log that another process has locked is waited for."""
        must_be_call(call, by="rt.start")
        if self._registry.workflow(call.workflow) is not call.spec:
            self._registry.add(call.spec)
            if self._worker is not None:
                self._worker.code = self._registry.digest
        admit = functools.partial(
            super().start,
            call,
            run_id=run_id,
            timeout=timeout,
            deadline=deadline,
            queue=queue,
            priority=priority,
            budget=budget,
            tags=tags,
        )
        return await (self._worker.door.patiently(admit) if self._worker is not None else admit())

    @override
    def _packed(self, intent_id: str, result: object) -> bytes:
        _, intent = reading.find_intent(self.store, intent_id)
        name = intent.pending.tool
        spec = self._registry.tool("tool", name) or self._registry.tool("model", name)
        if spec is None:
            return super()._packed(intent_id, result)
        try:
            return spec.parameters.dump_result(result)
        except NotStorable:  # not of the tool's own type: then as plain JSON, which must be readable as one
            body = super()._packed(intent_id, result)
            spec.parameters.load_result(body)
            return body

    @override
    async def probe(self, intent_id: str, *, by: str) -> effects.Landed[Any] | effects.Absent | effects.Unknown:
        """Ask the far side whether an effect has landed; what it says is a record, and decides nothing.

        Arguments:
            intent_id: exactly one intent.
            by: who asks.

        Raises:
            NotFound: no such intent, or its tool is not loaded here, or has no probe.
        """
        worker = self._worker
        if worker is None:
            raise NotFound("the runtime is not open, so no code is loaded", hint="async with Runtime(modules=[...])")
        return await desk.ask_probe(
            self.store, self.door, self.bodies, self._registry, intent_id, by=by, threads=worker.threads
        )

    def queue(self, name: str, /, **_settings: object) -> None:
        """Declare a named queue."""
        not_built("Runtime.queue")

    def schedule(self, name: str, /, **_settings: object) -> None:
        """Declare a schedule."""
        not_built("Runtime.schedule")


class SyncClient:
    """A thin synchronous face over `Client`.

    Arguments:
        url: the database; None: found by the usual rules.
        read_only: nothing is created or changed.
    """

    def __init__(self, url: str | None = None, *, read_only: bool = False) -> None:
        not_built("SyncClient")

    def __enter__(self) -> Self:
        """Open it."""
        not_built("SyncClient")

    def __exit__(self, *_error: object) -> None:
        """Close it."""
        not_built("SyncClient")


def run(
    call: Call[T],
    /,
    *,
    db: str | None = None,
    run_id: str | None = None,
    timeout: Seconds | None = None,
    budget: Budget | None = None,
    tags: Mapping[str, str] | None = None,
) -> T:
    """Run a workflow to its end in this process. The same id again is the same run.

    A run that another live process drives is waited for, and taken over when that process is gone. Where an
    event loop runs in this thread, a thread of its own is used. Coroutines that swallow their cancellation do not
    hold up its end: they are left behind after a while, with a warning that names them.

    Arguments:
        call: a workflow called with its arguments.
        db: the database; found by the usual rules when left out.
        run_id: the run's id; a new UUID version 7 when left out.
        timeout: of the whole run, in seconds or as a timedelta; in a later version.
        budget: of the run; in a later version.
        tags: names and values kept with the run, to find it by.

    Raises:
        RunFailed, RunRejected, RunCancelled, RunTimedOut: it has ended without a result.
        RunWaiting: only somebody else can move it now; the error says who and how.
        RunExists: a run of this id exists with other input.
        NotACall: a workflow was given that was not called, or something else.
    """
    must_be_call(call, by="poimen.run")
    work = _run(call, db=db, run_id=run_id, timeout=timeout, budget=budget, tags=tags)
    if asyncio._get_running_loop() is None:  # noqa: SLF001 (get_running_loop would raise)
        return run_whole(work)
    box: list[T] = []
    failed: list[BaseException] = []

    def apart() -> None:
        try:
            box.append(run_whole(work))
        except BaseException as error:  # noqa: BLE001 (handed to the thread that asked)
            failed.append(error)

    thread = threading.Thread(target=apart, name="poimen-run", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return box[0]


async def _run(
    call: Call[T],
    *,
    db: str | None,
    run_id: str | None,
    timeout: Seconds | None,
    budget: Budget | None,
    tags: Mapping[str, str] | None,
) -> T:
    async with one_by_one(db, Registry.of_call(call), concurrency=1) as (client, worker):
        return await driven(
            client, worker, lambda: client.start(call, run_id=run_id, timeout=timeout, budget=budget, tags=tags)
        )


@contextlib.asynccontextmanager
async def one_by_one(url: str | None, registry: Registry, *, concurrency: int) -> AsyncIterator[tuple[Client, Worker]]:
    """A client, and a worker that drives only the runs that it is asked to.

    What goes on after its runs may still say how it ends, unless one is in a hurry.

    Arguments:
        url: the database; None: found by the usual rules.
        registry: the code of the runs.
        concurrency: how many may move at once.
    """
    client, drain_s = await Locked().patiently(lambda: Client.open(url)), DRAIN_S
    try:
        worker = Worker(client.store, client.bodies, registry, concurrency=concurrency)
        worker.watch(everything=False)
        try:
            yield client, worker
        except asyncio.CancelledError:
            drain_s = 0.0
            raise
        finally:
            await worker.close(drain_s=drain_s)
    finally:
        await client.close()


async def driven(client: Client, worker: Worker, start: Callable[[], Coroutine[Any, Any, Run[T]]]) -> T:
    """Start one run and drive it until it ends or only somebody else can move it; a locked log is waited for.

    Arguments:
        client: through which it is started.
        worker: has its code.
        start: admits it.

    Raises:
        RunFailed, RunRejected, RunCancelled, RunTimedOut, RunWaiting: as `run`.
    """
    handle = await worker.door.patiently(start)
    while True:
        driver = await worker.drive(handle.id)
        how = driver.done.result() if driver is not None else "elsewhere"
        error = worker.error or worker.broken.get(handle.id)
        if error is None and driver is not None and how == "failed":
            error = driver.error
            if error is not None and worker.door.passes(error):
                continue
        if error is not None:
            raise error
        if driver is not None and reading.has_ended(driver.view):
            value: T = reading.outcome(driver.view, client.bodies, driver.spec.parameters)
            return value
        head = client.store.head(handle.id)
        if how == "waiting" and head is not None and head.state == "WAITING" and head.outsider_lsn == head.lsn:
            continue
        if how != "fenced" or (head is not None and head.state in TERMINAL_STATES):
            return await handle.result(waiting="raise")
