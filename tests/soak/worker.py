"""One worker of a soak: drives what its database holds until it is told to stop, or killed.

    python -m tests.soak.worker DATABASE [CONTROL...]

It tells when it is up, and when it has entered its first tool; it ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

import poimen
from poimen.testing import sabotage

KEPT: list[Any] = []
BODY = 16_384


def keep_records() -> None:
    """The control that leaks: every record that passes the door stays in a list, and a body beside it."""
    from poimen.log.writer import Door

    submit: Any = Door.submit

    def kept(self: Any, batch: Any, *args: Any, **more: Any) -> Any:
        KEPT.extend((record, b"x" * BODY) for record in batch.records)
        return submit(self, batch, *args, **more)

    Door.submit = kept  # type: ignore[method-assign]


async def main(db: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_reader(0, lambda: os.read(0, 1) or os._exit(9))  # whoever started us is gone
    async with poimen.Runtime(db, modules=["tests.soak.load"], concurrency=32, drain=5):
        print("up", time.monotonic(), flush=True)
        await stop.wait()


if __name__ == "__main__":
    for control in sys.argv[2:]:
        if control == "keeps_records":
            keep_records()
        else:
            sabotage.apply(control)
    asyncio.run(main(sys.argv[1]))
