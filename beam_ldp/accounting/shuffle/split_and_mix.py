"""The price of a release of shuffled additive shares, which nothing but the shuffle protects."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from beam_ldp.accounting.divergences.loss_grid import composed_losses, less_rounding
from beam_ldp.accounting.divergences.moments import Atoms
from beam_ldp.accounting.lower import PrivacyBound
from beam_ldp.accounting.shares import ShuffledShares
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.randomizers.discrete_noise import sum_log_ratio
from beam_ldp.randomizers.mean.split_and_mix import SplitAndMixMean
from beam_ldp.randomizers.special import brentq

METHOD = "Gaussian noise in shares behind a trusted shuffler (local epsilon: infinite)"

_LARGEST_EPSILON = 100.0
_OPPOSITE = "a vector as long as any, along an axis, against its opposite: the sums alone"
_NO_SUMS = "none: sums wrap around, or are of too few people"
_REACH, _BINS_PER_DEVIATION = 12.0, 100
_LARGEST_SUM = 1 << 22  # of those that are listed
_IMAGE = 50.0  # logarithm of how much likelier a sum is than one that wrapped around to it
_DIGITS = 1e-12  # of probabilities


def shares_epsilon(event: ShuffledShares, delta: float) -> PrivacyBound:
    """Epsilon at `delta` of a release of shuffled shares; infinite where too few people are honest.

    At a delta of zero, too: nothing but the shuffler protects.
    """
    check_fraction("delta", delta, "[)")
    losses = event.losses
    if not delta > losses.chance:
        return PrivacyBound(math.inf, method=METHOD)

    def excess(log_epsilon: float) -> float:
        return losses.delta(math.exp(log_epsilon)) - delta

    def bound(log_epsilon: float) -> PrivacyBound:
        value = math.exp(log_epsilon)

        def lower() -> tuple[float, str]:
            atoms = sum_atoms(event)
            if atoms is None:
                return 0.0, _NO_SUMS
            found = composed_losses([(1, atoms)]).epsilon(delta)
            return min(value, less_rounding(found, 1)), _OPPOSITE

        return PrivacyBound(value, lower=lower, method=METHOD)

    low, high = math.log(1e-6), math.log(_LARGEST_EPSILON)
    if excess(high) > 0:
        return PrivacyBound(math.inf, method=METHOD)
    if excess(low) <= 0:
        return bound(low)
    root = brentq(excess, low, high, xtol=1e-12)
    while excess(root) > 0:
        root += 1e-11
    return bound(root)


@lru_cache(maxsize=64)
def sum_atoms(event: ShuffledShares) -> Atoms | None:
    """What the sums of one coordinate tell of two opposite vectors that have all length in it.

    Everybody else holds nothing, so that sums of other coordinates tell nothing. The noise of all
    is a discrete Gaussian but for `sum_log_ratio`: the one law is taken to be less likely by that,
    the other one more. So are images, of sums that wrapped around, which only matter far out, where
    sums are left out. None where too few people add noise, or hardly a sum is left.
    """
    half, people = math.isqrt(event.longest), event.num_reports
    variance, modulus = people * event.noise_deviation**2, 1 << event.modulus_bits
    apart = sum_log_ratio(event.noise_deviation, people) + math.exp(-_IMAGE) + _DIGITS
    room = modulus / 2 - half - _IMAGE * variance / modulus
    last = math.floor(min(half + _REACH * math.sqrt(variance), room))
    if not (last > half and last < _LARGEST_SUM and variance > 4 and apart < 0.1):
        return None
    sums = np.arange(-last, last + 1)
    scale = math.log(math.sqrt(2 * math.pi * variance))
    first, second = (
        np.exp(-((sums - middle) ** 2) / (2 * variance) - scale) for middle in (half, -half)
    )
    width = max(1, math.floor(math.sqrt(variance) / _BINS_PER_DEVIATION))
    starts = np.arange(0, len(sums), width)
    p, q = (np.add.reduceat(law, starts) for law in (first, second))
    return Atoms(np.log(q), p / q * math.exp(-apart), np.full(len(q), math.exp(apart)))


def split_and_mix_delta(mechanism: SplitAndMixMean, epsilon: float, num_honest: int) -> float:
    """Delta at `epsilon` of a `SplitAndMixMean` whose shares were shuffled column by column.

    Protects one person's vector (replace-one) against everybody who sees what the shufflers put
    out and the envelopes of all people but `num_honest`; not against the shufflers. It counts
    people whose envelopes arrived complete, who followed the protocol and tell nobody their shares.
    That sums wrap around costs accuracy, not privacy.
    """
    check_integer("num_honest", num_honest, 1)
    check_positive("epsilon", epsilon)
    return shares_of(mechanism, num_honest).losses.delta(epsilon)


def split_and_mix_epsilon(mechanism: SplitAndMixMean, num_honest: int, delta: float) -> float:
    """Epsilon at `delta`, as `split_and_mix_delta`; infinite where too few people are honest."""
    check_fraction("delta", delta)
    return float(shares_epsilon(shares_of(mechanism, num_honest), delta))


def shares_of(mechanism: SplitAndMixMean, num_reports: int) -> ShuffledShares:
    """What a release of the shares of so many honest people is priced by."""
    return ShuffledShares(
        mechanism.num_coordinates,
        mechanism.longest,
        mechanism.noise_deviation,
        mechanism.modulus_bits,
        mechanism.shares,
        num_reports,
    )
