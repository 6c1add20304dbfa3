"""The price of several shuffled messages per user: one shuffler per message column, composed.

Every user sends one two-response message (a place in a block, drawn independently of the data,
and a noisy bit) to each shuffler. Neighbours differ in one user (replace-one), hence in one
message per shuffler. The reader sees each shuffler's messages without order, and nothing that
links two shufflers.

Methods, from tight to loose:

* "bits": over all data sets (`divergences.bit_counts`); of messages that are each about one place.
* "blanket": with probability 2p somebody else's bit is uniform; the victim hides among those
  bits. This pair dominates every block size and every value in between (two bits that differ by
  less are a convex-order contraction of the full flip). Composed as privacy-loss distributions;
  "blanket_rdp" composes Renyi divergences.
* "clones", "clones_rdp": the same with the clones of Feldman, McMillan and Talwar (2021), which
  know nothing of the mechanism.
* "thesis": the closed form of Theorems 3.3.2, 3.5.2 and 3.6.2 with its faults mended: their
  constant 144 does not follow from their own lemmas, and the order condition is checked.

Source: thesis, sections 3.3 and 5.3; the blanket of Balle, Bell, Gascon and Nissim (2019).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from beam_ldp.accounting.divergences.curve_losses import sticks
from beam_ldp.accounting.divergences.loss_grid import (
    LossGrid,
    connected_losses,
    lower_epsilon,
    together,
)
from beam_ldp.accounting.divergences.moments import (
    Atoms,
    binomial_log_pmf,
    closed_form_epsilon,
    default_orders,
    rdp_to_epsilon,
)
from beam_ldp.accounting.divergences.shuffle_rdp import lower_edge_blocks
from beam_ldp.accounting.lower import bit_atoms
from beam_ldp.accounting.reports import LocalReports, ShuffledReports
from beam_ldp.accounting.shuffle.report_curves import event_curve
from beam_ldp.randomizers import special
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.randomizers.mean.two_response import message_pair
from beam_ldp.randomizers.special import brentq

MessageMethod = Literal["auto", "bits", "blanket", "blanket_rdp", "clones", "clones_rdp", "thesis"]
METHODS = ("auto", "bits", "blanket", "blanket_rdp", "clones", "clones_rdp", "thesis")

# Lemma 3.3.2 (Feldman, McMillan and Talwar 2023, Corollary 4.3): divergence 48 a x^2 / n for
# orders a up to n / (16 e exp(e)), e the message's local epsilon and x = 2 sinh(e/2).
LEMMA_CONSTANT = 48.0
_ORDER_CONSTANT = 16.0

# Of the loss of one column, root mean square over all: the grid widens the variance by 0.02 %.
_STEPS_PER_DEVIATION = 40
_CROWD_BLOCKS = (12, 80)  # so many at least and at most
_BLOCK_WIDTH = 2.5e-5  # relative; overstates divergences by about 0.03 % with 80 blocks
_MOST_LOSSES = 400_000
# Counts of ones further than reach * sqrt(crowd) from the middle have a mass of at most
# 2 exp(-2 reach^2) (Hoeffding), which is charged at the largest loss. High orders need more reach.
_REACH, _REACH_OF_ORDERS = 7.0, 14.0


class Messages(NamedTuple):
    """So many message columns of one local budget each."""

    columns: int
    message_epsilon: float


def messages_of(randomizer: Any) -> tuple[Messages, ...]:
    """The message columns of a mechanism that sends two-response messages.

    Raises:
        ValueError: if the randomizer does not describe its messages.
    """
    check_protects_alone(randomizer)
    layout = getattr(randomizer, "layout", None)
    if layout is None:
        raise ValueError(
            "randomizer must send one message per user or describe its two-response messages, "
            f"got {type(randomizer).__name__}"
        )
    budgets, counts = np.unique(layout.columns.log_ratio_max, return_counts=True)
    return tuple(Messages(int(c), float(e)) for c, e in zip(counts, budgets))


def check_protects_alone(randomizer: Any) -> None:
    """A ValueError for what protects nobody before it is shuffled: it has no local epsilon.

    The mechanism's own `dominating_pair` says where its price is.
    """
    if not getattr(randomizer, "protects_alone", True):
        randomizer.dominating_pair()
        raise ValueError(f"{type(randomizer).__name__} protects behind a trusted shuffler alone")


def multi_message_epsilon(
    messages: Iterable[tuple[int, float]],
    num_reports: int,
    delta: float,
    method: MessageMethod = "auto",
) -> float:
    """The central epsilon at `delta` of all message columns together: an upper bound.

    Args:
        messages: `(count, message_epsilon)` of each kind of column, see `messages_of`.
        num_reports: users whose messages each shuffler permutes.
        delta: in (0, 1).
        method: see the module; "auto" is "blanket".

    Raises:
        ValueError: on a bad argument, or where "thesis" is outside its proven range.

    >>> round(multi_message_epsilon([(300, 0.44)], 1000, 1e-5), 2)
    1.0
    """
    columns = checked_messages(messages, num_reports, delta, method)
    local = math.fsum(c.columns * c.message_epsilon for c in columns)
    if method == "thesis":
        return min(local, _thesis_epsilon(columns, num_reports, delta))
    if method.endswith("_rdp"):
        orders = default_orders(_best_order(columns, num_reports, delta))
        rdp = multi_message_rdp(columns, num_reports, orders, method)
        return min(local, rdp_to_epsilon(orders, rdp, delta)[0])
    return min(local, column_losses(columns, num_reports, method).epsilon(delta))


def multi_message_rdp(
    messages: Iterable[tuple[int, float]],
    num_reports: int,
    orders: Sequence[float] | np.ndarray,
    method: MessageMethod = "blanket_rdp",
) -> np.ndarray:
    """Renyi divergence of all message columns together at each order (float64): an upper bound."""
    columns = checked_messages(messages, num_reports, 0.5, method)
    total = np.zeros(len(orders))
    for column in columns:
        if method == "thesis":
            x = 2 * math.sinh(column.message_epsilon / 2)
            one = LEMMA_CONSTANT * np.asarray(orders) * x**2 / num_reports
            one[np.asarray(orders) > _largest_order(column.message_epsilon, num_reports)] = np.inf
        else:
            atoms = message_atoms(column.message_epsilon, num_reports, _clones(method))
            one = np.array([atoms.renyi(float(order)) for order in orders])
        total += column.columns * np.minimum(one, column.message_epsilon)
    return total


@lru_cache(maxsize=64)
def witness_epsilon(
    witness: tuple[tuple[int, float, float], ...], num_reports: int, delta: float
) -> float:
    """What a concrete pair of data sets costs at `delta`: the price cannot be below.

    Args:
        witness: `(count, first, second)`: so many columns in which the victim's bit is one with
            probability `first` or `second`, and everybody else's with probability `second`.
        num_reports: users whose messages each shuffler permutes.
        delta: in (0, 1).

    >>> low = witness_epsilon(((300, 0.608, 0.392),), 1000, 1e-5)
    >>> 0.8 < low < multi_message_epsilon([(300, 0.44)], 1000, 1e-5)
    True
    """
    columns = [(n, bit_atoms(first, second, num_reports)) for n, first, second in witness]
    return lower_epsilon(columns, delta)


@lru_cache(maxsize=64)
def message_atoms(
    message_epsilon: float, num_reports: int, clones: bool = False, reach: float = _REACH_OF_ORDERS
) -> Atoms:
    """The dominating pair of one shuffled two-response message; mirror symmetric.

    Given that C others blend in, A of the C + 1 blended bits are ones: binomial, fair. The count
    C is rounded down to few values and losses are merged on a fine grid such that both laws keep
    their mass and the ratio keeps its mean: each is an upper bound for every divergence.
    """
    ratio = math.exp(message_epsilon)
    probability = 1 / ratio if clones else 2 / (ratio + 1)
    spread = 1 / math.sqrt(1 + num_reports * probability)  # of the crowd, relative
    blocks = int(np.clip(spread / _BLOCK_WIDTH, *_CROWD_BLOCKS))
    edges, log_weights = lower_edge_blocks(num_reports - 1, probability, blocks)
    deviation = 2 * math.sinh(message_epsilon / 2) / math.sqrt(num_reports)
    step = min(deviation / _STEPS_PER_DEVIATION, message_epsilon / _STEPS_PER_DEVIATION)
    step = max(step, 2 * message_epsilon / _MOST_LOSSES)
    limit = math.ceil(message_epsilon / step) + 1
    mass = np.zeros(2 * limit + 2)
    for crowd, log_weight in zip(edges.tolist(), log_weights.tolist()):
        if log_weight == -math.inf:
            continue
        middle, most = (crowd + 1) / 2, reach * math.sqrt(crowd + 1)
        ones = np.arange(max(0, int(middle - most)), min(crowd + 1, int(middle + most) + 1) + 1)
        log_mass = log_weight + _fair_log_pmf(ones, crowd + 1)
        first = 2 * (ratio * ones + (crowd + 1 - ones)) / ((ratio + 1) * (crowd + 1))
        second = 2 * (ones + ratio * (crowd + 1 - ones)) / ((ratio + 1) * (crowd + 1))
        loss = np.log(first) - np.log(second)
        below = np.floor(loss / step)
        # The share of the upper grid point keeps the mean of first/second under the second law.
        upper = np.expm1(loss - below * step) / math.expm1(step)
        weight = np.exp(log_mass) * second
        place = (below + limit).astype(np.int64)
        mass += np.bincount(place, weight * (1 - upper), len(mass))
        mass += np.bincount(place + 1, weight * upper, len(mass))
    mass[-1] += 2 * math.exp(-2 * reach**2)
    kept = mass > 0
    losses = (np.arange(len(mass)) - limit)[kept] * step
    return Atoms(np.log(mass[kept]), np.exp(losses), np.ones(int(kept.sum())))


def _fair_log_pmf(counts: np.ndarray, trials: int) -> np.ndarray:
    """Log-probabilities of consecutive counts of fair coins, from one of them by their ratios."""
    steps = np.log((trials - counts[:-1]) / counts[1:])
    relative = np.concatenate(([0.0], np.cumsum(steps)))
    middle = len(counts) // 2
    return relative - relative[middle] + binomial_log_pmf(counts[middle], trials, 0.5)


def _bit(message_epsilon: float, num_reports: int) -> ShuffledReports:
    """A column of messages that are one bit each."""
    return LocalReports(message_epsilon, message_pair(message_epsilon), outputs=2).shuffled(
        num_reports
    )


@lru_cache(maxsize=64)
def column_losses(
    columns: tuple[Messages, ...], num_reports: int, method: MessageMethod = "auto"
) -> LossGrid:
    """The losses of all columns together, on a grid that fits the spread of one."""
    deviations = [2 * math.sinh(c.message_epsilon / 2) / math.sqrt(num_reports) for c in columns]
    counts = [c.columns for c in columns]
    step = math.sqrt(np.average(np.square(deviations), weights=counts)) / _STEPS_PER_DEVIATION
    step = min(step, *(c.message_epsilon for c in columns))
    if method == "bits":
        curves = [(event_curve(_bit(c.message_epsilon, num_reports)), c.columns) for c in columns]
        grids = [(LossGrid.connecting(step, *sticks(curve, step)), n) for curve, n in curves]
        return together(grids)
    kinds = [
        (c.columns, message_atoms(c.message_epsilon, num_reports, _clones(method), _REACH))
        for c in columns
    ]
    return together([(connected_losses(atoms, step), count) for count, atoms in kinds])


def _thesis_epsilon(columns: tuple[Messages, ...], num_reports: int, delta: float) -> float:
    squares = math.fsum(c.columns * 4 * math.sinh(c.message_epsilon / 2) ** 2 for c in columns)
    rho = LEMMA_CONSTANT * squares / num_reports
    order = 1 + math.sqrt(math.log(1 / delta) / rho)
    limit = min(_largest_order(c.message_epsilon, num_reports) for c in columns)
    if order > limit:
        raise ValueError(
            f'method "thesis" is not proved here: it needs order {order:.3g}, its lemma holds up '
            f'to {limit:.3g}; use method "blanket"'
        )
    return closed_form_epsilon(rho, delta)


def _largest_order(message_epsilon: float, num_reports: int) -> float:
    return num_reports / (_ORDER_CONSTANT * message_epsilon * math.exp(message_epsilon))


def _best_order(columns: tuple[Messages, ...], num_reports: int, delta: float) -> float:
    squares = math.fsum(c.columns * 4 * math.sinh(c.message_epsilon / 2) ** 2 for c in columns)
    return 1 + math.sqrt(2 * math.log(1 / delta) * num_reports / squares)


def _clones(method: MessageMethod) -> bool:
    return method.startswith("clones")


def checked_messages(
    messages: Iterable[tuple[int, float]], num_reports: int, delta: float, method: MessageMethod
) -> tuple[Messages, ...]:
    """Equal columns together, or a ValueError that names the argument."""
    counts: Counter[float] = Counter()
    for count, budget in messages:
        counts[float(budget)] += int(count)
    columns = tuple(Messages(count, budget) for budget, count in counts.items())
    if not columns or not all(c.columns >= 1 and 0 < c.message_epsilon <= 40 for c in columns):
        raise ValueError("messages must hold counts >= 1 and message epsilons in (0, 40]")
    check_integer("num_reports", num_reports, 1)
    check_fraction("delta", delta)
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    return columns


# The largest message budgets whose price meets a target -----------------------------------


_TOLERANCE = 1e-5


def calibrate_messages(
    counts: Sequence[int],
    shape: Sequence[float] | np.ndarray,
    epsilon: float,
    delta: float,
    num_reports: int,
    method: MessageMethod = "auto",
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
    check_positive("epsilon", epsilon)
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
    check_positive("epsilon", epsilon)
    check_fraction("delta", delta)

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
