"""Which rules are in force: the environment, the project, or what is built in; what is misspelt is refused."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

import poimen
from poimen.secrecy import setting
from poimen.secrecy.setting import rules_of
from poimen.secrecy.speaking import logger

if TYPE_CHECKING:
    from pathlib import Path


def project(folder: Path, *lines: str) -> Path:
    (folder / "pyproject.toml").write_text("\n".join(("[tool.poimen]", *lines)), encoding="utf-8")
    inner = folder / "a" / "b"
    inner.mkdir(parents=True, exist_ok=True)
    return inner


def test_without_a_setting_the_built_in_rules_hold(tmp_path: Path) -> None:
    rules, source = rules_of({}, tmp_path)
    assert rules.hides("password") and source == "the built-in rules"


def test_the_project_says_more_names_patterns_and_what_is_allowed(tmp_path: Path) -> None:
    table = 'secrets = { names = ["pin"], patterns = ["acme_[0-9]{4}"], allow = ["secret", "url"] }'
    rules, source = rules_of({}, project(tmp_path, 'db = "x.db"', table))
    assert rules.hides("pin") and rules.hides("password") and not rules.hides("secret")
    assert rules.in_text("acme_1234") and not rules.in_text("https://ann:pw12@host")
    assert str(tmp_path / "pyproject.toml") in source


@pytest.mark.parametrize(
    ("environ", "said", "active"),
    [({}, "off", False), ({"POIMEN_SECRETS": "off"}, "", False), ({"POIMEN_SECRETS": "on"}, "off", True)],
)
def test_the_rules_can_be_switched_off(tmp_path: Path, environ: dict[str, str], said: str, active: bool) -> None:
    folder = project(tmp_path, 'secrets = "off"') if said else tmp_path
    assert rules_of(environ, folder)[0].active is active


@pytest.mark.parametrize(
    "line",
    [
        'secrets = "of"',
        "secrets = true",
        "secrets = { name = ['x'] }",
        "secrets = { names = 'x' }",
        "secrets = { names = [''] }",
        "secrets = { patterns = ['('] }",
        "secrets = { patterns = ['x*'] }",
        "secrets = { allow = ['pasword'] }",
        "secret = 'off'",
    ],
)
def test_a_setting_that_cannot_be_understood_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(poimen.ConfigurationError, match=r"tool\.poimen"):
        rules_of({}, project(tmp_path, line))


def test_so_is_the_variable() -> None:
    with pytest.raises(poimen.ConfigurationError, match="neither on nor off"):
        setting.rules_of({"POIMEN_SECRETS": "false"}, __import__("pathlib").Path("/"))


async def opened(db: Path) -> None:
    async with poimen.Client(str(db)):
        pass


def test_it_is_told_before_a_database_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    monkeypatch.chdir(project(tmp_path, 'secrets = "of"'))
    monkeypatch.setattr(setting, "_rules", None)
    with pytest.raises(poimen.ConfigurationError):
        asyncio.run(opened(tmp_path / "x.db"))
    assert not (tmp_path / "x.db").exists()


def test_a_line_of_a_logger_and_its_traceback_lose_their_secrets(caplog: pytest.LogCaptureFixture) -> None:
    log = logger("poimen.run")
    secret = "ghp_" + "a1" * 18
    logger("poimen.run")
    with caplog.at_level(logging.INFO):
        try:
            raise ValueError(f"because of {secret}")
        except ValueError:
            log.exception("it failed: %s, password=%s", secret, "hunter2")
    formatted = logging.Formatter().format(caplog.records[0])
    assert "because of [redacted]" in formatted and "it failed: [redacted], password=[redacted]" in formatted
    assert "a1a1" not in formatted and "hunter2" not in formatted
