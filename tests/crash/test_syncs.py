"""Three records, three syncs, for each effect: counted from inside, from outside, and commit by commit (P5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from poimen.testing import Traced, child_command, straced

if TYPE_CHECKING:
    from pathlib import Path

    from poimen.testing import ForkServer
    from tests.conftest import Figures, Scale

FEW, MANY = 1, 11
EACH = 3

pytestmark = pytest.mark.harness("P5")


def inside(server: ForkServer, folder: Path, n: int, sabotage: str = "") -> dict[str, int]:
    ended = server.run("tests.crash.programs:seen_from_inside", args=(str(folder / f"in-{n}"), n), sabotage=sabotage)
    assert ended.how == "returned", ended
    told: dict[str, int] = ended.value
    return told


def outside(folder: Path, n: int, sabotage: str = "") -> Traced:
    db = folder / f"out-{n}"
    command = child_command("tests.crash.programs:one_after_another", args=(n,), db=db, run_id="r", sabotage=sabotage)
    traced = straced(command, folder=folder)
    assert traced.returncode == 0, traced.stderr
    return traced


def test_ten_effects_cost_thirty_commits_and_thirty_syncs(server: ForkServer, tmp_path: Path, figures: Figures) -> None:
    few, many = inside(server, tmp_path, FEW), inside(server, tmp_path, MANY)
    wanted = EACH * (MANY - FEW)
    assert many["commits"] - few["commits"] == wanted
    assert many["syncs"] - few["syncs"] == wanted
    assert many["of_the_database"] == few["of_the_database"], "a WAL checkpoint came between"
    seen = [outside(tmp_path, n).wal_syncs(tmp_path / f"out-{n}") for n in (FEW, MANY)]
    assert seen == [few["syncs"], many["syncs"]], "the VFS and strace disagree"
    figures(f"P5 sync count: {MANY - FEW} effects, {wanted} commits, {seen[1] - seen[0]} syncs, seen from both sides")


def test_batched_records_are_caught_by_both_counts(server: ForkServer, tmp_path: Path, figures: Figures) -> None:
    few, many = (inside(server, tmp_path, n, "batched") for n in (FEW, MANY))
    assert many["commits"] - few["commits"] == many["syncs"] - few["syncs"] == 2 * (MANY - FEW)
    seen = [outside(tmp_path, n, "batched").wal_syncs(tmp_path / f"out-{n}") for n in (FEW, MANY)]
    assert seen[1] - seen[0] == 2 * (MANY - FEW)
    missing = EACH * (MANY - FEW) - (seen[1] - seen[0])
    figures(f"P5 control batched: {missing} syncs missing, by both counts", control="batched", caught=missing)


def waves(server: ForkServer, db: Path, *shapes: list[int], sabotage: str = "") -> dict[str, Any]:
    ended = server.run(
        "tests.crash.programs:taped_waves", args=(str(db), list(shapes)), sabotage=sabotage, patience_s=200
    )
    assert ended.how == "returned", ended
    told: dict[str, Any] = ended.value
    return told


def test_of_64_effects_at_once_no_two_records_of_one_share_a_sync(
    server: ForkServer, tmp_path: Path, scale: Scale, figures: Figures
) -> None:
    told = waves(server, tmp_path / "db", [scale(100, 5_000), 64], [64, 64])
    assert told["shared"] == []
    assert told["entered"] == scale(100, 5_000) + 64
    assert told["together"] == 64, "nothing was shared at all, so nothing was shown"
    figures(
        f"P5 sharing: {told['entered']} effects, 64 at once, {len(told['shared'])} with two records in one sync",
        asked=scale(100, 5_000) + 64,
        reached=told["entered"],
        unit="effects",
    )


@pytest.mark.parametrize("control", ["batched", "two_records"])
def test_records_that_share_a_sync_are_caught(server: ForkServer, tmp_path: Path, control: str) -> None:
    told = waves(server, tmp_path / "db", [64, 64], sabotage=control)
    if control == "batched":
        assert len(told["shared"]) == 64
        assert "intent.pending.v1, intent.dispatched.v1" in told["shared"][0]
    assert len(told["early"]) == (64 if control == "two_records" else 0), "no Dispatched at all"
