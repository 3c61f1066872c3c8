"""Our name for one effect, fixed before dispatch: the same for a retry and for a rewound branch.

It has no attempt number, no branch and no model-made text in it, so whatever runs the same effect
again presents the same id. This module must never know about the log; it keeps the invariant I10
together with the fold: from its first Dispatched, one request id is one tool and one args digest.

Source: design protocol.md, section 3 ("Request id"); requirement write-ahead-intent, "Traps".
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from poimen.kernel.errors import CodeChanged
from poimen.kernel.ids import RequestId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poimen.kernel.views import IntentView


def request_id(*, nonce: str, step: str, ordinal: int, tool: str, generation: int) -> RequestId:
    """The id of an effect: 32 hex digits.

    Arguments:
        nonce: random, from the run's admission record.
        step: the key of the step.
        ordinal: the effect's number in its attempt, from 0.
        tool: the tool's name.
        generation: grows when the earlier sends are known to have done nothing and the arguments differ,
            after a completed undo, or by an operator's redo.
    """
    text = "\x00".join((nonce, step, str(ordinal), tool, str(generation)))
    return RequestId(hashlib.sha256(text.encode()).hexdigest()[:32])


def read_request_id(base: RequestId, *, attempt: int) -> RequestId:
    """The id of a READ: each attempt asks anew."""
    return RequestId(f"{base}-{attempt}")


def generation(earlier: Sequence[IntentView], *, args_digest: str) -> int:
    """The generation of the next intent at the same step, ordinal and tool, over all branches of the run.

    Arguments:
        earlier: the intents made there before, oldest first.
        args_digest: digest of the arguments now.

    Raises:
        CodeChanged: other arguments are asked for while an earlier send may have landed.
    """
    if not earlier:
        return 0
    newest = max(i.pending.generation for i in earlier)
    sent = [i for i in earlier if i.pending.generation == newest and i.sends]
    if not sent or all(i.pending.args_digest == args_digest for i in sent):
        return newest
    if all(i.did_nothing for i in sent):
        return newest + 1
    known = sent[-1]
    raise CodeChanged(
        f"{known.pending.tool} was sent with other arguments under request id {known.pending.request_id}",
        where=str(known.id),
        why="that send may have landed; nothing was executed now",
    )
