"""What one event costs by Rényi orders, and without any delta."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from beam_ldp.accounting.composition.loss_curves import (
    HOPELESS,
    messages_divergences,
    renyi_divergences,
)
from beam_ldp.accounting.reports import (
    SELF,
    WITHOUT_REPLACEMENT,
    LocalReports,
    SampledReports,
    ShuffledMessages,
    ShuffledReports,
)


@lru_cache(maxsize=256)
def event_divergences(event: Any, orders: tuple[float, ...]) -> np.ndarray:
    """Upper bounds of the Rényi divergence at each real order above one; infinite where unknown."""
    values = np.array(orders)
    if isinstance(event, ShuffledMessages):
        return messages_divergences(event, values)
    if isinstance(event, LocalReports):
        return _randomized_response(event.local_epsilon, values)
    if isinstance(event, (ShuffledReports, SampledReports)):
        if event.local_epsilon > HOPELESS:
            return np.full(len(values), largest_loss(event))
        return renyi_divergences(event, values)
    from beam_ldp.accounting.composition import (
        central,  # loads dp_accounting, whose events these are
    )

    return central.divergences(event, values)


def largest_loss(event: Any) -> float:
    """Pure epsilon of one release, about one person (with several points: about one of them)."""
    if isinstance(event, (LocalReports, ShuffledReports, ShuffledMessages)):
        return event.local_epsilon
    if not isinstance(event, SampledReports):
        from beam_ldp.accounting.composition import central  # as above

        return central.largest_loss(event)
    if event.sampling != WITHOUT_REPLACEMENT:  # everybody may have come
        rate = 1 / event.points_per_client if event.sampling == SELF else 1.0
    elif event.points_sampled == 1:
        rate = event.rate
    else:
        rate = event.points_sampled / event.points_per_client
    local = event.local_epsilon
    return local if local > HOPELESS else math.log1p(rate * math.expm1(local))


def _randomized_response(local_epsilon: float, orders: np.ndarray) -> np.ndarray:
    """The largest divergence of any mechanism with this epsilon: binary randomized response."""
    truth, lie = -np.log1p(np.exp(-local_epsilon)), -np.log1p(np.exp(local_epsilon))
    first = orders * truth + (1 - orders) * lie
    second = orders * lie + (1 - orders) * truth
    return np.minimum(np.logaddexp(first, second) / (orders - 1), local_epsilon)
