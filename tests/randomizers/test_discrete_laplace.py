"""The sampler of discrete Laplace noise: its law by enumeration of all that it may draw."""

import contextlib
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from beam_ldp.randomizers import discrete_noise as module
from beam_ldp.randomizers.discrete_noise import discrete_laplace


class StopPath(Exception):
    """The end of a path: a second attempt, or too unlikely."""


class Path:
    """Draws of one path: those of a prefix, then always the first value."""

    def __init__(self, prefix: tuple[int, ...]) -> None:
        self.prefix, self.taken, self.sides, self.chance = prefix, [], [], 1.0
        self.attempts = 0

    def draw(self, chances: list[float]) -> int:
        place = len(self.taken)
        value = self.prefix[place] if place < len(self.prefix) else 0
        self.taken.append(value)
        self.sides.append(len(chances))
        self.chance *= chances[value]
        if self.chance < 1e-15:
            raise StopPath
        return value

    def below(self, values: int) -> int:  # what an attempt begins with
        self.attempts += 1
        if self.attempts > 1:
            raise StopPath
        return self.draw([1 / values] * values)

    def coin(self, chance: Fraction | float, _: object = None) -> bool:
        return self.draw([1 - float(chance), float(chance)]) == 1

    def following(self) -> tuple[int, ...] | None:
        taken = self.taken
        while taken and taken[-1] + 1 == self.sides[len(taken) - 1]:
            taken.pop()
        return (*taken[:-1], taken[-1] + 1) if taken else None


def law_of(draw) -> Counter:
    """Probabilities of all results of `draw(path)`, over one attempt."""
    law: Counter = Counter()
    prefix: tuple[int, ...] | None = ()
    while prefix is not None:
        path = Path(prefix)
        with contextlib.suppress(StopPath):
            law[draw(path)] += path.chance
        prefix = path.following()
    return law


@pytest.mark.parametrize("rate", [Fraction(1), Fraction(1, 2), Fraction(2, 3), Fraction(7, 3)])
def test_law_by_enumeration_of_all_paths_of_an_attempt(monkeypatch, rate):
    def drawn(path: Path) -> int:
        monkeypatch.setattr(module, "_coin", path.coin)
        monkeypatch.setattr(module, "_is_exponential", lambda x, _: path.coin(math.exp(-x)))
        return discrete_laplace(rate, path.below)

    law = law_of(drawn)
    accepted, p = sum(law.values()), math.exp(-rate)
    for value in range(-12, 13):
        exact = (1 - p) / (1 + p) * p ** abs(value)
        assert law[value] / accepted == pytest.approx(exact, abs=1e-13)


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 7), Fraction(1)])
def test_exponential_coins_by_enumeration(monkeypatch, exponent):
    def drawn(path: Path) -> bool:
        monkeypatch.setattr(module, "_coin", path.coin)
        return module._is_exponential(exponent, path.below)

    assert law_of(drawn)[True] == pytest.approx(math.exp(-exponent), abs=1e-14)


def test_a_coin_has_its_probability_exactly():
    for heads in range(8):
        fair = [module._coin(Fraction(heads, 7), lambda m, w=w: w * m // 7) for w in range(7)]
        assert sum(fair) == heads


def test_secure_draws_have_the_variance_of_the_law():
    rate = Fraction(0.125)
    p = math.exp(-rate)
    drawn = np.array([discrete_laplace(rate) for _ in range(4000)])
    variance = 2 * p / (1 - p) ** 2
    assert drawn.var() == pytest.approx(variance, rel=5 * math.sqrt(5 / 4000))
    assert abs(drawn.mean()) < 5 * math.sqrt(variance / 4000)


def test_refusals():
    with pytest.raises(ValueError, match="rate must be > 0, got 0"):
        discrete_laplace(Fraction(0))
