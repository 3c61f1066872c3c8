"""What Python says for the record is checked as the command line checks it, before anything is written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import effects
from poimen.kernel.errors import NotStorable
from poimen.kernel.ids import BadRunId

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from poimen.log.api import Head


@poimen.tool(effect=effects.AT_MOST_ONCE)
def mail(to: str) -> None:
    raise TimeoutError("no answer")


@poimen.workflow
def send(to: str) -> None:
    mail(to)


NO_TEXTS: tuple[Any, ...] = ("", "  ", 5, None, {"a": 1}, b"x", "\ud800")
NO_FINDINGS: tuple[Any, ...] = ("lnded", "", None, 5, [])
MAIL = "r/main/mail#0/1/0"


@pytest.fixture
def db(tmp_path: Path) -> str:
    """The run `r` waits for an operator."""
    with pytest.raises(poimen.RunWaiting):
        poimen.run(send("ann"), db=str(tmp_path / "db"), run_id="r")
    return str(tmp_path / "db")


def unchanged(db: str, act: Callable[[poimen.Client], Awaitable[object]], **error: Any) -> None:
    """The act is refused, and no record was written."""

    def all_of(client: poimen.Client) -> list[Head]:
        return list(client.store.heads())

    async def tried() -> None:
        async with poimen.Client(db) as client:
            before = all_of(client)
            with pytest.raises(error.get("is_a", NotStorable)) as caught:
                await act(client)
            assert "sk_live" not in str(caught.value)
            assert all_of(client) == before

    asyncio.run(tried())


def wrong_resolutions() -> list[dict[str, Any]]:
    found = [{name: text} for name in ("by", "why") for text in NO_TEXTS]
    found += [{"evidence": text} for text in NO_TEXTS[2:]]
    found += [{"to": to} for to in NO_FINDINGS]
    found += [{"to": to, "result": "sk_live"} for to in ("not_landed", "abandoned")]
    return found + [{"expect_lsn": lsn} for lsn in ("7", 7.0, None, True, -1, 2**63, 10**30)]


def test_a_resolution_is_checked(db: str) -> None:
    for wrong in wrong_resolutions():
        given: dict[str, Any] = {"to": "not_landed", "by": "ann", "why": "looked", "expect_lsn": 7, **wrong}
        unchanged(db, lambda client, given=given: client.resolve(MAIL, **given))  # type: ignore[misc]


def test_a_claim_and_a_cancellation_are_checked(db: str) -> None:
    async def cancel(client: poimen.Client, why: Any, by: Any) -> None:
        await (await client.get("r")).cancel(why, by=by)

    for text in NO_TEXTS:
        unchanged(db, lambda client, by=text: client.claim(MAIL, by=by))  # type: ignore[misc]
        unchanged(db, lambda client, why=text: cancel(client, why, "ann"))  # type: ignore[misc]
        if text is not None:
            unchanged(db, lambda client, by=text: cancel(client, "late", by))  # type: ignore[misc]


def test_a_start_is_checked(db: str) -> None:
    wrong: tuple[Any, ...] = (
        *({"a": text} for text in NO_TEXTS[2:]),
        *({name: "y"} for name in ("", 5, None, "a=b", "\ud800")),
        [1],
        "a=b",
        0,
    )
    for tags in wrong:
        unchanged(db, lambda client, tags=tags: client.start(send("bob"), run_id="n", tags=tags))  # type: ignore[misc]
    for run in (5, b"n", "", "é", ["n"]):
        unchanged(
            db,
            lambda client, run=run: client.start(send("bob"), run_id=run),  # type: ignore[misc]
            is_a=BadRunId,
        )


def test_what_is_said_well_is_recorded(db: str) -> None:
    async def said() -> None:
        async with poimen.Client(db) as client:
            await client.start(send("bob"), run_id="n", tags={"for": "bob", "none": ""})
            await client.claim(MAIL, by="ann")
            (item,) = [item async for item in client.inbox()]
            await client.resolve(item.id, "landed", by="ann", why="it is there", result=None, expect_lsn=item.lsn)

    asyncio.run(said())


def test_a_line_of_a_file_is_checked_before_the_first_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from poimen.cli.main import root

    monkeypatch.chdir(tmp_path)
    lines = '{"id": "a", "input": {"to": "x"}}\n{"id": "b", "input": {"to": "x"}, "tags": {"a=b": "c"}}\n'
    words = ["run", "tests.engine.test_said:send", "--each", "-", "--db", "each.db"]
    done = CliRunner().invoke(root, words, input=lines)
    assert (done.exit_code, "the name of tag 'a=b' holds" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "each.db").exists()
