"""The ladder of an effect that may have been sent: the table row by row, then what no facts may bring about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from poimen.kernel import effect_class
from poimen.kernel.effect_class import EffectClass, Terms, key_deadline_us, key_lapse, stricter
from poimen.kernel.errors import InvariantViolated
from poimen.kernel.resolution import (
    AskProbe,
    Demotion,
    Facts,
    GiveUp,
    Land,
    Reading,
    Recompute,
    Rule,
    Ruling,
    SendAgain,
    backoff_us,
    rule,
)
from tests.kernel.pages import tables

S = 1_000_000
H = 3600 * S
T0 = 1_000_000 * S
PURE, READ, IDEMPOTENT, KEYED, PROBE, AT_MOST_ONCE = EffectClass


def terms(effect_class: EffectClass, **more: Any) -> Terms:
    base = Terms(
        effect_class=effect_class,
        ttl_us=24 * H if effect_class is KEYED else None,
        probe="find" if effect_class is PROBE else None,
        probe_version="1" if effect_class is PROBE else None,
        lag_us=10 * S if effect_class is PROBE else 0,
        timeout_us=60 * S,
        grace_us=5 * S,
        max_sends=3,
    )
    return replace(base, **more)


KEYED_WITH_PROBE = terms(KEYED, probe="find", probe_version="1", lag_us=10 * S)


def facts(t: Terms, *, now: int = T0 + 1 * S, **more: Any) -> Facts:
    """Sent once at T0 by a driver whose lease is an hour old, asked about at `now`."""
    base = Facts(
        terms=t,
        sends=1,
        first_dispatched_at_us=T0,
        last_dispatched_at_us=T0,
        lease_taken_at_us=T0 - 1 * H,
        now_us=now,
        latest_known_us=T0,
        probe_loaded=t.probe is not None,
    )
    return replace(base, **more)


def read(at_s: float, answer: Any) -> Reading:
    return Reading(at_us=T0 + round(at_s * S), answer=answer)


def probing(*readings: Reading, now_s: float, t: Terms | None = None, **more: Any) -> Facts:
    """Facts of a PROBE whose absences count from T0 + 60 + 5 + 10 = T0 + 75 s."""
    since = readings[0].at_us if readings else None
    given_facts = {"readings": readings, "probing_since_us": since, **more}
    return facts(t or terms(PROBE), now=T0 + round(now_s * S), **given_facts)


# ---- the table ---------------------------------------------------------------------------------------------


def test_pure_is_computed_again():
    assert rule(facts(terms(PURE))) == Recompute(rule="pure", inputs={})


@pytest.mark.parametrize(("effect_class", "name"), [(READ, "read"), (IDEMPOTENT, "idempotent")])
def test_read_and_idempotent_are_sent_again_until_the_sends_are_used_up(effect_class, name):
    for sends in (1, 2):
        ruling = rule(facts(terms(effect_class), sends=sends, now=T0 + 900 * H))
        assert ruling == SendAgain(send=sends + 1, rule=name, inputs={"sends": sends, "max_sends": 3})
    for sends in (3, 4):
        ruling = rule(facts(terms(effect_class), sends=sends))
        assert ruling == GiveUp(rule="sends-used-up", inputs={"sends": sends, "max_sends": 3})


def test_at_most_once_is_never_sent_again():
    assert rule(facts(terms(AT_MOST_ONCE))) == GiveUp(rule="at-most-once", inputs={"sends": 1})


KEY_INPUTS: dict[str, int | str] = {
    "first_dispatched_at_us": T0,
    "now_us": T0 + 1 * S,
    "latest_known_us": T0,
    "ttl_us": 24 * H,
    "margin_us": 65 * S,
    "demoted_to": "",
}


def test_keyed_is_sent_again_while_its_key_lives():
    assert rule(facts(terms(KEYED))) == SendAgain(
        send=2, rule="key-alive", inputs={"sends": 1, "max_sends": 3, **KEY_INPUTS}
    )


def test_keyed_with_its_sends_used_up_goes_to_a_person():
    ruling = rule(facts(terms(KEYED), sends=3))
    assert isinstance(ruling, GiveUp)
    assert (ruling.rule, ruling.demotions) == ("sends-used-up", ())


def test_keyed_with_its_sends_used_up_asks_its_probe_and_sends_nothing():
    asked = rule(facts(KEYED_WITH_PROBE, sends=3))
    demotion = Demotion(frm=KEYED, to=PROBE, rule="sends-used-up", inputs={"sends": 3, "max_sends": 3})
    assert isinstance(asked, AskProbe)
    assert asked.demotions == (demotion,)
    absent = (read(80, "absent"), read(82, "absent"))
    ruling = rule(probing(*absent, now_s=83, t=KEYED_WITH_PROBE, sends=3))
    assert isinstance(ruling, GiveUp)
    assert (ruling.rule, ruling.demotions) == ("sends-used-up", (demotion,))
    not_loaded = rule(facts(KEYED_WITH_PROBE, sends=3, probe_loaded=False))
    assert isinstance(not_loaded, GiveUp)
    assert (not_loaded.rule, not_loaded.demotions) == ("sends-used-up", ())
    no_probe = rule(facts(terms(KEYED), sends=3, probe_loaded=True))
    assert (no_probe.rule, no_probe.demotions) == ("sends-used-up", ())


@pytest.mark.parametrize(
    ("age_us", "alive"),
    [
        (0, True),
        (24 * H - 65 * S - 1, True),  # one microsecond before the margin begins
        (24 * H - 65 * S, False),  # the margin reached
        (24 * H - 1, False),
        (24 * H, False),  # the ttl reached
        (900 * H, False),
    ],
)
def test_the_key_expires_a_timeout_and_a_grace_before_its_ttl(age_us, alive):
    ruling = rule(facts(terms(KEYED), now=T0 + age_us))
    if alive:
        assert isinstance(ruling, SendAgain)
        assert ruling.rule == "key-alive"
    else:
        assert ruling == GiveUp(
            rule="at-most-once",
            inputs={"sends": 1},
            demotions=(
                Demotion(frm=KEYED, to=AT_MOST_ONCE, rule="key-expired", inputs={**KEY_INPUTS, "now_us": T0 + age_us}),
            ),
        )


def test_an_expired_key_with_a_probe_is_judged_as_probe():
    ruling = rule(facts(KEYED_WITH_PROBE, now=T0 + 24 * H))
    assert isinstance(ruling, AskProbe)
    assert ruling.rule == "probe-first"
    assert [(d.frm, d.to, d.rule) for d in ruling.demotions] == [(KEYED, PROBE, "key-expired")]
    late = 24 * 3600
    absent = (read(late, "absent"), read(late + 1, "absent"))
    again = rule(probing(*absent, now_s=late + 2, t=KEYED_WITH_PROBE))
    assert isinstance(again, SendAgain)
    assert (again.send, again.rule) == (2, "absent-confirmed")
    landed = rule(probing(read(late, "landed"), now_s=late + 2, t=KEYED_WITH_PROBE))
    assert landed == Land(at_us=T0 + late * S, rule="probe-landed", inputs={"reading_at_us": T0 + late * S})


def test_an_expired_key_whose_probe_is_not_loaded_goes_to_a_person():
    ruling = rule(facts(KEYED_WITH_PROBE, now=T0 + 24 * H, probe_loaded=False))
    assert isinstance(ruling, GiveUp)
    assert [(d.frm, d.to, d.rule) for d in ruling.demotions] == [
        (KEYED, PROBE, "key-expired"),
        (PROBE, AT_MOST_ONCE, "probe-not-loaded"),
    ]
    assert ruling.demotions[1].inputs == {"probe": "find", "probe_version": "1"}
    unversioned = replace(KEYED_WITH_PROBE, probe_version=None)
    ruling = rule(facts(unversioned, now=T0 + 24 * H, probe_loaded=False))
    assert ruling.demotions[1].inputs == {"probe": "find", "probe_version": ""}


def test_the_age_counts_from_the_first_dispatch_of_the_request_id():
    resent = facts(terms(KEYED), sends=2, last_dispatched_at_us=T0 + 23 * H, now=T0 + 24 * H)
    ruling = rule(resent)
    assert isinstance(ruling, GiveUp)
    assert ruling.demotions[0].rule == "key-expired"


def test_an_unknown_ttl_is_zero():
    for now in (T0, T0 + 1):
        ruling = rule(facts(terms(KEYED, ttl_us=None, timeout_us=0), now=now))
        assert isinstance(ruling, GiveUp)
        (demotion,) = ruling.demotions
        assert (demotion.to, demotion.rule) == (AT_MOST_ONCE, "key-ttl-unknown")
        assert demotion.inputs["ttl_us"] == "unknown"
    assert isinstance(rule(facts(terms(KEYED, ttl_us=0))), GiveUp)


def test_C40_a_clock_that_went_back_two_hours_counts_as_expired():  # noqa: N802 (the case's name)
    back = facts(terms(KEYED), now=T0 - 2 * H, latest_known_us=T0)
    ruling = rule(back)
    assert isinstance(ruling, GiveUp)
    assert [(d.to, d.rule) for d in ruling.demotions] == [(AT_MOST_ONCE, "clock-went-back")]
    (with_probe,) = rule(replace(back, terms=KEYED_WITH_PROBE, probe_loaded=True)).demotions
    assert (with_probe.to, with_probe.rule) == (PROBE, "clock-went-back")


def test_the_clock_is_compared_with_every_record_and_to_the_microsecond():
    assert isinstance(rule(facts(terms(KEYED), now=T0 + 5, latest_known_us=T0 + 5)), SendAgain)
    assert isinstance(rule(facts(terms(KEYED), now=T0 + 5, latest_known_us=T0 + 6)), GiveUp)
    assert isinstance(rule(facts(terms(KEYED), now=T0 - 1, latest_known_us=0)), GiveUp)


def test_a_demotion_on_record_stays_when_the_clock_has_caught_up():
    caught_up = facts(terms(KEYED), now=T0 + 1 * S)
    assert isinstance(rule(caught_up), SendAgain)
    assert rule(replace(caught_up, demoted_to=AT_MOST_ONCE)) == GiveUp(rule="at-most-once", inputs={"sends": 1})
    probed = rule(facts(KEYED_WITH_PROBE, demoted_to=PROBE))
    assert isinstance(probed, AskProbe)
    assert probed.demotions == (), "it is on record already"
    assert isinstance(rule(facts(terms(AT_MOST_ONCE), demoted_to=PROBE)), GiveUp), "a record cannot make it laxer"
    raised = rule(facts(terms(PROBE), demoted_to=PROBE))  # the declaration has become PROBE with the same probe since
    assert isinstance(raised, AskProbe)


# ---- probes ------------------------------------------------------------------------------------------------


def ask(at_s: float, by: Rule) -> tuple[int, Rule]:
    return (T0 + round(at_s * S), by)


@pytest.mark.parametrize(
    ("now_s", "readings", "expected"),
    [
        # nothing asked yet: at once, for landed counts at any time
        (1, [], ask(1, "probe-first")),
        (500, [], ask(500, "probe-first")),
        # before the lag is over (75 s) an absence says nothing
        (2, [read(1, "absent")], ask(75, "probe-after-lag")),
        (80, [read(1, "absent"), read(3, "absent")], ask(75, "probe-after-lag")),
        (80, [read(74.999999, "absent")], ask(75, "probe-after-lag")),
        # an unknown before the lag: 1 s, 2 s, 4 s ... while the probing time lasts, then after the lag
        (2, [read(1, "unknown")], ask(2, "probe-back-off")),
        (3, [read(1, "unknown"), read(2, "unknown")], ask(4, "probe-back-off")),
        (6, [read(1, "unknown"), read(2, "unknown"), read(5, "unknown")], ask(9, "probe-back-off")),
        (6, [read(1, "unknown"), read(2, "absent")], ask(75, "probe-after-lag")),
        (74, [read(60, "unknown"), read(74, "unknown")], ask(75, "probe-after-lag")),
        (60, [read(1, "unknown"), read(58.5, "unknown")], ask(60.5, "probe-back-off")),
        (60, [read(1, "unknown"), read(59, "unknown")], ask(75, "probe-after-lag")),
        # one absence that counts: a second read at least 1 s later
        (75, [read(75, "absent")], ask(76, "probe-confirm")),
        (76, [read(75, "absent"), read(75.5, "absent")], ask(76, "probe-confirm")),
        (76, [read(75, "absent"), read(75.999999, "absent")], ask(76, "probe-confirm")),
        (80, [read(74, "absent"), read(79, "absent")], ask(80, "probe-confirm")),
        # an unknown voids the absence before it
        (80, [read(75, "absent"), read(77, "unknown")], ask(78, "probe-back-off")),
        (80, [read(75, "absent"), read(77, "unknown"), read(79, "absent")], ask(80, "probe-confirm")),
        # unknown after the lag: 1 s, 2 s, 4 s ..., the last one when the probing time ends
        (76, [read(75, "unknown")], ask(76, "probe-back-off")),
        (77, [read(75, "unknown"), read(76, "unknown")], ask(78, "probe-back-off")),
        (111, [read(75, "unknown"), read(110, "unknown")], ask(112, "probe-back-off")),
        (135, [read(t, "unknown") for t in (75, 76, 78, 82, 90, 106)], ask(135, "probe-back-off")),
        # a first absence is worth its second read when the probing time is over
        (140, [read(75, "unknown"), read(139, "absent")], ask(140, "probe-confirm")),
    ],
)
def test_when_the_probe_is_asked_next(now_s, readings, expected):
    ruling = rule(probing(*readings, now_s=now_s))
    assert isinstance(ruling, AskProbe)
    assert (ruling.at_us, ruling.rule) == expected
    assert ruling.demotions == ()


@pytest.mark.parametrize(
    "readings",
    [
        [read(75, "absent"), read(76, "absent")],  # to the microsecond: at the end of the lag, 1 s apart
        [read(80, "absent"), read(80.5, "absent"), read(81, "absent")],
        [read(80, "unknown"), read(90, "absent"), read(95, "absent")],
        [read(1, "absent"), read(75, "absent"), read(900, "absent")],
    ],
)
def test_an_absence_is_confirmed_by_two_reads_apart_after_the_lag(readings):
    ruling = rule(probing(*readings, now_s=1000))
    assert isinstance(ruling, SendAgain)
    assert (ruling.send, ruling.rule) == (2, "absent-confirmed")
    assert ruling.inputs["settled_at_us"] == T0 + 75 * S
    assert ruling.inputs["last_absent_us"] == readings[-1].at_us


def test_the_lag_counts_from_the_lease_when_that_came_later():
    absent = (read(80, "absent"), read(95, "absent"))
    before = probing(*absent, now_s=96, lease_taken_at_us=T0 + 90 * S)
    ruling = rule(before)
    assert isinstance(ruling, AskProbe)
    assert (ruling.at_us, ruling.rule) == ask(100, "probe-after-lag")
    taken_now = rule(probing(*absent, now_s=96, lease_taken_at_us=T0 + 96 * S))
    assert isinstance(taken_now, AskProbe)
    assert (taken_now.at_us, taken_now.rule) == ask(96, "probe-first")
    after = (*absent, read(100, "absent"), read(101, "absent"))
    assert isinstance(rule(probing(*after, now_s=102, lease_taken_at_us=T0 + 90 * S)), SendAgain)


def test_readings_about_an_earlier_send_prove_nothing_about_the_last():
    absent = (read(80, "absent"), read(81, "absent"))
    resent = probing(*absent, now_s=91, last_dispatched_at_us=T0 + 90 * S, sends=2, probing_since_us=None)
    ruling = rule(resent)
    assert isinstance(ruling, AskProbe)
    assert (ruling.at_us, ruling.rule) == ask(91, "probe-first")


@pytest.mark.parametrize("t", [terms(READ), terms(IDEMPOTENT), terms(KEYED), terms(PROBE), terms(AT_MOST_ONCE)])
def test_landed_at_any_reading_lands_whatever_else_was_read(t):
    readings = (read(1, "unknown"), read(2, "landed"), read(80, "absent"), read(90, "absent"))
    ruling = rule(probing(*readings, now_s=1000, t=t, sends=9))
    assert ruling == Land(at_us=T0 + 2 * S, rule="probe-landed", inputs={"reading_at_us": T0 + 2 * S})


def test_a_probe_that_stays_unclear_goes_to_a_person_after_sixty_seconds():
    readings = [read(t, "unknown") for t in (75, 76, 78, 82, 90, 106)]
    last_try = rule(probing(*readings, read(134.999999, "unknown"), now_s=135))
    assert isinstance(last_try, AskProbe)
    assert last_try.at_us == T0 + 135 * S
    ruling = rule(probing(*readings, read(135, "unknown"), now_s=136))
    assert ruling == GiveUp(rule="probe-unknown", inputs={"until_us": T0 + 135 * S, "unknown_in_a_row": 7})


def test_the_probing_time_counts_from_the_first_question_when_that_came_after_the_lag():
    late = probing(read(1000, "unknown"), read(1059, "unknown"), now_s=1060)
    assert isinstance(rule(late), AskProbe)
    assert isinstance(rule(probing(*late.readings, read(1060, "unknown"), now_s=1061)), GiveUp)
    shorter = replace(late, probing_us=30 * S)
    assert isinstance(rule(shorter), GiveUp)


def test_nobody_is_asked_before_the_probe_was_asked_once_after_the_lag():
    slept = probing(read(1, "unknown"), now_s=90_000)
    ruling = rule(slept)
    assert isinstance(ruling, AskProbe)
    assert ruling.at_us <= slept.now_us


def test_a_confirmed_absence_with_the_sends_used_up_goes_to_a_person():
    ruling = rule(probing(read(80, "absent"), read(90, "absent"), now_s=91, sends=3))
    assert isinstance(ruling, GiveUp)
    assert ruling.rule == "sends-used-up"
    assert isinstance(rule(facts(terms(PROBE), sends=3)), AskProbe), "asking is not sending"


def test_without_a_loaded_probe_a_person_is_asked():
    gone = rule(facts(terms(PROBE), probe_loaded=False))
    assert isinstance(gone, GiveUp)
    assert [(d.frm, d.to, d.rule) for d in gone.demotions] == [(PROBE, AT_MOST_ONCE, "probe-not-loaded")]
    none = rule(facts(terms(PROBE, probe=None, probe_version=None)))
    assert isinstance(none, GiveUp)
    assert [(d.frm, d.to, d.rule) for d in none.demotions] == [(PROBE, AT_MOST_ONCE, "no-probe")]


def test_a_probe_beside_an_older_key_asks_only_while_that_key_lives():
    bounded = terms(PROBE, ttl_us=1 * H)
    assert isinstance(rule(facts(bounded)), AskProbe)
    absent = (read(80, "absent"), read(90, "absent"))
    assert isinstance(rule(probing(*absent, now_s=91, t=bounded)), SendAgain)
    at_its_end = probing(*absent, now_s=3600 - 60, t=bounded)
    lapsed_on_record = probing(*absent, now_s=91, t=bounded, demoted_to=PROBE, lapsed=True)
    for f in (at_its_end, lapsed_on_record):
        ruling = rule(f)
        assert isinstance(ruling, GiveUp)
        assert [(d.frm, d.to, d.rule) for d in ruling.demotions] == [(PROBE, AT_MOST_ONCE, "key-expired")]


# ---- probes under a clock that goes back -------------------------------------------------------------------


def test_a_clock_behind_the_dispatch_does_not_make_the_probe_wait_two_hours():
    back = facts(terms(PROBE), now=T0 - 2 * H)
    first = rule(back)
    assert isinstance(first, AskProbe)
    assert first.at_us == T0 - 2 * H
    began = T0 - 2 * H
    asked = replace(back, readings=(Reading(at_us=began, answer="absent"),), probing_since_us=began, now_us=began + 1)
    ruling = rule(asked)
    assert isinstance(ruling, AskProbe)
    assert ruling.at_us == began + 75 * S, "every wait counts anew from the first question"


def test_a_clock_that_goes_back_while_the_probe_is_asked_leads_to_a_person():
    absent = (read(80, "absent"), read(90, "absent"))
    ruling = rule(probing(*absent, now_s=85))
    assert ruling == GiveUp(rule="clock-went-back", inputs={"asked_at_us": T0 + 90 * S, "now_us": T0 + 85 * S})
    there_and_back = (read(80, "absent"), read(3, "absent"), read(90, "absent"))
    assert isinstance(rule(probing(*there_and_back, now_s=95)), GiveUp)
    since = rule(facts(terms(PROBE), probing_since_us=T0 + 2 * S, now=T0 + 1 * S))
    assert isinstance(since, GiveUp)
    assert since.rule == "clock-went-back"


# ---- keys and back-off -------------------------------------------------------------------------------------


def test_the_deadline_of_a_key():
    assert key_deadline_us(terms(KEYED), T0) == T0 + 24 * H - 65 * S
    assert key_deadline_us(terms(KEYED, ttl_us=None), T0) == T0 - 65 * S
    assert key_deadline_us(terms(PROBE, ttl_us=1 * H), T0) == T0 + 1 * H - 65 * S
    for t in (terms(PURE), terms(READ), terms(IDEMPOTENT), terms(PROBE), terms(AT_MOST_ONCE)):
        assert key_deadline_us(t, T0) is None
        assert key_lapse(t, first_dispatched_at_us=T0, now_us=0, latest_known_us=T0) is None


def test_the_key_lives_until_its_deadline_and_not_at_it():
    deadline = T0 + 24 * H - 65 * S
    times = {"first_dispatched_at_us": T0, "latest_known_us": T0}
    assert key_lapse(terms(KEYED), now_us=deadline - 1, **times) is None
    assert key_lapse(terms(KEYED), now_us=deadline, **times) == "key-expired"
    assert key_lapse(terms(KEYED), now_us=T0 - 1, **times) == "clock-went-back"
    assert key_lapse(terms(KEYED, ttl_us=None), now_us=T0, **times) == "key-ttl-unknown"


def test_back_off_doubles_up_to_a_minute():
    assert [backoff_us(n) // S for n in range(1, 10)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert backoff_us(10**9) == 60 * S
    with pytest.raises(InvariantViolated):
        backoff_us(0)


def test_an_intent_that_was_never_sent_is_not_ruled_upon():
    with pytest.raises(InvariantViolated):
        facts(terms(KEYED), sends=0)


# ---- whatever the facts ------------------------------------------------------------------------------------

MORE = settings(max_examples=max(400, settings().max_examples))

# Small and coarse on purpose: a boundary is met often, and so are facts that permit a send.


def seconds(last: int) -> st.SearchStrategy[int]:
    """Times and durations in steps of half a second."""
    return st.integers(0, 2 * last).map(lambda halves: halves * S // 2)


def any_terms(effect_class: EffectClass | None = None) -> st.SearchStrategy[Terms]:
    return st.builds(
        Terms,
        effect_class=st.sampled_from(EffectClass) if effect_class is None else st.just(effect_class),
        ttl_us=st.sampled_from([None, 1000 * S, 1000 * S]) | seconds(40),
        probe=st.sampled_from(["find", "find", "seek", None]),
        probe_version=st.sampled_from(["1", "1", "1", "2"]),
        lag_us=seconds(3),
        timeout_us=seconds(3),
        grace_us=seconds(2),
        max_sends=st.sampled_from([3, 4, 1]),
    ).map(lambda t: t if t.probe else replace(t, probe_version=None))


def any_facts(t: st.SearchStrategy[Terms] | None = None) -> st.SearchStrategy[Facts]:
    reading = st.builds(Reading, at_us=seconds(20), answer=st.sampled_from(["absent", "absent", "absent", "unknown"]))
    in_order = st.lists(reading, max_size=6).map(lambda rs: sorted(rs, key=lambda r: r.at_us))
    return st.builds(
        Facts,
        terms=any_terms() if t is None else t,
        sends=st.integers(1, 3),
        first_dispatched_at_us=seconds(4),
        last_dispatched_at_us=seconds(6),
        lease_taken_at_us=seconds(8),
        now_us=st.sampled_from([20 * S, 25 * S, 30 * S]) | seconds(30),
        latest_known_us=seconds(20),
        readings=(in_order | st.lists(reading, max_size=6)).map(tuple),
        probing_since_us=st.none() | seconds(10),
        probe_loaded=st.sampled_from([True, True, True, False]),
        demoted_to=st.sampled_from([None, None, None, PROBE, AT_MOST_ONCE]),
    )


def sends(f: Facts) -> bool:
    return isinstance(rule(f), SendAgain)


def two_absences_in_a_row(f: Facts) -> bool:
    """What protocol section 4 asks for, written down a second time for clocks that did not go back."""
    t = f.terms
    settled = max(f.last_dispatched_at_us + t.timeout_us + t.grace_us, f.lease_taken_at_us) + t.lag_us
    run: list[Reading] = []
    for reading in f.readings:
        run = [*run, reading] if reading.answer == "absent" and reading.at_us >= settled else []
    return any(b.at_us - a.at_us >= 1 * S for a in run for b in run[run.index(a) :])


@given(any_facts(any_terms(AT_MOST_ONCE)))
def test_at_most_once_is_never_sent_whatever_the_facts(f):
    assert not sends(f)


@given(any_facts())
def test_what_was_demoted_to_at_most_once_is_never_sent(f):
    assume(f.terms.effect_class is not PURE)
    assert not sends(replace(f, demoted_to=AT_MOST_ONCE))


@given(any_facts(any_terms(KEYED)))
def test_an_expired_key_without_a_probe_is_never_sent(f):
    expired = f.terms.ttl_us is None or f.now_us >= f.first_dispatched_at_us + f.terms.ttl_us - f.terms.timeout_us
    assume(expired or f.now_us < f.latest_known_us)
    assert not sends(replace(f, terms=replace(f.terms, probe=None, probe_version=None)))
    assert not sends(replace(f, probe_loaded=False))


@MORE
@given(any_facts(any_terms(PROBE) | any_terms(KEYED)))
def test_what_is_judged_by_its_probe_is_never_sent_without_two_absences(f):
    f = replace(f, demoted_to=PROBE, now_us=max(f.now_us, f.last_dispatched_at_us, f.lease_taken_at_us))
    if sends(f):
        assert two_absences_in_a_row(f)
        assert f.probe_loaded


def test_the_property_above_is_not_empty():
    absent = (read(80, "absent"), read(81, "absent"))
    assert two_absences_in_a_row(probing(*absent, now_s=90))
    assert sends(probing(*absent, now_s=90))
    assert not two_absences_in_a_row(probing(read(80, "absent"), read(80.9, "absent"), now_s=90))


@given(any_facts())
def test_no_more_than_max_sends(f):
    ruling = rule(f)
    if isinstance(ruling, SendAgain):
        assert ruling.send == f.sends + 1 <= f.terms.max_sends


@given(any_facts())
def test_demotions_lead_down_the_ladder_and_are_not_repeated_once_on_record(f):
    order = list(EffectClass)
    ruling = rule(f)
    for demotion in ruling.demotions:
        assert order.index(demotion.frm) < order.index(demotion.to)
        assert f.demoted_to is None or order.index(demotion.to) > order.index(f.demoted_to)
    if ruling.demotions:
        recorded = replace(f, demoted_to=ruling.demotions[-1].to)
        assert rule(recorded) == replace(ruling, demotions=())


KEYED_OR_PROBE = any_terms(KEYED) | any_terms(PROBE)


@MORE
@given(any_facts(), any_terms())
def test_a_deploy_permits_no_send_that_the_frozen_terms_forbid(f, current):
    assume(f.demoted_to is not PROBE or f.terms.effect_class in {KEYED, PROBE})  # nothing else is demoted to PROBE
    no_send_is_lent(f, current)


@MORE
@given(any_facts(KEYED_OR_PROBE), KEYED_OR_PROBE)
def test_a_deploy_between_keys_and_probes_does_not_either(f, current):
    no_send_is_lent(f, current)


def no_send_is_lent(f: Facts, current: Terms) -> None:
    """`stricter` and `rule` together: the loaded probe is the one that the current declaration names."""

    def judged_by(t: Terms) -> Facts:
        loaded = (t.probe, t.probe_version) == (current.probe, current.probe_version)
        judged: Facts = replace(f, terms=t, probe_loaded=loaded)
        return judged

    stored = f.terms
    assume(stored.effect_class is not PURE)
    effective, _ = stricter(stored, current)
    if sends(judged_by(effective)):
        assert sends(judged_by(stored))
        order = list(EffectClass)
        if order.index(current.effect_class) >= order.index(stored.effect_class):
            assert sends(judged_by(current))


@MORE
@given(any_facts(), st.lists(st.sampled_from(["absent", "unknown", "landed"]), max_size=40), st.data())
def test_the_ladder_always_comes_to_an_end(f, answers, data):
    """Who does what the ruling says comes to another one than AskProbe, wherever the clock stood."""
    f = replace(f, readings=(), probing_since_us=None)
    seen: list[Ruling] = []
    for n in range(60):
        ruling = rule(f)
        seen.append(ruling)
        if not isinstance(ruling, AskProbe):
            break
        began = max(f.now_us, ruling.at_us) + data.draw(st.integers(0, 2 * S))
        answer: Any = answers[n] if n < len(answers) else "unknown"
        f = replace(
            f,
            readings=(*f.readings, Reading(at_us=began, answer=answer)),
            probing_since_us=began if f.probing_since_us is None else f.probing_since_us,
            now_us=began + data.draw(st.integers(0, 2 * S)),
        )
    assert not isinstance(seen[-1], AskProbe), seen[-3:]


# ---- the page ----------------------------------------------------------------------------------------------


def every_kind() -> list[Ruling]:
    """One set of facts for each thing that a rule can give."""
    absent = (read(80, "absent"), read(90, "absent"))
    return [
        rule(facts(terms(PURE))),
        rule(facts(terms(READ))),
        rule(facts(terms(IDEMPOTENT))),
        rule(facts(terms(KEYED))),
        rule(facts(terms(KEYED), now=T0 + 24 * H)),
        rule(facts(terms(KEYED, ttl_us=None))),
        rule(facts(terms(KEYED), now=T0 - 1)),
        rule(facts(terms(PROBE, probe=None, probe_version=None))),
        rule(facts(terms(PROBE), probe_loaded=False)),
        rule(facts(terms(PROBE))),
        rule(probing(read(1, "absent"), now_s=2)),
        rule(probing(read(80, "absent"), now_s=81)),
        rule(probing(read(80, "unknown"), now_s=81)),
        rule(probing(read(80, "unknown"), read(200, "unknown"), now_s=201)),
        rule(probing(read(1, "landed"), now_s=2)),
        rule(probing(*absent, now_s=91)),
        rule(probing(*absent, now_s=85)),
        rule(facts(KEYED_WITH_PROBE, sends=3)),
        rule(facts(terms(READ), sends=3)),
        rule(facts(terms(AT_MOST_ONCE))),
    ]


def test_the_page_explains_every_rule_and_what_it_gives():
    gives: dict[str, set[str]] = {}
    for ruling in every_kind():
        gives.setdefault(ruling.rule, set()).add(type(ruling).__name__)
        for demotion in ruling.demotions:
            gives.setdefault(demotion.rule, set()).add("Demotion")
    assert set(gives) == set(get_args(Rule)), "every rule is met above"
    (rows,) = tables("effect-classes.md")["rule", "gives", "meaning"]
    assert {name: set(what.split(", ")) for name, what, _ in rows} == gives
    assert [name for name, _, _ in rows] == list(get_args(Rule)), "each once, in the order of the code"
    assert all(meaning for _, _, meaning in rows)


def test_the_rulings_are_a_closed_set():
    assert {cls.__name__ for cls in get_args(Ruling)} == {"Recompute", "SendAgain", "AskProbe", "Land", "GiveUp"}
    assert set(get_args(effect_class.KeyLapse)) <= set(get_args(Rule))
