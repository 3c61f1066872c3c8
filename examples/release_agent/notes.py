"""What a release is called and how its notes are laid out: plain text rules.

Pure: knows nothing of git, files, networks or poimen. It keeps one invariant: the same input gives the
same bytes, so that whoever writes a changelog entry again writes the same one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Bump: TypeAlias = Literal["major", "minor", "patch"]

FIRST: Final = "v0.1.0"
"""The tag of a first release."""

_TAG: Final = re.compile(r"(v?)(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})")
_HEADING: Final = re.compile(rb"^## .*$", re.MULTILINE)
_TITLE: Final = "# Changelog\n\n"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Version:
    """The three numbers of a release tag."""

    major: int
    minor: int
    patch: int


def parse(tag: str) -> Version | None:
    """The version that a tag names; None for any other tag (pre-releases among them).

    Arguments:
        tag: such as `v1.4.0` or `1.4.0`.
    """
    found = _TAG.fullmatch(tag)
    if found is None:
        return None
    return Version(major=int(found[2]), minor=int(found[3]), patch=int(found[4]))


def highest(tags: list[str]) -> str:
    """The tag of the highest version among `tags`; empty when none of them names a version."""
    named = [(version, tag) for tag in tags if (version := parse(tag)) is not None]
    return max(named)[1] if named else ""


def next_tag(since: str, bump: Bump, taken: list[str]) -> str:
    """The tag of the next release, in the spelling of the last one.

    Before 1.0.0 a breaking change raises the second number, as Semantic Versioning 2.0.0 (rule 4) allows.

    Arguments:
        since: the last release's tag; empty when there is none.
        bump: what the changes ask for.
        taken: tags that exist elsewhere and may not be used again.
    """
    last = parse(since)
    spelling = "" if last is not None and not since.startswith("v") else "v"
    if last is None:
        found = Version(major=0, minor=1, patch=0)
    elif bump == "major" and last.major > 0:
        found = Version(major=last.major + 1, minor=0, patch=0)
    elif bump == "patch":
        found = Version(major=last.major, minor=last.minor, patch=last.patch + 1)
    else:
        found = Version(major=last.major, minor=last.minor + 1, patch=0)
    used = {parse(tag) for tag in taken}
    while found in used:
        found = Version(major=found.major, minor=found.minor, patch=found.patch + 1)
    return f"{spelling}{found.major}.{found.minor}.{found.patch}"


def one_line(text: str) -> str:
    """`text` on one line, without control characters (commit messages are other people's text)."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def message_id(request_id: str) -> str:
    """The Message-ID of the mail that announces a release, by the request id of the effect."""
    return f"<{request_id}@poimen>"


def with_entry(old: bytes, *, tag: str, day: str, body: str) -> bytes:
    """A changelog with one more entry on top, below an `Unreleased` section if there is one.

    Arguments:
        old: the changelog as it was, empty for a new one; its line ends and its encoding are left alone.
        tag: the release's tag.
        day: the release's day, `YYYY-MM-DD`.
        body: the notes, markdown.
    """
    entry = f"## {tag} ({day})\n\n{body.strip()}\n\n"
    if not old:
        return f"{_TITLE}{entry}".rstrip("\n").encode() + b"\n"
    end = b"\r\n" if b"\r\n" in old else b"\n"
    raw = entry.encode().replace(b"\n", end)
    headings = [found for found in _HEADING.finditer(old) if b"unreleased" not in found[0].lower()]
    if headings:
        at = headings[0].start()
        return old[:at] + raw + old[at:]
    return old.rstrip(b"\r\n") + end * 2 + raw.rstrip(b"\r\n") + end
