"""One target in a real child process of its own, which may be armed to die by SIGKILL at a named point.

This module must never simulate a death: no destructor of the child runs, no buffer is flushed. It keeps the
invariant that what `crash` returns is what the operating system says of the child's end.

Source: requirement write-ahead-intent, "Verify"; design api.md, "Testing" (`crash`).
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, NoReturn

from poimen.testing.crashes.orders import EXIT_CODES, Order, Target, ordered, perform, python, search_here

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def crash(
    target: Target,
    *,
    at: str,
    tool: str = "",
    nth: int = 1,
    args: Sequence[object] = (),
    db: str | os.PathLike[str] | None = None,
    run_id: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> int:
    """Run a workflow in a child process that kills itself (SIGKILL) when it reaches a point.

    Arguments:
        target: the workflow: `MODULE:FUNC`, `FILE.py:FUNC`, or called with its arguments.
        at: the point, a key of `poimen.testing.POINTS` or `COMMITS`.
        tool: the tool at whose point it dies (for `admitted`: the workflow); empty: whichever comes first.
        nth: at the how-manieth time, from 1.
        args: the workflow's arguments: what can be stored without an annotation.
        db: the database; found by the usual rules when left out.
        run_id: as for `poimen.run`; give one to start the same run again afterwards.
        env: variables to set in the child.
        timeout_s: how long the child may take, seconds.

    Returns:
        The child's return code: -9 when it was killed; 0 when it came to its end without reaching the point, 4
        when the run waits for somebody, 1 after an error (its traceback is on stderr).

    Raises:
        NotFound: no such crash point.
        NotStorable: an argument cannot be handed to another process.
        subprocess.TimeoutExpired: the child took too long; it is gone.

    Source: design proof.md, P1.
    """
    order = ordered(target, args=args, db=db, run_id=run_id, at=f"{at}:{tool}:{nth}", env=env)
    return subprocess.run(_command(order), check=False, timeout=timeout_s).returncode  # noqa: S603 (our own program)


def child_command(
    target: Target,
    *,
    args: Sequence[object] = (),
    db: str | os.PathLike[str] | None = None,
    run_id: str | None = None,
    at: str = "",
    sabotage: str = "",
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """The command line of such a child, to be started under a tracer or by hand.

    Arguments:
        target: a workflow or a plain function, as for `crash`.
        args: the target's arguments: what can be stored without an annotation.
        db: as for `poimen.run`; not for a plain function.
        run_id: as `db`.
        env: variables to set in the child.
        at: `POINT[:TOOL[:N]]`; empty: it does not die.
        sabotage: what to break, a name in `poimen.testing.sabotage.CONTROLS`; empty: nothing.

    Raises:
        NotFound, NotStorable: as `crash`.
    """
    return _command(ordered(target, args=args, db=db, run_id=run_id, at=at, env=env, sabotage=sabotage))


def _command(order: Order) -> list[str]:
    return python(__name__, order.text())


def main(arguments: Sequence[str]) -> NoReturn:
    """The child's program: carry out the order that stands on the command line, and exit."""
    search_here()
    said = perform(Order.of(arguments[0]))
    if said.how == "waiting":
        os.write(2, f"{said.why}\n".encode())
    raise SystemExit(EXIT_CODES[said.how])
