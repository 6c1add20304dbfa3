r"""Shuffled bits about vectors of bounded length, however the change spreads over a block.

A column is a shuffler that receives from everybody one place out of B, drawn alike for all
values, and a bit about it: one with probability (1 + b_j)/2 at place j, |b_j| <= beta =
tanh(message_epsilon/2). A person's change v_j = c_j - b_j lies in [-2 beta, 2 beta]; of it is
known the sum of squares over all columns, not how it spreads. In units of a full flip, call
theta = sum_j (v_j/(2 beta))^2 / B a column's share; the shares add up to `squared_change`.

It is not enough to bound one *average* change: a full flip in one place of four, among few
people, loses more than a quarter of a full flip in all of them, up to four times as much at high
orders. What is bounded here is the supremum, and its extreme is full flips in a share theta of
the places.

**1. The blanket.** Somebody else's bit is fair with probability 2p = 1 - beta. Tell the reader who
those C are and what all others sent; M = C + 1 reports are left, the victim's and C fair ones.
With the sign X_i = +-1 of report i added up at its place, S = sum_i X_i e_(J_i), the law of what
is left has the density 1 + <b, S>/M against M fair reports (the victim is any of the M).

**2. A scalar inequality.** For orders a >= 2, |b| < 1, |c| <= 1 and r = sqrt(a (a - 1))/(1 - |b|),

    f(c) = [(1 + c)^a (1 + b)^(1 - a) + (1 - c)^a (1 - b)^(1 - a)]/2 <= cosh(r (c - b)).

For f(b) = 1, f'(b) = 0, and f''(c) = a (a - 1) [s R^k + s' R'^k]/2 with k = a - 2, s = 1/(1 + b),
s' = 1/(1 - b), R = 1 + s (c - b) <= exp(s (c - b)), R' = 1 - s' (c - b) <= exp(-s' (c - b)). Let s
be the larger one (else exchange the signs) and u = k (c - b). As -s' lies between -s and s,
exp(-s' u) is at most the mean of exp(su), exp(-su) with weights w = (s - s')/(2s) and 1 - w, so
that [s exp(su) + s' exp(-s' u)]/2 <= s^2 cosh(su): s + s'w <= s^2 and s'(1 - w) <= s^2 for s =
1/(1 - |b|), s' = 1/(1 + |b|). Hence f'' <= r^2 cosh(r (c - b)), as r >= ks. Integrate twice.

**3. Signs.** S and -S are equally likely. Where |<b, S>| <= tau M, the moment E[p^a q^(1 - a)] of
the two laws is therefore at most E cosh(r <v, S>/M), r = sqrt(a (a - 1))/(1 - tau).

**4. The supremum.** The M reports are independent, so that E cosh(r <v, S>/M) =
(mean_j cosh(r v_j/M))^M. As cosh(x) - 1 over x^2 grows, the mean is at most
1 + theta (cosh(2 r beta/M) - 1), attained by full flips in a share theta of the places. So

    E cosh(r <v, S>/M) <= exp(theta M (cosh(2 r beta/M) - 1)).

**5. Large sums.** For tau < |<b, S>|/M <= tau' take r' with tau'. By Hoelder's inequality with
an exponent h >= 1, cosh(x)^h <= cosh(h x) and Hoeffding's, that part adds at most
exp(theta M (cosh(2 h r' beta/M) - 1)/h) (2 exp(-M tau^2/(2 beta^2)))^(1 - 1/h). Levels of tau
up to beta cover everything. No column loses more than message_epsilon.

**6. All columns.** The sum over C and over levels is a sum of exponentials of theta with positive
weights: its logarithm L is convex. With no share above m = min(1, squared_change), and N columns,
all together cost at most N L(0) + (squared_change/m) (L(m) - L(0)), over a - 1.

Source: our own derivation; for blocks of one place independent of that of `mean_price`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from beam_ldp.accounting.divergences.shuffle_rdp import lower_edge_blocks

_CROWD_BLOCKS = 60
_GROWTH = 1.2  # of the levels of |<b, S>|
_SPILL = 1e-3  # about what share of the divergence the first level leaves to the others
_SQUARE = 1.5  # argument up to which cosh - 1 is about a square
_LARGEST = 300.0  # argument of cosh; more proves nothing
_ROUNDING, _NOISE = 1 + 1e-9, 1e-14  # of the result, and of a sum of probabilities


class BoundedMessages(NamedTuple):
    """Message columns of one kind about a vector of bounded length.

    Attributes:
        columns: Shufflers, each of which receives one message of everybody.
        message_epsilon: Local budget of one message (the largest, if they differ).
        squared_change: Largest sum over columns of the mean over its places of
            ((w_j - w'_j)/(2R))^2 between two people's vectors, whose coordinates lie in [-R, R].
        places: Of the largest block: how many places a message speaks about one of.
    """

    columns: int
    message_epsilon: float
    squared_change: float
    places: int = 1


def bounded_change_rdp(messages: BoundedMessages, num_reports: int, order: float) -> float:
    """Rényi divergence of all columns together: a proven upper bound for real orders >= 2.

    Args:
        messages: What one person sends.
        num_reports: People whose messages each shuffler permutes.
        order: At least 2.

    Cost: about a millisecond, whatever `num_reports`.

    >>> flips = BoundedMessages(columns=2, message_epsilon=2.0, squared_change=0.138, places=256)
    >>> round(bounded_change_rdp(flips, 10**6, 1000.0), 6)
    0.000683
    """
    if not order >= 2:
        raise ValueError(f"order must be a number >= 2, got {order}")
    budget = messages.message_epsilon
    share = min(1.0, messages.squared_change)
    edges, log_weights = lower_edge_blocks(
        num_reports - 1, 2 / (math.exp(budget) + 1), _CROWD_BLOCKS
    )
    kept = log_weights > -math.inf
    crowd, log_weights = edges[kept] + 1.0, log_weights[kept]
    none, most = _log_moments(messages, crowd, share, order)
    pure = (order - 1) * budget
    hopeless = ~(most < pure)
    none[hopeless] = most[hopeless] = pure
    at_none = float(np.logaddexp.reduce(log_weights + none))
    at_most = float(np.logaddexp.reduce(log_weights + most))
    full = messages.squared_change / share
    total = messages.columns * (max(0.0, at_none) + _NOISE) + full * (at_most - at_none + _NOISE)
    return _ROUNDING * total / (order - 1)


def _log_moments(
    messages: BoundedMessages, crowd: np.ndarray, share: float, order: float
) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of the moment of a column per size of the crowd, for shares zero and `share`."""
    contrast = math.tanh(messages.message_epsilon / 2)
    scale = 2 * math.sqrt(order * (order - 1)) * contrast

    def slope(tau: np.ndarray, power: np.ndarray | float) -> np.ndarray:
        """What the logarithm grows by with theta, up to the level `tau`."""
        argument = np.minimum(scale * power / (1 - tau) / crowd, _LARGEST)
        return np.where(
            argument < _LARGEST, 2 * crowd * np.sinh(argument / 2) ** 2 / power, math.inf
        )

    ideal = slope(np.zeros_like(crowd), 1.0)
    spill = _SPILL * np.minimum(1.0, messages.squared_change * ideal) / messages.columns
    deviations = np.sqrt(share * ideal) + np.sqrt(-np.log(spill))
    tau = np.minimum(contrast, contrast * np.sqrt(2 / crowd) * deviations)
    logs, slopes = [np.zeros_like(crowd)], [slope(tau, 1.0)]
    while (tau < contrast).any():
        further = np.minimum(contrast, _GROWTH * tau)
        rarity = crowd * tau**2 / (2 * contrast**2)
        # The best power, as long as cosh is about a square.
        power = np.sqrt(rarity / np.maximum(share * slope(further, 1.0), 1e-300))
        power = np.maximum(1.0, np.minimum(power, _SQUARE * crowd * (1 - further) / scale))
        left = tau < contrast
        logs.append(np.where(left, (1 - 1 / power) * (math.log(2) - rarity), -math.inf))
        slopes.append(np.where(left, slope(further, power), 0.0))
        tau = further
    none, most = np.array(logs), np.array(logs) + share * np.array(slopes)
    return np.logaddexp.reduce(none, axis=0), np.logaddexp.reduce(most, axis=0)
