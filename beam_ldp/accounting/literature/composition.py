"""Composition and subsampling of (epsilon, delta) guarantees, each named after its source.

These are the baselines that Rényi and privacy-loss accounting are compared with. All are valid
for adaptively chosen mechanisms with fixed guarantees.
"""

from __future__ import annotations

import numpy as np

from beam_ldp.accounting.divergences import binomials
from beam_ldp.accounting.divergences.moments import binomial_log_pmf, binomial_window
from beam_ldp.randomizers.roots import brentq


def compose_basic(epsilon: float, delta: float, count: int) -> tuple[float, float]:
    """Guarantees add up."""
    return count * epsilon, min(1.0, count * delta)


def compose_basic_with(
    epsilon: float, delta: float, count: int, slack: float
) -> tuple[float, float]:
    """The same where part of delta was kept for the composition, which does not need it."""
    return compose_basic(epsilon, delta, count)


def compose_strong(epsilon: float, delta: float, count: int, slack: float) -> tuple[float, float]:
    """Dwork, Rothblum and Vadhan 2010; thesis, Lemma 2.1.2. `slack` is added to delta."""
    strong = np.sqrt(2 * count * np.log(1 / slack)) * epsilon + count * epsilon * np.expm1(epsilon)
    return float(min(strong, count * epsilon)), min(1.0, count * delta + slack)


def compose_kov(epsilon: float, delta: float, count: int, slack: float) -> tuple[float, float]:
    """Kairouz, Oh and Viswanath 2015, closed form (Theorem 3.4)."""
    drift = count * epsilon * np.tanh(epsilon / 2)
    spread = np.sqrt(count) * epsilon
    composed = min(
        count * epsilon,
        drift + spread * np.sqrt(2 * np.log(np.e + spread / slack)),
        drift + spread * np.sqrt(2 * np.log(1 / slack)),
    )
    return float(composed), _kov_delta(delta, count, slack)


def compose_kov_exact(
    epsilon: float, delta: float, count: int, slack: float
) -> tuple[float, float]:
    """Kairouz, Oh and Viswanath 2015, the optimal composition of equal guarantees.

    The worst pair is `count` binary randomized responses; its hockey stick is one binomial sum.
    """
    truth = 1 / (1 + np.exp(-epsilon))
    truths = binomial_window(count, truth, 0.0)
    mass = np.exp(binomial_log_pmf(truths, count, truth))
    losses = (2 * truths - count) * epsilon
    left_out = float(binomials.cdf(truths[0] - 1, count, truth))
    left_out += float(binomials.sf(truths[-1], count, truth))

    def excess(total: float) -> float:
        gaps = np.minimum(total - losses, 0.0)
        return float(np.sum(mass * -np.expm1(gaps))) + left_out - slack

    if excess(0.0) <= 0:
        return 0.0, _kov_delta(delta, count, slack)
    composed = brentq(excess, 0.0, count * epsilon, xtol=1e-12, rtol=1e-12)
    return float(composed), _kov_delta(delta, count, slack)


def subsample(epsilon: float, delta: float, rate: float) -> tuple[float, float]:
    """A guarantee for a uniformly drawn fixed-size fraction; thesis, Lemma 2.1.1 (replace-one)."""
    if not 0 < rate <= 1:
        raise ValueError(f"rate must lie in (0, 1], got {rate}")
    return float(np.log1p(rate * np.expm1(epsilon))), rate * delta


def _kov_delta(delta: float, count: int, slack: float) -> float:
    return float(-np.expm1(count * np.log1p(-delta) + np.log1p(-slack)))
