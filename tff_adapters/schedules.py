"""Step sizes, as functions of the round: public, fixed before the training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from beam_ldp.randomizers.checks import check_positive

Schedule = Callable[[Any], Any]  # round, a float tensor from 1 on -> step size


def constant(rate: float) -> Schedule:
    """The same step in every round."""
    check_positive("rate", rate)
    return lambda t: tf.constant(rate, tf.float64)


def inverse_sqrt(rate: float) -> Schedule:
    """`rate / sqrt(t)`."""
    check_positive("rate", rate)
    return lambda t: rate / tf.sqrt(tf.cast(t, tf.float64))


def convex(diameter: float, gradient_bound: float) -> Schedule:
    """`Dm / (G sqrt(t))`, for which the gap of the last iterate is proved.

    E F(theta_T) - F* <= 2 Dm G (2 + log T) / sqrt(T) for convex F on a set of this diameter
    (thesis, Theorem 4.3.1; Shamir and Zhang 2013).

    Args:
        diameter: Dm, of the set that is projected on.
        gradient_bound: G, see `second_moment`.
    """
    check_positive("diameter", diameter)
    check_positive("gradient_bound", gradient_bound)
    return inverse_sqrt(diameter / gradient_bound)


def piecewise(pieces: Sequence[tuple[int, float]], last: float) -> Schedule:
    """Constant pieces: `rate` for so many rounds each, then `last`.

    Args:
        pieces: (rounds, rate), in order.
        last: the rate of all rounds after them.

    The papers': 0.3 for 70 epochs, then 0.18; and 12 for 30 epochs, 4 for 30 more, then 3.5.
    """
    ends, rates, end = [], [], 0
    for rounds, rate in pieces:
        if rounds < 1:
            raise ValueError(f"pieces must have rounds >= 1, got {rounds}")
        check_positive("rate", rate)
        end += rounds
        ends.append(float(end))
        rates.append(rate)
    check_positive("last", last)

    def step(t: Any) -> Any:
        before = tf.reduce_sum(tf.cast(tf.cast(t, tf.float64) > ends, tf.int32)) if ends else 0
        return tf.gather(tf.constant([*rates, last], tf.float64), before)

    return step


def as_schedule(rate: float | Schedule) -> Schedule:
    """A number is a constant schedule."""
    return rate if callable(rate) else constant(float(rate))


def second_moment(
    norm: str, dimension: int, lipschitz: float, squared_error: float, reports: int
) -> float:
    """G^2 = max(d^(1 - 2/p), 1) L^2 + MSE / reports: bounds E ||gbar||^2 of one round.

    Args:
        norm: p of the ball: "l1", "l2" or "linf".
        dimension: d.
        lipschitz: L, bound of every example's gradient in that norm.
        squared_error: of one report, worst case (`mechanism.mean_squared_error(1)`).
        reports: k s, reports per round.

    The thesis prints it without the factor of the dimension (Lemma 4.3.2), which is wrong for
    "linf": a gradient with ||g||_inf <= L can have ||g||_2^2 = d L^2.

    >>> second_moment("linf", 100, 0.1, 5.0, 50)
    1.1
    """
    factor = float(dimension) if norm == "linf" else 1.0
    return factor * lipschitz**2 + squared_error / reports


def gap_bound(diameter: float, gradient_bound: float, rounds: int) -> float:
    """2 Dm G (2 + log T) / sqrt(T): the expected gap of the last iterate, at most."""
    return 2 * diameter * gradient_bound * (2 + math.log(rounds)) / math.sqrt(rounds)
