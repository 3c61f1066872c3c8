"""Every event survives the way to bytes and back, under a tag that never changes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poimen.kernel import events, intent
from poimen.kernel.effect_class import EffectClass, Terms
from poimen.kernel.errors import Corrupt
from poimen.log import codec

EVENTS = [cls for group in get_args(events.Event) for cls in (get_args(group) or (group,))]

TEXT = st.text(max_size=12)
NUMBER = st.integers(min_value=0, max_value=2**53)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
BLOB = st.builds(intent.BlobRef, digest=TEXT, size=NUMBER, media_type=TEXT)
BODY = JSON.map(lambda value: json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
TERMS = st.builds(
    Terms,
    effect_class=st.sampled_from(EffectClass),
    ttl_us=st.none() | NUMBER,
    probe=st.none() | TEXT,
    probe_version=st.none() | TEXT,
    lag_us=NUMBER,
    timeout_us=NUMBER,
    grace_us=NUMBER,
    max_sends=st.integers(1, 9),
)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation of an event's field."""
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: TEXT,
        int: NUMBER,
        bool: st.booleans(),
        bytes: BODY,
        Terms: TERMS,
        type(None): st.none(),
        Any: JSON,
    }
    if hint in plain:
        return plain[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(values_of(args[0]), max_size=3).map(tuple)
    if origin is not None and issubclass_mapping(origin):
        return st.dictionaries(TEXT, JSON if args[1] is not str else TEXT, max_size=3)
    if args:
        return st.one_of([values_of(arg) for arg in args])
    if isinstance(hint, type) and issubclass(hint, (EffectClass, intent.Classification, intent.Resolution)):
        return st.sampled_from(list(hint))
    if dataclasses.is_dataclass(hint):
        return instances(hint)
    raise AssertionError(f"no values for {hint!r}: add them here")


def issubclass_mapping(origin: Any) -> bool:
    """Whether the origin of an annotation is a mapping."""
    return isinstance(origin, type) and hasattr(origin, "keys")


def instances(cls: Any) -> st.SearchStrategy[Any]:
    """Instances of an event type, every field drawn."""
    hints = get_type_hints(cls)
    return st.builds(cls, **{spec.name: values_of(hints[spec.name]) for spec in dataclasses.fields(cls)})


def test_every_event_type_has_one_tag_and_every_tag_an_event_type() -> None:
    assert set(codec.TAGS.values()) == set(EVENTS)
    assert len(codec.KINDS) == len(codec.TAGS)
    assert all(tag.rpartition(".v")[2].isdecimal() for tag in codec.TAGS)


@pytest.mark.parametrize("cls", EVENTS, ids=lambda cls: cls.__name__)
def test_decoding_what_was_encoded_gives_an_equal_event(cls: Any) -> None:
    @settings(max_examples=25, deadline=None)
    @given(instances(cls))
    def round_trip(event: Any) -> None:
        body = codec.encode(event)
        again = codec.decode(codec.KINDS[cls], body)
        assert again == event
        assert codec.encode(again) == body

    round_trip()


@pytest.mark.parametrize("cls", EVENTS, ids=lambda cls: cls.__name__)
def test_a_field_is_left_out_exactly_when_it_has_its_default(cls: Any) -> None:
    @settings(max_examples=25, deadline=None)
    @given(instances(cls))
    def says(event: Any) -> None:
        wanted = [spec.name for spec in dataclasses.fields(cls) if getattr(event, spec.name) != spec.default]
        assert list(json.loads(codec.encode(event))) == sorted(wanted)

    says()


def test_a_default_is_told_by_its_value_whatever_made_it() -> None:
    event = events.RunAdmitted(
        workflow="w", version="", code="", args=b"{}", args_digest="", nonce="", by="",
        on_indeterminate=b"wait".decode(),  # type: ignore[arg-type]
    )  # fmt: skip
    assert b"on_indeterminate" not in codec.encode(event)
    defaults = [spec.default for cls in EVENTS for spec in dataclasses.fields(cls)]
    assert {type(default) for default in defaults if default is not dataclasses.MISSING} <= {
        str,
        int,
        bool,
        tuple,
        type(None),
    }
    assert all(default in {0, -1} for default in defaults if type(default) is int), "an int that exists once"


def test_what_is_no_unicode_is_replaced_and_nothing_else() -> None:
    error = intent.ErrorRecord(type="E", message="\ud800", fields={"a": "ä\udfff"})
    event = events.AttemptFailed(step="a#0", attempt=1, error=error)
    unknown = events.AttemptIndeterminate(step="\ud800", attempt=1, cause="cancel", unknown=(0,))
    assert codec.encode(unknown) == b'{"attempt":1,"cause":"cancel","step":"?","unknown":[0]}'
    assert codec.encode(event) == (
        '{"attempt":1,"error":{"fields":{"a":"ä?"},"message":"?","type":"E"},"step":"a#0"}'.encode()
    )


def test_terms_that_are_not_given_are_left_out() -> None:
    terms = Terms(
        effect_class=EffectClass.KEYED, ttl_us=None, probe="", probe_version=None, lag_us=0, timeout_us=1, grace_us=2,
        max_sends=3,
    )  # fmt: skip
    event = intent.IntentPending(
        step="a", attempt=1, ordinal=0, tool="t", version="", terms=terms, args_digest="", request_id="r"
    )
    assert b'"terms":{"effect_class":"KEYED","grace_us":2,"lag_us":0,"max_sends":3,"probe":"","timeout_us":1}' in (
        codec.encode(event)
    )


def test_bodies_are_canonical_keys_sorted_payloads_embedded() -> None:
    event = events.AttemptSucceeded(step="a#0", attempt=1, value=b'{"b":[1,2],"a":null}', ordinal=None)
    assert codec.encode(event) == b'{"attempt":1,"step":"a#0","value":{"b":[1,2],"a":null}}'


def test_nothing_and_the_value_null_are_told_apart() -> None:
    nothing = events.AttemptSucceeded(step="a#0", attempt=1, ordinal=0)
    null = events.AttemptSucceeded(step="a#0", attempt=1, value=b"null")
    for event in (nothing, null):
        assert codec.decode("attempt.succeeded.v1", codec.encode(event)) == event


def test_an_unknown_field_of_a_newer_version_does_not_stop_the_reader() -> None:
    body = b'{"attempt":1,"n":0,"step":"","of_a_later_version":{"x":1}}'
    assert codec.decode("timer.fired.v1", body) == events.TimerFired(step="", attempt=1, n=0)


@pytest.mark.parametrize(
    ("why", "now", "detail"),
    [
        ("cancel", "cancel", ""),
        ("timeout", "timeout", ""),
        ("sends-used-up", "sends-used-up", ""),
        ("crash loop", "crash-loop", ""),
        ("another effect of this attempt is unknown", "held-back", ""),
        ("KeyboardInterrupt: ", "interrupted", "KeyboardInterrupt: "),
    ],
)
def test_a_dropped_read_of_version_1_has_its_reason_in_any_words(why: str, now: intent.DropReason, detail: str) -> None:
    body = f'{{"attempt":1,"ordinal":0,"send":1,"step":"a","why":"{why}"}}'.encode()
    read = codec.decode("intent.read_dropped.v1", body)
    assert read == intent.ReadDropped(step="a", attempt=1, ordinal=0, send=1, why=now, detail=detail)
    assert codec.class_of("intent.read_dropped.v1") is intent.ReadDropped


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("intent.read_dropped.v1", b"{}"),
        ("intent.read_dropped.v1", b"[]"),
        ("intent.read_dropped.v2", b'{"attempt":1,"ordinal":0,"send":1,"step":"a","why":"crash loop"}'),
        ("timer.fired.v99", b"{}"),
        ("timer.fired.v1", b"{}"),
        ("timer.fired.v1", b"not json"),
        ("intent.committed.v1", b'{"step":"a","attempt":1,"ordinal":0,"send":1,"outcome":{"kind":"a new one"}}'),
        ("intent.committed.v1", b'{"step":"a","attempt":1,"ordinal":0,"send":1,"outcome":{}}'),
    ],
)
def test_what_cannot_be_read_is_damage_never_a_guess(kind: str, body: bytes) -> None:
    with pytest.raises(Corrupt):
        codec.decode(kind, body)


def test_only_what_may_be_lost_may_wait() -> None:
    assert {
        events.AttemptStarted,
        events.AttemptSucceeded,
        events.AttemptFailed,
        events.StepComputed,
    } == events.EVENTUAL
    immediate = set(EVENTS) - events.EVENTUAL
    assert set(get_args(intent.IntentEvent)) <= immediate
    assert {
        events.DecisionRecorded,
        events.AttemptCancelled,
        events.AttemptIndeterminate,
        events.AttemptTimedOut,
    } <= immediate
