"""What stages ask of a mechanism before any value is at hand."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from beam_ldp.randomizers.base import LocalRandomizer

if TYPE_CHECKING:
    from typing import TypeGuard

    from beam_ldp.randomizers.mean.base import MeanRandomizer
    from beam_ldp.transforms.stage_types import Task

BLOCK_BYTES = 1 << 23  # reports that are made, counted or passed on together
BLOCK_ROWS = 1 << 20


def is_mean(randomizer: Any) -> TypeGuard[MeanRandomizer]:
    """Whether the mechanism takes vectors.

    Mean mechanisms take long to import; a program that has not done so has none.
    """
    module = sys.modules.get("beam_ldp.randomizers.mean.base")
    return module is not None and isinstance(randomizer, module.MeanRandomizer)


def task_of(randomizer: Any) -> Task:
    """What the mechanism's reports are for."""
    return "mean" if is_mean(randomizer) else "frequency"


def check_mean(randomizer: Any) -> None:
    """A TypeError unless the mechanism is one for means."""
    if not is_mean(randomizer):
        raise TypeError(f"randomizer must be a MeanRandomizer, got {type(randomizer).__name__}")


def vector_size(randomizer: LocalRandomizer) -> int | None:
    """Numbers in one value; None where a value is one number."""
    return randomizer.dimension if is_mean(randomizer) and randomizer.dimension > 1 else None


def report_bytes(randomizer: LocalRandomizer) -> int:
    """What one user's report takes in memory."""
    size = randomizer.report_dtype.itemsize
    for length in randomizer.report_shape:
        size *= length
    return max(1, size)


def rows_in(num_bytes: int, row_bytes: int) -> int:
    """Rows of that size in a block of at most `num_bytes` bytes and `BLOCK_ROWS` rows."""
    return min(BLOCK_ROWS, max(1, num_bytes // row_bytes))
