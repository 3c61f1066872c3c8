"""What stands behind code that runs in a run: the workflow's scope, an attempt's, a tool body's.

Each is the `Caller` that a declared name finds. A scope numbers the calls made in it and holds the
futures that wait for their results. This module must never know how a call is carried out; it keeps
the invariant that a number is taken in the order of the calls, before anything else happens.

Source: design protocol.md, sections 3 and 5; api.md, "Calling" and "Inside a run".
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import os
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from poimen._typing import override
from poimen.declare import values
from poimen.declare.calling import Current
from poimen.engine.driving.replay import Asked, described
from poimen.gate.places import asked_at
from poimen.kernel.errors import BadDeclaration, DuplicateKey, NotSent, Suspended, UnguardedEffect, WouldBlock
from poimen.kernel.ids import StepKey, explicit_key, step_key
from poimen.kernel.intent import short, written

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from poimen.declare.specs import Options, ToolSpec
    from poimen.engine.driving.driver import Driver
    from poimen.engine.eventloop.futures import RunTimer
    from poimen.engine.eventloop.loop import RunLoop
    from poimen.kernel.views import IntentView, Place

T = TypeVar("T")

HOSTILE = 50
"""After so many refusals a dropped run's call parks for ever instead of raising, so that nothing can spin on it."""


DEAF: Final = 1_000
"""After so many refusals a cancelled run's call parks for ever: code that goes on whatever it is told is let go."""


_NOTHING: Final = contextvars.Context()


class CallFuture(asyncio.Future[Any]):
    """The result of a call. A cancellation is noted, and acted upon when the call's end is durable."""

    def __init__(self, loop: RunLoop, scope: WorkflowScope | AttemptScope | None, call: Call | None) -> None:
        super().__init__(loop=loop)
        self.cancel_asked = False
        self._message: Any = None
        self._scope = scope
        self._call = call

    @override
    def cancel(self, msg: Any = None) -> bool:
        """Note the wish; the call's end is told when it is recorded."""
        if self.done():
            return False
        if not self.cancel_asked:
            self.cancel_asked, self._message = True, msg  # by the message, anyio knows its own
            if self._scope is not None and self._call is not None:
                self._scope.cancel(self._call)
        return True

    def end_cancelled(self) -> None:
        """Now the call is over."""
        super().cancel(self._message)


class Call:
    """One call of a tool, model or step, made by a workflow or in an attempt."""

    __slots__ = ("context", "digest", "future", "key", "options", "ordinal", "original", "packed", "parked", "spec")

    def __init__(  # noqa: PLR0917 (made in two places, in this order)
        self, key: str, ordinal: int, spec: ToolSpec, packed: bytes, digest: str, options: Options
    ) -> None:
        self.key = key
        self.ordinal = ordinal
        self.spec = spec
        self.packed = packed
        self.digest = digest
        self.options = options
        self.context = contextvars.copy_context() if spec.kind == "step" else _NOTHING  # code of its own runs in it
        self.parked = False
        self.original: BaseException | None = None
        self.future: CallFuture

    def told(self, over: CallFuture) -> None:
        """The code has its end: what it was given is its own now, and is not kept here for as long as the run lives.

        Arguments:
            over: a future that is done, in the place of the one that holds the result.
        """
        self.future, self.packed, self.original, self.context = over, b"", None, _NOTHING

    @property
    def what(self) -> str:
        """The call in words."""
        return described(self.spec.name, self.key, self.digest)

    def asked(self) -> Asked:
        """The call, with its place in the code, which asks for it at this moment."""
        return Asked(self.what + asked_at(), written(self.spec.name, self.packed))


class Scope:
    """What the workflow's and an attempt's code have in common."""

    step = ""
    attempt = 0

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.pid = os.getpid()
        self.timers: dict[int, RunTimer] = {}
        self.timers_made = 0
        self.handed: list[Place] = []
        self.number = _salt(f"{driver.run}/{self.step}")
        self.dropped = False
        self._refusals = 0
        self._unheard = 0

    @property
    def scope(self) -> Scope:
        """Itself: whoever stands for a scope in a thread names it in the same way."""
        return self

    def current(self) -> Current:
        """Where the code that asks is running."""
        driver = self.driver
        return Current(
            run_id=driver.run,
            branch_id=driver.line.id,
            step=self.step,
            attempt=self.attempt,
            cancelling=driver.line.cancel_why if driver.cancelled else None,
        )

    def request_id(self) -> str:
        """Only an effect has a request id."""
        raise UnguardedEffect(
            "poimen.request_id() was called outside a tool",
            why="only an effect has a request id: a workflow or step makes effects, it is none",
            hint="ask for it inside the tool's body, its probe or its undo",
        )

    def decide(self, decision_id: str, value: Any) -> Any:
        """Record a decision."""
        self.refuse_elsewhere(f"poimen.decide({decision_id!r})", "")
        self.refuse_when_dropped()
        return self.driver.decisions.decide(self, decision_id, value)

    def settle(self, decision_id: str) -> None:
        """Record that a decision was carried out."""
        self.refuse_elsewhere(f"poimen.settle({decision_id!r})", "")
        self.refuse_when_dropped()
        self.driver.decisions.settle(self, decision_id)

    def call_sync(self, spec: ToolSpec, packed: bytes, options: Options) -> Any:  # noqa: ARG002 (Caller)
        """Refuse: the run's own loop runs in this thread."""
        raise WouldBlock(
            f"{spec.name}(...) would block the run's event loop",
            where=spec.where,
            why="it was called synchronously in a coroutine",
            hint=f"await {spec.name}.aio(...)",
        )

    def refuse_elsewhere(self, what: str, where: str) -> None:
        """Refuse a call from outside the run's own loop: from a thread, or a loop, that the code has started itself."""
        if asyncio._get_running_loop() is not self.driver.loop:  # noqa: SLF001 (get_running_loop would raise)
            raise UnguardedEffect(
                f"{what} was called outside the run's own loop: in a thread or a loop that the code started itself",
                where=where,
                why="calls from there have no order that a replay could repeat; nothing was done",
                hint="call it from the workflow or step itself; use asyncio.gather for calls at once",
            )

    def refuse_when_dropped(self) -> None:
        """Raise Suspended while the run or the attempt is being dropped."""
        if self.dropped or self.driver.dropped or self.driver.ending.calling_off:
            self._refusals += 1
            raise Suspended

    def refuse_when_cancelled(self, spec: ToolSpec) -> None:
        """Raise NotSent once the workflow has been told that the run is cancelled."""
        if self.driver.cancelled:
            self._unheard += 1
            raise NotSent(
                f"{spec.name} was not called: the run is being cancelled",
                why="after a cancellation nothing new is dispatched",
                hint="async with poimen.cleanup(seconds): ... is the place for what must still be done",
            )

    @property
    def spins(self) -> bool:
        """Whether the code asks again and again although everything is refused."""
        return self._refusals > HOSTILE or self._unheard > DEAF

    async def parked(self) -> None:
        """What a hostile loop in a dropped run is given: nothing, for ever."""
        await asyncio.get_running_loop().create_future()

    async def _wait(self, spec: ToolSpec, begin: Callable[..., CallFuture], *given: Any) -> Any:
        if self.spins:
            await self.parked()
        self.refuse_when_dropped()
        self.refuse_when_cancelled(spec)
        return await begin(self, *given)


class WorkflowScope(Scope):
    """The workflow's own code: each call is a step."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        self.calls: dict[str, Call] = {}
        self._counts: dict[str, int] = {}
        self._keys: set[str] = set()
        self.seq = 0

    def key(self, spec: ToolSpec, options: Options) -> StepKey:
        """Take the key of a call: its own, or `name#n` in the order of the calls.

        Raises:
            DuplicateKey: the explicit key was used before.
        """
        if options.key is None:
            n = self._counts.get(spec.name, 0)
            self._counts[spec.name] = n + 1
            return step_key(spec.name, n)
        key = explicit_key(options.key)
        if key in self._keys:
            raise DuplicateKey(
                f"the key {key!r} is used twice in this run",
                where=spec.where,
                why="a key names one step for ever, so that a restart finds it again",
                hint="give each call a key of its own",
            )
        self._keys.add(key)
        return key

    def call(self, spec: ToolSpec, packed: bytes, options: Options) -> Coroutine[Any, Any, Any]:
        """Call a tool, model or step: its key is taken now."""
        self.refuse_elsewhere(f"{spec.kind} {spec.name!r}", spec.where)
        if self.spins:
            return self.parked()
        self.refuse_when_dropped()
        call = Call(self.key(spec, options), 0, spec, packed, values.digest(packed), options)
        return self._wait(spec, self.driver.steps.begin, call)

    def cancel(self, call: Call) -> None:
        """The code no longer wants a call."""
        self.driver.steps.cancel(call)

    def future(self, call: Call) -> CallFuture:
        """The future of a call that begins now."""
        call.future = future = CallFuture(self.driver.loop, self, call)
        self.calls[call.key] = call
        return future


class AttemptScope(Scope):
    """The code of one attempt of a step: each call of a tool or model is an effect, numbered from 0."""

    def __init__(self, driver: Driver, step: str, attempt: int) -> None:
        self.step = step
        self.attempt = attempt
        super().__init__(driver)
        self.ordinal = 0
        self.effects: dict[int, Call] = {}
        self.inherited: dict[int, IntentView] = {}
        self.recorded: dict[int, IntentView] = {}
        self.over = False
        self.work: asyncio.Future[Any] | None = None
        self.unknown = False
        self.failure: BaseException | None = None

    def forget(self) -> None:
        """The code has the attempt's end: of the attempt itself only its place is kept."""
        self.dropped = True
        self.work = None
        for kept in (self.effects, self.inherited, self.recorded, self.timers):
            kept.clear()

    def call(self, spec: ToolSpec, packed: bytes, options: Options) -> Coroutine[Any, Any, Any]:
        """Make an effect of this attempt; a step called in a step is part of it."""
        self.refuse_elsewhere(f"{spec.kind} {spec.name!r}", spec.where)
        if self.spins:
            return self.parked()
        self.refuse_when_dropped()
        if options.key is not None:
            raise DuplicateKey(
                f"{spec.name} was called with key={options.key!r} inside the step {self.step}",
                where=spec.where,
                why="inside a step an effect is named by its number, in the order of the calls",
                hint="leave key= out, or call it from the workflow",
            )
        return self._call(spec, packed, options)

    async def _call(self, spec: ToolSpec, packed: bytes, options: Options) -> Any:
        digest = values.digest(packed)
        if spec.kind == "step" and self._was_effect(spec):
            call = Call(self.step, self.ordinal, spec, packed, digest, options)
            self.driver.ending.differ(f"{short(spec.name)} as an effect of {self.step}", call.asked(), about=self.step)
            await self.parked()
        if spec.kind == "step" or (spec.is_pure and not self._was_effect(spec)):
            if options.timeout_s is not None:
                raise BadDeclaration(
                    f"{spec.name}.options: timeout= was given inside the step {self.step}",
                    where=spec.where,
                    why="inside a step a PURE tool is part of the step's own code, which nobody would stop",
                    hint=f"async with asyncio.timeout(...) around {spec.name}, or call it from the workflow",
                )
            return await self.driver.attempts.inline(self, spec, packed)
        return await self._wait(spec, self.driver.effects.begin, spec, packed, digest, options)

    def _was_effect(self, spec: ToolSpec) -> bool:
        """Whether what is pure now is an effect in the record: as such it is known, and not done anew."""
        known = self.recorded.get(self.ordinal) or self.inherited.get(self.ordinal)
        return known is not None and known.pending.tool == spec.name

    def cancel(self, call: Call) -> None:
        """The code no longer wants an effect."""
        self.driver.effects.cancel(self, call)

    def future(self, call: Call) -> CallFuture:
        """The future of an effect that begins now."""
        call.future = future = CallFuture(self.driver.loop, self, call)
        self.effects[call.ordinal] = call
        return future


class BodyScope:
    """What stands behind a tool's body, its probe or its undo: it may know its request id, and make no effect."""

    def __init__(self, where: Current, request_id: str, *, probing: bool) -> None:
        self.pid = os.getpid()
        self._current = where
        self._request_id = request_id
        self._where = "a probe" if probing else "a tool"

    def call(self, spec: ToolSpec, packed: bytes, options: Options) -> Coroutine[Any, Any, Any]:  # noqa: ARG002
        """Refuse: an effect inside an effect has no intent of its own."""
        self._refuse(f"{spec.kind} {spec.name!r} was called", spec.where)

    def call_sync(self, spec: ToolSpec, packed: bytes, options: Options) -> Any:  # noqa: ARG002
        """Refuse, as `call`."""
        self._refuse(f"{spec.kind} {spec.name!r} was called", spec.where)

    def decide(self, decision_id: str, value: Any) -> Any:  # noqa: ARG002
        """Refuse: the workflow decides, the tool acts."""
        self._refuse(f"poimen.decide({decision_id!r}) was called", "")

    def settle(self, decision_id: str) -> None:
        """Refuse, as `decide`."""
        self._refuse(f"poimen.settle({decision_id!r}) was called", "")

    def request_id(self) -> str:
        """Our name for this effect."""
        return self._request_id

    def current(self) -> Current:
        """Where the body is running, as it was when it began."""
        return self._current

    def _refuse(self, what: str, where: str) -> NoReturn:
        raise UnguardedEffect(
            f"{what} inside {self._where}",
            where=where,
            why="the body of an effect stands between its own records; what it does itself has none",
            hint="make the call from the workflow or from a step, before or after the tool",
        )


def _salt(name: str) -> int:
    """Where the numbers of a scope's asyncio tasks begin: runs and steps do not share them, all attempts of one do."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")


def scope_of(caller: object) -> Scope | None:
    """The scope of the code that this caller stands behind."""
    found = getattr(caller, "scope", None)
    return found if isinstance(found, Scope) else None
