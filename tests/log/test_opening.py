"""Which log is meant, and how it is opened: one resolver, nothing created by looking, no password shown."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import apsw
import pytest

from poimen.kernel.errors import ConfigurationError, NotBuiltYet, ReadOnly, StorageFailed
from poimen.log.memory import MemoryStore
from poimen.log.opening import Location, locate, open_store, redacted
from poimen.log.sqlite import SqliteStore
from tests.log.stores import admitted, batch

if TYPE_CHECKING:
    from pathlib import Path


# ---- locating ------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """TOP/project/deep, where project has a pyproject.toml and TOP a log."""
    (tmp_path / "project" / "deep").mkdir(parents=True)
    (tmp_path / ".poimen").mkdir()
    (tmp_path / ".poimen" / "poimen.db").touch()
    (tmp_path / "project" / "pyproject.toml").write_text("[tool.poimen]\ndb = 'logs/here.db'\n")
    return tmp_path


def test_each_place_yields_to_the_one_before_it(tree: Path) -> None:
    deep, project = tree / "project" / "deep", tree / "project" / "pyproject.toml"
    assert locate("given.db", cwd=deep, environ={"POIMEN_DB": "env.db"}) == Location(url="given.db", source="given")
    assert locate(None, cwd=deep, environ={"POIMEN_DB": "env.db"}).url == "env.db"
    configured = locate(None, cwd=deep, environ={"POIMEN_DB": ""})
    assert configured.url == str(tree / "project" / "logs" / "here.db")
    assert str(project) in configured.source
    project.write_text("[tool.other]\n")
    found = locate(None, cwd=deep, environ={})
    assert found.url == str(tree / ".poimen" / "poimen.db")
    (tree / ".poimen" / "poimen.db").unlink()
    new = locate(None, cwd=deep, environ={})
    assert new.url == str(tree / "project" / ".poimen" / "poimen.db")
    assert str(project) in new.source
    project.unlink()
    (tree / ".git").mkdir()
    assert locate(None, cwd=deep, environ={}).url == str(tree / ".poimen" / "poimen.db")
    (tree / ".git").rmdir()
    (deep / ".git").write_text("gitdir: elsewhere")
    assert locate(None, cwd=deep, environ={}).url == str(deep / ".poimen" / "poimen.db")


def test_the_environment_of_the_process_counts_unless_another_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POIMEN_DB", "env.db")
    assert locate(None, cwd=tmp_path).url == "env.db"
    assert "POIMEN_DB" in locate(None, cwd=tmp_path).source


def test_the_nearest_configuration_wins_and_one_without_our_table_is_passed_over(tree: Path) -> None:
    (tree / "pyproject.toml").write_text("[tool.poimen]\ndb = 'far.db'\n")
    (tree / "project" / "deep" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert locate(None, cwd=tree / "project" / "deep", environ={}).url == str(tree / "project" / "logs" / "here.db")


@pytest.mark.parametrize(
    ("db", "url"),
    [
        ("sqlite:///rel.db", "sqlite:///{folder}/rel.db"),
        ("sqlite:////abs/x.db", "sqlite:////abs/x.db"),
        ("/abs/x.db", "/abs/x.db"),
        ("memory:", "memory:"),
        (":memory:", ":memory:"),
        ("file:x?mode=memory", "file:x?mode=memory"),
        ("postgresql://h/d", "postgresql://h/d"),
    ],
)
def test_what_is_configured_counts_from_its_file(tree: Path, db: str, url: str) -> None:
    (tree / "project" / "pyproject.toml").write_text(f"[tool.poimen]\ndb = '{db}'\n")
    found = locate(None, cwd=tree / "project" / "deep", environ={}).url
    assert found == url.format(folder=tree / "project")


@pytest.mark.parametrize(
    "text", ["[tool.poimen\n", "[tool.poimen]\ndb = 3\n", "[tool.poimen]\ndb = ''\n", "[tool.poimen]\nother = 1\n"]
)
def test_a_configuration_that_cannot_be_used_is_an_error_that_names_the_file(tree: Path, text: str) -> None:
    (tree / "project" / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        locate(None, cwd=tree / "project" / "deep", environ={})
    assert str(tree / "project" / "pyproject.toml") in str(caught.value)


@pytest.mark.parametrize("text", ["tool = 3\n# poimen\n", "[tool]\npoimen = 3\n"])
def test_a_configuration_without_our_setting_says_nothing(tree: Path, text: str) -> None:
    (tree / "project" / "pyproject.toml").write_text(text)
    assert locate(None, cwd=tree / "project", environ={}).url == str(tree / ".poimen" / "poimen.db")


def test_a_log_that_another_user_has_put_above_is_not_picked_up(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "project" / "pyproject.toml").unlink()
    owner = (tree / ".poimen").stat().st_uid
    for us, refused in ((owner, False), (0, False), (owner + 4711, True)):
        monkeypatch.setattr(os, "getuid", lambda us=us: us)
        if refused:
            with pytest.raises(ConfigurationError, match="another user"):
                locate(None, cwd=tree / "project", environ={})
        else:
            assert locate(None, cwd=tree / "project", environ={}).url.endswith("poimen.db")


def test_looking_creates_nothing(tree: Path) -> None:
    before = sorted(tree.rglob("*"))
    locate(None, cwd=tree / "project" / "deep", environ={})
    assert sorted(tree.rglob("*")) == before


# ---- passwords -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cret@host/db", "postgresql://ann:***@host/db"),
        ("postgresql://ann:s3/cr@et@host:5432/db", "postgresql://ann:***@host:5432/db"),
        ("postgresql://:s3cret@host", "postgresql://:***@host"),
        ("postgresql://host/db?user=ann&password=s3cret", "postgresql://host/db?user=ann&password=***"),
        ("postgresql://host/db?sslpassword=s3cret&x=1", "postgresql://host/db?sslpassword=***&x=1"),
        ("postgresql://ann@host/db", "postgresql://ann@host/db"),
        ("postgresql://host:5432/db", "postgresql://host:5432/db"),
        ("/a/path@odd:name.db", "/a/path@odd:name.db"),
        ("memory:", "memory:"),
    ],
)
def test_passwords_are_never_shown(url: str, shown: str) -> None:
    assert redacted(url) == shown
    assert "s3" not in redacted(url)


def test_errors_do_not_show_passwords() -> None:
    for url, error in (("postgresql://a:s3cret@h/d", NotBuiltYet), ("mysql://a:s3cret@h/d", ConfigurationError)):
        with pytest.raises(error) as caught:
            open_store(url)
        assert "s3cret" not in str(caught.value)


# ---- opening -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "sqlite:///rel/x%20y.db", "rel/x.db"])
def test_a_file_is_opened_by_path_or_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(form.format(tmp_path / "log.db"))
    assert isinstance(store, SqliteStore)
    admitted(store)
    assert store.path.is_relative_to(tmp_path)
    assert "%" not in store.path.name
    store.close()


def test_the_home_folder_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = open_store("~/log.db")
    assert isinstance(store, SqliteStore)
    assert store.path == (tmp_path / "log.db").resolve()
    store.close()


def test_memory_is_new_each_time_and_shared_by_name() -> None:
    one, two = open_store("memory:"), open_store("memory:")
    admitted(one)
    assert two.head("r1") is None
    shared, same, other = open_store("memory:a"), open_store("memory:a"), open_store("memory:b")
    admitted(shared)
    shared.close()
    assert same.head("r1") is not None
    assert open_store("memory:a").head("r1") is not None
    assert other.head("r1") is None
    assert isinstance(same, MemoryStore)


def test_read_only_reaches_the_backend(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed):
        open_store(str(tmp_path / "missing.db"), read_only=True)
    with pytest.raises(ReadOnly):
        open_store("memory:", read_only=True).commit([batch("r1", admits=True)])


@pytest.mark.parametrize(
    "url", ["", "  ", "sqlite://", "sqlite:///", "sqlite://host/x.db", "sqlite:///x.db?mode=ro", "ftp://x"]
)
def test_what_names_no_log_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(url)
    assert caught.value.hint


def test_a_first_opening_waits_for_another_one(tmp_path: Path) -> None:
    db = tmp_path / "p.db"
    db.touch()
    other = apsw.Connection(str(db), flags=apsw.SQLITE_OPEN_READWRITE)
    other.execute("BEGIN IMMEDIATE").fetchall()
    freed = threading.Timer(0.2, lambda: other.execute("ROLLBACK").fetchall())
    freed.start()
    open_store(str(db)).close()
    freed.join()
    other.close()
