"""Records and the bodies in them, as JSON and in a few words for people.

Arguments and values are agent text: they are shown only with --content, which whoever calls this asks for. This module
must never know a single command; it keeps the invariant that a record of any kind, known or not, can be shown.

Source: design api.md, "Command line".
"""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from poimen.blobs.api import gone
from poimen.cli.frame.output import Json, rfc3339
from poimen.kernel.errors import Corrupt, NotFound
from poimen.kernel.intent import short
from poimen.log import codec

if TYPE_CHECKING:
    from poimen.cli.frame.session import Log
    from poimen.kernel.intent import Payload
    from poimen.log.api import Record

WORDS: Final = {"never_sent": "never sent", "may_have_been_sent": "may have been sent"}

# ---- bodies ----------------------------------------------------------------------------------------------------


def body_of(payload: Payload | None, log: Log, *, content: bool) -> Json:
    """A body that a user brought: its value with --content, else its size.

    Arguments:
        payload: canonical JSON, or where it lies.
        log: to fetch it from.
        content: whether it was asked for.
    """
    if payload is None:
        return None
    if not content:
        return {"hidden": True, "bytes": len(payload) if isinstance(payload, bytes) else payload.size}
    if isinstance(payload, bytes):
        value: Json = json.loads(payload)
        return value
    return _fetched(payload.digest, log)


def _fetched(digest: str, log: Log) -> Json:
    """A body that lies beside its record; one that is gone is named, and the command goes on and ends as damaged."""
    try:
        value: Json = json.loads(log.bodies.get(digest))
    except NotFound:
        log.damaged.append(gone(digest, "a record", log.bodies.place(digest)))
    except Corrupt as error:
        log.damaged.append(error)
    else:
        return value
    return {"gone": digest}


def body_shape(record: Record, log: Log, *, content: bool) -> dict[str, Any]:
    """A record's body as JSON: what was stored, what was left out as a default, bodies shown or told by their sizes.

    Arguments:
        record: of any kind, known or not.
        log: to fetch large bodies from.
        content: whether bodies were asked for.
    """
    body = _whole(codec.class_of(record.kind), codec.plain(record))
    outcome = body.get("outcome")
    if isinstance(outcome, dict):
        body["outcome"] = _whole(codec.OUTCOMES.get(str(outcome.get("kind"))), outcome)
    for part in (body, body.get("outcome"), body.get("error"), (body.get("outcome") or {}).get("error")):
        for name in ("args", "value", "fields"):
            if isinstance(part, dict) and part.get(name) is not None:
                part[name] = _shown(part[name], log, content=content)
    for waiting in body.get("reasons", ()):
        if waiting.get("asked"):
            waiting["asked"] = _shown(waiting["asked"], log, content=content)
    return body


def _whole(cls: type | None, body: dict[str, Any]) -> dict[str, Any]:
    """A body with the fields that were left out because they have their default values."""
    left_out: dict[str, Any] = {}
    for field in dataclasses.fields(cls) if cls is not None else ():
        if field.default_factory is not dataclasses.MISSING:
            left_out[field.name] = field.default_factory()
        elif field.default is not dataclasses.MISSING:
            left_out[field.name] = field.default
    return left_out | body


def _shown(value: Any, log: Log, *, content: bool) -> Json:
    blob = value.get("$blob") if isinstance(value, dict) and len(value) == 1 else None
    if not content:
        size = blob["size"] if blob else len(codec.canonical(value))
        return {"hidden": True, "bytes": size}
    if blob:
        return _fetched(blob["digest"], log)
    found: Json = value
    return found


def name_of(tag: str) -> str:
    """The name of a stored kind: `IntentPending` for `intent.pending.v1`; an unknown one as it is."""
    known = codec.class_of(tag)
    return known.__name__ if known is not None else tag


def record_shape(record: Record, log: Log, *, content: bool) -> dict[str, Json]:
    """A record as JSON, its body included."""
    return {
        "lsn": record.lsn,
        "at": rfc3339(record.at),
        "kind": name_of(record.kind),
        "tag": record.kind,
        "run_id": record.run,
        "branch": record.branch,
        "subject": record.subject,
        "epoch": record.epoch,
        "record_id": record.record_id,
        "hash": record.hash.hex(),
        "body": body_shape(record, log, content=content),
    }


# ---- in words --------------------------------------------------------------------------------------------------


def told(one: dict[str, Any]) -> str:
    """What a record about an intent says, in a few words; nothing where its form is not known.

    Arguments:
        one: of the `records` of `intent_shape`.
    """
    with suppress(KeyError, TypeError):
        return _told(one["kind"], one["body"])
    return ""


def _told(kind: str, body: dict[str, Any]) -> str:
    match kind:
        case "IntentPending":
            return f"{body['tool']}: {body['summary']}" if body["summary"] else short(body["tool"])
        case "IntentDispatched":
            return f"send {body['send']}: from here on it may have been sent"
        case "IntentCommitted" | "SendAnswered" | "LateOutcome":
            return f"send {body['send']}: {_outcome(body['outcome'])}"
        case "IntentClassified":
            return f"after a crash: {WORDS.get(body['classification'], body['classification'])}"
        case "IntentProbed":
            return f"asked by {body['by']}: {body['answer']}" + (f", {body['evidence']}" if body["evidence"] else "")
        case "IntentDemoted":
            return f"judged as {body['to']} from here on: {body['rule']}"
        case "RuleApplied":
            return f"rule {body['rule']}: {body['result']}"
        case "IntentResolved":
            return f"{body['to']} by {body['by']} ({body['rule']}): {body['why']}"
        case "IntentClaimed":
            return f"{body['by']} is looking at it"
        case "ReadDropped":
            return f"given up: {body['why']}"
        case _:
            return ""


def _outcome(outcome: dict[str, Any]) -> str:
    error = outcome.get("error")
    return f"{outcome['kind'].replace('_', ' ')}" + (f", {error['type']}: {error['message']}" if error else "")


def args_text(args: Json) -> str:
    """Arguments for people: as JSON, or how large they are."""
    if isinstance(args, dict) and args.get("hidden") is True:
        return f"{args['bytes']} bytes (--content shows them)"
    return json.dumps(args, ensure_ascii=False)
