"""Compound hypotheses: whole sets of laws against each other, told apart by one randomized bit.

Each hypothesis is a convex set of laws of a value with k possible outcomes. Among all scores phi in
[0, 1]^k the best one has the largest gap between the smallest mean under the alternative and the
largest under the null; by the minimax theorem the gap is the total variation of the two nearest
laws. A person sends one randomized bit that is one with probability phi(value); whatever the law,
the test of one rate against another (`simple.py`) keeps both errors, even if each person has a law
of their own in the same set.

Scores are fractional in general. The likelihood-ratio set of the two nearest laws may guarantee
nothing (tests/decisions/experiments/test_compound.py).

Source: Joseph, Mao, Neel and Roth, section 5.2. Spec: interactivity, section 9.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from beam_ldp.randomizers.checks import check_fraction, check_integer

Law = NDArray[np.float64]
Oracle = Callable[[Law], Law]  # for weights of the outcomes the law of a set that has the most

_APART = 1e-9  # a smaller gap is none
_TOLERANCE = 1e-7
_MOST_CUTS = 1_000


class NotSeparable(ValueError):
    """Some law is in both hypotheses, so that no test tells them apart."""


@dataclass(frozen=True)
class Separation:
    """The best score, and what it guarantees.

    Attributes:
        scores: probability that a person with this value has a one, (k,).
        null: the largest probability of a one under the null.
        alternative: the smallest under the alternative.
        nearest: the two laws that are nearest to each other, null and alternative.
    """

    scores: Law
    null: float
    alternative: float
    nearest: tuple[Law, Law]

    @property
    def distance(self) -> float:
        """Total variation of the nearest laws: the gap that is guaranteed."""
        return self.alternative - self.null


def separate_hulls(null: ArrayLike, alternative: ArrayLike) -> Separation:
    """Two sets that are the convex hulls of finitely many laws.

    One linear program in k + 2 unknowns, a row for each law.

    Args:
        null, alternative: laws, (m, k) each; m may differ.

    Raises:
        NotSeparable: if the hulls meet.
        ValueError: for rows that are no laws.

    >>> found = separate_hulls([[0, 0, 1], [0.5, 0.5, 0]], [[0.3, 0.4, 0.3], [0.1, 0.2, 0.7]])
    >>> print(found.scores.round(3), round(found.distance, 3))
    [0.  1.  0.5] 0.05
    """
    first, second = _laws("null", null), _laws("alternative", alternative)
    if first.shape[1] != second.shape[1]:
        raise ValueError("alternative must have as many outcomes as null")
    outcomes = first.shape[1]
    # Unknown: the scores, the most of the null, the least of the alternative.
    most = np.hstack([first, np.tile([-1.0, 0.0], (len(first), 1))])
    least = np.hstack([-second, np.tile([0.0, 1.0], (len(second), 1))])
    solved = optimize.linprog(
        [*np.zeros(outcomes), 1.0, -1.0],
        A_ub=np.vstack([most, least]),
        b_ub=np.zeros(len(first) + len(second)),
        bounds=[(0, 1)] * outcomes + [(None, None)] * 2,
        method="highs",
    )
    if not solved.success:
        raise RuntimeError(f"the linear program was not solved: {solved.message}")
    scores = np.clip(solved.x[:outcomes], 0.0, 1.0)
    weights = np.maximum(-solved.ineqlin.marginals, 0.0)
    nearest = _mixed(weights[: len(first)], first), _mixed(weights[len(first) :], second)
    found = Separation(
        scores, float((first @ scores).max()), float((second @ scores).min()), nearest
    )
    if found.distance <= _APART:
        raise NotSeparable("null and alternative must not meet: some law is in both")
    _verify(found)
    return found


def separate_sets(null: Oracle, alternative: Oracle, outcomes: int) -> Separation:
    """Any two convex, closed sets, each known by what is its most extreme law in a direction.

    Cutting planes: the hulls of the laws found so far are separated, and both sets asked for the
    laws that are worst for that score, until neither is worse than those known.

    Args:
        null, alternative: for weights (k,) the law of the set with the largest mean weight.
        outcomes: number of values k, at least 2.

    Raises:
        NotSeparable: if the sets meet.

    >>> found = separate_sets(tv_ball([0.6, 0.4], 0.05), tv_ball([0.2, 0.8], 0.05), 2)
    >>> print(round(found.distance, 9))
    0.3
    """
    check_integer("outcomes", outcomes, 2)
    anything = np.zeros(outcomes)
    first, second = [null(anything)], [alternative(anything)]
    for _ in range(_MOST_CUTS):
        found = separate_hulls(first, second)
        worst, best = null(found.scores), alternative(-found.scores)
        most, least = float(worst @ found.scores), float(best @ found.scores)
        if found.distance - (least - most) < _APART:
            return replace(found, null=most, alternative=least)
        first.append(worst)
        second.append(best)
    raise RuntimeError(f"not separated by {_MOST_CUTS} cuts")


def half_spaces(
    outcomes: int,
    *,
    at_most: tuple[ArrayLike, ArrayLike] | None = None,
    equal: tuple[ArrayLike, ArrayLike] | None = None,
) -> Oracle:
    """The laws with linear constraints, for `separate_sets`; a linear program each time.

    Args:
        outcomes: number of values k.
        at_most: matrix (m, k) and bounds (m,): matrix @ law <= bounds.
        equal: the same with equality.

    Raises:
        ValueError: (when asked) if no law meets the constraints.

    >>> mean = ([[0.0, 0.5, 1.0]], [0.25])
    >>> print(half_spaces(3, at_most=mean)(np.array([0.0, 0.0, 1.0])))
    [0.75 0.   0.25]
    """
    rows, limits = (np.empty((0, outcomes)), np.empty(0)) if equal is None else equal
    sums = np.vstack([np.ones((1, outcomes)), np.asarray(rows, float).reshape(-1, outcomes)])
    totals = np.concatenate([[1.0], np.asarray(limits, float).ravel()])
    below, bounds = (None, None) if at_most is None else at_most

    def extreme(weights: Law) -> Law:
        solved = optimize.linprog(
            -weights, A_ub=below, b_ub=bounds, A_eq=sums, b_eq=totals, bounds=(0, 1), method="highs"
        )
        if not solved.success:
            raise ValueError("at_most and equal must leave some law")
        return _normalized(solved.x)

    return extreme


def tv_ball(center: ArrayLike, radius: float) -> Oracle:
    """The laws within this total variation of one, for `separate_sets`.

    >>> print(tv_ball([0.5, 0.5], 0.1)(np.array([0.0, 1.0])))
    [0.4 0.6]
    """
    law = _laws("center", center)[0]
    check_fraction("radius", radius, "[]")

    def extreme(weights: Law) -> Law:
        order = np.argsort(weights)
        moved = law.copy()
        before = np.concatenate([[0.0], np.cumsum(law[order])[:-1]])
        taken = np.minimum(law[order], np.maximum(radius - before, 0.0))
        taken[-1] = 0.0  # from the best to itself
        moved[order] -= taken
        moved[order[-1]] += taken.sum()
        return moved

    return extreme


def _laws(name: str, rows: ArrayLike) -> Law:
    laws = np.atleast_2d(np.asarray(rows, dtype=float))
    fits = laws.ndim == 2 and laws.shape[1] >= 2 and bool(np.all(laws >= -1e-12))
    if not fits or np.any(np.abs(laws.sum(axis=1) - 1) > 1e-9):
        raise ValueError(f"{name} must hold laws: rows of two or more probabilities that sum to 1")
    return laws


def _mixed(weights: Law, laws: Law) -> Law:
    return _normalized(weights @ laws)


def _normalized(masses: Law) -> Law:
    positive = np.maximum(masses, 0.0)
    total = float(positive.sum())
    return positive / total if total > 0 else positive


def _verify(found: Separation) -> None:
    """What the minimax theorem promises: a solver that errs is not believed."""
    apart = float(np.abs(found.nearest[0] - found.nearest[1]).sum()) / 2
    spread = float(found.scores.max() - found.scores.min())
    if abs(apart - found.distance) > _TOLERANCE or abs(spread - 1) > _TOLERANCE:
        raise RuntimeError("the linear program's answer is not the saddle point")
