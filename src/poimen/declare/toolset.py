"""Tools that a model chooses from at run time.

A toolset is built where a module is imported, so it is checked there: each member is a declared
tool, and each name is one tool's. This module must never know how a model words its calls; it keeps
the invariant that a name in a toolset means one tool.

Source: design api.md, "Tools chosen at run time".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from poimen._typing import override
from poimen.declare.specs import ToolSpec, spec_of
from poimen.kernel.errors import BadDeclaration
from poimen.later import not_built

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping

    from poimen.declare.shapes import AnyTool


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """What a model is shown of a tool.

    Arguments:
        name: by which it is called.
        description: the tool's docstring.
        parameters: JSON Schema of its parameters.
    """

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What became of a call that a model has asked for.

    Arguments:
        kind: `returned`; `rejected` by the far side; `failed`; `invalid`: no such tool, or arguments that do
            not fit, and nothing was sent; `unknown`: it may have happened and must not be repeated.
        value: what it returned, or what went wrong.
    """

    kind: Literal["returned", "rejected", "failed", "invalid", "unknown"]
    value: object

    def text(self) -> str:
        """The outcome as the model is told.

        Raises:
            NotBuiltYet: always, in this version.
        """
        not_built("ToolOutcome.text")


class Toolset:
    """Declared tools by name.

    Arguments:
        tools: declared tools, models or steps.

    Raises:
        BadDeclaration: one is not declared, or two have one name.
    """

    __slots__ = ("_tools",)

    def __init__(self, *tools: AnyTool) -> None:
        found: dict[str, AnyTool] = {}
        for tool in tools:
            spec = spec_of(tool)
            if not isinstance(spec, ToolSpec):
                raise BadDeclaration(
                    f"Toolset: {tool!r} is not a declared tool",
                    hint="declare it with @poimen.tool(effect=...)",
                )
            other = found.setdefault(spec.name, tool)
            if other is not tool:
                raise BadDeclaration(
                    f"Toolset: two tools are called {spec.name!r}",
                    where=spec.where,
                    why="a model calls a tool by its name",
                    hint="give one of them another name=",
                )
        self._tools = found

    def __iter__(self) -> Iterator[AnyTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    @override
    def __repr__(self) -> str:
        return f"Toolset({', '.join(self._tools)})"

    def schemas(self) -> list[ToolSchema]:
        """What a model is shown of the tools.

        Raises:
            NotBuiltYet: always, in this version.
        """
        not_built("Toolset.schemas")

    def call(
        self,
        name: str,
        args: str | Mapping[str, Any],
        *,
        label: str = "",
        unknown: Literal["wait", "tell"] = "wait",
    ) -> Coroutine[Any, Any, ToolOutcome]:
        """Call a tool as a model has asked for it.

        Arguments:
            name: the tool's name, as the model gave it.
            args: JSON text, or the object that it describes.
            label: the provider's id of the call, recorded beside it; never its identity.
            unknown: `wait` until an unknown outcome is resolved, or `tell` the model.

        Raises:
            NotBuiltYet: always, in this version.
        """
        not_built("Toolset.call")
