"""Tools that a model chooses from."""

from __future__ import annotations

from typing import Any

import pytest

import poimen
from poimen import Toolset, effects
from tests.declare import samples


def test_a_toolset_holds_declared_tools() -> None:
    tools = Toolset(samples.charge, samples.look, samples.look)
    assert list(tools) == [samples.charge, samples.look]
    assert len(tools) == 2
    assert repr(tools) == "Toolset(charge, look-up)"
    assert len(Toolset()) == 0


@pytest.mark.parametrize("tool", [samples.landed, samples.shop, samples.cheap, "charge", None])
def test_nothing_else(tool: Any) -> None:
    with pytest.raises(poimen.BadDeclaration, match="is not a declared tool"):
        Toolset(samples.charge, tool)


def test_a_name_means_one_tool() -> None:
    @poimen.tool(effect=effects.READ)
    def charge(order: str) -> str:
        return order

    with pytest.raises(poimen.BadDeclaration, match="two tools are called 'charge'"):
        Toolset(samples.charge, charge)
