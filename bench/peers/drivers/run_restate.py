"""Restate: a handler of two runs, served over HTTP/2; the server calls it again; the key is its seeded UUID."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import urllib.error
import urllib.request
from datetime import timedelta

import inside
import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

PORT = int(os.environ["PEER_PORT"])
INGRESS, ADMIN = os.environ["PEER_INGRESS"], os.environ["PEER_ADMIN"]
SAFE = inside.OFFERS != "nothing"
peer = restate.Service("peer")
# Without a limit a run is tried again for ever: where that is not safe, one attempt.
OPTIONS = restate.RunOptions(max_attempts=None if SAFE else 1, initial_retry_interval=timedelta(milliseconds=100))


@peer.handler()
async def order(ctx: restate.Context, run: str) -> str:
    """The one run of a trial."""
    words = await ctx.run_typed("say", inside.say)
    ident = str(ctx.uuid())
    inside.point("A")
    return await ctx.run_typed("charge", lambda: inside.act_as_offered(words, ident), OPTIONS)


@peer.handler()
async def many(ctx: restate.Context, times: int) -> int:
    """Effects that do nothing, one after another."""
    for n in range(times):
        await ctx.run_typed(f"n{n}", lambda n=n: n)
    return times


def post(url: str, what: object, **headers: str) -> object:
    """Ask the server."""
    request = urllib.request.Request(url, json.dumps(what).encode(), {"content-type": "application/json", **headers})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as response:
        return json.loads(response.read() or b"null")


def drive() -> None:
    """What the client of the service does."""
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/restate/health", timeout=1).close()
            break
        except urllib.error.HTTPError:
            break
        except OSError:
            threading.Event().wait(0.05)
    if inside.MODE != "resume":
        post(f"{ADMIN}/deployments", {"uri": f"http://127.0.0.1:{PORT}", "force": True})
    if inside.MODE == "time":
        inside.timed(lambda n: post(f"{INGRESS}/peer/many", n))
    elif inside.MODE == "count":
        post(f"{INGRESS}/peer/many", inside.COUNT)
    else:
        inside.watch()
        try:  # the same key is the same invocation: begun, or joined
            inside.told("done", post(f"{INGRESS}/peer/order", inside.RUN, **{"idempotency-key": inside.RUN}))
        except urllib.error.HTTPError as error:
            inside.told("failed", error.read().decode())
    os._exit(0)


async def main() -> None:
    """Serve, and let the client work beside."""
    config = Config()
    config.bind = [f"127.0.0.1:{PORT}"]
    config.h2_max_concurrent_streams = 2147483647
    config.keep_alive_max_requests = 2147483647
    config.keep_alive_timeout = 2147483647
    threading.Thread(target=drive, daemon=True).start()
    await serve(restate.app([peer]), config)


if __name__ == "__main__":
    asyncio.run(main())
