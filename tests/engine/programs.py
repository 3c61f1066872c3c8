"""Random concurrent programs over recorded calls, and the world that their tools act on.

A program is a tree of tuples; the workflow interprets it. All that it sees goes into a trace and into a hash that
chooses branches and arguments, so that the smallest difference in what is handed over, or in when, shows.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import poimen
from poimen import effects
from poimen.declare.registry import Registry
from poimen.declare.specs import spec_of
from tests.engine.simulated import SimulatedLoop

if TYPE_CHECKING:
    from collections.abc import Callable

Node = tuple[Any, ...]
pause = asyncio.sleep
"""In a run or in simulated time: nothing waits for real."""

# ---- the world -------------------------------------------------------------------------------------------------------


def mixed(*parts: object) -> int:
    return zlib.crc32(repr(parts).encode())


@dataclass
class Cell:
    """One run: its program, what its code has seen, and what its tools have been asked for."""

    seed: int
    nodes: list[Node]
    chance: random.Random
    fails: str = "sometimes"
    slow: bool = False
    trace: list[tuple[bool, tuple[Any, ...]]] = field(default_factory=list)
    entered: list[tuple[str, int, str]] = field(default_factory=list)
    sends: dict[str, int] = field(default_factory=dict)
    watched: Any = None
    patch: Callable[[list[Node]], list[Node]] = list
    far: FarSide | None = None

    def saw(self, what: tuple[Any, ...]) -> None:
        if not self.watched.driver.dropped:  # code that is being dropped runs on without a run behind it
            self.trace.append((self.watched.new, what))

    @property
    def seen(self) -> list[tuple[Any, ...]]:
        return [what for _, what in self.trace]


CELLS: dict[str, Cell] = {}

SLOT_S = 0.64


class FarSide:
    """A world that answers in simulated time, at moments that are the effects' own: not when chance or a turn says.

    The n-th answer about an effect comes at the beginning of a slot of time that no other answer has; a question that
    is asked again after a crash, about an effect that has not been answered, is answered when the first one would
    have been. Times of the programs themselves end a little after the beginning of a slot. A slot is longer than all
    that a recovery waits for by itself (two back-offs, with the jitter of `simulated`'s clock, after a record that has
    waited 0.1 s for company), so what a crash left in flight has been sent again before the next answer comes.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.at: dict[tuple[str, int], int] = {}
        self.taken: set[int] = set()
        self.called_off: set[str] = set()

    @staticmethod
    def seconds(drawn: float, place: int) -> float:
        """0 to 8 slots and up to 20 ms, which are this place's own: no two timers of a program fire at one moment."""
        return int(drawn * 2_000) % 9 * SLOT_S + (1 + place % 1_999) * 1e-5

    @staticmethod
    def may_miss(name: str) -> bool:
        """Whether a call may not reach it: one that a step and a recovery alike make anew then."""
        return name in {"look", "chat", "calc"} or poimen.current().step.startswith("put#")

    def answers(self, effect: str, now_s: float) -> tuple[int, float]:
        """The number of the next answer about an effect that has not been given by now, and in how many seconds."""
        n = 1
        while (effect, n) in self.at and self.at[effect, n] * SLOT_S <= now_s:
            n += 1
        if (effect, n) not in self.at:
            slot = int(now_s / SLOT_S + 1e-6) + 1 + mixed(self.seed, effect, n) % 12
            while slot in self.taken:
                slot += 1
            self.taken.add(slot)
            self.at[effect, n] = slot
        return n, self.at[effect, n] * SLOT_S - now_s


def here() -> Cell:
    return CELLS[poimen.current().run_id]


async def _answer(name: str, arg: int, *, sends: bool) -> int:
    """What the far side does: takes its time, says no, loses its answer, or answers."""
    cell, again, identity = here(), 1, ""
    if sends:
        identity = poimen.request_id()
        cell.entered.append((name, arg, identity))
        again = cell.sends[identity.partition(".")[0]] = cell.sends.get(identity.partition(".")[0], 0) + 1
    if not sends and not isinstance(asyncio.get_running_loop(), SimulatedLoop):
        return mixed(cell.seed, name, arg) % 100 * 7919 % 1000  # of a step's own code: it must not depend on chance
    if cell.far is not None:
        place = poimen.current()
        effect = identity.partition(".")[0] if sends else f"{place.step}/{place.attempt}"
        n, delay_s = cell.far.answers(effect, asyncio.get_running_loop().time())
        try:
            await pause(delay_s)
        except asyncio.CancelledError:
            cell.far.called_off.add(effect)
            raise
        return _said(cell, name, arg, sends=sends, again=max(n, place.attempt if name in {"look", "chat"} else n))
    for _ in range(cell.chance.randrange(6)):
        await asyncio.sleep(0)
    if cell.slow or cell.chance.randrange(4) == 0:
        await pause(0.003 if cell.slow else cell.chance.random() * 0.003)
    return _said(cell, name, arg, sends=sends, again=again)


def _said(cell: Cell, name: str, arg: int, *, sends: bool, again: int) -> int:
    """The far side's answer to a question that it gets for the `again`-th time."""
    fate = mixed(cell.seed, name, arg) % 100
    if cell.fails == "lost" and again == 1 and name == "put":
        raise ConnectionError(f"{name} lost its answer to {arg}")
    if cell.fails in {"", "lost"} or (fate >= 24 and cell.fails != "no"):
        return fate * 7919 % 1000
    if cell.fails in {"no", "always"}:  # whatever the world has seen before
        raise poimen.Rejected(f"{name} says no to {arg}", all_sends=cell.fails == "always")
    if fate < 12:
        no = poimen.Rejected(f"{name} says no to {arg}", all_sends=cell.far is not None)
        raise no if sends else ValueError(f"{name} of {arg}")
    if again == 1 and fate < 18 and (cell.far is None or FarSide.may_miss(name)):
        raise poimen.NotSent(f"{name} was not reached with {arg}")
    if again == 1 and fate < 21 and name == "put":
        raise ConnectionError(f"{name} lost its answer to {arg}")
    return fate


async def _to_the_end(name: str, arg: int) -> int:
    """A call that was told to stop finishes within its grace, or says that nothing was done."""
    work = asyncio.ensure_future(_answer(name, arg, sends=True))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if here().far is None:
            value = await work
        else:  # an effect that the code no longer wants is over at once: no crash finds it half called off
            work.cancel()
            value = mixed(here().seed, name, arg)
        if value % 3 == 0:
            raise poimen.NotSent(f"{name} of {arg} was called off") from None
        return value


@poimen.tool(effect=effects.READ, attempts=2, backoff=0.001)
async def look(arg: int) -> int:
    return await _answer("look", arg, sends=True)


@poimen.tool(effect=effects.IDEMPOTENT, attempts=2, backoff=0.001)
async def put(arg: int) -> int:
    return await _to_the_end("put", arg)


@poimen.tool(effect=effects.KEYED(ttl=timedelta(hours=24)), grace=0.05)
async def pay(arg: int) -> int:
    return await _to_the_end("pay", arg)


@poimen.tool(effect=effects.PURE)
async def calc(arg: int) -> int:
    return await _answer("calc", arg, sends=False)


@poimen.model(backoff=0.001)
async def chat(arg: int) -> int:
    return await _answer("chat", arg, sends=True)


TOOLS: dict[str, Any] = {"look": look, "put": put, "pay": pay, "calc": calc, "chat": chat}


class Failing(Exception):
    """A step gives up."""


@poimen.step(attempts=1)
async def unit(node: int, h: int) -> int:
    """A step whose body is a program."""
    return await _body(node, h)


@poimen.step(attempts=3, backoff=0.001)
async def stubborn(node: int, h: int) -> int:
    """A step that is tried again: its body cancels nothing and waits for no time."""
    value = await _body(node, h)
    if mixed(here().seed, node, value) % 3 == 0 and poimen.current().attempt < 2:
        raise Failing(value)
    return value


async def _body(node: int, h: int) -> int:
    cell = here()
    state = State(cell, h=h, traced=False)
    value = await execute(cell.nodes[node], state)
    return (value * 31 + state.h) % 1_000_003


# ---- programs --------------------------------------------------------------------------------------------------------

PLAIN = ("call",) * 4 + ("sleep0", "branch", "try", "seq")
CALM = ("gather", "gatherx", "nest", "ggg", "queue", "seq", "lock")
"""Kinds that cancel nothing and wait for no time: what a step that is tried again is made of."""
WILD = (
    *("wait", "asc", "tg", "timeout", "wait_for", "shield", "sleep"),
    *("decide", "finally", "stray", "agen", "kept", "event", "brief", "clock"),
)
FAILURES = (
    *(poimen.Rejected, poimen.NotSent, poimen.StepError, poimen.EffectAbandoned),
    *(ValueError, TimeoutError, ConnectionError),
)


class Maker:
    """Makes one program from a seed. `nodes[0]` is its root; bodies of steps are further nodes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.nodes: list[Node] = [()]
        self.decisions = 0
        self.nodes[0] = ("seq", [self.node() for _ in range(self.chance.randrange(3, 6))])

    def node(self, depth: int = 0, *, wild: bool = True, steps: bool = True) -> Node:
        kinds = list(PLAIN)
        if depth < 4:
            kinds += [*CALM, *(WILD if wild else ()), *(("step",) * 3 if steps else ())]
        kind = self.chance.choice(kinds)
        if depth >= 5 or kind == "call":
            return ("call", self.chance.choice(list(TOOLS)))
        if kind == "step":
            return self._step(depth)
        return (kind, *self._details(kind, lambda n: [self.node(depth + 1, wild=wild, steps=steps) for _ in range(n)]))

    def _details(self, kind: str, inner: Callable[[int], list[Node]]) -> tuple[Any, ...]:
        chance = self.chance
        details: dict[str, Callable[[], tuple[Any, ...]]] = {
            "sleep0": lambda: (chance.randrange(1, 7),),
            "sleep": lambda: (chance.random() * 0.002,),
            "branch": lambda: (inner(2),),
            "clock": lambda: (),
            "brief": lambda: (chance.choice(["look", "chat"]), chance.random() * 0.003),
            "timeout": lambda: (chance.random() * 0.003, inner(1)),
            "wait_for": lambda: (chance.random() * 0.003, inner(1)),
            "nest": lambda: (chance.randrange(2, 7), inner(1)),
            "ggg": lambda: (chance.randrange(2, 9), inner(2)),
            "wait": lambda: (chance.randrange(1, 3), inner(chance.randrange(2, 5))),
            "queue": lambda: (chance.randrange(1, 4), chance.randrange(2, 6), inner(1)),
            "decide": lambda: (self._decision(), chance.randrange(3)),
        }
        if kind in details:
            return details[kind]()
        return (inner(1 if kind in {"try", "shield", "finally", "stray", "event"} else chance.randrange(2, 4)),)

    def _decision(self) -> str:
        self.decisions += 1
        return f"d{self.decisions}"

    def _step(self, depth: int) -> Node:
        calm = self.chance.randrange(2) == 0
        body = ("seq", [self.node(max(depth + 1, 2), wild=not calm, steps=False) for _ in range(2)])
        self.nodes.append(body)
        return ("step", "stubborn" if calm else "unit", len(self.nodes) - 1)


class State:
    """What one piece of code has seen."""

    def __init__(self, cell: Cell, *, h: int, traced: bool) -> None:
        self.cell = cell
        self.h = h
        self.traced = traced
        self.lock = asyncio.Semaphore(2)
        self.strays: list[asyncio.Task[int]] = []
        self.kept: list[Any] = []
        self.timers = 0

    def seconds(self, drawn: float) -> float:
        """A time that the program waits for, as drawn for a world of chance; in another world its own."""
        self.timers += 1
        return drawn if self.cell.far is None else self.cell.far.seconds(drawn, mixed(drawn, self.h, self.timers))

    def see(self, *what: Any) -> None:
        if self.traced:
            self.cell.saw(what)
        self.h = mixed(self.h, what) % 1_000_003


async def execute(node: Node, state: State) -> int:
    value: int = await _KINDS[node[0]](node, state, state.see)
    return value


async def _call(node: Node, state: State, see: Any) -> int:
    name, arg = node[1], state.h % 97
    see("call", name, arg)
    try:
        value: int = await TOOLS[name](arg)
    except FAILURES as error:
        see("error", type(error).__name__, str(error)[:60])
        raise
    except asyncio.CancelledError:
        see("cancelled", name)
        raise
    see("value", value)
    return value


async def _step(node: Node, state: State, see: Any) -> int:
    see("step", node[1], node[2])
    try:
        value: int = await (unit if node[1] == "unit" else stubborn)(node[2], state.h)
    except FAILURES as error:
        see("error", type(error).__name__)
        raise
    see("value", value)
    return value


async def _sleep0(node: Node, state: State, see: Any) -> int:
    for _ in range(node[1]):
        await asyncio.sleep(0)
        see("z")
    return 0


async def _sleep(node: Node, state: State, see: Any) -> int:
    await pause(state.seconds(node[1]))
    see("slept")
    return 0


async def _seq(node: Node, state: State, see: Any) -> int:
    value = 0
    for one in node[1]:
        try:
            value = await execute(one, state)
        except FAILURES:
            see("went on")
    return value


async def _branch(node: Node, state: State, see: Any) -> int:
    way = state.h % 2
    see("branch", way)
    return await execute(node[1][way], state)


async def _try(node: Node, state: State, see: Any) -> int:
    try:
        return await execute(node[1][0], state)
    except FAILURES:
        see("caught")
        return -1
    finally:
        see("finally")


async def _gather(node: Node, state: State, see: Any) -> int:
    found = await asyncio.gather(*[execute(one, state) for one in node[1]], return_exceptions=node[0] == "gatherx")
    see("gathered", len(found))
    return 1


async def _ggg(node: Node, state: State, see: Any) -> int:
    future: Any = asyncio.gather(execute(node[2][0], state))
    for _ in range(node[1]):
        future = asyncio.gather(future)
    await asyncio.gather(future, execute(node[2][1], state))
    see("gathered gathers")
    return 1


async def _wait(node: Node, state: State, see: Any) -> int:
    waiting = {asyncio.create_task(execute(one, state), name=str(i)) for i, one in enumerate(node[2])}
    for _ in range(node[1]):
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        see("done", tuple((t.get_name(), t.exception() is None) for t in done))  # in the order of the set
        if not waiting:
            break
    for one in waiting:
        one.cancel()
    if waiting:
        ended, _ = await asyncio.wait(waiting)
        see("cancelled", tuple((t.get_name(), t.cancelled()) for t in ended))
    for one in waiting:
        one.cancelled() or one.exception()
    return 2


async def _asc(node: Node, state: State, see: Any) -> int:
    tasks = [asyncio.create_task(execute(one, state)) for one in node[1]]
    for future in asyncio.as_completed(tasks):
        try:
            see("completed", await future)
        except FAILURES:
            see("completed badly")
    return 3


async def _tg(node: Node, state: State, see: Any) -> int:
    try:
        async with asyncio.TaskGroup() as group:
            for one in node[1][:-1]:
                group.create_task(execute(one, state))
            await execute(node[1][-1], state)
    except* FAILURES as errors:
        see("group", len(errors.exceptions))
    return 4


async def _queue(node: Node, state: State, see: Any) -> int:
    queue: asyncio.Queue[int | None] = asyncio.Queue(2)

    async def produce() -> None:
        for i in range(node[2]):
            if i % 2:
                await _quiet(("call", "look"), state)
            await queue.put(i)
        for _ in range(node[1]):
            await queue.put(None)

    async def consume(who: int) -> None:
        while (i := await queue.get()) is not None:
            see("got", who, i)
            await _quiet(node[3][0] if i == 0 else ("call", "calc"), state)

    await asyncio.gather(produce(), *[consume(i) for i in range(node[1])])
    return 5


async def _quiet(node: Node, state: State) -> None:
    try:
        await execute(node, state)
    except FAILURES:
        state.see("quiet")


async def _timeout(node: Node, state: State, see: Any) -> int:
    try:
        async with asyncio.timeout(state.seconds(node[1])):
            return await execute(node[2][0], state)
    except TimeoutError:
        see("timed out")
        return 6


async def _wait_for(node: Node, state: State, see: Any) -> int:
    try:
        return await asyncio.wait_for(execute(node[2][0], state), state.seconds(node[1]))
    except TimeoutError:
        see("waited for")
        return 7


async def _nest(node: Node, state: State, see: Any) -> int:
    async def deep(i: int) -> int:
        if i:
            return await asyncio.create_task(deep(i - 1))
        return await execute(node[2][0], state)

    return await deep(node[1])


async def _lock(node: Node, state: State, see: Any) -> int:
    async def locked(one: Node) -> int:
        lock = asyncio.Semaphore(2) if one[0] in {"lock", "seq"} else state.lock
        async with lock:
            return await execute(one, state)

    inner = [locked(one) if one[0] == "call" else execute(one, state) for one in node[1]]
    await asyncio.gather(*inner, return_exceptions=True)
    return 8


async def _shield(node: Node, state: State, see: Any) -> int:
    task = asyncio.create_task(execute(node[1][0], state))
    task.add_done_callback(lambda t: t.cancelled() or t.exception())
    return await asyncio.shield(task)


async def _decide(node: Node, state: State, see: Any) -> int:
    value = poimen.decide(node[1], state.h % 1000)
    see("decided", value)
    if node[2] == 0:
        poimen.settle(node[1])
        poimen.settle(node[1])
    if node[2] == 1:
        poimen.decide(node[1], value)
    return int(value)


async def _finally(node: Node, state: State, see: Any) -> int:
    try:
        return await execute(node[1][0], state)
    finally:
        await _quiet(("call", "look"), state)  # an effect on the way out, also of a cancellation
        see("cleaned up")


async def _stray(node: Node, state: State, see: Any) -> int:
    task = asyncio.create_task(execute(node[1][0], state))
    task.add_done_callback(lambda t: t.cancelled() or t.exception())
    state.strays.append(task)
    return 9


async def _agen(node: Node, state: State, see: Any) -> int:
    async def results() -> Any:
        try:
            for one in node[1]:
                yield await execute(one, state)
        finally:
            await _quiet(("call", "look"), state)
            see("generator closed")

    generator = results()
    if node[0] == "kept":
        state.kept.append(generator)
    async for value in generator:
        see("yielded", value)
        if value % 2:
            break  # abandoned: it is closed when nobody holds it any more, one that is kept when the body has ended
    return 10


async def _clock(node: Node, state: State, see: Any) -> int:
    if state.traced:  # in a step that is tried again it is another time
        see("clock", round(asyncio.get_running_loop().time(), 6))
    return 13


async def _event(node: Node, state: State, see: Any) -> int:
    event = asyncio.Event()

    async def wait_and_call(name: str) -> None:
        await event.wait()
        await _quiet(("call", name), state)

    async def set_it() -> None:
        await _quiet(node[1][0], state)
        event.set()

    waiting = [asyncio.ensure_future(wait_and_call(name)) for name in ("look", "calc", "put")]
    timeout_s = state.seconds(0.05)
    await asyncio.wait({asyncio.shield(one) for one in waiting} | {asyncio.ensure_future(set_it())}, timeout=timeout_s)
    see("event", event.is_set())
    return 11


async def _brief(node: Node, state: State, see: Any) -> int:
    see("brief", node[1])
    value: int = await TOOLS[node[1]].options(timeout=state.seconds(node[2]))(state.h % 97)
    see("value", value)
    return value


async def _line(node: Node, state: State, see: Any) -> int:
    """Calls with given arguments: four (or as many as said) one after another, the others at once.

    `patch` makes other code of it.
    """
    calls, alone = state.cell.patch(list(node[1])), node[2] if len(node) > 2 else 4

    async def one(name: str, arg: int) -> Any:
        if name == "decide":
            return poimen.decide(f"d{arg}", arg)
        if name == "stubborn":
            return await stubborn(arg, 1)
        if name == "keyed":  # the same arguments each time: only the key tells them apart
            return await put.options(key=f"k{arg}")(1)
        return await TOOLS[name](arg)

    for name, arg in calls[:alone]:
        try:
            see("value", await one(name, arg))
        except FAILURES as error:
            see("error", type(error).__name__)
    for found in await asyncio.gather(*[one(name, arg) for name, arg in calls[alone:]], return_exceptions=True):
        see("found", found if isinstance(found, int) else type(found).__name__)
    return 12


_KINDS: dict[str, Any] = {
    "line": _line,
    "finally": _finally,
    "stray": _stray,
    "agen": _agen,
    "kept": _agen,
    "clock": _clock,
    "event": _event,
    "brief": _brief,
    "call": _call,
    "step": _step,
    "sleep0": _sleep0,
    "sleep": _sleep,
    "seq": _seq,
    "branch": _branch,
    "try": _try,
    "gather": _gather,
    "gatherx": _gather,
    "ggg": _ggg,
    "wait": _wait,
    "asc": _asc,
    "tg": _tg,
    "queue": _queue,
    "timeout": _timeout,
    "wait_for": _wait_for,
    "nest": _nest,
    "lock": _lock,
    "shield": _shield,
    "decide": _decide,
}


@poimen.workflow
async def program(seed: int) -> int:
    cell = here()
    state = State(cell, h=1, traced=True)
    await execute(cell.nodes[0], state)
    return state.h


@poimen.step(attempts=2, backoff=0.001)
def plain_unit(n: int) -> int:
    """A step that is a plain function, in a thread of its own."""
    value = put.sync(n) + calc.sync(n)
    if poimen.current().attempt < 2 and value % 2:
        raise Failing(value)
    return value + pay.sync(value % 97)


@poimen.workflow
def plain_program(seed: int) -> int:
    """A workflow that is a plain function."""
    state = State(here(), h=seed, traced=True)
    for n in range(3):
        for name in ("look", "put", "calc"):
            try:
                state.see("value", TOOLS[name].sync(state.h % 97))
            except FAILURES as error:
                state.see("error", type(error).__name__)
        state.see("decided", poimen.decide(f"p{n}", state.h % 10))
        try:
            state.see("step", plain_unit.sync(state.h % 97))
        except FAILURES as error:
            state.see("error", type(error).__name__)
    return state.h


@poimen.step
def stubborn_thread(n: int) -> int:
    """A plain function that goes on when a call of its own was cancelled."""
    try:
        return put.sync(n)
    except asyncio.CancelledError:
        put.sync(n + 1)
        raise


@poimen.workflow
async def cancels_twice(seed: int) -> int:
    work = asyncio.ensure_future(stubborn_thread.aio(seed))
    await asyncio.sleep(0.0001)
    work.cancel()
    await asyncio.sleep(0.0001)
    return 0  # what is left is cancelled once more


def registry() -> Registry:
    found = Registry()
    for one in (program, plain_program, cancels_twice, stubborn_thread, unit, stubborn, plain_unit, *TOOLS.values()):
        spec = spec_of(one)
        assert spec is not None
        found.add(spec)
    return found


REGISTRY = registry()
