"""The only place where time and randomness come in.

Everything else in poimen asks here, so that a test can put a simulated source in place. Wall time
is what records carry; boot time (it goes on while the machine sleeps, and restarts with it) is what
leases count; monotonic time is what waits count.

Source: design architecture.md, "Style" (the one clock module); storage.md (CLOCK_BOOTTIME).
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

US: Final = 1_000_000
"""Microseconds in a second."""

_BOOTTIME: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Source:
    """Where time and randomness come from; a subclass in the testing package simulates them."""

    def wall_us(self) -> int:
        """Microseconds since the Unix epoch, UTC."""
        return time.time_ns() // 1000

    def boot_us(self) -> int:
        """Microseconds since this machine booted, sleep included."""
        return time.clock_gettime_ns(_BOOTTIME) // 1000

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def random_bytes(self, n: int) -> bytes:
        """`n` bytes that nobody can guess."""
        return os.urandom(n)

    def jitter(self, spread: float) -> float:
        """A factor drawn evenly from `1 - spread` to `1 + spread`."""
        return 1.0 + spread * (2.0 * random.random() - 1.0)  # noqa: S311 (spreads load, guards nothing)


_source = Source()


def use(source: Source) -> Source:
    """Put another source in place (tests); returns the one that was there."""
    global _source
    old, _source = _source, source
    return old


def wall_us() -> int:
    """Microseconds since the Unix epoch, UTC."""
    return _source.wall_us()


def of_day(us: int) -> str:
    """A wall time as the time of day, UTC: `12:00:05Z`."""
    seconds = us // US % 86_400
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def boot_us() -> int:
    """Microseconds since this machine booted."""
    return _source.boot_us()


def monotonic() -> float:
    """Seconds of a clock that never goes back."""
    return _source.monotonic()


def jitter(spread: float) -> float:
    """A factor near 1, see `Source.jitter`."""
    return _source.jitter(spread)


class _Ids:
    """Record ids are many: one random prefix a process and fork, then a counter."""

    prefix = b""
    n = 0

    @classmethod
    def forget(cls) -> None:
        """A fork begins anew."""
        cls.prefix = b""


os.register_at_fork(after_in_child=_Ids.forget)


def record_id() -> bytes:
    """16 bytes, unique: 10 random bytes of this process, then a counter."""
    if not _Ids.prefix:
        _Ids.prefix, _Ids.n = _source.random_bytes(10), 0
    _Ids.n += 1
    return _Ids.prefix + _Ids.n.to_bytes(6, "big")


def random_hex(n_bytes: int) -> str:
    """`n_bytes` random bytes as hex digits."""
    return _source.random_bytes(n_bytes).hex()


def uuid7() -> str:
    """A new UUID version 7 (RFC 9562): sorts by the time it was made."""
    ms = _source.wall_us() // 1000
    tail = int.from_bytes(_source.random_bytes(10), "big")
    value = (ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | (tail >> 68) << 64 | 0b10 << 62 | tail & ((1 << 62) - 1)
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@cache
def boot_id() -> str:
    """Names the boot that `boot_us` counts from; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def boot_mark() -> str:
    """Names this boot in records: a digest of `boot_id`, which names the machine; empty where the system does not tell.

    Processes with a time namespace of their own have a boot clock of their own, and another mark.
    """
    return _marked(boot_id())


@cache
def _marked(boot: str) -> str:
    with suppress(OSError):  # a system without such namespaces
        boot = boot and f"{boot} {Path('/proc/self/ns/time').readlink()}"
    return hashlib.sha256(boot.encode()).hexdigest()[:12] if boot else ""


def boot_age_us(at_us: int, mark: str) -> int | None:
    """How long ago it was by the boot clock; None where that is not known: another boot, an old record.

    Arguments:
        at_us: a time of the boot clock, 0 when it was not recorded.
        mark: of its boot, see `boot_mark`.
    """
    return boot_us() - at_us if at_us and mark and mark == boot_mark() else None
