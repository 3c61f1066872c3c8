"""What a workflow is told of an error while the process lives, to be held against what a replay tells it.

Source: design protocol.md, section 3 ("Live and replay hand out the same thing").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from poimen.gate.error_record import rebuild, record_of
from poimen.gate.outcome import Failed, Maybe, RejectedBy, Unsent

if TYPE_CHECKING:
    from poimen.gate.error_record import Kind
    from poimen.gate.outcome import Raised


def kind_of(ending: Raised) -> Kind:
    """What a workflow is told of an ending, as `rebuild` takes it; a maybe only where it asked to be told."""
    match ending:
        case RejectedBy():
            return "rejected"
        case Unsent():
            return "not_sent"
        case Failed():
            return "failed"
        case Maybe():
            return "indeterminate"


def same_live(exc: BaseException, ending: Raised | None = None, *, intent_id: str = "") -> Exception:
    """The exception that a replay will raise, now, with the original as its `__cause__`.

    Arguments:
        exc: the original.
        ending: how it was judged; None for an error of a step or workflow body, which is nothing but a failure.
        intent_id: of the effect, where the workflow is told of an unknown.
    """
    kind: Kind = "failed" if ending is None else kind_of(ending)
    record = record_of(exc) if ending is None else ending.error
    told = rebuild(kind, record, intent_id=intent_id)
    told.__cause__ = exc
    return told
