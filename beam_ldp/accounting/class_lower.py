"""What no analysis can go below that knows a mechanism by its local epsilon alone.

Binary and ternary randomized response are such mechanisms; what a concrete pair of datasets costs
with them bounds the price of the class from below.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from beam_ldp.accounting.moments import Atoms, binomial_log_pmf, binomial_window
from beam_ldp.accounting.privacy_loss import composed_lower_epsilon
from beam_ldp.accounting.shuffle_rdp import LARGEST_TWO_COUNT_CROWD, three_response_atoms

_TILT = 100.0


def two_response_atoms(local_epsilon: float, num_reports: int, rate: float = 1.0) -> Atoms:
    """Binary randomized response, everybody else equal; the victim reports with `rate`."""
    ratio = np.exp(local_epsilon)
    heads = 1 / (ratio + 1)
    counts = binomial_window(num_reports, heads, _TILT)
    excess = rate * (ratio - 1 / ratio) / num_reports * (counts - num_reports * heads)
    log_mass = binomial_log_pmf(counts, num_reports, heads)
    return Atoms(log_mass, 1 + excess, np.ones_like(excess))


@lru_cache(maxsize=256)
def class_lower_epsilon(
    local_epsilon: float, num_reports: int, rate: float, count: int, delta: float
) -> float:
    """Certified lower bound of the epsilon of `count` releases, for the worst randomizer.

    Args:
        local_epsilon: eps0.
        num_reports: Reports in each shuffled batch.
        rate: Probability that a person is drawn for a batch; 1 without sampling.
        count: Releases.
        delta: In (0, 1).
    """
    pairs = [two_response_atoms(local_epsilon, num_reports, rate)]
    if num_reports <= LARGEST_TWO_COUNT_CROWD // 4:
        pairs.append(three_response_atoms(local_epsilon, num_reports, rate, _TILT))
    return max(composed_lower_epsilon(pair, count, delta) for pair in pairs)
