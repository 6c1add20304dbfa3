"""The central price of several shuffled messages per user, whichever way proves the least."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np

from beam_ldp.accounting.divergences.moments import binomial_log_pmf, rdp_to_epsilon
from beam_ldp.accounting.divergences.shuffle_rdp import lower_edge_blocks
from beam_ldp.accounting.lower import PrivacyBound
from beam_ldp.accounting.reports import ShuffledMessages
from beam_ldp.accounting.shuffle.bounded_change import BoundedMessages, bounded_change_rdp
from beam_ldp.accounting.shuffle.multi_message import (
    MessageMethod,
    largest_below,
    multi_message_epsilon,
    witness_epsilon,
)
from beam_ldp.randomizers.checks import check_fraction, check_integer

# The multi-message price of vectors of bounded Euclidean length: tighter than flipping every bit.
#
# Two derivations that share nothing but the blanket; the lower of their bounds counts. That of
# `bounded_change` holds for blocks of any size. The one here is for messages that each speak
# about a coordinate of its own, and is up to a tenth lower in small crowds.
#
# Each of many shufflers receives from every user one bit that is 1 with probability q_j = 1/2 +
# (1 - 2p) w_j/(2R), w_j in [-R, R] a coordinate of a vector of length at most r. The general
# price lets all bits of a user flip at once. But sum_j (q_j - q'_j)^2 is at most (1 - 2p)^2
# r^2/R^2 per bit that is sent of each coordinate, and Renyi divergences of small changes grow
# with their square.
#
# For one shuffler let N be one more than the number of other users' uniform bits (blanket mass
# 2p), y a fair binomial count of N, s = (2y - N)/N. Changing q = (1 + b)/2 into (1 + c)/2, b, c
# in [-beta, beta], beta = 1 - 2p, gives the moment
#
#     G(b, c) = E[(1 + c s)^a (1 + b s)^(1 - a)]
#             = 1 + a (a - 1) (c - b)^2 * integral_0^1 (1 - t) M(b, b + t (c - b)) dt,
#     M(b, x) = E[s^2 (1 + x s)^(a - 2) (1 + b s)^(1 - a)].
#
# For orders a >= 3, M is convex in b and in x, so on every cell of a grid it is at most its
# largest corner: that turns a table of M into a proven bound K_a of log G/(c - b)^2, and the
# divergence of all shufflers together is at most 4 K_a sum_j (q_j - q'_j)^2 / (a - 1).
#
# The integrand of G is convex in s, so replacing N by fewer, and s by a spread over grid points,
# are upper bounds too.
#
# Of a block this would bound the *average* change, which is not enough (`bounded_change`).
#
# Source: our own derivation, for thesis, Algorithm 3.6.2 with one level.


_CELLS = 48
_SLICES = 24
_ORDERS = 2 * 1.1 ** np.arange(180)
_CURVATURE_ORDERS = (3.0, 512.0)
_CROWD_BLOCKS = 60
_STEPS_PER_DEVIATION = 30
_TAIL_REACH = 10.0
_TAIL_MASS = 2 * math.exp(-2 * _TAIL_REACH**2)
_ROUNDING = 1 + 1e-9


def l2_messages_epsilon(messages: BoundedMessages, num_reports: int, delta: float) -> float:
    """The central epsilon at `delta` of two-response messages about a vector of bounded length.

    Args:
        messages: what one user sends, and how far it can change.
        num_reports: users whose messages each shuffler permutes.
        delta: in (0, 1).

    Returns:
        A proven upper bound.
    """
    change = messages.squared_change
    if not (0 < messages.message_epsilon <= 40 and change > 0):
        raise ValueError("message_epsilon must lie in (0, 40] and squared_change be > 0")
    check_integer("num_reports", num_reports, 1)
    check_fraction("delta", delta)

    @cache
    def epsilon(at: int) -> float:
        order = _ORDERS[at : at + 1]
        rdp = l2_messages_rdp(messages, num_reports, float(order[0]))
        return rdp_to_epsilon(order, [rdp], delta)[0] if rdp < math.inf else math.inf

    # Every order gives a bound. Downhill from the best order of the Gaussian limit.
    crowd = fair_bits(messages.message_epsilon, num_reports)
    square = 4 * change * math.tanh(messages.message_epsilon / 2) ** 2 / crowd
    guess = 1 + math.sqrt(2 * math.log(1 / delta) / square)
    at = int(np.clip(np.searchsorted(_ORDERS, guess), 0, len(_ORDERS) - 1))
    while at > 0 and (epsilon(at - 1) < epsilon(at) or epsilon(at) == math.inf):
        at -= 1
    while at + 1 < len(_ORDERS) and epsilon(at + 1) < epsilon(at):
        at += 1
    return epsilon(at)


def fair_bits(message_epsilon: float, num_reports: int) -> float:
    """Among how many uniform bits the victim's hides, on average, itself included."""
    return 1 + (num_reports - 1) * 2 / (math.exp(message_epsilon) + 1)


def l2_messages_rdp(messages: BoundedMessages, num_reports: int, order: float) -> float:
    """Renyi divergence of all shufflers together: a proven upper bound for orders >= 2."""
    found = bounded_change_rdp(messages, num_reports, order)
    least, most = _CURVATURE_ORDERS
    if messages.places > 1 or not least <= order <= most:
        return found
    budget = messages.message_epsilon
    change = messages.squared_change * math.tanh(budget / 2) ** 2 * _ROUNDING
    return min(found, 4 * _curvature(budget, num_reports, order) * change / (order - 1))


def calibrate_l2_messages(
    columns: int,
    squared_change: float,
    epsilon: float,
    delta: float,
    num_reports: int,
    gaussian_mu: float,
    places: int = 1,
) -> float:
    """The largest message epsilon whose price is at most (epsilon, delta).

    `gaussian_mu` is the Gaussian limit that the search starts from: see
    `multi_message.gaussian_mu`.
    """
    ideal = gaussian_mu * math.sqrt(num_reports / (4 * squared_change))
    guess = math.log(2 * math.atanh(min(0.9, 0.8 * ideal)))

    def price(log_budget: float) -> float:
        messages = BoundedMessages(columns, math.exp(log_budget), squared_change, places)
        return l2_messages_epsilon(messages, num_reports, delta)

    return math.exp(largest_below(price, epsilon, guess, math.log(20.0), tolerance=2e-3))


@lru_cache(maxsize=4096)
def _curvature(message_epsilon: float, num_reports: int, order: float) -> float:
    """A proven bound of log G(b, c)/(c - b)^2 over all b and c."""
    contrast = math.tanh(message_epsilon / 2)
    offsets, mass = _offset_law(message_epsilon, num_reports)
    edges = np.linspace(-contrast, contrast, _CELLS + 1)
    logs = np.log1p(np.multiply.outer(edges, offsets))
    weight = mass * offsets**2
    with np.errstate(over="ignore", invalid="ignore"):
        powers = np.exp((order - 2) * logs)
        # M at (b, x). Sums without BLAS: too small to be worth its threads.
        table = np.einsum("ik,jk->ij", np.exp((1 - order) * logs) * weight, powers)
    if not np.isfinite(table).all():
        return math.inf  # no bound from this order
    cells = np.maximum(table[:-1], table[1:])
    cells = np.maximum(cells[:, :-1], cells[:, 1:])
    with np.errstate(over="ignore"):
        excess = order * (order - 1) * _path_bounds(cells)
    # (G - 1)/(c - b)^2 is at most `excess`; log(1 + z^2 excess)/z^2 falls with the distance z.
    apart = np.abs(np.subtract.outer(np.arange(_CELLS), np.arange(_CELLS))) - 1
    nearest = np.maximum(apart, 0) * (2 * contrast / _CELLS)
    far = nearest > 0
    with np.errstate(over="ignore"):
        excess[far] = np.log1p(excess[far] * nearest[far] ** 2) / nearest[far] ** 2
    return float(excess.max())


def _path_bounds(cells: np.ndarray) -> np.ndarray:
    """Per cells of b and c: a bound of the integral of (1 - t) M along x = b + t (c - b)."""
    first = np.arange(_CELLS)[:, None]
    total = np.zeros((_CELLS, _CELLS))
    for share, passed in _passed_cells():
        total += share * cells[first, passed].max(axis=0)
    return total


@lru_cache(maxsize=1)
def _passed_cells() -> list[tuple[float, np.ndarray]]:
    """Per slice of t: the integral of 1 - t, and which cells x can be in, for cells of b and c.

    The indices have the shape (most cells, cells of b, cells of c); shorter lists repeat their
    last. In units of cells, with b in [i, i + 1] and c in [j, j + 1], x lies between
    i + t (j - i) and one more. Integers, in units of 1/_SLICES of a cell: no edge is missed.
    """
    first, last = np.arange(_CELLS)[:, None], np.arange(_CELLS)[None, :]
    slices = []
    for k in range(_SLICES):
        share = (2 * (_SLICES - k) - 1) / (2 * _SLICES**2)
        ends = k * (last - first), (k + 1) * (last - first)
        begin = first + np.minimum(*ends) // _SLICES
        end = first - -np.maximum(*ends) // _SLICES  # the cell that holds the largest x
        begin, end = np.clip(begin, 0, _CELLS - 1), np.clip(end, 0, _CELLS - 1)
        steps = np.arange(int((end - begin).max()) + 1)[:, None, None]
        slices.append((share, np.minimum(begin + steps, end)))
    return slices


@lru_cache(maxsize=64)
def _offset_law(message_epsilon: float, num_reports: int) -> tuple[np.ndarray, np.ndarray]:
    """Values of s = (2y - N)/N and their probabilities, spread over a symmetric grid."""
    uniform = 2 / (math.exp(message_epsilon) + 1)
    edges, log_weights = lower_edge_blocks(num_reports - 1, uniform, _CROWD_BLOCKS)
    typical = 1 / math.sqrt(1 + (num_reports - 1) * uniform)
    half = max(8, min(2000, math.ceil(_STEPS_PER_DEVIATION / typical)))
    # Even in the middle, where nearly all mass is; ever wider steps towards -1 and 1.
    inner = np.linspace(0.0, min(1.0, 14 * typical), min(half, 14 * _STEPS_PER_DEVIATION) + 1)
    outer = np.geomspace(inner[-1], 1.0, 60)[1:] if inner[-1] < 1 else np.array([])
    right = np.concatenate([inner, outer])
    grid = np.concatenate([-right[:0:-1], right])
    mass = np.zeros(len(grid))
    for crowd, log_weight in zip(edges.tolist(), log_weights.tolist()):
        if log_weight == -math.inf:
            continue
        total = crowd + 1
        middle, reach = total / 2, _TAIL_REACH * math.sqrt(total)
        counts = np.arange(max(0, int(middle - reach)), min(total, int(middle + reach) + 1) + 1)
        law = np.exp(log_weight + binomial_log_pmf(counts, total, 0.5))
        offset = (2 * counts - total) / total
        place = np.clip(np.searchsorted(grid, offset, side="right") - 1, 0, len(grid) - 2)
        upper = (offset - grid[place]) / (grid[place + 1] - grid[place])
        mass += np.bincount(place, law * (1 - upper), len(grid))
        mass += np.bincount(place + 1, law * upper, len(grid))
    mass[[0, -1]] += _TAIL_MASS
    return grid, mass


_FAR_BELOW = 0.1  # of the local epsilon: the length tells much there
_MANY_FLIPPED = 200.0  # fair bits at places of full flips, from where these are hidden well
_BOUNDED_LENGTH = "blanket, bounded length"
_BITS = "bits, all data sets"
_NO_PAIR = "none: the event names no concrete pair of data sets"
_WITNESS = "one vector against its opposite, which all others hold"
_PURE = "local epsilon (no amplification)"


def bounded_messages(event: ShuffledMessages) -> BoundedMessages:
    """The messages of a release whose vectors are of bounded length."""
    assert event.squared_change is not None
    columns = sum(count for count, _ in event.messages)
    largest = max(budget for _, budget in event.messages)
    return BoundedMessages(columns, largest, event.squared_change, event.places)


def messages_epsilon(
    event: ShuffledMessages, delta: float, method: MessageMethod | str = "auto"
) -> PrivacyBound:
    """What shuffled messages cost, from the event of the release: as `one_release.mean_epsilon`."""
    local, reports, change = event.local_epsilon, event.num_reports, event.squared_change
    if method == "l2" and change is None:
        raise ValueError('method "l2" needs L2Mean with one level')
    if delta == 0.0:
        return PrivacyBound(local, method=_PURE, lower_method=_NO_PAIR)
    found: list[tuple[float, str]] = []
    if method in ("auto", "l2") and change is not None:
        bounded = bounded_messages(event)
        budget = bounded.message_epsilon
        value = l2_messages_epsilon(bounded, reports, delta)
        found.append((min(value, local), _BOUNDED_LENGTH))
        hidden = event.places == 1 or change * fair_bits(budget, reports) > _MANY_FLIPPED
        few = change < bounded.columns / 2 and value < _FAR_BELOW * local
        if method == "auto" and hidden and few:
            method = "l2"  # far from flipping every bit: the general price is higher
    if method != "l2":
        bits = method == "auto" and event.outputs == 2
        general: Any = "bits" if bits else method
        value = multi_message_epsilon(event.messages, reports, delta, general)
        way = "blanket" if method == "auto" else method
        found.append((value, _BITS if bits else way))
    epsilon, way = min(found)
    lower, pair = 0.0, _NO_PAIR
    if event.witness:
        lower, pair = witness_epsilon(event.witness, reports, delta), _WITNESS
        if lower > epsilon * (1 + 1e-6):
            raise ArithmeticError(
                f"the upper bound {epsilon!r} ({way}) is below the lower bound {lower!r}: the "
                "event's messages and its witness contradict each other"
            )
    return PrivacyBound(epsilon, lower=min(lower, epsilon), method=way, lower_method=pair)
