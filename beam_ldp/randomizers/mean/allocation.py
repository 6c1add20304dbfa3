"""How to spend a budget on messages and levels: the optima, and the text's choices.

With p = 1/(1 + e**epsilon) a debiased, centred bit has variance f(epsilon) = coth(epsilon/2)^2/4
per unit of its block, so a level of weight w_k that sends s_k messages of epsilon e_k costs
w_k^2 f(e_k) times the sum of squared block sizes.

Source: thesis, sections 3.3-3.6, for the family; the optima are our own derivation.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from beam_ldp.randomizers.special import brentq
from beam_ldp.randomizers.words import bits_for

# Minimizer of coth(e/2)^2 e: sinh(e) = 2 e. The best budget of one message of a local mechanism.
BEST_MESSAGE_EPSILON = 2.1773189849653073
MOST_BITS_EACH = 256  # messages about a coordinate: more gain a few per cent
# The share of the error that rounding to the last level may have in the shuffle model.
_ROUNDING_SHARE = 0.05
_MAX_LEVELS = 30
_LEAST_GAIN = 1e-3
# Below this budget per coordinate further levels gain less than 1 % of the worst-case error.
_LEVELS_HELP_FROM = 0.1
_SPENT = 1 - 1e-15  # keeps sums of rounded budgets at or below the declared one


def level_weights(num_levels: int) -> np.ndarray:
    """Weights 1/2, 1/4, ... of the binary digits; the last level has that of its predecessor."""
    exponents = np.arange(1, num_levels + 1)
    exponents[-1] = num_levels - 1
    return 0.5**exponents


def squared_block_sizes(num_coordinates: int, messages: int) -> float:
    """Sum of squared block sizes of balanced blocks, divided by the repeats of each."""
    if messages >= num_coordinates:
        return num_coordinates**2 / messages
    small, larger = divmod(num_coordinates, messages)
    return float(larger * (small + 1) ** 2 + (messages - larger) * small**2)


def bit_cost(message_epsilon: np.ndarray | float) -> np.ndarray:
    """Second moment of a debiased, centred bit: coth(epsilon/2)^2/4."""
    return 0.25 / np.tanh(np.asarray(message_epsilon) / 2) ** 2


def split_budget(costs: np.ndarray, messages: np.ndarray, local_epsilon: float) -> np.ndarray:
    """Message epsilons that minimize sum costs f(e_k) subject to sum messages_k e_k = budget.

    The Lagrange condition is a cubic in u = coth(e_k/2): u^3 - u = 4 multiplier messages/costs;
    the multiplier is found by bisection.
    """
    slope = messages / costs

    def epsilons(log_multiplier: float) -> np.ndarray:
        y = np.maximum(4 * math.exp(log_multiplier) * slope, 1e-290)
        inner = 1.5 * math.sqrt(3) * y
        steep = np.cosh(np.arccosh(np.maximum(inner, 1.0)) / 3)
        flat = np.cos(np.arccos(np.minimum(inner, 1.0)) / 3)
        u = 2 / math.sqrt(3) * np.where(inner > 1, steep, flat)
        return np.log1p(2 * u * (u + 1) / y)  # log((u+1)/(u-1)), with u - 1 = y/(u(u+1))

    def excess(log_multiplier: float) -> float:
        return float(math.log(messages @ epsilons(log_multiplier)) - math.log(local_epsilon))

    root = brentq(excess, -700.0, 300.0, xtol=1e-13)
    found = epsilons(root)
    return found * (local_epsilon / (messages @ found) * _SPENT)


@functools.lru_cache(maxsize=1024)  # the same for every rotation and seed
def best_local(
    num_coordinates: int,
    local_epsilon: float,
    max_levels: int | None = None,
    *,
    rotated: bool = False,
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Messages per level and their epsilons that minimize the worst local error.

    One level is enough while the budget leaves room for further coordinates; then levels are
    added as long as they help, with coordinate descent over the numbers of messages. `rotated`:
    the error counts after a rotation, where a worst vector also leaves the digits uncertain.
    """
    best = _descend(num_coordinates, local_epsilon, 1, rotated)
    limit = _MAX_LEVELS if max_levels is None else max_levels
    if local_epsilon < _LEVELS_HELP_FROM * num_coordinates:
        limit = 1
    for num_levels in range(2, limit + 1):
        tried = _descend(num_coordinates, local_epsilon, num_levels, rotated)
        if tried[0] > best[0] * (1 - _LEAST_GAIN):
            break
        best = tried
    _, messages, epsilons = best
    return tuple(int(s) for s in messages), tuple(float(e) for e in epsilons)


def _descend(
    num_coordinates: int, local_epsilon: float, num_levels: int, rotated: bool
) -> tuple[float, np.ndarray, np.ndarray]:
    """The least worst-case error (over 4 radius^2, one user) with so many levels."""
    weights = level_weights(num_levels) ** 2
    known: dict[tuple[int, ...], tuple[float, np.ndarray]] = {}

    def cost(messages: np.ndarray) -> float:
        key = tuple(messages.tolist())
        if key not in known:
            sizes = np.array([squared_block_sizes(num_coordinates, int(s)) for s in messages])
            epsilons = split_budget(weights * sizes, messages.astype(float), local_epsilon)
            noise = float(weights * sizes @ bit_cost(epsilons))
            certain = weights[:-1][(messages[:-1] == num_coordinates) | (not rotated)]
            known[key] = noise - num_coordinates / 4 * float(certain.sum()), epsilons
        return known[key][0]

    share = level_weights(num_levels)
    wished = np.rint(local_epsilon * share / share.sum() / BEST_MESSAGE_EPSILON)
    messages = np.clip(wished, 1, num_coordinates).astype(np.int64)
    stride = max(1, int(messages.max()) // 4)
    while stride:
        improved = False
        for level in range(num_levels):
            for step in (-stride, stride):
                tried = messages.copy()
                tried[level] += step
                while 1 <= tried[level] <= num_coordinates and cost(tried) < cost(messages):
                    messages, improved = tried.copy(), True
                    tried[level] += step
        if not improved:
            stride //= 2
    return cost(messages), messages, known[tuple(messages.tolist())][1]


def printed_local(
    num_coordinates: int, local_epsilon: float, num_levels: int = 1
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The text's choice: ceil(local_epsilon) messages, v_k as the cube root of w_k^2, its own p.

    Source: thesis, Algorithms 3.3.1 and 3.5.1, Lemma 2.4.1 (which spends only
    2 asinh(v/(2s)) of v/s).
    """
    count = min(math.ceil(local_epsilon), num_coordinates)
    share = level_weights(num_levels) ** (2 / 3)
    parameters = local_epsilon * share / share.sum() / count
    epsilons = 2 * np.arcsinh(parameters / 2) * _SPENT
    return (count,) * num_levels, tuple(float(e) for e in epsilons)


def most_messages(
    num_coordinates: int, max_bits: float | None = None, max_messages: float | None = None
) -> int:
    """The most messages about so many coordinates that a user may send.

    Messages about one coordinate each take a bit. Fewer than coordinates name one of a block: the
    more of them, the smaller the blocks, and the fewer bits name a place.

    Raises:
        ValueError: if not one message fits.
    """
    bits = math.inf if max_bits is None else max_bits
    most = math.inf if max_messages is None else max_messages
    if most < 1:
        raise ValueError(f"max_messages must be >= 1, got {max_messages}")
    if min(bits, most) >= num_coordinates:
        return int(min(bits, most, MOST_BITS_EACH * num_coordinates))

    def width(count: int) -> int:
        return count * (1 + bits_for(-(-num_coordinates // count)))

    count = int(min(bits, most, num_coordinates))
    while count and width(count) > bits:
        count -= 1
    if not count:
        raise ValueError(f"a message takes {width(1)} bits, max_bits is {max_bits:g}")
    return count


def shuffle_levels(num_coordinates: int, num_users: int, gaussian_mu: float) -> int:
    """Levels that keep rounding below 5 % of the noise in the shuffle model.

    Rounding decays as 4^-levels against the privacy error num_coordinates/(num_users mu^2), so
    the logarithm has base 4 (the text's has base 2, twice the bits).
    """
    ratio = num_users * gaussian_mu**2 / (num_coordinates * _ROUNDING_SHARE)
    return min(_MAX_LEVELS, max(1, math.ceil(0.5 * math.log2(ratio)))) if ratio > 1 else 1


def shuffle_shape(num_levels: int) -> np.ndarray:
    """Relative noise parameters x_k = 2 sinh(e_k/2) of the levels in the shuffle model.

    Renyi divergences add up as x_k^2, which makes x_k ~ sqrt(w_k) optimal: levels then cost no
    privacy error at all. (The text has the cube root of w_k^2, which is right for the local
    model at small epsilon.)
    """
    return np.sqrt(level_weights(num_levels))
