"""Domain states as data."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import States

if TYPE_CHECKING:
    from pathlib import Path

ORDER: dict[str, Any] = {
    "names": ["new", "paid", "sent"],
    "initial": "new",
    "moves": {"new": ["paid"], "paid": ["sent", "new"]},
}

TOML = """
names = ["new", "paid", "sent"]
initial = "new"

[moves]
new = ["paid"]
paid = ["sent", "new"]
"""


class Stage(Enum):
    NEW = "new"
    PAID = "paid"
    SENT = 3


def test_a_literal() -> None:
    states = States(ORDER)
    assert (states.names, states.initial) == (("new", "paid", "sent"), "new")
    assert states.move("new", "paid") == "paid"
    assert states.domain.targets("paid") == ("sent", "new")
    assert repr(states) == "<States new, paid, sent from a literal>"


def test_a_file_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "order.toml"
    file.write_text(TOML)
    assert States.load(file) == States(ORDER)
    assert States.load(str(file)).names == ("new", "paid", "sent")
    assert str(file) in repr(States.load(file))
    assert hash(States.load(file)) == hash(States(ORDER))


def test_members_of_an_enum_stand_for_their_values() -> None:
    states = States({"names": Stage, "initial": Stage.NEW, "moves": {Stage.NEW: [Stage.PAID], "paid": [Stage.SENT]}})
    assert states.names == ("new", "paid", "SENT")
    assert states.move(Stage.PAID, Stage.SENT) == "SENT"


def test_a_move_that_is_not_declared_is_refused() -> None:
    with pytest.raises(poimen.IllegalTransition, match="'sent'"):
        States(ORDER).move("new", "sent")


BAD: list[tuple[Any, str]] = [
    ({**ORDER, "moves": {"new": ["paid", "gone"], "paid": ["sent"]}}, "unknown state 'gone'"),
    ({**ORDER, "moves": {"new": ["paid"]}}, "'sent'"),
    ({**ORDER, "moves": {"gone": ["new"], "new": ["paid"], "paid": ["sent"]}}, "unknown state 'gone'"),
    ({**ORDER, "names": ["new", "paid", "sent", "paid"]}, "declared twice"),
    ({**ORDER, "names": []}, "no state"),
    ({**ORDER, "initial": "gone"}, "initial state 'gone'"),
    ({"names": ORDER["names"], "moves": ORDER["moves"]}, "no initial state"),
    ({"initial": "new", "moves": {}}, "no entry 'names'"),
    ({"names": ["new"], "initial": "new"}, "no entry 'moves'"),
    ({**ORDER, "start": "new"}, "unknown entry 'start'"),
    (["new", "paid"], "not a mapping"),
]


@pytest.mark.parametrize(("data", "what"), BAD)
def test_what_is_not_sound_is_refused_when_it_is_loaded(data: Any, what: str) -> None:
    with pytest.raises(poimen.BadDeclaration, match=what):
        States(data)


def test_a_refusal_of_a_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "order.toml"
    file.write_text(TOML.replace('["sent", "new"]', '["gone"]'))
    with pytest.raises(poimen.BadDeclaration) as refused:
        States.load(file)
    assert str(file) in str(refused.value)
    assert "unknown state 'gone'" in str(refused.value)


@pytest.mark.parametrize("text", [None, "names = [", b"\xff\xfe"])
def test_a_file_that_cannot_be_read(tmp_path: Path, text: Any) -> None:
    file = tmp_path / "order.toml"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(poimen.ConfigurationError, match="cannot be read") as refused:
        States.load(file)
    assert str(file) in str(refused.value)


def test_a_workflow_takes_them() -> None:
    @poimen.workflow(states=States(ORDER))
    async def order(id: str) -> str:
        return id

    assert order("x").spec.states == States(ORDER)
