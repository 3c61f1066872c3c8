"""The world that the release agent acts on, and what it says afterwards.

    with World.set_up(Path("some/repository"), Path("work")) as world:
        world.clone, world.remote, world.registry, world.smtp_port      what the agent is given
        world.said()                                                    what has happened, as plain data

Given any git repository it makes a working clone, a bare remote, and starts the two services as processes of
their own. It knows nothing of poimen: it is the independent witness. It keeps one invariant: the repository it
is given is only read.
"""

from __future__ import annotations

import http.client
import json
import select
import subprocess
import sys
from dataclasses import dataclass
from email import policy
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import gitrepo
import notes

if TYPE_CHECKING:
    from types import TracebackType

HERE: Final = Path(__file__).resolve().parent
DEFAULT_SOURCE: Final = HERE.parents[1]
"""The repository that this example lives in."""

_START_S: Final = 30
_STOP_S: Final = 5
_BRANCH: Final = "main"


class WorldError(Exception):
    """The world cannot be set up or read: the message says what, where and how to go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One entry at the registry."""

    version: str
    sha: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """One message in the spool."""

    to: str
    subject: str
    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the world says at one moment.

    Arguments:
        made: the clone's refs, name to object id; an annotated tag is there peeled as `NAME^{}` too.
        refs: the remote's refs, likewise.
        registrations: the registry's entries, oldest first.
        mails: the accepted messages, oldest first.
    """

    made: dict[str, str]
    refs: dict[str, str]
    registrations: tuple[Registration, ...]
    mails: tuple[Mail, ...]


class Service:
    """A process of its own that says on its first line which port it serves."""

    def __init__(self, script: str, *args: str, log: Path) -> None:
        """Start it; it ends when it is stopped, and also when this process is gone.

        Arguments:
            script: a file of this folder.
            args: its arguments.
            log: where its standard error goes.
        """
        self.name = script
        self._log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / script), *args, "--until-stdin-closes"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    def port(self) -> int:
        """The port it serves; waits until it does.

        Raises:
            WorldError: when it ends or stays silent.
        """
        out = self.process.stdout
        line = b""
        if out is not None and select.select([out], [], [], _START_S)[0]:
            line = out.readline()
        try:
            return int(json.loads(line)["port"])
        except (ValueError, KeyError):
            self.stop()
            said = self._log.read_text(encoding="utf-8", errors="replace").strip()
            msg = f"{self.name} did not start (its log {self._log} says: {said or 'nothing'})"
            raise WorldError(msg) from None

    def stop(self) -> None:
        """End it, by force if it does not end by itself; a second time is nothing."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class World:
    """A clone, a remote, a registry and a mail server in one folder."""

    def __init__(self, folder: Path) -> None:
        """Name the places; `set_up` fills them."""
        self.folder = folder
        self.clone = folder / "clone"
        self.remote = folder / "remote.git"
        self.entries = folder / "releases.jsonl"
        self.spool = folder / "spool"
        self.branch = ""
        self.dropped: tuple[str, ...] = ()
        self.registry = ""
        self.smtp_host = "127.0.0.1"
        self.smtp_port = 0
        self._services: list[Service] = []

    @classmethod
    def set_up(cls, source: Path, folder: Path) -> World:
        """Clone a repository twice, as the agent's working clone and as the bare remote it pushes to.

        A release tag on the very commit that is checked out is left out of both (`dropped`): there would be
        nothing to release.

        Arguments:
            source: any git repository with a commit: shallow, bare, detached, with a dirty tree, without tags.
            folder: where to put the world; made when absent, must be empty.

        Raises:
            WorldError: when the source cannot be read or the folder is not empty.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            msg = f"{folder} is not empty; give another folder for the world"
            raise WorldError(msg)
        world = cls(folder.resolve())
        world._write_config(source)
        try:
            top, head, branch = world._look_at(source)
            world._copy(top, head, branch)
        except gitrepo.GitFailed as error:
            msg = f"{source} cannot be released from: {error}; name another repository, one with a commit"
            raise WorldError(msg) from error
        return world

    def environment(self) -> dict[str, str]:
        """What git needs in its environment to behave the same on every machine."""
        return {
            "GIT_CONFIG_GLOBAL": str(self.folder / "gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_LFS_SKIP_SMUDGE": "1",
        }

    def start(self) -> None:
        """Start both services, on the files they had before, if any.

        Raises:
            WorldError: when one does not start; none is left running.
        """
        log = self.folder / "services.log"
        try:
            registry = Service("registry_service.py", "--file", str(self.entries), log=log)
            self._services.append(registry)
            mail = Service("mail_service.py", "--spool", str(self.spool), log=log)
            self._services.append(mail)
            self.registry = f"http://127.0.0.1:{registry.port()}"
            self.smtp_port = mail.port()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End both services; their files stay."""
        for service in self._services:
            service.stop()
        self._services = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def said(self) -> Said:
        """What the remote, the registry and the spool say now.

        Raises:
            WorldError: when the registry does not answer.
        """
        entries = _get_json(self.registry, "/releases")["releases"]
        return Said(
            made=gitrepo.remote_refs(str(self.clone), env=self.environment()),
            refs=gitrepo.remote_refs(str(self.remote), env=self.environment()),
            registrations=tuple(
                Registration(version=entry["version"], sha=entry["sha"], key=entry["key"]) for entry in entries
            ),
            mails=tuple(_mail(path) for path in sorted((self.spool / "new").glob("*.eml"))),
        )

    def _write_config(self, source: Path) -> None:
        """A git configuration of the world's own: no hooks, signatures or filters of this machine's user."""
        # Git refuses a repository that belongs to another user; the one that was named is meant.
        trusted = sorted({place for path in (source.absolute(), source.resolve()) for place in (path, path / ".git")})
        lines = ["[user]", f'\tname = "{gitrepo.NAME}"', f'\temail = "{gitrepo.EMAIL}"', "[safe]"]
        lines += [f'\tdirectory = "{_quoted(place)}"' for place in trusted]
        lines += ["[init]", f"\tdefaultBranch = {_BRANCH}", "[advice]", "\tdetachedHead = false", "[gc]", "\tauto = 0"]
        (self.folder / "gitconfig").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _look_at(self, source: Path) -> tuple[Path, str, str]:
        """Where the source's top is, which commit it has checked out, and on which branch."""
        env = self.environment()
        top = gitrepo.top_of(source, env=env)
        head = gitrepo.git("-C", str(top), "rev-parse", "--verify", "HEAD^{commit}", env=env)
        try:
            branch = gitrepo.git("-C", str(top), "symbolic-ref", "--short", "HEAD", env=env)
        except gitrepo.GitFailed:
            branch = _BRANCH
        return top, head, branch

    def _copy(self, top: Path, head: str, branch: str) -> None:
        """The two clones. Objects are shared with the source, which is thereby neither copied nor written."""
        self.branch, env = branch, self.environment()
        gitrepo.git("clone", "--quiet", "--bare", "--shared", str(top), str(self.remote), env=env)
        gitrepo.git("-C", str(self.remote), "update-ref", f"refs/heads/{branch}", head, env=env)
        gitrepo.git("-C", str(self.remote), "symbolic-ref", "HEAD", f"refs/heads/{branch}", env=env)
        at_head = gitrepo.git("-C", str(self.remote), "tag", "--points-at", head, env=env).splitlines()
        self.dropped = tuple(tag for tag in at_head if notes.parse(tag) is not None)
        if self.dropped:
            gitrepo.git("-C", str(self.remote), "tag", "--delete", *self.dropped, env=env)
        # Sparse: only the top folder's files are checked out, which is all that the agent touches.
        gitrepo.git("clone", "--quiet", "--shared", "--sparse", str(self.remote), str(self.clone), env=env)


def _get_json(address: str, path: str) -> Any:
    """What a service of the world answers to a GET."""
    far_side = http.client.HTTPConnection(address.removeprefix("http://"), timeout=10)
    try:
        far_side.request("GET", path)
        return json.loads(far_side.getresponse().read())
    except (OSError, ValueError) as error:
        msg = f"the registry at {address} cannot be read: {error}"
        raise WorldError(msg) from error
    finally:
        far_side.close()


def _mail(path: Path) -> Mail:
    with path.open("rb") as file:
        header = BytesHeaderParser(policy=policy.default).parse(file)
    return Mail(to=str(header["To"]), subject=str(header["Subject"]), message_id=str(header["Message-ID"]))


def _quoted(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')
