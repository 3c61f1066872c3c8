"""Git, as the release agent needs it: read the history, make the release commit, push, ask the remote.

Knows nothing of poimen: plain functions over the git command. It keeps one invariant: making a release
commit again gives the same object ids, because its tree, its message, its names and its dates come from
the arguments and from the commit it stands on, never from a clock or from a person's configuration.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import notes

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME: Final = "release agent"
EMAIL: Final = "release-agent@localhost"
CHANGELOG: Final = "CHANGELOG.md"
MOST_COMMITS: Final = 500
"""So many commits are read one by one; older ones are only counted."""

# What makes git work on another repository than the one it is told (git rev-parse --local-env-vars).
_MISLEADING: Final = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CEILING_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)
_REGULAR: Final = (b"100644", b"100755")
_SLACK_S: Final = 0.5


class GitFailed(Exception):
    """Git ended badly; the message has the command and what git said.

    Arguments:
        command: what was run.
        code: how it ended; negative or above 128 when a signal ended it.
        said: its standard error.
    """

    def __init__(self, command: str, code: int, said: str) -> None:
        super().__init__(f"{command} ended {code}: {said.strip() or 'it said nothing'}")
        self.code = code
        self.said = said


class Refused(Exception):
    """The release commit cannot be made, and nothing was changed: the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit, as much of it as release notes need."""

    sha: str
    title: str
    breaking: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What happened since the last release.

    Arguments:
        branch: the branch that HEAD names, without `refs/heads/`.
        base: the commit that HEAD names.
        since: the last release's tag; empty when there is none.
        taken: version tags above `since` that are not part of this history.
        commits: newest first, at most `MOST_COMMITS`.
        omitted: how many older ones are not listed.
    """

    branch: str
    base: str
    since: str
    taken: list[str]
    commits: list[Commit]
    omitted: int


def git_bytes(
    *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None, bound_s: float | None = None
) -> bytes:
    """Run git and give its standard output.

    Arguments:
        args: git's arguments; `-C PATH` says where.
        stdin: what it reads.
        env: variables to add.
        bound_s: seconds after which it is ended *even if this process is gone by then* (where the system
            has the `timeout` command), so that a caller may rely on it after a crash.

    Raises:
        GitFailed: when it ends badly.
        subprocess.TimeoutExpired: past `bound_s` where there is no `timeout` command.
    """
    bounded = shutil.which("timeout") if bound_s is not None else None
    prefix = [bounded, "-s", "KILL", f"{bound_s:g}"] if bounded is not None else []
    done = subprocess.run(
        [*prefix, "git", *args],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=None if bound_s is None else bound_s + _SLACK_S,
        env=_environment() | dict(env or {}),
    )
    if done.returncode != 0:
        raise GitFailed("git " + " ".join(args), done.returncode, done.stderr.decode("utf-8", "replace"))
    return done.stdout


def git(*args: str, env: Mapping[str, str] | None = None, stdin: bytes = b"", bound_s: float | None = None) -> str:
    """Run git and give its standard output as text without the last line's end; see `git_bytes`."""
    return git_bytes(*args, stdin=stdin, env=env, bound_s=bound_s).decode("utf-8", "replace").rstrip("\n")


def read_history(repo: str) -> History:
    """The commits of HEAD since the highest version tag below it.

    Arguments:
        repo: path of a clone whose HEAD is on a branch with at least one commit.

    Raises:
        GitFailed: when there is no commit, or HEAD is not on a branch.
    """
    base = git("-C", repo, "rev-parse", "--verify", "HEAD^{commit}")
    branch = git("-C", repo, "symbolic-ref", "--short", "HEAD")
    merged = git("-C", repo, "tag", "--merged", base).splitlines()
    since = notes.highest(merged)
    below = notes.parse(since)
    others = sorted(set(git("-C", repo, "tag").splitlines()) - set(merged))
    taken = [tag for tag in others if (found := notes.parse(tag)) is not None and (below is None or found > below)]
    span = f"refs/tags/{since}..{base}" if since else base
    total = int(git("-C", repo, "rev-list", "--count", span))
    said = git(
        *("-C", repo, "-c", "i18n.logOutputEncoding=UTF-8", "log", "-z", "--no-show-signature"),
        *(f"--max-count={MOST_COMMITS}", "--format=tformat:%H%x00%s%x00%b", span),
    )
    parts = said.split("\0")[:-1]
    commits = [_commit(*parts[at : at + 3]) for at in range(0, len(parts), 3)]
    return History(branch=branch, base=base, since=since, taken=taken, commits=commits, omitted=total - len(commits))


def release_commit(repo: str, branch: str, base: str, tag: str, body: str) -> str:
    """Commit the changelog entry on top of `base`, create the tag, and give the commit's id.

    Repeating it converges: the objects are the same ones, a ref that is already there stays, and the branch
    moves only from `base`; a late repetition by a process believed dead changes nothing.

    Arguments:
        repo: path of the clone.
        branch: the branch to move, without `refs/heads/`.
        base: the commit it stands on.
        tag: the release's tag, annotated.
        body: the notes, markdown.

    Raises:
        Refused: when the branch has moved on, the tag names something else, the changelog is no plain file, or
            the working tree has changes in it that are not committed.
        GitFailed: when git fails otherwise.
    """
    seconds = git("-C", repo, "show", "-s", "--no-show-signature", "--format=%ct", base)
    day = datetime.fromtimestamp(int(seconds), UTC).date().isoformat()
    message = f"chore(release): {tag}\n"
    who = {
        f"GIT_{role}_{part}": value
        for role in ("AUTHOR", "COMMITTER")
        for part, value in (("NAME", NAME), ("EMAIL", EMAIL), ("DATE", f"@{seconds} +0000"))
    }
    commit = git(
        *("-C", repo, "-c", "i18n.commitEncoding=UTF-8", "commit-tree", _tree(repo, base, tag, day, body), "-p", base),
        stdin=message.encode(),
        env=who,
    )
    annotation = f"object {commit}\ntype commit\ntag {tag}\ntagger {NAME} <{EMAIL}> {seconds} +0000\n\nRelease {tag}\n"
    tag_object = git("-C", repo, "mktag", stdin=annotation.encode())
    bare = git("-C", repo, "rev-parse", "--is-bare-repository") == "true"
    if not bare:
        _keep_uncommitted(repo, base, commit)
    _move_refs(repo, (f"refs/heads/{branch}", base, commit), (f"refs/tags/{tag}", tag_object))
    if not bare:
        git("-C", repo, "checkout", "-q", commit, "--", CHANGELOG)
    return commit


def push_release(repo: str, remote: str, branch: str, sha: str, tag: str, *, bound_s: float) -> None:
    """Push the branch and the tag, both or neither.

    Arguments:
        repo: path of the clone.
        remote: a remote's name, path or address.
        branch: the branch at the remote, without `refs/heads/`.
        sha: the commit it shall name.
        tag: the tag to push with it.
        bound_s: seconds after which git is ended.

    Raises:
        GitFailed: see `said_no` for the case that nothing was changed.
    """
    refs = (f"{sha}:refs/heads/{branch}", f"refs/tags/{tag}:refs/tags/{tag}")
    git("-C", repo, "push", "--quiet", "--no-verify", "--atomic", remote, *refs, bound_s=bound_s)


def said_no(error: BaseException) -> bool:
    """Whether git reported that the remote refused the push: an atomic push then changed nothing."""
    return isinstance(error, GitFailed) and ("[rejected]" in error.said or "[remote rejected]" in error.said)


def remote_refs(
    remote: str, *patterns: str, bound_s: float | None = None, env: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The refs of a remote by name; an annotated tag is there twice, peeled as `NAME^{}`.

    Arguments:
        remote: path or address.
        patterns: such as `refs/tags/v1.0.0*`; none for all.
        bound_s: seconds after which git is ended.
        env: variables to add.

    Raises:
        GitFailed: when the remote cannot be read.
    """
    lines = git("ls-remote", remote, *patterns, bound_s=bound_s, env=env).splitlines()
    return {name: sha for sha, _, name in (line.partition("\t") for line in lines)}


def _environment() -> dict[str, str]:
    """This process's environment without what leads git astray; git answers in English and never asks."""
    kept = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    return kept | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}


def _commit(sha: str, title: str, text: str) -> Commit:
    """One commit from three fields of `git log`."""
    breaking = any(line.startswith(("BREAKING CHANGE:", "BREAKING-CHANGE:")) for line in text.splitlines())
    return Commit(sha=sha, title=notes.one_line(title), breaking=breaking)


def _tree(repo: str, base: str, tag: str, day: str, body: str) -> str:
    """The tree of `base` with the changelog entry added; written without touching the index."""
    entries = [line for line in git_bytes("-C", repo, "ls-tree", "-z", base).split(b"\0") if line]
    mode, old = _REGULAR[0], b""
    kept: list[bytes] = []
    for entry in entries:
        facts, _, name = entry.partition(b"\t")
        if name != CHANGELOG.encode():
            kept.append(entry)
            continue
        mode, _, blob = facts.split(b" ")
        if mode not in _REGULAR:
            msg = f"{CHANGELOG} in {base[:12]} is no plain file (mode {mode.decode()}); nothing was changed"
            raise Refused(msg)
        old = git_bytes("-C", repo, "cat-file", "blob", blob.decode())
    new = notes.with_entry(old, tag=tag, day=day, body=body)
    written = git("-C", repo, "hash-object", "-w", "--stdin", "--no-filters", stdin=new)
    kept.append(mode + b" blob " + written.encode() + b"\t" + CHANGELOG.encode())
    return git("-C", repo, "mktree", "-z", stdin=b"".join(entry + b"\0" for entry in kept))


def _keep_uncommitted(repo: str, *commits: str) -> None:
    """Refuse when the changelog in the working tree is not the one of any of `commits`."""
    if not os.path.lexists(Path(repo, CHANGELOG)):
        return
    known = {git("-C", repo, "rev-parse", "-q", "--verify", f"{one}:{CHANGELOG}") for one in commits if _has(repo, one)}
    if git("-C", repo, "hash-object", CHANGELOG) not in known:
        msg = f"{CHANGELOG} in {repo} has changes that are not committed; commit or drop them; nothing was changed"
        raise Refused(msg)


def _has(repo: str, commit: str) -> bool:
    """Whether a commit has a changelog at all."""
    return git("-C", repo, "ls-tree", commit, "--", CHANGELOG) != ""


def _move_refs(repo: str, branch: tuple[str, str, str], tag: tuple[str, str]) -> None:
    """Move the branch and create the tag in one transaction; what is already done is left alone."""
    branch_ref, base, commit = branch
    tag_ref, tag_object = tag
    found = {name: _ref(repo, name) for name in (branch_ref, tag_ref)}
    if found[branch_ref] not in (base, commit):
        msg = f"{branch_ref} is at {found[branch_ref][:12] or 'nothing'}, not at {base[:12]}; nothing was changed"
        raise Refused(msg)
    if found[tag_ref] not in ("", tag_object):
        msg = f"{tag_ref} exists and names {found[tag_ref][:12]}; nothing was changed"
        raise Refused(msg)
    moves = ""
    if found[branch_ref] == base:
        moves += f"update {branch_ref} {commit} {base}\n"
    if not found[tag_ref]:
        moves += f"create {tag_ref} {tag_object}\n"
    if moves:
        git("-C", repo, "update-ref", "--stdin", "-m", "release", stdin=moves.encode())


def _ref(repo: str, name: str) -> str:
    """The object that a ref names; empty when there is no such ref."""
    found = git("-C", repo, "for-each-ref", "--format=%(objectname)", name)
    return found.splitlines()[0] if found else ""


def top_of(path: Path, *, env: Mapping[str, str] | None = None) -> Path:
    """The top folder of the working tree that `path` is in, or the folder of a bare repository.

    Arguments:
        path: any folder in it.
        env: variables to add.

    Raises:
        GitFailed: when `path` is in no repository.
    """
    wanted = "--show-toplevel"
    if git("-C", str(path), "rev-parse", "--is-bare-repository", env=env) == "true":
        wanted = "--absolute-git-dir"
    return Path(git("-C", str(path), "rev-parse", wanted, env=env))
