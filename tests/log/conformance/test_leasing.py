"""What every backend of the log does with leases and workers."""

from __future__ import annotations

from typing import Any

import pytest

from poimen import clock
from poimen.kernel.errors import Fenced, InvariantViolated, NotFound
from tests.log.stores import MovableClock, World, admitted, batch, claimed, landed

# ---- leases --------------------------------------------------------------------------------------------------------


def test_a_lease_keeps_others_out_until_it_ends(world: World, time: MovableClock) -> None:
    one, two = world.open(), world.open()
    admitted(one)
    lease = claimed(one, lease_s=10)
    assert lease.epoch == 1
    assert 9_000_000 < lease.until - clock.boot_us() <= 10_000_000
    assert two.claim("r1", worker="w2", lease_s=10) is None
    assert one.claim("r1", worker="w1", lease_s=10) is None
    time.ahead_s = 9
    (longer,) = one.renew([lease], lease_s=10)
    assert (longer.epoch, longer.until > lease.until) == (1, True)
    time.ahead_s = 15
    assert two.claim("r1", worker="w2", lease_s=10) is None
    time.ahead_s = 25
    assert claimed(two, worker="w2").epoch == 2
    assert one.renew([longer], lease_s=10) == []
    assert isinstance(one.commit([batch("r1", epoch=1)])[0], Fenced)
    head = one.head("r1")
    assert (head.epoch, head.worker, head.boot_id) == (2, "w2", clock.boot_id())
    one.close()
    two.close()


def test_a_worker_that_is_gone_holds_nothing(world: World) -> None:
    one, two = world.open(), world.open()
    admitted(one)
    claimed(one, lease_s=1000)
    assert two.claim("r1", worker="w2", lease_s=10) is None
    one.close()
    assert claimed(two, worker="w2").epoch == 2
    two.close()


def test_a_lease_that_was_given_back_is_free(store: Any) -> None:
    admitted(store)
    lease = claimed(store)
    store.release([lease, lease])
    head = store.head("r1")
    assert (head.worker, head.lease_until, head.epoch) == ("", 0, 1)
    assert store.renew([lease], lease_s=10) == []
    again = claimed(store, worker="w2")
    assert again.epoch == 2
    store.release([lease])
    assert store.head("r1").worker == "w2"


def test_renewing_tells_which_still_hold(store: Any) -> None:
    landed(store, batch("r1", admits=True), batch("r2", admits=True), batch("r3", admits=True))
    leases = [claimed(store, run) for run in ("r1", "r2", "r3")]
    store.release([leases[1]])
    kept = store.renew(leases, lease_s=20)
    assert [lease.run for lease in kept] == ["r1", "r3"]
    assert store.head("r1").lease_until == kept[0].until
    assert store.renew([], lease_s=20) == []


def test_claiming_what_is_not_there(store: Any) -> None:
    with pytest.raises(NotFound):
        store.claim("r1", worker="w1", lease_s=10)


def test_an_ended_run_can_be_claimed_for_its_open_intents(store: Any) -> None:
    admitted(store, state="CANCELLED")
    assert claimed(store).epoch == 1


def test_a_worker_id_belongs_to_one(world: World) -> None:
    one, two = world.open(), world.open()
    assert not two.alive("w1")
    one.worker("w1")
    one.worker("w1")
    with pytest.raises(InvariantViolated):
        two.worker("w1")
    assert one.alive("w1") and two.alive("w1")
    one.close()
    assert not two.alive("w1")
    two.worker("w1")
    two.close()
