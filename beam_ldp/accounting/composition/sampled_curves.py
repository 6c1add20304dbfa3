"""What the hockey sticks of a sample are computed by, of several reports of one person."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple

import attr
import numpy as np

from beam_ldp.accounting.divergences.curve_losses import (
    LogSticks,
    divergences_of,
    fine_sticks,
    grid_of,
)
from beam_ldp.accounting.divergences.loss_grid import LossGrid
from beam_ldp.accounting.reports import (
    POISSON,
    SELF,
    WITHOUT_REPLACEMENT,
    LocalReports,
    SampledReports,
    ShuffledMessages,
    ShuffledReports,
)
from beam_ldp.accounting.shuffle.mean_price import bounded_messages, l2_messages_rdp
from beam_ldp.accounting.shuffle.multi_message import Messages, column_losses
from beam_ldp.accounting.shuffle.report_curves import (
    OwnEvent,
    ReportCurve,
    event_curve,
    one_report,
    spread_of,
)
from beam_ldp.randomizers.mean.two_response import message_pair

HOPELESS = 100.0  # a local epsilon that no crowd hides
_MOST_OF_A_MESSAGE = 40.0  # whose column is composed
_LEAST_DELTA = 1e-280  # that a double is trusted to hold
_ORDERS = np.concatenate([np.arange(2.0, 33.0), np.floor(32 * 1.2 ** np.arange(1, 30))])
# Where sizes of samples by coins are cut, in standard deviations.
_CUTS = np.array([-12, -9, -7.5, -6, -5, -4, *np.arange(-3, 3.1, 0.25), 4, 5, 6, 7.5, 9, 12])
_COARSE_CUTS = np.array([-12, -6, -3])


def message_columns(event: ShuffledMessages) -> list[tuple[int, ShuffledReports]]:
    """The release as so many equal columns of each kind, one shuffle each."""
    return [
        (
            count,
            ShuffledReports(
                LocalReports(budget, message_pair(budget), outputs=event.outputs),
                event.num_reports,
            ),
        )
        for count, budget in event.messages
    ]


def messages_divergences(event: ShuffledMessages, orders: np.ndarray) -> np.ndarray:
    """Upper bounds of the Rényi divergence of all columns together, at each real order above one.

    Where the length of vectors is known, it bounds how far a person's messages can change at once.
    """
    total = np.zeros(len(orders))
    for count, column in message_columns(event):
        curve = event_curve(column)
        total += count * divergences_of(curve, _fine_sticks(column), orders)
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


@lru_cache(maxsize=256)
def _fine_sticks(column: ShuffledReports) -> tuple[np.ndarray, np.ndarray]:
    return fine_sticks(event_curve(column))


def in_columns(event: OwnEvent) -> bool:
    """Whether the messages of a sample are composed, each among those of its column."""
    if not isinstance(event, SampledReports) or not event.local_event.columns:
        return False
    return max(budget for _, budget in event.local_event.columns) <= _MOST_OF_A_MESSAGE


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


class SampledCurve(NamedTuple):
    """The price of a sample by all its sizes, and another that holds too, if there is one."""

    samples: tuple[_Sample, ...]
    deviation: float
    top: float
    other: ReportCurve | None = None
    alternatives: tuple[ReportCurve, ...] = ()  # none: the other one is in the price

    def log_heights(self, losses: np.ndarray, smoothing: tuple[float, ...]) -> np.ndarray:
        """Logarithm of the upper delta at each loss >= 0, in the worse direction."""
        parts = [math.log(one.chance) + one.log_heights(losses, smoothing) for one in self.samples]
        found = np.minimum(np.logaddexp.reduce(parts, axis=0), 0.0)
        if self.other is None:
            return np.asarray(found)
        return np.minimum(found, self.other.log_heights(losses, smoothing))


@lru_cache(maxsize=256)
def points_curve(event: SampledReports) -> SampledCurve:
    """Several points of a client, one message each."""
    local, points = event.local_event, event.points_sampled
    clients = max(1, int(event.num_hiding))
    together = one_report(attr.evolve(local, columns=(), messages=1).shuffled(points * clients))
    alone = attr.evolve(local, columns=(), messages=1).shuffled(clients)
    column = one_report(alone)
    divergences = divergences_of(column, fine_sticks(column), _ORDERS)
    several = _Shuffles(grid_of(column).repeated(points), _ORDERS, points * divergences)
    rate, other = event.rate, one_report(event)
    absent = _absent(event.drawn_rate, rate)
    sample = _Sample(1.0, rate, absent, together.log_heights, several.log_heights)
    return SampledCurve((sample,), rate * together.deviation, other.top, other)


@lru_cache(maxsize=256)
def columns_curve(event: SampledReports) -> SampledCurve:
    """Several columns of messages, of one or several points.

    In an epoch they tell together which round somebody is in, so columns are composed as if that
    were seen. All of somebody's messages are one report too: of little in few people that tells
    less, for where few blend in it is hardly the sample that somebody is in.
    """
    local, points, share = event.local_event, event.points_sampled, _share(event)
    samples, sizes = [], _sizes(event)
    for chance, drawn, clients, at_least in sizes:
        one = _composed_columns(local.in_columns(at_least * points), clients * points)
        several = one
        if points > 1:
            several = _composed_columns(local.in_columns(at_least, points), clients)
        rate = drawn * share
        samples.append(
            _Sample(chance, rate, _absent(drawn, rate), one.log_heights, several.log_heights)
        )
    _, drawn, clients, _ = max(sizes)  # the likeliest
    spread = sum(count * spread_of(message_pair(budget)) for count, budget in local.columns)
    deviation = drawn * share * math.sqrt(spread / (clients * points))
    other = None if event.local_epsilon > HOPELESS else one_report(event)
    if other is not None:
        deviation = min(deviation, other.deviation)
    return SampledCurve(tuple(samples), deviation, sampled_top(event), other)


def columns_divergences(event: SampledReports, orders: np.ndarray) -> np.ndarray:
    """Upper bounds of the Rényi divergence of columns of one sample, at orders above one.

    With the two laws as above, E[(P/Q)^order] under Q is jointly convex in P and Q: at most
    1 + eta (that of P_V and Q_V - 1), averaged over sizes of the sample. So nobody pays more than
    against a reader who sees who was drawn, whose divergences these are where eta is 1.
    """
    local, points, share = event.local_event, event.points_sampled, _share(event)
    chances: dict[int, float] = {}
    for chance, drawn, _, at_least in _sizes(event):
        chances[at_least] = chances.get(at_least, 0.0) + chance * drawn * share
    above = []
    for at_least, chance in chances.items():
        found = messages_divergences(local.in_columns(at_least * points), orders)
        moment = np.maximum(found, 1e-300) * (orders - 1)
        above.append(math.log(chance) + moment + np.log(-np.expm1(-moment)))
    return np.logaddexp(0.0, np.logaddexp.reduce(above, axis=0)) / (orders - 1)


def _share(event: SampledReports) -> float:
    """How likely a drawn client's data point is among those reported; 1 where points are drawn."""
    return 1.0 if event.sampling == POISSON else event.points_sampled / event.points_per_client


@lru_cache(maxsize=256)
def _composed_columns(event: ShuffledMessages, people: int) -> _Shuffles:
    """Of so many people; Rényi divergences, which take longer, of no more than the event's."""
    kinds = tuple(Messages(count, budget) for count, budget in event.messages)
    method: Literal["bits", "auto"] = "bits" if event.outputs == 2 else "auto"
    losses = column_losses(kinds, people, method)
    return _Shuffles(losses, _ORDERS, _columns_divergences(event))


@lru_cache(maxsize=64)
def _columns_divergences(event: ShuffledMessages) -> np.ndarray:
    return messages_divergences(event, _ORDERS)


def _sizes(event: SampledReports) -> list[tuple[float, float, int, int]]:
    """Chances, how likely the victim's client (Poisson: point) is drawn, how many honest ones are.

    With coins: of blocks of sizes, each at its largest rate and its smallest crowd; and coarser
    blocks of crowds, last. Of an epoch, the fakes may all be in one round.
    """
    if event.fixed_size:
        one_sample = event.sampling == WITHOUT_REPLACEMENT
        honest = event.num_hiding if one_sample else event.came - event.num_fakes
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
