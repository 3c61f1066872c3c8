"""The other crash points: before anything has run, after a decision, in the middle of a recovery (C04, C18)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen.gate import points
from poimen.kernel.errors import ConfigurationError
from poimen.log.sqlite import SqliteStore
from poimen.testing import POINTS, Witness

if TYPE_CHECKING:
    from pathlib import Path

    from poimen.testing import Ended, ForkServer


class World:
    """One database and one witness, and a workflow that is run against them in forks."""

    def __init__(self, server: ForkServer, folder: Path, workflow: str) -> None:
        self.server = server
        self.db = folder / "poimen.db"
        self.witness = Witness(folder / "witness")
        self.target = f"tests.crash.programs:{workflow}"

    def run(self, at: str = "") -> Ended:
        env = {"POIMEN_WITNESS": str(self.witness.path)}
        return self.server.run(self.target, args=("tea",), db=self.db, run_id="r", at=at, env=env)

    def killed(self, at: str) -> None:
        ended = self.run(at)
        assert (ended.how, ended.signal, ended.was_killed) == ("killed", signal.SIGKILL, True), ended

    def records(self, kind: str) -> list[dict[str, object]]:
        store = SqliteStore(self.db, read_only=True)
        found = [json.loads(record.body) for record in store.read("r") if record.kind == kind]
        store.close()
        return found


def test_a_run_exists_after_a_kill_right_behind_its_admission_c04(server: ForkServer, tmp_path: Path) -> None:
    world = World(server, tmp_path, "mails")
    world.killed("admitted:mails")
    assert len(world.records("run.admitted.v1")) == 1
    assert world.records("branch.started.v1") == []
    assert len(world.witness) == 0
    assert world.run().value == "tea"
    assert len(world.witness) == 1


def test_a_run_that_nobody_asks_for_is_found_at_start_and_ended_c18(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(server, tmp_path, "mails")
    world.killed("pending:recorded_at_most_once")
    monkeypatch.setenv("POIMEN_WITNESS", str(world.witness.path))

    async def start() -> object:
        async with poimen.Runtime(str(world.db), modules=["tests.crash.programs"]) as runtime:
            return await asyncio.wait_for((await runtime.get("r")).result(), 30)

    assert asyncio.run(start()) == "tea"
    assert len(world.witness) == 1


def test_a_decision_survives_a_kill_right_behind_it(server: ForkServer, tmp_path: Path) -> None:
    world = World(server, tmp_path, "decides")
    world.killed("decided")
    assert [body["value"] for body in world.records("decision.recorded.v1")] == ["tea"]
    assert len(world.witness) == 0
    assert world.run().value == "tea"
    assert len(world.records("decision.recorded.v1")) == 1


@pytest.mark.parametrize(
    ("workflow", "tool", "point", "lines"),
    [
        ("mails", "recorded_at_most_once", "pending", 1),
        ("mails", "recorded_at_most_once", "called", 1),
        ("can_be_asked", "recorded_probe", "called", 1),
        ("converges", "recorded_idempotent", "called", 2),
    ],
)
def test_a_recovery_that_is_killed_twice_comes_to_the_same_end(
    server: ForkServer, tmp_path: Path, *, workflow: str, tool: str, point: str, lines: int
) -> None:
    world = World(server, tmp_path, workflow)
    world.killed(f"{point}:{tool}")
    world.killed("classified")
    world.killed("classified")
    ended = world.run()
    said = [body["classification"] for body in world.records("intent.classified.v1")]
    assert said == ["never_sent" if point == "pending" else "may_have_been_sent"], "once for each send"
    assert len(world.witness) == lines
    assert ended.how == ("waiting" if (workflow, point) == ("mails", "called") else "returned")


@pytest.mark.parametrize(
    ("workflow", "tool", "point", "ends"),
    [
        ("mails", "recorded_at_most_once", "pending", "attempt.failed.v1"),
        ("converges", "recorded_idempotent", "called", "attempt.indeterminate.v1"),
    ],
)
def test_a_recovery_that_dies_three_times_without_a_record_of_its_own_is_not_tried_again(
    server: ForkServer, tmp_path: Path, *, workflow: str, tool: str, point: str, ends: str
) -> None:
    world = World(server, tmp_path, workflow)
    world.killed(f"{point}:{tool}")
    for _ in range(3):
        world.killed("classified")
    seen = len(world.witness)
    ended = world.run()
    assert ended.how == "waiting", ended
    assert len(world.records(ends)) == 1
    assert len(world.witness) == seen, "nothing was sent by a recovery that gave up"


def test_the_second_send_can_be_killed_like_the_first(server: ForkServer, tmp_path: Path) -> None:
    world = World(server, tmp_path, "dedupes")
    world.killed("dispatched:recorded_keyed")
    world.killed("called:recorded_keyed")
    assert world.run().value == "tea"
    assert [body["send"] for body in world.records("intent.dispatched.v1")] == [1, 2, 3]
    assert [body["send"] for body in world.records("intent.classified.v1")] == [1, 2]
    assert len(world.witness) == 2
    assert len({line.split()[0] for line in world.witness.lines()}) == 1, "one request id for all sends"


def test_a_point_is_off_unless_it_is_named() -> None:
    assert not any(points.armed(point) for point in POINTS)
    for point in POINTS:
        points.reach(point, "anything")
    with pytest.raises(ConfigurationError, match="is not a crash point"):
        points.arm("nowhere")
    for nth in ("0", "x", "-1", "²"):
        with pytest.raises(ConfigurationError, match="at which time"):
            points.arm(f"called:mail:{nth}")
    assert not any(points.armed(point) for point in POINTS)


def test_a_point_counts_and_names_its_tool(server: ForkServer, tmp_path: Path) -> None:
    db, witness = tmp_path / "poimen.db", Witness(tmp_path / "witness")
    env = {"POIMEN_WITNESS": str(witness.path)}
    order: dict[str, Any] = {"args": (5,), "db": db, "run_id": "r", "env": env}
    assert server.run("tests.crash.programs:goes_on", at="called:recorded_at_most_once:3", **order).was_killed
    assert len(witness) == 3
    assert server.run("tests.crash.programs:goes_on", at="called:another", **order).how == "waiting"


ORDINARY = """
import poimen
from poimen.testing import recording_tool
mail = recording_tool("AT_MOST_ONCE", name="mail")
@poimen.workflow
async def mails(what: str) -> str:
    return await mail(what)
print(poimen.run(mails("tea"), db="memory:"))
"""


@pytest.mark.parametrize(
    ("armed", "said"),
    [
        ("called:mial", "called:mial:1 has killed nothing in this process; to called came: mail 1 time(s)\n"),
        ("called:mail:2", "called:mail:2 has killed nothing in this process; to called came: mail 1 time(s)\n"),
        ("decided", "decided::1 has killed nothing in this process; to decided came: nothing\n"),
        ("", None),
    ],
)
def test_a_point_that_was_never_met_is_told_when_the_process_ends(tmp_path: Path, armed: str, said: str | None) -> None:
    (tmp_path / "ordinary.py").write_text(ORDINARY, encoding="utf-8")
    env = os.environ | {"POIMEN_CRASH": armed, "POIMEN_WITNESS": str(tmp_path / "witness")}
    done = subprocess.run(
        [sys.executable, "ordinary.py"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "tea\n"), done.stderr
    assert done.stderr == ("" if said is None else f"POIMEN_CRASH={said}")
