"""What commands print: data on stdout, talk on stderr; text for people or JSON for programs.

Text that agents, tools or far sides wrote may hold terminal escapes: everything printed here goes through
`clean` or, as JSON, through escapes. This module must never know what the data means; it keeps the invariants that
no byte of such text can steer a terminal, and that none of it begins a line.

Source: design api.md, "Command line".
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from poimen import clock
from poimen.cli.frame.declaring import NotWritten
from poimen.kernel.errors import flat
from poimen.secrecy.speaking import redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Json: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None
TimeStyle: TypeAlias = Literal["utc", "local", "ago"]
ColorWhen: TypeAlias = Literal["auto", "always", "never"]

VERSION: Final = 1
"""Of the envelope of `--json`; it grows when a field changes its meaning or goes."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WIDE: Final = 100_000
"""Columns of an output that is no terminal: nothing there is cut or wrapped."""

_SEQUENCES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor, modes
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC: titles, links, the clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c\n]*(?:\x1b\\|\x9c)?"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"  # the rest
)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# What reorders or hides text is shown by its name: marks and overrides of direction, separators, invisible characters.
_HIDDEN: Final = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_IN_JSON: Final = re.compile(f"[\x7f-\x9f]|{_HIDDEN.pattern}")


def clean(text: str) -> str:
    """The text without terminal escapes and control characters; line ends and tabs stay.

    Characters that reorder or hide text are shown as `<U+202E>`.
    """
    bare = _CONTROLS.sub("", _SEQUENCES.sub("", text.replace("\r\n", "\n")))
    return _HIDDEN.sub(lambda hit: f"<U+{ord(hit[0]):04X}>", bare)


def one_line(text: str, *, most: int = 200) -> str:
    """The text cleaned, on one line, cut to `most` characters."""
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


def as_json(data: Json) -> str:
    """JSON on one line that is safe to show on a terminal."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    return _IN_JSON.sub(lambda hit: _escaped(ord(hit[0])), text)


def _escaped(code: int) -> str:
    if code < 0x1_0000:  # noqa: PLR2004 (beyond it JSON writes two surrogates)
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x1_0000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def rfc3339(us: int) -> str:
    """A time as RFC 3339 in UTC, with microseconds: `2026-03-14T09:26:53.589793Z`.

    Arguments:
        us: microseconds since the Unix epoch.
    """
    return (_EPOCH + timedelta(microseconds=us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def us_of(text: str) -> int:
    """The reverse of `rfc3339`."""
    since = datetime.fromisoformat(text) - _EPOCH
    return (since.days * 86_400 + since.seconds) * clock.US + since.microseconds


def ago(us: int, now_us: int) -> str:
    """How long ago a time was, in the largest unit that fits: `3 min ago`."""
    seconds = (now_us - us) / clock.US
    word = "ago" if seconds >= 0 else "ahead"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if abs(seconds) >= size:
            return f"{abs(seconds) / size:.0f} {unit} {word}"
    return f"{abs(seconds):.0f} s {word}"


def _write(text: str) -> None:
    """Print data.

    Raises:
        BrokenPipeError: nobody reads on.
        NotWritten: it cannot be written for another reason.
    """
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise NotWritten(error.errno, f"the output cannot be written: {error.strerror}") from error


def _flush() -> None:
    """Hand over what was printed; raises as `_write`."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise NotWritten(error.errno, f"the output cannot be written: {error.strerror}") from error


@dataclass(slots=True, kw_only=True)
class Output:
    """Where a command's words go.

    Arguments:
        form: `text` for people, `json` for one envelope, `jsonl` for one line an item.
        time: how times are written for people; programs get RFC 3339.
        color: whether to colour; `auto`: on a terminal, unless NO_COLOR is set.
        quiet: no talk, errors excepted.
        verbose: more talk.
        as_of: the feed position and the time that the data was read at.
    """

    form: Literal["text", "json", "jsonl"] = "text"
    time: TimeStyle = "utc"
    color: ColorWhen = "auto"
    quiet: bool = False
    verbose: bool = False
    as_of: dict[str, Json] = field(default_factory=lambda: {"feed": 0, "time": rfc3339(clock.wall_us())})

    # ---- data ----------------------------------------------------------------------------------------------------

    def show(
        self, data: Json, text: Callable[[], None], *, truncated: bool = False, after: int | str | None = None
    ) -> None:
        """Print what was asked for.

        Arguments:
            data: as JSON.
            text: prints the same for people.
            truncated: there is more.
            after: what to give as `--after` to go on.
        """
        if self.form == "json":
            envelope: dict[str, Json] = {"v": VERSION, "as_of": self.as_of, "data": data}
            _write(as_json(envelope | {"truncated": truncated, "next": after}) + "\n")
        elif self.form == "jsonl":
            for item in data if isinstance(data, list) else [data]:
                _write(as_json(item) + "\n")
        else:
            text()
        if truncated and self.form != "json":
            self.say(f"there is more: --after {after}")
        _flush()

    def line(self, text: str = "", *, bold: bool = False) -> None:
        """Print one line of data for people, whatever the text is: nothing recorded can look like a line of its own."""
        said = flat(clean(text))
        if bold and said and self.colored(sys.stdout):
            said = f"\x1b[1m{said}\x1b[0m"
        _write(said + "\n")

    def whole(self, text: str) -> None:
        """Print a text with all its lines: only what was asked for, where nothing of ours stands beside it."""
        _write(clean(text) + "\n")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], *, states: str = "state") -> None:
        """Print a table for people; on a terminal long cells are folded, elsewhere nothing is.

        Arguments:
            columns: their heads.
            rows: a cell a column.
            states: the column whose cells are coloured as states.
        """
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        colored = self.colored(sys.stdout)
        table = Table(box=None, pad_edge=False, header_style="bold" if colored else "", show_edge=False)
        for name in columns:
            table.add_column(name, overflow="fold")
        for row in rows:
            cells = (
                Text(one_line(cell), _style(cell) if name == states else "") for name, cell in _pairs(columns, row)
            )
            table.add_row(*cells)
        console = Console(
            file=sys.stdout,
            width=None if sys.stdout.isatty() else _WIDE,
            force_terminal=colored,
            no_color=not colored,
            color_system="standard" if colored else None,
            markup=False,
            highlight=False,
            emoji=False,
        )
        with console.capture() as captured:
            console.print(table)
        _write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")

    # ---- talk ----------------------------------------------------------------------------------------------------

    def say(self, *lines: str) -> None:
        """Say something beside the data, a line each; who asked for JSON reads nothing but errors there."""
        if not self.quiet and self.form != "json":
            with suppress(OSError):  # who does not listen misses the talk, not the work
                sys.stderr.write("".join(f"{flat(clean(redacted(line)))}\n" for line in lines))
                sys.stderr.flush()

    def detail(self, text: str) -> None:
        """Say something to whoever wants to hear more."""
        if self.verbose:
            self.say(text)

    def when(self, us: int) -> str:
        """A time for people."""
        if not us:
            return ""
        if self.time == "ago":
            return ago(us, clock.wall_us())
        moment = _EPOCH + timedelta(microseconds=us)
        if self.time == "local":
            return f"{moment.astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3] + f"{moment.astimezone():%z}"
        return f"{moment:%Y-%m-%d %H:%M:%S.%f}"[:-3] + "Z"

    def colored(self, stream: Any) -> bool:
        """Whether to colour what goes to a stream."""
        if self.color != "auto":
            return self.color == "always"
        return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


_STYLES: Final[Mapping[str, str]] = {
    "SUCCEEDED": "green",
    "committed": "green",
    "RUNNING": "cyan",
    "VERIFYING": "cyan",
    "PENDING": "cyan",
    "pending": "cyan",
    "WAITING": "yellow",
    "dispatched": "yellow",
    "INDETERMINATE": "yellow",
    "CANCELLED": "dim",
    "FAILED": "red",
    "REJECTED": "red",
    "TIMED_OUT": "red",
}


def _style(cell: str) -> str:
    return _STYLES.get(cell.partition(" ")[0].rstrip(","), "")


def _pairs(columns: Sequence[str], row: Sequence[str]) -> Iterable[tuple[str, str]]:
    return zip(columns, row, strict=True)
