"""The losses of one release, from its hockey sticks at a few hundred of them.

Connecting those dots gives a privacy-loss distribution that is never better than the truth, and
whose losses end at the largest log-ratio of the mechanism: it composes, and it has Rényi moments
of every order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from beam_ldp.accounting.divergences.iid_sums import COARSE, FINE, MIDDLE
from beam_ldp.accounting.divergences.loss_grid import LossGrid

STEPS_PER_DEVIATION = 20
NEGLIGIBLE = 1e-45  # delta of a loss beyond which compositions count everything as unbounded
_LARGEST_GRID = 1 << 18
_FINE_DEVIATIONS = 8  # evenly spaced up to here, geometrically beyond
_FAR = 16  # deviations, beyond which few losses of most releases matter
_FEW = 4  # knots at once there
_GROWTH = 1.06
_LEAST_FALL, _FALL = 0.1, 0.01  # of sticks from knot to knot: 0.1 - 0.01 log(stick)
_GLANCE = 16  # knots from one at which a second pair is tried to the next
_NEAR_THE_TOP = 20  # knots, each half as far from the largest loss as the one before
_LARGE_POWER = 300.0  # whose exponentials are added up in logarithms


class AnyCurve(Protocol):
    """The privacy curve of one release, whatever it is made of."""

    @property
    def top(self) -> float:
        """The largest loss."""

    @property
    def deviation(self) -> float:
        """Standard deviation of the loss, for large crowds."""

    @property
    def alternatives(self) -> Sequence[AnyCurve]:
        """Others that bound the same release."""

    def log_heights(self, losses: np.ndarray, smoothing: tuple[float, ...]) -> np.ndarray:
        """Logarithms of the upper delta at each loss >= 0, in the worse direction."""


LogSticks = Callable[[np.ndarray, tuple[float, ...]], np.ndarray]


def deviation_of(curve: AnyCurve) -> float:
    """Standard deviation of the loss. Sets the grid."""
    return min(curve.deviation, curve.top)


def grid_of(
    curve: AnyCurve, sticks_at: Callable[[float], tuple[np.ndarray, np.ndarray]] | None = None
) -> LossGrid:
    """The losses of one release, for compositions.

    Args:
        curve: Of the release.
        sticks_at: What `sticks` finds at a step, where somebody remembers it.
    """
    at = sticks_at or (lambda step: sticks(curve, step))
    step = natural_step(curve)
    longest = int(at(step)[0][-1])
    if longest > _LARGEST_GRID:  # of mechanisms that tell all, but hardly ever
        step *= math.ceil(longest / _LARGEST_GRID)
    return LossGrid.connecting(step, *at(step))


def natural_step(curve: AnyCurve) -> float:
    """The step of a grid that fits the spread of the losses and ends at the largest of them."""
    top = curve.top
    count = math.ceil(top * STEPS_PER_DEVIATION / deviation_of(curve) * (1 - 1e-12))
    step = top / count
    # A last knot that rounding puts below the largest loss would leave some loss unbounded.
    return step if count * step >= top else math.nextafter(step, math.inf)


def sticks(curve: AnyCurve, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Positions on the grid that matter, and the higher hockey stick of both directions there.

    Of a grid that is finer than the losses of this release need, only every few positions.
    """
    last, deviation = max(1, math.ceil(curve.top / step - 1e-9)), deviation_of(curve)
    every = max(1, math.floor(deviation / STEPS_PER_DEVIATION / step * (1 + 1e-9)))
    knots = np.minimum(last, every * loss_knots(step * every, deviation, -(-last // every)))
    far = np.searchsorted(knots * step, _FAR * curve.deviation)
    logs = np.empty(0)
    for part in np.array_split(knots, [far, *range(far + _FEW, len(knots), _FEW)]):
        if not len(logs) or logs[-1] >= math.log(NEGLIGIBLE):  # else nobody looks further
            logs = np.append(logs, log_sticks(curve, part * step, MIDDLE))
    knots = knots[: len(logs)]
    heights = np.exp(log_convex(knots * step, logs))
    kept = 1 + np.count_nonzero(heights >= NEGLIGIBLE)
    return knots[:kept], heights[:kept]


def log_sticks(curve: AnyCurve, losses: np.ndarray, smoothing: tuple[float, ...]) -> np.ndarray:
    """Logarithms of the hockey stick at each loss; minus infinity from the largest on.

    Each proved pair bounds it at every loss, so the smallest of them does. The second pair is
    looked at closely only where a glance tells that it is better somewhere.
    """
    inside = losses[losses < curve.top]
    found = curve.log_heights(inside, smoothing) if len(inside) else inside
    some = slice(None, None, _GLANCE)
    for other in curve.alternatives if len(inside) else ():
        if np.any(other.log_heights(inside[some], COARSE) < found[some]):
            found = np.minimum(found, other.log_heights(inside, smoothing))
    pure = math.log(math.tanh(curve.top / 2.0))  # what the largest loss alone allows
    found[inside == 0.0] = np.minimum(found[inside == 0.0], pure)
    return np.concatenate([found, np.full(len(losses) - len(inside), -np.inf)])


def log_convex(losses: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """The largest convex curve below the points, at the same losses; logarithms, both.

    A hockey stick is convex in the ratio e^loss, so it lies below that curve where it lies below
    the points. Those of a dominating pair need not be convex once they are cut at the largest loss.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # falls over widths, in logarithms
        falls = logs[:-1] + np.log(-np.expm1(np.diff(logs))) - losses[:-1]
        slopes = falls - np.log(np.expm1(np.diff(losses)))
    if np.all(slopes[1:] <= slopes[:-1]):
        return logs
    at, height = losses.tolist(), logs.tolist()
    kept: list[int] = []
    for i in range(len(at)):
        while len(kept) > 1:
            before, last = kept[-2], kept[-1]
            share = math.expm1(at[last] - at[before]) / math.expm1(at[i] - at[before])
            # All in units of the first of the three, which no double need hold.
            chord = share * math.expm1(height[i] - height[before])
            if math.expm1(height[last] - height[before]) <= chord:
                break
            kept.pop()
        kept.append(i)
    if len(kept) == len(at):
        return logs
    places = np.minimum(np.searchsorted(kept, np.arange(len(at)), side="right"), len(kept) - 1)
    left, right = np.array(kept)[places - 1], np.array(kept)[places]
    shares = np.expm1(losses - losses[left]) / np.expm1(losses[right] - losses[left])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(logs[left] + np.log1p(shares * np.expm1(logs[right] - logs[left])))


def divergences_of(
    curve: AnyCurve, sticks: tuple[np.ndarray, np.ndarray], orders: np.ndarray
) -> np.ndarray:
    """Upper bounds of the Rényi divergence at each real order above one.

    Taken from a distribution that is no better than the release, on its own fine grid.

    Args:
        curve: Of the release.
        sticks: Its `fine_sticks`.
        orders: Above one.
    """
    found = moments(*sticks, orders)
    # Divergences grow with the order, up to the largest loss: so each bounds those before it.
    found = np.array([np.min(found[orders >= order]) for order in orders])
    return np.minimum(found, curve.top)


def fine_sticks(curve: AnyCurve) -> tuple[np.ndarray, np.ndarray]:
    """Losses up to the largest, and the logarithms of convex hockey sticks there.

    Those of a composition, and more near the largest loss and where sticks are small: chords
    between sticks that differ by a factor e^c are too high by c / (2 tanh(c / 2)), which moments
    of high orders must not feel. Their logarithms are about as large as that of the stick, so c may
    grow with it.
    """
    step = natural_step(curve)
    last = max(1, math.ceil(curve.top / step - 1e-9))
    losses = loss_knots(step, deviation_of(curve), last) * step
    closer = (losses[-1] - losses[-2]) * 0.5 ** np.arange(1, _NEAR_THE_TOP)
    losses = np.concatenate([losses[:-1], losses[-1] - closer, losses[-1:]])
    logs = log_sticks(curve, losses, FINE)
    seen = np.isfinite(logs)
    grown = np.log(_LEAST_FALL - _FALL * logs[seen]) / _FALL  # one more where c is one more
    more = np.interp(np.arange(grown[0], grown[-1]), grown, losses[seen])
    more = np.setdiff1d(more[more > _FINE_DEVIATIONS * deviation_of(curve)], losses)
    both = np.concatenate([losses, more])
    order = np.argsort(both)
    found = np.concatenate([logs, log_sticks(curve, more, FINE)])[order]
    end = np.argmin(found) + 1  # the first that is minus infinity
    return both[order][:end], log_convex(both[order][:end], found[:end])


def loss_knots(step: float, deviation: float, last: int, growth: float = _GROWTH) -> np.ndarray:
    """Positions from 0 to `last`: every one where most losses lie, ever fewer beyond."""
    fine = min(last, math.ceil(_FINE_DEVIATIONS * deviation / step))
    knots = list(range(fine + 1))
    position = float(max(fine, 1))
    while position < last:
        position = max(position + 1, position * growth)
        knots.append(min(last, int(position)))
    return np.unique(knots)


def moments(losses: np.ndarray, logs: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Rényi divergences of the distribution whose hockey stick is the chords between points.

    It is its own mirror image (`connect_dots`): a loss x of mass p under P comes with -x, of mass
    p e^-x. Summing over both, E_Q[ratio^a] - 1 is a sum of terms that are not negative,
    p e^-x phi(x) + p phi(-x) with phi(x) = expm1(a x) - a expm1(x): nothing cancels near zero.

    Args:
        losses: Ascending from zero to the largest.
        logs: Logarithms of the sticks, the last minus infinity.
        orders: Above one.
    """
    gaps = np.diff(losses)
    with np.errstate(divide="ignore", invalid="ignore"):
        falls = logs[:-1] + np.log(-np.expm1(np.diff(logs))) - np.log(-np.expm1(-gaps))
        kept = np.append(falls[1:] - gaps[1:] - falls[:-1], -np.inf)
        mass = falls + np.log(-np.expm1(np.minimum(kept, 0.0)))
    seen = np.isfinite(mass)
    losses, mass = losses[1:][seen], mass[seen]
    order = orders[:, None]
    powers = np.minimum(order * losses, _LARGE_POWER)
    above = np.exp(mass - losses) * (np.expm1(powers) - order * np.expm1(losses))
    below = np.exp(mass) * (np.expm1(-order * losses) - order * np.expm1(-losses))
    large = order * losses > _LARGE_POWER
    terms = np.where(large, 0.0, np.maximum(above, 0.0)) + np.maximum(below, 0.0)
    total = np.log1p(terms.sum(axis=1))
    tails = np.where(large, mass + (order - 1.0) * losses, -np.inf)
    return np.logaddexp(total, np.logaddexp.reduce(tails, axis=1)) / (orders - 1.0)
