"""The decision boundary without a runtime: a file that keeps what was decided, one JSON line per event.

An *intent* says that a decision was made and claims its id. A *commit* says that what followed from it
is done. Each is durable before control returns, so a timeout, a cancellation or a SIGKILL that comes
later cannot take it back. An intent without a commit is owed: `pending()` lists it, and what to do about
it is the owner's policy.

This package must never know about runs, effects or event loops. It keeps promise 1 of the mission for
code that has no runtime around it.

Source: requirement decision-ledger.md; design protocol.md, section 3, "Decisions".
"""

from __future__ import annotations

from poimen.ledger.decision_ledger import DecisionLedger
from poimen.ledger.lines import MAX_ID_CHARS, MAX_LINE_BYTES, Json, LedgerView

__all__ = ["MAX_ID_CHARS", "MAX_LINE_BYTES", "DecisionLedger", "Json", "LedgerView"]
