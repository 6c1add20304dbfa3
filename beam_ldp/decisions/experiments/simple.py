"""One sample of randomized bits against a known rate: how many people, and what is decided.

A person's bit is one with probability tau0 under the hypothesis of no effect, and tau1 under the
effect; the report is randomized response of it. The effect is decided if *more than* a threshold of
reports are one. Everything is an exact binomial probability. Where people differ, it holds as long
as they are independent and nobody's rate is above tau0 (under the effect: below tau1).

Source: Joseph, Mao, Neel and Roth, section 5.1, whose rule (more than half) is wrong: the threshold
has to lie between the two rates of reports (docs/errata.md). Spec: interactivity, section 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import stats

from beam_ldp.decisions.experiments.channel import BitChannel
from beam_ldp.randomizers.checks import check_fraction, check_integer

MOST_PEOPLE = 10**10
_STEPS_BACK = 200  # the least number is saw-toothed: what is searched below the bisection's answer


@dataclass(frozen=True)
class SimpleDesign:
    """How many people, and the threshold.

    Attributes:
        people: whose reports are counted.
        threshold: the effect is decided if more reports than this are one.
        level: probability of that without an effect.
        power: probability of it with one.
    """

    people: int
    threshold: int
    level: float
    power: float


def simple_threshold(people: int, rate: float, alpha: float) -> int:
    """The smallest count that reports exceed with probability `alpha` at most.

    >>> simple_threshold(1201, 0.5924234, 0.05)
    739
    """
    check_integer("people", people, 1)
    check_fraction("alpha", alpha)
    return int(stats.binom.isf(alpha, people, rate))


def simple_design(
    channel: BitChannel, null: float, alternative: float, alpha: float, power: float
) -> SimpleDesign:
    """The fewest people (within about 2 %) who tell the two shares apart.

    Args:
        channel: what reports go through.
        null: share of ones without an effect.
        alternative: the same with it; larger. For a smaller one count the zeros.
        alpha: the most that a false alarm may have.
        power: the least that an effect must have of being seen.

    Raises:
        ValueError: for an argument out of range, or if 1e10 people are too few.

    >>> simple_design(  # doctest: +ELLIPSIS
    ...     BitChannel.implemented(1.0), 0.7, 0.8, 0.05, 0.95
    ... )
    SimpleDesign(people=1201, threshold=739, level=0.0497..., power=0.950...)
    """
    for name, share in (("null", null), ("alternative", alternative)):
        check_fraction(name, share, "[]")
    if alternative <= null:
        raise ValueError(f"alternative must be above null, got {alternative!r} and {null!r}")
    check_fraction("alpha", alpha)
    check_fraction("power", power)
    rates = channel.rate(null), channel.rate(alternative)
    enough = 1
    while not _at(enough, rates, alpha).power >= power:
        enough *= 2
        if enough > MOST_PEOPLE:
            raise ValueError(f"effect: more than {MOST_PEOPLE:.0e} people would be needed")
    few = enough // 2
    while enough - few > 1:
        middle = (enough + few) // 2
        if _at(middle, rates, alpha).power >= power:
            enough = middle
        else:
            few = middle
    tried = (_at(n, rates, alpha) for n in range(max(1, enough - _STEPS_BACK), enough + 1))
    return next(design for design in tried if design.power >= power)


def _at(people: int, rates: tuple[float, float], alpha: float) -> SimpleDesign:
    threshold = simple_threshold(people, rates[0], alpha)
    level, power = (float(stats.binom.sf(threshold, people, rate)) for rate in rates)
    return SimpleDesign(people, threshold, level, power)


def simple_power(
    channel: BitChannel, people: int, null: float, alternative: float, alpha: float
) -> float:
    """The power at this many people, the threshold recomputed for them."""
    return _at(people, (channel.rate(null), channel.rate(alternative)), alpha).power


def simple_p_value(channel: BitChannel, people: int, ones: int, null: float) -> float:
    """Probability of so many ones, or more, without an effect.

    >>> round(simple_p_value(BitChannel.implemented(1.0), 1201, 740, 0.7), 4)
    0.0497
    """
    check_integer("ones", ones, 0, people)
    return float(stats.binom.sf(ones - 1, people, channel.rate(null)))


def normal_people(
    channel: BitChannel, null: float, alternative: float, alpha: float, power: float
) -> int:
    """What the normal approximation says; beside the exact number."""
    rates = channel.rate(null), channel.rate(alternative)
    wide = [
        stats.norm.isf(tail) * math.sqrt(rate * (1 - rate))
        for tail, rate in zip((alpha, 1 - power), rates)
    ]
    return math.ceil((sum(wide) / (rates[1] - rates[0])) ** 2)
