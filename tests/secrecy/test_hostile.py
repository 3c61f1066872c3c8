"""Values that were made to break something: each comes back as it was or is refused with its path, and nothing else."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

import poimen
from poimen.blobs.files import FileBlobs
from poimen.cli.main import root
from poimen.declare import values
from poimen.declare.storing import screening
from poimen.gate.error_record import LONGEST, record_of
from poimen.kernel.errors import Corrupt, NotStorable
from poimen.kernel.ids import LONGEST_NAME, LONGEST_TAG, LONGEST_TEXT, MOST_TAGS, checked_tags, said

HOME: Final = Path(poimen.__file__).parents[1]


def nested(n: int) -> Any:
    value: Any = []
    for _ in range(n):
        value = [value]
    return value


def round_list() -> Any:
    value: list[Any] = []
    value.append({"a": value})
    return value


@dataclass
class Node:
    name: str
    inner: list[Any] = field(default_factory=list)


def round_object() -> Node:
    node = Node("a")
    node.inner.append(node)
    return node


STORED: Final = {
    "99 levels": nested(98),
    "a huge int": 7**40_000,
    "a negative one": -(10**5_000),
    "a lone surrogate": "a\ud800b",
    "one in a key": {"\udfff": 1, "plain": 2},
    "NUL": "a\0b\0",
    "bidi": "\u202eevil\u2066\u200b",
    "escapes": "\x1b]0;title\x07\x1b[2J\x9b1m\x08",
    "our own marks": {"$type": "bytes", "value": "x", "$escaped": ["int", "f"], "$blob": {"digest": "0"}},
    "a reference to a body": {"$blob": {"digest": "a" * 64, "size": 1, "media_type": "x"}},
    "keys that JSON would merge": {1: "a", "1": "b", None: "c"},
    "a wide object": {f"k{n}": n for n in range(50_000)},
    "a key of 1 MiB": {"k" * 2**20: 1},
    "the largest float": [1.7976931348623157e308, 5e-324, -0.0],
    "bytes of every value": bytes(range(256)) * 500,
}

REFUSED: Final = {
    "101 levels": (nested(101), "nested more than 100 levels deep"),
    "10,000 levels": (nested(10_000), "nested more than 100 levels deep"),
    "itself": (round_list(), "contains itself"),
    "NaN": ([float("nan")], "has no JSON"),
    "infinity": ({"a": float("inf")}, "has no JSON"),
    "a lambda": ([lambda: 1], "cannot be stored"),
    "a module": ({"m": os}, "cannot be stored"),
    "a generator": ((n for n in range(3)), "cannot be stored"),
    "too many items": ([0] * (screening.MAX_PARTS + 1), "1000000 is the limit"),
    "too many keys": ({"a": [{str(n): 0 for n in range(1000)} for _ in range(1000)]}, "1000000 is the limit"),
    "too many bytes": ("x" * screening.MAX_BYTES, f"{screening.MAX_BYTES} is the limit"),
}


@pytest.mark.parametrize("name", STORED)
def test_it_comes_back(name: str) -> None:
    value = STORED[name]
    body, back = values.dump_own(value)
    assert back == value and type(back) is type(value)
    assert values.load(values.dump(value)) == value
    body.decode("utf-8")


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_its_path(name: str) -> None:
    value, why = REFUSED[name]
    for dump in (values.dump, values.dump_own):
        with pytest.raises(NotStorable, match=why) as refused:
            dump(value, path="arg")
        assert refused.value.path.startswith("arg")
        assert len(str(refused.value)) < 2_000


def test_so_is_an_object_that_contains_itself() -> None:
    for dump in (lambda: values.dump(round_object(), Node), lambda: values.dump_own(round_object())):
        with pytest.raises(NotStorable):
            dump()


class Liar(Exception):
    """Its text and its fields do what they can."""

    def __init__(self) -> None:
        super().__init__("x" * 50_000_000)
        self.itself = self
        self.deep = nested(5_000)
        self.wide = {str(n): "y" * 1_000 for n in range(10_000)}
        self.big = 10**100_000
        self.text = "z" * 10_000_000
        self.surrogate = "\ud800"
        self.__notes__ = ["n" * 1_000_000] * 100


def test_an_error_of_any_size_is_kept_small() -> None:
    record = record_of(Liar())
    assert len(record.message.encode()) <= LONGEST
    assert len(str(record.fields)) < 40_000
    record.message.encode()


def test_what_is_said_for_the_record_has_a_limit() -> None:
    for name, limit in (("why", LONGEST_TEXT), ("evidence", LONGEST_TEXT), ("by", LONGEST_NAME)):
        said(most=LONGEST_TEXT, **{name: "x" * limit})
        with pytest.raises(NotStorable, match=f"{name} has {limit + 1} characters, {limit} is the limit"):
            said(most=LONGEST_TEXT, **{name: "x" * (limit + 1)})
    checked_tags({f"t{n}": "x" * LONGEST_TAG for n in range(MOST_TAGS)})
    for tags in ({f"t{n}": "x" for n in range(MOST_TAGS + 1)}, {"t": "x" * (LONGEST_TAG + 1)}, {"t" * 501: "x"}):
        with pytest.raises(NotStorable, match="is the limit"):
            checked_tags(tags)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"x": [{"b": 1, "b": 1}]}', "NaN", "1e999", "[" * 100_000])
def test_a_text_that_json_readers_disagree_about_is_no_argument(text: str, tmp_path: Path) -> None:
    code = tmp_path / "takes.py"
    code.write_text(
        "import poimen\n@poimen.workflow\ndef takes(a: dict[str, object]) -> int:\n    return len(a)\n",
        encoding="utf-8",
    )
    done = CliRunner().invoke(root, ["run", f"{code}:takes", text, "--db", "memory:"])
    assert done.exit_code == 2, done.output


# ---- what commands print -------------------------------------------------------------------------------------------

EVIL: Final = "\x1b]0;owned\x07\x1b[31mred\x9b2J\u202egnp.exe\u2066\x00\x08\r\nfake: line\u2028\ud800 end"
AGENT: Final = f"""
import poimen
from poimen import effects
EVIL = {EVIL!r}

@poimen.tool(effect=effects.AT_MOST_ONCE, summary=lambda text: EVIL)
def stuck(text: str) -> str:
    error = TimeoutError(EVIL)
    error.add_note(EVIL)
    raise error

@poimen.tool(effect=effects.READ)
def reads(text: str) -> str:
    raise ValueError(EVIL)

@poimen.workflow
def ends(text: str) -> str:
    poimen.decide("d", [EVIL, {{EVIL: EVIL}}])
    try:
        reads(text)
    except ValueError as error:
        raise RuntimeError(EVIL) from error

@poimen.workflow
def waits(text: str) -> str:
    return stuck(text)
"""
BAD: Final = frozenset([*range(9), *range(0xB, 0x20), *range(0x7F, 0xA0), 0x202E, 0x2066, 0x2028])


def test_no_command_prints_what_steers_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    evil = EVIL.replace("\0", "").replace("\ud800", "")
    tell = ("--why", evil, "--by", evil)
    looks: list[tuple[str, ...]] = [
        *(("run", f"agent.py:{run}", evil, "--id", run, "--tag", f"t={evil}") for run in ("ends", "waits")),
        ("inbox", "claim", "waits", "--by", evil),
        *((noun,) for noun in ("runs", "inbox", "intents", "decisions", "doctor")),
        *((noun, "show", run) for noun in ("runs", "log", "intents") for run in ("ends", "waits")),
        ("inbox", "show", "waits"),
        ("log", "tail"),
        ("inbox", "resolve", "waits", "--abandon", "--evidence", evil, "--confirm", "waits/main/stuck#0/1/0", *tell),
        ("runs", "cancel", "waits", *tell),
        ("log", "check"),
        ("runs", "show", evil),
    ]
    seen = 0
    for look in looks:
        for more in ((), ("--content",), ("--json",), ("--json", "--content")):
            if "--content" in more and look[0] in {"run", "doctor"}:
                continue
            done = CliRunner().invoke(root, [*look, *more, "--db", "db"])
            text = (done.stdout_bytes + done.stderr_bytes).decode()
            steering = {hex(ord(each)) for each in text if ord(each) in BAD}
            assert not steering, (look, more, steering)
            assert not [line for line in text.splitlines() if line.startswith("fake:")], (look, more)
            seen += "gnp.exe" in text
    assert seen > 10, "the text itself is there"


# ---- files -----------------------------------------------------------------------------------------------------------

MAKES: Final = """
import os, sys, poimen
from poimen import effects, ledger
os.umask(0)

@poimen.tool(effect=effects.READ)
def page(n: int) -> str:
    return "x" * n

@poimen.workflow
def reads(text: str) -> int:
    return len(page(200_000))

poimen.run(reads("y" * 200_000), db="deep/er/db", run_id="r")
with ledger.DecisionLedger("book.jsonl") as book:
    book.record_intent("d", 1)
    book.record_commit("d")
    book.compact()
"""


def test_all_that_poimen_makes_is_private_under_any_umask(tmp_path: Path) -> None:
    """A log with large bodies, its backup, a ledger: by a process with umask 0, looked at from outside."""
    env = os.environ | {"PYTHONPATH": str(HOME)}
    for words in (["-c", MAKES], ["-m", "poimen", "db", "backup", "copy/db", "--db", "deep/er/db"]):
        (tmp_path / "copy").mkdir(mode=0o755, exist_ok=True)
        begin = (
            "import os,runpy,sys; os.umask(0); sys.argv=sys.argv[1:]; runpy.run_module('poimen', run_name='__main__')"
        )
        words = words if words[0] == "-c" else ["-c", begin, *words[1:]]  # noqa: PLW2901 (the same under a umask)
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, check=False, text=True
        )
        assert done.returncode == 0, done.stderr
    modes = {path.relative_to(tmp_path).as_posix(): path.stat().st_mode for path in tmp_path.rglob("*")}
    assert {"deep/er/db", "deep/er/db.blobs", "deep/er/db.anchor", "copy/db", "copy/db.blobs", "book.jsonl"} <= set(
        modes
    )
    ours = {name: mode for name, mode in modes.items() if name != "copy"}
    assert {name: oct(stat.S_IMODE(mode)) for name, mode in ours.items() if stat.S_IMODE(mode) & 0o077} == {}


def test_a_body_is_what_its_name_says(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    ref = blobs.put(b"x" * 100_000)
    place = tmp_path / "blobs" / ref.digest[:2] / ref.digest
    assert blobs.get(ref.digest) == b"x" * 100_000
    for other in (b"y" + b"x" * 99_999, b"x" * 99_999, b""):
        place.write_bytes(other)
        with pytest.raises(Corrupt):
            blobs.get(ref.digest)
    for name in (
        "../../etc/passwd",
        "/etc/passwd",
        ref.digest.upper(),
        ref.digest + "\n",
        "",
        "a" * 63,
        f"{'a' * 62}/.",
    ):
        with pytest.raises(poimen.NotFound):
            blobs.get(name)
