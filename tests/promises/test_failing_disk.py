"""A disk that refuses a large body is no error of the agent: its run stops as it stands, and goes on later."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import effects
from poimen.log.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

LARGE = "x" * 90_000
caught: list[str] = []
sent: list[str] = []


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def mail(text: str) -> str:
    sent.append(text[:4])
    return "sent"


@poimen.step
async def writes(n: int) -> str:
    return f"{n}{LARGE}"


@poimen.step
async def mails(text: str) -> str:
    return await mail(text)


async def decides() -> str:
    poimen.decide("d", LARGE)
    return await mail("body")


async def computes() -> str:
    return (await writes(1))[:1]


async def sends() -> str:
    return await mail(LARGE)


async def sends_in_a_step() -> str:
    return await mails(LARGE)


async def returns() -> str:
    return LARGE


PROGRAMS = {each.__name__: each for each in (decides, computes, sends, sends_in_a_step, returns)}


@poimen.workflow
async def agent(name: str) -> str:
    try:
        return await PROGRAMS[name]()
    except Exception as error:
        caught.append(type(error).__name__)
        await mail("went on without it")
        raise


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_body_that_cannot_be_kept_stops_the_run_and_is_not_told_to_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caught.clear()
    sent.clear()
    db = tmp_path / "poimen.db"

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("poimen.blobs.files._write", full)
    with pytest.raises(poimen.StorageFailed, match="No space left"):
        poimen.run(agent(name), db=str(db), run_id="r")
    assert (caught, sent) == ([], [])
    store = SqliteStore(db, read_only=True)
    head = store.head("r")
    store.close()
    assert head is not None
    assert head.state in {"PENDING", "RUNNING"}
    monkeypatch.undo()
    value = poimen.run(agent(name), db=str(db), run_id="r")
    assert value == {"computes": "1", "returns": LARGE}.get(name, "sent")
    assert caught == []
    assert len(sent) == (value == "sent")
    assert not [line for line in caplog.messages if "never retrieved" in line or "xception in" in line]
