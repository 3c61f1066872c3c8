"""How a branch stops being driven: it ends, rests with a reason, or is let go of without a word.

This module must never lose an unknown: what is open when a branch ends is counted in its last record
and stays in the inbox. It keeps the invariants that a branch waits only with a reason on record, and
that a dropped run makes no sound and no effect.

Source: design protocol.md, section 2; section 5 ("Dropping").
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from poimen.engine.driving.replay import SHOWN, Asked
from poimen.engine.driving.scopes import AttemptScope, CallFuture, Scope
from poimen.engine.eventloop.loop import empty, never_close
from poimen.gate.error_record import record_of
from poimen.gate.places import told
from poimen.kernel.errors import Conflict, Fenced, PoimenError, Suspended
from poimen.kernel.events import BranchEnded, BranchVerifying, BranchWaiting, Waiting
from poimen.kernel.views import open_steps
from poimen.recovery.scan import called_off

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from poimen.engine.driving.driver import Driver
    from poimen.kernel.intent import ErrorRecord, Payload

PATIENCE_S: Final = 5.0
"""How long the code of a workflow may go on after it was told of a cancellation, in seconds."""


_NOTHING: Final = Asked()


class Ending:
    """The ways out of driving one branch. `settling`: one of them is being taken."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.settling = False
        self.calling_off = False
        self.differences: list[Waiting] = []
        self._way: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._patience: asyncio.TimerHandle | None = None

    def differ(self, recorded: str, asked: Asked = _NOTHING, *, about: str = "") -> None:
        """The code asks for something else than what is recorded: nothing is executed, the branch waits.

        In a replay at once. Live, what else is under way goes on, and the branch waits when nothing moves.

        Arguments:
            recorded: what is recorded, in words, without what agents passed or said.
            asked: what the code asked for instead.
            about: the step's key, or `decide:ID`, `settle:ID`, where it is known.
        """
        if self._driver.dropped or self.settling:
            return
        before, now = self._driver.script.code_of(about), self._driver.worker.code
        by = f" (code {before[:SHOWN]})" if before else ""
        detail = f"recorded: {recorded}{by}; {self._did(asked.words, about)} (code {now[:SHOWN]})"
        if all(known.detail != detail for known in self.differences):
            about = about or "workflow"
            self.differences.append(Waiting(reason="code", about=about, detail=detail, asked=asked.written))
        if not self._driver.live:
            self.rest(self.differences)

    def differ_from_next(self, asked: Asked) -> bool:
        """Whether something is recorded that the code has not asked for: the first such thing is the difference."""
        left = self._driver.script.next_unclaimed()
        what, about = (left.what, left.key) if left is not None else self._driver.hands.unclaimed_effect()
        if what:
            self.differ(what, asked, about=about)
        return bool(what)

    def _did(self, asked: str, step: str) -> str:
        """What the code did instead: it asked for something else, it ended, it waits."""
        if asked:
            return f"the code asked for: {asked}"
        root = self._driver.root
        ends = [scope.failure for (key, _), scope in self._driver.attempts.scopes.items() if key == step]
        ends.append(root.exception() if root is not None and root.done() and not root.cancelled() else None)
        error = next((end for end in ends if isinstance(end, Exception)), None)
        if error is not None:
            return f"the code ended with {told(error)}"
        return f"the code asked for: {'nothing more' if self._driver.root_ended() else 'nothing yet'}"

    def rest(self, reasons: Sequence[Waiting]) -> None:
        """Record why the branch waits, and let go of it. One that is cancelled waits for nobody: it ends."""
        if self._driver.line.cancel_lsn:
            self.call_off()
            return
        kept = tuple(reasons)
        self._settle(lambda: self._rest(kept))

    def call_off(self) -> None:
        """End a cancelled branch without its code, which cannot or will not end by itself."""
        if not self.settling:
            self.calling_off = self._driver.loop.silent = True
        self._settle(self._call_off)

    def be_patient(self) -> None:
        """The code has been told of the cancellation: it has a while to end."""
        if self._patience is None:
            self._patience = self._driver.main.call_later(PATIENCE_S, self.call_off, context=empty())

    def _settle(self, way: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self.settling or self._driver.dropped:
            return
        self.settling = True
        self._way = way
        self.go_on()

    def go_on(self) -> None:
        """Let go of the branch once no effect is at work: what it answers must be on record first."""
        if self._way is not None and not self._driver.effects.at_work:
            way, self._way = self._way, None
            self._driver.spawn(way())

    async def _rest(self, reasons: tuple[Waiting, ...]) -> None:
        try:
            await self._driver.append((BranchWaiting(reasons=reasons, code=self._driver.worker.code),), look=True)
        except Conflict:
            self.settling = False
            if not self._driver.live:
                self.rest(reasons)
            return
        self._end("waiting")

    async def _call_off(self) -> None:
        line = self._driver.line
        await self._driver.outbox.drained()
        ended = BranchEnded(state="CANCELLED", cause=line.cancel_why, unresolved=self.unresolved())
        await self._driver.append((*called_off(line), ended))
        self._end("ended")

    def finish(self) -> None:
        """The body has ended: once every step has, enter Verifying, and end."""
        root, driver = self._driver.root, self._driver
        if root is None or self.settling:
            return
        if not self._left():
            self.settling = True
            driver.spawn(self._finish(root))
        elif not driver.timers.armed() and not driver.loop.foreign:
            self._close_left()

    def _left(self) -> list[str]:
        """Steps that have not ended, also not in a record that waits."""
        over = self._driver.outbox.over()
        return [step.key for step in open_steps(self._driver.line) if step.key not in over]

    def _close_left(self) -> None:
        """Steps whose code was cancelled and awaits something that nothing will bring."""
        attempts, left = self._driver.attempts, self._left()
        for scope in [s for s in attempts.scopes.values() if s.step in left and not s.dropped]:
            attempts.drop_scope(scope)
        self._driver.submit(called_off(self._driver.line))

    async def _finish(self, root: asyncio.Task[Any]) -> None:
        # Every step has ended (`finish`), although the last ends may be on their way, and not folded, by now.
        if self._driver.line.cancel_lsn:
            await self._ended(
                BranchEnded(state="CANCELLED", cause=self._driver.line.cancel_why, unresolved=self.unresolved())
            )
            return
        value, record = self._result(root)
        verifying = BranchVerifying(value=value, error=record)
        state = BranchEnded(
            state="FAILED" if record is not None else "SUCCEEDED", cause="", unresolved=self.unresolved()
        )
        try:
            await self._driver.append((verifying, state), look=True)
        except Conflict:
            self.settling = False
            return
        self._end("ended")

    def _result(self, root: asyncio.Task[Any]) -> tuple[Payload | None, ErrorRecord | None]:
        if root.cancelled():
            return None, record_of(asyncio.CancelledError("the workflow cancelled itself"))
        error = root.exception()
        if error is not None:
            return None, record_of(error)
        driver = self._driver
        try:
            body = driver.spec.parameters.dump_result(root.result(), path="the result")
        except PoimenError as refused:
            return None, record_of(refused)
        return driver.keep(body), None

    async def _ended(self, event: BranchEnded) -> None:
        await self._driver.append((event,))
        self._end("ended")

    def unresolved(self) -> int:
        """How many effects may have happened without anybody knowing."""
        return len(self._driver.line.unresolved())

    def stop(self, error: BaseException) -> None:
        """This run can no longer be driven here: fenced, or the log has failed."""
        if self._driver.error is None:
            self._driver.error = error
        self._end("fenced" if isinstance(error, Fenced) else "failed")

    def _end(self, how: str) -> None:
        if not self._driver.done.done():
            self.drop()
            self._driver.done.set_result(how)

    def let_go(self) -> None:
        """Stop driving without a word in the log: the next worker goes on where this one stood."""
        self._driver.outbox.flush()
        self._end("let go")

    def suspend(self, future: CallFuture) -> None:
        """Let a waiting call raise Suspended."""
        if not future.done():
            future.set_exception(Suspended())
            future.exception()

    def drop(self) -> None:
        """Let go of the run's code without a sound: newest call first, then whatever waits for something else."""
        if self._driver.dropped:
            return
        self._driver.dropped = True
        self._driver.loop.silent = True
        if self._patience is not None:
            self._patience.cancel()
        self._driver.outbox.close()
        self._driver.steps.close()
        scopes: list[Scope] = [self._driver.workflow, *self._driver.attempts.scopes.values()]
        for timer in [t for s in scopes for t in s.timers.values()]:
            timer.cancel()
        futures = [c.future for c in self._driver.workflow.calls.values()]
        futures += [c.future for s in scopes if isinstance(s, AttemptScope) for c in s.effects.values()]
        for future in reversed(futures):
            self.suspend(future)
        self._driver.main.call_soon(self._dropped, 3, context=empty())

    def _dropped(self, rounds: int) -> None:
        self._driver.loop.drain()
        left = self._driver.loop.unfinished()
        if left and rounds:
            for task in left:
                task.cancel()
            self._driver.main.call_soon(self._dropped, rounds - 1, context=empty())
            return
        never_close(left)
        self._driver.worker.leftovers.extend(left)
        if self._driver.root is not None and self._driver.root.done() and not self._driver.root.cancelled():
            self._driver.root.exception()
