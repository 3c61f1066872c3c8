"""What the code is told prints alike live and replayed: the next prompt is made of it, and is held against the record.

Source: design protocol.md, section 3 ("Live and replay hand out the same thing").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poimen.declare import values
from poimen.kernel.events import StepComputed
from poimen.kernel.intent import IntentCommitted, Returned
from poimen.log.codec import KINDS, decode, encode
from tests.promises import apart

if TYPE_CHECKING:
    from pathlib import Path

AGENT: Final = """
import poimen
from poimen import effects

class Declined(Exception):
    def __init__(self, text, reason, code):
        super().__init__(text, {"z": 1, "a": {"y": 2.0, "b": (3, None)}})
        self.reason, self.code = reason, code
        self.add_note("look there")

def decline(*_):
    try:
        raise ExceptionGroup("several", [Declined("inner", "a", 1), KeyError((1, "k"))])
    except ExceptionGroup as group:
        raise Declined("no", "funds", 7) from group

def unsure(_):
    raise RuntimeError("cannot tell")

@poimen.tool(effect=effects.AT_MOST_ONCE, rejected=Declined)
async def charge(cents: int) -> str:
    decline()

@poimen.tool(effect=effects.AT_MOST_ONCE, not_sent=Declined)
async def send(cents: int) -> str:
    decline()

@poimen.tool(effect=effects.AT_MOST_ONCE)
async def post(cents: int) -> str:
    raise poimen.Rejected("no", where="there", why="closed", all_sends=True)

@poimen.tool(effect=effects.READ, rejected=unsure)
async def look(cents: int) -> str:
    decline()

@poimen.tool(effect=effects.AT_MOST_ONCE)
async def odd(cents: int) -> dict[str, int]:
    return {"a": 1, "\\ud800": "x"}

@poimen.step
async def pay(cents: int) -> str:
    decline()

@poimen.step
async def through(cents: int) -> str:
    try:
        await charge(cents)
    except poimen.Rejected as e:
        return f"{e} {vars(e)}"

@poimen.tool(effect=effects.READ)
async def found(cents: int) -> dict[str, dict[str, float]]:
    return {"z": {"y": 1, "b": 2}, "a": {}}

@poimen.model
async def ask(prompt: str) -> str:
    with open("witness", "a") as witness:
        print(prompt, file=witness)
    return "give up"

@poimen.tool(effect=effects.IDEMPOTENT)
async def say(words: str) -> str:
    return words

def told(e):
    plain = {name: value for name, value in vars(e).items() if name != "hint"}
    return f"the tool failed: {e.args} {plain} {getattr(e, 'fields', None)} {getattr(e, 'ids', None)}"

@poimen.workflow
async def agent() -> str:
    for call in (charge, send, post, look, odd, pay, through, found):
        try:
            prompt = f"it said {await call(1)}"
        except poimen.PoimenError as e:
            prompt = told(e)
        await ask(prompt)
    return await say("done")

try:
    print(poimen.run(agent(), db="p.db", run_id="r"))
except poimen.PoimenError as error:
    print(error)
"""


@pytest.mark.parametrize("crash", ["committed:ask", "dispatched:say"])
def test_an_agent_that_shows_errors_to_a_model_goes_on_after_a_kill(tmp_path: Path, crash: str) -> None:
    assert apart.play(tmp_path, AGENT, crash=crash).returncode == -9
    done = apart.play(tmp_path, AGENT)
    if crash == "dispatched:say":
        done = apart.play(tmp_path, AGENT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    prompts = (tmp_path / "witness").read_text().splitlines()
    assert len(prompts) == 8
    assert prompts[0].count("'code': 7, 'module': '__main__'") == 4
    assert prompts[7] == "it said {'a': {}, 'z': {'b': 2.0, 'y': 1.0}}"


NUMBERS: Final = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
SCALARS: Final = st.none() | NUMBERS | st.text(max_size=9) | st.binary(max_size=4) | st.datetimes() | st.decimals()
KEYS: Final = st.text(max_size=4) | st.integers() | st.booleans() | st.tuples(st.integers(), st.text(max_size=3))
ANYTHING: Final = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=9,
)


def stored(body: bytes) -> bytes:
    """A value through a record of the log and back."""
    events = (
        IntentCommitted(step="s#0", attempt=1, ordinal=0, send=1, outcome=Returned(value=body)),
        StepComputed(
            step="s#0", seq=0, kind="tool", name="s", version="", args=b"{}", args_digest="", value=body, started_at=1
        ),
    )
    found: list[Any] = [decode(KINDS[type(event)], encode(event)) for event in events]
    assert found[0].outcome.value == found[1].value
    value: bytes = found[1].value
    return value


def backwards(value: Any) -> Any:
    """An equal value whose dicts were filled in the other order."""
    if isinstance(value, dict):
        return {key: backwards(one) for key, one in reversed(value.items())}
    return type(value)(map(backwards, value)) if isinstance(value, (list, tuple)) else value


@given(ANYTHING)
def test_any_value_prints_alike_live_and_replayed(value: Any) -> None:
    body = values.dump(value)
    assert repr(values.load(body)) == repr(values.load(stored(body)))
    again, decided = values.dump_own(value)
    other, decided_again = values.dump_own(backwards(value))
    assert (again, repr(decided)) == (other, repr(decided_again))
    assert values.dump(values.load(body)) == body


@given(
    st.dictionaries(
        st.integers() | st.booleans(), st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9), max_size=5
    )
)
def test_annotated_dicts_print_alike_live_and_replayed(value: dict[int, float]) -> None:
    numbers = {int(key): one for key, one in value.items()}
    bodies = [values.dump(one, dict[int, float]) for one in (numbers, backwards(numbers))]
    assert bodies[0] == bodies[1]
    assert repr(values.load(bodies[0], dict[int, float])) == repr(values.load(stored(bodies[1]), dict[int, float]))
