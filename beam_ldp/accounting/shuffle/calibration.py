"""The largest message budgets whose price meets a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from beam_ldp.accounting.shuffle.multi_message import (
    LEMMA_CONSTANT,
    Method,
    checked_messages,
    multi_message_epsilon,
)
from beam_ldp.randomizers.roots import brentq

_TOLERANCE = 1e-5


def calibrate_messages(
    counts: Sequence[int],
    shape: Sequence[float] | np.ndarray,
    epsilon: float,
    delta: float,
    num_reports: int,
    method: Method = "auto",
) -> tuple[float, ...]:
    """Message epsilons, one per level, that spend (epsilon, delta) together.

    Args:
        counts: message columns per level.
        shape: relative noise parameters x = 2 sinh(e/2) of the levels.
        epsilon: central target.
        delta: central target.
        num_reports: users whose messages each shuffler permutes.
        method: how the price is proved.

    Returns:
        The largest epsilons of that shape whose price is at most the target (within 1e-5 of it).

    Raises:
        ValueError: if no budget of at most 30 per message can be calibrated.
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ValueError(f"epsilon must be a finite number > 0, got {epsilon}")
    relative = np.asarray(shape, dtype=float)
    if len(counts) != len(relative) or not np.all(relative > 0):
        raise ValueError("shape must hold one number > 0 per level")

    def budgets(log_scale: float) -> tuple[float, ...]:
        return tuple(2 * np.arcsinh(math.exp(log_scale) * relative / 2))

    def price(log_scale: float) -> float:
        columns = list(zip(counts, budgets(log_scale)))
        return multi_message_epsilon(columns, num_reports, delta, method)

    if method == "thesis":
        checked_messages(list(zip(counts, relative)), num_reports, delta, method)
        rho = (math.sqrt(math.log(1 / delta) + epsilon) - math.sqrt(math.log(1 / delta))) ** 2
        square = rho * num_reports / (LEMMA_CONSTANT * float(np.asarray(counts) @ relative**2))
        scale = 0.5 * math.log(square) - 1e-12
        price(scale)  # refuses what is outside the proven range
        return budgets(scale)
    mu = gaussian_mu(epsilon, delta)
    guess = math.log(mu * math.sqrt(num_reports / float(np.asarray(counts) @ relative**2)))
    return budgets(largest_below(price, epsilon, guess, math.log(2 * math.sinh(15.0))))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The Gaussian mechanism's sensitivity over standard deviation that costs (epsilon, delta).

    Source: Balle and Wang 2018; many small shuffled messages tend to it: mu^2 = sum x^2/n.
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ValueError(f"epsilon must be a finite number > 0, got {epsilon}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie in (0, 1), got {delta}")

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        first = special.ndtr(mu / 2 - epsilon / mu)
        log_second = epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
        return float(first - math.exp(log_second)) - delta

    return math.exp(float(brentq(excess, math.log(1e-9), math.log(1e4), xtol=1e-12)))


def largest_below(
    price: Callable[[float], float],
    target: float,
    guess: float,
    top: float,
    tolerance: float = _TOLERANCE,
) -> float:
    """An argument up to `top` whose (growing) price is at most the target, and hardly less.

    The logarithm of the price, which grows about as fast as the argument, misses that of the
    target by at most `tolerance`; where the price jumps, the argument misses the jump by that.

    Raises:
        ValueError: if even `top` costs less.
    """
    at, low, high = min(guess, top), -math.inf, math.inf
    below = above = 0.0
    while True:
        found = math.log(max(price(at), 1e-300) / target)
        if -tolerance <= found <= 0:
            return at
        if found > 0:
            high, above = at, found
        elif at < top:
            low, below = at, found
        else:
            raise ValueError(
                "epsilon must be small enough to need noise, got one that the largest message "
                "budget does not reach"
            )
        if high - low <= tolerance:
            return low
        if low == -math.inf or high == math.inf:
            at = min(top, at - math.copysign(min(abs(found) + tolerance / 2, 0.5), found))
        else:  # the secant, or half way where it says nothing
            share = (below + tolerance / 2) / (below - above) if above < 1 else 0.5
            at = low + min(max(share, 0.02), 0.98) * (high - low)
