"""An agent that releases software: reads the history, drafts the notes, decides, commits, pushes, registers, mails.

Each act on the world declares what may be done with it after a crash. The tools are thin: what they do is in
`gitrepo.py` and `drafter.py`, which know nothing of poimen.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import smtplib
import socket
from dataclasses import dataclass
from datetime import timedelta
from email.message import EmailMessage
from email.utils import formatdate
from urllib.parse import urlsplit

import drafter
import gitrepo
import notes
import poimen
from gitrepo import History
from poimen import Absent, Landed, Unknown, effects

PUSH_S = 5
REFUSED = (smtplib.SMTPSenderRefused, smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError)
NO_CONNECTION = (ConnectionRefusedError, socket.gaierror)


@dataclass(frozen=True)
class Notes:
    """What the model step has drafted."""

    tag: str
    body: str


@poimen.tool(effect=effects.READ, timeout=30, attempts=3, summary="read the history of {repo}")
def history(repo: str) -> History:
    """The commits since the last release."""
    return gitrepo.read_history(repo)


@poimen.model(timeout=60, attempts=3, backoff=2)
async def draft(changes: History) -> Notes:
    """The notes and the proposed version; the local drafter, or the endpoint that the environment names."""
    written = await asyncio.to_thread(drafter.draft, changes)
    return Notes(written.tag, written.body)


@poimen.tool(effect=effects.IDEMPOTENT, rejected=gitrepo.Refused, summary="commit the changelog and create {tag}")
def commit_changelog(repo: str, branch: str, base: str, tag: str, body: str) -> str:
    """The release commit's id.

    Repeating it gives the same objects and moves the branch from `base` only, so that even the git of a process
    believed dead may finish late.
    """
    return gitrepo.release_commit(repo, branch, base, tag, body)


def find_push(repo: str, remote: str, branch: str, sha: str, tag: str) -> Landed[str] | Absent | Unknown:  # noqa: ARG001
    """Ask the remote whether the push has landed (a probe takes its tool's parameters)."""
    refs = gitrepo.remote_refs(remote, f"refs/tags/{tag}", f"refs/tags/{tag}^{{}}", bound_s=PUSH_S)
    found = refs.get(f"refs/tags/{tag}^{{}}", refs.get(f"refs/tags/{tag}", ""))
    if found == sha:  # the branch and the tag are pushed both or neither, so the tag tells for both
        return Landed(sha, evidence=f"refs/tags/{tag} names {sha} at {remote}")
    if found:
        return Unknown(f"refs/tags/{tag} at {remote} names {found}, which is not ours")
    return Absent(evidence=f"there is no refs/tags/{tag} at {remote}")


@poimen.tool(
    effect=effects.PROBE(find_push, lag=timedelta(seconds=1)),
    rejected=gitrepo.said_no,
    timeout=PUSH_S,
    grace=1,
    summary="push {branch} and {tag} to {remote}",
)
def push(repo: str, remote: str, branch: str, sha: str, tag: str) -> str:
    """Push the branch and the tag, both or neither.

    When this process is killed its git may go on, for `PUSH_S` at most; the lag is for what the remote still does
    then. The probe believes an absence only after that.
    """
    gitrepo.push_release(repo, remote, branch, sha, tag, bound_s=PUSH_S)
    return sha


@poimen.tool(
    effect=effects.KEYED(ttl=timedelta(hours=24)),
    not_sent=NO_CONNECTION,
    attempts=5,
    backoff=1,
    summary="register {tag} at {registry}",
)
def register(registry: str, tag: str, sha: str, body: str) -> str:
    """The release's address at the registry, which dedupes on the request id."""
    address = urlsplit(registry)
    connect = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    far_side = connect(address.netloc, timeout=10)
    headers = {"Content-Type": "application/json", "Idempotency-Key": poimen.request_id()}
    try:
        far_side.request("POST", "/releases", json.dumps({"version": tag, "sha": sha, "body": body}), headers)
        answer = far_side.getresponse()
        said = answer.read().decode("utf-8", "replace")
    finally:
        far_side.close()
    code = answer.status
    if code in (400, 404, 411, 413, 422):
        raise poimen.Rejected(f"{registry} answered {code}: {said}")
    if code != http.client.CREATED:  # in flight, unavailable: whether it is registered is not known
        raise OSError(f"{registry} answered {code}: {said}")
    return registry + answer.headers["Location"]


@poimen.tool(
    effect=effects.AT_MOST_ONCE, rejected=REFUSED, not_sent=NO_CONNECTION, attempts=3, summary="mail {to}: {subject}"
)
def announce(smtp_host: str, smtp_port: int, to: str, subject: str, body: str) -> None:
    """Send the mail; it carries the request id, so that a person can look for it."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = gitrepo.EMAIL, to, subject
    mail["Date"], mail["Message-ID"] = formatdate(), notes.message_id(poimen.request_id())
    mail.set_content(body)
    with smtplib.SMTP(smtp_host, smtp_port, local_hostname="localhost", timeout=30) as server:
        server.send_message(mail)


@poimen.workflow
async def release(  # noqa: PLR0917 (a call by hand names what it gives)
    repo: str, remote: str, registry: str, smtp_host: str, smtp_port: int, to: str
) -> str:
    """Release `repo` and tell what was released."""
    changes = await history.aio(repo)
    if not changes.commits:
        return f"nothing to release since {changes.since}"
    drafted = await draft(changes)
    tag = poimen.decide("version", drafted.tag)  # durable before anything is done about it
    sha = await commit_changelog.aio(repo, changes.branch, changes.base, tag, drafted.body)
    await push.aio(repo, remote, changes.branch, sha, tag)
    url = await register.aio(registry, tag, sha, drafted.body)
    await announce.aio(smtp_host, smtp_port, to, f"Released {tag}", f"{drafted.body}\n\n{url}\n")
    poimen.settle("version")
    return f"released {tag} as {sha[:12]}, {url}"
