"""Puts each runtime into a venv of its own below .build/peers, with the versions of pins.json.

python -m bench.peers.install [NAME ...]
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / ".build" / "peers"
PINS: Final[dict[str, dict[str, list[str]]]] = json.loads(
    Path(__file__).with_name("pins.json").read_text(encoding="utf-8")
)


def python_of(name: str) -> Path:
    """The interpreter of a venv; this one for no name.

    Arguments:
        name: a key of pins.json, or empty.
    """
    return BUILD / name / "bin" / "python" if name else Path(sys.executable)


def install(name: str) -> None:
    """Make the venv of a runtime, unless it is there with these very versions.

    Arguments:
        name: a key of pins.json.

    Raises:
        subprocess.CalledProcessError: a registry has said no.
    """
    folder = BUILD / name
    stamp, wanted = folder / "installed.json", json.dumps(PINS[name])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print(f"installing {name}", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(python_of(name)), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *PINS[name]["pip"]], check=True)
    if "npm" in PINS[name]:
        subprocess.run(
            ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), *PINS[name]["npm"]],
            check=True,
        )
    stamp.write_text(wanted, encoding="utf-8")


def versions(name: str, packages: tuple[str, ...]) -> dict[str, str]:
    """The pinned versions of some packages.

    Arguments:
        name: a key of pins.json.
        packages: which.
    """
    found: dict[str, str] = {}
    for pin in (each for several in PINS[name].values() for each in several):
        package, _, version = pin.replace("==", "@").rpartition("@")
        if package in packages:
            found[package] = version
    return found


if __name__ == "__main__":
    for each in sys.argv[1:] or PINS:
        install(each)
