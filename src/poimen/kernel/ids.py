"""Names of things: runs, branches, steps, attempts, intents; and what an outsider may say of them.

Plain text ids with one written form each, so that an id can be read aloud, typed and grepped. This
module must never know how an id is made: randomness and clocks live in the shell.

Source: design protocol.md, sections 3 and 5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NewType, NoReturn

from poimen._typing import override
from poimen.kernel.errors import DuplicateKey, NotFound, NotStorable, PoimenError

if TYPE_CHECKING:
    from collections.abc import Collection

RunId = NewType("RunId", str)
BranchId = NewType("BranchId", str)
StepKey = NewType("StepKey", str)
RequestId = NewType("RequestId", str)

TRUNK: Final = BranchId("main")

_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+=-]{0,199}")
_MAX_KEY: Final = 400
_MAX_LSN: Final = 2**63 - 1

LONGEST_NAME: Final = 500
"""Characters of a `by`, and of the name of a tag."""
LONGEST_TEXT: Final = 16_384
"""Characters of a `why` or an `evidence`; a larger proof is kept elsewhere and named."""
LONGEST_TAG: Final = 2_000
"""Characters of the value of a tag."""
MOST_TAGS: Final = 100
"""Tags of one run."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class IntentId:
    """One effect of one attempt: the `ordinal`-th (from 0) that the attempt made.

    Written `RUN/BRANCH/STEP/ATTEMPT/ORDINAL`. The step may itself contain `/`.
    """

    run: RunId
    branch: BranchId
    step: StepKey
    attempt: int
    ordinal: int

    @override
    def __str__(self) -> str:
        return f"{self.run}/{self.branch}/{self.step}/{self.attempt}/{self.ordinal}"

    @property
    def local(self) -> str:
        """The id inside its branch: `STEP/ATTEMPT/ORDINAL`."""
        return f"{self.step}/{self.attempt}/{self.ordinal}"

    @classmethod
    def parse(cls, text: str) -> IntentId:
        """Read the written form back.

        Raises:
            NotFound: when the text is not an intent id.
        """
        head, _, rest = text.partition("/")
        branch, _, rest = rest.partition("/")
        parts = rest.rsplit("/", 2)
        if not (head and branch and len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal()):  # noqa: PLR2004
            raise NotFound(
                f"{text!r} is not the id of an intent",
                why="an intent id reads RUN/BRANCH/STEP/ATTEMPT/ORDINAL",
                hint="poimen intents ls",
            )
        return cls(
            run=RunId(head),
            branch=BranchId(branch),
            step=StepKey(parts[0]),
            attempt=int(parts[1]),
            ordinal=int(parts[2]),
        )


class BadRunId(PoimenError):
    """A run id has characters that cannot stand in a path, a shell word or an intent id."""

    code = "PO113"


def run_id(text: str) -> RunId:
    """Check a run id given by a user.

    Arguments:
        text: 1 to 200 characters: letters, digits and `. _ : @ + = -`, the first a letter or a digit.

    Raises:
        BadRunId: when it is anything else.
    """
    if not isinstance(text, str) or not _RUN_ID.fullmatch(text):
        raise BadRunId(
            f"{text if isinstance(text, str) else type(text)!r} cannot be a run id",
            why="a run id has 1 to 200 letters, digits and . _ : @ + = -, and starts with a letter or a digit",
            hint="choose an id such as 'order-42'",
        )
    return RunId(text)


def step_key(name: str, n: int) -> StepKey:
    """The key of the `n`-th call (from 0) of a step called `name` in its branch."""
    return StepKey(f"{name}#{n}")


def explicit_key(text: str) -> StepKey:
    """Check a key given by `options(key=...)`.

    Raises:
        DuplicateKey: when it is empty, too long, has control characters, or contains `#`.
    """
    if not text or len(text) > _MAX_KEY or "#" in text or not text.isprintable():
        raise DuplicateKey(
            f"{text[:60]!r} cannot be a step key",
            why=f"a key has 1 to {_MAX_KEY} printable characters and no '#', which poimen uses to number calls",
            hint="choose another key=",
        )
    return StepKey(text)


# ---- what an outsider says -------------------------------------------------------------------------------------


def said(*, may_be_empty: Collection[str] = ("evidence",), most: int = LONGEST_TEXT, **texts: object) -> None:
    """Check what somebody says for the record, before anything is written.

    Arguments:
        may_be_empty: names of those that need no words.
        most: characters that each may have; a `by` has at most `LONGEST_NAME`.
        texts: by the names of the arguments.

    Raises:
        NotStorable: one is no text, is empty, too long, or holds what UTF-8 cannot; it is named, and not shown.
    """
    for name, text in texts.items():
        if not isinstance(text, str):
            _refuse(name, f"{name} is a {type(text).__name__}", f"give {name} as a text")
        if not text.strip() and name not in may_be_empty:
            _refuse(name, f"{name} is empty", "say it: the record is read when nobody remembers")
        limit = LONGEST_NAME if name == "by" else most
        if len(text) > limit:
            _refuse(
                name, f"{name} has {len(text)} characters, {limit} is the limit", "keep the whole elsewhere and name it"
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            _refuse(name, f"{name} holds a lone surrogate, which UTF-8 cannot say", f"give {name} as a text")


def checked_tags(tags: object) -> dict[str, str]:
    """The tags of a run, checked: texts by names that are not empty and hold no `=`.

    Raises:
        NotStorable: they are anything else.
    """
    if not isinstance(tags, Mapping):
        _refuse("tags", f"tags is a {type(tags).__name__}", 'give names and values, such as {"team": "billing"}')
    if len(tags) > MOST_TAGS:
        _refuse("tags", f"there are {len(tags)} tags, {MOST_TAGS} is the limit", "tags are to find a run by: keep few")
    for name, value in tags.items():
        said(most=LONGEST_NAME, **{"the name of a tag": name})
        if "=" in name:
            _refuse(
                "tags",
                f"the name of tag {name!r} holds a '='",
                "`=` parts the name from the value where tags are sought",
            )
        said(may_be_empty=(f"tag {name!r}",), most=LONGEST_TAG, **{f"tag {name!r}": value})
    return dict(tags)


def check_lsn(lsn: object, *, name: str) -> None:
    """Check a position that somebody says they have seen.

    Raises:
        NotStorable: it is no whole number from 0 to 2**63-1.
    """
    if type(lsn) is not int:
        _refuse(name, f"{name} is a {type(lsn).__name__}", "give the number that InboxItem.lsn has")
    if not 0 <= lsn <= _MAX_LSN:
        _refuse(name, f"{name} is no LSN: it is not between 0 and 2**63-1", "give the number that InboxItem.lsn has")


def _refuse(path: str, what: str, hint: str) -> NoReturn:
    raise NotStorable(what, why="nothing was recorded", hint=hint, path=path)
