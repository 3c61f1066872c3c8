"""The world of the release agent is real: its services keep what they promise, its clones leave the source alone.

Services and killed processes are real ones. Nothing here needs poimen.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import select
import signal
import smtplib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import drafter
import gitrepo
from world import HERE, Mail, Registration, World, WorldError

if TYPE_CHECKING:
    from pathlib import Path

AUTHOR = {f"GIT_{role}_{part}": "somebody" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}


# ---- repositories ------------------------------------------------------------------------------------------------


def commit(repo: Path, title: str) -> str:
    gitrepo.git("-C", str(repo), "commit", "-q", "--allow-empty", "-m", title, env=AUTHOR)
    return gitrepo.git("-C", str(repo), "rev-parse", "HEAD")


def repository(path: Path, *titles: str, form: str = "sha1") -> Path:
    gitrepo.git("init", "-q", "-b", "trunk", f"--object-format={form}", str(path))
    for title in titles or ("feat: begin",):
        commit(path, title)
    return path


def odd(kind: str, path: Path) -> Path:
    """A repository of a kind that is met in the wild."""
    titles = ["feat: begin"] if kind == "single" else ["feat: begin", "fix: mend", "docs: tell"]
    repo = repository(path / "base", *titles, form="sha256" if kind == "sha256" else "sha1")
    at = ("-C", str(repo))
    if kind == "dirty":
        (repo / "CHANGELOG.md").write_text("not committed")
        (repo / "left.txt").write_text("staged")
        gitrepo.git(*at, "add", "left.txt")
    elif kind == "tag at head":
        gitrepo.git(*at, "tag", "v3.0.0", "HEAD~2")
        gitrepo.git(*at, "tag", "v3.0.1")
    elif kind == "detached":
        gitrepo.git(*at, "checkout", "-q", "--detach", "HEAD~1")
        commit(repo, "fix: on no branch")
    elif kind == "subfolder":
        (repo / "below").mkdir()
        return repo / "below"
    elif kind == "worktree":
        gitrepo.git(*at, "worktree", "add", "-q", "-b", "aside", str(path / "aside"), "HEAD~1")
        return path / "aside"
    elif kind in ("shallow", "bare"):
        more = ["--depth=1", "--no-local"] if kind == "shallow" else ["--bare", "--no-local"]
        gitrepo.git("clone", "-q", *more, str(repo), str(path / kind))
        return path / kind
    return repo


ODD = ("single", "no tags", "dirty", "tag at head", "detached", "subfolder", "worktree", "shallow", "bare", "sha256")


def fingerprint(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file below a folder with its time of change and its content's hash."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files}


@pytest.mark.parametrize("kind", ODD)
def test_any_repository_can_be_released_and_is_only_read(kind, tmp_path, monkeypatch):
    source = odd(kind, tmp_path / "source")
    head = gitrepo.git("-C", str(source), "rev-parse", "HEAD")
    before = fingerprint(tmp_path / "source")
    world = World.set_up(source, tmp_path / "world")
    for name, value in world.environment().items():
        monkeypatch.setenv(name, value)
    clone, remote = str(world.clone), str(world.remote)
    history = gitrepo.read_history(clone)
    assert (history.base, bool(history.commits)) == (head, True)
    tag = drafter.by_rule(history).tag
    sha = gitrepo.release_commit(clone, history.branch, history.base, tag, "- notes")
    gitrepo.push_release(clone, remote, history.branch, sha, tag, bound_s=20)
    refs = gitrepo.remote_refs(remote)
    assert refs[f"refs/heads/{history.branch}"] == refs[f"refs/tags/{tag}^{{}}"] == refs["HEAD"] == sha
    assert gitrepo.git("-C", remote, "rev-parse", f"{sha}^") == head
    assert (world.clone / "CHANGELOG.md").read_text().startswith(f"# Changelog\n\n## {tag} (")
    assert gitrepo.git("-C", clone, "diff", "--stat", "HEAD") == ""
    assert (world.dropped, tag) == ((("v3.0.1",), "v3.0.1") if kind == "tag at head" else ((), "v0.1.0"))
    assert fingerprint(tmp_path / "source") == before


def test_what_cannot_be_released_is_refused_with_the_reason(tmp_path):
    gitrepo.git("init", "-q", str(tmp_path / "empty"))
    (tmp_path / "plain").mkdir()
    for name, why in (("empty", "Needed a single revision"), ("plain", "not a git repository"), ("none", "cannot")):
        with pytest.raises(WorldError, match=f"(?s){name} cannot be released from.*{why}"):
            World.set_up(tmp_path / name, tmp_path / f"world of {name}")
    with pytest.raises(WorldError, match="is not empty"):
        World.set_up(repository(tmp_path / "fine"), tmp_path)


# ---- the release commit --------------------------------------------------------------------------------------------


def state(repo: Path) -> str:
    return gitrepo.git("-C", str(repo), "for-each-ref")


def test_the_release_commit_does_not_depend_on_who_when_or_where(tmp_path, monkeypatch):
    source = repository(tmp_path / "source", "feat: begin", "fix: mend")
    made = set()
    for who in ("one", "two"):
        repo = tmp_path / who
        gitrepo.git("clone", "-q", str(source), str(repo))
        monkeypatch.setenv("GIT_AUTHOR_NAME", who)
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"2001-01-0{len(who)}T00:00:00Z")
        monkeypatch.setenv("TZ", "Asia/Tokyo" if who == "one" else "UTC")
        history = gitrepo.read_history(str(repo))
        sha = gitrepo.release_commit(str(repo), "trunk", history.base, "v0.1.0", "notes")
        after = state(repo)
        assert gitrepo.release_commit(str(repo), "trunk", history.base, "v0.1.0", "notes") == sha
        assert state(repo) == after
        made.add((sha, gitrepo.git("-C", str(repo), "rev-parse", "v0.1.0")))
    assert len(made) == 1


def test_killed_before_any_of_its_git_commands_the_release_commit_converges(tmp_path):
    source = repository(tmp_path / "source")
    base = gitrepo.git("-C", str(source), "rev-parse", "HEAD")
    shim = tmp_path / "bin" / "git"
    shim.parent.mkdir()
    counter = tmp_path / "count"
    real = subprocess.run(["sh", "-c", "command -v git"], capture_output=True, text=True, check=True).stdout.strip()
    shim.write_text(
        f"#!/bin/sh\nn=$(($(cat {counter}) + 1)); echo $n > {counter}\n"
        f'[ "$n" = "$KILL_AT" ] && kill -9 $PPID\nexec {real} "$@"\n'
    )
    shim.chmod(0o755)
    body = "import sys, gitrepo; print(gitrepo.release_commit(*sys.argv[1:]))"
    ends, kills = set(), 0
    while True:
        kills += 1
        repo = tmp_path / f"clone {kills}"
        gitrepo.git("clone", "-q", "--shared", str(source), str(repo))
        counter.write_text("0")
        env = dict(os.environ, PATH=f"{shim.parent}:{os.environ['PATH']}", PYTHONPATH=str(HERE), KILL_AT=str(kills))
        child = [sys.executable, "-c", body, str(repo), "trunk", base, "v0.1.0", "notes"]
        code = subprocess.run(child, env=env, capture_output=True, check=False).returncode
        sha = gitrepo.release_commit(str(repo), "trunk", base, "v0.1.0", "notes")
        ends.add((sha, gitrepo.git("-C", str(repo), "rev-parse", "trunk", "v0.1.0", "v0.1.0^{commit}")))
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert kills > 8
    assert len(ends) == 1


def moved_branch(repo: Path) -> None:
    commit(repo, "fix: somebody was faster")


def taken_tag(repo: Path) -> None:
    gitrepo.git("-C", str(repo), "tag", "v0.1.0")


def uncommitted(repo: Path) -> None:
    (repo / "CHANGELOG.md").write_text("a person's own words")


@pytest.mark.parametrize(
    ("spoil", "why"), [(moved_branch, "is at"), (taken_tag, "exists and names"), (uncommitted, "not committed")]
)
def test_a_release_commit_that_cannot_be_made_changes_nothing(spoil, why, tmp_path):
    repo = repository(tmp_path / "repo")
    base = gitrepo.git("-C", str(repo), "rev-parse", "HEAD")
    spoil(repo)
    before, files = state(repo), [path.read_bytes() for path in repo.glob("*.md")]
    with pytest.raises(gitrepo.Refused, match=f"{why}.*nothing was changed"):
        gitrepo.release_commit(str(repo), "trunk", base, "v0.1.0", "notes")
    assert (state(repo), [path.read_bytes() for path in repo.glob("*.md")]) == (before, files)


def test_a_changelog_that_is_a_link_is_refused(tmp_path):
    repo = repository(tmp_path / "repo")
    (repo / "CHANGELOG.md").symlink_to("elsewhere.md")
    gitrepo.git("-C", str(repo), "add", ".")
    base = commit(repo, "docs: link")
    with pytest.raises(gitrepo.Refused, match="no plain file"):
        gitrepo.release_commit(str(repo), "trunk", base, "v0.1.0", "notes")


def prepared(folder: Path) -> tuple[Path, Path, str]:
    """A clone with a release commit, its remote, and the commit."""
    remote = folder / "remote.git"
    gitrepo.git("clone", "-q", "--bare", str(repository(folder / "source")), str(remote))
    gitrepo.git("clone", "-q", str(remote), str(folder / "clone"))
    base = gitrepo.git("-C", str(folder / "clone"), "rev-parse", "HEAD")
    return folder / "clone", remote, gitrepo.release_commit(str(folder / "clone"), "trunk", base, "v0.1.0", "notes")


def test_a_push_that_git_refuses_says_no_and_leaves_neither_branch_nor_tag(tmp_path):
    clone, remote, sha = prepared(tmp_path)
    gitrepo.git("clone", "-q", str(remote), str(tmp_path / "other"))
    commit(tmp_path / "other", "fix: somebody was faster")
    gitrepo.git("-C", str(tmp_path / "other"), "push", "-q")
    before = gitrepo.remote_refs(str(remote))
    with pytest.raises(gitrepo.GitFailed) as refused:
        gitrepo.push_release(str(clone), str(remote), "trunk", sha, "v0.1.0", bound_s=20)
    assert gitrepo.said_no(refused.value)
    assert gitrepo.remote_refs(str(remote)) == before
    with pytest.raises(gitrepo.GitFailed) as unreachable:
        gitrepo.push_release(str(clone), str(tmp_path / "nowhere"), "trunk", sha, "v0.1.0", bound_s=20)
    assert not gitrepo.said_no(unreachable.value)


def test_a_push_whose_process_was_killed_ends_within_its_bound(tmp_path):
    """The agent's lag rests on this: past the bound an absent ref stays absent."""
    clone, remote, sha = prepared(tmp_path)
    fifo, hook = tmp_path / "fifo", remote / "hooks" / "pre-receive"
    os.mkfifo(fifo)
    hook.write_text(f"#!/bin/sh\necho $$ > {fifo}\nexec cat {fifo}\n")
    hook.chmod(0o755)
    body = "import sys, gitrepo; gitrepo.push_release(*sys.argv[1:], bound_s=1)"
    child = subprocess.Popen(
        [sys.executable, "-c", body, str(clone), str(remote), "trunk", sha, "v0.1.0"],
        env=dict(os.environ, PYTHONPATH=str(HERE)),
    )
    hanging = os.pidfd_open(int(fifo.read_text()))
    child.kill()
    child.wait()
    ended = select.select([hanging], [], [], 20)[0]
    os.close(hanging)
    assert ended
    assert "refs/tags/v0.1.0" not in gitrepo.remote_refs(str(remote))


# ---- the whole world -----------------------------------------------------------------------------------------------


def test_the_world_says_what_has_happened_also_after_a_restart_of_its_services(tmp_path):
    world = World.set_up(repository(tmp_path / "source"), tmp_path / "world")
    assert world.clone.is_dir()
    with world:
        processes = [service.process for service in world._services]
        far_side = http.client.HTTPConnection(world.registry.removeprefix("http://"), timeout=20)
        body = json.dumps({"version": "v0.1.0", "sha": "a" * 40, "body": "notes"})
        far_side.request("POST", "/releases", body, {"Idempotency-Key": "k1"})
        far_side.getresponse().read()
        far_side.close()
        with smtplib.SMTP(world.smtp_host, world.smtp_port, local_hostname="localhost", timeout=20) as server:
            server.sendmail("a@x", ["team@x"], b"To: team@x\r\nSubject: Released\r\nMessage-ID: <1@x>\r\n\r\nhello\r\n")
        said = world.said()
    assert [process.returncode is None for process in processes] == [False, False]
    assert sorted(said.refs) == ["HEAD", "refs/heads/trunk"]
    assert said.registrations == (Registration(version="v0.1.0", sha="a" * 40, key="k1"),)
    assert said.mails == (Mail(to="team@x", subject="Released", message_id="<1@x>"),)
    with world:
        assert world.said() == said


def test_the_services_end_when_the_process_that_started_them_is_killed(tmp_path):
    repository(tmp_path / "source")
    body = (
        "import sys, world; from pathlib import Path\n"
        "with world.World.set_up(*map(Path, sys.argv[1:])) as w:\n"
        "    print(*(one.process.pid for one in w._services), flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", body, str(tmp_path / "source"), str(tmp_path / "world")],
        env=dict(os.environ, PYTHONPATH=str(HERE)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    handles = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.communicate()
    ended = [bool(select.select([handle], [], [], 20)[0]) for handle in handles]
    for handle, gone in zip(handles, ended, strict=True):
        if not gone:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
    assert ended == [True, True]
