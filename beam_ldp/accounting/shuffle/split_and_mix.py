"""The price of a release of shuffled additive shares, which nothing but the shuffle protects."""

from __future__ import annotations

import math

from beam_ldp.accounting.lower import PrivacyBound
from beam_ldp.accounting.shares import ShuffledShares
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.randomizers.mean.split_and_mix import SplitAndMixMean
from beam_ldp.randomizers.special import brentq

METHOD = "Gaussian noise in shares behind a trusted shuffler (local epsilon: infinite)"

_LARGEST_EPSILON = 100.0


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

    low, high = math.log(1e-6), math.log(_LARGEST_EPSILON)
    if excess(high) > 0:
        return PrivacyBound(math.inf, method=METHOD)
    if excess(low) <= 0:
        return PrivacyBound(math.exp(low), method=METHOD)
    root = brentq(excess, low, high, xtol=1e-12)
    while excess(root) > 0:
        root += 1e-11
    return PrivacyBound(math.exp(root), method=METHOD)


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
