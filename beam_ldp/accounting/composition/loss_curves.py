"""The whole privacy curve of one shuffled release, from its hockey sticks at a few hundred losses.

Connecting those dots gives a privacy-loss distribution that is never better than the truth, and
whose losses end at the largest log-ratio of the mechanism: it composes, and it has Rényi moments
of every order. Nothing about the mechanism enters but its pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import attr
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
    SHUFFLED_EPOCHS,
    WITHOUT_REPLACEMENT,
    LocalReports,
    SampledReports,
    ShuffledMessages,
    ShuffledReports,
)
from beam_ldp.accounting.shuffle.mean_price import bounded_messages, l2_messages_rdp
from beam_ldp.accounting.shuffle.multi_message import Messages, column_losses
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
_MOST_OF_A_MESSAGE = 40.0  # whose column is composed
_MOST_TOGETHER = 600.0  # of several messages: whose products fit a double
_LARGEST_GRID = 1 << 18
_FINE_DEVIATIONS = 8  # evenly spaced up to here, geometrically beyond
_FAR = 16  # deviations, beyond which few losses of most releases matter
_GROWTH = 1.06
_LEAST_FALL, _FALL = 0.1, 0.01  # of sticks from knot to knot: 0.1 - 0.01 log(stick)
_GLANCE = 16  # knots from one at which a second pair is tried to the next
_NEAR_THE_TOP = 20  # knots, each half as far from the largest loss as the one before
_LEAST_DELTA = 1e-280  # that a double is trusted to hold
_LARGE_POWER = 300.0  # whose exponentials are added up in logarithms
_ORDERS = np.concatenate([np.arange(2.0, 33.0), np.floor(32 * 1.2 ** np.arange(1, 30))])
# Where sizes of samples by coins are cut, in standard deviations.
_CUTS = np.array([-12, -9, -7.5, -6, -5, -4, *np.arange(-3, 3.1, 0.25), 4, 5, 6, 7.5, 9, 12])
_COARSE_CUTS = np.array([-12, -6, -3])
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


def alone(event: LocalReports) -> list[tuple[int, ShuffledReports]]:
    """The reports of one person as batches of nobody else."""
    if event.columns:
        return message_columns(ShuffledMessages(event.columns, 1))
    return [(1, ShuffledReports(attr.evolve(event, messages=1), 1))]


def hopeless(event: OwnEvent) -> bool:
    """Whether no crowd hides a report, or it tells more than is computed."""
    return event.local_epsilon > (_MOST_TOGETHER if _in_columns(event) else HOPELESS)


def _in_columns(event: OwnEvent) -> bool:
    """Whether the messages of a sample are composed, each among those of its column.

    Of an epoch, the fakes may all be in one round: no crowd of a round is counted on.
    """
    if not isinstance(event, SampledReports) or not event.local_event.columns:
        return False
    if event.sampling == SHUFFLED_EPOCHS and event.num_fakes:
        return False
    return max(budget for _, budget in event.local_event.columns) <= _MOST_OF_A_MESSAGE


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


def _log_sticks(
    curve: _Curve | _Sampled, losses: np.ndarray, smoothing: tuple[float, ...]
) -> np.ndarray:
    """Logarithms of the hockey stick at each loss; minus infinity from the largest on.

    Each proved pair bounds it at every loss, so the smallest of them does. The second pair is
    looked at closely only where a glance tells that it is better somewhere.
    """
    inside = losses[losses < curve.top]
    found = curve.log_heights(inside, smoothing) if len(inside) else inside
    some = slice(None, None, _GLANCE)
    for other in curve.alternatives if len(inside) else ():
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
    messages = bounded_messages(event)
    known = orders >= 2
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is no bound
        bounded = [
            l2_messages_rdp(messages, event.num_reports, float(order)) for order in orders[known]
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
    """What the hockey sticks of one release of one report each are those of.

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
    def alternatives(self) -> tuple[_Curve, ...]:
        """The same of the other pairs."""
        return tuple(self._replace(pair=pair) for pair in self.others)

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
        lower = len(smoothing) > 1  # by which it is told whether the first width does
        _, found = log_hockey_sticks(pair, self.reports, inner, self.rate, smoothing, lower=lower)
        return math.log(self.outer) + found

    def log_heights(self, losses: np.ndarray, smoothing: tuple[float, ...]) -> np.ndarray:
        """That of the worse direction."""
        sides = [self.log_sticks(side, losses, smoothing) for side in directions(self.pair)]
        return np.asarray(np.max(sides, axis=0))


def _curve(event: OwnEvent) -> _Curve | _Sampled:
    """What the hockey sticks of a release are computed by."""
    if isinstance(event, SampledReports):
        if _in_columns(event):
            return _columns_curve(event)
        if event.points_sampled > 1:
            return _points_curve(event)
    return _one_report(event)


@lru_cache(maxsize=256)
def _one_report(event: OwnEvent) -> _Curve:
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
    certain = share * rate == 1.0  # then the price is that of a shuffle, to the last digit
    top = ratio if certain else math.log1p(share * rate * math.expm1(ratio))
    return _Curve(pair, reports, rate, outer, share, top, tuple(others))


# Several reports of one person in one sample ---------------------------------------------------
#
# Of a client with m points, k of n clients are drawn, s points of each, and all their messages are
# shuffled. Let V be that the victim's point is drawn, of chance eta = (k/n)(s/m); W that its client
# is, but not the point; Z that the client is not. The two laws are eta P_V + (1 - eta) R and
# eta Q_V + (1 - eta) R, where R = w_W R_W + w_Z R_Z is the same, w_Z = (1 - k/n)/(1 - eta). With
# e^x' = 1 + eta (e^x - 1) and beta = e^(x' - x), exactly
#
#     (eta P_V + (1 - eta) R) - e^x' (eta Q_V + (1 - eta) R)
#         = eta (P_V - e^x ((1 - beta) R + beta Q_V)),
#
# so (Balle, Barthe and Gaboardi 2018, Theorem 2), by convexity in the second argument,
#
#     delta(x') <= eta ((1 - beta) (w_W delta(P_V, R_W) + w_Z delta(P_V, R_Z))
#                       + beta delta(P_V, Q_V)), all at x.
#
# P_V and Q_V differ in one of the s k messages. So do P_V and R_W, if R_W draws as P_V and then
# exchanges the victim's point for another of the client's that was not drawn. P_V and R_Z differ in
# s messages: R_Z draws as P_V and then exchanges the victim's client for one that was not drawn.
# Deal every client's s messages out to s columns: that multiset is a function of the columns' k
# messages each, so delta(P_V, R_Z) is at most that of s shuffles of k, composed. Where one person's
# report is several columns (s = 1 or more), every "one message" is one of each column, composed:
# columns share one sample, so they are composed first and sampled then. Composing what is sampled
# alone would be too low: all of them tell whether the victim was drawn.


LogSticks = Callable[[np.ndarray, tuple[float, ...]], np.ndarray]


class _Shuffles(NamedTuple):
    """Several shuffles about one person, all of whose reports may change: composed.

    Attributes:
        grid: their losses together.
        orders: Rényi orders, for deltas that the grid's rounding hides.
        divergences: at each of them.
    """

    grid: LossGrid
    orders: np.ndarray
    divergences: np.ndarray

    def log_heights(self, losses: np.ndarray, smoothing: tuple[float, ...]) -> np.ndarray:
        """Logarithm of the upper delta at each loss."""
        order = self.orders[:, None]
        by_orders = (order - 1) * (self.divergences[:, None] - losses)
        by_orders += order * np.log1p(-1 / order) - np.log(order - 1)
        found = self.grid.deltas(losses)
        by_losses = np.where(found > _LEAST_DELTA, np.log(np.maximum(found, _LEAST_DELTA)), 0.0)
        return np.minimum(by_losses, by_orders.min(axis=0))


class _Sample(NamedTuple):
    """The chance of one size of a sample, and what may be told apart where it is that.

    Attributes:
        chance: of this size.
        rate: eta, that the victim's point is in it.
        absent: w_Z, that its client is not, if the point is not.
        one: the sticks where one message (of each column) changes.
        all_of_one: the sticks where all the messages of a client change.
    """

    chance: float
    rate: float
    absent: float
    one: LogSticks
    all_of_one: LogSticks

    def log_heights(self, losses: np.ndarray, smoothing: tuple[float, ...]) -> np.ndarray:
        inner = np.log1p(np.expm1(losses) / self.rate)
        log_beta, one = np.minimum(losses - inner, 0.0), self.one(inner, smoothing)
        with np.errstate(divide="ignore"):  # what has no chance
            absent, present = np.log([self.absent, 1 - self.absent])
            different = np.logaddexp(absent + self.all_of_one(inner, smoothing), present + one)
            both = np.logaddexp(np.log(-np.expm1(log_beta)) + different, log_beta + one)
        return np.asarray(math.log(self.rate) + both)


class _Sampled(NamedTuple):
    """The price of a sample by all its sizes, and another that holds too, if there is one."""

    samples: tuple[_Sample, ...]
    deviation: float
    top: float
    other: _Curve | None = None
    alternatives: tuple[_Curve, ...] = ()  # none: the other one is in the price

    def log_heights(self, losses: np.ndarray, smoothing: tuple[float, ...]) -> np.ndarray:
        """Logarithm of the upper delta at each loss >= 0, in the worse direction."""
        parts = [math.log(one.chance) + one.log_heights(losses, smoothing) for one in self.samples]
        found = np.minimum(np.logaddexp.reduce(parts, axis=0), 0.0)
        if self.other is None:
            return np.asarray(found)
        return np.minimum(found, self.other.log_heights(losses, smoothing))


@lru_cache(maxsize=256)
def _points_curve(event: SampledReports) -> _Sampled:
    """Several points of a client, one message each."""
    local, points = event.local_event, event.points_sampled
    clients = max(1, int(event.num_hiding))
    together = _one_report(attr.evolve(local, columns=(), messages=1).shuffled(points * clients))
    alone = attr.evolve(local, columns=(), messages=1).shuffled(clients)
    several = _Shuffles(
        loss_grid(alone).repeated(points), _ORDERS, points * renyi_divergences(alone, _ORDERS)
    )
    rate, other = event.rate, _one_report(event)
    absent = _absent(event.drawn_rate, rate)
    sample = _Sample(1.0, rate, absent, together.log_heights, several.log_heights)
    return _Sampled((sample,), rate * together.deviation, other.top, other)


@lru_cache(maxsize=256)
def _columns_curve(event: SampledReports) -> _Sampled:
    """Several columns of messages, of one or several points.

    In an epoch they tell together which round somebody is in, so columns are composed as if that
    were seen. All of somebody's messages are one report too: of little in few people that tells
    less, for where few blend in it is hardly the sample that somebody is in.
    """
    columns, points = event.local_event.columns, event.points_sampled
    share = 1.0 if event.sampling == POISSON else points / event.points_per_client
    samples, sizes = [], _sizes(event)
    more = tuple((points * count, budget) for count, budget in columns)
    for chance, drawn, clients, at_least in sizes:
        one = _composed_columns(columns, clients * points, at_least * points)
        several = one if points == 1 else _composed_columns(more, clients, at_least)
        rate = drawn * share
        samples.append(
            _Sample(chance, rate, _absent(drawn, rate), one.log_heights, several.log_heights)
        )
    _, drawn, clients, _ = max(sizes)  # the likeliest
    spread = sum(count * _spread(message_pair(budget)) for count, budget in columns)
    deviation = drawn * share * math.sqrt(spread / (clients * points))
    other = None if event.local_epsilon > HOPELESS else _one_report(event)
    if other is not None:
        deviation = min(deviation, other.deviation)
    return _Sampled(tuple(samples), deviation, sampled_top(event), other)


@lru_cache(maxsize=256)
def _composed_columns(
    columns: tuple[tuple[int, float], ...], people: int, at_least: int
) -> _Shuffles:
    """Of so many people; Rényi divergences, which take longer, of no more than that."""
    kinds = tuple(Messages(count, budget) for count, budget in columns)
    divergences = _columns_divergences(columns, at_least)
    return _Shuffles(column_losses(kinds, people), _ORDERS, divergences)


@lru_cache(maxsize=64)
def _columns_divergences(columns: tuple[tuple[int, float], ...], people: int) -> np.ndarray:
    return messages_divergences(ShuffledMessages(columns, people), _ORDERS)


def _sizes(event: SampledReports) -> list[tuple[float, float, int, int]]:
    """Chances, how likely the victim's client (Poisson: point) is drawn, how many honest ones are.

    With coins: of blocks of sizes, each at its largest rate and its smallest crowd; and coarser
    blocks of crowds, last.
    """
    if event.fixed_size:
        honest = event.num_hiding if event.sampling == WITHOUT_REPLACEMENT else event.came
        crowd = max(1, int(honest))
        return [(1.0, event.drawn_rate, crowd, crowd)]
    from scipy import stats  # takes half a second to load, and only coins ask for it

    coins = event.num_honest * (event.points_per_client if event.sampling == POISSON else 1)
    law = stats.binom(coins, event.drawn_rate)
    cuts, coarse = (
        np.unique(np.clip(np.ceil(law.mean() + law.std() * at), 1, coins)).astype(int)
        for at in (_CUTS, _COARSE_CUTS)
    )
    fewest = np.concatenate([[1], cuts])
    most = np.concatenate([cuts - 1, [coins]])
    chances = np.where(  # of either tail without cancellation
        fewest > law.mean(), law.sf(fewest - 1) - law.sf(most), law.cdf(most) - law.cdf(fewest - 1)
    )
    return [
        (float(chance), int(high) / coins, int(low), int(max(1, *coarse[coarse <= low], 1)))
        for chance, low, high in zip(chances, fewest, most)
        if chance > 0
    ]


def sampled_top(event: SampledReports) -> float:
    """The largest loss of a sample, by its local epsilon alone."""
    if not event.fixed_size:  # everybody may have come
        rate = 1 / event.points_per_client if event.sampling == SELF else 1.0
    elif event.points_sampled == 1:
        rate = event.rate
    else:
        rate = event.points_sampled / event.points_per_client
    return math.log1p(rate * math.expm1(event.local_epsilon))


def _absent(drawn: float, rate: float) -> float:
    """That a client was not drawn, given that its point was not."""
    return (1 - drawn) / (1 - rate) if rate < 1 else 0.0


def _spread(pair: ShufflePair) -> float:
    """Variance of the loss of one report in the blanket, times the reports that hide it."""
    both = zip(pair.ratios, pair.probabilities, strict=True)
    return sum(p * (first - second) ** 2 for (first, second), p in both) / pair.blanket_mass


def loss_knots(step: float, deviation: float, last: int, growth: float = _GROWTH) -> np.ndarray:
    """Positions from 0 to `last`: every one where most losses lie, ever fewer beyond."""
    fine = min(last, math.ceil(_FINE_DEVIATIONS * deviation / step))
    knots = list(range(fine + 1))
    position = float(max(fine, 1))
    while position < last:
        position = max(position + 1, position * growth)
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
