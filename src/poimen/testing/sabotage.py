"""The controls: poimen broken on purpose, in a child process: a check that such a poimen passes checks nothing.

Each control replaces a part of the gate, the log or the storage by a wrong one. Product code has no switch for any of
this. This module must never be loaded by anything but a check of poimen itself; it keeps the invariant that what it
broke stays broken until the process ends: there is no way back, so nothing else can run in it by mistake.

Source: design proof.md (every harness has a control), P1 to P8, P11.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from poimen import clock
from poimen.engine.driving.effects import EffectPort
from poimen.engine.driving.outbox import Outbox
from poimen.gate import guard as gate
from poimen.gate import ladder
from poimen.gate.guard import Guard
from poimen.kernel import fold
from poimen.kernel.errors import Conflict, NotFound
from poimen.kernel.intent import IntentDispatched, IntentPending
from poimen.kernel.plan import Claim, Plan, Send, Then
from poimen.kernel.resolution import AskProbe, GiveUp, SendAgain
from poimen.log import chain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from poimen.kernel.events import Event
    from poimen.kernel.plan import Command
    from poimen.kernel.resolution import Facts, Ruling
    from poimen.kernel.views import IntentView
    from poimen.log.api import Record

_applied: Final[list[str]] = []


def apply(control: str) -> None:
    """Break this process, for good.

    Arguments:
        control: a key of `CONTROLS`.

    Raises:
        NotFound: there is no such control.
    """
    if control not in CONTROLS:
        raise NotFound(f"there is no control {control!r}", hint=f"one of {', '.join(CONTROLS)}", control=control)
    if control not in _applied:
        _applied.append(control)
        CONTROLS[control]()


def _two_records() -> None:
    """One record before the call, one after it: both windows leave the same last record."""
    _plan_with(claim=lambda pending: (pending,))
    _send_without_a_record()
    intent: Callable[..., None] = vars(fold)["_intent"]

    def pending_is_dispatched(view: Any, line: Any, event: Any, lsn: int, at: int) -> None:
        intent(view, line, event, lsn, at)
        if isinstance(event, IntentPending):
            intent(view, line, _dispatched(event), lsn, at)

    _put(fold, "_intent", pending_is_dispatched)


def _batched() -> None:
    """Pending and Dispatched in one commit: three records, two syncs."""
    _plan_with(claim=lambda pending: (pending, _dispatched(pending)))
    _send_without_a_record()


def _moved_up() -> None:
    """The tool is entered while its Dispatched is still on its way to the disk."""
    proceed, perform_call = Guard.proceed, Guard._perform_call  # noqa: SLF001 (it is what is broken)
    early: dict[Guard, asyncio.Future[Any]] = {}

    async def called_first(self: Guard) -> Any:
        early[self] = asyncio.ensure_future(perform_call(self, 1, clock.boot_us()))
        for _ in range(3):  # the turns that it takes to reach the first line of the body
            await asyncio.sleep(0)
        return await proceed(self)

    async def called_already(self: Guard, send: int, begun_us: int) -> Any:
        running = early.pop(self, None)
        return await (perform_call(self, send, begun_us) if running is None else running)

    _put(Guard, "proceed", called_first)
    _put(Guard, "_perform_call", called_already)


def _decided_late() -> None:
    """`decide()` returns at once, and its record goes with the next one that is written: the append comes later."""

    def sent_sometime(self: Outbox, events: Sequence[Event]) -> None:
        at = clock.wall_us()
        self._waiting += [(event, at) for event in events]

    _put(Outbox, "send_now", sent_sometime)


def _checked_then_acted() -> None:
    """Whether a cancel lies below is asked first, and Dispatched is appended a turn later."""

    async def asked_before(self: EffectPort, *events: Event) -> int:
        driver = self._driver
        head = driver.worker.store.head(driver.run)
        if head is not None and head.outsider_lsn > driver.view.outsider_lsn:
            driver.outbox.catch_up()
            raise Conflict("an outsider has appended")
        await asyncio.sleep(0)
        return await driver.append(events)

    _put(EffectPort, "dispatch", asked_before)


def _sent_again() -> None:
    """What may have been sent is sent again, whatever its class says."""
    rule: Callable[..., Ruling] = vars(ladder)["rule"]

    def hopeful(facts: Facts) -> Ruling:
        ruling = rule(facts)
        if isinstance(ruling, GiveUp | AskProbe):
            return SendAgain(send=facts.sends + 1, rule=ruling.rule, inputs=ruling.inputs, demotions=ruling.demotions)
        return ruling

    _put(ladder, "rule", hopeful)


def _normal_sync() -> None:
    """synchronous=NORMAL: a commit returns before it is durable."""
    from poimen.log.disk import connect  # noqa: PLC0415 (only where the log is what is broken)

    really: Callable[..., None] = vars(connect)["_set"]

    def weaker(connection: Any, db: Any, pragma: str, value: str, *, expect: object) -> None:
        if pragma == "synchronous":
            value, expect = "NORMAL", 1
        really(connection, db, pragma, value, expect=expect)

    _put(connect, "_set", weaker)


def _lying_sync() -> None:
    """The disk says that a file is synced, and it is not."""
    from poimen.testing.storage.layer import Layer  # noqa: PLC0415 (as above)

    synced = Layer.synced

    def lies(self: Layer, name: str, covers: int) -> None:
        if not self.recorder.is_known(name):
            synced(self, name, covers)

    _put(Layer, "synced", lies)


def _no_folder_sync() -> None:
    """Large bodies are renamed into their place, and the names are not synced."""
    from poimen.blobs import files  # noqa: PLC0415 (as above)

    _put(files, "os", _FoldersUnsynced())


class _FoldersUnsynced:
    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, fd: int) -> None:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            os.fsync(fd)


def _swallowed() -> None:
    """An error of COMMIT is passed over, and its records are acknowledged."""
    from poimen.log.disk.handle import Handle  # noqa: PLC0415 (as above)

    def careless(self: Handle, _: object) -> None:
        self.forget()
        with suppress(Exception):
            self.execute("COMMIT")
        self.undo()

    _put(Handle, "commit", careless)


def _sync_retried() -> None:
    """A sync that failed is tried a second time, which succeeds and brings nothing back."""
    from poimen.testing.storage.layer import Layer  # noqa: PLC0415 (as above)

    sync = Layer.sync

    def twice(self: Layer, *asked: Any) -> None:
        try:
            sync(self, *asked)
        except Exception:  # noqa: BLE001 (whatever it was: that is what is wrong with it)
            sync(self, *asked)

    _put(Layer, "sync", twice)


def _chain_off() -> None:
    """Every record matches its hash."""

    def as_it_stands(_prev: bytes, record: Record) -> bytes:
        return record.hash

    _put(chain, "link_of", as_it_stands)


CONTROLS: Final[Mapping[str, Callable[[], None]]] = {
    "two_records": _two_records,
    "batched": _batched,
    "moved_up": _moved_up,
    "decided_late": _decided_late,
    "checked_then_acted": _checked_then_acted,
    "sent_again": _sent_again,
    "normal_sync": _normal_sync,
    "lying_sync": _lying_sync,
    "no_folder_sync": _no_folder_sync,
    "swallowed": _swallowed,
    "sync_retried": _sync_retried,
    "chain_off": _chain_off,
}
"""What can be broken, and what breaks it."""


# ---- how -----------------------------------------------------------------------------------------------------------


def _put(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


def _dispatched(pending: IntentPending) -> IntentDispatched:
    return IntentDispatched(step=pending.step, attempt=pending.attempt, ordinal=pending.ordinal, send=1)


def _plan_with(*, claim: Callable[[IntentPending], tuple[Any, ...]]) -> None:
    """The first commit of an effect holds `claim`, and its first send needs none of its own."""
    plan: Callable[[IntentView | None, Command], Plan] = vars(gate)["plan"]
    fresh: set[str] = set()

    def planned(intent: IntentView | None, command: Command) -> Plan:
        match command:
            case Claim():
                fresh.add(command.pending.request_id)
                return dataclasses.replace(plan(intent, command), commit=claim(command.pending))
            case Send() if intent is not None and intent.pending.request_id in fresh:
                fresh.discard(intent.pending.request_id)
                return Plan(commit=(), then=Then.CALL)
            case _:
                return plan(intent, command)

    _put(gate, "plan", planned)


def _send_without_a_record() -> None:
    dispatch = EffectPort.dispatch

    async def only_what_there_is(self: EffectPort, *events: Any) -> int:
        return await dispatch(self, *events) if events else clock.boot_us()

    _put(EffectPort, "dispatch", only_what_there_is)
