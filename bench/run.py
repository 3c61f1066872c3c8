"""S1, S2, S3, S5 and S6 of the design's proof, in one run, as ratios to the machine's own floor.

    python -m bench.run [--json FILE] [--short]

The floor of a guarded effect is three bare commits of the same bytes by apsw with synchronous=FULL, taken
turn by turn with the effects themselves, because disks drift. Medians; the spread is min to max.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import apsw

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import workload
from poimen import Runtime, clock

GOALS = {
    "S1": "<= 1.25 x floor",
    "S2 64": ">= 8,000/s (must hold 5,000)",
    "S2 256": ">= 10,000/s (must hold 5,000)",
    "S3": "<= 60 us (must hold 150)",
    "S5 import": "<= 0.12 s",
    "S5 first effect": "<= 0.2 s",
    "S6": "<= 1,200 B",
}


CROWDS = ("S2 64", "S2 256")


class Bare:
    """Three commits of an effect's bytes, by nothing but SQLite."""

    def __init__(self, path: Path) -> None:
        self.db = apsw.Connection(str(path))
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=0"):
            self.db.execute(f"PRAGMA {pragma}").fetchall()
        self.db.execute("CREATE TABLE r(pos INTEGER PRIMARY KEY, body BLOB)").fetchall()

    def effect(self) -> float:
        """Commit three records; the seconds it took."""
        began = time.perf_counter()
        for size in (620, 110, 330):
            self.db.execute("BEGIN IMMEDIATE")
            self.db.execute("INSERT INTO r(body) VALUES (?)", (b"x" * size,))
            self.db.execute("COMMIT")
        return time.perf_counter() - began


async def lone(folder: Path, rounds: int, each: int) -> dict[str, Any]:
    """S1: blocks of lone effects and of bare commits, turn by turn."""
    bare = Bare(folder / "bare.db")
    ours: list[float] = []
    floor: list[float] = []
    ratios: list[float] = []
    async with Runtime(str(folder / "lone.db"), modules=[workload]) as runtime:
        for _ in range(rounds):
            workload.LAPS.clear()
            run = await runtime.start(workload.lone(each))
            await run.result()
            mine = statistics.median(workload.LAPS)
            other = statistics.median(bare.effect() for _ in range(each))
            ours.append(mine)
            floor.append(other)
            ratios.append(mine / other)
    return {
        "us": 1e6 * statistics.median(ours),
        "floor us": 1e6 * statistics.median(floor),
        "ratio": statistics.median(ratios),
        "spread": [min(ratios), max(ratios)],
    }


async def rate(folder: Path, name: str, call: Any, count: int, repeat: int) -> dict[str, Any]:
    """Effects or steps a second of one run; the best and worst of some repetitions beside the median."""
    found: list[float] = []
    async with Runtime(str(folder / f"{name}.db"), modules=[workload]) as runtime:
        for _ in range(repeat):
            began = time.perf_counter()
            run = await runtime.start(call())
            await run.result()
            found.append(count / (time.perf_counter() - began))
    return {"per s": statistics.median(found), "us": 1e6 / statistics.median(found), "spread": [min(found), max(found)]}


def bytes_per_effect(folder: Path, effects: int) -> float:
    """S6: what one effect adds to the database file, checkpointed."""
    sizes: list[int] = []
    for times in (1, 1 + effects):
        path = folder / f"bytes-{times}.db"
        asyncio.run(_only(path, times))
        db = apsw.Connection(str(path))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.close()
        sizes.append(path.stat().st_size)
    return (sizes[1] - sizes[0]) / effects


async def _only(path: Path, times: int) -> None:
    async with Runtime(str(path), modules=[workload]) as runtime:
        run = await runtime.start(workload.lone(times))
        await run.result()


def start_up(folder: Path, repeat: int) -> dict[str, float]:
    """S5: how long an import takes, and how long from exec to the first committed effect."""
    imports: list[float] = []
    firsts: list[float] = []
    bare: list[float] = []
    script = (
        "import sys, time; sys.path.insert(0, sys.argv[2]); import bench.workload as w; import poimen;"
        "poimen.run(w.lone(1), db=sys.argv[1]); sys.stdout.write(str(time.time_ns()))"
    )
    for n in range(repeat):
        bare.append(_seconds("pass"))
        imports.append(_seconds("import poimen"))
        began = clock.wall_us()
        done = subprocess.run(
            [sys.executable, "-c", script, str(folder / f"start-{n}.db"), sys.path[0]],
            check=True,
            capture_output=True,
            text=True,
        )
        firsts.append(int(done.stdout) / 1e9 - began / 1e6)
    return {
        "import s": statistics.median(imports) - statistics.median(bare),
        "interpreter s": statistics.median(bare),
        "first effect s": statistics.median(firsts),
    }


def _seconds(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began


def measure(*, short: bool) -> dict[str, Any]:
    """Everything, in one run on one disk."""
    scale = 1 if short else 4
    with tempfile.TemporaryDirectory(prefix="poimen-bench-") as name:
        folder = Path(name)
        figures: dict[str, Any] = {
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            "python": platform.python_version(),
            "sqlite": apsw.sqlite_lib_version(),
        }
        figures["S1"] = asyncio.run(lone(folder, rounds=5 * scale, each=60))
        for callers, times in ((64, 20), (256, 10)):
            count = callers * times * scale
            call = lambda callers=callers, times=times: workload.crowd(callers, times * scale)  # noqa: E731
            figures[f"S2 {callers}"] = asyncio.run(rate(folder, f"crowd{callers}", call, count, 3))
        figures["S3"] = asyncio.run(rate(folder, "steps", lambda: workload.steps(1500 * scale), 1500 * scale, 3))
        figures["S5"] = start_up(folder, 3 * scale)
        figures["S6"] = {"bytes per effect": bytes_per_effect(folder, 400)}
    return figures


def shown(figures: dict[str, Any]) -> str:
    """The figures as a table for people, each with its goal."""
    s1, s5 = figures["S1"], figures["S5"]
    rows = [
        ("S1 one effect", f"{s1['us']:.0f} us", f"{s1['ratio']:.2f} x floor ({s1['floor us']:.0f} us)", GOALS["S1"]),
        *((f"{s} at once", f"{figures[s]['per s']:.0f}/s", f"{figures[s]['us']:.0f} us", GOALS[s]) for s in CROWDS),
        ("S3 pure step", f"{figures['S3']['us']:.0f} us", f"{figures['S3']['per s']:.0f}/s", GOALS["S3"]),
        ("S5 import", f"{s5['import s']:.3f} s", f"interpreter {s5['interpreter s']:.3f} s", GOALS["S5 import"]),
        ("S5 first effect after exec", f"{s5['first effect s']:.3f} s", "", GOALS["S5 first effect"]),
        ("S6 bytes per effect", f"{figures['S6']['bytes per effect']:.0f} B", "", GOALS["S6"]),
    ]
    head = f"{figures['machine']}, Python {figures['python']}, SQLite {figures['sqlite']}"
    return "\n".join([head, *(f"{a:<28}{b:>12}  {c:<26} goal {d}" for a, b, c, d in rows)])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--short", action="store_true", help="a quarter of the repetitions")
    given = parser.parse_args()
    figures = measure(short=given.short)
    sys.stdout.write(shown(figures) + "\n")
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
