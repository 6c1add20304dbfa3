"""The budget of everything that is released about the same people: reserve, settle, audit.

Needs the extra `ledger`: pip install 'beam-ldp[ledger]'.
"""

from beam_ldp.ledger.accounts import PeopleCount
from beam_ldp.ledger.admission import BudgetStatus
from beam_ldp.ledger.auditing import AuditReport, Check, audit
from beam_ldp.ledger.balances import Balances, Population
from beam_ldp.ledger.charges import Budget, Charge, Quota
from beam_ldp.ledger.ledger import BudgetLedger
from beam_ldp.ledger.participants import DamagedTagsError, PeopleKey, record_people
from beam_ldp.ledger.rows import (
    Anchor,
    BlockUsedUpError,
    BudgetExceededError,
    ChainHead,
    LedgerCorruptedError,
    LedgerError,
    ReleasedBeforeError,
    Row,
)
from beam_ldp.ledger.sinks import AnchorError, RolledBackError
from beam_ldp.ledger.state import Acceptance, LedgerState
from beam_ldp.ledger.store import LedgerMissingError, LedgerUnavailableError

__all__ = [
    "Acceptance",
    "Anchor",
    "AnchorError",
    "AuditReport",
    "BlockUsedUpError",
    "Balances",
    "Budget",
    "BudgetExceededError",
    "BudgetLedger",
    "BudgetStatus",
    "Charge",
    "Check",
    "DamagedTagsError",
    "ChainHead",
    "LedgerCorruptedError",
    "LedgerError",
    "LedgerMissingError",
    "LedgerState",
    "LedgerUnavailableError",
    "PeopleCount",
    "PeopleKey",
    "Population",
    "Quota",
    "ReleasedBeforeError",
    "RolledBackError",
    "Row",
    "audit",
    "record_people",
]
