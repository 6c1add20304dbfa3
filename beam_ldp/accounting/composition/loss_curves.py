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
    largest_log_ratio,
    log_hockey_sticks,
)
from beam_ldp.accounting.divergences.iid_sums import COARSE, FINE, MIDDLE
from beam_ldp.accounting.divergences.loss_grid import LossGrid
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
_FAR = 16  # deviations, beyond which few losses of most releases matter
_GROWTH = 1.06
_LEAST_FALL, _FALL = 0.1, 0.01  # of sticks from knot to knot: 0.1 - 0.01 log(stick)
_GLANCE = 16  # knots from one at which a second pair is tried to the next
_NEAR_THE_TOP = 20  # knots, each half as far from the largest loss as the one before
_LARGE_POWER = 300.0  # whose exponentials are added up in logarithms
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
    return min(curve.deviation, curve.top)


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
    logs = np.empty(0)
    for part in np.array_split(knots, [np.searchsorted(knots * step, _FAR * curve.deviation)]):
        if not len(logs) or logs[-1] >= math.log(NEGLIGIBLE):  # else nobody looks further
            logs = np.append(logs, _log_sticks(curve, part * step, MIDDLE))
    knots = knots[: len(logs)]
    return knots, np.exp(_log_convex(knots * step, logs))


def _log_sticks(curve: _Curve, losses: np.ndarray, smoothing: tuple[float, ...]) -> np.ndarray:
    """Logarithms of the hockey stick at each loss; minus infinity from the largest on.

    Each proved pair bounds it at every loss, so the smallest of them does. The second pair is
    looked at closely only where a glance tells that it is better somewhere.
    """
    inside = losses[losses < curve.top]
    found = curve.log_heights(inside, smoothing) if len(inside) else inside
    for pair in curve.others if len(inside) else ():
        other, some = curve._replace(pair=pair), slice(None, None, _GLANCE)
        if np.any(other.log_heights(inside[some], COARSE) < found[some]):
            found = np.minimum(found, other.log_heights(inside, smoothing))
    pure = math.log(math.tanh(curve.top / 2.0))  # what the largest loss alone allows
    found[inside == 0.0] = np.minimum(found[inside == 0.0], pure)
    return np.concatenate([found, np.full(len(losses) - len(inside), -np.inf)])


def _log_convex(losses: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """The largest convex curve below the points, at the same losses; logarithms, both.

    A hockey stick is convex in the ratio e^loss, so it lies below that curve where it lies below
    the points. Those of a dominating pair need not be convex once they are cut at the largest loss.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # falls over widths, in logarithms
        falls = logs[:-1] + np.log(-np.expm1(np.diff(logs))) - losses[:-1]
        slopes = falls - np.log(np.expm1(np.diff(losses)))
    if np.all(slopes[1:] <= slopes[:-1]):
        return logs
    at, height = losses.tolist(), logs.tolist()
    kept: list[int] = []
    for i in range(len(at)):
        while len(kept) > 1:
            before, last = kept[-2], kept[-1]
            share = math.expm1(at[last] - at[before]) / math.expm1(at[i] - at[before])
            # All in units of the first of the three, which no double need hold.
            chord = share * math.expm1(height[i] - height[before])
            if math.expm1(height[last] - height[before]) <= chord:
                break
            kept.pop()
        kept.append(i)
    if len(kept) == len(at):
        return logs
    places = np.minimum(np.searchsorted(kept, np.arange(len(at)), side="right"), len(kept) - 1)
    left, right = np.array(kept)[places - 1], np.array(kept)[places]
    shares = np.expm1(losses - losses[left]) / np.expm1(losses[right] - losses[left])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(logs[left] + np.log1p(shares * np.expm1(logs[right] - logs[left])))


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
    curve = _curve(event)
    found = _moments(*_fine_sticks(event), orders)
    # Divergences grow with the order, up to the largest loss: so each bounds those before it.
    found = np.array([np.min(found[orders >= order]) for order in orders])
    return np.minimum(found, curve.top)


@lru_cache(maxsize=256)
def _fine_sticks(event: OwnEvent) -> tuple[np.ndarray, np.ndarray]:
    """Losses up to the largest, and the logarithms of convex hockey sticks there.

    Those of a composition, and more near the largest loss and where sticks are small: chords
    between sticks that differ by a factor e^c are too high by c / (2 tanh(c / 2)), which moments
    of high orders must not feel. Their logarithms are about as large as that of the stick, so c may
    grow with it.
    """
    curve, step = _curve(event), _natural_step(event)
    last = max(1, math.ceil(curve.top / step - 1e-9))
    losses = loss_knots(step, loss_deviation(event), last) * step
    closer = (losses[-1] - losses[-2]) * 0.5 ** np.arange(1, _NEAR_THE_TOP)
    losses = np.concatenate([losses[:-1], losses[-1] - closer, losses[-1:]])
    logs = _log_sticks(curve, losses, FINE)
    seen = np.isfinite(logs)
    grown = np.log(_LEAST_FALL - _FALL * logs[seen]) / _FALL  # one more where c is one more
    more = np.interp(np.arange(grown[0], grown[-1]), grown, losses[seen])
    more = np.setdiff1d(more[more > _FINE_DEVIATIONS * loss_deviation(event)], losses)
    both = np.concatenate([losses, more])
    order = np.argsort(both)
    found = np.concatenate([logs, _log_sticks(curve, more, FINE)])[order]
    end = np.argmin(found) + 1  # the first that is minus infinity
    return both[order][:end], _log_convex(both[order][:end], found[:end])


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
    others: tuple[ShufflePair, ...] = ()  # which are proved as well

    @property
    def deviation(self) -> float:
        """Standard deviation of the loss, for large crowds."""
        return self.within * self.rate * math.sqrt(_spread(self.pair) / self.reports)

    def sticks(self, pair: ShufflePair, losses: np.ndarray) -> np.ndarray:
        """The upper delta at each loss >= 0, in the direction of `pair`."""
        return np.exp(self.log_sticks(pair, losses, FINE))

    def log_sticks(
        self, pair: ShufflePair, losses: np.ndarray, smoothing: tuple[float, ...]
    ) -> np.ndarray:
        """Its logarithm; see `iid_sums` for the smoothing."""
        inner = np.log1p(np.expm1(losses) / self.within)
        found = log_hockey_sticks(pair, self.reports, inner, self.rate, smoothing)[1]
        return math.log(self.outer) + found

    def log_heights(self, losses: np.ndarray, smoothing: tuple[float, ...]) -> np.ndarray:
        """That of the worse direction."""
        sides = [self.log_sticks(side, losses, smoothing) for side in directions(self.pair)]
        return np.asarray(np.max(sides, axis=0))


@lru_cache(maxsize=256)
def _curve(event: OwnEvent) -> _Curve:
    """The curve of the proved pair with the smaller spread, and of the other."""
    local = event.local_event
    own, clones = local.dominating_pair(), ShufflePair.clones(local.local_epsilon)
    proved = {p: None for p in (own, clones) if p.proof_status == "proved"}
    pair, *others = sorted(proved, key=_spread)
    ratio = min(
        local.local_epsilon, max(largest_log_ratio(side) for side in (pair, pair.swapped()))
    )
    if isinstance(event, ShuffledReports):
        return _Curve(pair, event.crowd, 1.0, 1.0, 1.0, ratio, tuple(others))
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
    top = math.log1p(share * rate * math.expm1(ratio))
    return _Curve(pair, reports, rate, outer, share, top, tuple(others))


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


def _moments(losses: np.ndarray, logs: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Rényi divergences of the distribution whose hockey stick is the chords between points.

    It is its own mirror image (`connect_dots`): a loss x of mass p under P comes with -x, of mass
    p e^-x. Summing over both, E_Q[ratio^a] - 1 is a sum of terms that are not negative,
    p e^-x phi(x) + p phi(-x) with phi(x) = expm1(a x) - a expm1(x): nothing cancels near zero.

    Args:
        losses: Ascending from zero to the largest.
        logs: Logarithms of the sticks, the last minus infinity.
        orders: Above one.
    """
    gaps = np.diff(losses)
    with np.errstate(divide="ignore", invalid="ignore"):
        falls = logs[:-1] + np.log(-np.expm1(np.diff(logs))) - np.log(-np.expm1(-gaps))
        kept = np.append(falls[1:] - gaps[1:] - falls[:-1], -np.inf)
        mass = falls + np.log(-np.expm1(np.minimum(kept, 0.0)))
    seen = np.isfinite(mass)
    losses, mass = losses[1:][seen], mass[seen]
    order = orders[:, None]
    powers = np.minimum(order * losses, _LARGE_POWER)
    above = np.exp(mass - losses) * (np.expm1(powers) - order * np.expm1(losses))
    below = np.exp(mass) * (np.expm1(-order * losses) - order * np.expm1(-losses))
    large = order * losses > _LARGE_POWER
    terms = np.where(large, 0.0, np.maximum(above, 0.0)) + np.maximum(below, 0.0)
    total = np.log1p(terms.sum(axis=1))
    tails = np.where(large, mass + (order - 1.0) * losses, -np.inf)
    return np.logaddexp(total, np.logaddexp.reduce(tails, axis=1)) / (orders - 1.0)
