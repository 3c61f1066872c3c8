"""What is built is whole: the wheel, in an environment of its own, does what the checkout does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.promises.test_decision_ledger import PRINTED

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60
BUILD = ("-m", "build", "--wheel", "--no-isolation")


def _run(*command: str | Path, cwd: Path) -> str:
    """Run a command with nothing of the checkout on its path and nothing of this machine's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "POIMEN_", "PIP_"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=kept, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel in it, and behind it the pinned dependencies alone. Nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, *BUILD, "--outdir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("poimen-*.whl")
    _run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    _run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    # A path file inside a path file is not read, so the editable install of the checkout does not come along.
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "pinned.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "venv"


def test_contributors_are_told_to_build_it_in_this_way() -> None:
    assert f"\n.venv/bin/python {' '.join(BUILD)} " in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_poimen_that_runs_is_that_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = "import json, poimen, sys; print(json.dumps([poimen.__file__, sys.path]))"
    file, path = json.loads(_run(installed / "bin" / "python", "-c", code, cwd=tmp_path))
    assert Path(file).is_relative_to(installed)
    assert not any(Path(one).is_relative_to(ROOT / "src") for one in path if one)


def test_the_installed_command_reproduces_the_result_of_the_requirement(installed: Path, tmp_path: Path) -> None:
    assert _run(installed / "bin" / "poimen", "reproduce", cwd=tmp_path) == f"{PRINTED}\n"


def test_the_installed_command_shows_its_crashes(installed: Path, tmp_path: Path) -> None:
    envelope = json.loads(_run(installed / "bin" / "poimen", "demo", "crash", "--json", cwd=tmp_path))
    assert envelope["data"]
    assert list(tmp_path.iterdir()) == []
