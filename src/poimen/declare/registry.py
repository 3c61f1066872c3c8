"""The declared names of one runtime: from a recorded name back to the code.

Nothing registers itself: a runtime collects what the modules given to it hold, or what the workflow
of a call can name. This module must never know what becomes of a spec; it keeps the invariant that a
name leads to one declaration, and that two of one name are refused, naming both places.

Source: design api.md, "Declaring" (names); "Calling" (no process-global runtime).
"""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from poimen._typing import override
from poimen.declare import modules, sealed
from poimen.declare.shapes import Verifier
from poimen.declare.specs import AnySpec, Spec, ToolSpec, VerifierSpec, WorkflowSpec, spec_of
from poimen.declare.toolset import Toolset
from poimen.kernel.errors import BadDeclaration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from poimen.declare.shapes import Call

_CONTAINERS: Final = (list, tuple, set, frozenset)


class Registry:
    """Specs by name. Tools, models and steps share their names, for they share the keys of calls."""

    __slots__ = ("_calls", "_verifiers", "_workflows")

    def __init__(self) -> None:
        self._calls: dict[str, ToolSpec] = {}
        self._workflows: dict[str, WorkflowSpec] = {}
        self._verifiers: dict[str, VerifierSpec] = {}

    @classmethod
    def of(cls, given: Sequence[str | ModuleType]) -> Registry:
        """Collect what modules hold, what is imported into them included.

        Arguments:
            given: modules, names of modules, or files (`agent.py`).

        Raises:
            NotFound: there is no such module or file.
            BadDeclaration: two declarations have one name.
        """
        registry = cls()
        for one in given:
            registry.add_module(modules.load(one))
        return registry

    @classmethod
    def of_call(cls, call: Call[Any]) -> Registry:
        """Collect what the workflow of a call can name, and what that can name in turn.

        Raises:
            BadDeclaration: two declarations have one name.
        """
        registry = cls()
        registry.add(call.spec)
        return registry

    def add_module(self, module: ModuleType) -> None:
        """Collect what a module holds.

        Raises:
            BadDeclaration: two declarations have one name.
        """
        self._collect(list(vars(module).values()))

    def add(self, spec: AnySpec) -> None:
        """Collect one declaration and what it can name.

        Raises:
            BadDeclaration: another declaration has its name.
        """
        if self._enter(spec):
            self._collect(_named_by(spec))

    # ---- looking up --------------------------------------------------------------------------------------------

    def tool(self, kind: Literal["tool", "model", "step"], name: str) -> ToolSpec | None:
        """The tool, model or step of this name, or None."""
        spec = self._calls.get(name)
        return spec if spec is not None and spec.kind == kind else None

    def workflow(self, name: str) -> WorkflowSpec | None:
        """The workflow of this name, or None."""
        return self._workflows.get(name)

    def verifier(self, name: str) -> VerifierSpec | None:
        """The verifier of this name, or None."""
        return self._verifiers.get(name)

    @property
    def digest(self) -> str:
        """Names the code that is loaded: sha256 over the digests of all declared bodies, 64 hex digits."""
        parts = sorted(f"{spec.kind}:{spec.name}:{spec.code_digest}" for spec in self)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def __iter__(self) -> Iterator[AnySpec]:
        """Workflows, then what they call, then verifiers; each in the order of their collection."""
        yield from self._workflows.values()
        yield from self._calls.values()
        yield from self._verifiers.values()

    def __len__(self) -> int:
        return len(self._calls) + len(self._workflows) + len(self._verifiers)

    @override
    def __repr__(self) -> str:
        return f"<Registry of {', '.join(spec.name for spec in self) or 'nothing'}>"

    # ---- collecting --------------------------------------------------------------------------------------------

    def _collect(self, values: list[object]) -> None:
        ahead, seen = deque(values), set[int]()
        while ahead:
            value = ahead.popleft()
            if isinstance(value, ModuleType):
                if id(value) not in seen and not _is_foreign(value):
                    seen.add(id(value))
                    ahead.extend(_held_by(value))
                continue
            for spec in _declared(value):
                if self._enter(spec):
                    ahead.extend(_named_by(spec))

    def _enter(self, spec: AnySpec) -> bool:
        """Take a spec in; False when it is there already."""
        table: dict[str, Any] = self._table(spec)
        other = table.get(spec.name)
        if other is spec:
            return False
        if other is not None and not _replaces(spec, other):
            raise BadDeclaration(
                f"two declarations are called {spec.name!r}: the {other.kind} at {other.where} and the {spec.kind} "
                f"at {spec.where}",
                why="a recorded name must lead to one declaration",
                hint="give one of them another name=",
            )
        table[spec.name] = spec
        return True

    def _table(self, spec: AnySpec) -> dict[str, Any]:
        if isinstance(spec, ToolSpec):
            return self._calls
        return self._workflows if isinstance(spec, WorkflowSpec) else self._verifiers


def _replaces(new: AnySpec, old: AnySpec) -> bool:
    """Whether it is the same declaration made again: a cell run again, a module loaded again.

    What a function makes anew at each call (a factory's products) has one place too, and may be different things.
    """
    if new.kind != old.kind or new.qualname != old.qualname or "<locals>" in new.qualname:
        return False
    same_place = (new.file, new.line) == (old.file, old.line)
    return same_place or (new.module == old.module and _in_force(new))


def _in_force(spec: AnySpec) -> bool:
    """Whether its own name still leads to it."""
    found: object = sys.modules.get(spec.module)
    for part in spec.qualname.split("."):
        found = getattr(found, part, None)
    return spec_of(found) is spec


def _declared(value: object) -> Iterator[AnySpec]:
    """The specs that a value holds: a spec, a declared name, or a collection of those one level deep."""
    members: Iterable[object] = (value,)
    if type(value) is dict:
        members = list(value.values())
    elif isinstance(value, Toolset) or type(value) in _CONTAINERS:
        members = list(cast("Iterable[object]", value))
    for member in members:
        if isinstance(member, Spec):
            yield cast("AnySpec", member)
        elif isinstance(member, (FunctionType, Verifier)):
            spec = spec_of(member)
            if spec is not None:
                yield spec


def _named_by(spec: AnySpec) -> list[object]:
    """What a declared body can name: its module, the functions around it, its undo, its verifiers."""
    found = sealed.surroundings(spec.token)
    if isinstance(spec, ToolSpec) and spec.undo is not None:
        found.append(spec.undo)
    if isinstance(spec, WorkflowSpec):
        found.extend(spec.verifiers)
    return found


def _held_by(module: ModuleType) -> list[object]:
    """What an imported module offers: its values and its own submodules, not what it imports itself."""
    inside = f"{module.__name__}."
    return [
        value
        for value in list(vars(module).values())
        if not isinstance(value, ModuleType) or value.__name__.startswith(inside)
    ]


def _is_foreign(module: ModuleType) -> bool:
    """Whether a module is one that no author of tools has written: the standard library, and poimen itself."""
    top = module.__name__.partition(".")[0]
    return top in sys.stdlib_module_names or top == "poimen"
