"""A run's end is on its way when the timer of a record that waits comes: nothing is left alone for that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import poimen
from poimen import effects
from poimen.engine.driving.ending import Ending

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


@poimen.tool(effect=effects.READ)
async def look(n: int) -> int:
    return n


@poimen.step
async def square(n: int) -> int:
    return n * await look(n)


@poimen.workflow
async def ends_with_a_step(n: int) -> int:
    return await square(n)


def test_a_record_that_is_sent_between_the_last_step_and_the_end_keeps_no_run_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = Ending.finish
    between: list[int] = []

    def with_a_timer(self: Ending) -> None:
        outbox = self._driver.outbox

        def time_up() -> None:  # as the timer of what waits does, on a machine that is slow just then
            outbox.send(())
            between.append(outbox.sending)

        if outbox.last is not None and not self.settling:
            self._driver.main.call_soon(time_up)
        finish(self)

    async def main() -> int:
        async with poimen.Runtime(str(tmp_path / "db")) as runtime:
            assert runtime._worker is not None
            runtime._worker.open_guards += 2  # others' effects are under way, so nothing is committed in place
            try:
                return await (await runtime.start(ends_with_a_step(5))).result(timeout=30)
            finally:
                runtime._worker.open_guards -= 2

    monkeypatch.setattr(Ending, "finish", with_a_timer)
    assert asyncio.run(main()) == 25
    assert between == [1]
