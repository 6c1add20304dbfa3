"""What time a row is of: the database's, or a machine's whose jumps are bounded.

A budget that is granted anew every month must not be granted by a wrong clock. PostgreSQL has a
clock that all clients share. With SQLite each machine brings its own: a row that decides (a budget,
a reservation) may be at most `JUMP_DAYS` later than the row before it; beyond, somebody says that
the time is right (`BudgetLedger.accept_time`), in a row that audits show. Rows that decide nothing
(a settlement) are written at any time, and then bear the time of the row before. No row is earlier
than the one before: a clock that is set back opens no earlier period.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from beam_ldp.ledger.errors import LedgerError

JUMP_DAYS = 32  # that a machine's clock may be ahead of the last row


def as_text(time: datetime) -> str:
    """ISO 8601, UTC, in seconds."""
    return time.astimezone(timezone.utc).isoformat(timespec="seconds")


def jumps(now: str, last: str) -> bool:
    """Whether a machine's time is too far ahead of the last row's."""
    if not last:
        return False
    ahead = datetime.fromisoformat(now) - datetime.fromisoformat(last)
    return ahead > timedelta(days=JUMP_DAYS)


def row_time(now: str, last: str, *, decides: bool, trusted: bool) -> str:
    """The time of the next row.

    Args:
        now: by the clock.
        last: of the last row; "" if there is none.
        decides: whether something is granted or reserved.
        trusted: whether it is the database's clock.

    Raises:
        LedgerError: if the clock has jumped.
    """
    if trusted or not jumps(now, last):
        return max(now, last)
    if decides:
        raise LedgerError(
            f"this machine's clock says {now}, and the last row is of {last}: more than "
            f"{JUMP_DAYS} days before. If the clock is right, `beam-ldp budget accept-time` says "
            "so, in a row that audits show; a wrong one would grant budgets anew"
        )
    return last
