"""Storage that fails on purpose: which call, when, with which error, once or from then on.

This module must never decide what a failure means to poimen; it keeps the invariant that a fault of a given number
strikes the same call each time that the same calls are made.

Source: design proof.md, P7.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from poimen.kernel.errors import ConfigurationError
from poimen.testing.storage.layer import Layer

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

FaultyCall: TypeAlias = Literal["write", "sync", "read", "truncate"]
"""What can be made to fail. The sync of a folder is a sync too."""

CALLS: Final[tuple[FaultyCall, ...]] = ("write", "sync", "read", "truncate")

ErrorName: TypeAlias = Literal["EIO", "ENOSPC"]
"""`EIO`: the disk says no; `ENOSPC`: no space is left."""

ERRORS: Final[tuple[ErrorName, ...]] = ("EIO", "ENOSPC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way in which storage fails.

    A write is done by half before it fails. A sync that fails has dropped what it should have kept: later syncs
    succeed and do not bring it back, as Linux does it.

    Arguments:
        call: `write`, `sync`, `read` or `truncate`.
        nth: at the how-manieth call of this kind, from 1, of the files that it concerns.
        error: `EIO` (the disk) or `ENOSPC` (no space left; not for `read`).
        sticky: every later call of the kind fails too.
        only: a pattern of file names, such as `*-wal`; others go well and are not counted.

    Raises:
        ConfigurationError: there is no such fault.
    """

    call: FaultyCall
    nth: int
    error: ErrorName = "EIO"
    sticky: bool = False
    only: str = "*"

    def __post_init__(self) -> None:
        if self.call not in CALLS or self.error not in ERRORS or (self.call, self.error) == ("read", "ENOSPC"):
            raise ConfigurationError(
                f"no storage fails with {self.error} on {self.call}",
                hint=f"one of {', '.join(CALLS)}; {' or '.join(ERRORS)}, a read with EIO alone",
            )
        if self.nth < 1:
            raise ConfigurationError(f"the {self.nth}th call cannot fail", hint="the first one is 1")

    def concerns(self, name: str) -> bool:
        """Whether it is about a file of this name."""
        return fnmatchcase(name.rpartition("/")[2], self.only)

    def strikes(self, call: str, n: int) -> bool:
        """Whether the `n`-th call of this kind fails."""
        return call == self.call and (n >= self.nth if self.sticky else n == self.nth)


@contextmanager
def faulty_storage(db: str | os.PathLike[str], fault: Fault) -> Iterator[Layer]:
    """Let one call on the files of a database fail, for everything that this process opens inside the block.

    Arguments:
        db: the database's path. All files in its folder are concerned, large bodies and the anchor too.
        fault: what fails.

    Returns:
        The layer: `struck` says how often the fault has struck, `calls` how many calls of each kind there were.

    Raises:
        StorageFailed: the system does not tell which file a descriptor is (there is no `/proc`).

    Source: design proof.md, P7.
    """
    with Layer(Path(db).parent, fault=fault).installed() as layer:
        yield layer
