"""An alias that names itself can be stored wherever an annotation is: what acts is never lost for the want of a name.

Source: design api.md, "Values" (what cannot be stored is refused before anything happens).
"""

from __future__ import annotations

import asyncio
import textwrap
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Dict, Final, List, Union  # noqa: UP035 (the old names are the case)

import pytest

import poimen
from poimen import effects
from poimen.declare.values import Parameters
from poimen.kernel.errors import NotStorable
from tests.promises import apart

if TYPE_CHECKING:
    from pathlib import Path

JSON = Union[None, bool, int, float, str, List["JSON"], Dict[str, "JSON"]]  # noqa: UP006, UP007
TREE: Final[Any] = {"id": 7, "lines": [1, [None, {"deep": [1.5, ["x", {"more": []}]]}]]}

AGENT: Final = """
    from typing import Dict, List, Union
    import poimen
    from poimen import effects

    JSON = Union[None, bool, int, float, str, List["JSON"], Dict[str, "JSON"]]

    def wit(words):
        with open("witness", "a") as witness:
            print(words, file=witness)

    @poimen.tool(effect=effects.AT_MOST_ONCE)
    async def post(body: JSON) -> JSON:
        wit("post")
        return {"got": [body, [[body]]]}

    @poimen.tool(effect=effects.PURE)
    async def turn(body: JSON) -> JSON:
        return [[[body]]]

    @poimen.step
    async def twice(body: JSON) -> JSON:
        return [await post(body), await turn([[body]])]

    @poimen.tool(effect=effects.IDEMPOTENT)
    async def end() -> None:
        pass

    @poimen.workflow
    async def flow(body: JSON) -> JSON:
        found = [await post(body), await twice(body), await turn(body)]
        wit(found)
        await end()
        return [[[found]]]

    print(poimen.run(flow({"a": [[1]]}), db="p.db", run_id="r"))
"""


@pytest.mark.parametrize("crash", ["", "committed:end"])
def test_an_alias_that_names_itself_is_stored_everywhere(tmp_path: Path, crash: str) -> None:
    program = textwrap.dedent(AGENT)
    if crash:
        assert apart.play(tmp_path, program, crash=crash).returncode == -9
    done = apart.play(tmp_path, program)
    assert (done.returncode, done.stderr) == (0, "")
    lines = (tmp_path / "witness").read_text().splitlines()
    body = {"a": [[1]]}
    got = {"got": [body, [[body]]]}
    found = [got, [got, [[[[[body]]]]]], [[[body]]]]
    assert done.stdout == f"{[[[found]]]}\n"
    assert lines == ["post", "post", *[str(found)] * (2 if crash else 1)]
    again = apart.play(tmp_path, program)  # what has ended is read once more
    assert again.stdout == done.stdout


def landed(body: JSON) -> effects.Landed[Any]:
    return effects.Landed([[["probed", body]]])


@poimen.tool(effect=effects.PROBE(landed, lag=timedelta(0)))
def fetch(body: JSON) -> JSON:
    raise TimeoutError


@poimen.workflow
def ask(body: JSON) -> JSON:
    return [fetch(body)]


@poimen.tool(effect=effects.AT_MOST_ONCE)
def mail(body: JSON) -> JSON:
    raise TimeoutError


@poimen.workflow
def send(body: JSON) -> JSON:
    return [mail(body)]


def test_what_a_probe_found_is_stored() -> None:
    assert poimen.run(ask(TREE), db="memory:") == [[[["probed", TREE]]]]


@pytest.mark.parametrize("knows", [True, False])
def test_what_a_person_found_is_stored(tmp_path: Path, knows: bool) -> None:
    db = str(tmp_path / "db")
    with pytest.raises(poimen.RunWaiting):
        poimen.run(send(TREE), db=db, run_id="r")

    async def resolve() -> None:
        async with poimen.Runtime(db, modules=[__name__]) if knows else poimen.Client(db) as client:
            (item,) = [item async for item in client.inbox()]
            await client.resolve(item.id, to="landed", by="ann", why="seen", result=[TREE], expect_lsn=item.lsn)

    asyncio.run(resolve())
    assert poimen.run(send(TREE), db=db, run_id="r") == [[TREE]]


def test_a_handle_reads_the_result_too(tmp_path: Path) -> None:
    async def started() -> Any:
        async with poimen.Runtime(str(tmp_path / "db"), modules=[__name__]) as runtime:
            first = await (await runtime.start(ask(TREE), run_id="r")).result()
            return first, await (await runtime.get("r", ask)).result()

    assert asyncio.run(started()) == ([[[["probed", TREE]]]], [[[["probed", TREE]]]])


def test_an_alias_of_the_function_around() -> None:
    def made() -> Parameters:
        Own = Union[int, List["Own"]]  # type: ignore[misc]  # noqa: N806, UP006, UP007

        def inner(x: Own) -> Own:
            raise AssertionError

        return Parameters.of(inner)

    parameters = made()
    value = [1, [2, [[3]]]]
    assert parameters.load_result(parameters.dump_result(value)) == value
    with pytest.raises(NotStorable, match=r"result\[1\]\[1\]: expected"):
        parameters.dump_result([1, [2, "x"]])
    with pytest.raises(NotStorable, match=r"value\[1\]"):
        parameters.load_result(b'[1,["x"]]', path="value")


LATER: Final = """
    from __future__ import annotations
    from dataclasses import dataclass
    from typing import TYPE_CHECKING
    import poimen
    from poimen import effects
    if TYPE_CHECKING:
        from decimal import Decimal

    @dataclass
    class Receipt:
        total: Decimal

    @poimen.tool(effect=effects.AT_MOST_ONCE)
    async def pay(cents: int) -> Receipt:
        open("witness", "a").close()
        return Receipt(1)

    @poimen.workflow
    async def flow() -> None:
        await pay(1)

    poimen.run(flow(), db="p.db", run_id="r")
"""


def test_a_result_whose_names_are_never_defined_is_refused_before_the_act(tmp_path: Path) -> None:
    done = apart.play(tmp_path, textwrap.dedent(LATER))
    assert "result: an annotation cannot be evaluated: NameError: name 'Decimal' is not defined" in done.stderr
    assert not (tmp_path / "witness").exists()
