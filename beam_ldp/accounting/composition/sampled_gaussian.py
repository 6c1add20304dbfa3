"""A sum with Gaussian noise, of people who were sampled and not seen: its price under replace-one.

Everybody adds a vector of length at most one to a sum, and the noise has the standard deviation z
in each coordinate. In units of the noise one vector is m = 1/z long. Write N(c) for noise around c,
q for the chance that somebody is sampled, H_t(P || Q) = sup over events A of P(A) - t Q(A), and G+-
for the normal law's trade-off: if N(0) gives A the chance a, then N(u), with |u| <= m, gives it at
most G+(a) = Phi(Phi^-1(a) + m) >= a and at least G-(a) = Phi(Phi^-1(a) - m) <= a (Neyman, Pearson).

**Coins** (Poisson). Whoever else came is decided by their own coins, so that given those (H is
jointly convex) the two laws are (1 - q) N(0) + q N(u) and (1 - q) N(0) + q N(v), with u and v at
most m long. With a = N(0)(A),

    P(A) - t Q(A) <= (1 - q)(1 - t) a + q G+(a) - q t G-(a)

and the half-line {x > c} attains it for u = m, v = -m, at every t: that pair dominates. Turning the
line round swaps its two laws, so both directions are one curve. What is more, q G+(a) + (1 - q) a
grows with q, and q G-(a) + (1 - q) a falls: a pair whose chances of having come are *any* two up to
q costs no more. So a limit on how often somebody comes makes no round dearer: to a reader who is
also shown everybody else's coins, after earlier rounds, the two worlds have two such chances.

**Samples of a fixed size** k of n (q = k/n). In the place of the person somebody else comes, w:
(1 - q) N(w) + q N(u) and (1 - q) N(w) + q N(v), three points of a ball, so at most 2 m apart. By
advanced joint convexity, for t = 1 + q (s - 1) >= 1,

    H_t(P || Q) <= q max(H_s(N(u) || N(w)), H_s(N(u) || N(v))) <= q H_s(N(2 m) || N(0))

and v = w attains it in this direction. The curve is that of (1 - q) N(0) + q N(2 m) against N(0) at
t >= 1, in both directions.

A curve h(t) that bounds both directions at every t >= 1 bounds the Renyi divergences too: expanding
r^a about r = 1 and reading t < 1 in the other direction, both orders a and 1 - a add up to

    exp((a - 1) D_a) <= 1 + E_B[(L^a - 1)(1 - L^(1 - a)); L > 1],

L the likelihood ratio A/B of the pair whose curve h is (for coins with equality). All of it is
positive, so nothing cancels for small q. A reader who sees who came is credited no sampling at all:
for her a round costs the Gaussian at distance 2 m, times the rounds that the person was in.

Sources: Balle, Barthe and Gaboardi 2018 (advanced joint convexity); Zhu, Dong and Wang 2022
(dominating pairs); Lebeda, Regehr, Kamath and Steinke 2024 (that fixed samples are dearer than
coins). The argument by trade-offs is our own; tests/accounting/test_sampled_gaussian.py checks
all of it by enumeration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from beam_ldp.randomizers import special

_REACH = 11.0  # standard deviations: beyond, 1e-28
_LARGEST_LOSS = 700.0  # whose exponential fits a double
_SMALL = 20.0  # a shift whose square's exponential fits a double
_CELLS_PER_DEVIATION = 2
_MOST_CELLS = 1 << 18
_NEGLIGIBLE = 45.0  # below the top of an integrand, in nats
_AGREEMENT = 1e-6  # relative, of two rules of integration, whose difference is added


@dataclass(frozen=True)
class SampledGaussian:
    """One release of a noisy sum over people who were sampled, unseen.

    Attributes:
        rate: q in (0, 1], the chance that somebody is sampled.
        shift: how far replacing somebody who is in the sum moves it, in standard deviations of the
            noise: 2 m; may be infinite.
        coins: whether everybody throws their own, or as many as always come.

    >>> coins, fixed = (SampledGaussian(0.01, 2.0, coins) for coins in (True, False))
    >>> [f"{each.sticks(np.array([0.1]))[0]:.2e}" for each in (coins, fixed)]
    ['9.33e-05', '2.61e-03']
    """

    rate: float
    shift: float
    coins: bool

    @property
    def deviation(self) -> float:
        """Standard deviation of the loss, roughly."""
        square = min(self.shift, _SMALL) ** 2
        spread = 4 * math.sinh(square / 4) if self.coins else math.expm1(square)
        return min(self.shift, self.rate * math.sqrt(spread)) if self.rate < 1 else self.shift

    @property
    def largest_loss(self) -> float:
        """A loss beyond which hardly any lies; there is no largest."""
        furthest = (self.shift / 2 if self.coins else self.shift) + _REACH
        return min(float(self.losses_at(np.array([furthest]))[0]), _LARGEST_LOSS)

    def losses_at(self, places: np.ndarray) -> np.ndarray:
        """Log of A/B where the sum is seen at each of `places`, in deviations from N(0)."""
        if not self.coins:
            return self._log_sampled(places, self.shift)
        m = self.shift / 2
        return self._log_sampled(places, m) - self._log_sampled(places, -m)

    def _log_sampled(self, places: np.ndarray, centre: float) -> np.ndarray:
        """Log-ratio of (1 - q) N(0) + q N(centre) to N(0)."""
        exponent = centre * places - centre**2 / 2
        if self.rate == 1:
            return exponent
        near = np.log1p(self.rate * np.expm1(np.minimum(exponent, 1.0)))
        far = np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + exponent)
        return np.where(exponent < 1.0, near, far)

    def _place_of(self, losses: np.ndarray) -> np.ndarray:
        """Where the sum is seen at the least with each loss >= 0: losses grow with the place."""
        with np.errstate(divide="ignore"):
            if not self.coins:
                inner = np.log1p(np.expm1(losses) / self.rate)
                return self.shift / 2 + inner / self.shift
            # k y^2 - b y - k t = 0 for y = e^(m x), t = e^loss
            m = self.shift / 2
            log_k = math.log(self.rate) - m**2 / 2
            log_b = _log_one_minus(self.rate) + np.log(np.expm1(losses))
        root = np.logaddexp(2 * log_b, math.log(4) + losses + 2 * log_k) / 2
        return (np.logaddexp(log_b, root) - math.log(2) - log_k) / m

    def sticks(self, losses: np.ndarray) -> np.ndarray:
        """The hockey stick, the higher one of both directions, at each loss >= 0."""
        x = self._place_of(losses)
        if not self.coins:
            inner = self.shift * (x - self.shift / 2)
            below = np.exp(inner + special.log_ndtr(-x))
            return np.asarray(self.rate * np.maximum(special.ndtr(self.shift - x) - below, 0.0))
        m = self.shift / 2
        with np.errstate(divide="ignore"):
            log_b = _log_one_minus(self.rate) + np.log(np.expm1(losses))
        absent = np.exp(log_b + special.log_ndtr(-x))
        there = special.ndtr(m - x) - np.exp(losses + special.log_ndtr(-m - x))
        return np.asarray(np.maximum(self.rate * there - absent, 0.0))

    def divergences(self, orders: np.ndarray) -> np.ndarray:
        """Upper bounds of the Renyi divergence at each real order above one."""
        unsampled = orders * (self.shift * self.shift) / 2  # infinite where ** would overflow
        if self.rate == 1 or not math.isfinite(self.shift):
            return unsampled
        found = [self._divergence(float(order)) for order in orders]
        return np.minimum(found, unsampled)

    def _divergence(self, order: float) -> float:
        """By integrating over the places with a positive loss; infinite where that is not known."""
        start = 0.0 if self.coins else self.shift / 2
        length = order * self.shift + 2 * _REACH
        count = length * _CELLS_PER_DEVIATION * max(1.0, self.shift)
        if not count < _MOST_CELLS:
            return math.inf
        edges = start + np.linspace(0.0, length, math.ceil(count) + 1)
        width = edges[1] - edges[0]
        middles = edges[:-1] + width / 2
        seen = self._log_integrand(np.stack([edges[:-1], middles, edges[1:]]), order).max(axis=0)
        top = float(seen.max())
        middles = middles[seen > top - _NEGLIGIBLE]
        coarse, fine = (
            float(
                np.exp(self._log_integrand(middles[:, None] + width / 2 * nodes, order) - top).sum(
                    axis=0
                )
                @ weights
            )
            * width
            / 2
            for nodes, weights in _RULES
        )
        error = abs(fine - coarse)
        if not 0 < fine < math.inf or error > _AGREEMENT * fine:
            return math.inf
        log_total = top + math.log(fine + error)
        return float(np.logaddexp(0.0, log_total)) / (order - 1)

    def _log_integrand(self, places: np.ndarray, order: float) -> np.ndarray:
        """Log of the density of B times (L^a - 1)(1 - L^(1 - a)), where L > 1."""
        loss = self.losses_at(places)
        base = self._log_sampled(places, -self.shift / 2) if self.coins else 0.0
        base = base - places**2 / 2 - math.log(2 * math.pi) / 2
        with np.errstate(divide="ignore"):
            grown, shrunk = order * loss, (order - 1) * loss
            found = base + grown + np.log(-np.expm1(-grown)) + np.log(-np.expm1(-shrunk))
        return np.asarray(np.where(loss > 0, found, -np.inf))


def _log_one_minus(rate: float) -> float:
    return math.log1p(-rate) if rate < 1 else -math.inf


_RULES = tuple(np.polynomial.legendre.leggauss(points) for points in (12, 16))
