"""The asking end of a fork server: targets run in forks of a process that has loaded their code once.

This module must never fork the process that it runs in, which has threads and open files of its own. It keeps
the invariant that a fork's end is told as it was: by which signal, with which code.

Source: design proof.md, P2 (fork server).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from poimen.declare import values
from poimen.kernel.errors import PoimenError, StorageFailed
from poimen.testing.crashes.orders import How, Target, must_not_serve, name_of, ordered, python

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from poimen.testing.crashes.orders import Order

_START_S: Final = 60.0
_PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a child ended.

    Arguments:
        how: `returned`, `waiting` (only somebody else can move the run), `raised`, `killed` (SIGKILL), `overdue`
            (it took too long and was killed for it), `gone` (anything else).
        signal: the signal that ended it; 0: none.
        code: its exit code; the signal's number, negative, where a signal ended it.
        value: what the target returned, where it told.
        why: the text of the error or of the waiting.
    """

    how: How
    signal: int
    code: int
    value: Any
    why: str

    @property
    def was_killed(self) -> bool:
        """Whether it died by SIGKILL, by its own armed point or from outside."""
        return self.how == "killed" and self.signal == signal.SIGKILL


class ForkServer:
    """A process that has loaded the code of targets, and runs each order in a fork.

    Arguments:
        targets: `MODULE:FUNC`, `FILE.py:FUNC` or a workflow called with its arguments, loaded before the first fork;
            what they import may start no threads.
        env: variables to set for all of it.

    Raises:
        StorageFailed: the server cannot be started, or a target cannot be loaded.
        NotFound: a called workflow is made inside a function.
        ConfigurationError: a module that a fork server loads asks for another one; see the hint.
    """

    def __init__(self, *targets: Target, env: Mapping[str, str] | None = None) -> None:
        must_not_serve()
        names = list(map(name_of, targets))
        ours, its = socket.socketpair()
        ours.settimeout(_START_S)
        self._line = ours
        self._in = bytearray()
        self._answers: dict[int, dict[str, Any]] = {}
        self._asked = 0
        with its:
            self._process = subprocess.Popen(  # noqa: S603 (our own program)
                python("poimen.testing.crashes.server", str(its.fileno()), *names),
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(env or {})},
            )
        try:
            first = self._hear()
            if first["how"] != "returned":
                raise StorageFailed(
                    f"the fork server cannot load its targets: {first['why']}", why=first.get("trace", "")
                )
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def begin(
        self,
        target: Target,
        *,
        args: Sequence[object] = (),
        db: str | os.PathLike[str] | None = None,
        run_id: str | None = None,
        at: str = "",
        after_s: float = 0.0,
        notes: str | os.PathLike[str] = "",
        sabotage: str = "",
        ahead_s: float = 0.0,
        env: Mapping[str, str] | None = None,
        storage: str = "",
        output: str | os.PathLike[str] = "",
        patience_s: float = _PATIENCE_S,
    ) -> Fork:
        """Start a target in a fork, beside those that are at work already.

        Arguments:
            target: a workflow, run by `poimen.run`, or one called with its arguments; or a plain function, called with
                `args` alone.
            args: what can be stored without an annotation; none where the target is called already.
            db: as for `poimen.run`; not for a plain function.
            run_id: as `db`.
            at: the point to arm, `POINT[:TOOL[:N]]`, of `POINTS` or `COMMITS`; empty: none.
            after_s: it is killed from outside so long after its fork, wherever it is then, seconds; 0: it is not.
            notes: a file that takes what the log was asked to keep and what it has kept; empty: none.
            sabotage: what to break in it, a name in `poimen.testing.sabotage.CONTROLS`; empty: nothing.
            ahead_s: how far its clocks are ahead, as if the process had been away for so long, seconds.
            env: variables to set in it.
            storage: recorded or failing storage that it runs over, for the sweeps of this package; empty: as it is.
            output: a file that takes what it prints; empty: where this process prints.
            patience_s: after so long it is killed.

        Raises:
            NotFound, NotStorable: as `crash`.
        """
        order = ordered(
            target,
            args=args,
            db=db,
            run_id=run_id,
            at=at,
            env=env,
            after_s=after_s,
            notes=os.fspath(notes),
            sabotage=sabotage,
            ahead_s=ahead_s,
            storage=storage,
            output=os.fspath(output),
            patience_s=patience_s,
        )
        self._line.settimeout(patience_s + _START_S)
        return self._give(order)

    def _give(self, order: Order) -> Fork:
        self._asked += 1
        try:
            self._line.sendall(f"{self._asked} {order.text()}\n".encode())
        except OSError as error:
            raise self._gone() from error
        return Fork(self, self._asked)

    def run(self, target: Target, **order: Any) -> Ended:
        """Start a target in a fork and wait for its end.

        Arguments:
            target: as for `begin`.
            order: the other arguments of `begin`.
        """
        return self.begin(target, **order).ended()

    def answer_to(self, number: int) -> dict[str, Any]:
        """Wait for the answer to an order."""
        while number not in self._answers:
            told = self._hear()
            self._answers[told["number"]] = told
        return self._answers.pop(number)

    def _hear(self) -> dict[str, Any]:
        while b"\n" not in self._in:
            try:
                got = self._line.recv(1 << 16)
            except OSError as error:
                raise self._gone() from error
            if not got:
                raise self._gone()
            self._in += got
        line, _, rest = bytes(self._in).partition(b"\n")
        self._in = bytearray(rest)
        told: dict[str, Any] = json.loads(line)
        return told

    def _gone(self) -> PoimenError:
        code = self._process.poll()
        return StorageFailed(
            f"the fork server does not answer (exit code {code})",
            why="what it has printed says why",
            hint="a target whose module starts threads, or replaces signal handlers, cannot be loaded in it",
        )

    def close(self) -> None:
        """End the server and what it has forked."""
        self._line.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Fork:
    """A child at work.

    Arguments:
        server: which has forked it.
        number: of its order.
    """

    def __init__(self, server: ForkServer, number: int) -> None:
        self._server = server
        self._number = number
        self._ended: Ended | None = None

    def ended(self) -> Ended:
        """Wait for its end."""
        if self._ended is None:
            told = self._server.answer_to(self._number)
            value = told.get("value", "")
            self._ended = Ended(
                how=told["how"],
                signal=told.get("signal", 0),
                code=told.get("code", 1),
                value=values.load(value.encode(), path="returned") if value else None,
                why=told.get("why", ""),
            )
        return self._ended


def in_parallel(begins: Sequence[Callable[[], Fork]], width: int) -> list[Ended]:
    """Begin each, with so many at work beside each other, and give their ends in order.

    Arguments:
        begins: what starts a fork.
        width: how many, at least 1.
    """
    at_work: list[Fork] = []
    for n, begin in enumerate(begins):
        if n >= width:
            at_work[n - width].ended()
        at_work.append(begin())
    return [fork.ended() for fork in at_work]
