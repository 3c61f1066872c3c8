"""A run that cannot be read is named, by an exit of its own; lists show all the others."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import effects
from poimen.kernel.errors import Corrupt
from poimen.log.sqlite import SqliteStore
from tests.log.stores import edited

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli


@poimen.tool(effect=effects.AT_MOST_ONCE)
async def mail(to: str) -> str:
    raise ConnectionError("the answer was lost")


@poimen.workflow
async def mails(to: str) -> str:
    poimen.decide("to", to)
    return await mail(to)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Three runs that wait for a person; the second one is damaged."""
    db = tmp_path / "poimen.db"
    for name in ("a", "b", "c"):
        with pytest.raises(poimen.RunWaiting):
            poimen.run(mails(name), db=str(db), run_id=name)
    of_b = "lsn = 4 AND run = (SELECT run FROM run WHERE run_id = 'b')"
    edited(db, f"UPDATE record SET body = CAST('{{}}' AS BLOB) WHERE {of_b}")
    return db


def ids(data: Any) -> set[str]:
    return {str(one.get("run_id", one["id"])) for one in data}


@pytest.mark.parametrize("words", [("inbox",), ("decisions",), ("intents",)])
def test_a_list_goes_on_behind_a_damaged_run(cli: Cli, db: Path, words: tuple[str, ...]) -> None:
    listed = cli(*words, "--json", "--db", db)
    assert ids(listed.data) == {"a", "c"}
    assert (listed.code, "PO501" in listed.err, "run b" in listed.err) == (7, True, True)
    assert "log check" in listed.err


def test_the_runs_and_the_doctor_name_it(cli: Cli, db: Path) -> None:
    listed = cli("runs", "--json", "--db", db)
    assert ids(listed.data) == {"a", "b", "c"}
    (bad,) = (one for one in listed.data if one["id"] == "b")
    assert (bad["reason"], listed.code) == ("its records cannot be read", 7)
    doctor = cli("doctor", "--json", "--db", db)
    assert (doctor.data["inbox"], doctor.code) == (2, 7)
    assert ids(doctor.data["runs"]) == {"a", "b", "c"}
    assert any("run b" in found and "log check" in found for found in doctor.data["findings"])
    for other in ("a", "c"):
        assert cli("runs", "show", other, "--db", db).code == 0
    assert cli("runs", "show", "b", "--db", db).code == 7


def test_a_body_that_is_gone_hides_nothing_else(cli: Cli, tmp_path: Path) -> None:
    db = tmp_path / "large.db"
    for name in ("a", "b"):
        with pytest.raises(poimen.RunWaiting):
            poimen.run(mails(name * 90_000), db=str(db), run_id=name)
    shutil.rmtree(db.with_name("large.db.blobs"))
    for words in (
        ("log", "show", "a"),
        ("intents", "ls"),
        ("runs", "show", "a"),
        ("intents", "show", "a/main/mail#0/1/0"),
    ):
        shown = cli(*words, "--content", "--db", db)
        assert (shown.code, "gone" in shown.err, bool(shown.out)) == (7, True, True), shown


def test_a_client_s_inbox_gives_the_others_first(db: Path) -> None:
    async def main() -> list[str]:
        found: list[str] = []
        async with poimen.Client(str(db), read_only=True) as client:
            try:
                async for item in client.inbox():
                    found.append(item.run_id)
            except Corrupt as error:
                found.append(error.code)
        return found

    assert asyncio.run(main()) == ["a", "c", "PO501"]


BAD = {
    "last": "UPDATE run SET run_id = CAST(x'ff61' AS TEXT) WHERE run_id = 'b'",
    "between": "UPDATE run SET run_id = CAST(x'61ff' AS TEXT) WHERE run_id = 'b'",
    "state": "UPDATE run SET state = CAST(x'ff' AS TEXT) WHERE run_id = 'b'",
}


@pytest.mark.parametrize("statement", [*BAD.values()], ids=[*BAD])
@pytest.mark.parametrize(
    "words", [("runs",), ("runs", "--live"), ("inbox",), ("decisions",), ("intents",), ("doctor",)]
)
def test_a_list_goes_on_behind_a_head_that_is_no_text(
    cli: Cli, db: Path, words: tuple[str, ...], statement: str
) -> None:
    edited(db, statement)
    listed = cli(*words, "--json", "--db", db)
    data = listed.data["runs"] if words == ("doctor",) else listed.data
    assert ids(data) == {"a", "c"}
    assert (listed.code, listed.error["code"]) == (7, "PO501")
    assert "holds what is no text" in listed.error["title"]
    if words == ("doctor",):
        assert any("holds what is no text: poimen log check" in found for found in listed.data["findings"])


def test_a_page_of_heads_ends_where_it_should_behind_what_is_no_text(db: Path) -> None:
    edited(db, BAD["between"])
    store = SqliteStore(db, read_only=True)
    assert [head.run for head in store.heads(limit=2)] == ["a", "c"]
    assert [head.run for head in store.heads(after="a", limit=1)] == ["c"]
    assert store.heads(prefix="b") == []
    for prefix, after in (("", "c"), ("a", "a")):
        with pytest.raises(Corrupt, match="no text"):
            store.heads(prefix=prefix, after=after)
    store.close()
