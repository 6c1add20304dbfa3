"""What the hockey sticks of one release are computed by, of one report of each person."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from beam_ldp.accounting.divergences.bit_counts import Bit, bit_log_deltas
from beam_ldp.accounting.divergences.crowd_sizes import Crowd, mean_reciprocal
from beam_ldp.accounting.divergences.hockey_stick import (
    directions,
    largest_log_ratio,
    log_hockey_sticks,
)
from beam_ldp.accounting.divergences.iid_sums import FINE
from beam_ldp.accounting.reports import (
    POISSON,
    SELF,
    WITHOUT_REPLACEMENT,
    SampledReports,
    ShuffledReports,
)
from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.shuffle_pair import ShufflePair

_SIZES = 30  # blocks of a public group's sizes, of which a curve needs fewer than one price

OwnEvent = ShuffledReports | SampledReports

# People who take part by a coin of their own ----------------------------------------------
#
# Whoever stays away is like somebody who reports that they were absent: the batch of those who
# came is a full shuffle of everybody, of a randomizer that says "absent" with the coin's
# probability. How many came is visible, depends on nobody's value, and needs no failure
# probability beside delta (as in thesis, Theorem 4.4.1): the price is exactly the average over
# the number of participants.


def thinned(pair: ShufflePair, join: float) -> ShufflePair:
    """The pair of a randomizer whose report arrives with probability `join`, and else is absent.

    Being absent belongs to the blanket, whole: it is equally likely for every value. Of a witness
    it makes a witness.

    Args:
        pair: Dominating pair or witness of the randomizer itself.
        join: In (0, 1].

    >>> half = thinned(ShufflePair.clones(1.0), 0.5)
    >>> round(half.blanket_mass, 4), [(round(a, 3), round(b, 3)) for a, b in half.ratios]
    (0.6839, [(2.718, 1.0), (1.0, 2.718), (0.684, 0.684)])
    """
    check_fraction("join", join, "(]")
    if join == 1.0:
        return pair
    blended = join * pair.blanket_mass
    mass = 1.0 if pair.is_witness else blended + (1.0 - join)
    scale = mass / pair.blanket_mass
    return ShufflePair(
        mass,
        (*((scale * first, scale * second) for first, second in pair.ratios), (mass, mass)),
        (*(p * blended / mass for p in pair.probabilities), (1.0 - join) / mass),
        pair.proof_status,
        pair.source,
    )


class ReportCurve(NamedTuple):
    """What the hockey sticks of one release of one report each are those of.

    A shuffle of `reports` of `pair`, the victim drawn with probability `rate`; then, of a client's
    several points, the victim's is among those reported with probability `outer`, and it changes
    the law of what is reported by a share `within`.
    """

    pair: ShufflePair
    reports: Crowd
    rate: float
    outer: float
    within: float
    top: float
    others: tuple[ShufflePair, ...] = ()  # which are proved as well

    @property
    def alternatives(self) -> tuple[ReportCurve, ...]:
        """The curves of the other pairs, with all else equal."""
        return tuple(self._replace(pair=pair) for pair in self.others)

    @property
    def deviation(self) -> float:
        """Standard deviation of the loss, for large crowds."""
        return (
            self.within
            * self.rate
            * math.sqrt(spread_of(self.pair) * mean_reciprocal(self.reports))
        )

    def sticks(self, pair: ShufflePair, losses: np.ndarray) -> np.ndarray:
        """The upper delta at each loss >= 0, in the direction of `pair`."""
        return np.exp(self.log_sticks(pair, losses, FINE))

    def log_sticks(
        self, pair: ShufflePair, losses: np.ndarray, smoothing: tuple[float, ...]
    ) -> np.ndarray:
        """Its logarithm; see `iid_sums` for the smoothing."""
        inner = np.log1p(np.expm1(losses) / self.within)
        lower = len(smoothing) > 1  # by which it is told whether the first width does
        _, found = log_hockey_sticks(pair, self.reports, inner, self.rate, smoothing, lower=lower)
        return math.log(self.outer) + found

    def log_heights(self, losses: np.ndarray, smoothing: tuple[float, ...]) -> np.ndarray:
        """That of the worse direction."""
        sides = [self.log_sticks(side, losses, smoothing) for side in directions(self.pair)]
        return np.asarray(np.max(sides, axis=0))


class BitCurve(NamedTuple):
    """The same of a bit, over all data sets; `others` are proved as well.

    At each loss the worst data set is another one. The largest of their hockey sticks, in either
    direction, is convex in e^loss, and so that of some pair of laws, which dominates every pair of
    neighbours, and composes (Zhu, Dong and Wang 2022). Of a sample the others drawn are a mix of
    data sets, which is no worse; to sample lessens the victim's change by `rate` alone, in whose
    stead `outer` and `within` count here (Balle, Barthe and Gaboardi 2018, Theorem 2).
    """

    bit: Bit
    reports: Crowd
    share: float
    top: float
    others: tuple[ReportCurve, ...]

    @property
    def alternatives(self) -> tuple[ReportCurve, ...]:
        return self.others

    @property
    def deviation(self) -> float:
        """Standard deviation of the loss, for large crowds."""
        return min(self.share * self.bit.deviation(self.reports), self.others[0].deviation)

    def log_heights(self, losses: np.ndarray, smoothing: tuple[float, ...]) -> np.ndarray:
        """Logarithms of the upper delta at each loss >= 0, in the worse direction."""
        inner = np.log1p(np.expm1(losses) / self.share)
        found = math.log(self.share) + bit_log_deltas(self.bit, self.reports, inner)
        if (unknown := np.isinf(found) & (found > 0.0)).any():
            found[unknown] = self.others[0].log_heights(losses[unknown], smoothing)
        return np.asarray(found)


@lru_cache(maxsize=256)
def event_curve(event: OwnEvent) -> ReportCurve | BitCurve:
    """The curve of one report of each person, of all data sets where it is a bit."""
    curve, bit = one_report(event), event.local_event.bit
    one_shuffle = isinstance(event, ShuffledReports) or event.sampling == WITHOUT_REPLACEMENT
    if bit is None or not one_shuffle:  # later rounds of an epoch may ask by what was seen
        return curve
    share = 1.0 if isinstance(event, ShuffledReports) else event.rate
    return BitCurve(bit, curve.reports, share, curve.top, (curve, *curve.alternatives))


@lru_cache(maxsize=256)
def one_report(event: OwnEvent) -> ReportCurve:
    """The curve of the proved pair with the smaller spread, and of the other."""
    local = event.local_event
    own, clones = local.dominating_pair(), ShufflePair.clones(local.local_epsilon)
    proved = {p: None for p in (own, clones) if p.proof_status == "proved"}
    pair, *others = sorted(proved, key=spread_of)
    ratio = min(
        local.local_epsilon, max(largest_log_ratio(side) for side in (pair, pair.swapped()))
    )
    if isinstance(event, ShuffledReports):
        return ReportCurve(pair, event.hiding(_SIZES), 1.0, 1.0, 1.0, ratio, tuple(others))
    share = event.points_sampled / event.points_per_client
    drawn = event.drawn_rate
    reports, rate, outer = event.num_reports, drawn, share
    if event.sampling == SELF:
        pair, *others = (thinned(each, drawn) for each in (pair, *others))
        reports, rate = event.num_honest, 1.0
    elif event.sampling == POISSON:
        points = event.num_honest * event.points_per_client
        pair, *others = (thinned(each, drawn) for each in (pair, *others))
        reports, rate = points, 1.0
        outer = share = 1.0
    elif event.points_sampled > 1:  # then sampling clients lessens delta alone
        rate, outer = 1.0, drawn * share
    certain = share * rate == 1.0  # then the price is that of a shuffle, to the last digit
    top = ratio if certain else math.log1p(share * rate * math.expm1(ratio))
    return ReportCurve(pair, reports, rate, outer, share, top, tuple(others))


def spread_of(pair: ShufflePair) -> float:
    """Variance of the loss of one report in the blanket, times the reports that hide it."""
    both = zip(pair.ratios, pair.probabilities, strict=True)
    return sum(p * (first - second) ** 2 for (first, second), p in both) / pair.blanket_mass
