"""The closed sets are closed: whoever adds a member, or drops an arm, is told by both type checkers.

Each copy of a kernel module is changed in one place; all copies are then checked by one run of each checker.
What a type checker cannot see, a wrong arm or one that swallows the rest, the tables and a look at the
syntax tree must see, and are tried here too.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kernel import test_attempt_table, test_branch_table
from tests.kernel.catch_alls import catch_alls

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
KERNEL = ROOT / "src" / "poimen" / "kernel"
MODULES = ("attempt", "branch", "effect_class", "resolution")


def source(module: str) -> str:
    return (KERNEL / f"{module}.py").read_text(encoding="utf-8")


def changed(module: str, *edits: tuple[str, str]) -> str:
    """The module with each `old` text, which must be there once, replaced."""
    text = source(module)
    for old, new in edits:
        assert text.count(old) == 1, f"{module}: {text.count(old)} times: {old}"
        text = text.replace(old, new)
    return text


NEW_CAUSE = "@dataclass(frozen=True, slots=True, kw_only=True)\nclass Paused:\n    pass\n\n\n"

GROWN = {
    "attempt_new_state": changed(
        "attempt", ('    TIMED_OUT = "TIMED_OUT"\n', '    TIMED_OUT = "T"\n    PAUSED = "P"\n')
    ),
    "attempt_new_cause": changed(
        "attempt", ("Cause: TypeAlias = (\n", f"{NEW_CAUSE}Cause: TypeAlias = (\n    Paused |")
    ),
    "branch_new_state": changed("branch", ('    TIMED_OUT = "TIMED_OUT"\n', '    TIMED_OUT = "T"\n    PAUSED = "P"\n')),
    "branch_new_cause": changed(
        "branch", ("BranchCause: TypeAlias =", f"{NEW_CAUSE}BranchCause: TypeAlias = Paused |")
    ),
    "effect_class_new_class": changed("effect_class", ('    KEYED = "KEYED"\n', '    KEYED = "K"\n    SAGA = "S"\n')),
}


def without_each_arm(text: str) -> Iterator[str]:
    """The module again and again, each time without one arm, or without one alternative of an arm."""
    tree = ast.parse(text)
    matches = [node for node in ast.walk(tree) if isinstance(node, ast.Match)]
    for match in matches:
        for arm in list(match.cases):
            kept = match.cases[:]
            if len(kept) > 1:
                match.cases = [other for other in kept if other is not arm]
                yield ast.unparse(tree)
                match.cases = kept
            if isinstance(arm.pattern, ast.MatchOr):
                whole = arm.pattern
                for part in whole.patterns:
                    arm.pattern = copy.copy(whole)
                    arm.pattern.patterns = [other for other in whole.patterns if other is not part]
                    yield ast.unparse(tree)
                arm.pattern = whole


SHRUNK = {
    f"{module}_without_{n}": text for module in MODULES for n, text in enumerate(without_each_arm(source(module)))
}
STEERING = ("events", "fold", "intent")
UNCHANGED = {f"{module}_unchanged": source(module) for module in (*MODULES, *STEERING)}

WRITES = """\
from poimen.kernel.events import BranchResumed
from poimen.kernel.intent import ReadDropped, RuleApplied

BranchResumed(epoch=1, worker="", code="", why="{why}")
ReadDropped(step="", attempt=1, ordinal=0, send=1, why="{drop}")
RuleApplied(step="", attempt=1, ordinal=0, rule="{rule}", inputs={{}}, result="")
"""
RIGHT = {"why": "woken", "drop": "held-back", "rule": "called-off"}
UNCHANGED["writes_unchanged"] = WRITES.format(**RIGHT)

MISSPELT = {
    "fold_rule_ended": changed("fold", ('event.rule == "call-ended"', 'event.rule == "call_ended"')),
    "fold_rule_late": changed("fold", ('event.rule == "begins-late"', 'event.rule == "begin-late"')),
    "fold_rule_stricter": changed("fold", ('event.rule != "stricter-now"', 'event.rule != "stricter"')),
    "fold_resumed": changed("fold", ('event.why == "recovered"', 'event.why == "recoverd"')),
    "events_called_off": changed("events", ('event.rule == "called-off"', 'event.rule == "calledoff"')),
    "events_from_outside": changed(
        "events", ('event.rule == "closed-from-outside"', 'event.rule == "closed from outside"')
    ),
    "events_cancel": changed("events", ('event.why == "cancel"', 'event.why == "canceled"')),
    "intent_unanswered": changed("intent", ('frozenset({"timeout", ', 'frozenset({"time-out", ')),
    **{f"writes_{name}": WRITES.format(**RIGHT | {name: f"{right}!"}) for name, right in RIGHT.items()},
}
"""Words that steer the fold, each with a slip of the pen."""


def needed(*files: Path) -> set[Path]:
    """The modules of poimen that the files import, and those that these import."""
    found: set[Path] = set()
    ahead = list(files)
    while ahead:
        for node in ast.walk(ast.parse(ahead.pop().read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("poimen."):
                whole = ROOT.joinpath("src", *str(node.module).split("."))
                names = [whole / alias.name for alias in node.names] if whole.is_dir() else [whole]
                new = {path.with_suffix(".py") for path in names} - found
                found |= new
                ahead += new
    return found


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copies")
    for name, text in {**UNCHANGED, **GROWN, **SHRUNK, **MISSPELT}.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    # What the copies import, alone: the checkers need not read the whole package for it.
    for path in needed(*(KERNEL / f"{module}.py" for module in (*MODULES, *STEERING))):
        target = folder / "package" / path.relative_to(ROOT / "src")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        for above in target.relative_to(folder / "package").parents[:-1]:
            (folder / "package" / above / "__init__.py").touch()
    return folder


@pytest.fixture(scope="module")
def mypy(copies: Path) -> dict[str, list[str]]:
    """The errors of mypy by copy, under the settings of the project."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert settings["strict"]
    assert settings["warn_unreachable"]
    assert "exhaustive-match" in settings["enable_error_code"]
    codes = [f"--enable-error-code={code}" for code in settings["enable_error_code"]]
    flags = ["--config-file=", "--strict", "--warn-unreachable", "--no-error-summary", "--output=json", *codes]
    cache = f"--cache-dir={copies / 'cache'}"
    output = run("mypy", [*flags, cache, *(path.name for path in copies.glob("*.py"))], copies)
    errors: dict[str, list[str]] = {}
    for line in output.splitlines():
        found = json.loads(line)
        if found["severity"] == "error":
            errors.setdefault(Path(found["file"]).stem, []).append(found["code"])
    return errors


@pytest.fixture(scope="module")
def basedpyright(copies: Path) -> dict[str, list[str]]:
    """The errors of basedpyright by copy, in its strict mode."""
    settings = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": ["package"],
        "exclude": ["package"],
        "reportUnknownArgumentType": False,  # what JSON holds is not known
        "reportUnknownVariableType": False,
    }
    (copies / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    output = run("basedpyright", ["--outputjson", "-p", "pyrightconfig.json"], copies)
    errors: dict[str, list[str]] = {}
    for found in json.loads(output)["generalDiagnostics"]:
        if found["severity"] == "error":
            errors.setdefault(Path(found["file"]).stem, []).append(found.get("rule", ""))
    return errors


def run(checker: str, arguments: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", checker, *arguments],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(folder / "package")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), f"{checker} did not check: {done.stderr or done.stdout}"
    return done.stdout


def test_the_unchanged_copies_are_clean(mypy, basedpyright):
    for name in UNCHANGED:
        assert name not in mypy
        assert name not in basedpyright


def test_a_new_member_is_an_error_of_both_type_checkers(mypy, basedpyright):
    for name in GROWN:
        assert "exhaustive-match" in mypy.get(name, []), name
        assert "reportMatchNotExhaustive" in basedpyright.get(name, []), name


def test_a_slip_in_a_word_that_steers_the_fold_is_an_error_of_both_type_checkers(mypy, basedpyright):
    for name in MISSPELT:
        assert {"comparison-overlap", "arg-type"} & {*mypy.get(name, [])}, name
        assert {"reportUnnecessaryComparison", "reportArgumentType", "reportAssignmentType"} & {
            *basedpyright.get(name, [])
        }, name


def test_a_dropped_arm_is_an_error_of_both_type_checkers(mypy, basedpyright):
    assert len(SHRUNK) > 80, "every arm and every alternative is dropped once"
    for name, text in SHRUNK.items():
        assert "exhaustive-match" in mypy.get(name, []), text
        assert "reportMatchNotExhaustive" in basedpyright.get(name, []), text


@pytest.mark.parametrize("name", [*MODULES, "domain"])
def test_what_the_kernel_hands_around_cannot_be_changed_or_confused(name):
    module = importlib.import_module(f"poimen.kernel.{name}")
    values = [v for v in vars(module).values() if isinstance(v, type) and dataclasses.is_dataclass(v)]
    assert values
    for cls in values:
        assert vars(cls)["__dataclass_params__"].frozen, cls
        assert all(field.kw_only for field in dataclasses.fields(cls)), cls
        assert not hasattr(cls.__new__(cls), "__dict__"), f"{cls} has no slots"


# ---- arms that are wrong: the tables -----------------------------------------------------------------------

RUNNING_CANCEL = "return AttemptState.INDETERMINATE if dispatched else AttemptState.CANCELLED"
RUNNING_LATE = "return AttemptState.INDETERMINATE if dispatched else AttemptState.TIMED_OUT"
PENDING_UNSENT = 'raise _refused(state, cause, why="an attempt that has not started has dispatched nothing")'
LEFT = "case LeftUnresolved():\n                    return AttemptState.INDETERMINATE"
ENDED = 'raise _refused(state, cause, why="nothing leaves a terminal state")'
RESUMED = 'raise _refused(state, cause, why="the attempt has left the queue already")'
JUDGED = 'raise _refused(state, cause, why="the body has ended in time; verifiers have their own deadlines")'
EARLY = 'raise _refused(state, cause, why="a result is only given from VERIFYING, with or without verifiers")'
ASLEEP = 'raise _refused(state, cause, why="it waits: it is woken first")'
UNDRIVEN = 'raise _refused(state, cause, why="nobody has driven it yet")'

WRONG = {
    "a cancel hides an unknown": ("attempt", (RUNNING_CANCEL, "return AttemptState.CANCELLED")),
    "a cancel is always an unknown": ("attempt", (RUNNING_CANCEL, "return AttemptState.INDETERMINATE")),
    "a cancel the wrong way round": (
        "attempt",
        (RUNNING_CANCEL, RUNNING_CANCEL.replace("dispatched", "not dispatched")),
    ),
    "a deadline hides an unknown": ("attempt", (RUNNING_LATE, "return AttemptState.TIMED_OUT")),
    "a cancel before the start is absorbed": ("attempt", (PENDING_UNSENT, "return AttemptState.CANCELLED")),
    "an unknown is filed as a failure": ("attempt", (LEFT, LEFT.replace("INDETERMINATE", "FAILED"))),
    "a running attempt is admitted again": ("attempt", (RESUMED, "return state")),
    "a terminal state is left": ("attempt", (ENDED, "return AttemptState.RUNNING")),
    "a terminal state is absorbing": ("attempt", (ENDED, "return state")),
    "a terminal branch is left": ("branch", (ENDED, "return BranchState.RUNNING")),
    "a verified branch times out": ("branch", (JUDGED, "return to")),
    "a branch succeeds unverified": ("branch", (EARLY, "return to")),
    "a waiting branch ends its body": ("branch", (ASLEEP, "return BranchState.VERIFYING")),
    "a pending branch waits": ("branch", (UNDRIVEN, "return BranchState.WAITING")),
}


def load(name: str, text: str, folder: Path) -> Any:
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


TABLES = {"attempt": test_attempt_table.differences, "branch": test_branch_table.differences}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_arm_is_seen_by_the_table(what, tmp_path):
    module, edit = WRONG[what]
    wrong = load("wrong", changed(module, edit), tmp_path)
    assert TABLES[module](wrong) != []


@pytest.mark.parametrize("module", TABLES)
def test_the_table_finds_nothing_in_an_unchanged_copy(module, tmp_path):
    assert TABLES[module](load("same", source(module), tmp_path)) == []


# ---- arms that swallow the rest: the syntax tree -----------------------------------------------------------


@pytest.mark.parametrize("module", MODULES)
def test_the_kernel_has_no_catch_all(module):
    assert catch_alls(source(module)) == []
    assert "assert_never(" in source(module) or module == "effect_class"


@pytest.mark.parametrize(
    "arm",
    [
        "_",
        "other",
        "_ if state",
        "other if state",
        "State.A | _",
        "State.A | other",
        "(State.A | _) as other",
        "object()",
        "object() as other",
        "State()",
        "builtins.object()",
    ],
)
def test_every_kind_of_catch_all_is_found(arm):
    text = (
        f"class State(Enum):\n    A = 1\nmatch state:\n    case State.B:\n        pass\n    case {arm}:\n        pass\n"
    )
    (found,) = catch_alls(text)
    assert found.startswith("6: case ")


@pytest.mark.parametrize(
    "arm", ["State.A", "Cause()", "Cause(flag=seen)", "Cause(flag=_)", "State.A | State.B", "[_, 1]", "None"]
)
def test_an_honest_arm_is_not(arm):
    assert catch_alls(f"class State(Enum):\n    A = 1\nmatch state:\n    case {arm}:\n        pass\n") == []


@pytest.mark.parametrize("arm", ["case _:", "case _ as rest:", "case rest:"])
def test_a_catch_all_put_into_the_table_is_found(arm):
    honest = "case Admitted() | QueueDeadlinePassed():"
    assert len(catch_alls(changed("attempt", (honest, arm)))) == 1
    assert len(catch_alls(changed("branch", ("case Parked() | Woken() | BodyEnded():", arm)))) == 1
