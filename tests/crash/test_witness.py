"""The witness: whole lines, whatever happens; and the tools that write it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen.kernel.errors import BadDeclaration, ConfigurationError, NotStorable
from poimen.testing import CLASSES, Witness, recording_tool

if TYPE_CHECKING:
    from pathlib import Path

    from poimen.testing import ForkServer


def test_lines_are_kept_in_order_and_none_before_the_first(tmp_path: Path) -> None:
    witness = Witness(tmp_path / "witness")
    assert witness.lines() == []
    assert len(witness) == 0
    witness.note("one")
    Witness(witness.path).note("zwei ☕")
    assert witness.lines() == ["one", "zwei ☕"]
    assert repr(witness) == f"<Witness {witness.path}: 2 lines>"


@pytest.mark.parametrize("text", ["a\nb", "a\n", "a\r\nb", "\n", "a\u2028b"])
def test_a_note_is_one_line(tmp_path: Path, text: str) -> None:
    witness = Witness(tmp_path / "witness")
    with pytest.raises(NotStorable):
        witness.note(text)
    assert len(witness) == 0


def test_writers_beside_each_other_never_mix_their_lines(tmp_path: Path) -> None:
    witness = Witness(tmp_path / "witness")
    start = threading.Barrier(4)

    def write(name: str) -> None:
        start.wait()
        for n in range(200):
            witness.note(f"{name * 50} {n}")

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(witness.lines()) == sorted(f"{name * 50} {n}" for name in "abcd" for n in range(200))


def test_a_process_without_a_witness_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POIMEN_WITNESS", raising=False)
    with pytest.raises(ConfigurationError, match="has no witness"):
        Witness.here()


def test_recording_tools_are_ordinary_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POIMEN_WITNESS", str(tmp_path / "witness"))
    tools = [recording_tool(name, name=f"own_{name.lower()}") for name in CLASSES]

    @poimen.workflow
    async def all_of_them(what: str) -> list[str]:
        return [await tool(what) for tool in tools]

    assert poimen.run(all_of_them("tea"), db="memory:") == ["tea"] * len(CLASSES)
    lines = Witness.here().lines()
    assert [line.split()[1] for line in lines] == ["tea"] * len(CLASSES)
    assert len({line.split()[0] for line in lines}) == len(CLASSES)
    assert [tool.__name__ for tool in tools] == [f"own_{name.lower()}" for name in CLASSES]


def test_a_class_without_records_has_no_recording_tool() -> None:
    wrong: Any = "PURE"
    with pytest.raises(BadDeclaration, match="READ, IDEMPOTENT, KEYED, PROBE, AT_MOST_ONCE"):
        recording_tool(wrong)


def test_a_key_that_expired_while_the_process_was_away_is_judged_by_the_stricter_class(
    server: ForkServer, tmp_path: Path
) -> None:
    from tests.crash.test_points import World

    world = World(server, tmp_path, "dedupes")
    world.killed("called:recorded_keyed")
    day = server.run(
        world.target,
        args=("tea",),
        db=world.db,
        run_id="r",
        ahead_s=25 * 3600,
        env={"POIMEN_WITNESS": str(world.witness.path)},
    )
    assert day.how == "waiting"
    assert [body["to"] for body in world.records("intent.demoted.v1")] == ["AT_MOST_ONCE"]
    assert len(world.witness) == 1
