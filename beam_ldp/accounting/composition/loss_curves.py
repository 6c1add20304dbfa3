"""The whole privacy curve of one shuffled release, from its hockey sticks at a few hundred losses.

Connecting those dots gives a privacy-loss distribution that is never better than the truth, and
whose losses end at the largest log-ratio of the mechanism: it composes, and it has Rényi moments
of every order. Nothing about the mechanism enters but its pair.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from beam_ldp.accounting.divergences.hockey_stick import (
    directions,
    hockey_sticks,
    largest_log_ratio,
)
from beam_ldp.accounting.divergences.loss_grid import LossGrid, connect_dots
from beam_ldp.accounting.divergences.moments import log_sum
from beam_ldp.accounting.reports import (
    POISSON,
    SELF,
    LocalReports,
    SampledReports,
    ShuffledMessages,
    ShuffledReports,
)
from beam_ldp.accounting.shuffle.mean_price import l2_messages_rdp
from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.mean.two_response import message_pair
from beam_ldp.randomizers.shuffle_pair import ShufflePair

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


OwnEvent = ShuffledReports | SampledReports

STEPS_PER_DEVIATION = 20
HOPELESS = 100.0  # a local epsilon that no crowd hides
_LARGEST_GRID = 1 << 18
_FINE_DEVIATIONS = 8  # evenly spaced up to here, geometrically beyond
_GROWTH = 1.06
_ORDERS_OF_LENGTH = (3.0, 512.0)  # where the price of bounded length is proved and computed
NEGLIGIBLE = 1e-45  # delta of a loss beyond which compositions count everything as unbounded


def message_columns(event: ShuffledMessages) -> list[tuple[int, ShuffledReports]]:
    """The release as so many equal columns of each kind, one shuffle each."""
    return [
        (
            count,
            ShuffledReports(LocalReports(budget, message_pair(budget)), event.num_reports),
        )
        for count, budget in event.messages
    ]


def loss_deviation(event: OwnEvent) -> float:
    """Standard deviation of one release's privacy loss, for large crowds. Sets the grid."""
    curve = _curve(event)
    deviation = curve.within * curve.rate * math.sqrt(_spread(curve.pair) / curve.reports)
    return min(deviation, curve.top)


def loss_grid(event: OwnEvent) -> LossGrid:
    """The losses of one release, for compositions."""
    step = _natural_step(event)
    longest = int(_short(event, step)[0][-1])
    if longest > _LARGEST_GRID:  # of mechanisms that tell all, but hardly ever
        step *= math.ceil(longest / _LARGEST_GRID)
    return LossGrid.connecting(step, *_short(event, step))


def _natural_step(event: OwnEvent) -> float:
    """The step of a grid that fits the spread of the losses and ends at the largest of them."""
    top = _curve(event).top
    count = math.ceil(top * STEPS_PER_DEVIATION / loss_deviation(event) * (1 - 1e-12))
    step = top / count
    # A last knot that rounding puts below the largest loss would leave some loss unbounded.
    return step if count * step >= top else math.nextafter(step, math.inf)


def _short(event: OwnEvent, step: float) -> tuple[np.ndarray, np.ndarray]:
    """The sticks that matter."""
    knots, heights = _sticks(event, step)
    kept = 1 + np.count_nonzero(heights >= NEGLIGIBLE)
    return knots[:kept], heights[:kept]


@lru_cache(maxsize=256)
def _sticks(event: OwnEvent, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Positions on the grid, and the higher hockey stick of both directions there."""
    curve = _curve(event)
    last = max(1, math.ceil(curve.top / step - 1e-9))
    knots = loss_knots(step, loss_deviation(event), last)
    losses = knots * step
    inside = losses < curve.top
    found = np.zeros(len(losses))
    for side in directions(curve.pair):
        found[inside] = np.maximum(found[inside], curve.sticks(side, losses[inside]))
    found[0] = min(found[0], math.tanh(curve.top / 2.0))
    return knots, _convex(losses, found)


def _convex(losses: np.ndarray, sticks: np.ndarray) -> np.ndarray:
    """The largest convex curve below the points, at the same losses.

    A hockey stick is convex in the ratio e^loss, so it lies below that curve where it lies below
    the points. Those of a dominating pair need not be convex once they are cut at the largest loss.
    """
    kept: list[int] = []
    for i in range(len(losses)):
        while len(kept) > 1:
            before, last = kept[-2], kept[-1]
            share = math.expm1(losses[last] - losses[before])
            share /= math.expm1(losses[i] - losses[before])
            chord = sticks[before] + share * (sticks[i] - sticks[before])
            if sticks[last] <= chord:
                break
            kept.pop()
        kept.append(i)
    if len(kept) == len(losses):
        return sticks
    places = np.searchsorted(kept, np.arange(len(losses)), side="right") - 1
    left = np.array(kept)[np.minimum(places, len(kept) - 2)]
    right = np.array(kept)[np.minimum(places, len(kept) - 2) + 1]
    shares = np.expm1(losses - losses[left]) / np.expm1(losses[right] - losses[left])
    return np.asarray(sticks[left] + shares * (sticks[right] - sticks[left]))


def messages_divergences(event: ShuffledMessages, orders: np.ndarray) -> np.ndarray:
    """Upper bounds of the Rényi divergence of all columns together, at each real order above one.

    Where the length of vectors is known, it bounds how far a person's messages can change at once.
    """
    total = np.zeros(len(orders))
    for count, column in message_columns(event):
        total += count * renyi_divergences(column, orders)
    if event.squared_change is None:
        return total
    ((_, budget),) = event.messages
    least, most = _ORDERS_OF_LENGTH
    known = (orders >= least) & (orders <= most)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is no bound
        bounded = [
            l2_messages_rdp(budget, event.squared_change, event.num_reports, float(order))
            for order in orders[known]
        ]
    total[known] = np.fmin(total[known], bounded)
    return total


def renyi_divergences(event: OwnEvent, orders: np.ndarray) -> np.ndarray:
    """Upper bounds of the Rényi divergence at each real order above one.

    Taken from a distribution that is no better than the release, on its own fine grid.
    """
    step = _natural_step(event)
    knots, heights = _sticks(event, step)
    found = _moments(*connect_dots(knots * step, heights), orders)
    # Divergences grow with the order, up to the largest loss: so each bounds those before it.
    found = np.array([np.min(found[orders >= order]) for order in orders])
    return np.minimum(found, _curve(event).top)


class _Curve(NamedTuple):
    """What the hockey sticks of one release are those of.

    A shuffle of `reports` of `pair`, the victim drawn with probability `rate`; then, of a client's
    several points, the victim's is among those reported with probability `outer`, and it changes
    the law of what is reported by a share `within`.
    """

    pair: ShufflePair
    reports: int
    rate: float
    outer: float
    within: float
    top: float

    def sticks(self, pair: ShufflePair, losses: np.ndarray) -> np.ndarray:
        """The upper delta at each loss >= 0, in the direction of `pair`."""
        inner = np.log1p(np.expm1(losses) / self.within)
        return self.outer * hockey_sticks(pair, self.reports, inner, self.rate)[1]


@lru_cache(maxsize=256)
def _curve(event: OwnEvent) -> _Curve:
    """The curve of the proved pair with the smaller spread."""
    local = event.local_event
    own, clones = local.dominating_pair(), ShufflePair.clones(local.local_epsilon)
    pair = min((p for p in (own, clones) if p.proof_status == "proved"), key=_spread)
    ratio = min(
        local.local_epsilon, max(largest_log_ratio(side) for side in (pair, pair.swapped()))
    )
    if isinstance(event, ShuffledReports):
        return _Curve(pair, event.crowd, 1.0, 1.0, 1.0, ratio)
    share = event.points_sampled / event.points_per_client
    drawn = event.drawn_rate
    reports, rate, outer = event.num_reports, drawn, share
    if event.sampling == SELF:
        pair, reports, rate = thinned(pair, drawn), event.num_honest, 1.0
    elif event.sampling == POISSON:
        points = event.num_honest * event.points_per_client
        pair, reports, rate = thinned(pair, drawn), points, 1.0
        outer = share = 1.0
    elif event.points_sampled > 1:  # then sampling clients lessens delta alone
        rate, outer = 1.0, drawn * share
    top = math.log1p(share * rate * math.expm1(ratio))
    return _Curve(pair, reports, rate, outer, share, top)


def _spread(pair: ShufflePair) -> float:
    """Variance of the loss of one report in the blanket, times the reports that hide it."""
    both = zip(pair.ratios, pair.probabilities, strict=True)
    return sum(p * (first - second) ** 2 for (first, second), p in both) / pair.blanket_mass


def loss_knots(step: float, deviation: float, last: int) -> np.ndarray:
    """Positions from 0 to `last`: every one where most losses lie, ever fewer beyond."""
    fine = min(last, math.ceil(_FINE_DEVIATIONS * deviation / step))
    knots = list(range(fine + 1))
    position = float(max(fine, 1))
    while position < last:
        position = max(position + 1, position * _GROWTH)
        knots.append(min(last, int(position)))
    return np.unique(knots)


def _moments(losses: np.ndarray, mass: np.ndarray, beyond: float, orders: np.ndarray) -> np.ndarray:
    """Rényi divergences of a distribution of losses, without cancellation near zero.

    With weights q = p e^-loss of the second law, E_q[e^(a loss)] - 1 is the sum of the
    non-negative q (expm1(a loss) - a expm1(loss)).
    """
    losses, mass = losses[mass > 0.0], mass[mass > 0.0]
    result = np.empty(len(orders))
    for i, order in enumerate(orders):
        power = order * losses
        large = power > 300.0
        small = ~large
        weights = mass[small] * np.exp(-losses[small])
        terms = weights * (np.expm1(power[small]) - order * np.expm1(losses[small]))
        total = math.log1p(float(np.sum(np.maximum(terms, 0.0))))
        if large.any():
            tail = log_sum(np.log(mass[large]) + (order - 1) * losses[large])
            total = float(np.logaddexp(total, tail))
        result[i] = total / (order - 1) if beyond == 0.0 else math.inf
    return result
