"""People who take part by a coin of their own: the price averaged over how many did.

How many took part is visible and does not depend on anybody's value. So the loss of a round is a
mixture, over that number, of the losses of samples of a fixed size; nothing is added to delta, as
the thesis does (Theorem 4.4.1). Poisson sampling of people is the same thing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy import stats

from beam_ldp.accounting.events import LocalRandomizerDpEvent, SubsampledShuffledDpEvent
from beam_ldp.accounting.loss_curves import (
    STEPS_PER_DEVIATION,
    loss_deviation,
    loss_distribution,
    renyi_divergences,
)

# Upper edges of the blocks of participant counts, in standard deviations above the mean.
_EDGES = (-1.0, -0.3, 0.3, 1.0, 1.8, 3.0, 8.0)


def participant_blocks(num_users: int, chance: float) -> tuple[list[int], np.ndarray]:
    """Numbers of participants, rounded up to few values, and how likely each is.

    A batch of fewer people is that of more with random reports left out, so it costs no more:
    rounding up is safe.
    """
    law = stats.binom(num_users, chance)
    edges = np.ceil(law.mean() + law.std() * np.array(_EDGES))
    edges = np.unique(np.clip(np.append(edges, num_users), 1, num_users)).astype(int)
    reached = law.cdf(edges)
    return edges.tolist(), np.diff(reached, prepend=0.0)


def self_sampled_divergences(
    local: LocalRandomizerDpEvent,
    orders: np.ndarray,
    num_users: int,
    chance: float,
    points_per_client: int = 1,
) -> np.ndarray:
    """Upper bounds of the Rényi divergence of a round at each order.

    Args:
        local: how each report was randomized.
        orders: real orders above one.
        num_users: people.
        chance: how likely each takes part.
        points_per_client: points that each holds; whoever takes part reports one, drawn evenly.
    """
    orders = np.asarray(orders, dtype=float)
    counts, weights = participant_blocks(num_users, chance)
    largest = np.array(
        [
            (orders - 1) * renyi_divergences(_round(local, num_users, k, points_per_client), orders)
            for k in counts
        ]
    )
    if largest.max() < 1:
        return np.asarray(np.log1p(weights @ np.expm1(largest)) / (orders - 1))
    with np.errstate(divide="ignore"):
        mixed = np.logaddexp.reduce(np.log(weights)[:, None] + largest, axis=0)
    return np.asarray(mixed / (orders - 1))


def self_sampled_distribution(
    local: LocalRandomizerDpEvent, num_users: int, chance: float, points_per_client: int = 1
) -> PrivacyLossDistribution:
    """Pessimistic privacy-loss distribution of a round; see `self_sampled_divergences`."""
    counts, weights = participant_blocks(num_users, chance)
    events = [_round(local, num_users, k, points_per_client) for k in counts]
    typical = events[int(np.argmax(weights))]
    step = loss_deviation(typical) / STEPS_PER_DEVIATION
    parts = [loss_distribution(event, step, whole=False) for event in events]
    directions: list[Callable[[PrivacyLossDistribution], pld_pmf.PLDPmf]] = [
        lambda part: part._pmf_remove,
        lambda part: part._pmf_add,
    ]
    return PrivacyLossDistribution(
        *(_mixture([side(part) for part in parts], weights) for side in directions)
    )


def _round(
    local: LocalRandomizerDpEvent, num_users: int, taking_part: int, points_per_client: int
) -> SubsampledShuffledDpEvent:
    return SubsampledShuffledDpEvent(local, num_users, taking_part, points_per_client)


def _mixture(parts: list[pld_pmf.PLDPmf], weights: np.ndarray) -> pld_pmf.PLDPmf:
    """The loss of one of several mechanisms, where the reader is told which."""
    dense = [part.to_dense_pmf() for part in parts]
    low = min(part._lower_loss for part in dense)
    high = max(part._lower_loss + part.size for part in dense)
    mass = np.zeros(high - low)
    for part, weight in zip(dense, weights, strict=True):
        start = part._lower_loss - low
        mass[start : start + part.size] += weight * part._probs
    beyond = float(sum(w * part._infinity_mass for w, part in zip(weights, dense, strict=True)))
    return pld_pmf.DensePLDPmf(dense[0]._discretization, low, mass, beyond, True)
