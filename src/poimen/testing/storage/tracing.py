"""Counts the syncs of an unmodified child from outside, by strace, and lets its system calls fail.

What the kernel was asked for is the last word on what was synced. This module must never skip: where strace
is missing, that is an error. It keeps the invariant that a count is of calls that the child has made itself or
that its threads and children have made.

Source: design proof.md, P5, P7 ("A missing tool is a failure, not a skip").
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from poimen.kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SYNCS: Final = ("fsync", "fdatasync")
"""The system calls that make a file durable."""

_CALL: Final = re.compile(r"^\d+ +(\w+)\(\d+<([^>]*)>", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What a child did under strace.

    Arguments:
        returncode: the child's; -9 when it was killed.
        calls: how often each call was made on each file: `{(call, path): n}`.
        stdout, stderr: what it printed.
    """

    returncode: int
    calls: Mapping[tuple[str, str], int]
    stdout: str
    stderr: str

    def syncs(self, path: str | os.PathLike[str]) -> int:
        """How often a file was synced, by either call.

        Arguments:
            path: the file's.
        """
        real = os.path.realpath(path)
        return sum(self.calls.get((call, real), 0) for call in SYNCS)

    def wal_syncs(self, db: str | os.PathLike[str]) -> int:
        """How often a database's -wal file was synced: one for each commit.

        Arguments:
            db: the database's path.
        """
        return self.syncs(f"{os.path.realpath(db)}-wal")


def strace_command(
    *, output: str | os.PathLike[str], calls: Sequence[str] = SYNCS, inject: str = "", only: str | os.PathLike[str] = ""
) -> list[str]:
    """The beginning of a command line that runs what follows under strace, threads and children included.

    Arguments:
        output: the file that takes the trace.
        calls: the system calls to see.
        inject: what to do to them, such as `error=EIO:when=5` (of each of `calls`, counted together); see strace(1).
        only: see and inject calls on this file alone.

    Raises:
        ConfigurationError: strace is not installed.
    """
    found = shutil.which("strace")
    if found is None:
        raise ConfigurationError(
            "strace is not installed",
            why="without it nothing outside the process says what was synced",
            hint="install it (Debian, Ubuntu: apt-get install strace), and allow ptrace",
        )
    command = [found, "-f", "-y", "-qq", "-o", os.fspath(output), "-e", f"trace={','.join(calls)}"]
    if inject:
        command += ["-e", f"inject={','.join(calls)}:{inject}"]
    else:
        command.append("--seccomp-bpf")  # only the calls that are seen stop the child; injecting needs it without
    if only:
        command += ["-P", os.path.realpath(only)]
    return command


def straced(
    command: Sequence[str],
    *,
    folder: str | os.PathLike[str],
    calls: Sequence[str] = SYNCS,
    inject: str = "",
    only: str | os.PathLike[str] = "",
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> Traced:
    """Run a command under strace, and count its calls by file.

    Arguments:
        command: such as `child_command(...)` gives.
        folder: takes the trace.
        calls: the system calls to see.
        inject: what to do to them, as for `strace_command`.
        only: see and inject calls on this file alone.
        env: variables to set.
        timeout_s: how long it may take, seconds.

    Raises:
        ConfigurationError: strace is not installed.
        subprocess.TimeoutExpired: the child took too long; it is gone.

    Source: design proof.md, P5.
    """
    trace = Path(folder) / "trace"
    done = subprocess.run(  # noqa: S603 (the caller's own program)
        [*strace_command(output=trace, calls=calls, inject=inject, only=only), *command],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        timeout=timeout_s,
    )
    found = Counter(_CALL.findall(trace.read_text(encoding="utf-8", errors="replace")) if trace.exists() else ())
    return Traced(returncode=done.returncode, calls=found, stdout=done.stdout, stderr=done.stderr)
