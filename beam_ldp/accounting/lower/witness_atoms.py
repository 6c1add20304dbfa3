"""What a reader of a shuffled batch sees of two concrete data sets, by likelihood ratios.

Everybody but the victim holds one value, so that reports are independent draws from one law and
the likelihood ratio is an average over them. Small batches are listed whole. In large ones reports
are put in two classes, or three, before they are counted: that is post-processing, so the pair is
never easier to tell apart than the batch itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from beam_ldp.accounting.divergences.hockey_stick import listed_configurations
from beam_ldp.accounting.divergences.moments import Atoms, binomial_bins
from beam_ldp.accounting.lower.class_lower import difference_law
from beam_ldp.randomizers.shuffle_pair import ShufflePair

_TILT = 100.0
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
        second = listed.second / num_reports
        first = second + listed.difference / num_reports
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
    first, second = 1 + rate * (first - 1), 1 + rate * (second - 1)
    seen = (mass > 0) & (first > 0) & (second > 0)
    return Atoms(np.log(mass[seen]), first[seen], second[seen])
