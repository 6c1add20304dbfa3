"""What may stand in a row: names, texts and numbers, checked before anything is written."""

from __future__ import annotations

import getpass
import math
import os

from beam_ldp.ledger.rows import Row

LONGEST_NAME, LONGEST_TEXT = 200, 2000  # characters
LARGEST_BODY = 1 << 20  # bytes of a row
LEAST_DELTA = 1e-300


def check_name(argument: str, name: str) -> None:
    """A ValueError unless the name is short printable text."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise ValueError(
            f"{argument} must be printable text of 1 to {LONGEST_NAME} characters, got "
            f"{str(name)[:40]!r}"
        )


def check_text(argument: str, text: str) -> None:
    """A ValueError unless the text is printable and not too long."""
    if not isinstance(text, str) or len(text) > LONGEST_TEXT or not text.isprintable():
        raise ValueError(f"{argument} must be printable text of at most {LONGEST_TEXT} characters")


def check_size(row: Row) -> None:
    """A ValueError for a row that is no record any more."""
    if len(row.text.encode()) > LARGEST_BODY:
        raise ValueError(
            f"about and event must take at most {LARGEST_BODY:,} bytes together: they are a "
            "record, not the data"
        )


def check_local(local_epsilon: float) -> None:
    """A ValueError unless the local epsilon is a finite number >= 0."""
    if not (math.isfinite(local_epsilon) and local_epsilon >= 0):
        raise ValueError(f"local_epsilon must be a finite number >= 0, got {local_epsilon}")


def login() -> str:
    """Name of whoever runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return f"user {os.getuid()}"


def check_budget(
    epsilon: float,
    delta: float,
    local_epsilon: float | None,
    orders: tuple[float, ...] | None,
    period_days: int | None,
) -> None:
    """A ValueError for numbers that make no budget."""
    for name, value in (("epsilon", epsilon), ("local_epsilon", local_epsilon)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number > 0, got {value}")
    if not LEAST_DELTA <= delta < 1:  # shares of a smaller one vanish
        raise ValueError(f"delta must lie in [{LEAST_DELTA:g}, 1), got {delta}")
    given = (2.0,) if orders is None else orders
    if not given or not all(math.isfinite(order) and order > 1 for order in given):
        raise ValueError("orders must be finite numbers > 1, at least one")
    if period_days is not None and (period_days != int(period_days) or period_days < 1):
        raise ValueError(f"period_days must be an integer >= 1, got {period_days}")
