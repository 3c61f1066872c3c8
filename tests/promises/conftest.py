"""The tests of cancellation use the children and the databases of the acceptance cases."""

from __future__ import annotations

from tests.cases.conftest import case, nursery

__all__ = ["case", "nursery"]
