"""A run that cannot be read is named, by an exit of its own; lists show all the others."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import effects
from poimen.kernel.errors import Corrupt
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
