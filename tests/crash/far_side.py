"""Workflows whose only effect is at a service that all trials of a sweep share: it dedupes, or it does not."""

from __future__ import annotations

import json
import os
import urllib.request
from datetime import timedelta
from typing import Any

import poimen
from poimen import effects

ADDRESS = "FAR_SIDE"


def ask(body: dict[str, str] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(os.environ[ADDRESS], data), timeout=30) as answer:
        return json.load(answer)


@poimen.tool(effect=effects.KEYED(ttl=timedelta(hours=24)))
def charge(order: str) -> str:
    ask({"key": poimen.request_id(), "order": order})
    return order


@poimen.tool(effect=effects.IDEMPOTENT)
def mail(to: str) -> str:
    ask({"mail": poimen.request_id(), "to": to})
    return to


@poimen.tool(effect=effects.KEYED(ttl=timedelta(hours=24)))
def strange(order: str) -> str:
    ask({"key": f"of-nobody-{os.getpid()}", "order": order})
    ask({"key": poimen.request_id(), "order": order})
    return order


@poimen.workflow
def charges(order: str) -> str:
    return charge(order)


@poimen.workflow
def mails(to: str) -> str:
    return mail(to)


@poimen.workflow
def strangers(order: str) -> str:
    return strange(order)
