"""A privacy figure with what stands beside it, and what no analysis can beat.

The latter are concrete pairs of data sets, for one mechanism or for all, whose laws are listed
outcome by outcome (`Atoms`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from beam_ldp.accounting.divergences.crowd_sizes import Crowd, CrowdSizes
from beam_ldp.accounting.divergences.enumerated import listed_configurations
from beam_ldp.accounting.divergences.hockey_stick import (
    directions,
    epsilon_bound,
    hockey_stick,
)
from beam_ldp.accounting.divergences.loss_grid import lower_epsilon
from beam_ldp.accounting.divergences.moments import (
    Atoms,
    binomial_bins,
    binomial_log_pmf,
    binomial_window,
)
from beam_ldp.accounting.divergences.shuffle_rdp import three_response_atoms
from beam_ldp.randomizers.shuffle_pair import ShufflePair, two_level_witnesses


class PrivacyBound(float):
    """A proved upper value of epsilon (or of delta), which is a float, with what stands beside it.

    Attributes:
        lower: What a concrete pair of data sets costs with *this* mechanism: the true value lies
            between `lower` and the float itself. 0.0 where the mechanism offers no such pair.
            May be given as a function that returns it with its `lower_method`, and is called
            when either is first read: it takes longer than the value.
        class_lower: What no analysis can go below that knows the local epsilon alone (shuffled
            binary and ternary randomized response). A mechanism's own value may lie below it.
            May be given as a function, which is called when it is first read: it takes longest.
        method: The method whose value this is.
        proof_status: "proved" or "conjectured".
        lower_method: The pair of data sets behind `lower`, or why there is none.

    >>> bound = PrivacyBound(0.5, lower=0.4, class_lower=0.45, method="clones")
    >>> bound <= 0.5, bound.lower, bound.proof_status
    (True, 0.4, 'proved')
    >>> bound
    PrivacyBound(0.5, lower=0.4, class_lower=0.45, method='clones', proof_status='proved')
    """

    __slots__ = ("_class_lower", "_lower", "method", "proof_status")

    _lower: tuple[float, str] | Callable[[], tuple[float, str]]
    _class_lower: float | Callable[[], float]
    method: str
    proof_status: str

    def __new__(
        cls,
        value: float,
        *,
        lower: float | Callable[[], tuple[float, str]] = 0.0,
        class_lower: float | Callable[[], float] = 0.0,
        method: str = "",
        proof_status: str = "proved",
        lower_method: str = "",
    ) -> PrivacyBound:
        self = super().__new__(cls, value)
        if math.isnan(self) or self < 0.0:
            raise ValueError(f"value must be >= 0, got {float(value)!r}")
        if not callable(class_lower):
            class_lower = _checked(class_lower)
        if proof_status not in ("proved", "conjectured"):
            raise ValueError(
                f"proof_status must be 'proved' or 'conjectured', got {proof_status!r}"
            )
        for name, given in (
            ("_lower", lower if callable(lower) else self._within(lower, lower_method)),
            ("_class_lower", class_lower),
            ("method", method),
            ("proof_status", proof_status),
        ):
            object.__setattr__(self, name, given)
        return self

    @property
    def lower(self) -> float:
        return self._known_lower()[0]

    @property
    def lower_method(self) -> str:
        return self._known_lower()[1]

    def _known_lower(self) -> tuple[float, str]:
        known = self._lower
        if callable(known):
            known = self._within(*known())
            object.__setattr__(self, "_lower", known)
        return known

    def _within(self, lower: float, method: str) -> tuple[float, str]:
        if not 0.0 <= lower <= self:
            raise ValueError(f"lower must be in [0, {float(self)!r}], got {lower!r}")
        return float(lower), method

    @property
    def class_lower(self) -> float:
        known = self._class_lower
        if callable(known):
            known = _checked(known())
            object.__setattr__(self, "_class_lower", known)
        return known

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a PrivacyBound is immutable: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a PrivacyBound is immutable: cannot delete {name}")

    def __reduce__(self) -> tuple[Callable[..., PrivacyBound], tuple[float, dict[str, Any]]]:
        return _restore, (float(self), {name: getattr(self, name) for name in _BESIDE})

    def __copy__(self) -> PrivacyBound:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivacyBound:
        return self

    def __repr__(self) -> str:
        return (
            f"PrivacyBound({float(self)!r}, lower={self.lower!r}, "
            f"class_lower={self.class_lower!r}, method={self.method!r}, "
            f"proof_status={self.proof_status!r})"
        )

    def __str__(self) -> str:
        return float.__repr__(self)


_BESIDE = ("lower", "class_lower", "method", "proof_status", "lower_method")


def _checked(class_lower: float) -> float:
    if not class_lower >= 0.0:
        raise ValueError(f"class_lower must be >= 0, got {class_lower!r}")
    return float(class_lower)


def _restore(value: float, beside: dict[str, Any]) -> PrivacyBound:
    return PrivacyBound(value, **beside)


# What no analysis can go below that knows a mechanism by its local epsilon alone ----------
#
# Binary and ternary randomized response are such mechanisms; what a concrete pair of datasets
# costs with them bounds the price of the class from below. In both, everybody else holds one
# value; with several points per client every other point does.


_TILT = 100.0
_LARGEST_LISTED_CROWD = 3000  # above, ternary response is known by the difference of two counts
_WINDOW_DEVIATIONS = 14.0


def two_response_atoms(local_epsilon: float, num_reports: int, rate: float = 1.0) -> Atoms:
    """Binary randomized response, everybody else equal; the victim reports with `rate`."""
    ratio = np.exp(local_epsilon)
    heads = 1 / (ratio + 1)
    counts = binomial_window(num_reports, heads, _TILT)
    excess = rate * (ratio - 1 / ratio) / num_reports * (counts - num_reports * heads)
    log_mass = binomial_log_pmf(counts, num_reports, heads)
    return Atoms(log_mass, 1 + excess, np.ones_like(excess))


def three_response_difference_atoms(
    local_epsilon: float, num_reports: int, rate: float = 1.0
) -> Atoms:
    """Ternary randomized response, everybody else at the third value, seen by one number.

    The reader is told only how many more reports name the victim's first value than the second.
    That is post-processing of the histogram, hence still a lower bound, and hardly a lesser one:
    the likelihood ratio depends on little else. O(sqrt(num_reports)).
    """
    ratio = math.exp(local_epsilon)
    each, both = 1 / (ratio + 2), ratio / (ratio + 2)
    others = difference_law(num_reports - 1, each, both)
    base = each * others[:-2] + both * others[1:-1] + each * others[2:]
    lower, same, upper = (part / base for part in (others[:-2], others[1:-1], others[2:]))
    first = both * lower + each * same + each * upper  # the report adds one to what others sum to
    second = each * lower + each * same + both * upper
    return Atoms(np.log(base), 1 + rate * (first - 1), 1 + rate * (second - 1))


def difference_law(trials: int, each: float, neither: float) -> np.ndarray:
    """Law of a sum of draws from {1, -1, 0} with probabilities (each, each, neither).

    At every integer of a window symmetric around zero, by the recurrence of the coefficients of
    (each z + neither + each / z)^trials. Its terms are positive on the left half, so that it is
    stable there, and it forgets where it was started.
    """
    reach = _WINDOW_DEVIATIONS * (math.sqrt(2 * each * trials) + 1) + 2
    start = -min(trials, int(reach))
    growth = 1.0 if start > -trials else math.inf  # no outcome lies below -trials
    log_growth = np.zeros(1 - start)
    for i, m in enumerate(range(start + 1, 1), start=1):
        up = neither / each * (1 - m) + (trials - m + 2) / growth
        growth = up / (trials + m)
        log_growth[i] = math.log(growth)
    left = np.exp(np.cumsum(log_growth) - np.sum(log_growth))
    law = np.concatenate([left, left[-2::-1]])
    return law / law.sum()


@lru_cache(maxsize=4096)
def class_lower_epsilon(
    local_epsilon: float, num_reports: Crowd, rate: float, count: int, delta: float
) -> float:
    """Certified lower bound of the epsilon of `count` releases, for the worst randomizer.

    Args:
        local_epsilon: eps0.
        num_reports: Reports in each shuffled batch; by chance, of one release without sampling.
        rate: Probability that a person (of several points per client: one data point) is drawn for
            a batch; 1 without sampling.
        count: Releases.
        delta: In (0, 1).

    >>> round(class_lower_epsilon(2.0, 2_000, 2_000 / 60_000, 6_000, 1e-5), 3)
    0.608
    """
    return max(
        two_response_epsilon(local_epsilon, num_reports, rate, count, delta),
        three_response_epsilon(local_epsilon, num_reports, rate, count, delta),
    )


@lru_cache(maxsize=4096)
def two_response_epsilon(
    local_epsilon: float, num_reports: Crowd, rate: float, count: int, delta: float
) -> float:
    """What binary randomized response costs at least; see `class_lower_epsilon`."""
    if (rate == 1.0 and count == 1) or isinstance(num_reports, CrowdSizes):
        return _one_shuffle(two_response_witnesses(local_epsilon), num_reports, delta)
    pair = two_response_atoms(local_epsilon, num_reports, rate)
    return lower_epsilon([(count, pair)], delta)


@lru_cache(maxsize=4096)
def three_response_epsilon(
    local_epsilon: float, num_reports: Crowd, rate: float, count: int, delta: float
) -> float:
    """What ternary randomized response costs at least; see `class_lower_epsilon`."""
    if (rate == 1.0 and count == 1) or isinstance(num_reports, CrowdSizes):
        return _one_shuffle(three_response_witnesses(local_epsilon), num_reports, delta)
    if num_reports <= _LARGEST_LISTED_CROWD:
        pair = three_response_atoms(local_epsilon, num_reports, rate, _TILT)
    else:
        pair = three_response_difference_atoms(local_epsilon, num_reports, rate)
    return lower_epsilon([(count, pair)], delta)


def two_response_witnesses(local_epsilon: float) -> tuple[ShufflePair, ...]:
    """Binary randomized response, everybody else equal, in both directions."""
    return _both(two_level_witnesses(math.exp(local_epsilon), 1 / 2, 0.0))


def three_response_witnesses(local_epsilon: float) -> tuple[ShufflePair, ...]:
    """Ternary randomized response, everybody else at one of its values, in both directions."""
    return _both(two_level_witnesses(math.exp(local_epsilon), 1 / 3, 0.0, (0.0,)))


def _both(pairs: tuple[ShufflePair, ...]) -> tuple[ShufflePair, ...]:
    return tuple(side for pair in pairs for side in directions(pair))


def _one_shuffle(pairs: tuple[ShufflePair, ...], num_reports: Crowd, delta: float) -> float:
    best = 0.0
    for pair in pairs:
        if hockey_stick(pair, num_reports, best).lower > delta:  # else it cannot be the largest
            best = max(best, epsilon_bound(pair, num_reports, delta, upper=False))
    return best


# What a reader of a shuffled batch sees of two concrete data sets, by likelihood ratios.
#
# Everybody but the victim holds one value, so that reports are independent draws from one law and
# the likelihood ratio is an average over them. Small batches are listed whole. In large ones
# reports are put in two classes, or three, before they are counted: that is post-processing, so
# the pair is never easier to tell apart than the batch itself.


_LARGEST_CROWD_OF_THREE = 10**10  # beyond, their law takes seconds
_TOLERANCE = 1e-12


@lru_cache(maxsize=64)
def witness_atoms(witness: ShufflePair, num_reports: int, rate: float = 1.0) -> Atoms:
    """The pair of laws of a batch in which the victim's report is with probability `rate`.

    Args:
        witness: Concrete pair of values of the victim, and the value of everybody else.
        num_reports: Reports in the batch.
        rate: In (0, 1]; where the victim's is not there, somebody else's is.
    """
    listed = listed_configurations(witness, num_reports)
    if listed is not None:
        first, second = listed.first / num_reports, listed.second / num_reports
        return _atoms(listed.probability, first, second, rate)
    listable = num_reports <= _LARGEST_CROWD_OF_THREE
    ways = [classes for classes in _classes(witness) if len(classes) == 2 or listable]
    best = max(ways, key=_information)
    counted = _two_classes if len(best) == 2 else _three_classes
    return counted(best, num_reports, rate)


def bit_atoms(first: float, second: float, num_reports: int) -> Atoms:
    """A bit that is one with probability `first` for the victim and `second` for all others.

    Or, the other way round, with probability `second` for the victim too.
    """
    ratios = ((first / second, 1.0), ((1 - first) / (1 - second), 1.0))
    return witness_atoms(ShufflePair(1.0, ratios, (second, 1 - second)), num_reports)


def _classes(witness: ShufflePair) -> Iterator[np.ndarray]:
    """Ways to put reports in classes: rows (chance, first ratio, second ratio).

    Two classes, or three of which the outer are mirror images.
    """
    table = np.array([(p, *both) for both, p in zip(witness.ratios, witness.probabilities)])
    gain = table[:, 1] - table[:, 2]
    for cut in sorted(set(gain))[:-1]:
        yield _merged(table, [gain <= cut, gain > cut])
    for cut in sorted(set(np.abs(gain)))[:-1]:
        three = _merged(table, [gain < -cut, np.abs(gain) <= cut, gain > cut])
        if len(three) == 3 and np.allclose(three[0], three[2][[0, 2, 1]], rtol=_TOLERANCE):
            yield three


def _merged(table: np.ndarray, groups: list[np.ndarray]) -> np.ndarray:
    parts = [table[group] for group in groups if group.any()]
    chances = [part[:, 0].sum() for part in parts]
    return np.array([(c, *(part[:, 0] @ part[:, 1:] / c)) for c, part in zip(chances, parts)])


def _information(classes: np.ndarray) -> float:
    """How well two values can be told apart in a large crowd."""
    return float(classes[:, 0] @ (classes[:, 1] - classes[:, 2]) ** 2)


def _two_classes(classes: np.ndarray, num_reports: int, rate: float) -> Atoms:
    chance, *high = classes[1]
    counts, log_mass = binomial_bins(num_reports, chance, _TILT)
    share = counts / num_reports - chance
    # The ratio of the upper class over that of the lower one: what a report more of it says.
    first, second = (1 + share * (h - low) for h, low in zip(high, classes[0, 1:]))
    return _atoms(np.exp(log_mass), first, second, rate)


def _three_classes(classes: np.ndarray, num_reports: int, rate: float) -> Atoms:
    """By how many more reports of one outer class there are than of the other."""
    chances = classes[:, 0]
    others = difference_law(num_reports - 1, chances[2], chances[1])
    shifted = (others[2:], others[1:-1], others[:-2])  # the victim's report: lower, middle, upper
    base = sum(chance * law for chance, law in zip(chances, shifted))
    first, second = (
        sum(c * ratio * law for c, ratio, law in zip(chances, classes[:, side], shifted)) / base
        for side in (1, 2)
    )
    return _atoms(base, first, second, rate)


def _atoms(mass: np.ndarray, first: np.ndarray, second: np.ndarray, rate: float) -> Atoms:
    """The outcomes of a batch in which the victim's report may not be.

    Outcomes whose ratios rounding has made zero are left out, which only lowers the result.
    """
    first, second = (1 - rate) + rate * first, (1 - rate) + rate * second  # nothing cancels
    seen = (mass > 0) & (first > 0) & (second > 0)
    return Atoms(np.log(mass[seen]), first[seen], second[seen])
