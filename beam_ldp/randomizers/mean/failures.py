"""Trainings that fail: how a client reports that privately, and how the server sees that all do.

A client whose training fails has no update. It reports the *failure vector* of the round instead: a
public direction, as long as a clipped update can be, through the same mechanism. So a report
protects the failure as it protects any update, and one report hardly shows it. The mean of many
does: its component along the failure vector is the share of clients whose training failed.

The vectors of consecutive rounds are opposite, so that what a few failing clients add to the model
cancels, and an update that points one way all the time does not look like a failure.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from beam_ldp.randomizers.mean.base import MeanRandomizer

LEAST_ROUNDS = 3  # in a row
_SHARE = 0.5  # of the clients; all of them is 1
_LARGEST_ERROR = 0.2  # of that share, for a verdict
_SURE = 5.0  # standard errors, once the training has worked


def failure_vector(mechanism: MeanRandomizer, training: str, number: int) -> np.ndarray:
    """What a failed training reports in a round: `(dimension,)`, on the border of the ball.

    Client and server compute it alike, whatever their versions of NumPy.
    """
    digest = hashlib.shake_256(training.encode()).digest(4 * mechanism.dimension)
    drawn = np.frombuffer(digest, dtype=">u4") / 2.0**31 - 1.0
    radius = float(getattr(mechanism, "radius", 1.0)) * (-1) ** number
    if mechanism.norm == "linf":
        return radius * np.sign(drawn)
    if mechanism.norm == "l1":
        return radius * (np.abs(drawn) == np.abs(drawn).max())
    return np.asarray(radius * drawn / np.linalg.norm(drawn))


class Failures:
    """What the rounds of a training say about failed trainings of its clients.

    A verdict needs three rounds in a row in which more than half of the clients seem to fail, with
    a standard error of at most 0.2. If the training worked before, the share must also exceed five
    standard errors. A training that works is stopped with a probability of at most 0.6 %, and only
    if its first rounds have about 15 reports in all; with 60 it is below 1e-6. That supposes
    updates that do not reverse every round at full length, which in a few dimensions look alike.

    Args:
        mechanism, training: as for `failure_vector`.
    """

    def __init__(self, mechanism: MeanRandomizer, training: str) -> None:
        self._mechanism, self._training = mechanism, training
        self._square = float(np.sum(failure_vector(mechanism, training, 0) ** 2))
        self._row: list[tuple[float, float]] = []  # share and variance of each round in a row
        self._worked = False

    def add(self, number: int, mean: np.ndarray, num_reports: int) -> None:
        """A round with a result: the mean update that it estimated."""
        vector = failure_vector(self._mechanism, self._training, number)
        self.add_share(float(mean @ vector) / self._square, num_reports)

    def add_share(self, share: float, num_reports: int) -> None:
        """The same, where only the mean's component along the failure vector is known."""
        error = float(self._mechanism.mean_squared_error(num_reports))
        variance = error / self._mechanism.dimension / self._square
        if share > _SHARE - math.sqrt(variance):
            self._row.append((share, variance))
        else:
            self._row, self._worked = [], True

    def add_silent(self) -> None:
        """A round in which no client reported."""
        self._row.append((1.0, 0.0))

    @property
    def share(self) -> float | None:
        """Of the clients whose training failed in the last rounds; None unless most of them did."""
        if len(self._row) < LEAST_ROUNDS:
            return None
        shares, variances = np.transpose(self._row)
        share, error = float(shares.mean()), math.sqrt(variances.sum()) / len(shares)
        sure = not self._worked or share > _SURE * error
        return share if share > _SHARE and error <= _LARGEST_ERROR and sure else None
