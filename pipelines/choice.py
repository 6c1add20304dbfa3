"""Which mechanism runs, and what is expected of it before any data is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from beam_ldp.accounting import local_epsilon_for
from beam_ldp.pipelines.nearest import nearest
from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.price import Price, expected_price, honest
from beam_ldp.pipelines.settings import FrequencySettings
from beam_ldp.planning import plan_frequency
from beam_ldp.randomizers import frequency as oracles
from beam_ldp.randomizers.base import FrequencyOracle


@dataclass(frozen=True)
class Choice:
    """A mechanism with its expected price and error.

    Attributes:
        randomizer: what the devices run.
        num_reports: reports that the expectations are about.
        price: the central price if so many arrive; None in a simulation.
        predicted_error: standard error of the frequency of a rare value, as a fraction.
    """

    randomizer: FrequencyOracle
    num_reports: int
    price: Price | None
    predicted_error: float


def choose(settings: FrequencySettings, domain_size: int) -> Choice:
    """The mechanism for these flags.

    Args:
        settings: checked flags.
        domain_size: values of the public list, `other` included.

    Raises:
        UsageError: if the mechanism's name is unknown, or none fits.
    """
    num_reports = settings.expected_users or settings.min_reports
    randomizer = _randomizer(settings, domain_size, num_reports)
    price = None
    if settings.seed is None:
        price = expected_price(randomizer, num_reports, settings.delta, settings.honest_fraction)
    return Choice(randomizer, num_reports, price, rare_error(randomizer, num_reports))


def rare_error(randomizer: FrequencyOracle, num_reports: int) -> float:
    """Standard error of the frequency of a value that hardly anybody holds, worst value."""
    truth = np.zeros(randomizer.domain_size)
    truth[-1] = 1.0
    return float(np.sqrt(randomizer.variance(num_reports, truth)[:-1].max()))


def _randomizer(settings: FrequencySettings, domain_size: int, num_reports: int) -> FrequencyOracle:
    hidden_among = honest(num_reports, settings.honest_fraction)
    if settings.mechanism == "auto":
        plans = plan_frequency(
            num_users=hidden_among,
            domain_size=domain_size,
            epsilon=settings.epsilon,
            local_epsilon=settings.local_epsilon,
            delta=settings.delta,
            max_bits=settings.max_bits,
        )
        if not plans:
            raise UsageError(f"--max-bits {settings.max_bits}: no mechanism has so short reports")
        return plans[0].randomizer
    names = oracles.__all__
    if settings.mechanism not in names:
        raise UsageError(
            f"--mechanism {settings.mechanism} is unknown{nearest(settings.mechanism, names)}; "
            f"choose auto or one of {', '.join(names)}"
        )
    local_epsilon = settings.local_epsilon
    if local_epsilon is None:
        assert settings.epsilon is not None
        local_epsilon = local_epsilon_for(settings.epsilon, settings.delta, hidden_among)
    try:
        randomizer: FrequencyOracle = getattr(oracles, settings.mechanism)(
            domain_size, local_epsilon
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"--mechanism {settings.mechanism}: {error}") from None
    if settings.max_bits is not None and randomizer.bits_per_report > settings.max_bits:
        raise UsageError(
            f"--mechanism {settings.mechanism} sends {randomizer.bits_per_report} bits, "
            f"--max-bits is {settings.max_bits}"
        )
    return randomizer
