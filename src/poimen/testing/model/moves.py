"""What can happen next in a state of the model: the world, the clock, people, and each process that is at work.

Each move is one append, one call, or one thing that the world does; everything else of the code is between two of
them and cannot be seen. This module must never import what it is a model of. It keeps the invariant that every move
that the protocol allows is there, and none that it forbids, but for what a control breaks.

Source: design protocol.md, sections 1, 3, 4 and 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from poimen.testing.model.rules import ruled
from poimen.testing.model.state import KNOWN_NO, Flight, Move, Send, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from poimen.testing.model.state import Attempt, Setup, State

    Step: TypeAlias = tuple[Move, State]

AT_WORK = 2
"""How many processes can be at work at once."""


def successors(state: State, setup: Setup) -> Iterator[Step]:
    """All moves of a state, each with the state that it leads to."""
    if not state.workers and state.attempt != "RUNNING" and _at_rest(state, setup):
        return
    yield from _world(state, setup)
    yield from _people(state, setup)
    if (claim := _claim(state, setup)) is not None:
        yield claim
    for worker in state.workers:
        if setup.crashes and worker.doing != "over":
            yield Move(worker.epoch, "crash"), _without(state, worker)
        if worker.epoch == state.epoch and worker.until - state.now < setup.lease and worker.doing != "over":
            until = state.now + setup.lease
            yield Move(worker.epoch, "renew"), _with(state._replace(lease=until), worker, worker._replace(until=until))
        if worker.running and worker.doing != "ended":
            yield from _late(state, setup, worker)
        if worker.epoch != state.epoch and setup.control != "no_fence" and worker.doing in {"took", "go", "open"}:
            yield Move(worker.epoch, "fenced"), _left(state, worker)
        else:
            yield from _DOING[worker.doing](state, setup, worker)


# ---- the world, people, leases -------------------------------------------------------------------------------------


def _world(state: State, setup: Setup) -> Iterator[Step]:
    if state.now < setup.horizon:
        now = state.now + 1
        ends = now - setup.timeout - setup.grace
        flights = tuple(f._replace(way="gone") if f.way == "flying" and f.at < ends else f for f in state.flights)
        yield Move(0, "tick"), state._replace(now=now, flights=flights)
    for n, flight in enumerate(state.flights):
        if flight.way == "flying":
            flights = (*state.flights[:n], flight._replace(way="landed", hit=state.now), *state.flights[n + 1 :])
            keyed = setup.effect_class.startswith("KEYED")
            known = keyed and state.known_since >= 0 and state.now < state.known_since + setup.ttl
            done = state.done if known else state.done + 1
            since = state.known_since if known or not keyed else state.now
            yield (
                Move(0, "lands", (flight.attempt, flight.send)),
                state._replace(flights=flights, done=done, known_since=since),
            )


def _people(state: State, setup: Setup) -> Iterator[Step]:
    if not state.cancelled and (state.attempt == "RUNNING" or (state.attempt == "INDETERMINATE" and not state.closed)):
        yield Move(0, "cancel"), state._replace(cancelled=True)
    if state.attempt == "INDETERMINATE" and state.open and setup.effect_class != "READ":
        ways = {flight.way for flight in state.flights}
        if "landed" in ways:
            yield Move(0, "resolve", ("landed",)), state._replace(closed="landed", by="person")
        elif "flying" not in ways and not any(w.running or w.doing in {"calling", "ended"} for w in state.workers):
            yield Move(0, "resolve", ("not_landed",)), state._replace(closed="not_landed", by="person")
        yield Move(0, "resolve", ("abandoned",)), state._replace(closed="abandoned", by="person")


def _claim(state: State, setup: Setup) -> Step | None:
    wanted = state.attempt == "RUNNING" or _goes_on(state, setup)
    free = state.now >= state.lease or all(worker.epoch != state.epoch for worker in state.workers)
    if not (wanted and free and state.epoch < setup.epochs and len(state.workers) < AT_WORK):
        return None
    epoch, until = state.epoch + 1, state.now + setup.lease
    workers = (*state.workers, Worker(epoch, until, "took"))
    return Move(epoch, "claim"), state._replace(epoch=epoch, taken=state.now, lease=until, workers=workers)


def _goes_on(state: State, setup: Setup) -> bool:
    """Whether another attempt of the step may begin."""
    if state.cancelled or state.attempt_no >= setup.attempts or not state.closed:
        return False
    if state.attempt == "INDETERMINATE":
        return True
    return state.attempt == "FAILED" and state.by == "outcome" and state.sends[-1].answer == "not_sent"


def _at_rest(state: State, setup: Setup) -> bool:
    """Nothing can happen any more that anybody would see."""
    unclear = state.attempt == "INDETERMINATE" and state.open
    return not (unclear or _goes_on(state, setup) or any(flight.way == "flying" for flight in state.flights))


# ---- processes at work ---------------------------------------------------------------------------------------------


def _took(state: State, _: Setup, worker: Worker) -> Iterator[Step]:
    """A restart classifies what it finds, before anything is done about it."""
    if state.attempt != "RUNNING":
        yield Move(worker.epoch, "resume"), _anew(state, worker)
        return
    found = ""
    after = state
    if state.pending and not state.closed and state.classified != len(state.sends):
        found = "may_have_been_sent" if state.sends else "never_sent"
        after = state._replace(classified=len(state.sends))
    doing = "open" if state.sends else "go"
    yield Move(worker.epoch, "classify", (found,)), _with(after, worker, worker._replace(doing=doing))


def _go(state: State, setup: Setup, worker: Worker) -> Iterator[Step]:
    """Nothing is open: the claim, then the send, unless the attempt is to stop."""
    if state.attempt != "RUNNING" or state.closed:
        yield from _open(state, setup, worker)
        return
    if state.cancelled:
        yield Move(worker.epoch, "stop", ("cancel",)), _ended(state, worker, "CANCELLED")
        return
    if not state.open:
        yield Move(worker.epoch, "stop", ("deadline",)), _ended(state, worker, "TIMED_OUT")
    if not state.pending:
        yield Move(worker.epoch, "pend"), state._replace(pending=True)
    elif setup.control == "two_records":
        flights = (*state.flights, Flight(state.attempt_no, 0, state.now, "flying"))
        after = state._replace(flights=flights)
        yield Move(worker.epoch, "call"), _with(after, worker, worker._replace(doing="calling"))
    else:
        yield Move(worker.epoch, "dispatch"), _dispatched(state, worker)


def _sent(state: State, setup: Setup, worker: Worker) -> Iterator[Step]:
    """Between the Dispatched and the call: the lease is looked at, and whether it was called off."""
    if state.attempt_no != _attempt_of(state, worker):
        return
    at = state.sends[worker.send - 1].at
    late = state.now >= worker.until or state.now >= at + setup.timeout
    if not late:
        flights = (*state.flights, Flight(state.attempt_no, worker.send, at, "flying"))
        after = state._replace(flights=flights)
        yield Move(worker.epoch, "call"), _with(after, worker, worker._replace(doing="calling"))
    if late or state.cancelled:
        why = "late" if late else "cancel"
        yield (
            Move(worker.epoch, "call_off", (why,)),
            _with(state, worker, worker._replace(doing="ended", answer="not_sent")),
        )


def _calling(state: State, setup: Setup, worker: Worker) -> Iterator[Step]:
    """The call ends: an answer, an error that says nothing, or it is given up and goes on."""
    for answer, n, way in _answers(state, worker.send):
        flights = state.flights
        if way:
            flights = (*flights[:n], flights[n]._replace(way=way), *flights[n + 1 :])
        ended = worker._replace(doing="ended", answer=answer)
        yield Move(worker.epoch, "answer", (answer,)), _with(state._replace(flights=flights), worker, ended)
    if state.cancelled or (state.sends and state.now >= state.sends[worker.send - 1].at + setup.timeout):
        ended = worker._replace(doing="ended", answer="maybe", running=worker.send)
        yield Move(worker.epoch, "give_up_call"), _with(state, worker, ended)


def _answers(state: State, send: int) -> Iterator[tuple[str, int, str]]:
    """How a call can end, the number of its flight, and what becomes of that."""
    n = max(i for i, f in enumerate(state.flights) if f.send == send and f.attempt == state.attempt_no)
    if state.flights[n].way == "landed":
        yield "returned", n, ""
    else:
        yield "rejected", n, "gone"
        yield "not_sent", n, "gone"
    yield "maybe", n, ""


def _record(state: State, setup: Setup, worker: Worker) -> Iterator[Step]:
    """The outcome: in any case on record, by the driver or, when it is fenced, as by an outsider."""
    answer, free = worker.answer, worker._replace(answer="", send=0)
    if worker.epoch != state.epoch and setup.control != "no_fence":
        after = state if answer == "maybe" else _answered_late(state, setup, worker.send, answer)
        yield Move(worker.epoch, "fenced", (answer, worker.send)), _left(after, worker)
        return
    if state.attempt != "RUNNING":
        yield Move(worker.epoch, "record", ("too_late",)), _left(state, worker)
        return
    if answer == "maybe":
        if setup.effect_class == "READ":
            end: Attempt = "CANCELLED" if state.cancelled else "TIMED_OUT"
            yield Move(worker.epoch, "record", ("dropped",)), _dropped(state, free, end)
        else:
            after = _with(state, worker, free._replace(doing="open"))
            yield Move(worker.epoch, "record", ("maybe",)), after
        return
    sends = _told(state.sends, worker.send, answer)
    earlier = setup.effect_class != "READ" and any(not send.answer for send in sends[: max(worker.send - 1, 0)])
    if state.closed:
        yield Move(worker.epoch, "record", ("closed",)), _ended(state._replace(sends=sends), free, _end_of(state))
    elif answer == "returned":
        after = state._replace(sends=sends, closed="landed", by="outcome")
        yield Move(worker.epoch, "record", ("committed", answer)), _ended(after, free, "SUCCEEDED")
    elif earlier:
        after = _with(state._replace(sends=sends), worker, free._replace(doing="open"))
        yield Move(worker.epoch, "record", ("answered", answer)), after
    else:
        end = "CANCELLED" if answer == "not_sent" and state.cancelled else "FAILED"
        after = state._replace(sends=sends, closed="not_landed", by="outcome")
        yield Move(worker.epoch, "record", ("committed", answer)), _ended(after, free, end)


def _open(state: State, setup: Setup, worker: Worker) -> Iterator[Step]:
    """Dispatched without an outcome: the ladder, unless somebody has closed it, or the attempt is to stop."""
    who, read = worker.epoch, setup.effect_class == "READ"
    if state.attempt != "RUNNING":
        yield Move(who, "look"), _with(state, worker, worker._replace(doing="over"))
        return
    if state.closed:
        yield Move(who, "found_closed", (state.closed,)), _ended(state, worker, _end_of(state))
        return
    if state.cancelled:
        after = _dropped(state, worker, "CANCELLED") if read else _ended(state, worker, "INDETERMINATE")
        yield Move(who, "stop", ("cancel",)), after
        return
    after = _dropped(state, worker, "TIMED_OUT") if read else _ended(state, worker, "INDETERMINATE")
    yield Move(who, "stop", ("deadline",)), after
    do, demote = ruled(state, setup)
    if demote:
        yield Move(who, "demote", (demote,)), state._replace(demoted=demote)
    elif do == "send":
        yield Move(who, "dispatch"), _dispatched(state, worker)
    elif do == "ask":
        yield from _asked(state, setup, worker)
    elif do == "land":
        yield Move(who, "land"), _ended(state._replace(closed="landed", by="probe"), worker, "SUCCEEDED")
    elif do == "give_up":
        after = _dropped(state, worker, "FAILED") if read else _ended(state, worker, "INDETERMINATE")
        yield Move(who, "give_up"), after


def _asked(state: State, setup: Setup, worker: Worker) -> Iterator[Step]:
    """What the probe can say: what landed is seen after the lag at the latest; anything may be unclear."""
    hits = [flight.hit for flight in state.flights if flight.way == "landed"]
    says = ["unknown"]
    if hits:
        says.append("landed")
    if (not hits or state.now < min(hits) + setup.lag) and not worker.running:
        says.append("absent")
    asked = state.now if state.asked < 0 else state.asked
    for said in says:
        after = state._replace(readings=(*state.readings, (state.now, said)), asked=asked)
        yield Move(worker.epoch, "ask", (said,)), after


def _over(state: State, setup: Setup, worker: Worker) -> Iterator[Step]:
    """The attempt has ended: another one begins where it may, else the process goes."""
    if worker.epoch == state.epoch and _goes_on(state, setup):
        yield Move(worker.epoch, "resume"), _anew(state, worker)
    elif not worker.running:
        yield Move(worker.epoch, "leave"), _without(state, worker)


def _late(state: State, setup: Setup, worker: Worker) -> Iterator[Step]:
    """A body that was given up ends after all."""
    for answer, n, way in _answers(state, worker.running):
        flights = state.flights
        if way:
            flights = (*flights[:n], flights[n]._replace(way=way), *flights[n + 1 :])
        after = state._replace(flights=flights)
        if answer != "maybe":
            after = _answered_late(after, setup, worker.running, answer)
        yield Move(worker.epoch, "late", (answer, worker.running)), _with(after, worker, worker._replace(running=0))


_DOING = {
    "took": _took,
    "go": _go,
    "sent": _sent,
    "calling": _calling,
    "ended": _record,
    "open": _open,
    "over": _over,
}


# ---- parts ---------------------------------------------------------------------------------------------------------


def _dispatched(state: State, worker: Worker) -> State:
    sends = (*state.sends, Send(state.now))
    keyed_at = state.now if state.keyed_at < 0 else state.keyed_at
    after = state._replace(sends=sends, keyed_at=keyed_at, readings=(), asked=-1)
    return _with(after, worker, worker._replace(doing="sent", send=len(sends)))


def _told(sends: tuple[Send, ...], send: int, answer: str) -> tuple[Send, ...]:
    if not send:
        return sends
    return (*sends[: send - 1], sends[send - 1]._replace(answer=answer), *sends[send:])


def _answered_late(state: State, setup: Setup, send: int, answer: str) -> State:
    """An outcome by an outsider: for an open intent it is the resolution, unless other sends are unknown behind a no.

    A READ leaves nothing unknown behind it, so of its sends only later ones count.
    """
    if not state.open:
        return state
    sends = _told(state.sends, send, answer)
    others = sends[send:] if setup.effect_class == "READ" else sends
    if answer in KNOWN_NO and any(not other.answer for other in others):
        return state._replace(sends=sends)
    return state._replace(sends=sends, closed="not_landed" if answer in KNOWN_NO else "landed", by="late")


def _end_of(state: State) -> Attempt:
    """How an attempt ends whose intent somebody else has closed: the next one is told of all but a landing."""
    return "SUCCEEDED" if state.closed == "landed" else "INDETERMINATE"


def _dropped(state: State, worker: Worker, end: Attempt) -> State:
    """A READ is given up: nothing is unknown behind it."""
    return _ended(state._replace(closed="dropped", by="dropped"), worker, end)


def _ended(state: State, worker: Worker, end: Attempt) -> State:
    return _with(state._replace(attempt=end), worker, worker._replace(doing="over"))


def _anew(state: State, worker: Worker) -> State:
    """A new attempt: it inherits what landed, fails by what was abandoned, and sends anew what did nothing."""
    number = state.attempt_no + 1
    workers = tuple(w._replace(running=0) for w in state.workers if w.epoch == worker.epoch)
    fresh = state._replace(attempt_no=number, workers=workers)
    if state.closed == "landed":
        return _over_with(fresh._replace(attempt="SUCCEEDED", by="inherited"), worker)
    if state.closed == "abandoned":
        return _over_with(fresh._replace(attempt="FAILED", by="inherited"), worker)
    blank = fresh._replace(
        attempt="RUNNING", pending=False, sends=(), closed="", by="", classified=-1, readings=(), asked=-1, demoted=""
    )
    return _with(blank, worker, Worker(worker.epoch, worker.until, "go"))


def _over_with(state: State, worker: Worker) -> State:
    return _with(state, worker, Worker(worker.epoch, worker.until, "over"))


def _attempt_of(state: State, worker: Worker) -> int:
    """Workers of an older attempt are gone with it, see `_anew`."""
    return state.attempt_no if worker.send <= len(state.sends) else 0


def _with(state: State, worker: Worker, changed: Worker) -> State:
    workers = tuple(changed if other.epoch == worker.epoch else other for other in state.workers)
    return state._replace(workers=workers)


def _without(state: State, worker: Worker) -> State:
    return state._replace(workers=tuple(other for other in state.workers if other.epoch != worker.epoch))


def _left(state: State, worker: Worker) -> State:
    """A fenced worker drives no more; a body that it gave up may still go on in it."""
    if not worker.running:
        return _without(state, worker)
    return _with(state, worker, Worker(worker.epoch, worker.until, "over", running=worker.running))
