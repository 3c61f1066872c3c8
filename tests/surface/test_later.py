"""What is in the interface and not yet in the machinery: one list, and each name on it refuses."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import poimen
from poimen import effects
from poimen.declare.specs import spec_of
from poimen.engine.surface.inside import Carrier
from poimen.engine.surface.results import BranchDiff, RewindPlan
from poimen.later import PARTS, not_built
from tests.declare import samples

SRC = Path(poimen.__file__).parent
CALL = samples.shop(samples.Order("a", 1))


async def awaited(value: Any) -> Any:
    return await value


HTML = "_repr_html_"

FACES: dict[str, list[Any]] = {
    "sleep": [lambda: poimen.sleep(1), lambda: poimen.sleep.aio(1), lambda: poimen.sleep.sync(1)],
    "ask": [
        lambda: poimen.ask("Go?", bool, default=False),
        lambda: poimen.ask("Go?", options=["yes", "no"]),
        lambda: poimen.ask.aio("Go?", bool),
        lambda: poimen.ask.sync("Go?", bool),
    ],
    "receive": [
        lambda: poimen.receive("s", str),
        lambda: poimen.receive.aio("s", str),
        lambda: poimen.receive.sync("s", str, timeout=3),
    ],
    "child": [lambda: poimen.child(CALL), lambda: poimen.child.aio(CALL), lambda: poimen.child.sync(CALL, run_id="c")],
    "perform": [
        lambda: poimen.perform("n", samples.chat, effect=effects.READ, args=None),  # type: ignore[arg-type]
        lambda: poimen.perform.aio("n", samples.chat, effect=effects.READ, args=None),  # type: ignore[arg-type]
        lambda: poimen.perform.sync("n", lambda: 3, effect=effects.READ, args={"a": [1]}),
    ],
    "now": [poimen.now],
    "rng": [poimen.rng],
    "uuid4": [poimen.uuid4],
    "resource": [lambda: poimen.resource(str)],
    "set_state": [lambda: poimen.set_state("sent")],
    "context": [lambda: poimen.context("history", "all", "text")],
    "usage": [lambda: poimen.usage("m", input_tokens=1, output_tokens=None)],
    "emit": [lambda: poimen.emit(3)],
    "patched": [lambda: poimen.patched("id")],
    "cleanup": [lambda: poimen.cleanup(3)],
    "carry": [poimen.carry],
    "Carrier.attached": [lambda: Carrier().attached()],
    "Carrier.wrap": [lambda: Carrier().wrap(print)],
    "Toolset.schemas": [lambda: poimen.Toolset(samples.charge).schemas()],
    "Toolset.call": [lambda: poimen.Toolset(samples.charge).call("charge", "{}", unknown="tell")],
    "ToolOutcome.text": [lambda: poimen.ToolOutcome("returned", 3).text()],
    "Verifier.__call__": [lambda: samples.cheap(None)],  # type: ignore[arg-type]
    "RewindPlan.apply": [lambda: asyncio.run(awaited(RewindPlan(effects=()).apply(by="me", why="x")))],
    "BranchDiff._repr_html_": [getattr(BranchDiff(rows=()), HTML)],
}
"""The names whose faces are in this version, and how to call them."""


@pytest.mark.parametrize(("name", "call"), [(name, call) for name, calls in FACES.items() for call in calls])
def test_a_name_of_a_later_part_says_so_before_anything_happens(name: str, call: Any) -> None:
    samples.ENTERED.clear()
    with pytest.raises(poimen.NotBuiltYet) as refused:
        call()
    assert f"poimen.{name} is not in this version" in str(refused.value)
    assert f"part {PARTS[name]}" in str(refused.value)
    assert refused.value.ids == {"name": name, "part": PARTS[name]}
    assert samples.ENTERED == []


def refused_in_src() -> set[str]:
    """The names that are refused somewhere in the product; a part that is put in at run time stands for any name."""
    found: set[str] = set()
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            refuses = isinstance(node, ast.Call) and ast.unparse(node.func) in {"not_built", "later.not_built"}
            if isinstance(node, ast.Call) and refuses and node.args:
                name = node.args[0]
                parts = name.values if isinstance(name, ast.JoinedStr) else [name]
                pattern = "".join(
                    re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"\w+" for part in parts
                )
                meant = {known for known in PARTS if re.fullmatch(pattern, known)}
                assert meant, f"{path}:{node.lineno}: {ast.unparse(name)} is not on the list"
                found |= meant
    return found


def test_the_list_is_whole() -> None:
    assert refused_in_src() == set(PARTS)


def test_every_part_is_one_that_comes() -> None:
    assert set(PARTS.values()) <= {2, 3, 4}


def test_a_name_that_is_not_on_the_list_cannot_be_refused() -> None:
    with pytest.raises(KeyError):
        not_built("decide")


def test_names_of_later_parts_can_be_named_and_declared() -> None:
    tools = poimen.Toolset(samples.charge)

    @poimen.workflow(name="whole")
    async def plain(goal: str) -> int:
        await poimen.sleep(len(goal))
        return len(tools)

    assert plain("x").workflow == "whole"


@pytest.mark.parametrize(
    "settings",
    [{"budget": poimen.Budget(usd=2)}, {"timeout": 3}, {"verifiers": [samples.cheap]}],
    ids=lambda settings: next(iter(settings)),
)
def test_a_workflow_that_needs_a_later_part_is_declared_and_not_run(settings: dict[str, Any]) -> None:
    @poimen.workflow(**settings)
    async def whole(goal: str) -> int:
        return len(goal)

    assert spec_of(whole) is not None
    with pytest.raises(poimen.NotBuiltYet, match=rf"workflow\({next(iter(settings))}=\)"):
        whole("x")
