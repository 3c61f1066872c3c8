"""Domain states: what a workflow calls the stages of its own subject, declared as data.

They are the opposite of the kernel's states: open, named by the author, checked when they are loaded. This
module must never know where a declaration comes from (a literal, a TOML file) or what a state means. It keeps
the invariant that a `Domain` that exists is sound: every state can be reached, every move is between states.

Source: design protocol.md, section 1, last paragraph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from poimen.kernel.errors import BadDeclaration, IllegalTransition

_HINT = "states are declared as names, one initial state, and the moves allowed from each: {'new': ['sent'], ...}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A sound set of states with their moves; a state without moves is final.

    Arguments:
        names: the states, in the order of their declaration.
        initial: where a branch begins.
        moves: the allowed moves (from, to).

    Raises:
        BadDeclaration: no state, a name that is no text or not printable, a name or move given twice, no or an
            unknown initial state, a move from or to an unknown state, a state that cannot be reached.
    """

    names: tuple[str, ...]
    initial: str
    moves: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        _check_names(self.names)
        _check_initial(self.names, self.initial)
        _check_moves(self.names, self.moves)
        _check_reachable(self)

    @classmethod
    def of(
        cls,
        names: Iterable[str],
        initial: str | None,
        moves: Mapping[str, Iterable[str]] | Iterable[tuple[str, str]],
    ) -> Domain:
        """Check a declaration and keep it.

        Arguments:
            names: the states.
            initial: where a branch begins; None or "" is refused like a missing entry of a file.
            moves: for each state where it may go, or pairs (from, to).

        Raises:
            BadDeclaration: see the class; the message names the state.
        """
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise _bad(f"the states are {names!r}, not a list of names")
        return cls(names=tuple(names), initial=initial or "", moves=tuple(_pairs(moves)))

    def targets(self, frm: str) -> tuple[str, ...]:
        """Where a state may go, in the order of declaration."""
        return tuple(to for source, to in self.moves if source == frm)

    def move(self, frm: str, to: str) -> str:
        """Move from one state to another.

        Arguments:
            frm: the present state.
            to: the wanted state.

        Returns:
            `to`.

        Raises:
            IllegalTransition: the workflow did not declare this move; `.state` is `frm`, `.cause` is `to`.
        """
        if (frm, to) in self.moves:
            return to
        unknown = next((name for name in (frm, to) if name not in self.names), None)
        allowed = ", ".join(repr(name) for name in self.targets(frm))
        if unknown is not None:
            why = f"{unknown!r} is not one of the states {', '.join(map(repr, self.names))}"
        elif allowed:
            why = f"from {frm!r} the workflow declares moves to {allowed}"
        else:
            why = f"{frm!r} is final: the workflow declares no move from it"
        raise IllegalTransition(
            f"the move from {frm!r} to {to!r} is not declared",
            why=why,
            hint=f"declare the move {frm!r} to {to!r} in the workflow's states, or set another state",
            state=frm,
            cause=to,
        )


def _pairs(moves: object) -> Iterable[tuple[str, str]]:
    if isinstance(moves, Mapping):
        for frm, targets in moves.items():
            if isinstance(targets, str) or not isinstance(targets, Iterable):
                raise _bad(f"the moves from {frm!r} are {targets!r}, not a list of states", where=frm)
            for to in targets:
                yield frm, to
        return
    if isinstance(moves, str) or not isinstance(moves, Iterable):
        raise _bad(f"the moves are {moves!r}, neither a table nor pairs of states")
    for pair in moves:
        if isinstance(pair, str) or not isinstance(pair, Iterable) or len(ends := tuple(pair)) != 2:  # noqa: PLR2004
            raise _bad(f"the move {pair!r} is not a pair of states")
        yield ends[0], ends[1]


def _check_names(names: tuple[str, ...]) -> None:
    if not names:
        raise _bad("no state is declared")
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise _bad(f"{name!r} cannot be the name of a state: it is not a printable text", where=name)
        if name in seen:
            raise _bad(f"the state {name!r} is declared twice", where=name)
        seen.add(name)


def _check_initial(names: tuple[str, ...], initial: str) -> None:
    if not initial:
        raise _bad("no initial state is declared")
    if initial not in names:
        raise _bad(f"the initial state {initial!r} is not among the states {_listed(names)}", where=initial)


def _check_moves(names: tuple[str, ...], moves: tuple[tuple[str, str], ...]) -> None:
    seen: set[tuple[str, str]] = set()
    for frm, to in moves:
        if frm not in names:
            raise _bad(f"a move starts from the unknown state {frm!r}; declared are {_listed(names)}", where=frm)
        if to not in names:
            raise _bad(f"{frm!r} moves to the unknown state {to!r}; declared are {_listed(names)}", where=frm)
        if (frm, to) in seen:
            raise _bad(f"the move from {frm!r} to {to!r} is declared twice", where=frm)
        seen.add((frm, to))


def _check_reachable(domain: Domain) -> None:
    reached, ahead = {domain.initial}, [domain.initial]
    while ahead:
        new = [to for to in domain.targets(ahead.pop()) if to not in reached]
        reached.update(new)
        ahead.extend(new)
    lost = tuple(name for name in domain.names if name not in reached)
    if lost:
        raise _bad(f"no moves lead from {domain.initial!r} to {_listed(lost)}", where=lost[0])


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))


def _bad(what: str, *, where: object = None) -> BadDeclaration:
    place = "" if where is None else f"state {where!r}"
    return BadDeclaration(what, where=place, why="a workflow's states are checked when it is loaded", hint=_HINT)
