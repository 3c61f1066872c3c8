"""The chain over a run's records locates every change but a cut tail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poimen.log import chain
from poimen.log.api import Record

FIRST = chain.first_prev("log", "r1")


def records(n: int) -> list[Record]:
    made: list[Record] = []
    prev = FIRST
    for lsn in range(1, n + 1):
        each = Record(
            run="r1", lsn=lsn, pos=lsn, branch="main", record_id=f"{lsn:032x}", kind="k.v1", subject=f"s{lsn}",
            body=b"%d" % lsn, at=lsn, epoch=1, hash=b"",
        )  # fmt: skip
        prev = chain.link_of(prev, each)
        made.append(each._replace(hash=prev))
    return made


def found(made: list[Record]) -> list[int]:
    return [damage.lsn for damage in chain.verify(made, FIRST)]


def test_a_sound_chain_has_no_damage() -> None:
    assert found(records(5)) == []


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("run", "r2"),
        ("branch", "other"),
        ("record_id", "f" * 32),
        ("kind", "k.v2"),
        ("subject", "s"),
        ("body", b"x"),
        ("at", 99),
        ("epoch", 2),
        ("hash", b"\0" * 32),
        ("record_id", "no hex"),
        ("body", "a text"),
        ("at", 1 << 80),
    ],
)
def test_an_edit_of_any_column_is_located(column: str, value: Any) -> None:
    made = records(5)
    made[2] = made[2]._replace(**{column: value})
    assert found(made)[0] == 3
    assert set(found(made)) <= {3, 4}


def test_swapped_records_are_located() -> None:
    made = records(5)
    made[1], made[2] = made[2]._replace(lsn=2), made[1]._replace(lsn=3)
    assert found(made)[:2] == [2, 3]


def test_missing_records_are_located() -> None:
    made = records(6)
    del made[2:4]
    damages = list(chain.verify(made, FIRST))
    assert [(damage.lsn, damage.what) for damage in damages] == [(3, "records 3 to 4 are missing")]


def test_an_lsn_used_twice_is_located() -> None:
    made = records(3)
    made.insert(2, made[1])
    assert found(made)[0] == 3


def test_a_forged_record_shows_at_the_next_one() -> None:
    made = records(4)
    forged = made[1]._replace(body=b"forged")
    made[1] = forged._replace(hash=chain.link_of(made[0].hash, forged))
    assert found(made) == [3]


def test_a_chain_belongs_to_its_log_and_its_run() -> None:
    starts = {chain.first_prev(log, run) for log, run in [("a", "bc"), ("ab", "c"), ("", "abc"), ("a", "b")]}
    assert len(starts) == 4


def test_part_of_a_chain_can_be_verified() -> None:
    made = records(5)
    assert list(chain.verify(made[2:], made[1].hash, first=3)) == []
    assert [damage.lsn for damage in chain.verify(made[2:], made[0].hash, first=3)] == [3]


TEXTS = st.tuples(*[st.text(alphabet="ab:\0", max_size=3)] * 4)


@given(TEXTS, TEXTS, st.binary(max_size=3), st.binary(max_size=3))
def test_different_columns_give_different_hashes(a: Any, b: Any, x: bytes, y: bytes) -> None:
    def hashed(texts: Any, body: bytes) -> bytes:
        run, branch, kind, subject = texts
        return chain.link(FIRST, run, 1, branch, b"i" * 16, kind, subject, 0, 0, body)

    assert (hashed(a, x) == hashed(b, y)) == ((a, x) == (b, y))
