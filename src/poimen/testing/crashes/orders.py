"""What a child process is told to do, and how it does it: one target, perhaps armed, sabotaged, or late.

This module must never fork or kill; it keeps the invariant that a target runs in a child as it would in the
parent: the same search path, the same rules for databases.

Source: design api.md, "Command line" (`MODULE:FUNC`, `FILE.py:FUNC`), "Testing".
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from poimen import clock
from poimen._typing import override
from poimen.declare import modules, values
from poimen.declare.shapes import Call
from poimen.declare.specs import WorkflowSpec, spec_of
from poimen.gate import points
from poimen.kernel.errors import ConfigurationError, NotFound, NotStorable, RunWaiting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

How: TypeAlias = Literal["returned", "waiting", "raised", "killed", "overdue", "gone"]
"""How a child ended: by itself (three ways), by SIGKILL, by our patience, or by anything else."""

EXIT_CODES: Final[Mapping[str, int]] = {"returned": 0, "raised": 1, "waiting": 4}
"""Of a child that ended by itself; the same that `poimen run` gives."""

ARMED: Final = "POIMEN_CRASH"

COMMITS: Final[Mapping[str, str]] = {
    "before_commit": "the process's N-th transaction on the log is about to begin: nothing of it is durable",
    "after_commit": "its N-th transaction is durable, and nobody in the process has been told",
}
"""More points, that only a child of this package has: around every transaction that it makes on the log."""

Target: TypeAlias = str | Call[Any]
"""What a child runs: `MODULE:FUNC`, `FILE.py:FUNC`, or a workflow called with its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One thing for a child to do.

    Arguments:
        target: a workflow, or a plain function, as `MODULE:FUNC` or `FILE.py:FUNC`.
        args: its arguments, as JSON text of an array.
        packed: or the arguments of a workflow by name, as JSON text of an object, as a `Call` holds them.
        db, run_id: as for `poimen.run`; a plain function gets its arguments alone.
        at: the point to arm, `POINT[:TOOL[:N]]`, of `POINTS` or `COMMITS`; empty: none.
        notes: a file that takes what the log was asked to keep and what it has kept, see `testing.lives.commits`.
        after_s: it is killed so long after its fork; 0: it is not.
        sabotage: what to break, a name in `poimen.testing.sabotage`; empty: nothing.
        ahead_s: how far its clocks are ahead of ours, as if the process had been away so long.
        env: variables to set.
        storage: what it runs over, as `power.inside.Storage` says it; empty: the system's files, unrecorded.
        output: a file that takes what it prints; empty: where ours goes.
        patience_s: after so long it is killed.
    """

    target: str
    args: str = "[]"
    packed: str = ""
    db: str | None = None
    run_id: str | None = None
    at: str = ""
    notes: str = ""
    after_s: float = 0.0
    sabotage: str = ""
    ahead_s: float = 0.0
    env: Mapping[str, str] = field(default_factory=dict)
    storage: str = ""
    output: str = ""
    patience_s: float = 60.0

    def text(self) -> str:
        """The order as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Order:
        """The order that `text` says."""
        return cls(**json.loads(text))


def ordered(
    target: Target,
    *,
    args: Sequence[object],
    db: str | os.PathLike[str] | None,
    run_id: str | None,
    at: str,
    env: Mapping[str, str] | None,
    **more: Any,
) -> Order:
    """An order from what callers give, checked before any process is made.

    Raises:
        NotFound: no such crash point, or the target has no function.
        NotStorable: an argument cannot be handed to another process.
        ConfigurationError: arguments beside a call that holds its own.
    """
    name, packed = name_of(target), target.packed.decode() if isinstance(target, Call) else ""
    _split(name)
    if packed and args:
        raise ConfigurationError(f"{target!r} holds its arguments", hint="leave args= out, or name the workflow")
    point = at.partition(":")[0]
    if at and point not in {*points.POINTS, *COMMITS}:
        known = ", ".join([*points.POINTS, *COMMITS])
        raise NotFound(f"{point!r} is not a crash point", where=at, hint=f"one of {known}", point=point)
    body = values.dump(list(args), path="args").decode()
    place = None if db is None else os.fspath(db)
    return Order(target=name, args=body, packed=packed, db=place, run_id=run_id, at=at, env=dict(env or {}), **more)


def name_of(target: Target) -> str:
    """Where another process finds a target: `MODULE:FUNC` for a workflow in a package, else `FILE.py:FUNC`.

    Raises:
        NotFound: it is made inside a function, where no other process can find it.
    """
    if not isinstance(target, Call):
        return target
    spec = target.spec
    if "<locals>" in spec.qualname:
        raise NotFound(
            f"the workflow {spec.name} is made inside a function",
            where=spec.where,
            why="a child process finds it by its module and name",
            hint="declare it at the top of a module",
        )
    return f"{spec.module if '.' in spec.module else spec.file}:{spec.qualname}"


def _split(target: str) -> tuple[str, str]:
    module, _, name = target.rpartition(":")
    if not module or not name:
        raise NotFound(
            f"{target!r} names no function", hint="MODULE:FUNC or FILE.py:FUNC, such as agent.py:shop", target=target
        )
    return module, name


def resolve(target: str) -> Any:
    """The workflow or function that a target names; its module is loaded.

    Raises:
        NotFound: there is no such module, file or name.
    """
    module, name = _split(target)
    found: Any = modules.load(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise NotFound(f"{module} has no {name!r}", hint="see how it is spelled there", target=target)
        found = getattr(found, part)
    return found


class Ahead(clock.Source):
    """The real clocks, all of them ahead: what a process sees that was away for a while.

    Arguments:
        seconds: how far.
    """

    def __init__(self, seconds: float) -> None:
        self._s = seconds

    @override
    def wall_us(self) -> int:
        return super().wall_us() + round(self._s * clock.US)

    @override
    def boot_us(self) -> int:
        return super().boot_us() + round(self._s * clock.US)

    @override
    def monotonic(self) -> float:
        return super().monotonic() + self._s


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a child tells of its own end.

    Arguments:
        how: `returned`, `waiting` (only somebody else can move the run) or `raised`.
        value: what the target returned, as JSON text; empty when it cannot be told so.
        why: the error's text.
    """

    how: How
    value: str = ""
    why: str = ""


def perform(order: Order) -> Said:
    """Carry an order out in this process, which is given up to it: nothing is put back afterwards."""
    os.environ.update(order.env)
    mine = order.at.partition(":")[0] in COMMITS
    points.arm("" if mine else order.at)
    try:
        if mine or order.notes:
            from poimen.testing.lives import commits  # noqa: PLC0415 (loaded only where the log is watched)

            commits.watch(order.notes, order.at if mine else "")
        if order.sabotage:
            from poimen.testing import sabotage  # noqa: PLC0415 (what breaks the gate is loaded only to break it)

            sabotage.apply(order.sabotage)
        if order.ahead_s:
            clock.use(Ahead(order.ahead_s))
        with _storage(order.storage):
            found = _called(order)
    except RunWaiting as waiting:
        return Said(how="waiting", why=str(waiting))
    except BaseException as error:  # noqa: BLE001 (the child's end, whatever it is)
        traceback.print_exc()
        return Said(how="raised", why=f"{type(error).__name__}: {error}")
    try:
        return Said(how="returned", value=values.dump(found, path="returned").decode())
    except NotStorable:
        return Said(how="returned")


def _storage(text: str) -> AbstractContextManager[object]:
    if not text:
        return nullcontext()
    from poimen.testing.power.inside import Storage, recorded  # noqa: PLC0415 (only where something is recorded)

    return recorded(Storage.of(text))


def _called(order: Order) -> Any:
    target = resolve(order.target)
    spec = spec_of(target)
    if isinstance(spec, WorkflowSpec):
        from poimen.engine.runtime import run  # noqa: PLC0415 (a plain function may do without the engine)

        if order.packed:
            args, kwargs = spec.parameters.unpack(order.packed.encode())
            return run(target(*args, **kwargs), db=order.db, run_id=order.run_id)
        return run(target(*_given(order)), db=order.db, run_id=order.run_id)
    if not callable(target):
        raise NotFound(f"{order.target} is neither a workflow nor a function", hint="name a workflow")
    if order.db is not None or order.run_id is not None:
        raise ConfigurationError(
            f"{order.target} is a plain function: db= and run_id= are for workflows",
            hint="give it what it needs by args=",
        )
    return target(*_given(order))


def _given(order: Order) -> list[Any]:
    given: list[Any] = values.load(order.args.encode(), list[Any], path="args")
    return given


_serving: Final[list[bool]] = []


def serve() -> None:
    """This process is a fork server, or is about to be one: what it loads may start no other."""
    _serving[:] = [True]


def must_not_serve() -> None:
    """Refuse what a module does when it is loaded by a fork server, or each would load it in yet another one.

    Raises:
        ConfigurationError: this process is a fork server or a fork of one.
    """
    if _serving:
        raise ConfigurationError(
            "a module that a fork server loads starts a fork server itself",
            why="the child would do the same, and so on for ever; nothing was started",
            hint='put what starts it (sweep, kill_sweep, ...) behind: if __name__ == "__main__":',
        )


def search_here() -> None:
    """Look for modules in the working directory and in its `src/` first, as the command line does."""
    for folder in (Path.cwd() / "src", Path.cwd()):
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def python(module: str, *arguments: str) -> list[str]:
    """A command that runs `main(arguments)` of a module with this process's interpreter and search path."""
    begin = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {module} import main; main(sys.argv[2:])"
    return [sys.executable, "-c", begin, json.dumps([path for path in sys.path if path]), *arguments]
