"""Which actions to play, and how often: approximately G-optimal designs of small support.

How far estimated rewards may be from the true ones, with all noise counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_ldp.decisions.bandits.noise import Counts, RewardNoise
from beam_ldp.randomizers.checks import check_integer

Floats = NDArray[np.float64]

RANK_TOLERANCE = 1e-9
_LEAST_WEIGHT = 1e-12


@dataclass(frozen=True, eq=False)
class CoreDesign:
    """Weights of actions that let every action's reward be estimated.

    Attributes:
        rows: (K, m) float64; the actions in an orthonormal basis of their span.
        support: (c,) increasing indices of the actions to play.
        weights: (c,) of them, above zero; sum to one.
        leverage: (K,) variance of each action's estimated reward, in units of that of one reward
            over the number of people.
    """

    rows: Floats
    support: NDArray[np.intp]
    weights: Floats
    leverage: Floats

    @property
    def rank(self) -> int:
        """Dimension m of the span of the actions."""
        return self.rows.shape[1]

    def counts(self, size: float) -> NDArray[np.int64]:
        """People of each action of the support, in a batch of about `size` people: rounded up."""
        return np.ceil(self.weights * size).astype(np.int64)


def g_optimal(actions: ArrayLike, stop: float = 2.0, most_steps: int = 100_000) -> CoreDesign:
    """A design whose largest leverage is at most `stop` times the least possible one.

    No design has a largest leverage below the rank m (Kiefer and Wolfowitz). Fedorov's exchange,
    with steps away from needless actions, starts from m actions of large volume. Leverages do not
    depend on the basis, so rows are whitened first: thin arcs of actions are no harder than
    spheres. The result is a function of the actions and their order.

    Args:
        actions: (K, d) finite, not all zero; any rank.
        stop: above 1. At 2 the support is little more than m actions.
        most_steps: of the exchange.

    Raises:
        ValueError: of the arguments.
        RuntimeError: if `most_steps` do not suffice.

    Complexity: O(K m) for a step, O(K d^2) at the start.

    Source: specification of linear bandits, section 4.

    >>> design = g_optimal([[1, 0], [0, 1], [0.7, 0.7]])
    >>> design.support.tolist(), design.weights.tolist(), bool(design.leverage.max() <= 2 * 2)
    ([0, 1], [0.5, 0.5], True)
    """
    rows, white = _in_span(_checked(actions))
    if not stop > 1:
        raise ValueError(f"stop must be a number > 1, got {stop!r}")
    check_integer("most_steps", most_steps, 1)
    weights = np.zeros(len(rows))
    start = _greedy_volume(white)
    weights[start] = 1 / len(start)
    for _ in range(most_steps):
        leverage = _leverages(white, weights)
        if leverage.max() <= stop * white.shape[1]:
            break
        weights = _exchanged(weights, leverage, white.shape[1])
    else:
        raise RuntimeError(f"most_steps must be larger: {most_steps} steps found no design")
    return _pruned(rows, white, weights, stop)


def uniform(actions: ArrayLike) -> CoreDesign:
    """All actions equally often, for comparison: the text's learner without a core set."""
    rows, white = _in_span(_checked(actions))
    weights = np.full(len(rows), 1 / len(rows))
    return CoreDesign(rows, np.arange(len(rows)), weights, _leverages(white, weights))


def _checked(actions: ArrayLike) -> Floats:
    matrix = np.asarray(actions, dtype=np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"actions must be a matrix with rows, got shape {matrix.shape}")
    if not np.isfinite(matrix).all() or not matrix.any():
        raise ValueError("actions must be finite, and one of them other than zero")
    return matrix


def _in_span(matrix: Floats) -> tuple[Floats, Floats]:
    """Coordinates in an orthonormal basis of the span, and the same rows whitened."""
    left, scales, right = np.linalg.svd(matrix, full_matrices=False)
    rank = int((scales > RANK_TOLERANCE * scales[0]).sum())
    return matrix @ right[:rank].T, left[:, :rank] * np.sqrt(len(matrix))


def _greedy_volume(white: Floats) -> list[int]:
    """As many rows as the rank: each the one farthest from the span of those before."""
    residual, chosen = white.copy(), []
    for _ in range(white.shape[1]):
        farthest = _first_largest((residual**2).sum(axis=1))
        chosen.append(farthest)
        unit = residual[farthest] / np.linalg.norm(residual[farthest])
        residual -= np.outer(residual @ unit, unit)
    return chosen


def _first_largest(values: Floats) -> int:
    """The first of the largest values; rounding does not tell equal ones apart."""
    largest = values.max()
    return int(np.argmax(values >= largest - RANK_TOLERANCE * abs(largest)))


def _leverages(rows: Floats, weights: Floats) -> Floats:
    played = weights > 0
    gram = (rows[played].T * weights[played]) @ rows[played]
    return np.einsum("km,km->k", rows, np.linalg.solve(gram, rows.T).T)


def _exchanged(weights: Floats, leverage: Floats, rank: int) -> Floats:
    """One step towards the row of most leverage, or away from the played row of least."""
    most = _first_largest(leverage)
    played = np.flatnonzero(weights)
    least = int(played[_first_largest(-leverage[played])])
    high, low = leverage[most], leverage[least]
    if 1 - low / rank <= high / rank - 1:
        step = (high / rank - 1) / (high - 1)
        weights = (1 - step) * weights
        weights[most] += step
        return weights
    away = weights[least] / (1 - weights[least])
    if low > 1:
        away = min((1 - low / rank) / (low - 1), away)
    weights = (1 + away) * weights
    weights[least] -= away
    weights[weights < _LEAST_WEIGHT / 100] = 0.0
    return weights / weights.sum()


def _pruned(rows: Floats, white: Floats, weights: Floats, stop: float) -> CoreDesign:
    weights = np.where(weights < _LEAST_WEIGHT, 0.0, weights)
    weights = weights / weights.sum()
    leverage = _leverages(white, weights)
    rank = rows.shape[1]
    if not leverage.max() <= stop * rank * (1 + 1e-6):
        raise RuntimeError(f"the design's largest leverage is {leverage.max()!r}, above its bound")
    support = np.flatnonzero(weights)
    return CoreDesign(rows, support, weights[support], leverage)


# By how much estimates may be off -----------------------------------------------------------------


Width = Literal["tight", "safe", "printed"]

_SHARES = np.linspace(0.02, 0.98, 49)


def tight_width(estimator: Floats, counts: Counts, noise: RewardNoise, log_failure: float) -> float:
    """Half-width by Chernoff's bound of rewards and Laplace noise together.

    Every exponent gives a valid bound; the best of a grid is taken.

    Args:
        estimator: (K, c); an action's estimate is its row times the sums of the c actions played.
        counts: (c,) people of each of them.
        noise: of their rewards.
        log_failure: l; all K estimates are within the width but with probability 2 K e^-l.

    Source: specification of linear bandits, section 8.
    """
    squares = estimator**2
    rewards = noise.bound**2 * (squares @ counts)
    scale = noise.laplace_scale
    if scale == 0.0:
        return float(np.sqrt(2 * log_failure * rewards.max()))
    terms = noise.laplace_terms(counts)
    spread = rewards + 2 * scale**2 * (squares @ terms)
    largest = scale * np.abs(estimator).max(axis=1)
    exponents = np.minimum(  # (K, grid)
        _SHARES / largest[:, None], 2 * _SHARES * np.sqrt(2 * log_failure / spread)[:, None]
    )
    cumulants = exponents**2 * rewards[:, None] / 2 + log_failure
    for column, count in zip(squares.T, terms, strict=True):
        cumulants -= count * np.log1p(-((exponents * scale) ** 2) * column[:, None])
    return float((cumulants / exponents).min(axis=1).max())


def safe_width(estimator: Floats, counts: Counts, noise: RewardNoise, log_failure: float) -> float:
    """The same in closed form: a width of rewards, and one of Laplace noise by `laplace_tail`.

    Each of the two fails with probability 2 K e^-l at most.
    """
    squares = estimator**2
    rewards = noise.bound * math.sqrt(2 * log_failure * float((squares @ counts).max()))
    spread = np.sqrt(log_failure * (squares @ noise.laplace_terms(counts)))
    peaks = log_failure * np.abs(estimator).max(axis=1)
    return rewards + noise.laplace_scale * math.sqrt(8) * float(np.maximum(spread, peaks).max())


def printed_width(
    kind: Literal["none", "central", "report"], size: float, people: int, played: int,
    dimension: int, epsilon: float, log_failure: float,
) -> float:  # fmt: skip
    """The text's width, for comparison: its tail of Laplace sums (Lemma E.1.2) is false.

    Args:
        kind: what the noise is: none, one Laplace variable a sum, or one a report.
        size: of the batch before counts are rounded up.
        people: of the batch.
        played: actions that are played.
        dimension: d.
        epsilon: central, or local.
        log_failure: log(4 K T^2).
    """
    width = math.sqrt(4 * dimension * log_failure / size)
    if kind == "central":
        return width + 2 * dimension * (played + log_failure) / (epsilon * size)
    if kind == "report":
        return width + 2 * math.sqrt(2 * dimension * people * log_failure) / (epsilon * size)
    return width


def laplace_tail(total: float, weights: Floats, scale: float = 1.0) -> float:
    """Bound of the probability that a weighted sum of Laplace variables exceeds `total`.

    From 1/(1 - x) <= e^(2x) for x <= 1/2; the text's own, `printed_laplace_tail`, is false.

    >>> round(laplace_tail(15.0, np.ones(10)), 3)
    0.06
    """
    spread, peak = float((weights**2).sum()), float(np.abs(weights).max())
    ratio = total / scale
    return math.exp(-min(ratio**2 / (8 * spread), ratio / (math.sqrt(8) * peak)))


def printed_laplace_tail(total: float, weights: Floats, scale: float = 1.0) -> float:
    """The text's Lemma E.1.2, as three of its uses read; false, for comparison."""
    spread, peak = float((weights**2).sum()), float(np.abs(weights).max())
    ratio = total / scale
    if ratio <= spread / peak:
        return math.exp(-(ratio**2) / (2 * spread))
    return math.exp(spread / (2 * peak**2) - ratio / peak)
