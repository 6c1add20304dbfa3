"""Intervals of frequencies that hold, however few the people and however rare the value.

A report counts +1, -1 or 0 about a value, and with which chances depends on whether its sender
holds the value. So the count of all reports has a known law for every frequency, and an interval
holds the frequencies whose law does not rule out the count that came:

* up to a level of 95 %, those from which it is at most z deviations away, half a report less (the
  score rule): a closed form. Its coverage was enumerated, not proved: at least 94.4 % of 95 %.
* above it, and for many values at once, those that make neither a count so large nor one so small
  too unlikely: exact tails, which cover with their level at least.

The normal approximation at the estimate, by contrast, holds half as often as it says for the value
of one person among fifty: it takes the variance of a value that nobody holds where none showed up.

Source: Wilson 1927 (score), Clopper and Pearson 1934 (tails), Newcombe 1998 (differences); the
half report is tuned by enumeration.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_ldp.randomizers import special

if TYPE_CHECKING:
    from beam_ldp.randomizers.estimate import Estimate

Bounds = tuple[np.ndarray, np.ndarray]

HALF = 0.52  # of a report: a little more than half, which the least coverage needs
SCORED = 0.05 * (1 - 1e-9)  # miss down to which the score rule holds

_FINEST = 1 << 30  # parts of a whole to which exact ends about a population are worked out
_MOST_SOLVED = 1 << 9  # counts whose exact ends are solved for; others lie between some of these
_MOST_PAIRED = 1 << 18  # components of which each pair of counts is looked at
_CHUNK = 1 << 15  # components that are worked on together: the cache holds them
_NODES = 16
_NEWTONS = 8


class IntervalRule(ABC):
    """How an `Estimate` makes intervals: a value object, which travels with it."""

    @abstractmethod
    def interval(
        self, value: np.ndarray, error: np.ndarray, miss: float, within: bool = True
    ) -> Bounds:
        """`(low, high)` of each component, which misses the truth with that chance.

        Args:
            value, error: unbiased estimates and their standard errors.
            miss: in (0, 1), of each component by itself.
            within: whether ends are cut to what is possible, where the rule knows. Those of sums
                and differences are made of ends that are not, as their errors are of errors.
        """

    def scaled(self, factor: float) -> IntervalRule:
        """The rule of the same estimates, each so many times as large."""
        return Scaled(self, factor)

    def among(self, people: int) -> IntervalRule:
        """The rule about so many people, of whom those who answered are an even draw."""
        return self


@dataclass(frozen=True)
class Normal(IntervalRule):
    """The normal approximation: so many standard errors either way, whatever is possible."""

    def interval(
        self, value: np.ndarray, error: np.ndarray, miss: float, within: bool = True
    ) -> Bounds:
        half_width = -special.ndtri(miss / 2) * error
        return value - half_width, value + half_width

    def scaled(self, factor: float) -> Normal:
        return self


NORMAL = Normal()


@dataclass(frozen=True, eq=False)
class SupportRule(IntervalRule):
    """Intervals from counts of reports for and against a value, within [0, 1].

    Attributes:
        answers: reports that came, at least 1.
        people: of how many people the answers are an even draw, themselves included (all of them
            where everybody answered); ends are then whole numbers of them. None for frequencies of
            the population that people were drawn from.
        own: chances that the report of who holds the value counts +1, and -1.
        others: those of a report of anybody else.
        on_block: how many reports counted about each value at all, where others' chances to depend
            on what they hold: those of `others` are then the least, and `own` the most.
    """

    answers: int
    people: int | None
    own: tuple[float, float]
    others: tuple[float, float]
    on_block: np.ndarray | None = None

    def among(self, people: int) -> SupportRule:
        return self if self.people is None else replace(self, people=people)

    @property
    def _offset(self) -> float:
        """What a report of somebody else counts on average."""
        return self.others[0] - self.others[1]

    @property
    def _contrast(self) -> float:
        """What holding the value adds to that."""
        return self.own[0] - self.own[1] - self._offset

    @property
    def _drawn(self) -> float:
        """Part of the variance of a draw with replacement that the draw of the answers has."""
        if self.people is None:
            return 1.0
        return (self.people - self.answers) / max(1, self.people - 1)

    def interval(
        self, value: np.ndarray, error: np.ndarray, miss: float, within: bool = True
    ) -> Bounds:
        if within and miss < SCORED:
            return self._exact(value, miss / 2)
        z = -float(special.ndtri(miss / 2))
        return self._scored(value, lambda _: (z, z), within)

    def _whole(self, low: np.ndarray, high: np.ndarray) -> Bounds:
        """Ends of [0, 1], and at whole people where some lie between them and they are known."""
        low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
        if self.people is None:
            return low, high
        slack = 1e-9 + 1e-15 * self.people  # of what is whole but for rounding
        first = np.ceil(low * self.people - slack) / self.people
        last = np.floor(high * self.people + slack) / self.people
        some = first <= last
        return np.where(some, first, low), np.where(some, last, high)

    # The score rule -----------------------------------------------------------------------

    def _scored(
        self,
        value: np.ndarray,
        deviations: Callable[[np.ndarray], tuple[Any, Any]],
        within: bool = True,
    ) -> Bounds:
        """Frequencies f with |value - f| - half a report <= z deviations of the value at f.

        `deviations` gives z of the lower end and of the upper one for some of the values.
        """
        half = HALF / (self.answers * self._contrast)
        low, high = np.empty(value.shape), np.empty(value.shape)
        for start in range(0, value.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            own, (z_low, z_high) = value[part], deviations(value[part])
            near = far = np.full(own.shape, np.inf)
            for nobody, everybody in self._at(part)._variances:
                near = np.minimum(near, self._lowest(own - half, nobody, everybody, z_low))
                far = np.minimum(far, self._lowest(1 - half - own, everybody, nobody, z_high))
            ends = near, 1 - far
            low[part], high[part] = self._whole(*ends) if within else ends
        return low, high

    @property
    def _variances(self) -> list[tuple[Any, Any]]:
        """Of one answer's estimate, at frequencies 0 and 1 and linear between: the largest of
        these is that of the noise."""
        scale = self._contrast**2
        found: list[tuple[Any, Any]] = [(_spread(self.others), _spread(self.own))]
        if self.on_block is not None:
            seen = np.minimum(self.on_block / self.answers, sum(self.own))
            found.append((seen, seen - scale))
        return [(nobody / scale, everybody / scale) for nobody, everybody in found]

    def _lowest(self, value: np.ndarray, nobody: Any, everybody: Any, z: Any) -> np.ndarray:
        """The least f of [0, 1] with value - f <= z deviations; 1 where there is none.

        A root of (value - f)**2 <= z**2 (noise + draw) / answers, which is quadratic in f. At most
        one lies in [0, 1], for the deviation is concave there; there may be none at all, so 0 is
        tried first. Where it will do, the f below 0 that would with its deviation.
        """
        scale = z**2 / self.answers
        drawn, start = scale * self._drawn, scale * nobody
        slope = (scale * everybody - start + drawn) / 2
        root = value * (2 * slope - drawn * value) + slope**2 + (1 + drawn) * start
        found = (value + slope - np.sqrt(np.maximum(root, 0.0))) / (1 + drawn)
        found[root < 0] = 1.0
        beyond = value - np.sqrt(np.maximum(start, 0.0))
        return np.where(beyond <= 0, beyond, found)

    # Exact tails --------------------------------------------------------------------------

    def _exact(self, value: np.ndarray, tail: float) -> Bounds:
        """The outermost frequencies with which counts so large, or so small, have that chance.

        They are found by bisection, once for each different count. Of very many counts some are
        solved for; between them the z is interpolated with which the score rule says the same.
        """
        raw = self.answers * (self._offset + self._contrast * value)
        counts = np.rint(raw).astype(np.int64)
        keys: Any = counts
        if self.on_block is not None and counts.size <= _MOST_PAIRED:
            keys = counts + 1j * self.on_block
        known = np.unique(keys)
        if len(known) <= _MOST_SOLVED and (self.on_block is None or keys is not counts):
            some = self if self.on_block is None else replace(self, on_block=known.imag)
            low, high = some._solved(known.real.astype(np.int64), tail)
            places = np.searchsorted(known, keys)
            return self._whole(low[places], high[places])
        if self.on_block is None:
            known, some = known[_sample(len(known))], self
        else:
            known, places = np.unique(counts, return_index=True)
            few = _sample(len(known))
            known, some = known[few], self._at(places[few])
        z_low, z_high = some._scores(known, tail)
        at = some._value(known)
        return self._scored(
            value, lambda own: (np.interp(own, at, z_low), np.interp(own, at, z_high))
        )

    def _value(self, counts: np.ndarray) -> np.ndarray:
        """The estimate that such a count is."""
        return np.asarray((counts / self.answers - self._offset) / self._contrast)

    def _at(self, places: np.ndarray | slice) -> SupportRule:
        """The rule of these components."""
        return self if self.on_block is None else replace(self, on_block=self.on_block[places])

    @property
    def _parts(self) -> int:
        """Of how many parts of a whole exact ends are a number."""
        return _FINEST if self.people is None else self.people

    def _solved(self, counts: np.ndarray, tail: float) -> Bounds:
        low = self._bisected(counts, tail, 1) / self._parts
        return low, 1 - self._bisected(counts, tail, -1) / self._parts

    def _scores(self, counts: np.ndarray, tail: float) -> Bounds:
        """The z of the score rule that leave out what exact tails leave out, each just so."""
        value = self._value(counts)
        usual, half = -float(special.ndtri(tail)), HALF / (self.answers * self._contrast)
        found = []
        for end, side in zip(self._solved(counts, tail), (1, -1)):
            beyond = np.clip(end - side / self._parts, 0.0, 1.0)
            noise = [one + (other - one) * beyond for one, other in self._variances]
            spread = np.max(np.broadcast_arrays(*noise), axis=0)
            spread = (spread + self._drawn * beyond * (1 - beyond)) / self.answers
            z = (side * (value - beyond) - half) / np.sqrt(spread)
            found.append(np.where(beyond == end, np.maximum(z, usual), z))
        return found[0], found[1]

    def _bisected(self, counts: np.ndarray, tail: float, side: int) -> np.ndarray:
        """How many parts must hold the value (side 1), or must not (-1), so that a count so large
        (so small) has more than that chance."""
        low = np.zeros(len(counts), np.int64)
        high = np.where(self._chance(counts, low, side) > tail, 0, self._parts)
        while (open_ := high - low > 1).any():
            middle = (low + high) // 2
            enough = self._chance(counts, middle, side) > tail
            high, low = np.where(enough, middle, high), np.where(enough | ~open_, low, middle)
        return high if self.people is not None else low

    def _chance(self, counts: np.ndarray, parts: np.ndarray, side: int) -> np.ndarray:
        """Of a count so large if so many parts hold the value; or so small if so many do not."""
        share = parts / self._parts if side > 0 else 1 - parts / self._parts
        others: Any = self.others
        if self.on_block is not None:
            seen = self.on_block / self.answers - share * sum(self.own)
            seen = np.clip(seen, (1 - share) * sum(others), (1 - share) * sum(self.own))
            others = [one * seen / np.maximum(1 - share, 1e-300) / sum(others) for one in others]
        groups: list[tuple[Any, Any]] = [
            (self.answers * share, self.own),
            (self.answers * (1 - share), others),
        ]
        if self._drawn:
            mixed = [share * one + (1 - share) * other for one, other in zip(self.own, others)]
            groups = [(self.answers, mixed)]
        if side < 0:
            groups = [(number, (down, up)) for number, (up, down) in groups]
        return chance_of_more(side * counts, groups)


def _spread(chances: tuple[float, float]) -> float:
    """Variance of what one report counts."""
    up, down = chances
    return up + down - (up - down) ** 2


def _sample(size: int) -> np.ndarray:
    """Places of an array, increasing: all at both ends, ever fewer toward the middle."""
    steps = np.arange(_MOST_SOLVED // 4)
    steps = np.concatenate([steps, np.geomspace(len(steps), size, len(steps)).astype(np.int64)])
    steps = steps[steps < size]
    return np.unique(np.concatenate([steps, size - 1 - steps]))


def chance_of_more(counts: np.ndarray, groups: Sequence[tuple[Any, tuple[Any, Any]]]) -> np.ndarray:
    """The chance that a sum of independent reports is `counts` or more; 1 up to its mean.

    Exact but for rounding, whatever the number of reports: Cauchy's integral of the probability
    generating function over a circle about zero, on which the integrand is largest on the right
    and falls off as a normal density does.

    Args:
        counts: integers, `(n,)`.
        groups: of reports with one law: how many, and the chances to count +1 and -1; all numbers
            or `(n,)`.

    >>> found = chance_of_more(np.array([2, 8, 10]), [(10, (0.5, 0.0))])
    >>> [round(float(one), 6) for one in found]
    [1.0, 0.054688, 0.000977]
    """
    mean, spread = _moments(np.zeros(len(counts)), groups)
    beyond = counts > mean
    counts = np.where(beyond, counts, np.floor(mean) + 1)
    tilt = np.log1p((counts - mean) / spread)
    for _ in range(_NEWTONS):  # any circle would do: this one needs few nodes
        found, spread = _moments(tilt, groups)
        tilt = np.clip(tilt + np.clip((counts - found) / spread, -1.0, 1.0), 0.0, 30.0)
    tilt = np.maximum(tilt, 1 / np.sqrt(1 + spread))
    spread = _moments(tilt, groups)[1]
    # Where all reports count +1 or -1 the sum is even or odd: then the other end of the circle
    # weighs as much.
    arcs = 2 if any(np.any(down) for _, (_, down) in groups) else 1
    step = np.minimum(math.pi / arcs, 8.5 / np.sqrt(spread)) / _NODES
    angle = step * (np.arange(_NODES)[:, None] + 0.5)
    angle = np.concatenate([angle, math.pi - angle][:arcs])
    size, turn = -tilt * counts, -angle * counts
    for number, (up, down) in groups:
        grown, up, down = _tilted(tilt, up, down)
        real, imaginary = -2 * (up + down) * np.sin(angle / 2) ** 2, (up - down) * np.sin(angle)
        with np.errstate(divide="ignore"):
            shrinks = np.log1p(real * (2 + real) + imaginary**2) / 2
        size = size + number * (np.log1p(grown) + shrinks)
        turn = turn + number * np.arctan2(imaginary, 1 + real)
    real, imaginary = 1 - np.exp(-tilt) * np.cos(angle), np.exp(-tilt) * np.sin(angle)
    waves = (np.cos(turn) * real + np.sin(turn) * imaginary) / (real**2 + imaginary**2)
    found = (np.exp(size) * waves).sum(axis=0) * step / math.pi
    return np.where(beyond, found, 1.0)


def _moments(tilt: np.ndarray, groups: Sequence[tuple[Any, tuple[Any, Any]]]) -> Bounds:
    """Mean and variance of the sum where each count weighs e**tilt times the one below it."""
    mean, spread = np.zeros(tilt.shape), np.full(tilt.shape, 1e-300)
    for number, (up, down) in groups:
        _, up, down = _tilted(tilt, up, down)
        mean += number * (up - down)
        spread += number * (up + down - (up - down) ** 2)
    return mean, spread


def _tilted(tilt: np.ndarray, up: Any, down: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The generating function of one report at e**tilt, less 1; and its chances so weighed."""
    rises, falls = np.expm1(tilt), np.expm1(-tilt)
    grown = up * rises + down * falls
    return grown, up * (1 + rises) / (1 + grown), down * (1 + falls) / (1 + grown)


# Intervals made of intervals --------------------------------------------------------------


@dataclass(frozen=True)
class Scaled(IntervalRule):
    """The rule of estimates that were multiplied."""

    rule: IntervalRule
    factor: float

    def interval(
        self, value: np.ndarray, error: np.ndarray, miss: float, within: bool = True
    ) -> Bounds:
        low, high = self.rule.interval(value / self.factor, error / self.factor, miss, within)
        return low * self.factor, high * self.factor


@dataclass(frozen=True)
class Joined(IntervalRule):
    """Components with rules of their own, one after the other.

    Attributes:
        parts: how many components, and their rule.
    """

    parts: tuple[tuple[int, IntervalRule], ...]

    def interval(
        self, value: np.ndarray, error: np.ndarray, miss: float, within: bool = True
    ) -> Bounds:
        cuts = np.cumsum([size for size, _ in self.parts])[:-1]
        both = zip(self.parts, np.split(value, cuts), np.split(error, cuts))
        found = [rule.interval(own, errors, miss, within) for (_, rule), own, errors in both]
        low, high = zip(*found)
        return np.concatenate(low), np.concatenate(high)


@dataclass(frozen=True, eq=False)
class Difference(IntervalRule):
    """First minus second, of estimates that are independent: each end is as far as the ends of
    both together, by their squares (Newcombe). Approximate; of two normal ones it is that of
    `Normal`."""

    first: Estimate
    second: Estimate

    def interval(
        self, value: np.ndarray, error: np.ndarray, miss: float, within: bool = True
    ) -> Bounds:
        first, second = self.first.value, self.second.value
        (low, high), (second_low, second_high) = (
            one.rule.interval(one.value, one.standard_error, miss, within=False)
            for one in (self.first, self.second)
        )
        below = np.hypot(first - low, second_high - second)
        above = np.hypot(high - first, second - second_low)
        return first - second - below, first - second + above


def pooled(rules: Sequence[IntervalRule], people: Sequence[int]) -> IntervalRule:
    """The rule of the estimate about several sets of people, each weighted by its people.

    The normal one where not everybody answered: then the parts are weighted by more than answers.
    """
    joined = [rule.parts for rule in rules if isinstance(rule, Joined)]
    if len(joined) == len(rules):
        return Joined(
            tuple((of[0][0], pooled([rule for _, rule in of], people)) for of in zip(*joined))
        )
    known = [rule for rule in rules if isinstance(rule, SupportRule)]
    alike = {(rule.own, rule.others, rule.people is None) for rule in known}
    whole = all(
        rule.answers == count and rule.people in (None, count) for rule, count in zip(known, people)
    )
    if len(known) < len(rules) or len(alike) > 1 or not whole:
        return NORMAL
    seen = [rule.on_block for rule in known if rule.on_block is not None]
    return replace(
        known[0],
        answers=sum(people),
        people=None if known[0].people is None else sum(people),
        on_block=np.sum(seen, axis=0) if seen else None,
    )
