"""Starts, reads, answers, decides: a client of the log. It drives nothing and needs no code.

`Run` is the handle to one run. This module must never claim a run; it keeps the invariant that a
handle is given out only after the run's admission is durable.

Source: design api.md, "Client and Runtime"; case C04.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, overload

from poimen import clock, effects
from poimen.blobs.tables import TieredBlobs
from poimen.declare import values
from poimen.declare.specs import WorkflowSpec, spec_of
from poimen.engine import desk, reading, standing
from poimen.engine.eventloop.waiters import WATCH_S
from poimen.engine.handle import Run, actor, must_be_call, plain_id
from poimen.gate import points
from poimen.kernel.errors import Corrupt, NotFound, ReadOnly, RunExists
from poimen.kernel.events import RunAdmitted
from poimen.kernel.ids import TRUNK, IntentId, checked_tags
from poimen.kernel.ids import run_id as checked_id
from poimen.later import not_built
from poimen.log import codec
from poimen.log.api import Batch
from poimen.log.opening import locate, open_store
from poimen.log.writer import Door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from datetime import datetime
    from decimal import Decimal
    from types import TracebackType

    from poimen.declare.shapes import Call, Verifier, Workflow
    from poimen.declare.specs import Budget, Seconds
    from poimen.engine.surface.results import InboxItem, RunState
    from poimen.episodes import Verdict
    from poimen.kernel.views import RunView
    from poimen.log.api import Store

T = TypeVar("T")

_CLOSED: Final = "the client is not open: use `async with poimen.Client() as c:` or `await Client.open()`"


class Client:
    """Starts, reads, answers, decides. Drives nothing, recovers nothing, needs no modules.

    Use it as `async with poimen.Client() as client:`.

    Arguments:
        url: the database: a path or a URL; None: found by the usual rules (see the page on configuration).
        read_only: nothing is created or changed.
    """

    def __init__(self, url: str | None = None, *, read_only: bool = False) -> None:
        self._url = url
        self._read_only = read_only
        self._store: Store | None = None
        self._door: Door | None = None
        self._bodies: TieredBlobs | None = None

    # ---- opening -----------------------------------------------------------------------------------------------

    @classmethod
    async def open(cls, url: str | None = None, *, read_only: bool = False) -> Self:
        """Open outside a `with`, for notebooks; `close` it.

        Raises:
            ConfigurationError, StorageFailed, Corrupt: the database cannot be used.
        """
        client = cls(url, read_only=read_only)
        await client._open()
        return client

    async def _open(self) -> None:
        location = locate(self._url, cwd=Path.cwd() if self._url is None else Path())
        self._store = open_store(location.url, read_only=self._read_only)
        self._door = Door(self._store)
        self._bodies = TieredBlobs(self._store, self._store.path)

    async def close(self) -> None:
        """Close the database. Runs are not touched."""
        store, self._store = self._store, None
        if store is not None:
            store.close()

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def store(self) -> Store:
        """The log's backend. Raises RuntimeError while the client is not open."""
        if self._store is None:
            raise RuntimeError(_CLOSED)
        return self._store

    @property
    def door(self) -> Door:
        """The log's door."""
        if self._door is None or self._store is None:
            raise RuntimeError(_CLOSED)
        return self._door

    @property
    def bodies(self) -> TieredBlobs:
        """Where large bodies lie."""
        if self._bodies is None or self._store is None:
            raise RuntimeError(_CLOSED)
        return self._bodies

    def writable(self) -> None:
        """Refuse to write through a client that was opened for reading."""
        if self._read_only:
            raise ReadOnly("this client was opened with read_only=True", hint="open it without read_only")

    def nudge(self, run: str) -> None:
        """Let whoever drives runs in this process look at one that was acted on."""

    async def rest(self, run: str) -> RunView | None:
        """Wait a little before one looks at a run again.

        Returns:
            The run as it came to rest, where it was driven in this process; None: look.
        """
        await asyncio.sleep(WATCH_S)
        return None

    def check(self, run: str) -> None:
        """Raise what has stopped this client, or the run in it, if anything has."""

    # ---- runs --------------------------------------------------------------------------------------------------

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
        """Admit a run; it exists, durably, when this returns. The same id with the same input is the same run.

        Arguments:
            call: a workflow called with its arguments.
            run_id: 1 to 200 letters, digits and `. _ : @ + = -`; a new UUID version 7 when left out.
            timeout: of the whole run, in seconds or as a timedelta; in a later version.
            deadline: of the whole run, an aware datetime; in a later version.
            queue: to wait in; in a later version.
            priority: in its queue; in a later version.
            budget: of the run; in a later version.
            tags: names and values kept with the run, to find it by.

        Raises:
            RunExists: a run of this id exists with other input.
            BadRunId: the id cannot be used.
            NotACall: a workflow was given that was not called, or something else.
            NotStorable: a tag is no text, or its name is empty or holds `=`.
            NotBuiltYet: for `timeout`, `deadline`, `queue`, `priority` and `budget` in this version.
        """
        must_be_call(call, by="client.start")
        self.writable()
        for name, given in (("queue", queue), ("priority", priority or None), ("budget", budget)):
            if given is not None:
                not_built(f"start({name}=)")
        if timeout is not None or deadline is not None:
            not_built("start(timeout=)")
        identity = checked_id(clock.uuid7() if run_id is None else plain_id(run_id))
        is_new = self._admit(call, identity, checked_tags({} if tags is None else tags))
        points.reach("admitted", call.workflow)
        self.nudge(identity)
        return Run(self, identity, is_new=is_new, parameters=call.spec.parameters)

    def _admit(self, call: Call[Any], run: str, tags: dict[str, str]) -> bool:
        if self.store.head(run) is not None:
            same_input(self.store, call, run)
            return False
        body = call.packed
        event = RunAdmitted(
            workflow=call.workflow,
            version=call.spec.version,
            code=call.spec.code_digest,
            args=self.bodies.payload(body),
            args_digest=values.digest(body),
            nonce=clock.random_hex(16),
            by=actor(),
            on_indeterminate=call.spec.on_indeterminate,
            tags=tags,
        )
        batch = Batch(run=run, records=(codec.record(event, branch=TRUNK),), admits=True, state="PENDING")
        try:
            self.door.append(batch)
        except RunExists:
            same_input(self.store, call, run)
            return False
        return True

    @overload
    async def get(self, run_id: str, /) -> Run[Any]: ...
    @overload
    async def get(self, run_id: str, workflow: Workflow[..., T], /) -> Run[T]: ...
    async def get(self, run_id: str, workflow: Workflow[..., Any] | None = None, /) -> Run[Any]:
        """The handle to a run that exists.

        Arguments:
            run_id: its id, or a unique prefix.
            workflow: types the result; without it the result is plain JSON values.

        Raises:
            NotFound: there is no such run.
        """
        spec = spec_of(workflow)
        parameters = spec.parameters if isinstance(spec, WorkflowSpec) else None
        return Run(self, reading.find_run(self.store, run_id), is_new=False, parameters=parameters)

    async def runs(self, *, state: RunState | None = None, tag: str | None = None) -> AsyncIterator[Run[Any]]:
        """All runs, as handles, by id.

        Arguments:
            state: only those in this state.
            tag: only those with this tag: `name` or `name=value`.
        """
        after = ""
        while heads := self.store.heads(after=after):
            for head in heads:
                after = head.run
                if state is not None and head.state != state.value:
                    continue
                if tag is None or self._has_tag(head.run, tag):
                    yield Run(self, head.run, is_new=False, parameters=None)

    def _has_tag(self, run: str, tag: str) -> bool:
        view, _ = reading.read_run(self.store, run, upto=1)
        name, sep, value = tag.partition("=")
        tags = view.admitted.tags if view.admitted is not None else {}
        return name in tags and (not sep or tags[name] == value)

    # ---- what people do ----------------------------------------------------------------------------------------

    async def inbox(self) -> AsyncIterator[InboxItem]:
        """Everything that waits for a person, as `InboxItem`s, by run.

        Raises:
            Corrupt: a run cannot be read; raised when what waits in all others has been given.
        """
        after = ""
        damaged = None
        while heads := self.store.heads(after=after):
            for head in heads:
                after = head.run
                try:
                    view, _ = reading.read_run(self.store, head.run)
                except Corrupt as error:
                    damaged = damaged or error
                    continue
                for item in standing.inbox_of(view):
                    yield item
        if damaged:
            raise damaged

    async def claim(self, item_id: str, *, by: str) -> None:
        """Say that you are looking at an unknown effect; others see who.

        Arguments:
            item_id: of the item, or a unique prefix.
            by: who is looking.

        Raises:
            NotFound, Conflict: there is none of this id, or it is closed.
            NotStorable: `by` is empty, or is no text.
        """
        self.writable()
        desk.claim(self.store, self.door, item_id, by=by)

    async def resolve(
        self,
        intent_id: str,
        to: Literal["landed", "not_landed", "abandoned"],
        *,
        by: str,
        why: str,
        evidence: str = "",
        result: object = ...,
        expect_lsn: int,
    ) -> None:
        """Close an unknown effect.

        Arguments:
            intent_id: exactly one intent, as an `InboxItem` names it.
            to: what you have found out.
            by: who says so.
            why: for the record.
            evidence: what was seen.
            result: for `landed` alone (elsewhere leave it out: None counts as given): what the call would have
                returned, as JSON types or as they are stored; needed unless the tool returns nothing. A `Runtime`
                that has loaded the tool takes its own type as well, and refuses what it could not have returned.
            expect_lsn: of the last record about it that you saw, as an `InboxItem` names it; the second of two
                people loses.

        Raises:
            NotFound: no such intent.
            Conflict: it is closed already, or has changed since.
            NotStorable: the result cannot be stored, is none of the tool's or does not go with `to`; a text is missing,
                or something is of another type. Nothing was written.
        """
        self.writable()
        desk.must_be_said(to, by=by, why=why, evidence=evidence, has_value=result is not ..., expect_lsn=expect_lsn)
        value = None if result is ... else self.bodies.payload(self._packed(intent_id, result))
        desk.resolve(
            self.store, self.door, intent_id, to, by=by, why=why, evidence=evidence, value=value, expect_lsn=expect_lsn
        )
        self.nudge(IntentId.parse(intent_id).run)

    def _packed(self, intent_id: str, result: object) -> bytes:  # a runtime knows the tool's own type
        """What a call would have returned, as stored."""
        return values.dump(result, path="result")

    async def probe(self, intent_id: str, *, by: str) -> effects.Landed[Any] | effects.Absent | effects.Unknown:
        """Ask the far side whether an effect has landed: only a `Runtime` has the code for it.

        Arguments:
            intent_id: exactly one intent.
            by: who asks.

        Raises:
            NotFound: always here: no such intent, or the tool's code is not loaded (see `Runtime.probe`).
        """
        _, intent = reading.find_intent(self.store, intent_id)
        raise NotFound(
            f"the code of {intent.pending.tool} is not loaded in this client (asked by {by})",
            why="a probe is code: only a Runtime has it",
            hint="poimen inbox probe INTENT --module MODULE, or Runtime(modules=[...]).probe(...)",
        )

    async def answer(self, ask_id: str, value: object, *, by: str) -> None:
        """Answer a question."""
        not_built("Client.answer")

    async def raise_budget(
        self,
        run_id: str,
        *,
        usd: Decimal | float | None = None,
        tokens: int | None = None,
        by: str,
        why: str,
    ) -> None:
        """Raise a run's budget."""
        not_built("Client.raise_budget")

    def verify(
        self,
        verifier: Verifier,
        runs: Iterable[Run[Any]],
        *,
        at: int | None = None,
        concurrency: int = 4,
    ) -> AsyncIterator[tuple[Run[Any], Verdict]]:
        """Run a verifier over frozen episodes."""
        not_built("Client.verify")


_SHOWN = 8
"""Hex digits of a digest in a message: what was passed is agent text, and is not shown there."""


def same_input(store: Store, call: Call[Any], run: str) -> None:
    """Check that a run that exists was admitted with this very call.

    Raises:
        RunExists: it was admitted with another.
    """
    view, _ = reading.read_run(store, run, upto=1)
    admitted = view.admitted
    if admitted is None or admitted.workflow != call.workflow or admitted.args_digest != values.digest(call.packed):
        known, digest = (admitted.workflow, admitted.args_digest) if admitted is not None else ("?", "?")
        raise RunExists(
            f"run {run} exists with other input: {known} with input {digest[:_SHOWN]}",
            where=run,
            why=f"asked for: {call.workflow} with input {values.digest(call.packed)[:_SHOWN]}",
            hint=f"choose another id for other input; the recorded one: poimen runs show {run} --content",
            run_id=run,
        )
