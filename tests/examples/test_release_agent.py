"""The release agent on real input, whole: killed, restarted, decided; then its logs are read against the tables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from poimen.kernel import attempt as a
from poimen.kernel.attempt import AttemptState, transition
from poimen.kernel.fold import fold
from poimen.kernel.views import newest_branch
from poimen.log import codec
from poimen.log.opening import open_store

ROOT = Path(__file__).resolve().parents[2]

STEP_OF_A_RECORD: dict[str, tuple[AttemptState, list[a.Cause], AttemptState]] = {
    "attempt.started.v1": (AttemptState.PENDING, [a.Admitted()], AttemptState.RUNNING),
    "attempt.succeeded.v1": (AttemptState.RUNNING, [a.Completed()], AttemptState.SUCCEEDED),
    "attempt.failed.v1": (AttemptState.RUNNING, [a.Errored()], AttemptState.FAILED),
    "attempt.cancelled.v1": (
        AttemptState.RUNNING,
        [a.CancelRequested(intent_dispatched=False)],
        AttemptState.CANCELLED,
    ),
    "attempt.indeterminate.v1": (
        AttemptState.RUNNING,
        [a.LeftUnresolved(), a.CancelRequested(intent_dispatched=True)],
        AttemptState.INDETERMINATE,
    ),
}
"""What each record of the log says has happened, written by hand: from, by what, to."""


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small repository, released eleven times, ten of them killed."""
    folder = tmp_path_factory.mktemp("release")
    repo = folder / "repo"
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for key in ("AUTHOR", "COMMITTER"):
        environment[f"GIT_{key}_NAME"] = environment[f"GIT_{key}_EMAIL"] = "tester@example.org"
    git = ["git", "-C", str(repo), "-c", "init.defaultBranch=main"]
    repo.mkdir()
    subprocess.run([*git, "init", "-q"], check=True, env=environment)
    for n, message in enumerate(("first", "feat: a thing", "fix: a bug")):
        (repo / "file").write_text(str(n))
        subprocess.run([*git, "add", "-A"], check=True, env=environment)
        subprocess.run([*git, "commit", "-qm", message], check=True, env=environment)
    script = ROOT / "examples" / "release_agent" / "run.py"
    work = folder / "work"
    done = subprocess.run(
        [sys.executable, str(script), "--repo", str(repo), "--workdir", str(work), "--keep"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "UNEXPECTED" not in done.stdout
    assert "11 tags at its remotes, 11 registrations, 11 mails" in done.stdout
    assert "poimen inbox resolve" in done.stdout
    return work


def test_every_recorded_change_of_an_attempt_is_an_arm_of_the_table(workdir: Path) -> None:
    databases = sorted(workdir.rglob("poimen.db"))
    assert len(databases) == 11
    seen: set[str] = set()
    for database in databases:
        store = open_store(str(database), read_only=True)
        for head in store.heads():
            states: dict[tuple[str, int], AttemptState] = {}
            for record in store.read(head.run):
                step = STEP_OF_A_RECORD.get(record.kind)
                if step is None:
                    continue
                seen.add(record.kind)
                body = codec.plain(record)
                before, causes, after = step
                attempt = (body["step"], body["attempt"])
                assert states.get(attempt, AttemptState.PENDING) is before, (head.run, record.lsn)
                assert {transition(before, cause) for cause in causes} == {after}
                states[attempt] = after
            assert AttemptState.RUNNING not in states.values()
        store.close()
    assert {"attempt.started.v1", "attempt.succeeded.v1", "attempt.indeterminate.v1"} <= seen


def test_the_logs_are_whole_and_fold_to_the_state_in_their_heads(workdir: Path) -> None:
    databases = list(workdir.rglob("poimen.db"))
    assert len(databases) == 11
    for database in databases:
        store = open_store(str(database), read_only=True)
        assert list(store.check()) == []
        for head in store.heads():
            events = [(r.lsn, r.at, r.branch, codec.event_of(r), r.epoch) for r in store.read(head.run)]
            assert newest_branch(fold(head.run, events)).state.value == head.state == "SUCCEEDED"
        store.close()
