"""The exact law of everything that a tiny run releases, for any outcomes of its people.

Batches are those of `Progress`, reports have the implemented channel, and every transcript is
enumerated: what a batch shows, and what later batches ask and show because of it.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from scipy import stats

from beam_ldp.decisions.bandits.elimination import Batch, LinearBandit
from beam_ldp.decisions.bandits.noise import bit_randomizer
from beam_ldp.decisions.bandits.progress import BanditProgress, Heard

Outcomes = np.ndarray  # (people, actions) of -1 and 1: what each would return for each action
Law = dict[tuple, float]  # type: ignore[type-arg]
View = Callable[[Batch, Outcomes], Law]
"""What a batch shows: first the ones among the reports of each action played, then more."""


@lru_cache
def ones_law(epsilon: float, ones: int, others: int) -> np.ndarray:
    """Of the reports 1 among people with outcomes 1 and -1, so many of each."""
    low, high = bit_randomizer(epsilon).channel()[:, 1]
    first = stats.binom.pmf(np.arange(ones + 1), ones, high)
    return np.convolve(first, stats.binom.pmf(np.arange(others + 1), others, low))


def _sums(batch: Batch, ones: tuple[int, ...]) -> Law:
    """Where so many people of each action have an outcome of 1."""
    assert batch.noise.epsilon is not None
    counts = batch.counts.tolist()
    laws = [ones_law(batch.noise.epsilon, k, n - k) for k, n in zip(ones, counts, strict=True)]
    return {
        found: math.prod(law[one] for law, one in zip(laws, found, strict=True))
        for found in itertools.product(*(range(n + 1) for n in counts))
    }


def _in_order(batch: Batch) -> np.ndarray:
    return np.repeat(batch.played, batch.counts)


def sums(batch: Batch, outcomes: Outcomes) -> Law:
    """A shuffler's view, where people have their actions in a public order."""
    actions = _in_order(batch)
    mine = outcomes[np.arange(len(actions)), actions] > 0
    return _sums(batch, tuple(int(mine[actions == a].sum()) for a in batch.played))


def secret_sums(batch: Batch, outcomes: Outcomes) -> Law:
    """The same where a uniform assignment of people to actions is secret; of two actions."""
    if len(batch.played) == 1:
        return sums(batch, outcomes)
    first, second = (outcomes[:, a] > 0 for a in batch.played)
    chosen = np.array(list(itertools.combinations(range(batch.people), int(batch.counts[0]))))
    ones = first[chosen].sum(axis=1)
    others = second.sum() - second[chosen].sum(axis=1)
    found: Law = defaultdict(float)
    pairs, times = np.unique(np.column_stack([ones, others]), axis=0, return_counts=True)
    for pair, chance in zip(pairs.tolist(), (times / len(chosen)).tolist(), strict=True):
        for told, mass in _sums(batch, tuple(pair)).items():
            found[told] += chance * mass
    return dict(found)


def reports(batch: Batch, outcomes: Outcomes) -> Law:
    """Everybody's report with its sender's name; those of all but the first person as sums, which
    hold all that they tell of the first."""
    assert batch.noise.epsilon is not None
    actions = _in_order(batch)
    channel = bit_randomizer(batch.noise.epsilon).channel()
    mine = channel[int(outcomes[0, actions[0]] > 0)]
    rest = outcomes[np.arange(len(actions)), actions] > 0
    ones = [int(rest[1:][actions[1:] == a].sum()) for a in batch.played]
    sizes = [int((actions[1:] == a).sum()) for a in batch.played]
    laws = [ones_law(batch.noise.epsilon, k, n - k) for k, n in zip(ones, sizes, strict=True)]
    found: Law = {}
    for bit in (0, 1):
        for told in itertools.product(*(range(n + 1) for n in sizes)):
            mass = math.prod(law[one] for law, one in zip(laws, told, strict=True))
            found[(told[0] + bit, *told[1:], bit)] = float(mine[bit]) * mass
    return found


class Enumerated:
    """All transcripts of a bandit.

    Args:
        bandit: whose reports are bits.
        view: what each batch shows.
    """

    def __init__(self, bandit: LinearBandit, view: View) -> None:
        self._bandit, self._view = bandit, view
        self.opened: dict[tuple[Heard, ...], Batch | None] = {}

    def batch(self, heard: tuple[Heard, ...] = ()) -> Batch | None:
        """What is asked after what was heard."""
        if len(heard) == self._bandit.schedule.batches:
            return None
        if heard not in self.opened:
            self.opened[heard] = BanditProgress(self._bandit, heard).open
        return self.opened[heard]

    def law(self, crowds: Mapping[int, Outcomes], heard: tuple[Heard, ...] = ()) -> Law:
        """Of all transcripts; the people of each batch are the first of its crowd."""
        batch = self.batch(heard)
        if batch is None:
            return {(): 1.0}
        assert batch.noise.epsilon is not None
        counts, found = batch.counts, {}
        for told, mass in self._view(batch, crowds[batch.number][: batch.people]).items():
            ones = np.array(told[: len(counts)])
            noisy = batch.noise.bound * (2.0 * ones - counts)
            after = (*heard, Heard(tuple(map(int, counts)), tuple(map(float, noisy))))
            for rest, more in self.law(crowds, after).items():
                found[(told, *rest)] = mass * more
        return found

    def masses(self, crowds: Mapping[int, Outcomes], told: list[tuple]) -> np.ndarray:  # type: ignore[type-arg]
        """The same of these transcripts, which must be all."""
        law = self.law(crowds)
        assert law.keys() == set(told)
        return np.array([law[one] for one in told])


def divergence(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    """Hockey-stick divergence: the delta at epsilon of telling the first law from the second."""
    return float(np.maximum(0.0, first - math.exp(epsilon) * second).sum())
