"""Shuffled additive shares of noisy numbers: an inert record of what ran."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import attr

from beam_ldp.accounting.divergences.hockey_stick import check_reports
from beam_ldp.accounting.divergences.shared_sums import (
    NOTHING_HIDES,
    SumLosses,
    noisy_sum_losses,
    views_distance,
)
from beam_ldp.randomizers.checks import check_integer, check_positive

_LARGEST_DISTANCE = 1 / 16  # of views: beyond, nothing is claimed

# What a release loses -------------------------------------------------------------------------
#
# Let P and Q be the laws of what is shown of two data sets. Show the sums themselves besides, and
# not only modulo q: that tells more. Each bound below is one of the ratio of densities, where it
# holds, so that what a release costs is that of a Gaussian but for `apart`, but for a `chance`.
#
# Noise. The sum of `num_people` discrete Gaussians is a rounded Gaussian but for `sum_log_ratio`
# and `rounding_log_ratio`, at every integer. Draws from tables are ideal ones but for a chance of
# `DRAW_DISTANCE` each, which P pays for. Of Q no chance will do, since e^epsilon times as much were
# to be paid: its density is at least the ideal one times exp(-`drawn_log_ratio`) wherever the noise
# is within `_REACH` deviations, which it is under P but for 2 exp(-(_REACH - mu)^2 / 2) in each
# coordinate (discrete Gaussians are sub-Gaussian; the sums are at most mu deviations apart).
#
# Views. Given the sum, let C be the law of uniform shares of that sum, and L the density of what is
# shown relative to it. By the proof of `view_distance` E_C[(L - 1)^2] is at most x^2, x =
# `views_distance`, for all numbers of that sum, and so for any mixture of them. With t = 2 sqrt(x),
# by Chebyshev's inequality, 1 - t <= L <= 1 + t for both data sets but for 2 x^2 / t^2 = x / 2
# under C, and so but for x under P, which is x / 2 from C. No factor e^epsilon here, either.
#
# Together: P = P' + rest, the rest of mass `chance`, and P' <= e^apart N, Q >= e^-apart N' where P'
# lives, with N and N' of the Gaussian mechanism. So P(S) <= chance + e^apart N(S), and the rest is
# that of the Gaussian; Renyi divergences of P' from Q are those of the Gaussian, and
# (2 order - 1)/(order - 1) times `apart`. A chance of this kind is what an accountant adds up as
# `failure_probability` (beam_ldp.ledger.losses has the proof for releases that are chosen).


def _whole(least: int) -> Any:
    def check(instance: Any, attribute: Any, value: Any) -> None:
        check_integer(attribute.name, value, least)

    return check


def _positive(instance: Any, attribute: Any, value: float) -> None:
    check_positive(attribute.name, value)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ShuffledShares:
    """The shuffled shares of the noisy vectors of `num_reports` people (or any function of them).

    Protects one person's vector (replace-one) against whoever sees what left the shufflers, and
    not against the shufflers: shares that belong together add up to the vector. Each coordinate is
    a sum modulo a power of two, to which everybody adds a share of discrete Gaussian noise.

    Attributes:
        coordinates: numbers per person.
        longest: square of the Euclidean length of one person's vector of integers, at most.
        noise_deviation: of one person's noise in each coordinate.
        modulus_bits: logarithm of the modulus, to the base of two.
        shares: of each number, every column shuffled alone.
        num_reports: people who followed the protocol, whose shares arrived complete.
    """

    coordinates: int = attr.ib(validator=_whole(1))
    longest: int = attr.ib(validator=_whole(1))
    noise_deviation: float = attr.ib(converter=float, validator=_positive)
    modulus_bits: int = attr.ib(validator=_whole(1))
    shares: int = attr.ib(validator=_whole(2))
    num_reports: int = attr.ib(converter=check_reports)

    @property
    def crowd(self) -> int:
        """People among whom one hides."""
        return self.num_reports

    @property
    def local_epsilon(self) -> float:
        """Infinite: nothing protects a person against whoever sees which shares are hers."""
        return math.inf

    @property
    def sensitivity(self) -> float:
        """Euclidean length, at most, of what replacing one person changes of the sum."""
        return 2 * math.sqrt(self.longest)

    @property
    def losses(self) -> SumLosses:
        """What the release loses, as a Gaussian mechanism but for little; the proof is above."""
        return _losses(self)

    @property
    def failure_probability(self) -> float:
        """That its divergences do not hold: delta must cover it."""
        return self.losses.chance


@lru_cache(maxsize=256)
def _losses(event: ShuffledShares) -> SumLosses:
    people, size = event.num_reports, event.coordinates
    noise = noisy_sum_losses(event.sensitivity, event.noise_deviation, people, size)
    apart = views_distance(1 << event.modulus_bits, people, event.shares, size)
    if not apart <= _LARGEST_DISTANCE or noise.chance >= 1:
        return NOTHING_HIDES
    seen = -math.log1p(-2 * math.sqrt(apart))
    return SumLosses(noise.mu, noise.apart + seen, noise.chance + apart)
