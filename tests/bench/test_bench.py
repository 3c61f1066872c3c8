"""The benchmark measures everything it promises, and its page says what was measured. No test here looks at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from bench import page
from bench.figures import Figure, median_around
from bench.run import MEASURES, ROOT, SIZES

if TYPE_CHECKING:
    from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("bench")
    command = [sys.executable, str(ROOT / "bench" / "run.py"), "--size", "smoke", "--to", str(folder)]
    return folder, subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_each_number_of_the_design_is_measured_and_said(measured: tuple[Path, str]) -> None:
    folder, said = measured
    rows = json.loads((folder / "figures.json").read_text())["figures"]
    assert {row["name"].split()[0] for row in rows} == set(MEASURES) == {f"S{n}" for n in range(1, 9)}
    for row in rows:
        assert row["low"] <= row["value"] <= row["high"]
        assert row["value"] > 0 or row["name"] == "S4 effects repeated"
        assert row["name"] in said
        assert row["goal"]
    assert {row["name"] for row in rows if "floor" in row} >= {"S1 one effect", "S2 64 at once", "S3 pure step"}


def test_no_effect_of_a_killed_run_is_repeated(measured: tuple[Path, str]) -> None:
    rows = json.loads((measured[0] / "figures.json").read_text())["figures"]
    assert [row["high"] for row in rows if row["name"] == "S4 effects repeated"] == [0]


@pytest.mark.parametrize(("name", "series"), [("throughput", 2), ("growth", 3)])
def test_the_pictures_show_each_series(measured: tuple[Path, str], name: str, series: int) -> None:
    picture = ET.fromstring((measured[0] / f"{name}.svg").read_bytes())
    assert picture.tag == f"{SVG}svg"
    drawn = [one for one in picture.iter(f"{SVG}path") if "line" in one.get("class", "").split()]
    assert len([one for one in drawn if "reactive" in one.get("class", "")]) == series
    assert not [one for one in picture.iter(f"{SVG}script") if any("href" in name for name in one.attrib)], "no network"


def test_the_page_says_what_was_measured(measured: tuple[Path, str]) -> None:
    figures = json.loads((measured[0] / "figures.json").read_text())
    text = page.written(figures)
    for row in figures["figures"]:
        assert f"| {row['name']} | " in text
        assert row["goal"] in text


def test_the_page_that_is_kept_is_the_one_of_the_figures_that_are_kept() -> None:
    figures = json.loads(page.FIGURES.read_text())
    assert page.PAGE.read_text() == page.written(figures)
    assert {path.name for path in page.PICTURES.iterdir()} == {"throughput.svg", "growth.svg"}


def test_a_figure_is_the_median_of_its_repetitions() -> None:
    figure = Figure.of("S1 one effect", [3.0, 1.0, 8.0], "us", "none", floor=2.0)
    assert (figure.value, figure.low, figure.high) == (3.0, 1.0, 8.0)
    assert figure.as_json().keys() == {"name", "value", "unit", "low", "high", "goal", "floor"}


def test_a_step_is_measured_where_it_stands() -> None:
    laps = [float(n) for n in range(1, 1001)]
    assert median_around(laps, 500) == pytest.approx(500, abs=1)
    assert median_around(laps, 10) == median_around(laps, 1) == 25.5
    assert median_around(laps, 1000) == 975.5


def test_the_sizes_grow() -> None:
    assert [size.repeat for size in SIZES.values()] == sorted(size.repeat for size in SIZES.values())
    assert SIZES["full"].runs[-1] == 1_000_000
    assert SIZES["full"].places[-1] == 100_000
