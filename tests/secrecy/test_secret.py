"""`poimen.Secret`: a name in every form of it, a value only in the body of a tool."""

from __future__ import annotations

import asyncio
import json
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

import poimen
from poimen import Secret, effects
from poimen.declare import values
from poimen.log import codec
from poimen.log.opening import open_store
from poimen.testing import canaries_in, made_up_secrets

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "env:LEAKY_KEY"
VALUE: Final = "correct horse battery"
SENT: Final[list[str]] = []


@dataclass(frozen=True)
class Login:
    user: str
    password: Secret


@poimen.tool(effect=effects.AT_MOST_ONCE)
def send(key: Secret, login: Login | None = None) -> str:
    SENT.append(key.reveal())
    return "sent"


@poimen.tool(effect=effects.AT_MOST_ONCE)
def echoes(api_key: Secret) -> str:
    raise poimen.Rejected(f"the far side does not know {api_key.reveal()}")


@poimen.tool(effect=effects.READ)
def returns(key: Secret) -> list[str]:
    return [f"<{key.reveal()}>"]


@poimen.tool(effect=effects.AT_MOST_ONCE, exchanges=1)
def looks_itself() -> str:
    return Secret(NAME).reveal()


@poimen.workflow
def shop(key: Secret) -> str:
    poimen.decide("with", {"key": key})
    return send(key, Login("ann", key))


@poimen.workflow
def told(key: Secret) -> list[str]:
    said: list[str] = []
    for call in (lambda: echoes(key), lambda: returns(key), looks_itself, key.reveal):
        try:
            call()
        except poimen.PoimenError as error:
            said.append(f"{type(error).__name__} {error.message}")
    return said


@pytest.fixture(autouse=True)
def _set(monkeypatch: pytest.MonkeyPatch) -> None:
    SENT.clear()
    monkeypatch.setenv("LEAKY_KEY", VALUE)


def left_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_the_name_is_stored_and_the_value_is_sent(tmp_path: Path) -> None:
    assert poimen.run(shop(Secret(NAME)), db=str(tmp_path / "db"), run_id="r") == "sent"
    assert SENT == [VALUE]
    left = left_in(tmp_path)
    assert b'{"$secret":"env:LEAKY_KEY"}' in left
    assert VALUE.encode() not in left


def test_a_rotated_secret_is_the_new_one_in_the_next_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = str(tmp_path / "db")
    monkeypatch.delenv("LEAKY_KEY")
    with pytest.raises(poimen.RunFailed) as failed:
        poimen.run(shop(Secret(NAME)), db=db, run_id="r")
    assert "NotSent" in str(failed.value.error) or "there is no secret env:LEAKY_KEY" in str(failed.value.error)
    assert SENT == []
    store = open_store(db, read_only=True)
    kinds = [codec.plain(record).get("outcome", {}).get("kind") for record in store.read("r")]
    store.close()
    assert "not_sent" in kinds, "the body was never entered, and the record says so"
    monkeypatch.setenv("LEAKY_KEY", "another one")
    assert poimen.run(shop(Secret(NAME)), db=db, run_id="r2") == "sent"
    assert SENT == ["another one"]


def test_what_quotes_a_revealed_value_is_redacted_or_refused(tmp_path: Path) -> None:
    said = poimen.run(told(Secret(NAME)), db=str(tmp_path / "db"), run_id="r")
    assert said[0] == "Rejected the far side does not know [redacted]"
    assert said[1].partition(" ")[2].startswith("result[0]: a secret that was revealed here")
    assert said[3].startswith("UnguardedEffect Secret('env:LEAKY_KEY').reveal() was called in the code of a workflow")
    assert VALUE.encode() not in left_in(tmp_path)


def test_a_missing_one_that_a_tool_asks_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEAKY_KEY")
    said = poimen.run(told(Secret(NAME)), db=str(tmp_path / "db"), run_id="r")
    assert [one.partition(" ")[0] for one in said] == ["NotSent", "NotSent", "NotSent", "UnguardedEffect"]


def test_no_form_of_it_holds_the_value() -> None:
    secret = Secret(NAME)
    assert secret.reveal() == VALUE
    forms = (repr(secret), str(secret), f"{secret}", f"{secret!r:>40}", "%s" % secret, repr([secret]))  # noqa: UP031
    for form in (*forms, pickle.dumps(secret).decode("latin-1"), values.dump(secret, Secret).decode()):
        assert "LEAKY_KEY" in form and VALUE not in form
    with pytest.raises(TypeError):
        json.dumps(secret)
    assert secret == Secret(NAME) and hash(secret) == hash(Secret(NAME)) and secret != Secret("env:OTHER")
    assert pickle.loads(pickle.dumps(secret)) == secret
    with pytest.raises(AttributeError):
        secret.name = "env:OTHER"  # type: ignore[misc]


@pytest.mark.parametrize("annotation", [Secret, Secret | None, Secret | str | dict[str, str], Any, list[Secret], Login])
def test_it_comes_back_under_each_annotation(annotation: Any) -> None:
    value: Any = [Secret(NAME)] if annotation == list[Secret] else Secret(NAME)
    value = Login("ann", Secret(NAME)) if annotation is Login else value
    assert values.load(values.dump(value, annotation), annotation) == value


@pytest.mark.parametrize("canary", made_up_secrets(20), ids=lambda one: one.kind)
def test_the_value_itself_is_refused_and_not_shown(canary: Any) -> None:
    with pytest.raises(poimen.NotStorable, match="never the secret") as refused:
        Secret(canary.text)
    assert canary.hidden not in str(refused.value)
    with pytest.raises(poimen.NotStorable) as refused:
        values.dump({"to": [canary.value]}, path="arg")
    assert refused.value.path.startswith("arg.to[0]") and not canaries_in([canary], str(refused.value).encode())


@pytest.mark.parametrize("name", ["STRIPE", "env:", "env:1A", "env:A B", "file:rel", "", "http://x", None, 5])
def test_only_a_name_is_one(name: Any) -> None:
    with pytest.raises(poimen.NotStorable):
        Secret(name)


def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "key"
    secret = Secret(f"file:{file}")
    with pytest.raises(poimen.SecretMissing):
        secret.reveal()
    for value in ("first value", "second value"):
        file.write_text(f"{value}\n", encoding="utf-8")
        assert secret.reveal() == value


def test_ids_hold_none(tmp_path: Path) -> None:
    async def start(run_id: str) -> None:
        async with poimen.Client(str(tmp_path / "db")) as client:
            await client.start(shop(Secret(NAME)), run_id=run_id)

    for run_id in ("ghp_" + "a1" * 18, "run-sk_live_" + "a1" * 12, "password=hunter2x"):
        with pytest.raises(poimen.BadRunId) as refused:
            asyncio.run(start(run_id))
        assert "a1a1" not in str(refused.value) and "hunter2x" not in str(refused.value)
    with pytest.raises(poimen.BadDeclaration):
        send.options(key="ghp_" + "a1" * 18)
