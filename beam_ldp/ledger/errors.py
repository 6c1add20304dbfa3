"""What the ledger says when it refuses."""

from __future__ import annotations


class LedgerError(ValueError):
    """The ledger refuses; the message says what is wrong and what to do."""


class BudgetExceededError(LedgerError):
    """A charge does not fit into what is left. Nothing was reserved."""


class BlockUsedUpError(LedgerError):
    """All windows or rounds that were reserved have ended: no further one may be released."""
