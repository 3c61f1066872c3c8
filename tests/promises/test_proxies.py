"""What raises when it is asked for its class: a body that gave it has ended, and its end is on record at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

import poimen
from poimen import effects
from poimen.declare.specs import ToolSpec, spec_of
from poimen.gate.outcome import given, read_answer

if TYPE_CHECKING:
    from pathlib import Path


class Unbound:
    """As `werkzeug.local.LocalProxy` outside a request (Flask's `current_user`)."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("working outside of request context")

    @__class__.setter
    def __class__(self, _value: Any) -> None: ...


class Untold(Exception):
    """An exception of that kind."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("working outside of request context")

    @__class__.setter
    def __class__(self, _value: Any) -> None: ...


BEGUN: Final[list[str]] = []


@poimen.tool(effect=effects.IDEMPOTENT, max_sends=3, timeout=20, on_indeterminate="raise")
def sync_tool() -> Any:
    BEGUN.append("sync_tool")
    return Unbound()


@poimen.tool(effect=effects.AT_MOST_ONCE, timeout=20, on_indeterminate="raise")
async def async_tool() -> Any:
    BEGUN.append("async_tool")
    return Unbound()


@poimen.tool(effect=effects.READ, attempts=1, timeout=20)
def sync_read() -> Any:
    BEGUN.append("sync_read")
    return Unbound()


@poimen.tool(effect=effects.PURE, attempts=1, timeout=20)
async def pure() -> Any:
    BEGUN.append("pure")
    return Unbound()


@poimen.model(attempts=1, timeout=20)
async def async_model() -> Any:
    BEGUN.append("async_model")
    return Unbound()


@poimen.step(attempts=1)
def sync_step() -> Any:
    BEGUN.append("sync_step")
    return Unbound()


@poimen.step(attempts=1)
async def async_step() -> Any:
    BEGUN.append("async_step")
    return Unbound()


@poimen.workflow
async def calls(name: str) -> str:
    every: tuple[Any, ...] = (sync_tool, async_tool, sync_read, pure, async_model, sync_step, async_step)
    called = next(one for one in every if one.__name__ == name)
    try:
        await called.aio()
    except poimen.NotStorable as error:
        return f"not storable: {error.message}"
    except poimen.StepError as error:
        return f"{error.type}: {error.message}"
    return "returned"


@pytest.mark.parametrize(
    "name", ["sync_tool", "async_tool", "sync_read", "pure", "async_model", "sync_step", "async_step"]
)
def test_a_result_that_cannot_be_asked_is_not_storable(name: str, tmp_path: Path) -> None:
    BEGUN.clear()
    said = poimen.run(calls(name), run_id=name, db=str(tmp_path / "db"))
    assert "working outside of request context" in said
    assert said.lower().replace(" ", "").startswith("notstorable")
    assert [name] == BEGUN, "it has ended: nothing is sent again"


@poimen.tool(effect=effects.AT_MOST_ONCE, timeout=20, on_indeterminate="raise")
def raises() -> str:
    raise Untold("no")


@poimen.tool(effect=effects.READ, attempts=1, timeout=20)
async def fails() -> str:
    raise Untold("no")


@poimen.step(attempts=1)
async def breaks() -> str:
    raise Untold("no")


@poimen.workflow
async def meets(name: str) -> str:
    called: Any = {"raises": raises, "fails": fails, "breaks": breaks}[name]
    try:
        await called.aio()
    except poimen.IndeterminateOutcome:
        return "maybe"
    except poimen.StepError as error:
        return error.type
    return "returned"


@pytest.mark.parametrize(("name", "told"), [("raises", "maybe"), ("fails", "Untold"), ("breaks", "Untold")])
def test_so_is_an_error_of_that_kind(name: str, told: str, tmp_path: Path) -> None:
    assert poimen.run(meets(name), run_id=name, db=str(tmp_path / "db")) == told


@poimen.tool(effect=effects.AT_MOST_ONCE)
def any_tool() -> str:
    return ""


def test_a_probe_that_gives_such_an_object_has_said_nothing() -> None:
    spec = spec_of(any_tool)
    assert isinstance(spec, ToolSpec)
    said, evidence, value = read_answer(given(Unbound()), spec)
    assert (said, value) == ("unknown", None)
    assert "the probe returned Unbound" in evidence
